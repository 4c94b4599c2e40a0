"""Proofs from the affine rows of an MPCC that it is infeasible or unbounded.

A solver that stops knows one point. Infeasibility and unboundedness are statements about all points, and are reported
as such only with a proof:

- Infeasible: in every branch of the affine rows, multipliers prove by weak duality that some row or bound is violated
  by more than the tolerance at every point. Rows that are not affine are left out, which only enlarges the set.
- Unbounded: all rows are affine, the objective is quadratic, and some nonempty branch has a direction d in its
  recession cone with Q d = 0 and c'd < 0, along which the objective falls at a constant rate. A convex quadratic
  objective without such a ray takes its minimum over a polyhedron (Frank & Wolfe 1956).

Branches are searched by linear programs with one side of some groups fixed to zero. A group is branched on only if the
solution has neither of its sides at zero. The search ends without a proof after a limited number of programs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import casadi as ca
import numpy as np

from nosnoc_py.implicit_function import shortest_step
from nosnoc_py.mpcc.linearization import Linearizer, LocalProgram, linear_program, row_maxima, scaled_columns
from nosnoc_py.mpcc.lpec import Groups, Node, branch_on_group
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.structure import depends

Result = TypeVar("Result")

# Range of the number of linear programs in one search; within it WORK / (rows + columns), because large ones take
# longer.
NODES, WORK = (8, 200), 100_000
# A violation counts as proved if it is this many times the tolerance of a solver.
CLEAR = 10.0
# Relative rounding error of sums: a gradient below this is zero.
ROUNDING_OF_SUMS = 1e-11
# A side counts as zero below this, in rows and columns whose largest entry is one.
ZERO_SIDE = 1e-9
# Smallest slope of a ray, and largest violation of a row along it, in the same scaling.
STEEP_RAY, EXACT_ROW = 1e-6, 1e-9
# A row is constant along a ray if it changes by less than this.
CONSTANT_ROW = 1e-7
# Largest number of variables for which directions are projected onto the rows they keep, and eigenvalues are computed.
PROJECTED = 2000
MOST_SHOWN = 3  # number of rows or variables in a message


@dataclass(frozen=True, eq=False, kw_only=True)
class AffineProgram:
    """Affine rows of an MPCC for some parameters: lower <= matrix w <= upper in a box.

    Attributes
    ----------
    matrix : csr_array (n, n_w)
        Rows g, G, H, r.
    lower, upper : (n,)
        Infinite for rows that are not affine.
    box_lower, box_upper : (n_w,)
    known : (n,) bool
        Affine rows.
    groups : Groups
    columns : (n_w,)
        Scales of the variables: the largest entry of every scaled column is about one.
    exact : bool
        All rows are affine.
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
        """Limit on the number of linear programs; if rows are left out, later ones rarely prove anything."""
        return int(np.clip(WORK // max(1, sum(self.matrix.shape)), *NODES)) if self.exact else NODES[0]

    def closest(self, zero: np.ndarray, deadline: float) -> LeastViolation:
        """Return the point with the smallest maximum violation of a row (user's units), with these rows at zero."""
        from scipy import sparse

        upper = np.where(zero & self.known, self.lower, self.upper)  # rows of G and H vanish at their lower limit
        below, above = np.isfinite(upper), np.isfinite(self.lower)
        rows = sparse.vstack([self.matrix[below], -self.matrix[above]], format="csr")
        limit = np.concatenate([upper[below], -self.lower[above]])
        size = row_maxima(scaled_columns(rows, self.columns))
        scaled = sparse.diags_array(1.0 / size) @ rows @ sparse.diags_array(self.columns)
        matrix = sparse.hstack([scaled, sparse.csr_array(-1.0 / size[:, None])], format="csc")
        # One more variable t: rows w - limit <= t for every row, minimise t.
        box = np.column_stack([self.box_lower / self.columns, self.box_upper / self.columns])
        count = self.columns.size
        cost, box = np.append(np.zeros(count), 1.0), np.vstack([box, [0.0, np.inf]])
        answer = linear_program(cost, box, (matrix, limit / size), deadline=deadline)
        if answer.status != 0 or answer.x is None:
            # Minus infinity as a bound: a failed program proves nothing.
            return LeastViolation(w=None, bound=-np.inf, weight=np.zeros(self.lower.size))
        dual = np.maximum(-answer.ineqlin.marginals, 0.0) / size if limit.size else np.zeros(0)
        weight = np.zeros(self.lower.size)
        np.add.at(weight, np.concatenate([np.flatnonzero(below), np.flatnonzero(above)]), dual)
        return LeastViolation(w=answer.x[:count] * self.columns, bound=self._bound(rows, limit, dual), weight=weight)

    def _bound(self, rows: Any, limit: np.ndarray, dual: np.ndarray) -> float:
        """Return a lower bound on the violation at every point, minus its rounding error.

        The largest violation is at least dual'(rows w - limit) / sum(dual), which is smallest at a corner of the box.
        """
        if dual.sum() <= 0.0:
            return 0.0
        dual = dual / dual.sum()
        gradient, noise = rows.T @ dual, ROUNDING_OF_SUMS * (abs(rows).T @ dual)
        # Rounding errors times an infinite bound would make the value minus infinity.
        gradient = np.where(np.abs(gradient) <= noise, 0.0, gradient)
        corner = np.where(gradient > 0.0, self.box_lower, np.where(gradient < 0.0, self.box_upper, 0.0))
        value = float(np.sum(gradient * corner) - dual @ limit)
        rounding = ROUNDING_OF_SUMS * float(np.abs(gradient * corner).sum() + np.abs(dual * limit).sum())
        return value - rounding if np.isfinite(value) else -np.inf

    def recession(self, cost: np.ndarray, flat: Any) -> LocalProgram:
        """Return the linear program for the steepest d in the recession cone with flat d = 0 and |d| <= 1 (scaled)."""
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
            # A ray must not move towards finite bounds; otherwise its length is normalised by 1.
            box_lower=np.where(np.isfinite(self.box_lower), 0.0, -1.0),
            box_upper=np.where(np.isfinite(self.box_upper), 0.0, 1.0),
            slack=np.zeros(lower.size),
            w_scale=self.columns,
        )

    def away(self, w: np.ndarray) -> np.ndarray:
        """Return the distances of rows from their lower limit, relative to the largest entry of each."""
        finite = np.where(np.isfinite(self.lower), self.lower, 0.0)
        return np.where(self.known & np.isfinite(self.lower), (self.matrix @ w - finite) / self.norm, 0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class LeastViolation:
    """Point with the least violation of affine rows.

    Attributes
    ----------
    w : (n_w,) or None
        None if the linear program failed.
    bound : float
        Proved lower bound on the violation at every point.
    weight : (n,)
        Multipliers of the rows.
    """

    w: np.ndarray | None
    bound: float
    weight: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Feasibility:
    """Result of a search for a feasible point of the affine rows.

    Attributes
    ----------
    point : (n_w,), optional
        Feasible point, if one was found.
    violation : float
        Violation that every branch has at least, if infeasibility was proved; else 0.
    programs : int
        Number of linear programs.
    rows : int ndarray
        Rows of g, G and H that contradict each other, in the order of their multipliers.
    """

    point: np.ndarray | None = None
    violation: float = 0.0
    programs: int = 0
    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, int))


@dataclass(frozen=True, eq=False, kw_only=True)
class Ray:
    """Ray of feasible points from `point` along `d`, on which the objective changes by `slope` < 0 per unit."""

    point: np.ndarray
    d: np.ndarray
    slope: float


def search_feasible(program: AffineProgram, tolerance: float, deadline: float = np.inf) -> Feasibility:
    """Search a point that satisfies the affine rows and groups, or a proof that there is none."""
    nothing = np.zeros(program.groups.count, bool)
    stack, programs, least, weight = [(nothing, nothing)], 0, np.inf, np.zeros(program.known.size)
    while stack:
        left, right = stack.pop()
        if programs >= program.nodes or time.monotonic() > deadline:
            return Feasibility(programs=programs)
        programs += 1
        nearest = program.closest(program.groups.rows(left, right, program.known.size), deadline)
        if nearest.w is None:
            return Feasibility(programs=programs)
        if nearest.bound > CLEAR * tolerance:
            # The proof is as strong as its weakest branch: the least violation is reported.
            least, weight = min(least, nearest.bound), weight + nearest.weight
            continue
        next_ = _children(program, left, right, program.away(nearest.w))
        if next_ is None:
            return Feasibility(point=nearest.w, programs=programs)
        stack += next_
    rows = np.argsort(-weight)[: np.count_nonzero(weight > ZERO_SIDE)]
    return Feasibility(violation=least, programs=programs, rows=rows)


def search_ray(
    program: AffineProgram, cost: np.ndarray, flat: Any, tolerance: float, deadline: float = np.inf
) -> tuple[Ray | None, bool]:
    """Return a ray from a feasible point of some branch (or None), and whether the search was complete.

    Point and ray have to lie in one branch: sides that are zero at the point must be zero along the ray.
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
        answer = cone.with_zero_rows(np.append(zero, np.zeros(flat.shape[0], bool))).solve(deadline)
        # No direction of this branch descends clearly: nor does any of its children.
        if answer.bound >= -STEEP_RAY:
            continue
        if answer.status != "optimal":
            complete = False
            continue
        nearest = program.closest(zero, deadline)
        if nearest.bound > CLEAR * tolerance:
            continue
        if nearest.w is None:
            complete = False
            continue
        along = (cone.matrix @ answer.e)[: zero.size] / program.norm
        next_ = _children(program, left, right, program.away(nearest.w), along)
        if next_ is not None:
            stack += next_
            continue
        e = _exact(cone, answer.e)
        if e is not None:
            d = e * program.columns
            return Ray(point=nearest.w, d=d, slope=float(cost @ d)), True
        complete = False
    return None, complete


def _children(program: AffineProgram, left: np.ndarray, right: np.ndarray, *sizes: np.ndarray) -> list[Node] | None:
    """Return the two children of a node, the more promising one last; None if every group has a zero side."""
    most = np.where(program.known, np.maximum.reduce([np.abs(size) for size in sizes]), 0.0)
    on_left, on_right = program.groups.left.largest(most), program.groups.right.largest(most)
    open_ = ~(left | right)
    if np.minimum(on_left, on_right)[open_].max(initial=0.0) <= ZERO_SIDE:
        return None
    return branch_on_group((left, right), on_left, on_right, open_)


def _exact(cone: LocalProgram, e: np.ndarray) -> np.ndarray | None:
    """Return the direction projected onto the rows and bounds that are constant along it; None if it is no ray then.

    A solver of linear programs allows violations of 1e-10, which grow without limit along a ray.
    """
    norm = row_maxima(cone.matrix)
    limited = np.isfinite(cone.lower) | np.isfinite(cone.upper)
    if e.size <= PROJECTED:
        free = ~((np.abs(e) <= CONSTANT_ROW) & ((cone.box_lower == 0.0) | (cone.box_upper == 0.0)))
        kept = limited & (np.abs(cone.matrix @ e) <= CONSTANT_ROW * norm)
        e = np.where(free, e, 0.0)
        rows = cone.matrix[kept][:, free]
        if rows.shape[0] and rows.shape[1]:
            e[free] -= shortest_step(rows, rows @ e[free])
    moved = (cone.matrix @ e) / norm
    wrong = np.maximum(np.where(np.isfinite(cone.lower), -moved, 0.0), np.where(np.isfinite(cone.upper), moved, 0.0))
    outside = np.maximum(cone.box_lower - e, e - cone.box_upper)[(cone.box_lower == 0.0) | (cone.box_upper == 0.0)]
    inside = max(wrong.max(initial=0.0), outside.max(initial=0.0)) <= EXACT_ROW
    return e if inside and cone.cost @ e < -STEEP_RAY else None


@dataclass(frozen=True)
class _Known(Generic[Result]):
    """Result of a search for parameters (their bytes) and a tolerance, with the deadline up to which it is the answer.

    A search that its deadline has ended is repeated when there is more time, and only then.
    """

    p: bytes
    tolerance: float
    deadline: float
    result: Result

    def answers(self, p: np.ndarray, tolerance: float, deadline: float) -> bool:
        """Return True if another search would not find more."""
        return self.p == p.tobytes() and self.tolerance == tolerance and deadline <= self.deadline


class Proofs:
    """Proofs about one MPCC; affine rows are determined once, the last results are cached by the parameters."""

    def __init__(self, mpcc: MPCC, linearizer: Linearizer) -> None:
        self._mpcc, self._linearizer = mpcc, linearizer
        self._feasible: _Known[Feasibility] | None = None
        self._ray: _Known[tuple[Ray | None, bool]] | None = None

    def feasibility(self, p: np.ndarray, tolerance: float, deadline: float = np.inf) -> Feasibility:
        """Return a feasible point of the affine rows, or a proof that there is none, or neither."""
        if self._feasible is None or not self._feasible.answers(p, tolerance, deadline):
            program = self.program(p)
            result = Feasibility() if program is None else search_feasible(program, tolerance, deadline)
            complete = result.point is not None or result.violation > 0.0
            self._feasible = _Known(p.tobytes(), tolerance, np.inf if complete else deadline, result)
        return self._feasible.result

    def ray(self, p: np.ndarray, tolerance: float, deadline: float = np.inf) -> tuple[Ray | None, bool]:
        """Return a ray along which the objective falls without limit (or None), and whether the search was complete."""
        if self._ray is None or not self._ray.answers(p, tolerance, deadline):
            result = self._search_ray(p, tolerance, deadline)
            complete = result[0] is not None or result[1]
            self._ray = _Known(p.tobytes(), tolerance, np.inf if complete else deadline, result)
        return self._ray.result

    def has_ray(self, p: np.ndarray) -> bool:
        """Return True if the last search was for these parameters and found a ray."""
        return self._ray is not None and self._ray.p == p.tobytes() and self._ray.result[0] is not None

    def is_bounded_below(self, p: np.ndarray) -> bool:
        """Return True if it is proved that the objective is bounded below.

        The proof is a quadratic objective over a box, or a convex one with a complete search that found no ray.
        """
        if self._quadratic is None or self._ray is None or self._ray.p != p.tobytes():
            return False
        if np.isfinite(self._mpcc.lbw).all() and np.isfinite(self._mpcc.ubw).all():
            return True
        ray, complete = self._ray.result
        if ray is not None or not complete or self._mpcc.w.numel() > PROJECTED:
            return False
        hessian = np.array(self._quadratic(np.zeros(self._mpcc.w.numel()), p)[0])
        return bool(np.linalg.eigvalsh(hessian).min() >= -ROUNDING_OF_SUMS * np.abs(hessian).max())

    @property
    def exact(self) -> bool:
        """True if all rows are affine: points that satisfy them and the groups are feasible."""
        return not self._mpcc.enforced.any() and bool(self._alike.all()) and bool(self._affine.all())

    def _search_ray(self, p: np.ndarray, tolerance: float, deadline: float) -> tuple[Ray | None, bool]:
        from scipy import sparse

        mpcc = self._mpcc
        bounded = np.isfinite(mpcc.lbw).all() and np.isfinite(mpcc.ubw).all()
        if mpcc.objective.is_constant() or bounded:
            # A bounded box has no ray, and the search for one is complete.
            return None, bool(bounded)
        # A ray of the affine rows may leave the feasible set of the others.
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
        # Columns are scaled anew, because the curvature and the cost enter the cone, too.
        program = replace(program, columns=_column_scale(program.matrix, hessian, cost))
        return search_ray(program, cost, hessian, tolerance, deadline)

    def program(self, p: np.ndarray) -> AffineProgram | None:
        """Return the affine rows for these parameters; None if there are none, or their numbers are not finite."""
        mpcc = self._mpcc
        # At w = 0 the values of affine rows are their constants.
        at = self._linearizer(np.zeros(mpcc.w.numel()), p)
        known = np.append(self._affine, np.zeros(mpcc.r.numel(), bool))
        if not known.any():
            return None
        keep = np.repeat(known, np.diff(at.jacobian.indptr))
        matrix = at.jacobian.copy()
        # Other rows may hold NaN at w = 0 and are cleared before the test below.
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
        # Equal slopes at two points may be chance or a kink elsewhere: the graph has the last word.
        affine[candidates] = ~depends(rows, mpcc.w, 2)
        return affine

    @cached_property
    def _alike(self) -> np.ndarray:
        """Mask of the rows with the same derivatives at two random points; all others are not affine.

        This cheap numerical test saves the symbolic one for most rows.
        """
        mpcc = self._mpcc
        random = np.random.default_rng(0)
        # A fixed seed, so that the same program always gets the same proof.
        points = [random.uniform(-1.0, 1.0, mpcc.w.numel()) for _ in range(2)]
        one, other = (self._linearizer(point, mpcc.p0).jacobian for point in points)
        same = np.isclose(one.data, other.data, rtol=1e-9, atol=1e-12) & np.isfinite(one.data)
        row = np.repeat(np.arange(one.shape[0]), np.diff(one.indptr))
        return np.asarray(np.bincount(row[~same], minlength=one.shape[0]) == 0)[: -mpcc.r.numel() or None]

    @cached_property
    def _quadratic(self) -> Any:
        """Function (w, p) -> Hessian and gradient of the objective; None if it is not quadratic."""
        mpcc = self._mpcc
        hessian, gradient = ca.hessian(mpcc.objective, mpcc.w)
        if ca.depends_on(hessian, mpcc.w):
            return None
        return ca.Function("objective", [mpcc.w, mpcc.p], [hessian, gradient])


def infeasibility_message(mpcc: MPCC, proof: Feasibility) -> str:
    """Return a message about a proof of infeasibility."""
    sizes = np.cumsum([0, mpcc.g.numel(), mpcc.G.numel(), mpcc.H.numel()])
    names = []
    for row in proof.rows[:MOST_SHOWN]:
        k = int(np.searchsorted(sizes, row, side="right")) - 1
        names.append((mpcc.constraints, mpcc.left, mpcc.right)[k].named(int(row - sizes[k])))
    more = " and others" if proof.rows.size > MOST_SHOWN else ""
    between = f", between the bounds and {', '.join(names)}{more}" if names else ""
    count = "one linear program" if proof.programs == 1 else f"{proof.programs} linear programs"
    return f"proved by {count}: every branch leaves a violation of at least {proof.violation:.2g}{between}"


def ray_message(mpcc: MPCC, ray: Ray) -> str:
    """Return a message about a ray of unboundedness."""
    order = np.argsort(-np.abs(ray.d))[:MOST_SHOWN]
    size = float(np.abs(ray.d).max())
    parts = [f"{ray.d[i] / size:+.3g} in {mpcc.variables.named(int(i))}" for i in order if ray.d[i] != 0.0]
    return (
        f"the objective falls without limit along a ray that stays feasible: by {-ray.slope / size:.3g} for every step "
        f"{', '.join(parts)}" + (" ..." if np.count_nonzero(ray.d) > len(parts) else "")
    )


def _column_scale(matrix: Any, hessian: Any = None, cost: np.ndarray | None = None) -> np.ndarray:
    """Return one over the largest entry of every column, rounded to a power of two: scaling then has no rounding."""
    largest = np.zeros(matrix.shape[1])
    np.maximum.at(largest, matrix.indices, np.abs(matrix.data))
    if hessian is not None:
        entries = hessian.tocoo()
        np.maximum.at(largest, entries.col, np.abs(entries.data))
    if cost is not None:
        largest = np.maximum(largest, np.abs(cost))
    used = largest > 0.0
    return np.where(used, 2.0 ** -np.round(np.log2(np.where(used, largest, 1.0))), 1.0)
