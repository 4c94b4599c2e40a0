"""The homotopy: a sequence of relaxed NLPs with sigma -> 0, then the active-set finish."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from nosnoc_py.errors import unknown_name
from nosnoc_py.mpcc.branch import Finish
from nosnoc_py.mpcc.interior import OPTIONS
from nosnoc_py.mpcc.ipopt import NLPResult, NLPSolver, warm_start
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.relaxations import RELAXATIONS, check_steering
from nosnoc_py.mpcc.strategy import Solvers, SolverState, Strategy, certificate_of, measure, nlp_multipliers, runs_away
from nosnoc_py.status import Stationarity, Status

# A point that IPOPT has left without converging is taken when its certificate has no slope above this, relatively.
RESCUE = 1e-5
# First relaxation parameter, relative to sigma_0, from an iterate of the same program.
WARM_SIGMA = 1e-4
# Multipliers above this may hide a slope that no tolerance of IPOPT sees: its errors are relative to them.
HUGE_MULTIPLIER = 1e6
# A point with such multipliers is refused when the objective falls faster than this along its own branch, relatively.
STEEP = 1e-3
CUSP = "Unbounded_Multipliers"  # beside IPOPT's words, in the log
# A finish is worth a try where the relaxed problem is this feasible.
NEARLY_FEASIBLE = 1e-3
# A homotopy stalls when a residual changes by less than this fraction over several steps.
STALL = 1e-2
STALL_STEPS = 3


@dataclass(frozen=True, eq=False, kw_only=True)
class HomotopyState(SolverState):
    """Where the homotopy stands.

    Attributes
    ----------
    sigma : float
        Relaxation parameter of the next NLP.
    converged : bool
        The last NLP converged (or only feasibility was asked).
    finished : bool
        The active-set finish has succeeded.
    finish_due : tuple of str
        Ways of the finish to try before the next relaxation.
    good : (ndarray, float), optional
        Iterate and sigma of the last NLP that converged.
    rises : int
        How often sigma has risen.
    dual : NLPResult, optional
        The last result, whose multipliers start the next NLP.
    before : HomotopyState, optional
        Where a finish in several steps began, to go back to.
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
    """Relaxation homotopy with IPOPT and an active-set finish.

    Parameters
    ----------
    relaxation : str
        A member of the family: "scholtes", "scholtes_equality", "fischer_burmeister", "chen_chen_kanzow",
        "kanzow_schwartz", "steffensen_ulbrich", "lin_fukushima". Equalities suit simulation with isolated impacts and
        cross complementarity "fe_fe" and impulse form "sum"; inequalities everything. Measured on a bouncing ball with
        `finish="none"`: the Scholtes equality fails with the impulse form "product" and on most inelastic landings.
    steering : {"direct", "l_inf", "l1"}
        Relax by sigma itself, or by elastic slacks (one for all products, one for each) with penalty 1/sigma. Elastic
        steering often needs fewer iterations, but may stall where the penalised problem has a local minimum; without
        the finish "l1" misses many inelastic landings (a ball that stays in contact).
    sigma_0, kappa, sigma_min : float
        Relaxation parameters sigma_0 kappa^i down to sigma_min.
    complementarity_tolerance, infeasibility_tolerance : float
        Success is declared on these residuals of the unrelaxed problem.
    step_tolerances : bool
        Solve every NLP only as exactly as its sigma asks for (tolerance 0.1 sigma between 1e-9 and 1e-3), with the
        multipliers of the last one as a start.
    rises : int
        How often sigma may rise again after an NLP that failed and is not even nearly feasible: to the geometric mean
        with the last sigma that went well, and from its iterate.
    repeats : int
        How often the first NLP is solved again from where it ended, when it failed and is not even nearly feasible.
    finish : {"active_set", "none"}
    finish_threshold : float
        Try the finish once per sigma as soon as the complementarity residual is below this.
    finish_loss : float
        A finish that raises the objective by more than this fraction is refused while a smaller sigma is left.
    max_iterations : int
        Of IPOPT, per NLP.
    time_limit : float, optional
        Seconds for the whole homotopy.
    nlp_solver : {"ipopt", "interior_point"}
        What solves the relaxed NLPs: IPOPT, or this library's interior-point method, whose iterations take a third to a
        half of the time, and of which more are needed.
    ipopt : dict
        Further options of IPOPT by their own names, of which "interior_point" has few (`nosnoc_py.mpcc.interior`).
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
    nlp_solver: Literal["ipopt", "interior_point"] = "ipopt"
    ipopt: dict[str, str | int | float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ordered(self) -> Homotopy:
        if self.sigma_min > self.sigma_0:
            raise ValueError(f"sigma_min {self.sigma_min:g} is above sigma_0 {self.sigma_0:g}")
        if self.relaxation not in RELAXATIONS:
            raise ValueError(unknown_name(self.relaxation, RELAXATIONS, "relaxation"))
        check_steering(self.relaxation, self.steering)
        if self.nlp_solver == "interior_point" and (unknown := sorted(set(self.ipopt) - set(OPTIONS))):
            raise ValueError(f"ipopt: nlp_solver='interior_point' has no {unknown[0]!r}, only {', '.join(OPTIONS)}")
        return self

    def begin(self, fields: Mapping[str, Any], sigma: float | None) -> HomotopyState:
        """The state before the first NLP."""
        state = HomotopyState(**fields, sigma=self.sigma_0 if sigma is None else sigma)
        self._solver(state)  # options that do not fit are an error at once
        return state

    def advance(self, state: HomotopyState, deadline: float) -> HomotopyState:
        """Solve one NLP: the next relaxation, or the active-set finish when it is due."""
        return self._finish(state, deadline) if state.finish_due else self._relax(state, deadline)

    def terminate(self, state: HomotopyState) -> Status | None:
        """None while there is something left to do, else why it ends."""
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
        """This homotopy from a small sigma, which does not forget where it starts; it is not repeated if it fails."""
        return self.replace(repeats=0), max(WARM_SIGMA * self.sigma_0, self.sigma_min)

    def finish_only(self, solvers: Solvers, w: np.ndarray, p: np.ndarray) -> HomotopyState:
        """Try the active-set finish on the branch that w shows; `finished` on the result says whether it held.

        The result's w is the finish's last iterate in any case.
        """
        state = self.init(solvers.mpcc, w, p, solvers=solvers, clip=False)
        return self._finish(state, np.inf, keep=True)

    def finisher(self, solvers: Solvers) -> Finish:
        """The finish with this homotopy's options."""
        return solvers.finish(self.ipopt)

    def _accepted(self, state: HomotopyState) -> bool:
        settled = state.converged or self.finisher(state.solvers).feasibility_only
        return settled and self.residuals_small(state)

    def _loses(self, before: HomotopyState, after: HomotopyState) -> bool:
        """A finish that costs much of the objective guessed a wrong branch; a smaller sigma may show a better."""
        cost, limit = after.values.objective - before.values.objective, max(1.0, abs(before.values.objective))
        return cost > self.finish_loss * limit and before.sigma >= self.sigma_min * (1 - 1e-9)

    def _stalled(self, state: HomotopyState) -> bool:
        """What no smaller sigma mends: elastic slacks at a minimum of their penalty, a point that stays infeasible."""
        if self.finish == "none":
            return False  # a raw homotopy goes all the way: without an objective a repetition may well find more
        relaxed = [record for record in state.records if record.label == "homotopy"]
        infeasible = [record.infeasibility for record in relaxed[-STALL_STEPS:]]
        if len(infeasible) == STALL_STEPS and min(infeasible) > NEARLY_FEASIBLE and _alike(infeasible):
            return True
        # Without an objective nothing competes with the slacks, and one repetition tells.
        steps = STALL_STEPS - self.finisher(state.solvers).feasibility_only
        slacks = [record.complementarity for record in relaxed[-steps:]]
        left = self.steering != "direct" and len(slacks) == steps and min(slacks) > self.complementarity_tolerance
        return left and _alike(slacks)

    def _verdict(self, state: HomotopyState) -> Status:
        last = [record.solver_status for record in state.records if record.label == "homotopy"][-1]
        if last == "User_Requested_Stop":
            return Status.TIME_LIMIT
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
        slacks = solver.nlp.x.numel() - scale.size
        dual = state.dual if self.step_tolerances else None
        x = np.concatenate([state.w / scale, np.full(slacks, sigma) if dual is None else dual.x[scale.size :]])
        multipliers = {} if dual is None else dual.duals
        result = solver.solve(x, np.concatenate([state.p, [1.0, sigma]]), **multipliers, deadline=deadline)
        w = result.x[: scale.size] * scale
        # From an iterate of 1e20 no NLP comes back; from where it began a smaller sigma may hold it.
        w = w if np.isfinite(w).all() and result.solver_status != "Diverging_Iterates" else state.w
        new = replace(
            state,
            w=w,
            sigma=sigma * self.kappa,
            certificate=None,  # the last one is of another point
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
        new = self._after(new.logged("homotopy", sigma, **log), sigma)
        close = new.complementarity <= self.finish_threshold and new.infeasibility <= NEARLY_FEASIBLE
        ways = self.finisher(solvers).ways(new.complementarity) if close and self.finish == "active_set" else ()
        return replace(new, finish_due=ways)

    def _at_cusp(self, state: HomotopyState, result: NLPResult) -> bool:
        """IPOPT converged in a cusp of the relaxed set, where multipliers grow without limit and prove nothing.

        E.g. at (0, sigma) with `steffensen_ulbrich`, whatever the objective: its slope there vanishes with its value.
        """
        if not result.converged or not self.residuals_small(state) or self.finisher(state.solvers).feasibility_only:
            return False
        if np.abs(result.lam_g).max(initial=0.0) < HUGE_MULTIPLIER:
            return False
        found = certificate_of(state)
        steep = found.lpec_value < -STEEP * max(1.0, abs(state.values.objective))
        return found.b_stationary is False and found.stationarity is Stationarity.UNKNOWN and bool(steep)

    def _solver(self, state: HomotopyState) -> NLPSolver:
        """What solves the next NLP."""
        return state.solvers.relaxed(self.relaxation, self.steering, self._settings(state), self.nlp_solver)

    def _settings(self, state: HomotopyState) -> dict[str, Any]:
        """Options of IPOPT for the next NLP."""
        settings: dict[str, Any] = {"max_iter": self.max_iterations}
        if self.step_tolerances:
            tolerance = float(np.clip(0.1 * state.sigma, 1e-9, 1e-3))
            settings |= dict.fromkeys(("tol", "compl_inf_tol", "constr_viol_tol"), tolerance)
            settings |= {"dual_inf_tol": 1.0, "mu_target": 0.0}
            if state.dual is not None:
                settings |= warm_start(state.sigma, min(1e-2, 0.1 * state.sigma))
        return settings | self.ipopt

    def _after(self, state: HomotopyState, sigma: float) -> HomotopyState:
        """Remember a good NLP; after a failed one that is not even feasible sigma stays or rises, if allowed."""
        if state.converged:
            return replace(state, good=(state.w, sigma))
        if state.infeasibility <= NEARLY_FEASIBLE or state.status is not None:
            return state
        if state.good is None:
            again = len(state.records) <= self.repeats
            return replace(state, sigma=sigma if again else state.sigma, dual=None)
        if state.rises >= self.rises:
            return state
        w, last = state.good
        measured = measure(state.solvers.evaluator, w, state.p)
        return replace(state, w=w, sigma=float(np.sqrt(sigma * last)), dual=None, rises=state.rises + 1, **measured)

    def _finish(self, state: HomotopyState, deadline: float, *, keep: bool = False) -> HomotopyState:
        """One try of the finish; when it does not hold, the iterate stays where it was unless `keep`."""
        started = time.monotonic()
        finish = self.finisher(state.solvers)
        way, *further = state.finish_due or finish.ways(state.complementarity)
        outcome = finish(state.w, state.p, deadline, way)
        done = replace(state.landed(outcome), converged=outcome.converged, finish_due=())
        log: dict[str, Any] = {"iterations": outcome.iterations, "word": outcome.solver_status}
        records = done.logged("finish", seconds=time.monotonic() - started, **log).records
        if outcome.interrupted:
            return replace(state, status=Status.INTERRUPTED, records=records)
        if not keep and outcome.multipliers is not None and not outcome.converged and self.residuals_small(done):
            # Multipliers that grow without limit keep IPOPT from converging where an LP finds bounded ones.
            certificate = certificate_of(done)
            slope = RESCUE * max(1.0, abs(done.values.objective))
            proved = bool(certificate.b_stationary) and certificate.lpec_value >= -slope
            done = replace(done, converged=proved, certificate=certificate)
        accepted = self._accepted(done) and not self._loses(state, done)
        if way == "penalise" and "polish" in further and self.residuals_small(done):
            return replace(done, finish_due=("polish",), before=state, records=records)
        kept = done if accepted else state if way == "polish" and self._accepted(state) else None
        if kept is not None:
            return replace(kept, finished=True, status=Status.SOLVED, before=None, records=records)
        back = done if keep else state if state.before is None else state.before
        return replace(back, finish_due=tuple(further), records=records)


def _alike(values: list[float]) -> bool:
    return max(values) - min(values) < STALL * max(values)
