"""Model predictive control: a control at every sample, whatever the solver does, and word of where it is from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from numbers import Real
from typing import Any, Literal

import numpy as np

from nosnoc_py.api import Simulator, simulate, solve, transcribe
from nosnoc_py.control.costs import MotionCost
from nosnoc_py.control.measured import admissible
from nosnoc_py.discretization.options import FESD, FESDJ
from nosnoc_py.errors import ModelError, NosnocError, OptionError
from nosnoc_py.mpcc.strategy import Strategy
from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.soft_constraints import without_slacks
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.transcription import Answer, Transcription

Array = np.ndarray
# The first plan, and preparations without a deadline, may take so long [s].
PATIENCE = 20.0
# The share of that which the search for the first plan may take.
SEARCHED = 0.4
# Whoever has fewer seconds for a plan does not search.
SEARCH_SECONDS = 2.0
# A plan that costs so much more (a share) than the cheapest so far is compared with others, which have to be cheaper
# by this share.
RISEN, BETTER = 0.2, 0.02
# A period is this close to whole control stages, as a share of one.
WHOLE = 1e-6
# What predictions are made with: noise is larger than its errors.
MODEL = EventDriven(grazing="continue", rtol=1e-8, atol=1e-9)
# What controls are compared by.
COMPARED = EventDriven(grazing="continue", rtol=1e-4, atol=1e-5)
# The share of the deadline that a solver may use; the rest is for what acts instead.
SOLVING = 0.6


class Source(StrEnum):
    """Where a control is from."""

    SOLVED = "solved"  # a plan from the measured state
    TRACKED = "plan tracked"  # the plan for the predicted state, corrected by its derivative
    SHIFTED = "plan shifted"  # what an earlier plan has for this time
    HELD = "held"  # the last control once more


ON_FAILURE = {"track": Source.TRACKED, "shift": Source.SHIFTED, "hold": Source.HELD}


@dataclass(frozen=True, eq=False, kw_only=True)
class MPCStep:
    """One sample of a controller.

    Attributes
    ----------
    t : float
    x : (n_x,)
        As it was measured.
    planned_from : (n_x,)
        The state the plan begins with: admissible, and after the delay.
    u : (n_u,)
    source : Source
    how : str
        How the plan was found, see `Answer.how`.
    status : Status
        Of the solver.
    seconds : float
        From x to u.
    late : bool
        Whether the control, or the solver's answer that did not act, came after the deadline.
    message : str
        Why it is not a solved plan.
    plan : Answer or Solution, optional
        The plan that is followed from here.
    """

    t: float
    x: Array
    planned_from: Array
    u: Array
    source: Source
    how: str = ""
    status: Status = Status.SOLVED
    seconds: float = 0.0
    late: bool = False
    message: str = ""
    plan: Answer | Solution | None = None


class MPC:
    """Plans again at every sample, and always has a control.

    A sample is answered on the branch of the last plan, in milliseconds (`Transcription.resolve`). What can be done
    before the state is known is done before: call `prepare` while a control acts (`ns.close_loop` does). Where no plan
    is found, or too late, `on_failure` says what acts instead, and `last.source` what it was.

    Parameters
    ----------
    problem : OCP or Transcription
        Its x0 is replaced by the measured state.
    method : FESDJ, FESD or TimeFreezing, optional
        Of an OCP; default finite elements with two elements in every control stage, a stage for every period.
    period : float, optional
        Between samples [s], whole control stages; default one.
    delay : float
        Seconds from a measurement to when its control acts: the state is predicted over them under the control that
        acts meanwhile, and the plan begins there.
    deadline : float, optional
        Seconds for an answer; a later one does not act, but is the plan that the next sample begins with. The first
        plan is waited for, and without a deadline all of them.
    on_failure : sequence of {"track", "shift", "hold"}
        What may act without an answer: the prepared plan corrected to first order by the measured state, an earlier
        plan's control for this time, or the last control. Of the first two the one whose simulation costs less.
    not_finite : {"error", "hold"}
        What a measurement that is not finite leads to: a `ModelError`, or the last control once more.
    preparation : float, optional
        Seconds that `prepare` may take; default 20. In a loop in real time that is what a period leaves.
    solver : Homotopy, ActiveSet or Auto, optional
        Where a branch is lost; its limits of iterations count. Default `Auto()`.
    p : (n_p,) or function of t, optional
        Values of the parameters, references among them; default those of the system.
    spread : (n_x,), optional
        How far measured states lie from predicted ones; see `Transcription.prepare`.
    guess : optional
        For the first plan, as for `ns.solve`; default the better of what is found from the motion without control and
        from the motion that `ns.solve` finds without a method (effort "quick").

    Raises
    ------
    OptionError
        For a period that is no whole number of control stages, options of a wrong kind, or a free horizon.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=10 * (q - 0.9) ** 2 + v**2 + 0.1 * u**2)
    >>> mpc = ns.MPC(ocp, period=0.1)
    >>> u = mpc.step([0.0, 0.0], t=0.0)
    >>> mpc.prepare()
    >>> u = mpc.step([0.04, 0.7], t=0.1)
    >>> print(mpc.last.source, mpc.last.plan.success)
    solved True
    """

    def __init__(
        self,
        problem: OCP | Transcription,
        method: Any = None,
        *,
        period: float | None = None,
        delay: float = 0.0,
        deadline: float | None = None,
        on_failure: Sequence[str] = ("track", "shift", "hold"),
        not_finite: Literal["error", "hold"] = "error",
        preparation: float | None = None,
        solver: Strategy | None = None,
        p: Any = None,
        spread: Any = None,
        guess: Any = None,
    ) -> None:
        self.problem = _transcribed(problem, method, period)
        if self.problem.ocp.free_time is not None:
            raise OptionError("MPC: expected an OCP with a fixed horizon; a free one has no stages of one length.")
        self.ocp, self.system = self.problem.ocp, without_slacks(self.problem.ocp.system)
        self.cost = MotionCost.of(self.ocp, self.system.n_u, self.system.n_p)
        self.stage = float(self.ocp.horizon) / self.problem.grid.control_stages
        self.period = self.stage if period is None else _seconds(period, "period", positive=True)
        self.stages = round(self.period / self.stage)
        if (
            abs(self.period / self.stage - self.stages) > WHOLE
            or not 1 <= self.stages < self.problem.grid.control_stages
        ):
            raise OptionError(
                f"MPC: period: expected whole control stages of {self.stage:g} s and less than the horizon, given "
                f"{self.period:g} s; choose control_stages accordingly."
            )
        self.delay = _seconds(delay, "delay")
        self.deadline = None if deadline is None else _seconds(deadline, "deadline", positive=True)
        if self.delay > self.period:
            raise OptionError(f"MPC: delay: expected at most the period of {self.period:g} s, given {delay!r}.")
        wrong = [name for name in on_failure if name not in ON_FAILURE]
        if isinstance(on_failure, str) or wrong:
            raise OptionError(
                f"MPC: on_failure: expected some of {', '.join(ON_FAILURE)} in order, given {on_failure!r}."
            )
        if not_finite not in ("error", "hold"):
            raise OptionError(f'MPC: not_finite: expected "error" or "hold", given {not_finite!r}.')
        self.on_failure, self.not_finite = tuple(on_failure), not_finite
        self.preparation = PATIENCE if preparation is None else _seconds(preparation, "preparation", positive=True)
        self.solver, self.p, self.spread, self.guess = solver, p, spread, guess
        self.last: MPCStep | None = None
        self._plan: Answer | Solution | None = None
        self._began = 0.0
        self._ready: Answer | None = None
        self._ready_for = 0.0
        self._gain: Any = None
        self._lowest = np.inf
        self._predictor: Any = None
        self._follower: Any = None

    @property
    def lower(self) -> Array:
        """Lower limits of the controls (n_u,)."""
        return np.asarray(self.ocp.u_bounds[0])[: self.system.n_u]

    @property
    def upper(self) -> Array:
        """Upper limits of the controls (n_u,)."""
        return np.asarray(self.ocp.u_bounds[1])[: self.system.n_u]

    def reset(self) -> None:
        """Forget all plans: the next sample is the first one."""
        self.last, self._plan, self._ready, self._gain, self._lowest = None, None, None, None, np.inf

    def step(self, x: Any, t: float, p: Any = None) -> Array:
        """The control (n_u,) for a state measured at t; where it is from is in `last`.

        Parameters
        ----------
        x : (n_x,)
            Measured; noise may have moved it into a contact.
        t : float
            Seconds.
        p : (n_p,), optional
            Instead of the values given to the controller.

        Raises
        ------
        ModelError
            For another number of states, or one that is not finite unless `not_finite="hold"`.
        """
        began = time.perf_counter()
        try:
            x = np.asarray(x, dtype=float).reshape(-1)
        except (TypeError, ValueError):
            raise ModelError(f"x: expected {len(self.system.state_names)} numbers, given {x!r}.") from None
        if x.size != len(self.system.state_names):
            raise ModelError(f"x: expected {len(self.system.state_names)} numbers, given {x.size}.")
        made = {"t": float(t), "x": x.copy(), "planned_from": x}
        if not np.isfinite(x).all():
            if self.not_finite == "error":
                raise ModelError(f"x: the measurement at {t:g} s is not finite: {x.tolist()}.")
            held = MPCStep(**made, u=self._held(), source=Source.HELD, message="the measurement is not finite")
            return self._finished(held, began)
        values = self._parameters(t, p)
        answer: Answer | Solution | None = None
        why, start = "", x
        try:
            start = self._ahead(x, t, values)
            made["planned_from"] = start
            limit = PATIENCE if self.deadline is None or self._plan is None else SOLVING * self.deadline
            answer = self._answered(start, t, values, limit)
        except NosnocError as error:
            why = str(error)
        except Exception as error:  # whatever a solver, a library or a user's function does: the plant needs a control
            why = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - began
        late = self.deadline is not None and self._plan is not None and seconds > self.deadline
        if answer is not None and answer.success and not late:
            self._plan, self._began = answer, t + self.delay
            how = answer.how if isinstance(answer, Answer) else "first"
            step = MPCStep(**made, u=self._clipped(answer.u[0]), source=Source.SOLVED, how=how, plan=answer)
            return self._finished(step, began)
        u, source = self._instead(start, t, values)
        if answer is not None and answer.success:
            why, self._plan, self._began = f"the answer came {seconds:.3g} s after the state", answer, t + self.delay
        status = Status.CONTROLLER_FAILED if answer is None else answer.status
        step = MPCStep(
            **made, u=u, source=source, status=status, late=late, message=why or str(status), plan=self._plan
        )
        return self._finished(step, began)

    def prepare(self, *, time_limit: float | None = None) -> None:
        """Plan for the state predicted at the next sample; to be called while the control of the last one acts.

        Nothing is raised: what fails leaves the plan that there was.
        """
        self._ready = self._gain = None
        if self.last is None:
            return
        at = self.last.t + self.period + self.delay
        limit = self.preparation if time_limit is None else time_limit
        end = time.monotonic() + limit
        try:
            p = self._parameters(at, None)
            if self.last.source is not Source.SOLVED:
                # The plan is not from the state that there was: one from the state that follows is looked for now.
                following = self._following(p)
                plan = self._answered(following, at - self.delay, p, limit)
                if plan.success:
                    self._plan, self._began = plan, at
            shift = self._stages_since(at)
            if self._plan is None or not self._plan.success or not 0 <= shift < self.problem.grid.control_stages:
                return
            ready = self.problem.prepare(
                self._plan, shift=shift, spread=self.spread, p=p, solver=self.solver,
                time_limit=max(0.0, end - time.monotonic()),
            )  # fmt: skip
            if not ready.success:
                return
            if self._has_risen(ready.objective):
                ready = self._cheaper(ready, p, end)
            self._lowest = min(self._lowest, float(ready.objective))
            self._ready, self._ready_for = ready, at
            if "track" in self.on_failure:
                self._gain = self.problem.differentiate(ready, x0=True)
        except Exception:  # a plan that cannot be prepared is solved again from the last one
            return

    def _has_risen(self, objective: float) -> bool:
        """Whether a plan costs more than an earlier one did: on a branch that has become a poor one it does."""
        return bool(objective > RISEN * abs(self._lowest) + self._lowest) if np.isfinite(self._lowest) else False

    def _cheaper(self, ready: Answer, p: Any, end: float) -> Answer:
        """The prepared plan, or one from another start that costs less; looked for until `end`, a monotonic time."""
        self._lowest = float(ready.objective)
        x0 = np.asarray(ready.solution.x[0])[: len(self.system.state_names)]
        for guess in self._guesses(x0, p, max(0.0, end - time.monotonic())):
            left = end - time.monotonic()
            if left <= 0.0:
                break
            found = self.problem.solve(self.solver, x0=x0, p=p, guess=guess, time_limit=left)
            if found.success and found.objective < ready.objective - BETTER * abs(ready.objective):
                again = self.problem.prepare(
                    found, shift=0, spread=self.spread, p=p, solver=self.solver, time_limit=max(0.0, left)
                )
                ready = again if again.success else ready
        return ready

    def _following(self, p: Any) -> Array:
        """The state that the control of the last sample leads to when the next one acts."""
        assert self.last is not None
        if self._follower is None:
            self._follower = Simulator(self.system, MODEL, step=self.period)
        state = self._follower.step(self._follower.init(self.last.planned_from, p), self.last.u)
        return admissible(self.system, state.x, p)

    def _answered(self, x0: Array, t: float, p: Any, limit: float) -> Answer | Solution:
        """A plan from x0, from the one before; the first one, or where all before are over, from several starts."""
        given: dict[str, Any] = {"x0": x0, "p": p, "solver": self.solver}
        if (ready := self._ready) is not None and self._is_ready(t):
            return self.problem.resolve(ready, **given, time_limit=limit)
        shift = self._stages_since(t + self.delay)
        if self._plan is not None and 0 <= shift < self.problem.grid.control_stages:
            return self.problem.resolve(self._plan, shift=shift, **given, time_limit=limit)
        solver = given.pop("solver")
        end, best = time.monotonic() + limit, None
        for guess in self._guesses(x0, p, limit):
            left = max(0.0, end - time.monotonic())
            found = self.problem.solve(solver, **given, guess=guess, time_limit=left)
            if best is None or (found.success, -found.objective) > (best.success, -best.objective):
                best = found
        assert best is not None
        return best

    def _guesses(self, x0: Array, p: Any, limit: float) -> Iterator[Any]:
        """Starts of a plan that has none before it; the first optimum that is found may be a poor one."""
        if self.guess is not None:
            yield self.guess
            return
        horizon = float(self.ocp.horizon)
        idle = simulate(self.system, x0=x0, duration=horizon, p=p, u=self._idle(), time_limit=limit)
        yield idle if idle.success else None
        if limit >= SEARCH_SECONDS:
            began = replace(self.ocp, x0=x0, p=self.ocp.system.parameters(p))
            searched = solve(began, effort="quick", time_limit=SEARCHED * limit)
            if searched.success:
                yield searched

    def _instead(self, x0: Array, t: float, p: Any) -> tuple[Array, Source]:
        """What acts where there is no answer in time."""
        rows = dict[Source, Array]()
        ready = self._ready if self._is_ready(t) else None
        if "track" in self.on_failure and ready is not None and self._gain is not None:
            rows[Source.TRACKED] = self._gain.predict(x0=x0).u
        plan, began = (self._plan, self._began) if ready is None else (ready, self._ready_for)
        if "shift" in self.on_failure and plan is not None and 0 <= (k := self._stages_from(began, t)) < len(plan.u):
            rows[Source.SHIFTED] = np.vstack([plan.u[k:], np.repeat(plan.u[-1:], k, axis=0)])
        rows = {source: self._clipped(u) for source, u in rows.items() if np.isfinite(u[:, : self.system.n_u]).all()}
        if len(rows) > 1 and self.cost is not None:
            # A large disturbance makes of the linear correction anything: what it leads to has to be looked at.
            best = min(rows, key=lambda source: self._simulated_cost(x0, rows[source], p))
            return rows[best][0], best
        for source, u in rows.items():
            return u[0], source
        return self._held(), Source.HELD

    def _simulated_cost(self, x0: Array, u: Array, p: Any) -> float:
        """What the controls (N, n_u) of a horizon cost; infinite where the simulation does not come to its end."""
        assert self.cost is not None
        motion = simulate(self.system, x0=x0, duration=float(self.ocp.horizon), u=u, p=p, method=COMPARED)
        if not motion.success:
            return np.inf
        stages = np.clip(np.searchsorted(motion.u_grid, motion.t, "right") - 1, 0, len(motion.u) - 1)
        running = self.cost.running(motion.t - motion.t0, motion.x, motion.u[stages], p)
        return running + self.cost.final(motion.final_state, motion.x[0], p)

    def _stages_since(self, t: float) -> int:
        return round((t - self._began) / self.stage)

    def _stages_from(self, began: float, t: float) -> int:
        return round((t + self.delay - began) / self.stage)

    def _is_ready(self, t: float) -> bool:
        """Whether the prepared plan is for a sample at t."""
        return self._ready is not None and abs(self._ready_for - t - self.delay) <= WHOLE * self.period

    def _ahead(self, x: Array, t: float, p: Any) -> Array:
        """The state when the control will act: admissible, and after the delay."""
        x = admissible(self.system, x, p)
        if not self.delay:
            return x
        if self._predictor is None:
            self._predictor = Simulator(self.system, MODEL, step=self.delay)
        state = self._predictor.step(self._predictor.init(x, p), self._held())
        return admissible(self.system, state.x, p) if state.status.success else x

    def _parameters(self, t: float, p: Any) -> Any:
        given = self.p if p is None else p
        return self.system.parameters(given(t) if callable(given) else given)

    def _held(self) -> Array:
        return self._idle() if self.last is None else self.last.u

    def _idle(self) -> Array:
        return self._clipped(np.zeros(self.system.n_u))

    def _clipped(self, u: Array) -> Array:
        return np.clip(np.asarray(u, dtype=float)[..., : self.system.n_u], self.lower, self.upper)

    def _finished(self, step: MPCStep, began: float) -> Array:
        seconds = time.perf_counter() - began
        late = step.late or (self.deadline is not None and self.last is not None and seconds > self.deadline)
        self.last = replace(step, seconds=seconds, late=late)
        return self.last.u


def plan_of(step: MPCStep) -> Trajectory | None:
    """The motion that a step follows, read out; None where there is none."""
    if step.plan is None:
        return None
    return step.plan.solution if isinstance(step.plan, Answer) else step.plan


def _transcribed(problem: Any, method: Any, period: float | None) -> Transcription:
    if isinstance(problem, Transcription):
        if method is not None:
            raise OptionError("MPC: method: a transcription has one already; give the OCP with another.")
        return problem
    if not isinstance(problem, OCP):
        raise OptionError(f"MPC: expected an OCP or a Transcription, given {type(problem).__name__}.")
    if method is None:
        stages = 20 if period is None else round(float(problem.horizon) / _seconds(period, "period", positive=True))
        kind: Callable[..., Any] = FESDJ if isinstance(problem.system, CLS) else FESD
        method = kind(control_stages=max(stages, 2), finite_elements=2, rk_stages=2)
    return transcribe(problem, method)


def _seconds(value: Any, what: str, *, positive: bool = False) -> float:
    good = not isinstance(value, bool) and isinstance(value, Real) and np.isfinite(float(value))
    if not good or float(value) < 0.0 or (positive and float(value) == 0.0):
        kind = "a positive number" if positive else "a number, zero or more,"
        raise OptionError(f"MPC: {what}: expected {kind} of seconds, given {value!r}.")
    return float(value)
