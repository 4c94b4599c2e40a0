"""Relaxation homotopy: a sequence of relaxed NLPs with sigma -> 0, then the active-set finish.

Every complementarity is relaxed by phi(a, b, sigma) <= 0 (Scholtes 2001 and others, see `relaxations`), and the NLP is
solved for sigma_0, kappa sigma_0, kappa^2 sigma_0, ... , each from the last solution. As soon as the complementarity
residual is below `finish_threshold`, the active-set finish (`branch`) is tried once per sigma; if it holds, the
homotopy ends with exact complementarity.

- The status of an NLP never decides on success: the residuals of the unrelaxed problem do.
- The first NLP decides which local optimum is found; a small sigma_0 keeps the iterate near its start.
- After a failed NLP the homotopy goes on from its end with a smaller sigma, or (option `rises`) with a larger one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from nosnoc_py.attempts.work import exhausted
from nosnoc_py.errors import unknown_name
from nosnoc_py.mpcc.branch import Finish
from nosnoc_py.mpcc.interior import OPTIONS
from nosnoc_py.mpcc.ipopt import NLPResult, NLPSolver, warm_start
from nosnoc_py.mpcc.plugin import is_plugin
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.relaxations import RELAXATIONS, check_steering
from nosnoc_py.mpcc.strategy import (
    NLP_SOLVERS,
    Solvers,
    SolverState,
    Strategy,
    certificate_of,
    measure,
    nlp_multipliers,
    runs_away,
)
from nosnoc_py.status import Stationarity, Status

# A point at which IPOPT did not converge is accepted if its certificate shows no slope above this fraction of the
# objective.
RESCUE = 1e-5
# First relaxation parameter, relative to sigma_0, if the start is an iterate of the same program.
WARM_SIGMA = 1e-4
# IPOPT's errors are relative to the multipliers: above this size they may hide a slope of the objective.
HUGE_MULTIPLIER = 1e6
# A point with such multipliers is refused if the objective falls along its own branch by more than this, relatively.
STEEP = 1e-3
CUSP = "Unbounded_Multipliers"  # solver status in the log, beside those of IPOPT
# Infeasibility of a relaxed problem up to which a finish is tried.
NEARLY_FEASIBLE = 1e-3
# A homotopy stalls if a residual changes by less than the fraction STALL over STALL_STEPS steps.
STALL = 1e-2
STALL_STEPS = 3


@dataclass(frozen=True, eq=False, kw_only=True)
class HomotopyState(SolverState):
    """State of the homotopy.

    Attributes
    ----------
    sigma : float
        Relaxation parameter of the next NLP.
    converged : bool
        The last NLP converged.
    finished : bool
        The active-set finish has succeeded.
    finish_due : tuple of str
        Ways of the finish to try before the next relaxation, see `branch.Finish.ways`.
    good : (ndarray, float), optional
        Iterate and sigma of the last NLP that converged.
    rises : int
        Number of times sigma has been increased.
    dual : NLPResult, optional
        Last result, whose multipliers start the next NLP.
    before : HomotopyState, optional
        State before a finish in several steps, to return to if it fails.
    """

    sigma: float
    converged: bool = False
    finished: bool = False
    finish_due: tuple[str, ...] = ()
    good: tuple[np.ndarray, float] | None = None
    rises: int = 0
    dual: NLPResult | None = None
    before: HomotopyState | None = None

    def __repr__(self) -> str:
        return f"{super().__repr__()}, sigma {self.sigma:.1e}"


class Homotopy(Strategy):
    """Relaxation homotopy with IPOPT (Waechter & Biegler 2006) and an active-set finish.

    Parameters
    ----------
    relaxation : str
        Relaxation: "scholtes", "scholtes_equality", "fischer_burmeister", "chen_chen_kanzow", "kanzow_schwartz",
        "steffensen_ulbrich", "lin_fukushima". Equalities suit simulations with isolated impacts, cross complementarity
        "fe_fe" and impulse form "sum"; inequalities suit everything. Measured on a bouncing ball with `finish="none"`:
        the Scholtes equality fails with the impulse form "product" and on most inelastic landings.
    steering : {"direct", "l_inf", "l1"}
        Relax by sigma itself, or by elastic slacks (one for all products, or one for each) with penalty 1/sigma.
        Elastic steering often needs fewer iterations, but may stall at a local minimum of the penalised problem;
        without the finish "l1" misses many inelastic landings (a ball that stays in contact).
    sigma_0, kappa, sigma_min : float
        Relaxation parameters sigma_0 kappa^i down to sigma_min.
    complementarity_tolerance, infeasibility_tolerance : float
        Tolerances on the residuals of the unrelaxed problem; success is decided on them.
    step_tolerances : bool
        Solve every NLP only to the tolerance 0.1 sigma (between 1e-9 and 1e-3), starting from the multipliers of the
        last one.
    rises : int
        Number of times sigma may be increased after an NLP that failed and is not even nearly feasible: to the
        geometric mean with the last sigma that succeeded, starting from its iterate.
    repeats : int
        Number of times the first NLP is continued from its end if it failed and is not even nearly feasible.
    finish : {"active_set", "none"}
        Active-set finish, see `nosnoc_py.mpcc.branch`.
    finish_threshold : float
        The finish is tried once per sigma as soon as the complementarity residual is below this.
    finish_loss : float
        A finish that increases the objective by more than this fraction is refused while smaller sigmas are left.
    max_iterations : int
        Maximum number of iterations per NLP.
    time_limit : float, optional
        Limit for the whole homotopy [s].
    nlp_solver : str
        Solver of the relaxed NLPs: "ipopt"; "interior_point", the method of this library, whose iterations take a third
        to a half of the time, but of which more are needed; or the name of any plugin that CasADi's installation loads,
        such as "fatrop" or "sqpmethod". The active-set finish is by IPOPT.
    ipopt : dict
        Further options of IPOPT by their own names, or those of the plugin; "interior_point" has only a few
        (`nosnoc_py.mpcc.interior`).

    Raises
    ------
    OptionError
        For an unknown relaxation, a relaxation without an elastic form with elastic steering, sigma_min > sigma_0, or
        options that the NLP solver does not have.

    Examples
    --------
    Relaxation and finish on the smallest MPCC; the log has a line for every NLP:

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> w = ca.SX.sym("w", 2)
    >>> mpcc = ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=(w[0] - 2) ** 2 + (w[1] - 1) ** 2, w0=1.0)
    >>> result = ns.solve_mpcc(mpcc, ns.Homotopy(kappa=0.01))
    >>> result.complementarity, [record.label for record in result.log][-1]
    (0.0, 'finish')
    """

    relaxation: str = "scholtes"
    steering: Literal["direct", "l_inf", "l1"] = "direct"
    sigma_0: float = Field(default=1.0, gt=0)
    kappa: float = Field(default=0.1, gt=0, lt=1)
    sigma_min: float = Field(default=1e-9, gt=0)
    step_tolerances: bool = False
    rises: int = Field(default=0, ge=0)
    repeats: int = Field(default=0, ge=0)
    finish: Literal["active_set", "none"] = "active_set"
    finish_threshold: float = Field(default=1e-4, gt=0)
    finish_loss: float = Field(default=0.05, gt=0)
    max_iterations: int = Field(default=500, ge=1)
    nlp_solver: str = "ipopt"
    ipopt: dict[str, str | int | float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ordered(self) -> Homotopy:
        if self.sigma_min > self.sigma_0:
            raise ValueError(
                f"expected sigma_min <= sigma_0, given sigma_min {self.sigma_min:g} and sigma_0 {self.sigma_0:g}"
            )
        if self.relaxation not in RELAXATIONS:
            raise ValueError(unknown_name(self.relaxation, RELAXATIONS, "relaxation"))
        check_steering(self.relaxation, self.steering)
        if self.nlp_solver not in NLP_SOLVERS and not is_plugin(self.nlp_solver):
            known = ", ".join(map(repr, NLP_SOLVERS))
            raise ValueError(
                f"nlp_solver: expected {known} or a plugin of CasADi that is installed (casadi.has_nlpsol), given "
                f"{self.nlp_solver!r}"
            )
        if self.nlp_solver == "interior_point" and (unknown := sorted(set(self.ipopt) - set(OPTIONS))):
            raise ValueError(f"ipopt: nlp_solver='interior_point' has no {unknown[0]!r}, only {', '.join(OPTIONS)}")
        return self

    def begin(self, fields: Mapping[str, Any], sigma: float | None) -> HomotopyState:
        """Return the state before the first NLP."""
        state = HomotopyState(**fields, sigma=self.sigma_0 if sigma is None else sigma)
        self._solver(state)  # raises at once for options that IPOPT does not know
        return state

    def advance(self, state: HomotopyState, deadline: float) -> HomotopyState:
        """Solve one NLP: the next relaxation, or the active-set finish if it is due."""
        return self._finish(state, deadline) if state.finish_due else self._relax(state, deadline)

    def terminate(self, state: HomotopyState) -> Status | None:
        """Return None while the homotopy goes on, else its final status."""
        if state.status is not None or state.finished:
            return state.status or Status.SOLVED
        if not state.records or state.finish_due:
            return None
        if self._accepted(state):
            return Status.SOLVED
        if state.sigma >= self.sigma_min * (1 - 1e-9) and not self._stalled(state):
            return None
        return self._verdict(state)

    def warm(self, mpcc: MPCC) -> tuple[Homotopy, float]:
        """Return this homotopy with a small first sigma, which keeps it near its start, and without repetitions."""
        return self.replace(repeats=0), max(WARM_SIGMA * self.sigma_0, self.sigma_min)

    def finisher(self, solvers: Solvers) -> Finish:
        """Return the active-set finish with the options of this homotopy."""
        return solvers.finish(self.ipopt if self.nlp_solver in NLP_SOLVERS else {})

    def _accepted(self, state: HomotopyState) -> bool:
        # Without an objective a feasible point is a solution, whether or not the NLP converged.
        final = state.converged or self.finisher(state.solvers).feasibility_only
        return final and self.residuals_small(state)

    def _loses(self, before: HomotopyState, after: HomotopyState) -> bool:
        """Return True if the finish increased the objective so much that its branch was probably wrong.

        A smaller sigma may show a better branch.
        """
        cost, limit = after.values.objective - before.values.objective, max(1.0, abs(before.values.objective))
        return cost > self.finish_loss * limit and before.sigma >= self.sigma_min * (1 - 1e-9)

    def _stalled(self, state: HomotopyState) -> bool:
        """Return True if smaller sigmas will not help.

        This is the case at a point that stays infeasible, and at elastic slacks in a local minimum of their penalty.
        """
        if self.finish == "none":
            return False  # a homotopy without finish uses all its sigmas: a repetition may still succeed
        relaxed = [record for record in state.records if record.label == "homotopy"]
        infeasible = [record.infeasibility for record in relaxed[-STALL_STEPS:]]
        if len(infeasible) == STALL_STEPS and min(infeasible) > NEARLY_FEASIBLE and _alike(infeasible):
            return True
        # Without an objective nothing competes with the slacks: two equal values are enough.
        steps = STALL_STEPS - self.finisher(state.solvers).feasibility_only
        slacks = [record.complementarity for record in relaxed[-steps:]]
        left = self.steering != "direct" and len(slacks) == steps and min(slacks) > self.complementarity_tolerance
        return left and _alike(slacks)

    def _verdict(self, state: HomotopyState) -> Status:
        last = [record.solver_status for record in state.records if record.label == "homotopy"][-1]
        if last == "User_Requested_Stop":
            return Status.WORK_LIMIT if exhausted() else Status.TIME_LIMIT
        finite = np.isfinite(state.values.g).all() and np.isfinite(state.values.objective)
        if not finite or last == "Invalid_Number_Detected":
            return Status.NUMERICAL_ERROR
        if runs_away(state) and np.isfinite(state.values.objective):
            return Status.UNBOUNDED
        if state.infeasibility > self.infeasibility_tolerance:
            return Status.ITERATION_LIMIT if last == "Maximum_Iterations_Exceeded" else Status.LOCALLY_INFEASIBLE
        if self.residuals_small(state):
            return Status.NOT_AN_OPTIMUM if last == CUSP else Status.ITERATION_LIMIT
        return Status.LOCALLY_INFEASIBLE if last == "Infeasible_Problem_Detected" else Status.NOT_COMPLEMENTARY

    def _relax(self, state: HomotopyState, deadline: float) -> HomotopyState:
        solvers, sigma = state.solvers, state.sigma
        solver = self._solver(state)
        scale = solvers.mpcc.w_scale
        slacks = solver.nlp.x.numel() - scale.size  # elastic slacks follow the scaled variables
        dual = state.dual if self.step_tolerances else None
        x = np.concatenate([state.w / scale, np.full(slacks, sigma) if dual is None else dual.x[scale.size :]])
        multipliers = {} if dual is None else dual.duals
        result = solver.solve(x, np.concatenate([state.p, [1.0, sigma]]), **multipliers, deadline=deadline)
        w = result.x[: scale.size] * scale
        # No NLP returns from an iterate of 1e20; from its start, a smaller sigma may prevent the divergence.
        w = w if np.isfinite(w).all() and result.solver_status != "Diverging_Iterates" else state.w
        new = replace(
            state,
            w=w,
            sigma=sigma * self.kappa,  # of the next NLP; `_after` may replace it
            certificate=None,  # it belongs to the last point
            converged=result.converged,
            multipliers=nlp_multipliers(solvers.mpcc, result),
            dual=result if np.isfinite(result.lam_g).all() else None,
            status=Status.INTERRUPTED if result.interrupted else None,
            **measure(solvers.evaluator, w, state.p),
        )
        cusp = self._at_cusp(new, result)
        new = replace(new, converged=new.converged and not cusp)
        log: dict[str, Any] = {"iterations": result.iterations, "seconds": result.wall_seconds}
        log["word"] = CUSP if cusp else result.solver_status
        new = self._after(new.with_record("homotopy", sigma, **log), sigma)
        # A finish from a point that is not nearly feasible and complementary would guess a wrong branch.
        close = new.complementarity <= self.finish_threshold and new.infeasibility <= NEARLY_FEASIBLE
        ways = self.finisher(solvers).ways(new.complementarity) if close and self.finish == "active_set" else ()
        return replace(new, finish_due=ways)

    def _at_cusp(self, state: HomotopyState, result: NLPResult) -> bool:
        """Return True if IPOPT converged in a cusp of the relaxed set, where unbounded multipliers prove nothing.

        An example is (0, sigma) with `steffensen_ulbrich`: value and slope of phi vanish there, so that IPOPT converges
        for any objective.
        """
        if not result.converged or not self.residuals_small(state) or self.finisher(state.solvers).feasibility_only:
            return False
        # The certificate costs an LP: it is computed only if multipliers are suspicious.
        if np.abs(result.lam_g).max(initial=0.0) < HUGE_MULTIPLIER:
            return False
        certificate = certificate_of(state)
        steep = certificate.lpec_value < -STEEP * max(1.0, abs(state.values.objective))
        return certificate.b_stationary is False and certificate.stationarity is Stationarity.UNKNOWN and bool(steep)

    def _solver(self, state: HomotopyState) -> NLPSolver:
        """Return the solver of the next NLP."""
        return state.solvers.relaxed(self.relaxation, self.steering, self._settings(state), self.nlp_solver, self.ipopt)

    def _settings(self, state: HomotopyState) -> dict[str, Any]:
        """Return the options of IPOPT for the next NLP."""
        settings: dict[str, Any] = {"max_iter": self.max_iterations}
        if self.step_tolerances:
            tolerance = float(np.clip(0.1 * state.sigma, 1e-9, 1e-3))
            settings |= dict.fromkeys(("tol", "compl_inf_tol", "constr_viol_tol"), tolerance)
            # The absolute dual tolerance would otherwise ask for the last digits that the step tolerance saves.
            settings |= {"dual_inf_tol": 1.0, "mu_target": 0.0}
            if state.dual is not None:
                settings |= warm_start(state.sigma, min(1e-2, 0.1 * state.sigma))
        return settings | self.ipopt

    def _after(self, state: HomotopyState, sigma: float) -> HomotopyState:
        """Remember a converged NLP; after a failed and infeasible one keep or increase sigma, as the options allow."""
        if state.converged:
            return replace(state, good=(state.w, sigma))
        if state.infeasibility <= NEARLY_FEASIBLE or state.status is not None:
            return state
        if state.good is None:
            again = len(state.records) <= self.repeats  # no good NLP so far: these are all attempts at the first one
            return replace(state, sigma=sigma if again else state.sigma, dual=None)
        if state.rises >= self.rises:
            return state
        w, last = state.good
        measured = measure(state.solvers.evaluator, w, state.p)
        return replace(state, w=w, sigma=float(np.sqrt(sigma * last)), dual=None, rises=state.rises + 1, **measured)

    def _finish(self, state: HomotopyState, deadline: float) -> HomotopyState:
        """Try the finish once; if it fails the iterate is unchanged."""
        started = time.monotonic()
        finish = self.finisher(state.solvers)
        way, *further = state.finish_due or finish.ways(state.complementarity)
        outcome = finish(state.w, state.p, deadline, way)
        done = replace(state.moved_to(outcome), converged=outcome.converged, finish_due=())
        log: dict[str, Any] = {"iterations": outcome.iterations, "word": outcome.solver_status}
        records = done.with_record("finish", seconds=time.monotonic() - started, **log).records
        if outcome.interrupted:
            return replace(state, status=Status.INTERRUPTED, records=records)
        if outcome.multipliers is not None and not outcome.converged and self.residuals_small(done):
            # Unbounded multipliers keep IPOPT from converging where the linear program of the certificate finds bounded
            # ones.
            certificate = certificate_of(done)
            slope = RESCUE * max(1.0, abs(done.values.objective))
            proved = bool(certificate.b_stationary) and certificate.lpec_value >= -slope
            done = replace(done, converged=proved, certificate=certificate)
        accepted = self._accepted(done) and not self._loses(state, done)
        if way == "penalise" and "polish" in further and self.residuals_small(done):
            return replace(done, finish_due=("polish",), before=state, records=records)
        # If only the removal of the penalty ("polish") fails, the penalised solution before it is the result.
        final = done if accepted else state if way == "polish" and self._accepted(state) else None
        if final is not None:
            return replace(final, finished=True, status=Status.SOLVED, before=None, records=records)
        back = state if state.before is None else state.before
        return replace(back, finish_due=tuple(further), records=records)


def _alike(values: list[float]) -> bool:
    return max(values) - min(values) < STALL * max(values)
