"""Branches of an MPCC and the active-set finish: guess the active set, solve the smooth problem, check again.

A branch says for every group which side is zero, and so which switched equations hold. The finish

1. reads the branch from an iterate of the homotopy: in every group the side whose largest member is smaller is zero,
2. solves the smooth problem on this branch: bounds fix the zero quantities and release the others. With an objective
   this is an NLP, without one a square or redundant system for Newton's method,
3. hands the point back. The caller accepts it only if the residuals of the unrelaxed problem, inequalities included,
   are small.

The homotopy stops at complementarity residuals of about 1e-6; the finish makes them exactly zero and removes the
spurious impulses of size sqrt(sigma) that relaxations leave in persistent contact. It also replaces the penalty of step
equilibration by its exact equations. One `BranchProgram` serves all branches, because a branch changes bounds only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.implicit_function import shortest_step
from nosnoc_py.mpcc.interior.method import InteriorPoint
from nosnoc_py.mpcc.ipopt import Ipopt, NLPResult
from nosnoc_py.mpcc.nlp import Blocks, branch_nlp
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.residuals import Evaluator, Values
from nosnoc_py.mpcc.stationarity import Multipliers
from nosnoc_py.solution.records import SolvedBranch

# A row whose implied lower bound is above this cannot be zero.
ABOVE_ZERO = 1e-8
# Newton's method ends at rounding errors: when a residual below SMALL_RESIDUAL does not fall below the fraction
# STUCK_FRACTION of the last one. Larger residuals may grow before they fall.
SMALL_RESIDUAL, STUCK_FRACTION = 1e-8, 0.9
# Relative difference up to which two rows fix a variable at the same value.
SAME_VALUE = 1e-12
# A row of length one depends on the others if less than DEPENDENT of it is orthogonal to them; a QR decomposition looks
# for such rows in programs with up to LOOKED_AT equations.
DEPENDENT, LOOKED_AT = 1e-9, 2000
# Complementarity residual below which a branch is clear enough to try an NLP that may be infeasible.
CLEAR = 1e-5
# The equations of a branch are rarely independent and its multipliers often unbounded. A permanent tiny perturbation
# keeps the steps defined; the last digits of the dual infeasibility may never be reached, so its tolerance is loose.
# Residuals and the certificate decide whether the point is accepted.
SETTINGS: Mapping[str, Any] = {
    "tol": 1e-10,
    "dual_inf_tol": 1e-6,
    "compl_inf_tol": 1e-10,
    "constr_viol_tol": 1e-10,
    "mu_target": 0.0,
    "acceptable_tol": 1e-8,
    "bound_push": 1e-6,
    "bound_frac": 1e-6,
    "perturb_always_cd": "yes",
    "jacobian_regularization_value": 1e-12,
    "max_iter": 100,
}


# Options of the library's interior-point method. What it solves, it solves in fewer iterations; on a wrong branch more
# would be wasted. In persistent contact with a curved gap rows contradict each other in the tenth digit: 1e-9.
FAST: Mapping[str, Any] = {"max_iter": 60, "mu_init": 1e-3, "tol": 1e-9, "constr_viol_tol": 1e-9}


@dataclass(frozen=True, eq=False)
class Branch:
    """Branch of an MPCC: masks of the rows of G and of H that are zero, and of the switched equations that hold."""

    G: np.ndarray
    H: np.ndarray
    r: np.ndarray


def guess_branch(mpcc: MPCC, at: Values, lowest: tuple[np.ndarray, np.ndarray] | None = None) -> Branch:
    """Return the branch in which the side of every group with the smaller largest member is zero.

    `lowest` are the smallest values that the bounds allow for G and H: a side that cannot be zero is not chosen.
    """
    sizes = [side.largest(np.abs(values)) for side, values in zip(mpcc.members, (at.G, at.H), strict=True)]
    bounds = lowest if lowest is not None else (np.full(at.G.size, -np.inf), np.full(at.H.size, -np.inf))
    possible = [side.all(low <= ABOVE_ZERO) for side, low in zip(mpcc.members, bounds, strict=True)]
    small_side = np.array([group.small_side for group in mpcc.groups], bool) & (sizes[0] < CLEAR)
    left = possible[0] & ((sizes[0] < sizes[1]) | ~possible[1] | small_side)
    # Of the parts of a signed quantity the right one is zero: the left one is the difference, with either sign.
    return complete(mpcc, *mpcc.side(left & ~mpcc.difference_only))


def complete(mpcc: MPCC, zero_G: np.ndarray, zero_H: np.ndarray) -> Branch:
    """Return the branch of these zero rows, with the switched equations that follow from it."""
    return Branch(zero_G, zero_H, mpcc.switched_on(zero_G, zero_H))


def remove_common_parts(mpcc: MPCC, w: np.ndarray) -> np.ndarray:
    """Return w with the smaller of the two parts of every signed quantity subtracted from both.

    The difference stays the same, and both parts become nonnegative.
    """
    w, (plus, minus) = w.copy(), mpcc.parts
    smaller = np.minimum(w[plus], w[minus])
    w[plus] -= smaller
    w[minus] -= smaller
    return w


def as_differences(mpcc: MPCC, w: np.ndarray) -> np.ndarray:
    """Return the iterate with every signed quantity in its left part, of either sign, as on branches."""
    w, (plus, minus) = w.copy(), mpcc.parts
    w[plus] -= w[minus]
    w[minus] = 0.0
    return w


@dataclass(frozen=True, eq=False, kw_only=True)
class BranchOutcome:
    """Result of a finish on a branch.

    Attributes
    ----------
    w : (n_w,)
        In the user's units.
    branch : Branch
    iterations : int
    solver_status : str
    converged, interrupted : bool
    multipliers : Multipliers, optional
        If an NLP was solved.
    solved : SolvedBranch, optional
        The branch with the multipliers of its NLP, for a later start from them.
    """

    w: np.ndarray
    branch: Branch
    iterations: int
    solver_status: str
    converged: bool = True
    interrupted: bool = False
    multipliers: Multipliers | None = None
    solved: SolvedBranch | None = None


class BranchProgram:
    """NLP of all branches of a program; bounds select the branch."""

    def __init__(self, blocks: Blocks) -> None:
        self.mpcc, self.blocks = blocks.mpcc, blocks
        self.nlp = branch_nlp(blocks)
        row, column = self.nlp.jacobian.sparsity().get_triplet()
        self._pattern = (np.array(row, int), np.array(column, int))

    def bounds(self, p: np.ndarray, branch: Branch) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return lbx, ubx, lbg, ubg of a branch.

        A zero row whose smallest value is zero fixes its variables at their bounds. A zero row of one variable fixes
        that variable. Other zero rows become equations. Fixing variables matters where pairs overlap: the same variable
        is zero in several rows, and as equations these would outnumber the variables.
        """
        m, nlp, blocks = self.mpcc, self.nlp, self.blocks
        lbx, ubx, lbg, ubg = nlp.lbx.copy(), nlp.ubx.copy(), nlp.lbg.copy(), nlp.ubg.copy()
        # The left part is the whole difference on a branch and may be negative.
        lbx[m.parts[0]] = -np.inf
        start = m.lbg.size
        sides = ((branch.G, blocks.lower_G, blocks.rows_G), (branch.H, blocks.lower_H, blocks.rows_H))
        for (zero, floor, rows), lowest in zip(sides, blocks.lowest(p), strict=True):
            # The implied lower bound is 0 and the row is 0: every variable in it is at its bound.
            fixed = zero & (np.abs(lowest) <= ABOVE_ZERO)
            variable, value = floor.members(fixed)
            lbx[variable] = ubx[variable] = value / m.w_scale[variable]
            place = start + np.arange(rows.size)
            ubg[place[zero[rows]]] = 0.0
            # All variables of these rows are fixed: the rows would be redundant equations.
            lbg[place[fixed[rows]]], ubg[place[fixed[rows]]] = -np.inf, np.inf
            alone = np.flatnonzero((zero & ~fixed & (floor.single >= 0))[rows])
            if alone.size:
                variable, value = floor.roots(rows[alone], p)
                done = _fix_variables(lbx, ubx, variable, value / m.w_scale[variable])
                lbg[place[alone[done]]], ubg[place[alone[done]]] = -np.inf, np.inf
            start += rows.size
        held = start + np.flatnonzero(branch.r)  # switched equations that do not hold stay free
        lbg[held], ubg[held] = 0.0, 0.0
        return lbx, ubx, lbg, ubg

    def fixed(self, p: np.ndarray, branch: Branch) -> ca.SX:
        """Return the values (n_x,) at which `bounds` fixes variables, as expressions of the parameters of the MPCC.

        They are valid as long as the same rows fix the same variables as at `p`.
        """
        lbx, ubx, *_ = self.bounds(p, branch)
        values, scale = ca.SX(ca.DM(np.where(lbx == ubx, lbx, 0.0))), self.mpcc.w_scale
        for zero, floor in ((branch.G, self.blocks.lower_G), (branch.H, self.blocks.lower_H)):
            rows = np.flatnonzero(zero & (floor.single >= 0))
            variable, value = floor.roots(rows, p)
            written = floor.root_expressions(rows, self.mpcc.p)
            there = (lbx == ubx)[variable] & (np.abs(value / scale[variable] - lbx[variable]) <= SAME_VALUE)
            for k in np.flatnonzero(there).tolist():
                values[int(variable[k])] = written[k] / scale[variable[k]]
        return values

    def equations(self, p: np.ndarray, branch: Branch) -> tuple[np.ndarray, np.ndarray]:
        """Return masks of the variables that are constant on a branch, and of the rows that are equations.

        They differ from `bounds` in one point: a variable fixed by a row of its own may move with p, so that the row
        is an equation and the variable is free.
        """
        m, blocks = self.mpcc, self.blocks
        lbx, ubx, lbg, ubg = self.bounds(p, branch)
        still, equal = m.lbw == m.ubw, lbg == ubg
        moved, start = np.zeros(still.size, bool), m.lbg.size
        sides = ((branch.G, blocks.lower_G, blocks.rows_G), (branch.H, blocks.lower_H, blocks.rows_H))
        for (zero, floor, rows), lowest in zip(sides, blocks.lowest(p), strict=True):
            fixed = zero & (np.abs(lowest) <= ABOVE_ZERO)
            still[floor.members(fixed)[0]] = True
            alone = np.flatnonzero((zero & ~fixed & (floor.single >= 0))[rows])
            equal[start + alone] = True
            moved[floor.single[rows[alone]]] = True
            start += rows.size
        return (lbx == ubx) & (still | ~moved), equal

    @cached_property
    def stages(self) -> np.ndarray:
        """Control stage of every variable; -1 of those without one."""
        stages = np.full(self.nlp.x.numel(), -1)
        for block in self.mpcc.variables.blocks():
            stages[block.rows] = -1 if block.at.stage is None else block.at.stage
        return stages

    @cached_property
    def parameter_derivatives(self) -> Callable[..., list[np.ndarray]]:
        """`by_p` as a fast function of arrays."""
        return buffered(self.by_p)

    @cached_property
    def by_p(self) -> ca.Function:
        """Function (x, p, lam_g) -> f_p, g_p, L_xp and L_pp, by the parameters of the MPCC."""
        nlp, lam, p = self.nlp, self.nlp.multiplier_g, self.mpcc.p
        slope = nlp.gradient + ca.jtimes(nlp.g, nlp.x, lam, True)
        bent = ca.hessian(nlp.f + ca.dot(lam, nlp.g), p)[0]
        parts = [ca.jacobian(nlp.f, p), ca.jacobian(nlp.g, p), ca.jacobian(slope, p), bent]
        return ca.Function("by_p", [nlp.x, nlp.p, lam], [ca.densify(part) for part in parts])

    def own_multipliers(self, solved: SolvedBranch) -> np.ndarray:
        """Return multipliers of the rows; a row that fixed its only variable gets the multiplier of the variable."""
        blocks, lam_g = self.blocks, solved.lam_g.copy()
        start = self.mpcc.lbg.size
        for floor, rows in ((blocks.lower_G, blocks.rows_G), (blocks.lower_H, blocks.rows_H)):
            alone = np.flatnonzero((floor.single[rows] >= 0) & (lam_g[start : start + rows.size] == 0.0))
            own = rows[alone]
            lam_g[start + alone] = solved.lam_x[floor.single[own]] / floor.coefficient[own]
            start += rows.size
        return lam_g

    def newton(self, w: np.ndarray, p: np.ndarray, branch: Branch, iterations: int = 15) -> np.ndarray:
        """Return the last iterate of Newton's method on a branch, for problems without an objective.

        Steps are the shortest solutions of the linearised equations, so that redundant equations (a gap that is zero at
        both ends and at the stages) and forces that are not unique do no harm.
        """
        from scipy import sparse  # not paid for by an import of the library

        lbx, ubx, lbg, ubg = self.bounds(p, branch)
        scale = self.mpcc.w_scale
        free, chosen = lbx < ubx, lbg == ubg
        x = np.where(free, w / scale, lbx)
        # Penalty weight 0: only equations count.
        parameters, size = np.append(p, 0.0), np.inf
        for _ in range(iterations):
            values, jacobian = self.nlp.jacobian_function(x, parameters)
            residual = (np.asarray(values).reshape(-1) - lbg)[chosen]
            nonzeros = np.array(jacobian.nonzeros())
            before, size = size, float(np.abs(residual).max(initial=0.0))
            if (
                not np.isfinite(nonzeros).all()
                or not np.isfinite(size)
                or STUCK_FRACTION * before <= size < SMALL_RESIDUAL
            ):
                break
            matrix = sparse.csr_matrix((nonzeros, self._pattern), shape=(chosen.size, x.size))
            # Bounds are not enforced: a simulation reads from the violated ones which event comes next.
            x[free] += shortest_step(matrix[chosen][:, free], -residual)
        return x * scale


def _fix_variables(lbx: np.ndarray, ubx: np.ndarray, variable: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Fix variables at values inside their bounds, in place; return the mask of those that now have their value."""
    inside = np.flatnonzero((lbx[variable] <= value) & (value <= ubx[variable]))
    index, first = np.unique(variable[inside], return_index=True)  # of contradicting rows the first one counts
    lbx[index] = ubx[index] = value[inside[first]]
    there = lbx[variable] == ubx[variable]
    return there & (np.abs(value - lbx[variable]) <= SAME_VALUE * np.maximum(1.0, np.abs(value)))


def dependent_rows(matrix: np.ndarray) -> np.ndarray:
    """Return the mask of rows that are combinations of the others, by QR with pivoting (Businger & Golub 1965)."""
    from scipy.linalg import qr

    size = np.linalg.norm(matrix, axis=1)
    rows = matrix / np.where(size > 0.0, size, 1.0)[:, None]
    triangle, order = qr(rows.T, mode="r", pivoting=True, check_finite=False)
    rank = int((np.abs(np.diagonal(triangle)) > DEPENDENT).sum())
    mask = np.zeros(size.size, bool)
    # Pivoting sorts the rows by what they add: those after the rank add nothing.
    mask[order[rank:]] = True
    return mask


class Finish:
    """Active-set finish of a program: Newton's method without an objective, an NLP with one. Built on first use."""

    def __init__(self, blocks: Blocks, evaluator: Evaluator, options: Mapping[str, Any]) -> None:
        self.mpcc, self._blocks, self._evaluator, self._options = blocks.mpcc, blocks, evaluator, options
        self.feasibility_only = self.mpcc.objective.is_constant()

    def ways(self, complementarity: float) -> tuple[str, ...]:
        """Return the ways to try at an iterate with this complementarity residual.

        Without an objective: "newton", which is cheap, and an NLP ("hold") only if the branch is clear. With an
        objective: "hold" imposes the switched equations in place of the penalty, "penalise" drops them and minimises
        the penalty. A penalty without equations is first kept ("penalise"), because it makes the NLP well posed, and
        then removed ("polish").
        """
        if self.feasibility_only:
            return ("newton", "hold") if complementarity <= CLEAR else ("newton",)
        loose = ~self.mpcc.enforced
        if self.mpcc.penalty.is_constant() or (loose.size and not loose.any()):
            return ("hold",)
        return ("hold", "penalise") if loose.any() else ("penalise", "polish")

    def guess(self, w: np.ndarray, p: np.ndarray) -> Branch:
        """Return the branch that an iterate shows."""
        return guess_branch(self.mpcc, self._evaluator(w, p), self._blocks.lowest(p))

    def __call__(
        self, w: np.ndarray, p: np.ndarray, deadline: float, way: str = "hold", branch: Branch | None = None
    ) -> BranchOutcome:
        """Solve on a branch, by default the one that w shows; `way` is one of `ways`."""
        branch = self.guess(w, p) if branch is None else branch
        if way == "newton":
            outcome = BranchOutcome(
                w=self.program.newton(w, p, branch), branch=branch, iterations=0, solver_status="newton"
            )
        else:
            if way == "penalise":
                branch = replace(branch, r=branch.r & self.mpcc.enforced)
            penalised = way == "penalise" or self.feasibility_only
            outcome = self._solve(w, p, branch, deadline, penalised=penalised)
            outcome = replace(outcome, solved=None if outcome.solved is None else replace(outcome.solved, way=way))
        return replace(outcome, w=remove_common_parts(self.mpcc, outcome.w))

    def again(self, w: np.ndarray, p: np.ndarray, deadline: float, solved: SolvedBranch | None = None) -> BranchOutcome:
        """Make one attempt with the interior-point method.

        The branch is that of an earlier solution, started from its multipliers, or the one that w shows.
        """
        way = self.ways(0.0)[0] if solved is None else solved.way
        branch = self.guess(w, p) if solved is None else Branch(solved.G, solved.H, solved.r)
        branch = replace(branch, r=branch.r & self.mpcc.enforced) if way == "penalise" and solved is None else branch
        duals = {} if solved is None else {"lam_x0": solved.lam_x, "lam_g0": solved.lam_g}
        penalised = way == "penalise" or self.feasibility_only
        outcome = self._solve(w, p, branch, deadline, penalised=penalised, duals=duals)
        # The next start reads its way here: a branch with a penalty has to be solved with it again.
        at_end = None if outcome.solved is None else replace(outcome.solved, way=way)
        return replace(outcome, w=remove_common_parts(self.mpcc, outcome.w), solved=at_end)

    @cached_property
    def program(self) -> BranchProgram:
        """NLP of all branches."""
        return BranchProgram(self._blocks)

    @cached_property
    def interior(self) -> InteriorPoint:
        """Interior-point method that solves on a branch."""
        return InteriorPoint(self.program.nlp, {**SETTINGS, **FAST, **self._options})

    @cached_property
    def ipopt(self) -> Ipopt:
        """IPOPT, used where the interior-point method fails."""
        return Ipopt(self.program.nlp, {**SETTINGS, **self._options})

    def _solve(
        self,
        w: np.ndarray,
        p: np.ndarray,
        branch: Branch,
        deadline: float,
        *,
        penalised: bool,
        duals: Mapping[str, np.ndarray] | None = None,
    ) -> BranchOutcome:
        """Solve from w; `penalised` adds the penalty to the objective. IPOPT is a second attempt if `duals` is None."""
        m = self.mpcc
        lbx, ubx, lbg, ubg = self.program.bounds(p, branch)
        parameters = np.append(p, float(penalised))
        x = np.clip(w / m.w_scale, lbx, ubx)
        bounds = {"lbx": lbx, "ubx": ubx, "lbg": lbg, "ubg": ubg}
        result = self.interior.solve(x, parameters, **bounds, **(duals or {}), deadline=deadline)
        # IPOPT as a second attempt, except for re-solves, where a failed branch is left at once.
        if not result.converged and duals is None:
            repeated = self._repeated(x, parameters, lbx < ubx, lbg == ubg)
            lbg[repeated], ubg[repeated] = -np.inf, np.inf
            result = self.ipopt.solve(x, parameters, lbx=lbx, ubx=ubx, lbg=lbg, ubg=ubg, deadline=deadline)
        return BranchOutcome(
            w=result.x[: m.w0.size] * m.w_scale,
            branch=branch,
            iterations=result.iterations,
            solver_status=result.solver_status,
            converged=result.converged,
            interrupted=result.interrupted,
            multipliers=self._multipliers(result, branch),
            solved=SolvedBranch(G=branch.G, H=branch.H, r=branch.r, way="hold", lam_x=result.lam_x, lam_g=result.lam_g),
        )

    def _repeated(self, x: np.ndarray, p: np.ndarray, free: np.ndarray, equal: np.ndarray) -> np.ndarray:
        """Return equations that depend on the others at x, if there are more than variables, which IPOPT refuses."""
        equations = np.flatnonzero(equal)
        if not free.sum() < equations.size <= LOOKED_AT:
            return equations[:0]
        jacobian = self.program.nlp.jacobian_function(x, p)[1].sparse().tocsr()
        matrix = jacobian[equations][:, np.flatnonzero(free)].toarray()
        return equations[dependent_rows(matrix)] if np.isfinite(matrix).all() else equations[:0]

    def _multipliers(self, result: NLPResult, branch: Branch) -> Multipliers:
        """Return multipliers of the MPCC; that of a fixed variable goes to the first zero row of this variable."""
        m, blocks = self.mpcc, self._blocks
        lam_w = result.lam_x[: m.w0.size] / m.w_scale
        lam = np.split(result.lam_g, np.cumsum([m.lbg.size, blocks.rows_G.size, blocks.rows_H.size]))
        nu_G, nu_H = np.zeros(m.G.numel()), np.zeros(m.H.numel())
        # CasADi's multipliers of lower bounds are negative; nu is the multiplier of G >= 0 in L = f - G'nu.
        nu_G[blocks.rows_G], nu_H[blocks.rows_H] = -lam[1], -lam[2]
        for nu, zero, floor in ((nu_G, branch.G, blocks.lower_G), (nu_H, branch.H, blocks.lower_H)):
            own = np.flatnonzero(zero & (floor.single >= 0) & (nu == 0.0))
            variable, first = np.unique(floor.single[own], return_index=True)
            nu[own[first]] = -lam_w[variable] / floor.coefficient[own[first]]
            lam_w[variable] = 0.0  # counted in nu now
        return Multipliers(w=lam_w, g=lam[0] / m.g_scale, G=nu_G, H=nu_H, r=lam[3])
