"""What the affine rows of an MPCC prove about it as a whole: that it is infeasible, that it is unbounded.

A solver that stops knows one point. That a program has no feasible point, or no smallest objective, is a statement
about all points, and here it is made only with a proof:

- infeasible: in every branch of the affine rows multipliers show, by weak duality and computed here, that some row or
  bound is violated by more than the tolerance wherever one stands. Rows that are not affine are left out, which makes
  the set only larger.
- unbounded: all rows are affine, the objective is quadratic, and there are a branch that is not empty and a direction d
  of its recession cone with Q d = 0 and c'd < 0, along which the objective falls at a constant rate (Frank and Wolfe
  1956: a convex quadratic objective over a polyhedron that has no such ray takes its minimum).

Branches are searched by linear programs with one side of some groups held at zero; a group is decided only where the
answer has neither side zero, and the search ends without a proof after a number of programs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.implicit_function import shortest_step
from nosnoc_py.mpcc.linearization import Linearizer, LocalProgram, linear_program, row_maxima, scaled_columns
from nosnoc_py.mpcc.lpec import Groups, Node, divided_node
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.structure import depends

# Linear programs of one search: fewer where each takes longer.
NODES, WORK = (8, 200), 100_000
# A violation is proved where it is this many times the tolerance of a solver.
CLEAR = 10.0
# Relative errors of sums: a gradient below this is zero.
ROUNDING = 1e-11
# A side counts as zero below this, in rows and columns whose largest entry is one.
ZERO = 1e-9
# A ray descends by more than this there, and is exact to the other where it is not projected.
STEEP, EXACT = 1e-6, 1e-9
# Rows that a ray keeps are found at this.
KEPT = 1e-7
# Directions are projected onto the rows they keep up to this many variables.
PROJECTED = 2000
SHOWN = 3  # variables of a ray in a message


@dataclass(frozen=True, eq=False, kw_only=True)
class AffineProgram:
    """The affine rows of an MPCC at some parameters: lower <= matrix w <= upper in a box, rows g, G, H, r.

    Rows that are not affine have infinite limits. `columns` scales every variable so that its largest entry is about
    one; `known` masks the rows that are affine, `exact` says that these are all of them.
    """

    matrix: Any
    lower: np.ndarray
    upper: np.ndarray
    box_lower: np.ndarray
    box_upper: np.ndarray
    known: np.ndarray
    groups: Groups
    columns: np.ndarray
    exact: bool

    @cached_property
    def norm(self) -> np.ndarray:
        """Largest entry of every row in scaled columns."""
        return row_maxima(scaled_columns(self.matrix, self.columns))

    @property
    def nodes(self) -> int:
        """Linear programs that a search may take; where rows are left out it rarely proves anything after the first."""
        return int(np.clip(WORK // max(1, sum(self.matrix.shape)), *NODES)) if self.exact else NODES[0]

    def closest(self, zero: np.ndarray, deadline: float) -> Closest:
        """The point whose largest violation of a row, in the user's units, is smallest, with these rows at zero."""
        from scipy import sparse

        upper = np.where(zero & self.known, self.lower, self.upper)  # of G and H: the lower limit is where they vanish
        below, above = np.isfinite(upper), np.isfinite(self.lower)
        rows = sparse.vstack([self.matrix[below], -self.matrix[above]], format="csr")
        limit = np.concatenate([upper[below], -self.lower[above]])
        size = row_maxima(scaled_columns(rows, self.columns))
        scaled = sparse.diags_array(1.0 / size) @ rows @ sparse.diags_array(self.columns)
        matrix = sparse.hstack([scaled, sparse.csr_array(-1.0 / size[:, None])], format="csc")
        box = np.column_stack([self.box_lower / self.columns, self.box_upper / self.columns])
        count = self.columns.size
        cost, box = np.append(np.zeros(count), 1.0), np.vstack([box, [0.0, np.inf]])
        found = linear_program(cost, box, (matrix, limit / size), deadline=deadline)
        if found.status != 0 or found.x is None:
            return Closest(w=None, bound=-np.inf, weight=np.zeros(self.lower.size))
        dual = np.maximum(-found.ineqlin.marginals, 0.0) / size if limit.size else np.zeros(0)
        weight = np.zeros(self.lower.size)
        np.add.at(weight, np.concatenate([np.flatnonzero(below), np.flatnonzero(above)]), dual)
        return Closest(w=found.x[:count] * self.columns, bound=self._proved(rows, limit, dual), weight=weight)

    def _proved(self, rows: Any, limit: np.ndarray, dual: np.ndarray) -> float:
        """Every point violates a row by at least (dual'(rows w - limit)) / sum(dual), which is smallest at a corner."""
        if dual.sum() <= 0.0:
            return 0.0
        dual = dual / dual.sum()
        gradient, noise = rows.T @ dual, ROUNDING * (abs(rows).T @ dual)
        gradient = np.where(np.abs(gradient) <= noise, 0.0, gradient)
        corner = np.where(gradient > 0.0, self.box_lower, np.where(gradient < 0.0, self.box_upper, 0.0))
        value = float(np.sum(gradient * corner) - dual @ limit)
        rounding = ROUNDING * float(np.abs(gradient * corner).sum() + np.abs(dual * limit).sum())
        return value - rounding if np.isfinite(value) else -np.inf

    def recession(self, cost: np.ndarray, flat: Any) -> LocalProgram:
        """The linear program of rays: steepest d with flat d = 0 in the recession cone, |d| <= 1 in scaled columns."""
        from scipy import sparse

        matrix = sparse.vstack([self.matrix, flat], format="csr")
        extra = np.zeros(flat.shape[0])
        lower = np.concatenate([np.where(np.isfinite(self.lower), 0.0, -np.inf), extra])
        upper = np.concatenate([np.where(np.isfinite(self.upper), 0.0, np.inf), extra])
        scaled = scaled_columns(matrix, self.columns)
        cost = cost * self.columns
        return LocalProgram(
            cost=cost / max(np.abs(cost).max(initial=0.0), np.finfo(float).tiny),
            matrix=scaled,
            exact=scaled,
            lower=lower,
            upper=upper,
            box_lower=np.where(np.isfinite(self.box_lower), 0.0, -1.0),
            box_upper=np.where(np.isfinite(self.box_upper), 0.0, 1.0),
            slack=np.zeros(lower.size),
            w_scale=self.columns,
        )

    def away(self, w: np.ndarray) -> np.ndarray:
        """How far rows are from their lower limit, over the largest entry of each."""
        finite = np.where(np.isfinite(self.lower), self.lower, 0.0)
        return np.where(self.known & np.isfinite(self.lower), (self.matrix @ w - finite) / self.norm, 0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Closest:
    """A point and a proved lower bound on the violation anywhere; `weight` are the multipliers of the rows.

    `w` is None where the linear program has no answer.
    """

    w: np.ndarray | None
    bound: float
    weight: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Feasibility:
    """What a search says: `point` is feasible for the affine rows, or every branch leaves `violation`, or neither.

    `rows` are those of g, G and H that contradict each other, the more important first.
    """

    point: np.ndarray | None = None
    violation: float = 0.0
    programs: int = 0
    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, int))


@dataclass(frozen=True, eq=False, kw_only=True)
class Ray:
    """From `point` along `d` all rows stay as they are required and the objective falls by `slope` per unit."""

    point: np.ndarray
    d: np.ndarray
    slope: float


def search_feasible(program: AffineProgram, tolerance: float, deadline: float = np.inf) -> Feasibility:
    """A point that satisfies the affine rows and groups, or a proof that there is none, or nothing."""
    nothing = np.zeros(program.groups.count, bool)
    stack, programs, least, weight = [(nothing, nothing)], 0, np.inf, np.zeros(program.known.size)
    while stack:
        left, right = stack.pop()
        if programs >= program.nodes or time.monotonic() > deadline:
            return Feasibility(programs=programs)
        programs += 1
        found = program.closest(program.groups.rows(left, right, program.known.size), deadline)
        if found.w is None:
            return Feasibility(programs=programs)
        if found.bound > CLEAR * tolerance:
            least, weight = min(least, found.bound), weight + found.weight
            continue
        next_ = _divided(program, left, right, program.away(found.w))
        if next_ is None:
            return Feasibility(point=found.w, programs=programs)
        stack += next_
    rows = np.argsort(-weight)[: np.count_nonzero(weight > ZERO)]
    return Feasibility(violation=least, programs=programs, rows=rows)


def search_ray(
    program: AffineProgram, cost: np.ndarray, flat: Any, tolerance: float, deadline: float = np.inf
) -> tuple[Ray | None, bool]:
    """A ray from a feasible point of some branch, and whether the search was complete.

    The point and the ray have to lie in one branch: sides that vanish at the one must vanish along the other.
    """
    cone = program.recession(cost, flat)
    nothing, programs, complete = np.zeros(program.groups.count, bool), 0, True
    stack = [(nothing, nothing)]
    while stack:
        left, right = stack.pop()
        if programs >= program.nodes or time.monotonic() > deadline:
            return None, False
        programs += 1
        zero = program.groups.rows(left, right, program.known.size)
        answer = cone.holding(np.append(zero, np.zeros(flat.shape[0], bool))).solve(deadline)
        if answer.bound >= -STEEP:
            continue
        if answer.status != "optimal":
            complete = False
            continue
        found = program.closest(zero, deadline)
        if found.bound > CLEAR * tolerance:
            continue
        if found.w is None:
            complete = False
            continue
        along = (cone.matrix @ answer.e)[: zero.size] / program.norm
        next_ = _divided(program, left, right, program.away(found.w), along)
        if next_ is not None:
            stack += next_
            continue
        e = _exact(cone, answer.e)
        if e is not None:
            d = e * program.columns
            return Ray(point=found.w, d=d, slope=float(cost @ d)), True
        complete = False
    return None, complete


def _divided(program: AffineProgram, left: np.ndarray, right: np.ndarray, *sizes: np.ndarray) -> list[Node] | None:
    """The two children of a node, the more promising one last; None where every group has a side that is zero."""
    most = np.where(program.known, np.maximum.reduce([np.abs(size) for size in sizes]), 0.0)
    on_left, on_right = program.groups.left.largest(most), program.groups.right.largest(most)
    open_ = ~(left | right)
    if np.minimum(on_left, on_right)[open_].max(initial=0.0) <= ZERO:
        return None
    return divided_node((left, right), on_left, on_right, open_)


def _exact(cone: LocalProgram, e: np.ndarray) -> np.ndarray | None:
    """The direction projected onto the rows and bounds that it keeps; None where it is no ray then.

    A solver of linear programs allows every row 1e-10; along a ray that adds up without limit.
    """
    norm = row_maxima(cone.matrix)
    limited = np.isfinite(cone.lower) | np.isfinite(cone.upper)
    if e.size <= PROJECTED:
        free = ~((np.abs(e) <= KEPT) & ((cone.box_lower == 0.0) | (cone.box_upper == 0.0)))
        kept = limited & (np.abs(cone.matrix @ e) <= KEPT * norm)
        e = np.where(free, e, 0.0)
        rows = cone.matrix[kept][:, free]
        if rows.shape[0] and rows.shape[1]:
            e[free] -= shortest_step(rows, rows @ e[free])
    moved = (cone.matrix @ e) / norm
    wrong = np.maximum(np.where(np.isfinite(cone.lower), -moved, 0.0), np.where(np.isfinite(cone.upper), moved, 0.0))
    outside = np.maximum(cone.box_lower - e, e - cone.box_upper)[(cone.box_lower == 0.0) | (cone.box_upper == 0.0)]
    inside = max(wrong.max(initial=0.0), outside.max(initial=0.0)) <= EXACT
    return e if inside and cone.cost @ e < -STEEP else None


class Proofs:
    """Proofs about one MPCC; what is affine is found once, the last answers are kept."""

    def __init__(self, mpcc: MPCC, linearizer: Linearizer) -> None:
        self._mpcc, self._linearizer = mpcc, linearizer
        self._feasible: tuple[bytes, Feasibility] | None = None
        self._ray: tuple[bytes, tuple[Ray | None, bool]] | None = None

    def feasibility(self, p: np.ndarray, tolerance: float, deadline: float = np.inf) -> Feasibility:
        """What the affine rows say about feasible points."""
        if self._feasible is None or self._feasible[0] != p.tobytes():
            program = self.program(p)
            found = Feasibility() if program is None else search_feasible(program, tolerance, deadline)
            self._feasible = (p.tobytes(), found)
        return self._feasible[1]

    def ray(self, p: np.ndarray, tolerance: float, deadline: float = np.inf) -> tuple[Ray | None, bool]:
        """A ray along which the objective falls without limit, and whether there is none otherwise."""
        if self._ray is None or self._ray[0] != p.tobytes():
            self._ray = (p.tobytes(), self._search_ray(p, tolerance, deadline))
        return self._ray[1]

    def has_ray(self, p: np.ndarray) -> bool:
        """The last search was for these parameters and found one."""
        return self._ray is not None and self._ray[0] == p.tobytes() and self._ray[1][0] is not None

    def is_bounded_below(self, p: np.ndarray) -> bool:
        """Proved: the objective is quadratic over a box, or convex and the last search was complete without a ray."""
        if self._quadratic is None or self._ray is None or self._ray[0] != p.tobytes():
            return False
        if np.isfinite(self._mpcc.lbw).all() and np.isfinite(self._mpcc.ubw).all():
            return True
        ray, complete = self._ray[1]
        if ray is not None or not complete or self._mpcc.w.numel() > PROJECTED:
            return False
        hessian = np.array(self._quadratic(np.zeros(self._mpcc.w.numel()), p)[0])
        return bool(np.linalg.eigvalsh(hessian).min() >= -ROUNDING * np.abs(hessian).max())

    @property
    def exact(self) -> bool:
        """All rows are affine: points that satisfy them and the groups are feasible."""
        return not self._mpcc.enforced.any() and bool(self._alike.all()) and bool(self._affine.all())

    def _search_ray(self, p: np.ndarray, tolerance: float, deadline: float) -> tuple[Ray | None, bool]:
        from scipy import sparse

        mpcc = self._mpcc
        bounded = np.isfinite(mpcc.lbw).all() and np.isfinite(mpcc.ubw).all()
        if mpcc.objective.is_constant() or bounded:
            return None, bool(bounded)
        if not self.exact or self._quadratic is None:
            return None, False
        program = self.program(p)
        if program is None:
            return None, False
        zero = np.zeros(mpcc.w.numel())
        hessian, gradient = self._quadratic(zero, p)
        hessian, cost = sparse.csr_array(hessian.sparse()), np.asarray(gradient).reshape(-1)
        if not np.isfinite(cost).all() or not np.isfinite(hessian.data).all():
            return None, False
        program = replace(program, columns=_column_scale(program.matrix, hessian, cost))
        return search_ray(program, cost, hessian, tolerance, deadline)

    def program(self, p: np.ndarray) -> AffineProgram | None:
        """The affine rows at these parameters; None where there are none, or their numbers are not finite."""
        mpcc = self._mpcc
        at = self._linearizer(np.zeros(mpcc.w.numel()), p)
        known = np.append(self._affine, np.zeros(mpcc.r.numel(), bool))
        if not known.any():
            return None
        keep = np.repeat(known, np.diff(at.jacobian.indptr))
        matrix = at.jacobian.copy()
        matrix.data = np.where(keep, matrix.data, 0.0)
        matrix.eliminate_zeros()
        offset = np.where(known, at.rows, 0.0)
        if not np.isfinite(matrix.data).all() or not np.isfinite(offset).all():
            return None
        nonnegative = np.zeros(mpcc.G.numel() + mpcc.H.numel())
        free = np.full(mpcc.r.numel(), np.inf)
        lower = np.concatenate([mpcc.lbg, nonnegative, -free])
        upper = np.concatenate([mpcc.ubg, nonnegative + np.inf, free])
        return AffineProgram(
            matrix=matrix,
            lower=np.where(known, lower, -np.inf) - offset,
            upper=np.where(known, upper, np.inf) - offset,
            box_lower=mpcc.lbw,
            box_upper=mpcc.ubw,
            known=known,
            groups=Groups(mpcc, at),
            columns=_column_scale(matrix),
            exact=self.exact,
        )

    @cached_property
    def _affine(self) -> np.ndarray:
        """Mask of the rows of g, G and H that are affine in w."""
        mpcc, affine = self._mpcc, self._alike.copy()
        candidates = np.flatnonzero(affine)
        rows = ca.vertcat(mpcc.g, mpcc.G, mpcc.H)[candidates.tolist(), 0]
        affine[candidates] = ~depends(rows, mpcc.w, 2)
        return affine

    @cached_property
    def _alike(self) -> np.ndarray:
        """Rows with the same derivatives at two points: those of the others are certainly not affine.

        Looking at numbers first spares the symbols, which take longer.
        """
        mpcc = self._mpcc
        random = np.random.default_rng(0)
        points = [random.uniform(-1.0, 1.0, mpcc.w.numel()) for _ in range(2)]
        one, other = (self._linearizer(point, mpcc.p0).jacobian for point in points)
        same = np.isclose(one.data, other.data, rtol=1e-9, atol=1e-12) & np.isfinite(one.data)
        row = np.repeat(np.arange(one.shape[0]), np.diff(one.indptr))
        return np.asarray(np.bincount(row[~same], minlength=one.shape[0]) == 0)[: -mpcc.r.numel() or None]

    @cached_property
    def _quadratic(self) -> Any:
        """(w, p) -> Hessian and gradient of the objective, None where it is not quadratic."""
        mpcc = self._mpcc
        hessian, gradient = ca.hessian(mpcc.objective, mpcc.w)
        if ca.depends_on(hessian, mpcc.w):
            return None
        return ca.Function("objective", [mpcc.w, mpcc.p], [hessian, gradient])


def told_infeasible(mpcc: MPCC, found: Feasibility) -> str:
    """A proof in words."""
    sizes = np.cumsum([0, mpcc.g.numel(), mpcc.G.numel(), mpcc.H.numel()])
    names = []
    for row in found.rows[:SHOWN]:
        k = int(np.searchsorted(sizes, row, side="right")) - 1
        names.append((mpcc.constraints, mpcc.left, mpcc.right)[k].named(int(row - sizes[k])))
    more = " and others" if found.rows.size > SHOWN else ""
    between = f", between the bounds and {', '.join(names)}{more}" if names else ""
    count = "one linear program" if found.programs == 1 else f"{found.programs} linear programs"
    return f"proved by {count}: every branch leaves a violation of at least {found.violation:.2g}{between}"


def told_ray(mpcc: MPCC, ray: Ray) -> str:
    """A ray in words."""
    order = np.argsort(-np.abs(ray.d))[:SHOWN]
    size = float(np.abs(ray.d).max())
    parts = [f"{ray.d[i] / size:+.3g} in {mpcc.variables.named(int(i))}" for i in order if ray.d[i] != 0.0]
    return (
        f"the objective falls without limit along a ray that stays feasible: by {-ray.slope / size:.3g} for every step "
        f"{', '.join(parts)}" + (" ..." if np.count_nonzero(ray.d) > len(parts) else "")
    )


def _column_scale(matrix: Any, hessian: Any = None, cost: np.ndarray | None = None) -> np.ndarray:
    """One over the largest entry of every column, as a power of two, which changes no digit."""
    largest = np.zeros(matrix.shape[1])
    np.maximum.at(largest, matrix.indices, np.abs(matrix.data))
    if hessian is not None:
        entries = hessian.tocoo()
        np.maximum.at(largest, entries.col, np.abs(entries.data))
    if cost is not None:
        largest = np.maximum(largest, np.abs(cost))
    used = largest > 0.0
    return np.where(used, 2.0 ** -np.round(np.log2(np.where(used, largest, 1.0))), 1.0)
