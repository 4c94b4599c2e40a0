"""Simulation by finite elements, step by step: by active-set Newton, and as an MPCC where that fails; or as MPCCs."""

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
from nosnoc_py.systems.quaternions import tangent_directions
from nosnoc_py.systems.scales import problem_scales
from nosnoc_py.systems.symbols import numbers
from nosnoc_py.systems.unsigned import refuse_unsigned
from nosnoc_py.tolerances import REST_VELOCITY
from nosnoc_py.transcription import Transcription, rest_velocity_of, transcribe, transcribe_step
from nosnoc_py.transcription.guesses import keeps_its_iterate

# So often a step with more switches than elements is cut in two.
MOST_SPLITS = 100
# A failure counts like so many of them.
FAILED = 12
# Places ahead of a failed step where gaps are looked at.
AHEAD = 5
# So many steps that fell back are listed by their times.
MOST_LISTED = 20
# Single steps are judged together: the estimates of so many take little longer than one.
JUDGED = 8
# Residuals below this are no reason for a step to fail.
SOLVED = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class StepSolution:
    """A solution of the equations of a step: w (n_w,) at the parameters (n_values,) of its MPCC.

    `solved` are its elements as Newton's method found them, for the estimate of their error.
    """

    w: np.ndarray
    values: np.ndarray
    solved: SolvedPart | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatorState(StepState):
    """Where a simulation stands: time, state, parameters, and what the last step was.

    `x` is the left limit at t: an impact exactly at t happens in the next step. `attempts` are the initial guesses of
    the MPCC tried in the last step, 0 when Newton's method did it alone; `iterations` are NLP iterations; the residuals
    are those of the unrelaxed equations.

    Attributes
    ----------
    problem : Transcription
        Of one step.
    parts : tuple of StepSolution
        The last step: one part, or several where it had more switches than elements; none before the first step and
        after one that failed.
    u : (n_u,) or None
        Controls of the last step, with time-freezing also the speed of time.
    derivatives : tuple of StepDerivative
        Of the parts, where they were asked for; `sensitivity` is that of the whole step.
    hint : Hint or None
        Modes at the end of the last step, where Newton's method did it.
    error : float
        Of discretisation, the largest one of the steps judged last: a share of the motion so far (option
        `error_tolerance`). The first step is judged at once, the others eight by eight.
    sizes : (n_x,) or None
        Of the motion so far, which the error is a share of.
    unjudged : tuple
        Parts of the steps since.
    message : str
        Why Newton's method gave up, if it did, or how large the error of the step is where it is too large.
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
        """The parts of the last step that Newton's method solved."""
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
        """Of the parts [s]."""
        rows = self.problem.mpcc.parameters["horizon"]
        return tuple(float(part.values[rows][0]) for part in self.parts)

    @cached_property
    def readout(self) -> Readout | None:
        """Finite elements of the last step, with time-freezing on the clock of the whole simulation."""
        if not self.parts:
            return None
        found = Readout.join([self.problem.read(part.w, part.values) for part in self.parts])
        return found.later(self.t - sum(self.lengths), self.x.size)

    @property
    def sensitivity(self) -> StepDerivative | None:
        """Derivatives of x by the x, u and p with which the last step began."""
        return chained(self.derivatives) if self.derivatives else None


class FiniteElementStepper:
    """Steps of equal length of one system by one method; everything is built once.

    Every step is first solved by the active-set Newton method and certified on the residuals of the unrelaxed
    finite-element equations; where that fails, it is solved as an MPCC. A method that Newton's does not fit
    (time-freezing, fixed steps, a friction cone that is not Coulomb's, a scheme that is neither Radau IIA nor
    Gauss-Legendre) is solved as an MPCC throughout.

    Parameters
    ----------
    system : CLS, PSS, Heaviside or PDS
    method : FESDJ, TimeFreezing or FESD
        `finite_elements`, `rk_stages`, `scheme` and so on; `control_stages` has no meaning here.
    step : float
        Length of a step [s].
    solver : ActiveSetNewton, Homotopy, ActiveSet or Auto, optional
        Default `ActiveSetNewton()`, where it fits the method; another one solves every step as an MPCC.

    Raises
    ------
    OptionError
        For a step that is no positive length, or `ActiveSetNewton` for a method that it does not fit.
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
        """Steps of time-freezing start from what the same elements with jumps, and Newton's method, make of them."""
        if not self.problem.discretization.time_freezing:
            return lambda values: None
        options = self.problem.fesd
        fits = next((scheme for scheme in SCHEMES if scheme == options.scheme), SCHEMES[0])
        jumps = FESDJ(finite_elements=options.finite_elements, rk_stages=options.rk_stages, scheme=fits)
        simulator = FiniteElementStepper(self.system, jumps, step=self.length, solver=ActiveSetNewton(fallback=False))

        def predict(values: np.ndarray) -> Trajectory | None:
            x, p, u = (values[self._slices[name]] for name in ("x0", "p", "u"))
            found = simulator.step(SimulatorState(t=0.0, x=x, p=p, problem=simulator.problem), u)
            if found.readout is None or found.u is None:
                return None
            grid = np.array([0.0, self.length])
            return Trajectory(**simulator.problem.fields_of(found.readout, found.p, found.u[None], grid))

        return predict

    def init(self, x0: Any, p: Any = None) -> SimulatorState:
        """The state at t = 0; raises `ModelError` when x0 has the wrong shape or penetrates a contact."""
        parameters = self.system.parameters(p)
        return SimulatorState(t=0.0, x=self.system.check_state(x0, parameters), p=parameters, problem=self.problem)

    @cached_property
    def _sensitivity(self) -> StepSensitivity:
        return StepSensitivity(self.problem)

    def step(
        self, state: SimulatorState, u: Any = None, *, time_limit: float | None = None, sensitivities: bool = False
    ) -> SimulatorState:
        """One step with constant control u; a step that fails has its status and leaves t and x where they were.

        With `sensitivities` the new state has the derivatives of its x with respect to the x, u and p of this step, by
        the implicit function theorem.
        """
        found = self._step(state, u, time_limit, sensitivities)
        if self._accuracy is None or not found.solved:
            return found
        found = replace(found, unjudged=(*state.unjudged, found.solved), sizes=state.sizes, error=state.error)
        return self._judged(state.x, found) if state.t == 0.0 or len(found.unjudged) >= JUDGED else found

    def _judged(self, x: np.ndarray, state: SimulatorState) -> SimulatorState:
        """The state with the largest error of its last steps, and a status where that is too large."""
        assert self._accuracy is not None
        sizes = self._accuracy.sizes(x, [part for step in state.unjudged for part in step])
        sizes = sizes if state.sizes is None else np.maximum(sizes, state.sizes)
        errors = self._accuracy(state.unjudged, sizes)
        worst = int(np.argmax(errors.shares))
        fields: dict[str, Any] = {"unjudged": (), "sizes": sizes, "error": float(errors.shares[worst])}
        if self._accuracy.is_missed(fields["error"]):
            at = state.t - (len(state.unjudged) - worst) * self.length
            said = self._accuracy.said_of_step(fields["error"], at, self.length)
            fields |= {"status": Status.INACCURATE, "message": "; ".join(filter(None, (state.message, said)))}
        return replace(state, **fields)

    def _step(self, state: SimulatorState, u: Any, time_limit: float | None, sensitivities: bool) -> SimulatorState:
        """A step without an estimate of its error."""
        found = self._stepped(state, u, time_limit)
        if not sensitivities:
            return found
        return replace(found, derivatives=tuple(self._sensitivity(part.w, part.values) for part in found.parts))

    def _stepped(self, state: SimulatorState, u: Any, time_limit: float | None) -> SimulatorState:
        deadline = deadline_of(time_limit)
        values = self._values(state, u)
        message = ""
        if self._newton_step is not None:
            parts, found = self._by_newton(values, state.hint, 0)
            if found.too_many_events:
                found = self._newton_step.count_events(values, found)
                if found.status is None and MOST_SPLITS:
                    parts, last = self._cut(values, state.hint, MOST_SPLITS, found.share)
                    found = last if parts else found
            if parts:
                return self._advanced(state, parts, found.x, values, hint=found.hint, **found.residuals)
            message = found.message
            # What has more switches than elements is nothing for an MPCC either.
            if found.status is not None or found.too_many_events or self.solver is None:
                return self._failed(state, values, found.status or Status.STEP_FAILED, message=message)
        return self._as_mpcc(state, values, message, deadline)

    def _by_newton(
        self, values: np.ndarray, hint: Hint | None, splits: int
    ) -> tuple[tuple[StepSolution, ...], NewtonResult]:
        """A step with its parts, none where it fails; one with more switches than elements may be cut so often."""
        assert self._newton_step is not None
        found = self._newton_step(values, hint)
        if found.w is not None:
            assert found.elements is not None
            u, p = values[self._slices["u"]], values[self._slices["p"]]
            solved = SolvedPart(elements=found.elements, u=u, p=p)
            return (StepSolution(w=found.w, values=values, solved=solved),), found
        if found.too_many_events and splits:
            return self._cut(values, hint, splits, found.share)
        # A part in which Newton's method fails is halved: on shorter elements what turns sharply turns less.
        if 0 < splits < MOST_SPLITS and found.status is None and splits > FAILED:
            return self._cut(values, hint, splits - FAILED, 0.5)
        return (), found

    def _cut(
        self, values: np.ndarray, hint: Hint | None, splits: int, share: float
    ) -> tuple[tuple[StepSolution, ...], NewtonResult]:
        """Both parts of a step, the first one with this share of its length; the result is that of the last part."""
        first, second = values.copy(), values.copy()
        first[self._slices["horizon"]] *= share
        second[self._slices["horizon"]] *= 1.0 - share
        before, found = self._by_newton(first, hint, splits - 1)
        if not before:
            return (), found
        second[self._slices["x0"]] = found.x
        after, found = self._by_newton(second, found.hint, splits - 1)
        return (before + after if after else ()), found

    def _as_mpcc(self, state: SimulatorState, values: np.ndarray, message: str, deadline: float) -> SimulatorState:
        """Try every guess; keep the best of what is no solution."""
        best: SolverState | None = None
        iterations = attempts = 0
        for found in self._mpcc_step(values, deadline):
            attempts += 1
            iterations += sum(record.iterations for record in found.records)
            if found.status is Status.INTERRUPTED or (
                found.status is Status.SOLVED and not self._is_wrong(state, found)
            ):
                best = found
                break
            if best is None or found.infeasibility < best.infeasibility:
                best = replace(found, status=Status.STEP_FAILED)
        assert best is not None
        if best.status is Status.STEP_FAILED and time.monotonic() > deadline:
            best = replace(best, status=Status.TIME_LIMIT)
        residuals: dict[str, Any] = {"complementarity": best.complementarity, "infeasibility": best.infeasibility}
        more: dict[str, Any] = {"attempts": attempts, "iterations": iterations, "message": message, **residuals}
        if best.status is not Status.SOLVED:
            worst = self.problem.solvers.evaluator.worst(best.values, 1)
            late = self.problem.late(best.w)
            said = f"no guess led to a solution, the best one leaves {worst[0] if worst else best}"
            if best.infeasibility < SOLVED and best.complementarity < SOLVED:
                said = (
                    "all that was found satisfies every equation and is no motion (a body caught by a force, an event "
                    "between the stages): take more steps, finite elements or RK stages"
                )
            more["message"] = "; ".join(part for part in (message, said, late) if part)
            return self._failed(state, values, best.status or Status.STEP_FAILED, **more)
        read = self.problem.read(best.w, values)
        if gaining := self._gaining(read, state.p):
            more["message"] = "; ".join(part for part in (message, f"an impact would gain energy at {gaining}") if part)
            return self._failed(state, values, Status.ENERGY_GAIN, **more)
        x = read.x_right[-1]
        return self._advanced(state, (StepSolution(w=best.w, values=values),), x, values, **more)

    def _gaining(self, r: Readout, p: np.ndarray) -> str:
        """Closed contacts of an impact that raises the kinetic energy, which is refused (`contact_problems.law`)."""
        if not isinstance(self.system, CLS) or self.problem.dcs.jump is None:
            return ""
        rows = impact_rows(self.problem.dcs, r, p)
        return gaining_contacts(self.system, r.x_minus[rows], r.x_left[rows], p)

    def _is_wrong(self, state: SimulatorState, found: SolverState) -> bool:
        """Whether a step that satisfies every equation is none: a body caught by a force, or a missed event."""
        r = self.problem.read(found.w, found.p)
        before = None if state.readout is None else self._checks.closed(state.readout)[-1]
        u = found.p[self._slices["u"]]
        return bool(self._checks.violations(before, r, u, state.p)) or self._contradicts(r, found)

    def _contradicts(self, r: Readout, found: SolverState) -> bool:
        """Whether a step of time-freezing has fewer impacts than the same step with jumps.

        A body that bounces may also be caught: what holds it down is an auxiliary motion that does not end.
        """
        predicted = self._predict(found.p)
        if predicted is None:
            return False
        u = self._inputs(found.p, found.w)
        grid = np.array([0.0, self.length])
        own = self.problem.fields_of(r, found.p[self._slices["p"]], u[None], grid)["events"]
        fast = [event for event in predicted.impacts if -(event.v_before or 0.0) > REST_VELOCITY]
        return sum(event.kind == "impact" for event in own) < len(fast)

    def _values(self, state: SimulatorState, u: Any) -> np.ndarray:
        values, at = self.problem.mpcc.p0.copy(), self._slices
        values[at["x0"]], values[at["p"]] = state.x, state.p
        values[at["horizon"]] = self.length
        values[at["u"]] = numbers(0.0 if u is None else u, "u", self.system.n_u)
        return values

    def _advanced(
        self, state: SimulatorState, parts: tuple[StepSolution, ...], x: np.ndarray, values: np.ndarray, **fields: Any
    ) -> SimulatorState:
        u, x = self._inputs(values, parts[-1].w), x[: len(self.system.state_names)]
        t = next_time(state.t, self.length)
        return SimulatorState(t=t, x=x, p=state.p, problem=self.problem, parts=parts, u=u, **fields)

    def _inputs(self, values: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Controls of a step, which are parameters, and the speed of time, where that is an unknown."""
        return np.append(values[self._slices["u"]], self.problem.inputs(w))

    def _failed(self, state: SimulatorState, values: np.ndarray, status: Status, **fields: Any) -> SimulatorState:
        if status is Status.STEP_FAILED and (lost := self._not_finite(state, values)):
            said = f"{lost} ahead of t = {state.t:.6g}"
            status, fields["message"] = Status.NUMERICAL_ERROR, "; ".join(filter(None, (said, fields.get("message"))))
        return SimulatorState(t=state.t, x=state.x, p=state.p, problem=self.problem, status=status, **fields)

    def _not_finite(self, state: SimulatorState, values: np.ndarray) -> str:
        """The function that is no number where the motion leads in a step: no equations of a step hold there."""
        u = values[self._slices["u"]]
        return not_finite(self.system, ahead(self.system, state.x, u, state.p, self.length, AHEAD), u, state.p)

    def run(self, x0: Any, run: SteppedRun) -> Trajectory:
        """Simulate some steps, as many for every row of the control; see `nosnoc_py.Simulator`."""
        steps, u, p, callback, sensitivities = run.steps, run.u, run.p, run.callback, run.sensitivities
        steps = _count(steps, _rows(u))
        control = control_of(u, self.system.n_u, steps * self.length)
        if sensitivities:
            check_control(control)
        done: list[SimulatorState] = []
        notes: list[tuple[float, str]] = []

        def step(state: SimulatorState) -> SimulatorState:
            k, left = len(done), run.left()
            value = control.reached((k + 0.5) * self.length, state.x)
            if np.isfinite(value).all():
                state = self._step(state, value, left, sensitivities)
            else:
                said = not_finite_control((k + 0.5) * self.length)
                state = replace(state, status=Status.NUMERICAL_ERROR, message=said, parts=())
            notes.extend([(k * self.length, state.message)] if state.message else [])
            done.extend([state] if state.parts else [])
            return state

        last = driven(self.init(x0, p), step, lambda state: len(done) == steps, callback, run.deadline)
        status, said = self._inaccuracy(done, last.status, _rows(u))
        trajectory = self._trajectory(replace(last, status=status), done, notes, _mismatch(control, self.length) + said)
        if not sensitivities:
            return trajectory
        chain = self._sensitivity.chain([part for step in done for part in step.derivatives])
        if units := self.problem.dcs.unit_parts:
            chain = chain.of_directions(tangent_directions(self.init(x0, p).x, units))
        return replace(trajectory, sensitivity=chain)

    def _inaccuracy(self, done: list[SimulatorState], status: Status, rows: int) -> tuple[Status, list[str]]:
        """The status of some steps by their errors, and what is said about them."""
        solved = [step.solved for step in done]
        if self._accuracy is None or not any(solved):
            return status, []
        every = [part for step in solved for part in step]
        x0 = done[0].parts[0].values[self._slices["x0"]][: len(self.system.state_names)]
        errors = self._accuracy(solved, self._accuracy.sizes(x0, every))
        if not self._accuracy.is_missed(errors.share):
            return status, []
        said = [self._accuracy.said(errors, self.length, rows)]
        return Status.INACCURATE if status is Status.SOLVED else status, said

    def _trajectory(
        self, state: SimulatorState, done: list[SimulatorState], notes: list[tuple[float, str]], more: list[str]
    ) -> Trajectory:
        """What the steps make together."""
        system, problem = self.system, self.problem
        parameters = dict(zip(system.parameter_names, state.p, strict=True))
        fields: dict[str, Any] = {"parameters": parameters, "status": state.status}
        if done:
            # Ends of all parts; those of a step are counted from its own end.
            ends = [step.t - np.cumsum([0.0, *step.lengths[:0:-1]])[::-1] for step in done]
            u_grid = np.concatenate([[0.0], *ends])
            rows = [step.u for step in done for _ in step.parts]
            u = np.array(rows).reshape(len(rows), len(problem.dcs.u_names))
            elements = Readout.join([step.readout for step in done if step.readout is not None])
            fields |= problem.fields_of(elements, state.p, u, u_grid)
            more = more + not_unique_note(_several(problem, elements, state.p))
        else:
            fields |= {"t": np.zeros(1), "x": state.x[None, :], "u_grid": np.zeros(1), "u": np.zeros((0, system.n_u))}
            fields |= {"state_names": system.state_names, "control_names": system.control_names}
        more = more + no_time_note(state.status, len(done))
        return Trajectory(**fields, message=_told(notes, not state.parts, more))


@dataclass(frozen=True)
class FiniteElementRun:
    """Solves and simulates by finite elements: their options are in a room below those that do the work."""

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
        """Transcribe and solve; see `nosnoc_py.solve`."""
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
        """A simulator, and its run; see `nosnoc_py.simulate`."""
        method = self.method
        control = control_of(task.u, system.n_u, task.seconds)
        length, count = _steps(task, control)
        if isinstance(method, FESDJ) and isinstance(system, CLS) and method.rest_velocity is None:
            start, parameters, _ = task.start(system)
            scales = problem_scales(system, x0=start, control=control, p=parameters, duration=task.seconds)
            method = method.replace(rest_velocity=scales.rest_velocity(None))
        asked = {name: getattr(task, name) for name in ("u", "p", "callback", "sensitivities")}
        stepper = FiniteElementStepper(system, method, step=length, solver=task.solver)
        return stepper.run(task.x0, SteppedRun(steps=count, deadline=task.deadline(), **asked))

    def stepper(self, system: Described, length: float, solver: Any = None) -> FiniteElementStepper:
        """Steps of equal length; see `nosnoc_py.Simulator`."""
        return FiniteElementStepper(system, self.method, step=length, solver=solver)


def _told(notes: list[tuple[float, str]], failed: bool, more: list[str]) -> str:
    """The steps Newton's method left to the MPCC, why the last one failed, and what else there is to say."""
    solved = notes[:-1] if failed and notes else notes
    said = []
    if solved:
        times = [f"{time:.6g}" for time, _ in solved[:MOST_LISTED]]
        times += [f"and {len(solved) - MOST_LISTED} more"] if len(solved) > MOST_LISTED else []
        plural = "s" if len(solved) > 1 else ""
        said.append(f"{len(solved)} step{plural} solved as MPCC (t = {', '.join(times)}: {solved[-1][1]})")
    if failed and notes:
        said.append(f"t = {notes[-1][0]:.6g}: {notes[-1][1]}")
    return "; ".join(said + more)


def _rows(u: Any) -> int:
    """Number of rows of a control that is an array with one row per interval, else 1."""
    return len(u) if isinstance(u, np.ndarray | list | tuple) and np.ndim(u) == 2 else 1


def _steps(task: SimulationTask, control: Control) -> tuple[float, int]:
    """Length and number of the steps; by default a multiple of the intervals of the control, if these are equal."""
    lengths = np.diff(control.breaks)
    fits = len(lengths) if np.allclose(lengths, lengths[0], rtol=1e-9, atol=0.0) else 1
    usual = fits * -(-max(20, round(50 * task.seconds)) // fits)
    count = _count(usual if task.steps is None else task.steps, _rows(task.u))
    return task.seconds / count, count


def _mismatch(control: Control, length: float) -> list[str]:
    """A word about a control that jumps inside of steps, or none."""
    inner = control.breaks[1:-1]
    away = np.abs(inner / length - np.round(inner / length))
    inside = [
        float(t)
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
    """A number of steps that fits to a control with so many rows."""
    count = steps_given(steps)
    if rows < 1 or count % rows:
        raise OptionError(f"steps: expected a multiple of the {rows} rows of the control, given {steps!r}.")
    return count


def _several(problem: Transcription, r: Readout, p: np.ndarray) -> list[float]:
    """Times [s] of impacts that admit other outcomes."""
    system = problem.ocp.system
    if problem.dcs.jump is None:
        return []
    rows = impact_rows(problem.dcs, r, p)
    found = several_outcomes(system, r.x_minus[rows], p, rest_velocity_of(problem.fesdj, simulation=True))
    return (np.cumsum(r.h) - r.h)[rows[found]].tolist()
