"""The active-set finish: guess which side of every group is zero, solve the smooth problem, re-check.

What the homotopy knows to 1e-6 the finish knows to machine precision, and phantom impulses of size sqrt(sigma)
disappear. Nothing is believed: the caller checks the residuals of the unrelaxed problem afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.ipopt import Ipopt, NLPResult
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.relaxation import branch_nlp
from nosnoc_py.mpcc.residuals import Evaluator, Values


@dataclass(frozen=True, eq=False)
class ActiveSet:
    """Which nonnegative quantities are zero, and which switched equations hold."""

    G: np.ndarray
    H: np.ndarray
    r: np.ndarray


def guess_active_set(mpcc: MPCC, at: Values) -> ActiveSet:
    """In every group the side whose largest member is smaller in size is taken to be zero."""
    zero_G, zero_H = np.zeros(at.G.size, bool), np.zeros(at.H.size, bool)
    for group in mpcc.groups:
        if group.split:
            zero_H[group.right] = True  # the left part alone, with either sign, stands for the difference
        elif np.abs(at.G[group.left]).max() < np.abs(at.H[group.right]).max():
            zero_G[group.left] = True
        else:
            zero_H[group.right] = True
    # The indicators are sums and products: evaluated on zeros and ones they say exactly where nothing switches.
    eta = np.asarray(mpcc.indicator(1.0 - zero_G, 1.0 - zero_H)).reshape(-1)
    return ActiveSet(zero_G, zero_H, eta > 0)


def join_splits(mpcc: MPCC, w: np.ndarray) -> np.ndarray:
    """Subtract from both parts of every split quantity the smaller one: the difference stays, both get nonnegative."""
    w = w.copy()
    for group in mpcc.groups:
        if group.split:
            plus, minus = mpcc.G_variable[group.left], mpcc.H_variable[group.right]
            smaller = np.minimum(w[plus], w[minus])
            w[plus] -= smaller
            w[minus] -= smaller
    return w


class NewtonFinish:
    """Newton's method on the equations of an active set, for problems without an objective (simulation steps).

    Least-squares steps: redundant equations (a gap that is zero at both ends and at the stages) and multipliers that
    are not unique do no harm.
    """

    def __init__(self, mpcc: MPCC) -> None:
        self.mpcc = mpcc
        rows = ca.vertcat(mpcc.g, mpcc.G, mpcc.H, mpcc.r)
        self._function = ca.Function("rows", [mpcc.w, mpcc.p], [rows, ca.jacobian(rows, mpcc.w)])
        self._equations = mpcc.lbg == mpcc.ubg

    def solve(self, w: np.ndarray, p: np.ndarray, active: ActiveSet, iterations: int = 15) -> np.ndarray:
        """Return the last Newton iterate from w."""
        chosen = np.concatenate([self._equations, active.G, active.H, active.r])
        target = np.concatenate(
            [np.where(self._equations, self.mpcc.lbg, 0.0), np.zeros(chosen.size - self.mpcc.lbg.size)]
        )
        free = self.mpcc.lbw < self.mpcc.ubw
        w = np.where(free, w, self.mpcc.lbw)
        for _ in range(iterations):
            values, jacobian = self._function(w, p)
            residual = (np.asarray(values).reshape(-1) - target)[chosen]
            matrix = np.asarray(jacobian.full())[np.ix_(chosen, free)] * self.mpcc.w_scale[free]
            if not np.isfinite(matrix).all() or not np.isfinite(residual).all():
                break
            step = np.linalg.lstsq(matrix, -residual, rcond=1e-11)[0] * self.mpcc.w_scale[free]
            w = w.copy()
            w[free] += step
            if np.abs(step).max(initial=0.0) <= 1e-15 * max(1.0, np.abs(w).max()):
                break
        return w


class BranchFinish:
    """One NLP without complementarities, for problems with an objective."""

    def __init__(self, mpcc: MPCC, options: Mapping[str, Any]) -> None:
        self.mpcc = mpcc
        settings = {
            "tol": 1e-10,
            "dual_inf_tol": 1e-6,
            "compl_inf_tol": 1e-10,
            "constr_viol_tol": 1e-10,
            "mu_target": 0.0,
            "acceptable_tol": 1e-10,
            "mu_strategy": "monotone",
            "mu_init": 1e-4,
            "bound_push": 1e-6,
            "bound_frac": 1e-6,
            "max_iter": 200,
            **options,
        }
        self._ipopt = Ipopt(branch_nlp(mpcc), settings)

    def solve(self, w: np.ndarray, p: np.ndarray, active: ActiveSet, deadline: float) -> NLPResult:
        """Solve from w; the result's x is in scaled variables."""
        m, nlp = self.mpcc, self._ipopt.nlp
        lbx, ubx = nlp.lbx.copy(), nlp.ubx.copy()
        lbg, ubg = nlp.lbg.copy(), nlp.ubg.copy()
        for group in m.groups:
            if group.split:
                lbx[m.G_variable[group.left]] = -np.inf
        start = m.lbg.size
        for zero, plain in ((active.G, m.G_variable), (active.H, m.H_variable)):
            fixed = plain[zero & (plain >= 0)]
            lbx[fixed] = ubx[fixed] = np.maximum(lbx[fixed], 0.0)  # a bound above zero stays; the residuals tell
            rows = start + np.flatnonzero(zero)
            ubg[rows] = 0.0
            # Fixed variables leave nothing to their row.
            loose = start + np.flatnonzero(plain >= 0)
            lbg[loose], ubg[loose] = -np.inf, np.inf
            start += zero.size
        held = start + np.flatnonzero(active.r)
        lbg[held], ubg[held] = 0.0, 0.0
        p = np.append(p, 0.0 if active.r.any() else 1.0)
        return self._ipopt.solve(w / m.w_scale, p, lbx=lbx, ubx=ubx, lbg=lbg, ubg=ubg, deadline=deadline)


class Finish:
    """The finish that fits a program: Newton without an objective, an NLP with one. Built on first use."""

    def __init__(self, mpcc: MPCC, evaluator: Evaluator, options: Mapping[str, Any]) -> None:
        self.mpcc, self._evaluator, self._options = mpcc, evaluator, options
        self.feasibility_only = mpcc.objective.is_constant()
        self._solver: NewtonFinish | BranchFinish | None = None

    @property
    def ways(self) -> tuple[str, ...]:
        """What may be tried: hold the switched equations, or, where they are not imposed anyway, leave the penalty."""
        free = not (self.feasibility_only or self.mpcc.enforce_switched or self.mpcc.penalty.is_constant())
        return ("hold", "penalise") if free else ("hold",)

    def __call__(
        self, w: np.ndarray, p: np.ndarray, deadline: float, way: str = "hold"
    ) -> tuple[np.ndarray, int, str, NLPResult | None]:
        """Return (w, iterations, solver status, NLP result if there was an NLP)."""
        active = guess_active_set(self.mpcc, self._evaluator(w, p))
        if way == "penalise":
            active = replace(active, r=np.zeros_like(active.r))
        if self._solver is None:
            build = NewtonFinish(self.mpcc) if self.feasibility_only else BranchFinish(self.mpcc, self._options)
            self._solver = build
        if isinstance(self._solver, NewtonFinish):
            return join_splits(self.mpcc, self._solver.solve(w, p, active)), 0, "newton", None
        result = self._solver.solve(w, p, active, deadline)
        return join_splits(self.mpcc, result.x * self.mpcc.w_scale), result.iterations, result.solver_status, result
