"""The quadratic program of a branch near a solution, condensed to the few directions that its equations leave.

On a branch the MPCC is a smooth NLP. Its expansion at a point (x, p) in the steps d of the variables and dp of the
parameters is

    minimise    f + f_x d + f_p dp + 1/2 (d, dp)' L'' (d, dp)
    subject to  the rows and bounds of the branch, linearised in (d, dp),

with the Hessian L'' of the Lagrangian. The equations leave d = D (1, dp) + Z y: Z and D are computed once, and so are
the reduced Hessian Z'L_xx Z and the reduced rows. For measured data only right-hand sides change, linearly, and one
program with a few unknowns y is left (`BranchQP.at`). Its error in the solution of the NLP is of second order in dp as
long as the branch holds, active bounds may change (Diehl, Bock and Schloeder 2005: the feedback phase of the real-time
iteration; Bock and Plitt 1984: condensing). At a solution the reduced Hessian is positive semidefinite; elsewhere, and
on other branches, negative curvatures are replaced by their sizes, and flat directions get a small one.

`Expansion` is common to all branches, `Elimination` factorises the equations of one. A branch beside it differs in a
few equations and fixed variables. Those that are dropped add directions to Z, which the same factors give; new ones,
and those that depended on dropped ones, are a small system in these directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np

from nosnoc_py.implicit_function import RankRevealingQR
from nosnoc_py.mpcc.branch import Branch, BranchProgram, Finish, as_differences, remove_common_parts
from nosnoc_py.mpcc.parametric import DEPENDENT, AffineSolution, LinearRows
from nosnoc_py.mpcc.qpcc import QPCC, QPCCOutcome
from nosnoc_py.solution.records import SolvedBranch

Array = np.ndarray
# Smallest curvature of the reduced Hessian, as a fraction of the largest one.
LEAST_CURVATURE = 1e-8
# A linearised equation, or a bound that no direction moves, contradicts the data if it misses by more than this.
CONTRADICTS = 1e-6
# What a solver left violated at the point up to this size is no violation of the step.
LEFT_OVER = 1e-8
# An equation determines a variable of its stage if more than this part of it is orthogonal to the others there.
WELL = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class Expansion:
    """Functions of the NLP of all branches at a point, with their derivatives, in scaled variables.

    Attributes
    ----------
    program : BranchProgram
    p : (n_p,)
    columns : int ndarray (n_c,)
        Parameters that may change.
    x : (n_x,)
        Signed quantities are in one variable, as on branches.
    g : (n_g,)
    by_x, hessian : sparse (n_g, n_x), (n_x, n_x)
        Jacobian of the rows, Hessian of the Lagrangian.
    by_p : (n_g, n_c)
    slope : (n_x, 1 + n_c)
        Gradient of the objective, and its change with the parameters.
    constant : (1 + n_c, 1 + n_c)
        Twice the objective at d = 0, without its penalty, as a quadratic form in (1, dp).
    expected : (1 + n_c,)
        Optimal objective to first order, as a function of (1, dp).
    """

    program: BranchProgram
    p: Array
    columns: Array
    x: Array
    g: Array
    by_x: Any
    hessian: Any
    by_p: Array
    slope: Array
    constant: Array
    expected: Array

    @classmethod
    def of(cls, finish: Finish, w: Array, p: Array, solved: SolvedBranch, columns: Array) -> Expansion:
        """Expand at an iterate w; the multipliers are those of its branch."""
        from scipy import sparse  # not paid for by an import of the library

        program, evaluation = finish.program, finish.interior.evaluation
        m, n = program.mpcc, evaluation.n
        x, parameters = as_differences(m, w) / m.w_scale, np.append(p, float(solved.way == "penalise"))
        branch = Branch(solved.G, solved.H, solved.r)
        equal = program.equations(p, branch)[1]
        lam = np.where(equal, program.own_multipliers(solved), solved.lam_g)
        evaluation.at(parameters)
        g = evaluation.values(x)[1]
        gradient, first = evaluation.first(x)
        second = sparse.csr_matrix((evaluation.second(x, 1.0, lam), evaluation.hessian_pattern), (n, n))
        f_p, g_p, mixed, bent = program.parameter_derivatives(x, parameters, lam)
        f_p, g_p = f_p[0, columns], g_p[:, columns]
        # The penalty counts by its changes: reported objectives are without it.
        evaluation.at(np.append(p, 0.0))
        f = evaluation.values(x)[0]
        constant = np.block([[np.array([[2.0 * f]]), f_p[None]], [f_p[:, None], bent[np.ix_(columns, columns)]]])
        return cls(
            program=program,
            p=p,
            columns=columns,
            x=x,
            g=g,
            by_x=sparse.csr_matrix((first, evaluation.jacobian_pattern), (evaluation.m, n)),
            hessian=second + second.T - sparse.diags(second.diagonal()),
            by_p=g_p,
            slope=np.hstack([gradient[:, None], mixed[:, columns]]),
            constant=constant,
            expected=np.append(f, f_p + lam @ g_p),
        )

    @property
    def finite(self) -> bool:
        """True if all numbers are finite."""
        parts = (self.g, self.by_x.data, self.hessian.data, self.by_p, self.slope, self.constant)
        return all(bool(np.isfinite(part).all()) for part in parts)

    def fits(self, p: Array) -> bool:
        """Return True if other parameters than the chosen ones are as they were."""
        others = np.ones(p.size, bool)
        others[self.columns] = False
        return bool((p == self.p)[others].all())

    def change(self, p: Array) -> Array:
        """Return (1, dp)."""
        return np.append(1.0, (p - self.p)[self.columns])


@dataclass(frozen=True, eq=False, kw_only=True)
class _Limits:
    """Bounds of a branch: masks of the fixed variables and of the equations, bounds of variables and rows."""

    still: Array
    equal: Array
    lbx: Array
    ubx: Array
    lbg: Array
    ubg: Array

    @classmethod
    def of(cls, at: Expansion, branch: Branch) -> _Limits:
        lbx, ubx, lbg, ubg = at.program.bounds(at.p, branch)
        still, equal = at.program.equations(at.p, branch)
        # A variable that a row of its own fixes moves with the parameters: the row is an equation, and the variable has
        # its bounds.
        moved = (lbx == ubx) & ~still
        lbx[moved], ubx[moved] = at.program.nlp.lbx[moved], at.program.nlp.ubx[moved]
        zero = equal & (lbg != ubg)
        lbg[zero] = ubg[zero] = 0.0
        return cls(still=still, equal=equal, lbx=lbx, ubx=ubx, lbg=lbg, ubg=ubg)


@dataclass(frozen=True, eq=False, kw_only=True)
class BranchStep:
    """Solution of the program of a branch for measured data.

    Attributes
    ----------
    w : (n_w,), optional
        In the user's units; None without a solution.
    objective : float
        Predicted, without penalties; infinite without a solution.
    expected : float
        The same by the multipliers alone: to first order, without a change of the active bounds.
    outcome : QPCCOutcome
    residual : float
        Largest violation of a linearised equation or of a bound that no direction moves.
    distance : float
        Largest change of a parameter.
    multipliers : (n_rows,)
        Of the inequalities that directions move: bounds of variables, then rows; positive at upper bounds.
    """

    w: Array | None
    objective: float
    expected: float
    outcome: QPCCOutcome
    residual: float
    distance: float
    multipliers: Array

    @property
    def found(self) -> bool:
        """True if the linearised program has a solution."""
        return self.outcome is QPCCOutcome.SOLVED


@dataclass(frozen=True, eq=False, kw_only=True)
class _Reduced:
    """Program in y with right-hand sides linear in (1, dp); bounds that y does not move are `rigid`."""

    basis: Array
    step: Array
    qp: QPCC
    inequalities: Array
    slope: Array
    constant: Array
    bounds: Array
    moved: Array
    rigid_bounds: Array
    rigid: Array


@dataclass(frozen=True, eq=False)
class BranchQP:
    """Condensed program of a branch, for parameters near those of a point.

    Attributes
    ----------
    elimination : Elimination
    branch : Branch
    """

    elimination: Elimination
    branch: Branch
    _limits: _Limits

    @classmethod
    def of(cls, finish: Finish, w: Array, p: Array, solved: SolvedBranch, columns: Array) -> BranchQP:
        """Condense the program of the branch of a solution.

        Parameters
        ----------
        finish : Finish
            Program of all branches.
        w, p : (n_w,), (n_p,)
            The solution, in the user's units, and its parameters.
        solved : SolvedBranch
            Its branch, with multipliers.
        columns : int ndarray
            Indices of the parameters that will change.
        """
        branch = Branch(solved.G, solved.H, solved.r)
        return Elimination(Expansion.of(finish, w, p, solved, columns), branch).programs[0].prepared()

    def prepared(self) -> BranchQP:
        """Return the program after all work that does not depend on the parameters, unless it contradicts itself."""
        if np.abs(self._solved[1][:, 0]).max(initial=0.0) <= CONTRADICTS:
            assert self.reduced is not None
        return self

    def at(self, p: Array) -> BranchStep:
        """Return the step for other parameters."""
        at = self.elimination.at
        change = at.change(p)
        outcome, objective, w = QPCCOutcome.INFEASIBLE, np.inf, None
        residual, multipliers = float(np.abs(self._solved[1] @ change).max(initial=0.0)), np.zeros(0)
        if residual <= CONTRADICTS:
            by = self.reduced
            low, high = by.rigid_bounds - by.rigid @ change
            residual = max(residual, float(low.max(initial=0.0)), float(-high.min(initial=0.0)))
            if residual <= CONTRADICTS:
                lower, upper = by.bounds - by.moved @ change
                constant = 0.5 * float(change @ by.constant @ change)
                found = by.qp.solve(by.slope @ change, lower, upper, constant=constant, nodes=1)
                outcome, objective, multipliers = found.outcome, found.objective, found.multipliers
                scale = at.program.mpcc.w_scale
                w = remove_common_parts(at.program.mpcc, (at.x + by.step @ change + by.basis @ found.z) * scale)
        return BranchStep(
            w=w if outcome is QPCCOutcome.SOLVED else None,
            objective=objective,
            expected=float(at.expected @ change),
            outcome=outcome,
            residual=residual,
            distance=float(np.abs(change[1:]).max(initial=0.0)),
            multipliers=multipliers,
        )

    def contradiction(self, p: Array) -> float:
        """Return what least squares leave of the equations, of which those near the changed ones may be violated."""
        return float(np.linalg.norm(self._left_over @ self.elimination.at.change(p)))

    @cached_property
    def _left_over(self) -> Array:
        _, further = self.elimination.further(self._limits, soft=True)
        # Directions that move the equations little would make them vanish by steps of any length.
        seen = RankRevealingQR(further.by_x.T, WELL, np.ones(further.by_x.shape[1])).seen
        return np.asarray(further.by_p - seen @ (seen.T @ further.by_p))

    @cached_property
    def _solved(self) -> tuple[Array, Array]:
        """Columns of the directions and of (1, dp) that the equations leave, and what contradicts them."""
        columns, further = self.elimination.further(self._limits)
        width = further.by_p.shape[1]
        space = AffineSolution(np.eye(columns.size), np.zeros((columns.size, width))).within(further)
        # In the coordinates of all columns, of which (1, dp) are the first.
        whole = np.zeros((self.elimination.X.shape[1], space.loose.shape[1] + width))
        whole[columns] = np.hstack([space.loose, space.step])
        whole[:width, space.loose.shape[1] :] = np.eye(width)
        return whole, further.by_p + further.by_x @ space.step

    @cached_property
    def reduced(self) -> _Reduced:
        """Objective and inequalities in the directions that are left."""
        at, new, space = self.elimination.at, self._limits, self._solved[0]
        whole, curved, by_y = (
            part @ space for part in (self.elimination.X, self.elimination.curved, self.elimination.by_X)
        )
        n_y = space.shape[1] - at.columns.size - 1
        basis, step = whole[:, :n_y], whole[:, n_y:]
        mixed = step.T @ at.slope
        bounded = np.flatnonzero(~new.still & (np.isfinite(new.lbx) | np.isfinite(new.ubx)))
        rows = np.flatnonzero(~new.equal & (np.isfinite(new.lbg) | np.isfinite(new.ubg)))
        by_y[:, n_y + 1 :] += at.by_p
        A = np.vstack([whole[bounded], by_y[rows]])
        low = np.concatenate([(new.lbx - at.x)[bounded], (new.lbg - at.g)[rows]])
        high = np.concatenate([(new.ubx - at.x)[bounded], (new.ubg - at.g)[rows]])
        low[(low > 0.0) & (low <= LEFT_OVER)] = 0.0
        high[(high < 0.0) & (high >= -LEFT_OVER)] = 0.0
        size = np.concatenate([np.ones(bounded.size), self.elimination.lengths[rows]])
        moves = np.linalg.norm(A[:, :n_y], axis=1) > DEPENDENT * size
        bounds = np.stack([low, high])
        return _Reduced(
            basis=basis,
            step=step,
            qp=QPCC.of(_definite(basis.T @ curved[:, :n_y]), A[moves, :n_y], ()),
            inequalities=np.concatenate([bounded, at.x.size + rows])[moves],
            slope=basis.T @ (at.slope + curved[:, n_y:]),
            constant=at.constant + mixed + mixed.T + step.T @ curved[:, n_y:],
            bounds=bounds[:, moves],
            moved=A[moves, n_y:],
            rigid_bounds=bounds[:, ~moves],
            rigid=A[~moves, n_y:],
        )


class Elimination:
    """Equations of a branch, solved for its program and for those of the branches beside it.

    Equations and variables are solved stage by stage, forwards in time: the variables of a stage follow from those of
    earlier ones, up to the directions that its own equations leave. Equations that do not determine variables of their
    stage well are left over; they are met at the end, in the directions of all stages.

    Parameters
    ----------
    at : Expansion
    branch : Branch
    beside : sequence of Branch
        Others that differ in a few equations and fixed variables.
    soft : int
        Number of these (the first ones) whose equations `BranchQP.contradiction` violates.

    Attributes
    ----------
    X : (n_x, n_columns)
        Steps of the variables: for (1, dp), for every equation or fixed variable that some branch drops, and in the
        directions that are left.
    by_X, curved : (n_g, n_columns), (n_x, n_columns)
        Jacobian and Hessian times X.
    lengths : (n_g,)
        Of the rows of the Jacobian.
    programs : tuple of BranchQP
        Of the branch, and of those beside it.
    """

    def __init__(self, at: Expansion, branch: Branch, beside: Sequence[Branch] = (), soft: int = 0) -> None:
        self.at, self._kept = at, _Limits.of(at, branch)
        self.lengths = np.sqrt(np.asarray(at.by_x.power(2).sum(axis=1)).ravel())
        self.lengths[self.lengths == 0.0] = 1.0
        every = [self._kept, *(_Limits.of(at, other) for other in beside)]
        # Directions in which one dropped equation does not hold, or one fixed variable moves.
        dropped = self._kept.equal & ~np.array([new.equal for new in every])
        released = self._kept.still & ~np.array([self._stays(new) for new in every])
        self._dropped, self._released = (np.flatnonzero(part.any(axis=0)) for part in (dropped, released))
        soft_parts = dropped[: soft + 1, self._dropped], released[: soft + 1, self._released]
        self._soft = np.concatenate([part.any(axis=0) for part in soft_parts])
        fixed = np.where(self._kept.still, self._kept.lbx - at.x, 0.0)
        rows, self._width = np.flatnonzero(self._kept.equal), 1 + at.columns.size
        by_x = at.by_x[rows].toarray()
        right = _right(at, self._kept)[rows]
        right[:, 0] += by_x @ fixed
        out = -(rows[:, None] == self._dropped).astype(float)
        X = np.zeros((at.x.size, self._width + self._soft.size))
        X[:, 0] = fixed
        X[self._released, self._width + self._dropped.size + np.arange(self._released.size)] = 1.0
        self.X, chosen = self._forwards(by_x, rows, np.hstack([right, out, by_x[:, self._released]]), X)
        self._left = np.ones(self._kept.equal.size, bool)
        self._left[chosen] = False
        self.by_X, self.curved = at.by_x @ self.X, at.hessian @ self.X
        self.programs = tuple(map(BranchQP, repeat(self), (branch, *beside), every))

    def _forwards(self, by_x: Array, rows: Array, right: Array, X: Array) -> tuple[Array, Array]:
        """Return X, its columns solving the equations with the columns of `right`, then the directions that are left.

        The second result are the equations that are met.
        """
        stage, free = self.at.program.stages, ~self._kept.still
        entries = (by_x != 0.0) & free
        # The last stage whose variables an equation contains; equations of constants are left over.
        last = np.where(entries, stage, stage.min() - 1).max(axis=1)
        chosen, zero = list[Array](), np.zeros
        for k in np.unique(stage[free]):
            own, mine = np.flatnonzero(free & (stage == k)), np.flatnonzero(last == k)
            before = np.flatnonzero(entries[mine].any(axis=0) & (stage != k))
            given = by_x[np.ix_(mine, before)] @ X[before]
            given[:, : right.shape[1]] += right[mine]
            known = RankRevealingQR(by_x[np.ix_(mine, own)], WELL, self.lengths[rows[mine]])
            X[own] = known.derivative(given)
            new = zero((X.shape[0], known.loose.shape[1]))
            new[own] = known.loose
            X = np.hstack([X, new])
            chosen.append(rows[mine[known.chosen]])
        return X, np.concatenate([zero(0, int), *chosen])

    def _stays(self, new: _Limits) -> Array:
        """Return the mask of the variables that both branches fix at the same value."""
        return self._kept.still & new.still & (self._kept.lbx == new.lbx)

    def further(self, new: _Limits, soft: bool = False) -> tuple[Array, LinearRows]:
        """Return the columns that a branch may use, and its equations in them.

        With `soft`, the equations that the first branches drop are among these, too, instead of being met.
        """
        at, width, X = self.at, self._width, self.X
        stays = self._stays(new)
        used = np.concatenate([~new.equal[self._dropped], ~stays[self._released]]) | (soft & self._soft)
        columns = np.concatenate([width + np.flatnonzero(used), np.arange(width + used.size, X.shape[1])])
        again = self._left | ~self._kept.equal
        again[self._dropped[used[: self._dropped.size]]] = True
        free = ~self._kept.still
        free[self._released[used[self._dropped.size :]]] = True
        again, stopped = np.flatnonzero(new.equal & again), np.flatnonzero(new.still & free)
        by_p = self.by_X[again, :width] + _right(at, new)[again]
        ends = X[stopped, :width]
        ends[:, 0] -= (new.lbx - at.x)[stopped]
        size = self.lengths[again][:, None]
        by_x = np.vstack([self.by_X[np.ix_(again, columns)] / size, X[np.ix_(stopped, columns)]])
        return columns, LinearRows(by_x, np.vstack([by_p / size, ends]))


def _right(at: Expansion, new: _Limits) -> Array:
    """Return the residuals of the equations, and their change with the parameters."""
    return np.hstack([np.where(new.equal, at.g - new.lbg, 0.0)[:, None], at.by_p])


def _definite(curvature: Array) -> Array:
    """Return the reduced Hessian with the sizes of its eigenvalues in their place, and at least a small one."""
    if not curvature.size:
        return curvature
    sizes, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    sizes = np.abs(sizes)
    least = LEAST_CURVATURE * float(sizes.max())
    return np.asarray((vectors * np.maximum(sizes, least if least > 0.0 else 1.0)) @ vectors.T)
