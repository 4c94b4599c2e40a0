"""Simulation by finite elements, step by step.

Each step is first solved by the active-set Newton method (`newton`) and accepted on the residuals of the unrelaxed
equations. A step with more events than finite elements is cut into parts. If Newton's method fails or does not fit the
method, the step is solved as an MPCC from several guesses (`stepping`), and solutions that satisfy every equation but
are no motions are refused (`checks`). The discretisation error is estimated for several steps together (`accuracy`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nosnoc_py.contact_problems.instants import gaining_contacts, several_outcomes
from nosnoc_py.discretization.options import FESDJ, FINITE_ELEMENTS, FiniteElementMethod
from nosnoc_py.discretization.readout import Readout, impact_rows
from nosnoc_py.errors import OptionError, check_type
from nosnoc_py.motion.loop import driven
from nosnoc_py.motion.record import message_of
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.strategy import Callback, SolverState, Strategy
from nosnoc_py.ocp import OCP
from nosnoc_py.options import fitting
from nosnoc_py.simulation.accuracy import Accuracy
from nosnoc_py.simulation.checks import Checks
from nosnoc_py.simulation.common import (
    SimulationTask,
    StepDerivative,
    SteppedRun,
    StepState,
    check_control,
    deadline_of,
    next_time,
    no_time_note,
    not_finite_control,
    not_unique_note,
    steps_given,
)
from nosnoc_py.simulation.guessed import ENDED, simulated_guess, started_near
from nosnoc_py.simulation.newton.engine import Hint
from nosnoc_py.simulation.newton.error_estimate import SolvedPart
from nosnoc_py.simulation.newton.options import ActiveSetNewton
from nosnoc_py.simulation.newton.stepper import SCHEMES, NewtonResult, NewtonStepper, misfit
from nosnoc_py.simulation.step_sensitivity import StepSensitivity, chained
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER, FilippovStep, MPCCStep
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control, control_of
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.not_finite import ahead, not_finite
from nosnoc_py.systems.projection import admissible_directions, settled
from nosnoc_py.systems.scales import problem_scales
from nosnoc_py.systems.special_laws import refuse_sequences
from nosnoc_py.systems.symbols import numbers
from nosnoc_py.systems.unsigned import refuse_unsigned
from nosnoc_py.tolerances import REST_VELOCITY
from nosnoc_py.transcription import Transcription, rest_velocity_of, transcribe, transcribe_step
from nosnoc_py.transcription.guesses import keeps_its_iterate

# Number of times that a step with more events than elements is cut at most.
MOST_SPLITS = 100
# Cost of a failed part, in cuts: failures end the search sooner than events.
COST_OF_FAILURE = 12
# Places ahead of a failed step at which functions are evaluated, to find one that is not finite.
AHEAD = 5
# Steps solved as MPCC that are listed by their times.
MOST_LISTED = 20
# Steps whose errors are estimated together: this takes little longer than for one.
ESTIMATED_TOGETHER = 8
# With residuals below this the equations hold, so that a failure has another reason.
SOLVED = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class StepSolution:
    """Solution of a step: w (n_w,) at the parameters (n_values,) of its MPCC.

    `solved` are its elements by Newton's method, for the estimate of their error; None for an MPCC.
    """

    w: np.ndarray
    values: np.ndarray
    solved: SolvedPart | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatorState(StepState):
    """State of a simulation by finite elements, with the solution of its last step.

    `x` is the left limit at t: an impact exactly at t belongs to the next step. `attempts` is the number of initial
    guesses of the MPCC tried in the last step (0 if Newton's method solved it), `iterations` the number of NLP
    iterations. Residuals are those of the unrelaxed equations.

    Attributes
    ----------
    problem : Transcription
        Of one step.
    parts : tuple of StepSolution
        Solution of the last step: one part, or several if it had more switches than elements; none before the first
        step and after a step that failed.
    u : (n_u,) or None
        Controls of the last step, with time-freezing also the speed of time.
    derivatives : tuple of StepDerivative
        Derivatives of the parts, if requested; `sensitivity` is that of the whole step.
    hint : Hint or None
        Modes at the end of the last step, if Newton's method solved it.
    error : float
        Largest estimated error of the last steps that have an estimate, relative to the motion so far (option
        `error_tolerance`). The first step is estimated at once, the others in groups of eight.
    sizes : (n_x,) or None
        Size of the motion so far, to which the error is relative.
    unjudged : tuple
        Parts of the steps whose error has not been estimated yet.
    message : str
        Reason why Newton's method failed, or the error of the step if it is too large.
    """

    problem: Transcription
    parts: tuple[StepSolution, ...] = ()
    u: np.ndarray | None = None
    derivatives: tuple[StepDerivative, ...] = ()
    hint: Hint | None = None
    message: str = ""
    error: float = 0.0
    sizes: np.ndarray | None = None
    unjudged: tuple[list[SolvedPart], ...] = ()

    @property
    def solved(self) -> list[SolvedPart]:
        """Parts of the last step that Newton's method solved."""
        return [part.solved for part in self.parts if part.solved is not None]

    @property
    def w(self) -> np.ndarray | None:
        """Iterate (n_w,) of the last part of the last step."""
        return self.parts[-1].w if self.parts else None

    @property
    def values(self) -> np.ndarray | None:
        """Parameters (x0, u, p, length) of its MPCC."""
        return self.parts[-1].values if self.parts else None

    @property
    def lengths(self) -> tuple[float, ...]:
        """Lengths of the parts [s]."""
        rows = self.problem.mpcc.parameters["horizon"]
        return tuple(float(part.values[rows][0]) for part in self.parts)

    @cached_property
    def readout(self) -> Readout | None:
        """Finite elements of the last step, with time-freezing on the clock of the whole simulation."""
        if not self.parts:
            return None
        joined = Readout.join([self.problem.read(part.w, part.values) for part in self.parts])
        return joined.later(self.t - sum(self.lengths), self.x.size)

    @property
    def sensitivity(self) -> StepDerivative | None:
        """Derivatives of x by the x, u and p with which the last step began."""
        return chained(self.derivatives) if self.derivatives else None


class FiniteElementStepper:
    """Steps of equal length of one system by one method; everything is built once.

    Every step is first solved by the active-set Newton method and accepted on the residuals of the unrelaxed
    finite-element equations. If that fails, it is solved as an MPCC. All steps are solved as MPCC for time-freezing,
    fixed step lengths, a friction cone that is not Coulomb's, and schemes other than Radau IIA and Gauss-Legendre.

    Parameters
    ----------
    system : CLS, PSS, Heaviside or PDS
    method : FESDJ, TimeFreezing or FESD
        Its options, such as `finite_elements`, `rk_stages` and `scheme`; `control_stages` is ignored.
    step : float
        Length of a step [s].
    solver : ActiveSetNewton, Homotopy, ActiveSet or Auto, optional
        Default `ActiveSetNewton()` if it supports the method; any other solver solves every step as an MPCC.

    Raises
    ------
    OptionError
        For a step that is no positive length, or `ActiveSetNewton` with a method that it does not support.
    """

    def __init__(
        self,
        system: Described,
        method: FiniteElementMethod | None = None,
        *,
        step: float,
        solver: Strategy | ActiveSetNewton | None = None,
    ) -> None:
        method = fitting(system, method, FINITE_ELEMENTS, FiniteElementMethod)
        refuse_unsigned(system)
        refuse_sequences(system, "this method")
        self.system, self.length = system, float(step)
        check_type(SIMULATION_SOLVER if solver is None else solver, (Strategy, ActiveSetNewton), "solver")
        self.problem = transcribe_step(system, method)
        newton = ActiveSetNewton() if solver is None else solver
        self.solver: Strategy | None = newton if isinstance(newton, Strategy) else newton.strategy
        self._newton_step: NewtonStepper | None = None
        if isinstance(newton, ActiveSetNewton):
            reason = misfit(self.problem)
            if reason and solver is not None:
                raise OptionError(f"solver: ActiveSetNewton does not fit this method: {reason}.")
            self._newton_step = None if reason else NewtonStepper(self.problem, newton.tolerance)
        judges = self._newton_step is not None and self.problem.fesd.error_tolerance is not None
        self._accuracy = Accuracy(self.problem, self._newton_step) if judges and self._newton_step else None
        layout = self.problem.mpcc.parameters
        self._slices = {name: layout[name] for name in ("x0", "p", "u", "horizon")}

    @cached_property
    def _checks(self) -> Checks:
        return Checks(self.problem)

    @cached_property
    def _mpcc_step(self) -> MPCCStep | FilippovStep:
        assert self.solver is not None
        if isinstance(self.problem.method, FESDJ):
            assert isinstance(self.system, CLS)
            return MPCCStep(self.system, self.problem, self.solver)
        return FilippovStep(self.problem, self.solver, self._predict)

    @cached_property
    def _predict(self) -> Callable[[np.ndarray], Trajectory | None]:
        """Predictor for steps of time-freezing: the same elements with jumps, by Newton's method."""
        if not self.problem.discretization.time_freezing:
            return lambda values: None
        options = self.problem.fesd
        # A prediction may use another scheme than the step, and is not worth a solution as an MPCC.
        fits = next((scheme for scheme in SCHEMES if scheme == options.scheme), SCHEMES[0])
        jumps = FESDJ(finite_elements=options.finite_elements, rk_stages=options.rk_stages, scheme=fits)
        simulator = FiniteElementStepper(self.system, jumps, step=self.length, solver=ActiveSetNewton(fallback=False))

        def predict(values: np.ndarray) -> Trajectory | None:
            x, p, u = (values[self._slices[name]] for name in ("x0", "p", "u"))
            new = simulator.step(SimulatorState(t=0.0, x=x, p=p, problem=simulator.problem), u)
            if new.readout is None or new.u is None:
                return None
            grid = np.array([0.0, self.length])
            return Trajectory(**simulator.problem.fields_of(new.readout, new.p, new.u[None], grid))

        return predict

    def init(self, x0: Any, p: Any = None) -> SimulatorState:
        """Return the state at t = 0; raise `ModelError` if x0 has the wrong shape or penetrates a contact."""
        parameters = self.system.parameters(p)
        return SimulatorState(t=0.0, x=self.system.check_state(x0, parameters), p=parameters, problem=self.problem)

    @cached_property
    def _sensitivity(self) -> StepSensitivity:
        return StepSensitivity(self.problem)

    def step(
        self, state: SimulatorState, u: Any = None, *, time_limit: float | None = None, sensitivities: bool = False
    ) -> SimulatorState:
        """Take one step with constant control u (n_u,); a step that fails keeps t and x and sets the status.

        With `sensitivities` the new state has the derivatives of its x by the x, u and p of this step.
        """
        new = self._step(state, u, time_limit, sensitivities)
        if self._accuracy is None or not new.solved:
            return new
        new = replace(new, unjudged=(*state.unjudged, new.solved), sizes=state.sizes, error=state.error)
        return (
            self._with_error_estimate(state.x, new)
            # The first step alone, so that a step length that is far too large is reported at once.
            if state.t == 0.0 or len(new.unjudged) >= ESTIMATED_TOGETHER
            else new
        )

    def _with_error_estimate(self, x: np.ndarray, state: SimulatorState) -> SimulatorState:
        """Return the state with the largest error of its last steps, and a status if that is too large."""
        assert self._accuracy is not None
        sizes = self._accuracy.sizes(x, [part for step in state.unjudged for part in step])
        sizes = sizes if state.sizes is None else np.maximum(sizes, state.sizes)
        errors = self._accuracy(state.unjudged, sizes)
        worst = int(np.argmax(errors.shares))
        fields: dict[str, Any] = {"unjudged": (), "sizes": sizes, "error": float(errors.shares[worst])}
        if self._accuracy.is_missed(fields["error"]):
            # Start of the worst step, counted back from the end of the last one.
            at = state.t - (len(state.unjudged) - worst) * self.length
            reason = self._accuracy.message_of_step(fields["error"], at, self.length)
            fields |= {"status": Status.INACCURATE, "message": "; ".join(filter(None, (state.message, reason)))}
        return replace(state, **fields)

    def _step(self, state: SimulatorState, u: Any, time_limit: float | None, sensitivities: bool) -> SimulatorState:
        """Take a step without an estimate of its error."""
        new = self._solve_step(state, u, time_limit)
        if not sensitivities:
            return new
        return replace(new, derivatives=tuple(self._sensitivity(part.w, part.values) for part in new.parts))

    def _solve_step(self, state: SimulatorState, u: Any, time_limit: float | None) -> SimulatorState:
        deadline = deadline_of(time_limit)
        values = self._values(state, u)
        message = ""
        if self._newton_step is not None:
            parts, result = self._by_newton(values, state.hint, 0)
            if result.too_many_events:
                # Counted before cutting: infinitely many events end the simulation, and cutting would never get past
                # them.
                result = self._newton_step.count_events(values, result)
                if result.status is None and MOST_SPLITS:
                    parts, last = self._cut(values, state.hint, MOST_SPLITS, result.share)
                    result = last if parts else result
            if parts:
                return self._advanced(state, parts, result.x, values, hint=result.hint, **result.residuals)
            message = result.message
            # A step with more events than elements has no solution as an MPCC either.
            if result.status is not None or result.too_many_events or self.solver is None:
                return self._failed(state, values, result.status or Status.STEP_FAILED, message=message)
        return self._as_mpcc(state, values, message, deadline)

    def _by_newton(
        self, values: np.ndarray, hint: Hint | None, splits: int
    ) -> tuple[tuple[StepSolution, ...], NewtonResult]:
        """Return the parts of a step (none if it fails) and its last result; cut it up to `splits` times."""
        assert self._newton_step is not None
        result = self._newton_step(values, hint)
        if result.w is not None:
            assert result.elements is not None
            u, p = values[self._slices["u"]], values[self._slices["p"]]
            solved = SolvedPart(elements=result.elements, u=u, p=p)
            return (StepSolution(w=result.w, values=values, solved=solved),), result
        if result.too_many_events and splits:
            return self._cut(values, hint, splits, result.share)
        # Halve a part in which Newton's method fails: on shorter elements a sharp turn turns less.
        if 0 < splits < MOST_SPLITS and result.status is None and splits > COST_OF_FAILURE:
            return self._cut(values, hint, splits - COST_OF_FAILURE, 0.5)
        return (), result

    def _cut(
        self, values: np.ndarray, hint: Hint | None, splits: int, share: float
    ) -> tuple[tuple[StepSolution, ...], NewtonResult]:
        """Solve both parts of a step, the first with this share of its length; return the result of the last part."""
        first, second = values.copy(), values.copy()
        first[self._slices["horizon"]] *= share
        second[self._slices["horizon"]] *= 1.0 - share
        before, result = self._by_newton(first, hint, splits - 1)
        if not before:
            return (), result
        # The left limit: a jump at the cut belongs to the second part.
        second[self._slices["x0"]] = result.x
        after, result = self._by_newton(second, result.hint, splits - 1)
        return (before + after if after else ()), result

    def _as_mpcc(self, state: SimulatorState, values: np.ndarray, message: str, deadline: float) -> SimulatorState:
        """Try each initial guess; if none converges, return the state of least infeasibility."""
        best: SolverState | None = None
        iterations = attempts = 0
        for attempt in self._mpcc_step(values, deadline):
            attempts += 1
            iterations += sum(record.iterations for record in attempt.records)
            if attempt.status is Status.INTERRUPTED or (
                attempt.status is Status.SOLVED and not self._is_no_motion(state, attempt)
            ):
                best = attempt
                break
            # Without a solution the attempt of least infeasibility explains best what is wrong.
            if best is None or attempt.infeasibility < best.infeasibility:
                best = replace(attempt, status=Status.STEP_FAILED)
        assert best is not None
        if best.status is Status.STEP_FAILED and time.monotonic() > deadline:
            best = replace(best, status=Status.TIME_LIMIT)
        residuals: dict[str, Any] = {"complementarity": best.complementarity, "infeasibility": best.infeasibility}
        more: dict[str, Any] = {"attempts": attempts, "iterations": iterations, "message": message, **residuals}
        if best.status is not Status.SOLVED:
            worst = self.problem.solvers.evaluator.worst(best.values, 1)
            late = self.problem.late(best.w)
            reason = f"no guess led to a solution, the best one leaves {worst[0] if worst else best}"
            if best.infeasibility < SOLVED and best.complementarity < SOLVED:
                reason = (
                    "all that was found satisfies every equation and is no motion (a body caught by a force, an event "
                    "between the stages): take more steps, finite elements or RK stages"
                )
            more["message"] = "; ".join(part for part in (message, reason, late) if part)
            return self._failed(state, values, best.status or Status.STEP_FAILED, **more)
        read = self.problem.read(best.w, values)
        if gaining := self._gaining(read, state.p):
            more["message"] = "; ".join(part for part in (message, f"an impact would gain energy at {gaining}") if part)
            return self._failed(state, values, Status.ENERGY_GAIN, **more)
        x = read.x_right[-1]
        return self._advanced(state, (StepSolution(w=best.w, values=values),), x, values, **more)

    def _gaining(self, r: Readout, p: np.ndarray) -> str:
        """Return the contacts of an impact that raises the kinetic energy (refused, see `contact_problems.law`)."""
        if not isinstance(self.system, CLS) or self.problem.dcs.jump is None:
            return ""
        rows = impact_rows(self.problem.dcs, r, p)
        return gaining_contacts(self.system, r.x_minus[rows], r.x_left[rows], p)

    def _is_no_motion(self, state: SimulatorState, result: SolverState) -> bool:
        """Return True if a step that satisfies every equation is no motion.

        A body held by a force, or a missed event.
        """
        r = self.problem.read(result.w, result.p)
        # Contacts closed at the end of the last step: they may not open without a reason in this one.
        before = None if state.readout is None else self._checks.closed(state.readout)[-1]
        u = result.p[self._slices["u"]]
        return bool(self._checks.violations(before, r, u, state.p)) or self._misses_an_impact(r, result)

    def _misses_an_impact(self, r: Readout, result: SolverState) -> bool:
        """Return True if a step of time-freezing has fewer impacts than the same step with jumps.

        In time-freezing an auxiliary motion that does not end can hold a bouncing body: all equations are satisfied.
        """
        predicted = self._predict(result.p)
        if predicted is None:
            return False
        u = self._inputs(result.p, result.w)
        grid = np.array([0.0, self.length])
        own = self.problem.fields_of(r, result.p[self._slices["p"]], u[None], grid)["events"]
        # Slow approaches may end without a rebound, and thus without an impact event.
        fast = [event for event in predicted.impacts if -(event.v_before or 0.0) > REST_VELOCITY]
        return sum(event.kind == "impact" for event in own) < len(fast)

    def _values(self, state: SimulatorState, u: Any) -> np.ndarray:
        """Return the parameters of the MPCC of a step."""
        values, at = self.problem.mpcc.p0.copy(), self._slices
        values[at["x0"]], values[at["p"]] = settled(self.system, state.x, state.p), state.p
        values[at["horizon"]] = self.length
        values[at["u"]] = numbers(0.0 if u is None else u, "u", self.system.n_u)
        return values

    def _advanced(
        self, state: SimulatorState, parts: tuple[StepSolution, ...], x: np.ndarray, values: np.ndarray, **fields: Any
    ) -> SimulatorState:
        """Return the state after a step."""
        # With time-freezing the state of the elements has the clock as an additional component.
        u, x = self._inputs(values, parts[-1].w), x[: len(self.system.state_names)]
        t = next_time(state.t, self.length)
        return SimulatorState(t=t, x=x, p=state.p, problem=self.problem, parts=parts, u=u, **fields)

    def _inputs(self, values: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Return the controls of a step (parameters), and the speed of time if that is an unknown."""
        return np.append(values[self._slices["u"]], self.problem.inputs(w))

    def _failed(self, state: SimulatorState, values: np.ndarray, status: Status, **fields: Any) -> SimulatorState:
        """Return the state of a step that failed, with a message."""
        if status is Status.STEP_FAILED and (lost := self._not_finite(state, values)):
            reason = f"{lost} ahead of t = {state.t:.6g}"
            status, fields["message"] = Status.NUMERICAL_ERROR, "; ".join(filter(None, (reason, fields.get("message"))))
        return SimulatorState(t=state.t, x=state.x, p=state.p, problem=self.problem, status=status, **fields)

    def _not_finite(self, state: SimulatorState, values: np.ndarray) -> str:
        """Return the function that is not finite where the motion leads: the equations of a step have no solution
        there.
        """
        u = values[self._slices["u"]]
        return not_finite(self.system, ahead(self.system, state.x, u, state.p, self.length, AHEAD), u, state.p)

    def run(self, x0: Any, run: SteppedRun) -> Trajectory:
        """Simulate several steps, equally many for each row of the control; see `nosnoc_py.Simulator`."""
        steps, u, p, callback, sensitivities = run.steps, run.u, run.p, run.callback, run.sensitivities
        steps = _count(steps, _rows(u))
        control = control_of(u, self.system.n_u, steps * self.length)
        if sensitivities:
            check_control(control)
        done: list[SimulatorState] = []
        notes: list[tuple[float, str]] = []

        def step(state: SimulatorState) -> SimulatorState:
            k, left = len(done), run.left()
            # In the middle: at the ends of a step the control may jump.
            value = control.reached((k + 0.5) * self.length, state.x)
            if np.isfinite(value).all():
                state = self._step(state, value, left, sensitivities)
            else:
                reason = not_finite_control((k + 0.5) * self.length)
                state = replace(state, status=Status.NUMERICAL_ERROR, message=reason, parts=())
            notes.extend([(k * self.length, state.message)] if state.message else [])
            done.extend([state] if state.parts else [])
            return state

        last = driven(self.init(x0, p), step, lambda state: len(done) == steps, callback, run.deadline)
        status, reason = self._inaccuracy(done, last.status, _rows(u))
        trajectory = self._trajectory(
            replace(last, status=status), done, notes, _mismatch(control, self.length) + reason
        )
        if not sensitivities:
            return trajectory
        chain = self._sensitivity.chain([part for step in done for part in step.derivatives])
        if self.problem.dcs.unit_parts or self.system.bilateral is not None:
            first = self.init(x0, p)
            chain = chain.of_directions(admissible_directions(self.system, first.x, first.p))
        return replace(trajectory, sensitivity=chain)

    def _inaccuracy(self, done: list[SimulatorState], status: Status, rows: int) -> tuple[Status, list[str]]:
        """Return the status of several steps by their errors, and messages about them."""
        solved = [step.solved for step in done]
        if self._accuracy is None or not any(solved):
            return status, []
        every = [part for step in solved for part in step]
        x0 = done[0].parts[0].values[self._slices["x0"]][: len(self.system.state_names)]
        errors = self._accuracy(solved, self._accuracy.sizes(x0, every))
        if not self._accuracy.is_missed(errors.share):
            return status, []
        reason = [self._accuracy.message(errors, self.length, rows)]
        return Status.INACCURATE if status is Status.SOLVED else status, reason

    def _trajectory(
        self, state: SimulatorState, done: list[SimulatorState], notes: list[tuple[float, str]], more: list[str]
    ) -> Trajectory:
        """Return the trajectory of all steps."""
        system, problem = self.system, self.problem
        parameters = dict(zip(system.parameter_names, state.p, strict=True))
        fields: dict[str, Any] = {"parameters": parameters, "status": state.status}
        later = None
        if done:
            # Ends of all parts, counted back from the end of their step.
            ends = [step.t - np.cumsum([0.0, *step.lengths[:0:-1]])[::-1] for step in done]
            u_grid = np.concatenate([[0.0], *ends])
            rows = [step.u for step in done for _ in step.parts]
            u = np.array(rows).reshape(len(rows), len(problem.dcs.u_names))
            elements = Readout.join([step.readout for step in done if step.readout is not None])
            fields |= problem.fields_of(elements, state.p, u, u_grid)
            later = _later(problem, elements, state.p)
        else:
            fields |= {"t": np.zeros(1), "x": state.x[None, :], "u_grid": np.zeros(1), "u": np.zeros((0, system.n_u))}
            fields |= {"state_names": system.state_names, "control_names": system.control_names}
        more = more + no_time_note(state.status, len(done))
        return Trajectory(**fields, message=message_of([_message(notes, not state.parts, more)], later))


@dataclass(frozen=True)
class FiniteElementRun:
    """Solution and simulation by finite elements; their options are defined in a lower layer."""

    method: FiniteElementMethod

    def solve(
        self,
        ocp: OCP,
        solver: Strategy | None = None,
        *,
        guess: Any = None,
        callback: Callback | None = None,
        time_limit: float | None = None,
    ) -> Solution:
        """Transcribe and solve an OCP; see `nosnoc_py.solve`."""
        solver = Auto() if solver is None else solver
        check_type(solver, Strategy, "solver")
        problem = transcribe(ocp, self.method)
        deadline = deadline_of(time_limit)

        def once(start: Any, *, near: bool, by: Strategy = solver) -> Solution:
            left = None if time_limit is None else max(0.0, deadline - time.monotonic())
            return problem.solve(by, guess=start, callback=callback, time_limit=left, near=near, nearby=nearby)

        problem.initial_guess(guess)  # says what is wrong with it

        def nearby(failed: Solution) -> Trajectory | None:
            simulated = simulated_guess(ocp, failed, deadline)
            return None if simulated is None else simulated.motion

        first = once(guess, near=False) if guess is None or keeps_its_iterate(problem, guess) else None
        if first is not None and (guess is None or first.success or first.status in ENDED):
            return first
        return started_near(ocp, guess, once, patient=isinstance(solver, Auto), deadline=deadline, first=first)

    def simulate(self, system: Described, task: SimulationTask) -> Trajectory:
        """Simulate a system; see `nosnoc_py.simulate`."""
        method = self.method
        control = control_of(task.u, system.n_u, task.seconds)
        length, count = _steps(task, control)
        # Rest velocities are relative to the speed of this motion, as in the other simulation methods.
        if isinstance(method, FESDJ) and isinstance(system, CLS) and method.rest_velocity is None:
            start, parameters, _ = task.start(system)
            scales = problem_scales(system, x0=start, control=control, p=parameters, duration=task.seconds)
            method = method.replace(rest_velocity=scales.rest_velocity(None))
        arguments = {name: getattr(task, name) for name in ("u", "p", "callback", "sensitivities")}
        stepper = FiniteElementStepper(system, method, step=length, solver=task.solver)
        return stepper.run(task.x0, SteppedRun(steps=count, deadline=task.deadline(), **arguments))

    def stepper(self, system: Described, length: float, solver: Any = None) -> FiniteElementStepper:
        """Return a stepper with equal steps; see `nosnoc_py.Simulator`."""
        return FiniteElementStepper(system, self.method, step=length, solver=solver)


def _message(notes: list[tuple[float, str]], failed: bool, more: list[str]) -> str:
    """Return the message of a simulation: steps solved as MPCC, reason of a failure, and other notes."""
    solved = notes[:-1] if failed and notes else notes
    reason = []
    if solved:
        times = [f"{time:.6g}" for time, _ in solved[:MOST_LISTED]]
        times += [f"and {len(solved) - MOST_LISTED} more"] if len(solved) > MOST_LISTED else []
        plural = "s" if len(solved) > 1 else ""
        reason.append(f"{len(solved)} step{plural} solved as MPCC (t = {', '.join(times)}: {solved[-1][1]})")
    if failed and notes:
        reason.append(f"t = {notes[-1][0]:.6g}: {notes[-1][1]}")
    return "; ".join(reason + more)


def _rows(u: Any) -> int:
    """Return the number of rows of a control that is an array with one row per interval, else 1."""
    return len(u) if isinstance(u, np.ndarray | list | tuple) and np.ndim(u) == 2 else 1


def _steps(task: SimulationTask, control: Control) -> tuple[float, int]:
    """Return length and number of the steps; by default a multiple of the intervals of the control."""
    lengths = np.diff(control.breaks)
    fits = len(lengths) if np.allclose(lengths, lengths[0], rtol=1e-9, atol=0.0) else 1
    # About 50 steps per second, at least 20, rounded up to a multiple of the control's intervals.
    usual = fits * -(-max(20, round(50 * task.seconds)) // fits)
    count = _count(usual if task.steps is None else task.steps, _rows(task.u))
    return task.seconds / count, count


def _mismatch(control: Control, length: float) -> list[str]:
    """Return a note about a control that jumps inside of steps, or none."""
    inner = control.breaks[1:-1]
    away = np.abs(inner / length - np.round(inner / length))
    inside = [
        float(t)
        # A break at which the value does not change does no harm inside a step.
        for t in inner[away > 1e-6]
        if not np.array_equal(control(t, np.zeros(0)), control(t - 1e-9 * length, np.zeros(0)))
    ]
    if not inside:
        return []
    return [
        f"the control jumps inside of steps, first at t = {inside[0]:.6g}: its value at the middle of a step is held "
        "on all of it; take a multiple of its intervals as steps"
    ]


def _count(steps: Any, rows: int) -> int:
    """Return a number of steps that is a multiple of the rows of a control."""
    count = steps_given(steps)
    if rows < 1 or count % rows:
        raise OptionError(f"steps: expected a multiple of the {rows} rows of the control, given {steps!r}.")
    return count


def _later(problem: Transcription, r: Readout, p: np.ndarray) -> Callable[[], list[str]] | None:
    """Return the function of a note about impacts with other admissible outcomes, None where nothing jumps."""
    if problem.dcs.jump is None:
        return None
    system, rows, rest = problem.ocp.system, impact_rows(problem.dcs, r, p), rest_velocity_of
    rest_velocity, before = rest(problem.fesdj, simulation=True), r.x_minus[rows]
    times = (np.cumsum(r.h) - r.h)[rows]  # impacts happen at the left ends of elements
    return lambda: not_unique_note(times[several_outcomes(system, before, p, rest_velocity)].tolist())
