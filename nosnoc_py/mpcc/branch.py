"""A branch of an MPCC: which side of every group is zero; guess it, solve the smooth problem, re-check.

What the homotopy knows to 1e-6 the solution on a branch knows to machine precision, and phantom impulses of size
sqrt(sigma) disappear. Nothing is believed: the caller checks the residuals of the unrelaxed problem afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.implicit_function import shortest_step
from nosnoc_py.mpcc.interior.method import InteriorPoint
from nosnoc_py.mpcc.ipopt import Ipopt, NLPResult
from nosnoc_py.mpcc.nlp import Blocks, branch_nlp
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.residuals import Evaluator, Values
from nosnoc_py.mpcc.stationarity import Multipliers
from nosnoc_py.solution.records import SolvedBranch

# A row whose bounds keep it above this cannot be zero.
FLOOR = 1e-8
# Newton's method ends when a residual this small does not fall below that fraction of the last one: at round-off. While
# it is large it may well grow before it falls.
SMALL, STUCK = 1e-8, 0.9
# Two rows fix a variable at the same value within this, relatively.
SAME = 1e-12
# Rows of length one are dependent where this little of them is left; up to so many of them it is looked at.
DEPENDENT, LOOKED_AT = 1e-9, 2000
# Below this complementarity residual a branch is clear enough for an NLP that may be infeasible.
CLEAR = 1e-5
# The equations of a branch are rarely independent and its multipliers often unbounded: a permanent tiny
# perturbation keeps the steps defined, and the last digits of the dual infeasibility may never come. The
# point is judged by its residuals and the certificate.
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


# Our own method has as many iterations: what it solves it solves in fewer, and a wrong branch is left.
# Rows of a contact that lasts contradict each other in the tenth digit, where the gap is no linear function.
FAST: Mapping[str, Any] = {"max_iter": 60, "mu_init": 1e-3, "tol": 1e-9, "constr_viol_tol": 1e-9}


@dataclass(frozen=True, eq=False)
class Branch:
    """Which nonnegative quantities are zero, and which switched equations hold."""

    G: np.ndarray
    H: np.ndarray
    r: np.ndarray


def guess_branch(mpcc: MPCC, at: Values, lowest: tuple[np.ndarray, np.ndarray] | None = None) -> Branch:
    """In every group the side whose largest member is smaller in size is taken to be zero.

    `lowest` are the smallest values that bounds leave to G and H: a side that cannot be zero is not chosen.
    """
    sizes = [side.largest(np.abs(values)) for side, values in zip(mpcc.members, (at.G, at.H), strict=True)]
    bounds = lowest if lowest is not None else (np.full(at.G.size, -np.inf), np.full(at.H.size, -np.inf))
    possible = [side.all(low <= FLOOR) for side, low in zip(mpcc.members, bounds, strict=True)]
    small_side = np.array([group.small_side for group in mpcc.groups], bool) & (sizes[0] < CLEAR)
    left = possible[0] & ((sizes[0] < sizes[1]) | ~possible[1] | small_side)
    # In a difference_only the left part, with either sign, is the difference.
    return complete(mpcc, *mpcc.side(left & ~mpcc.difference_only))


def complete(mpcc: MPCC, zero_G: np.ndarray, zero_H: np.ndarray) -> Branch:
    """The branch with the switched equations that follow from it."""
    return Branch(zero_G, zero_H, mpcc.switched_on(zero_G, zero_H))


def join_splits(mpcc: MPCC, w: np.ndarray) -> np.ndarray:
    """Return w with the smaller of the two parts of every signed quantity subtracted from both.

    The difference stays the same, and both parts become nonnegative.
    """
    w = w.copy()
    for group in mpcc.groups:
        if group.difference_only:
            plus, minus = mpcc.G_variable[group.left], mpcc.H_variable[group.right]
            smaller = np.minimum(w[plus], w[minus])
            w[plus] -= smaller
            w[minus] -= smaller
    return w


def signed(mpcc: MPCC, w: np.ndarray) -> np.ndarray:
    """The iterate with every signed quantity in its left part, as on branches."""
    w = w.copy()
    for group in mpcc.groups:
        if group.difference_only:
            plus, minus = mpcc.G_variable[group.left], mpcc.H_variable[group.right]
            w[plus] -= w[minus]
            w[minus] = 0.0
    return w


@dataclass(frozen=True, eq=False, kw_only=True)
class BranchOutcome:
    """What a finish found on a branch: w in the user's units, with the multipliers when there was an NLP."""

    w: np.ndarray
    branch: Branch
    iterations: int
    solver_status: str
    converged: bool = True
    interrupted: bool = False
    multipliers: Multipliers | None = None
    solved: SolvedBranch | None = None


class BranchProgram:
    """The NLP of all branches of a program: which branch it is, is said by bounds."""

    def __init__(self, blocks: Blocks) -> None:
        self.mpcc, self.blocks = blocks.mpcc, blocks
        self.nlp = branch_nlp(blocks)
        row, column = self.nlp.jacobian.sparsity().get_triplet()
        self._pattern = (np.array(row, int), np.array(column, int))

    def bounds(self, p: np.ndarray, branch: Branch) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """lbx, ubx, lbg, ubg: zero rows fix their members where bounds allow, else the row itself.

        A row of one variable fixes it whatever its bounds are: where pairs overlap the same variable is zero in several
        rows, and as equations these would outnumber the variables.
        """
        m, nlp, blocks = self.mpcc, self.nlp, self.blocks
        lbx, ubx, lbg, ubg = nlp.lbx.copy(), nlp.ubx.copy(), nlp.lbg.copy(), nlp.ubg.copy()
        for group in m.groups:
            if group.difference_only:
                lbx[m.G_variable[group.left]] = -np.inf
        start = m.lbg.size
        sides = ((branch.G, blocks.floor_G, blocks.rows_G), (branch.H, blocks.floor_H, blocks.rows_H))
        for (zero, floor, rows), lowest in zip(sides, blocks.lowest(p), strict=True):
            fixed = zero & (np.abs(lowest) <= FLOOR)
            variable, value = floor.members(fixed)
            lbx[variable] = ubx[variable] = value / m.w_scale[variable]
            place = start + np.arange(rows.size)
            ubg[place[zero[rows]]] = 0.0
            lbg[place[fixed[rows]]], ubg[place[fixed[rows]]] = -np.inf, np.inf  # fixed members leave nothing to them
            alone = np.flatnonzero((zero & ~fixed & (floor.single >= 0))[rows])
            if alone.size:
                variable, value = floor.roots(rows[alone], p)
                said = _fixed(lbx, ubx, variable, value / m.w_scale[variable])
                lbg[place[alone[said]]], ubg[place[alone[said]]] = -np.inf, np.inf
            start += rows.size
        held = start + np.flatnonzero(branch.r)
        lbg[held], ubg[held] = 0.0, 0.0
        return lbx, ubx, lbg, ubg

    def fixed(self, p: np.ndarray, branch: Branch) -> ca.SX:
        """The values (n_x,) at which `bounds` fixes variables, as expressions of the parameters of the MPCC.

        They are right as long as the same variables are fixed by the same rows as at `p`.
        """
        lbx, ubx, *_ = self.bounds(p, branch)
        values, scale = ca.SX(ca.DM(np.where(lbx == ubx, lbx, 0.0))), self.mpcc.w_scale
        for zero, floor in ((branch.G, self.blocks.floor_G), (branch.H, self.blocks.floor_H)):
            rows = np.flatnonzero(zero & (floor.single >= 0))
            variable, value = floor.roots(rows, p)
            written = floor.written_roots(rows, self.mpcc.p)
            there = (lbx == ubx)[variable] & (np.abs(value / scale[variable] - lbx[variable]) <= SAME)
            for k in np.flatnonzero(there).tolist():
                values[int(variable[k])] = written[k] / scale[variable[k]]
        return values

    def equations(self, p: np.ndarray, branch: Branch) -> tuple[np.ndarray, np.ndarray]:
        """Masks of the variables that keep their values on a branch, and of the rows that are equations of the others.

        Those of `bounds`, but that a variable whose value is that of a row of its own may move with p: the row counts.
        """
        m, blocks = self.mpcc, self.blocks
        lbx, ubx, lbg, ubg = self.bounds(p, branch)
        still, equal = m.lbw == m.ubw, lbg == ubg
        moved, start = np.zeros(still.size, bool), m.lbg.size
        sides = ((branch.G, blocks.floor_G, blocks.rows_G), (branch.H, blocks.floor_H, blocks.rows_H))
        for (zero, floor, rows), lowest in zip(sides, blocks.lowest(p), strict=True):
            fixed = zero & (np.abs(lowest) <= FLOOR)
            still[floor.members(fixed)[0]] = True
            alone = np.flatnonzero((zero & ~fixed & (floor.single >= 0))[rows])
            equal[start + alone] = True
            moved[floor.single[rows[alone]]] = True
            start += rows.size
        return (lbx == ubx) & (still | ~moved), equal

    def newton(self, w: np.ndarray, p: np.ndarray, branch: Branch, iterations: int = 15) -> np.ndarray:
        """The last iterate from w of Newton's method on a branch, for problems without an objective (simulation steps).

        Shortest steps: redundant equations (a gap that is zero at both ends and at the stages) and multipliers that
        are not unique do no harm.
        """
        from scipy import sparse  # not paid for by an import of the library

        lbx, ubx, lbg, ubg = self.bounds(p, branch)
        scale = self.mpcc.w_scale
        free, chosen = lbx < ubx, lbg == ubg
        x = np.where(free, w / scale, lbx)
        parameters, size = np.append(p, 0.0), np.inf
        for _ in range(iterations):
            values, jacobian = self.nlp.jacobian_function(x, parameters)
            residual = (np.asarray(values).reshape(-1) - lbg)[chosen]
            nonzeros = np.array(jacobian.nonzeros())
            before, size = size, float(np.abs(residual).max(initial=0.0))
            if not np.isfinite(nonzeros).all() or not np.isfinite(size) or STUCK * before <= size < SMALL:
                break
            matrix = sparse.csr_matrix((nonzeros, self._pattern), shape=(chosen.size, x.size))
            # Beyond the bounds, too: a simulation reads from what is violated which event comes next.
            x[free] += shortest_step(matrix[chosen][:, free], -residual)
        return x * scale


def _fixed(lbx: np.ndarray, ubx: np.ndarray, variable: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Fix variables at values inside their bounds; which of them have their value now, whoever fixed them."""
    inside = np.flatnonzero((lbx[variable] <= value) & (value <= ubx[variable]))
    index, first = np.unique(variable[inside], return_index=True)  # the first word counts where two contradict
    lbx[index] = ubx[index] = value[inside[first]]
    there = lbx[variable] == ubx[variable]
    return there & (np.abs(value - lbx[variable]) <= SAME * np.maximum(1.0, np.abs(value)))


def dependent(matrix: np.ndarray) -> np.ndarray:
    """Mask of rows that are combinations of the others, by a QR decomposition with pivoting (Businger and Golub)."""
    from scipy.linalg import qr

    size = np.linalg.norm(matrix, axis=1)
    rows = matrix / np.where(size > 0.0, size, 1.0)[:, None]
    triangle, order = qr(rows.T, mode="r", pivoting=True, check_finite=False)
    rank = int((np.abs(np.diagonal(triangle)) > DEPENDENT).sum())
    mask = np.zeros(size.size, bool)
    mask[order[rank:]] = True
    return mask


class Finish:
    """The finish that fits a program: Newton without an objective, an NLP with one. Built on first use."""

    def __init__(self, blocks: Blocks, evaluator: Evaluator, options: Mapping[str, Any]) -> None:
        self.mpcc, self._blocks, self._evaluator, self._options = blocks.mpcc, blocks, evaluator, options
        self.feasibility_only = self.mpcc.objective.is_constant()

    def ways(self, complementarity: float) -> tuple[str, ...]:
        """What may be tried at an iterate with this residual.

        Without an objective Newton's method, which costs nothing, and an NLP only when the branch is clear. With one
        an NLP that holds the switched equations instead of a penalty, then one that leaves them and penalises; a
        penalty that no equations stand for is first kept, because it makes the NLP well posed, then left out.
        """
        if self.feasibility_only:
            return ("newton", "hold") if complementarity <= CLEAR else ("newton",)
        loose = ~self.mpcc.enforced
        if self.mpcc.penalty.is_constant() or (loose.size and not loose.any()):
            return ("hold",)
        return ("hold", "penalise") if loose.any() else ("penalise", "polish")

    def guess(self, w: np.ndarray, p: np.ndarray) -> Branch:
        """The branch that an iterate shows."""
        return guess_branch(self.mpcc, self._evaluator(w, p), self._blocks.lowest(p))

    def __call__(
        self, w: np.ndarray, p: np.ndarray, deadline: float, way: str = "hold", branch: Branch | None = None
    ) -> BranchOutcome:
        """Solve on a branch, by default the one that w shows."""
        branch = self.guess(w, p) if branch is None else branch
        if way == "newton":
            found = BranchOutcome(
                w=self.program.newton(w, p, branch), branch=branch, iterations=0, solver_status="newton"
            )
        else:
            if way == "penalise":
                branch = replace(branch, r=branch.r & self.mpcc.enforced)
            penalised = way == "penalise" or self.feasibility_only
            found = self._solve(w, p, branch, deadline, penalised=penalised)
            found = replace(found, solved=None if found.solved is None else replace(found.solved, way=way))
        return replace(found, w=join_splits(self.mpcc, found.w))

    def again(self, w: np.ndarray, p: np.ndarray, deadline: float, solved: SolvedBranch | None = None) -> BranchOutcome:
        """One attempt by the fast method: on a branch that was solved, from its multipliers, or on the one w shows."""
        way = self.ways(0.0)[0] if solved is None else solved.way
        branch = self.guess(w, p) if solved is None else Branch(solved.G, solved.H, solved.r)
        branch = replace(branch, r=branch.r & self.mpcc.enforced) if way == "penalise" and solved is None else branch
        duals = {} if solved is None else {"lam_x0": solved.lam_x, "lam_g0": solved.lam_g}
        penalised = way == "penalise" or self.feasibility_only
        found = self._solve(w, p, branch, deadline, penalised=penalised, duals=duals)
        at_end = None if found.solved is None else replace(found.solved, way=way)
        return replace(found, w=join_splits(self.mpcc, found.w), solved=at_end)

    @cached_property
    def program(self) -> BranchProgram:
        """The NLP of all branches."""
        return BranchProgram(self._blocks)

    @cached_property
    def interior(self) -> InteriorPoint:
        """The method that solves on a branch."""
        return InteriorPoint(self.program.nlp, {**SETTINGS, **FAST, **self._options})

    @cached_property
    def ipopt(self) -> Ipopt:
        """What solves where that fails."""
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
        """Solve from w; `penalised` adds the penalty to the objective. With `duals`, or {}, there is one attempt."""
        m = self.mpcc
        lbx, ubx, lbg, ubg = self.program.bounds(p, branch)
        parameters = np.append(p, float(penalised))
        x = np.clip(w / m.w_scale, lbx, ubx)
        bounds = {"lbx": lbx, "ubx": ubx, "lbg": lbg, "ubg": ubg}
        result = self.interior.solve(x, parameters, **bounds, **(duals or {}), deadline=deadline)
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
        """Equations that follow from the others at x, where there are more than variables: IPOPT refuses these."""
        equations = np.flatnonzero(equal)
        if not free.sum() < equations.size <= LOOKED_AT:
            return equations[:0]
        jacobian = self.program.nlp.jacobian_function(x, p)[1].sparse().tocsr()
        matrix = jacobian[equations][:, np.flatnonzero(free)].toarray()
        return equations[dependent(matrix)] if np.isfinite(matrix).all() else equations[:0]

    def _multipliers(self, result: NLPResult, branch: Branch) -> Multipliers:
        """Multipliers of the MPCC: those of a fixed variable belong to the first row that is zero with it alone."""
        m, blocks = self.mpcc, self._blocks
        lam_w = result.lam_x[: m.w0.size] / m.w_scale
        lam = np.split(result.lam_g, np.cumsum([m.lbg.size, blocks.rows_G.size, blocks.rows_H.size]))
        nu_G, nu_H = np.zeros(m.G.numel()), np.zeros(m.H.numel())
        nu_G[blocks.rows_G], nu_H[blocks.rows_H] = -lam[1], -lam[2]
        for nu, zero, floor in ((nu_G, branch.G, blocks.floor_G), (nu_H, branch.H, blocks.floor_H)):
            own = np.flatnonzero(zero & (floor.single >= 0) & (nu == 0.0))
            variable, first = np.unique(floor.single[own], return_index=True)
            nu[own[first]] = -lam_w[variable] / floor.coefficient[own[first]]
            lam_w[variable] = 0.0
        return Multipliers(w=lam_w, g=lam[0] / m.g_scale, G=nu_G, H=nu_H, r=lam[3])
