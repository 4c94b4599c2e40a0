"""Derivatives of an optimum by the parameters, by the implicit function theorem on its branch.

As long as the same rows c are active (equations, zero sides of the pairs, active bounds), the optimum satisfies

    W dx + J'dlam + L_xp dp = 0,   J dx + c_p dp = 0

with the Hessian W of the Lagrangian L = f + lam'c. With an orthonormal basis Z of the null space of J this is
dx = d + Z y, J d = -c_p dp, Z'WZ y = -Z'(W d + L_xp dp). Redundant rows do no harm, and the optimum is determined if
Z'WZ is positive definite. An active inequality with a positive multiplier stays active; one without may become
inactive, and if it begins to move, the optimum has a kink.

Biactive pairs are treated as two inequalities, as in the relaxed program of the MPCC (Scheel & Scholtes 2000), unless
one side cannot leave zero whatever the other one does. Most of them are impulses of contacts that stay closed; their
multipliers are not unique and decide nothing.

References
----------
Fiacco, Introduction to Sensitivity and Stability Analysis in Nonlinear Programming (1983), Chapter 3.
Scheel and Scholtes, Mathematical programs with complementarity constraints: stationarity, optimality, and sensitivity,
Mathematics of Operations Research 25 (2000).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.implicit_function import RankRevealingQR
from nosnoc_py.mpcc.branch import Branch, BranchProgram, as_differences
from nosnoc_py.mpcc.implicit import immovable_rows
from nosnoc_py.solution.records import SolvedBranch
from nosnoc_py.tolerances import NOT_ZERO

Array = np.ndarray
# A side of a pair below ZERO_SIDE is zero; an inequality within NEAR_BOUND of its bound is active, in scaled units.
# They are large because without strict complementarity an interior-point method leaves distances and multipliers whose
# product is its last barrier parameter, 1e-11: both may be 3e-6.
ZERO_SIDE, NEAR_BOUND = 1e-4, 1e-4
# Smallest multiplier of a strongly active inequality, relative to the gradient of the objective.
HOLDS = 1e-5
# Largest reduced gradient of a stationary point, relative to the gradient of the objective.
STATIONARY = 1e-4
# Smallest gradient that others are compared with: tolerances of solvers do not shrink with the objective.
LEAST_GRADIENT = 1.0
# A row of length one is dependent if less than DEPENDENT of it is left; changes below MOVES times the largest are none.
DEPENDENT, MOVES = 1e-8, 1e-6
# Curvatures below this fraction of the largest one are zero.
FLAT_CURVATURE = 1e-8


@dataclass(frozen=True, eq=False, kw_only=True)
class OptimumDerivative:
    """Derivatives of an optimum in the user's units.

    Attributes
    ----------
    w : (n_w, n_columns)
        Variables by the chosen parameters.
    objective : (n_columns,)
        Optimal value by the chosen parameters.
    loose : (n_w, n_loose)
        Directions along which the objective is constant to second order.
    flags : tuple of str
        Reasons why the derivative does not exist; empty if it does.
    """

    w: Array
    objective: Array
    loose: Array
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class _Zeros:
    """Masks of the groups of which the left side, the right side, or both sides are zero."""

    left: Array
    right: Array
    both: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class _Local:
    """NLP of the branch at a point, in scaled units.

    Attributes
    ----------
    x, parameters : ndarray
    slope : (n_free,)
        Gradient of the objective.
    g, by_x, by_p : (n_g,), (n_g, n_free), (n_g, n_columns)
        Rows with their derivatives.
    free : int ndarray (n_free,)
        Variables that are not fixed.
    equal : bool ndarray (n_g,)
        Rows that are equations.
    branch : Branch
    """

    x: Array
    parameters: Array
    slope: Array
    g: Array
    by_x: Array
    by_p: Array
    free: Array
    equal: Array
    branch: Branch


@dataclass(frozen=True, eq=False, kw_only=True)
class _Active:
    """Active inequality.

    Attributes
    ----------
    by_x, by_p : (n_free,), (n_columns,)
        Derivatives of its distance to the bound.
    multiplier : float
    row : int
        Row of the NLP, or -1 for the bound of a variable.
    sides : tuple of (group, side)
        Sides of biactive groups that it belongs to; 0 is the left side.
    name : str
        For messages.
    """

    by_x: Array
    by_p: Array
    multiplier: float
    row: int
    sides: tuple[tuple[int, int], ...]
    name: str


@dataclass(frozen=True, eq=False, kw_only=True)
class _Moves:
    """Derivatives of the free variables (n_free, n_columns), and directions (n_free, n_loose) without curvature."""

    x: Array
    loose: Array
    flags: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class LinearRows:
    """Linear equations by_x dx + by_p dp = 0 with rows of length one in x."""

    by_x: Array
    by_p: Array

    def at(self, mask: Array) -> LinearRows:
        """Return some of the rows (a mask)."""
        return LinearRows(self.by_x[mask], self.by_p[mask])

    def and_(self, other: LinearRows) -> LinearRows:
        """Return these and other rows, stacked."""
        return LinearRows(np.vstack([self.by_x, other.by_x]), np.vstack([self.by_p, other.by_p]))


@dataclass(frozen=True, eq=False)
class AffineSolution:
    """Solutions dx = step dp + loose y of linear equations, y arbitrary."""

    loose: Array
    step: Array

    def _known(self, rows: LinearRows) -> tuple[RankRevealingQR, Array, Array]:
        by_y = rows.by_x @ self.loose
        return RankRevealingQR(by_y, DEPENDENT, np.ones(len(by_y))), by_y, rows.by_p + rows.by_x @ self.step

    def within(self, rows: LinearRows) -> AffineSolution:
        """Return the solutions that satisfy further equations, too."""
        known, _, by_p = self._known(rows)
        return AffineSolution(self.loose @ known.loose, self.step + self.loose @ known.derivative(by_p))

    def missed(self, rows: LinearRows) -> Array:
        """Return the indices of the parameters whose change contradicts further equations."""
        known, by_y, by_p = self._known(rows)
        missed = np.abs(by_p + by_y @ known.derivative(by_p)).max(axis=0, initial=0.0)
        return np.flatnonzero(missed > MOVES * max(1.0, float(np.abs(self.step).max(initial=0.0))))


class Parametric:
    """Function (w, p, branch, columns) -> derivatives of an optimum; built once per program."""

    def __init__(self, program: BranchProgram) -> None:
        self.program, self.mpcc = program, program.mpcc
        blocks = program.blocks
        self._sides = ca.Function("sides", [blocks.x, self.mpcc.p], [blocks.G, blocks.H])

    def __call__(self, w: Array, p: Array, solved: SolvedBranch, columns: Array) -> OptimumDerivative:
        """Return the derivatives at an optimum w with parameters p on its branch.

        Parameters
        ----------
        w, p : (n_w,), (n_p,)
        solved : SolvedBranch
            Its branch, with multipliers.
        columns : int ndarray
            Indices of the parameters by which to differentiate.
        """
        # Derivatives are those of the branch: signed quantities in one variable, and the penalty only if it was
        # minimised there.
        x, penalised = as_differences(self.mpcc, w) / self.mpcc.w_scale, solved.way == "penalise"
        zeros = self._zeros(x, p)
        at = self._local(x, p, Branch(*self.mpcc.side(zeros.left, zeros.right), solved.r), columns, penalised)
        # Equations alone, then inequalities that cannot leave zero, then those with positive multipliers.
        active = list(self._active(at, p, solved, zeros.both))
        alone = RankRevealingQR(at.by_x[at.equal], DEPENDENT)
        fixed, flags = self._fixed(at, alone, active, zeros.both, columns)
        # Gradients may be tiny near an optimum without cost; LEAST_GRADIENT keeps noise from counting as strongly
        # active.
        held, weak = list[_Active](), list[_Active]()
        size = max(float(np.abs(at.slope).max(initial=0.0)), LEAST_GRADIENT)
        for one, is_fixed in zip(active, fixed, strict=True):
            holds = abs(one.multiplier) > HOLDS * size
            if holds and one.multiplier < 0.0 and not is_fixed:
                flags.append(f"{one.name}, with a multiplier of the wrong sign: another branch has a smaller objective")
            (held if holds or is_fixed else weak).append(one)
        return self._result(at, self._moves(at, alone, held, columns), weak, flags, w, columns)

    def _fixed(
        self, at: _Local, alone: RankRevealingQR, active: list[_Active], both: Array, columns: Array
    ) -> tuple[Array, list[str]]:
        """Return the mask of the inequalities that cannot leave zero, and flags.

        They stay active without a multiplier; multipliers that solvers return for them have no meaning. Some cannot
        leave zero without making another one negative. One side of a biactive pair may be unable to leave zero while
        the other one is zero: it is zero on every branch then (an impulse at rest, which would need a gap or a
        rebound).
        """
        every = _unit(*_stacked(active, at))
        keys, fixed, flags = self._open_sides(both), np.zeros(len(active), bool), list[str]()
        sides_left, extended = [(int(k), side) for k in np.flatnonzero(both) for side in (0, 1)], True
        space = AffineSolution(alone.loose, alone.derivative(at.by_p[at.equal]))
        # Every newly fixed inequality may fix further ones: repeat until nothing changes.
        while extended:
            fixed |= immovable_rows(every.by_x @ space.loose)
            space, extended = space.within(every.at(fixed)), False
            for group, zero in sides_left:
                there = np.array([(group, 1 - zero) in one.sides for one in active], bool) & ~fixed
                if not there.any():
                    continue
                # Signed quantities on this side have to vanish, too, although they are no inequalities.
                own = _rows_of(at, [key for key, sides in keys.items() if (group, zero) in sides])
                held = immovable_rows(every.by_x @ space.within(own).loose)
                if held[there].all():
                    moved = [self._parameter(columns[k]) for k in space.missed(own.and_(every.at(held)))]
                    if moved:
                        name = active[int(np.argmax(there))].name
                        flags.append(f"{name}, and a change of {', '.join(moved)} opens another branch")
                    fixed, extended = fixed | there, True
        return fixed, flags

    def _parameter(self, column: int) -> str:
        return self.mpcc.parameters.label(int(column))[0]

    # Active rows -----------------------------------------------------------------------------------------------------

    def _zeros(self, x: Array, p: Array) -> _Zeros:
        """Return which side of every group is zero; both sides of a biactive group."""
        m = self.mpcc
        values = (np.asarray(part).reshape(-1) for part in self._sides(x, p))
        left, right = (side.largest(np.abs(one)) <= ZERO_SIDE for side, one in zip(m.members, values, strict=True))
        small_side = np.array([group.small_side for group in m.groups], bool)
        both = left & right & ~m.difference_only & ~small_side
        return _Zeros(left=left & ~both & ~m.difference_only, right=(right & ~both) | m.difference_only, both=both)

    def _local(self, x: Array, p: Array, branch: Branch, columns: Array, penalised: bool) -> _Local:
        nlp, parameters = self.program.nlp, np.append(p, float(penalised))
        still, equal = self.program.equations(p, branch)
        g, jacobian = nlp.jacobian_function(x, parameters)
        free = np.flatnonzero(~still)
        return _Local(
            x=x,
            parameters=parameters,
            slope=np.asarray(nlp.derivatives["grad_f"](x, parameters)[1]).reshape(-1)[free],
            g=np.asarray(g).reshape(-1),
            by_x=jacobian.sparse().tocsc()[:, free].toarray(),
            by_p=np.asarray(self.program.by_p(x, parameters, 0.0)[1])[:, columns],
            free=free,
            equal=equal,
            branch=branch,
        )

    def _active(self, at: _Local, p: Array, solved: SolvedBranch, both: Array) -> Iterator[_Active]:
        """Yield the active inequalities of the branch without its biactive groups."""
        lbx, ubx, lbg, ubg = self.program.bounds(p, at.branch)
        # CasADi's multipliers are negative at lower bounds; below, positive means that the bound holds the variable.
        lam_x, lam_g, sides = solved.lam_x, self.program.own_multipliers(solved), self._open_sides(both)
        by_p, unit = np.zeros(at.by_p.shape[1]), np.eye(at.free.size)
        for k, variable in enumerate(map(int, at.free)):
            if lbx[variable] < ubx[variable]:
                for sign, bound in ((1.0, lbx[variable]), (-1.0, ubx[variable])):
                    if sign * (at.x[variable] - bound) <= NEAR_BOUND:
                        own = tuple(sides.get(("x", variable), ()))
                        name = self._named(own, f"{self.mpcc.variables.named(variable)} is at its bound")
                        moved = {"by_x": sign * unit[k], "by_p": by_p, "multiplier": -sign * float(lam_x[variable])}
                        yield _Active(**moved, row=-1, sides=own, name=name)
        for row in map(int, np.flatnonzero(~at.equal)):
            for sign, bound in ((1.0, lbg[row]), (-1.0, ubg[row])):
                if sign * (at.g[row] - bound) <= NEAR_BOUND:
                    own = tuple(sides.get(("g", row), ()))
                    name = self._named(own, f"{self._row_name(row)} is at its bound")
                    moved = {"by_x": sign * at.by_x[row], "by_p": sign * at.by_p[row]}
                    yield _Active(**moved, multiplier=-sign * float(lam_g[row]), row=row, sides=own, name=name)

    def _open_sides(self, both: Array) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """Return for variables ("x", index) and rows ("g", index) the sides of biactive groups they belong to."""
        m, blocks, sides = self.mpcc, self.program.blocks, dict[tuple[str, int], list[tuple[int, int]]]()
        starts = m.lbg.size, m.lbg.size + blocks.rows_G.size
        implied_lower_bounds, chosen = (blocks.lower_G, blocks.lower_H), (blocks.rows_G, blocks.rows_H)
        for k in map(int, np.flatnonzero(both)):
            for side, members in enumerate((m.groups[k].left, m.groups[k].right)):
                own = np.flatnonzero(np.isin(chosen[side], members))
                # Members without a row of the NLP are zero where their variables are at bounds.
                implied = members[~np.isin(members, chosen[side])]
                alone = implied_lower_bounds[side].variable[np.isin(implied_lower_bounds[side].row, implied)]
                for key in (*(("g", starts[side] + int(row)) for row in own), *(("x", int(v)) for v in alone)):
                    sides.setdefault(key, []).append((k, side))
        return sides

    def _named(self, sides: tuple[tuple[int, int], ...], otherwise: str) -> str:
        if not sides:
            return otherwise
        m, group = self.mpcc, self.mpcc.groups[sides[0][0]]
        pair = f"{m.left.label(int(group.left[0]))[0]} * {m.right.named(int(group.right[0]))}"
        return f"the pair {pair} is biactive (both sides are zero)"

    # Derivatives -----------------------------------------------------------------------------------------------------

    def _moves(self, at: _Local, equations: RankRevealingQR, held: list[_Active], columns: Array) -> _Moves:
        """Return the derivative of the free variables, with the inequalities in `held` as equations."""
        rows, by_p = _stacked(held, at)
        stay = RankRevealingQR(rows @ equations.loose, DEPENDENT, np.linalg.norm(rows, axis=1))
        step = equations.derivative(at.by_p[at.equal])
        step = step + equations.loose @ stay.derivative(by_p + rows @ step)
        Z = equations.loose @ stay.loose  # null space of equations and strongly active inequalities
        flags = self._contradictions(at, step, rows, by_p, held, columns)
        # First the multipliers of the inequalities, in the null space of the equations, then those of the equations.
        of_held = stay.multipliers(equations.loose.T @ at.slope)
        slope = at.slope + rows.T @ of_held
        lam = np.zeros(at.g.size)
        lam[at.equal] = equations.multipliers(slope)
        for one, value in zip(held, of_held, strict=True):
            if one.row >= 0:
                # `by_x` is turned so that it points into the feasible side; the multiplier is turned back.
                lam[one.row] += value * np.sign(one.by_x @ at.by_x[one.row])
        left = float(np.abs(Z.T @ slope).max(initial=0.0))
        if left > STATIONARY * max(float(np.abs(at.slope).max(initial=0.0)), LEAST_GRADIENT):
            flags.append(f"the solution is not stationary on its branch (a slope of {left:.1e} is left)")
        upper = self.program.nlp.derivatives["hess_lag"](at.x, at.parameters, 1.0, lam).sparse().toarray()
        W = (upper + np.triu(upper, 1).T)[np.ix_(at.free, at.free)]
        mixed = np.asarray(self.program.by_p(at.x, at.parameters, lam)[2])[np.ix_(at.free, columns)]
        y, loose, more = _reduced(Z.T @ W @ Z, Z.T @ (W @ step + mixed))
        return _Moves(x=step + Z @ y, loose=Z @ loose, flags=(*flags, *more))

    def _contradictions(
        self, at: _Local, step: Array, rows: Array, by_p: Array, held: list[_Active], columns: Array
    ) -> list[str]:
        """Return messages about rows that contradict the change of a parameter."""
        of = np.flatnonzero(at.equal)
        missed = np.abs(np.vstack([at.by_p[of] + at.by_x[of] @ step, by_p + rows @ step]))
        size = max(1.0, float(np.abs(step).max(initial=0.0)))
        flags = list[str]()
        for k, column in enumerate(columns):
            if missed[:, k].max(initial=0.0) > MOVES * size:
                worst = int(np.argmax(missed[:, k]))
                name = held[worst - of.size].name if worst >= of.size else f"{self._row_name(int(of[worst]))} holds"
                flags.append(f"{name}, which a change of {self._parameter(column)} contradicts")
        return flags

    def _row_name(self, row: int) -> str:
        """Return the name of a row of the NLP."""
        m, blocks = self.mpcc, self.program.blocks
        layouts = (m.constraints, m.left, m.right, m.switched)
        own = (np.arange(m.lbg.size), blocks.rows_G, blocks.rows_H, np.arange(m.r.numel()))
        for layout, rows in zip(layouts, own, strict=True):
            if row < rows.size:
                return layout.named(int(rows[row]))
            row -= rows.size
        raise AssertionError(row)

    def _result(
        self, at: _Local, moves: _Moves, weak: list[_Active], flags: list[str], w: Array, columns: Array
    ) -> OptimumDerivative:
        """Return the derivatives in the user's units; flag weakly active inequalities that begin to move."""
        m, rows = self.mpcc, _unit(*_stacked(weak, at))
        # Directions without curvature are chosen so that weakly active rows do not move, as far as that is possible.
        x = AffineSolution(moves.loose, moves.x).within(rows).step
        size = max(1.0, float(np.abs(x).max(initial=0.0)))
        for one, moved in zip(weak, rows.by_x @ x + rows.by_p, strict=True):
            # Without a multiplier the constraint may hold on one side of the change only: the two derivatives differ.
            if np.abs(moved).max(initial=0.0) > MOVES * size:
                flags.append(f"{one.name}, with a zero multiplier, and becomes inactive")
        by_w, loose = np.zeros((m.w0.size, columns.size)), np.zeros((m.w0.size, moves.loose.shape[1]))
        by_w[at.free], loose[at.free] = x, moves.loose
        # The reported objective never contains the penalty, although the optimum may minimise it.
        without_penalty = np.append(at.parameters[:-1], 0.0)
        slope = np.asarray(self.program.nlp.derivatives["grad_f"](at.x, without_penalty)[1]).reshape(-1)
        f_p = np.asarray(self.program.by_p(at.x, without_penalty, 0.0)[0])[0, columns]
        objective = slope @ by_w + f_p
        by_w, loose = by_w * m.w_scale[:, None], loose * m.w_scale[:, None]
        for group in m.groups:
            if group.difference_only:
                plus, minus = m.G_variable[group.left], m.H_variable[group.right]
                # On branches the left part carries the sign; in w a negative quantity is in the right part.
                negative = w[minus] > w[plus]
                by_w[minus[negative]] = -by_w[plus[negative]]
                by_w[plus[negative]] = 0.0
        unique = tuple(dict.fromkeys((*flags, *moves.flags)))
        return OptimumDerivative(w=by_w, objective=objective, loose=loose, flags=unique)


def _stacked(held: list[_Active], at: _Local) -> tuple[Array, Array]:
    by_x = np.array([one.by_x for one in held]).reshape(-1, at.free.size)
    return by_x, np.array([one.by_p for one in held]).reshape(-1, at.by_p.shape[1])


def _unit(by_x: Array, by_p: Array) -> LinearRows:
    length = np.linalg.norm(by_x, axis=1)[:, None]
    # Rows of fixed variables are zero and stay zero.
    length = np.where(length > 0.0, length, 1.0)
    return LinearRows(by_x / length, by_p / length)


def _rows_of(at: _Local, keys: list[tuple[str, int]]) -> LinearRows:
    """Return the derivatives of some variables ("x") and rows ("g")."""
    constant = np.zeros(at.by_p.shape[1])
    pairs = [((at.free == k) * 1.0, constant) if kind == "x" else (at.by_x[k], at.by_p[k]) for kind, k in keys]
    by_x, by_p = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    return _unit(by_x.reshape(-1, at.free.size), by_p.reshape(-1, constant.size))


def _reduced(curvature: Array, right: Array) -> tuple[Array, Array, tuple[str, ...]]:
    """Solve curvature y = -right; return y, the directions without curvature, and flags."""
    if not curvature.size:
        return np.zeros(right.shape), np.zeros((len(curvature), 0)), ()
    # Rounding errors make the reduced Hessian unsymmetric; `eigh` reads one half only.
    sizes, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    largest = float(np.abs(sizes).max())
    # Directions without curvature are no error if the parameters do not pull along them: they stay free.
    flat = np.abs(sizes) <= max(FLAT_CURVATURE * largest, NOT_ZERO)
    inner = vectors[:, ~flat]
    y = -inner @ ((inner.T @ right) / sizes[~flat, None])
    flags = list[str]()
    if (sizes[~flat] < 0.0).any():
        flags.append(f"the reduced Hessian is not positive definite (curvature {sizes.min():.1e} of {largest:.1e})")
    pull = float(np.abs(vectors[:, flat].T @ right).max(initial=0.0))
    if pull > MOVES * max(1.0, float(np.abs(right).max(initial=0.0))):
        flags.append(
            "the reduced Hessian is singular, and the parameters change the gradient where it has no curvature"
        )
    return y, vectors[:, flat], tuple(flags)
