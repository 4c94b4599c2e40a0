"""The homotopy: a sequence of relaxed NLPs with sigma -> 0, then the active-set finish; init, step, terminate.

Everything a step changes is in the new `HomotopyState` it returns; a loop written by the user does the same as `run`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from nosnoc_py.errors import TranscriptionError
from nosnoc_py.mpcc.active_set import Finish
from nosnoc_py.mpcc.ipopt import Ipopt, NLPResult, check_freedom
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.relaxation import relaxed_nlp
from nosnoc_py.mpcc.residuals import Evaluator, Values
from nosnoc_py.options import Options
from nosnoc_py.solution.records import StepRecord
from nosnoc_py.status import Status, Stop

Callback = Callable[["HomotopyState"], Any]


class Solvers:
    """The built parts of one MPCC under one set of options: shared by all states and all re-solves."""

    def __init__(self, mpcc: MPCC, options: Homotopy) -> None:
        self.mpcc = mpcc
        settings: dict[str, Any] = {"max_iter": options.max_iterations, **options.ipopt}
        self.evaluator = Evaluator(mpcc)
        nlp = relaxed_nlp(mpcc, options.relaxation, options.steering)
        check_freedom(nlp)
        self.relaxed = Ipopt(nlp, settings)
        self.finish = Finish(mpcc, self.evaluator, options.ipopt)
        self.slacks = self.relaxed.nlp.x.numel() - mpcc.w.numel()


@dataclass(frozen=True, eq=False, kw_only=True)
class HomotopyState:
    """Where the homotopy stands.

    Attributes
    ----------
    w, p : ndarray
        Iterate and parameters, in the user's units.
    sigma : float
        Relaxation parameter of the next NLP.
    records : tuple of StepRecord
    values : Values
        Functions of the MPCC at w.
    complementarity, complementarity_min, infeasibility : float
        Residuals of the unrelaxed problem.
    converged : bool
        The last NLP converged (or only feasibility was asked).
    finished : bool
        The active-set finish has succeeded.
    multipliers : ndarray, optional
        Multipliers of the rows of g (user's units), of the last NLP.
    """

    solvers: Solvers
    w: np.ndarray
    p: np.ndarray
    sigma: float
    values: Values
    complementarity: float
    complementarity_min: float
    infeasibility: float
    records: tuple[StepRecord, ...] = ()
    converged: bool = False
    finished: bool = False
    finish_due: tuple[str, ...] = ()
    multipliers: np.ndarray | None = None
    status: Status | None = None

    @property
    def step(self) -> int:
        """Number of steps taken."""
        return len(self.records)

    def __repr__(self) -> str:
        return (
            f"HomotopyState: step {self.step}, sigma {self.sigma:.1e}, objective {self.values.objective:.8g}, "
            f"complementarity {self.complementarity:.1e}, infeasibility {self.infeasibility:.1e}"
        )


class Homotopy(Options):
    """Relaxation homotopy with IPOPT and an active-set finish.

    Parameters
    ----------
    relaxation : {"scholtes", "scholtes_equality", "fischer_burmeister"}
        Equalities suit simulation with isolated impacts and cross complementarity "fe_fe" and
        impulse form "sum"; inequalities everything. Measured on a bouncing ball with `finish="none"`: the Scholtes
        equality fails with the impulse form "product" and on most inelastic landings.
    steering : {"direct", "l_inf", "l1"}
        Relax by sigma itself, or by elastic slacks (one for all products, one for each) with penalty 1/sigma. Elastic
        steering often needs fewer iterations, but may stall where the penalised problem has a local minimum; without
        the finish "l1" misses many inelastic landings (a ball that stays in contact).
    sigma_0, kappa, sigma_min : float
        Relaxation parameters sigma_0 kappa^i down to sigma_min.
    complementarity_tolerance, infeasibility_tolerance : float
        Success is declared on these residuals of the unrelaxed problem.
    finish : {"active_set", "none"}
    finish_threshold : float
        Try the finish once per sigma as soon as the complementarity residual is below this.
    finish_loss : float
        A finish that raises the objective by more than this fraction is refused while a smaller sigma is left.
    max_iterations : int
        Of IPOPT, per NLP.
    time_limit : float, optional
        Seconds for the whole homotopy.
    ipopt : dict
        Further options of IPOPT by their own names.
    """

    relaxation: Literal["scholtes", "scholtes_equality", "fischer_burmeister"] = "scholtes"
    steering: Literal["direct", "l_inf", "l1"] = "direct"
    sigma_0: float = Field(default=1.0, gt=0)
    kappa: float = Field(default=0.1, gt=0, lt=1)
    sigma_min: float = Field(default=1e-9, gt=0)
    complementarity_tolerance: float = Field(default=1e-8, gt=0)
    infeasibility_tolerance: float = Field(default=1e-8, gt=0)
    finish: Literal["active_set", "none"] = "active_set"
    finish_threshold: float = Field(default=1e-4, gt=0)
    finish_loss: float = Field(default=0.01, gt=0)
    max_iterations: int = Field(default=500, ge=1)
    time_limit: float | None = Field(default=None, gt=0)
    ipopt: dict[str, str | int | float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ordered(self) -> Homotopy:
        if self.sigma_min > self.sigma_0:
            raise ValueError(f"sigma_min {self.sigma_min:g} is above sigma_0 {self.sigma_0:g}")
        return self

    def build(self, mpcc: MPCC) -> Solvers:
        """Build functions and solvers once; pass them to `init` to re-solve with other parameters."""
        return Solvers(mpcc, self)

    def init(
        self,
        mpcc: MPCC,
        guess: np.ndarray | None = None,
        p: np.ndarray | None = None,
        *,
        solvers: Solvers | None = None,
        sigma: float | None = None,
        clip: bool = True,
    ) -> HomotopyState:
        """Return the state before the first NLP; `clip` moves the guess inside its bounds, `sigma` replaces sigma_0.

        Raises
        ------
        TranscriptionError
            If the guess or the parameters have the wrong length or contain NaN.
        """
        solvers = self.build(mpcc) if solvers is None else solvers
        w = _checked(mpcc.w0 if guess is None else guess, mpcc.w0.size, "guess")
        p = _checked(mpcc.p0 if p is None else p, mpcc.p0.size, "parameters p")
        w = np.clip(w, mpcc.lbw, mpcc.ubw) if clip else w
        first = self.sigma_0 if sigma is None else sigma
        measured = _measure(solvers.evaluator, w, p)
        return HomotopyState(solvers=solvers, w=w, p=p, sigma=first, **measured)

    def step(self, state: HomotopyState, *, deadline: float = np.inf) -> HomotopyState:
        """Solve one NLP: the next relaxation, or the active-set finish when it is due."""
        try:
            return self._finish(state, deadline) if state.finish_due else self._relax(state, deadline)
        except KeyboardInterrupt:  # outside of IPOPT
            return replace(state, status=Status.INTERRUPTED)

    def terminate(self, state: HomotopyState) -> Status | None:
        """None while there is something left to do, else why it ends."""
        if state.status is not None or state.finished:
            return state.status or Status.SOLVED
        if not state.records or state.finish_due:
            return None
        if self._accepted(state):
            return Status.SOLVED
        if state.sigma >= self.sigma_min * (1 - 1e-9):
            return None
        return self._verdict(state)

    def run(
        self,
        mpcc: MPCC,
        guess: np.ndarray | None = None,
        p: np.ndarray | None = None,
        *,
        callback: Callback | None = None,
        time_limit: float | None = None,
        solvers: Solvers | None = None,
        sigma: float | None = None,
    ) -> HomotopyState:
        """init, then step until terminate; the returned state has a status."""
        started = time.monotonic()
        limit = min(x for x in (time_limit, self.time_limit, np.inf) if x is not None)
        state = self.init(mpcc, guess, p, solvers=solvers, sigma=sigma)
        while (status := self.terminate(state)) is None:
            if time.monotonic() - started > limit:
                return replace(state, status=Status.TIME_LIMIT)
            state = self.step(state, deadline=started + limit)
            if callback is not None and (stop := asked_to_stop(callback, state)) is not None:
                return replace(state, status=self.terminate(state) or stop)
        return replace(state, status=status)

    def finish_only(self, solvers: Solvers, w: np.ndarray, p: np.ndarray) -> HomotopyState:
        """Try the active-set finish on the active set that w shows; `finished` on the result says whether it held.

        The result's w is the finish's last iterate in any case.
        """
        state = self.init(solvers.mpcc, w, p, solvers=solvers, clip=False)
        return self._finish(state, np.inf, keep=True)

    def _accepted(self, state: HomotopyState) -> bool:
        settled = state.converged or state.solvers.finish.feasibility_only
        return settled and self._residuals_small(state)

    def _loses(self, before: HomotopyState, after: HomotopyState) -> bool:
        """A finish that costs much of the objective guessed a wrong active set; a smaller sigma may show a better."""
        cost, limit = after.values.objective - before.values.objective, max(1.0, abs(before.values.objective))
        return cost > self.finish_loss * limit and before.sigma >= self.sigma_min * (1 - 1e-9)

    def _residuals_small(self, state: HomotopyState) -> bool:
        return (
            state.complementarity <= self.complementarity_tolerance
            and state.infeasibility <= self.infeasibility_tolerance
        )

    def _verdict(self, state: HomotopyState) -> Status:
        last = state.records[-1].solver_status
        if last == "User_Requested_Stop":
            return Status.TIME_LIMIT
        if not np.isfinite(state.values.g).all() or last == "Invalid_Number_Detected":
            return Status.NUMERICAL_ERROR
        if state.infeasibility > self.infeasibility_tolerance:
            return Status.ITERATION_LIMIT if last == "Maximum_Iterations_Exceeded" else Status.INFEASIBLE
        return Status.NOT_COMPLEMENTARY if not self._residuals_small(state) else Status.ITERATION_LIMIT

    def _relax(self, state: HomotopyState, deadline: float) -> HomotopyState:
        solvers, scale = state.solvers, state.solvers.mpcc.w_scale
        x = np.concatenate([state.w / scale, np.full(solvers.slacks, state.sigma)])
        result = solvers.relaxed.solve(x, np.append(state.p, state.sigma), deadline=deadline)
        w = result.x[: scale.size] * scale
        w = w if np.isfinite(w).all() else state.w
        new = replace(
            state,
            w=w,
            sigma=state.sigma * self.kappa,
            converged=result.converged,
            multipliers=_multipliers(solvers.mpcc, result),
            status=Status.INTERRUPTED if result.interrupted else None,
            **_measure(solvers.evaluator, w, state.p),
        )
        new = replace(new, records=(*state.records, _record(new, "homotopy", state.sigma, result)))
        close = new.complementarity <= self.finish_threshold and new.infeasibility <= 1e-3
        return replace(new, finish_due=solvers.finish.ways if close and self.finish == "active_set" else ())

    def _finish(self, state: HomotopyState, deadline: float, *, keep: bool = False) -> HomotopyState:
        """One try of the finish; when it does not hold, the iterate stays where it was unless `keep`."""
        started = time.monotonic()
        solvers = state.solvers
        way, *further = state.finish_due or ("hold",)
        w, iterations, word, result = solvers.finish(state.w, state.p, deadline, way)
        measured = _measure(solvers.evaluator, w, state.p)
        done = replace(state, w=w, converged=result is None or result.converged, finish_due=(), **measured)
        seconds = time.monotonic() - started
        record = _record(done, "finish", 0.0, None, iterations=iterations, seconds=seconds, word=word)
        records = (*state.records, record)
        if result is not None and result.interrupted:
            return replace(state, status=Status.INTERRUPTED, records=records)
        if not self._accepted(done) or self._loses(state, done):
            return replace(done if keep else state, finish_due=tuple(further), records=records)
        multipliers = state.multipliers if result is None else _multipliers(solvers.mpcc, result)
        return replace(done, finished=True, status=Status.SOLVED, multipliers=multipliers, records=records)


def _measure(evaluator: Evaluator, w: np.ndarray, p: np.ndarray) -> dict[str, Any]:
    values = evaluator(w, p)
    return {
        "values": values,
        "complementarity": evaluator.complementarity(values),
        "complementarity_min": evaluator.complementarity_min(values),
        "infeasibility": evaluator.infeasibility(values),
    }


def _multipliers(mpcc: MPCC, result: NLPResult) -> np.ndarray:
    return np.asarray(result.lam_g[: mpcc.lbg.size] / mpcc.g_scale)


def _record(
    state: HomotopyState,
    label: str,
    sigma: float,
    result: NLPResult | None,
    *,
    iterations: int = 0,
    seconds: float = 0.0,
    word: str = "",
) -> StepRecord:
    return StepRecord(
        step=len(state.records),
        label=label,
        sigma=sigma,
        objective=state.values.objective,
        complementarity=state.complementarity,
        infeasibility=state.infeasibility,
        iterations=result.iterations if result else iterations,
        wall_seconds=result.wall_seconds if result else seconds,
        solver_status=result.solver_status if result else word,
    )


def asked_to_stop(callback: Callable[[Any], Any], state: Any) -> Status | None:
    """Show a callback the state: why it wants to stop, or None to go on."""
    try:
        answer = callback(state)
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    return Status.STOPPED if answer is Stop or isinstance(answer, Stop) else None


def _checked(value: Any, size: int, what: str) -> np.ndarray:
    try:
        array = np.array(value, dtype=float).reshape(-1)  # a copy: the state is not the caller's array
    except (TypeError, ValueError):
        raise TranscriptionError(f"{what}: expected {size} numbers, given {value!r}.") from None
    if array.size != size:
        raise TranscriptionError(f"{what}: expected {size} numbers, given {array.size}; use the problem's own layout.")
    if not np.isfinite(array).all():
        first = int(np.argmin(np.isfinite(array)))
        raise TranscriptionError(f"{what}: contains {array[first]} at position {first}; every number has to be finite.")
    return array
