"""Simulation by the same finite elements: one small MPCC per step, several initial guesses, then the polish."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nosnoc_py.discretization.guess import control_guess
from nosnoc_py.discretization.options import FESDJ
from nosnoc_py.discretization.readout import Readout, trajectory_fields
from nosnoc_py.errors import OptionError, check_type
from nosnoc_py.mpcc.homotopy import Homotopy, HomotopyState
from nosnoc_py.mpcc.strategy import SolverState, Strategy, asked_to_stop
from nosnoc_py.simulation.prediction import Pattern, Predictor
from nosnoc_py.solution import Trajectory
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.symbols import numbers, scalar
from nosnoc_py.transcription import transcribe_step

SIMULATION_SOLVER = Homotopy(
    steering="direct", sigma_min=1e-12, complementarity_tolerance=1e-10, infeasibility_tolerance=1e-9
)


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatorState:
    """Where a simulation stands: time, state, parameters, and what the last step was.

    Attributes
    ----------
    t : float
    x : (n_x,)
        Left limit at t: an impact exactly at t happens in the next step.
    p : (n_p,)
    status : Status
        Of the last step.
    readout : Readout or None
        Finite elements of the last step.
    attempts : int
        Initial guesses tried in the last step; 0 when nothing switched and Newton's method did it alone.
    iterations : int
        NLP iterations of the last step.
    complementarity, infeasibility : float
        Residuals of the last step.
    """

    t: float
    x: np.ndarray
    p: np.ndarray
    status: Status = Status.SOLVED
    readout: Readout | None = None
    attempts: int = 0
    iterations: int = 0
    complementarity: float = 0.0
    infeasibility: float = 0.0


class Simulator:
    """Steps of equal length of one system by one method; the program is built once.

    Parameters
    ----------
    system : CLS
    method : FESDJ
        `finite_elements`, `rk_stages`, `scheme` and so on; `control_stages` has no meaning here.
    step : float
        Length of a step [s].
    solver : Homotopy, ActiveSet or Auto, optional
        Of the steps that Newton's method does not carry; default a homotopy with tight tolerances.
    """

    def __init__(
        self, system: CLS, method: FESDJ | None = None, *, step: float, solver: Strategy | None = None
    ) -> None:
        if not 0 < float(step) < np.inf:
            raise OptionError(f"step: expected a positive finite length, given {step!r}.")
        self.system, self.length = system, float(step)
        self.solver = SIMULATION_SOLVER if solver is None else solver
        check_type(self.solver, Strategy, "solver")
        self._homotopy = self.solver if isinstance(self.solver, Homotopy) else SIMULATION_SOLVER
        self.problem = transcribe_step(system, FESDJ() if method is None else method)
        self._solvers = self.problem.solvers
        self._predictor = Predictor(self.problem)

    def init(self, x0: Any, p: Any = None) -> SimulatorState:
        """The state at t = 0; raises `ModelError` when x0 has the wrong shape or penetrates a contact."""
        parameters = self.system.p_default if p is None else numbers(p, "p", self.system.n_p)
        return SimulatorState(t=0.0, x=self.system.check_state(x0, parameters), p=parameters)

    def step(self, state: SimulatorState, u: Any = None) -> SimulatorState:
        """One step with constant control u; a step that fails has its status and leaves t and x where they were.

        First Newton's method on predicted active sets (no homotopy at all when the prediction holds; not with
        `finish="none"`), then the solver from the predictions and from cold starts.
        """
        values = self._values(state, u)
        guesses: list[np.ndarray] = []
        if self._homotopy.finish == "active_set":
            found = self._by_newton(state, values, guesses)
            if found is not None:
                return self._advance(state, found, 0, 0)
        best: SolverState | None = None
        iterations = 0
        for attempt, (w, sigma) in enumerate(self._guesses(state, values, guesses), start=1):
            found = self.solver.run(self.problem.mpcc, w, values, solvers=self._solvers, sigma=sigma)
            iterations += sum(record.iterations for record in found.records)
            if found.status is Status.INTERRUPTED:
                return self._advance(state, found, attempt, iterations)
            if found.status is Status.SOLVED and not self._is_wrong(state, found):
                return self._advance(state, found, attempt, iterations)
            if best is None or found.infeasibility < best.infeasibility:
                best = found
        assert best is not None
        return self._advance(state, replace(best, status=Status.STEP_FAILED), attempt, iterations)

    def _by_newton(self, state: SimulatorState, values: np.ndarray, guesses: list[np.ndarray]) -> HomotopyState | None:
        """Try predicted patterns, each with one event more than the last; collect their iterates as guesses."""
        p, u = state.p, values[self.problem.mpcc.parameters["u"]]
        patterns = [self._predictor.start(state.x, u, p, _closed_before(state))]
        for node in range(1, self._predictor.count + 1):
            further: list[Pattern] = []
            for pattern in patterns:
                w = self._predictor.iterate(pattern, values)
                if not np.isfinite(w).all():
                    continue
                guesses.append(w)
                found = self._homotopy.finish_only(self._solvers, w, values)
                if not np.isfinite(found.w).all():
                    continue
                if found.finished and not self._is_wrong(state, found):
                    return found
                readout = self.problem.read(found.w, values)
                violation = self._predictor.violation(pattern, readout, p, node - 1)
                if violation is not None and node < self._predictor.count:
                    further += self._predictor.next_events(pattern, violation, readout, u, p, node)
            patterns = further
        return None

    def _is_wrong(self, state: SimulatorState, found: SolverState) -> bool:
        """Whether a step that satisfies every equation is none: a body caught by a force, or a missed event."""
        return self._catches(state, found) or self._predictor.penetrates(self.problem.read(found.w, found.p), state.p)

    def _catches(self, state: SimulatorState, found: SolverState) -> bool:
        readout = self.problem.read(found.w, found.p)
        u = found.p[self.problem.mpcc.parameters["u"]]
        return self._predictor.catches(_closed_before(state), readout, u, state.p)

    def _values(self, state: SimulatorState, u: Any) -> np.ndarray:
        layout = self.problem.mpcc.parameters
        values = self.problem.mpcc.p0.copy()
        values[layout["x0"]], values[layout["p"]] = state.x, state.p
        values[layout["horizon"]] = self.length
        values[layout["u"]] = numbers(0.0 if u is None else u, "u", self.system.n_u)
        return values

    def _guesses(
        self, state: SimulatorState, values: np.ndarray, predicted: list[np.ndarray]
    ) -> Iterator[tuple[np.ndarray, float]]:
        """Initial guesses and first relaxation parameters.

        The predictions, the latest first, from a small sigma (a large one forgets them) and from sigma_0, then states
        at x0 with zeros and with ones.
        """
        if not predicted:
            self._by_newton(state, values, predicted)
        sigma = self._homotopy.sigma_0
        for w in reversed(predicted):
            yield w, max(1e-2 * sigma, self._homotopy.sigma_min)
            yield w, sigma
        rest = self.problem.initial_guess(None, values)
        yield rest, sigma
        yield np.where(self.problem.mpcc.w0 == 0.0, 1.0, rest), sigma

    def _advance(self, state: SimulatorState, found: SolverState, attempts: int, iterations: int) -> SimulatorState:
        readout = self.problem.read(found.w, found.p)
        done = found.status is Status.SOLVED
        return SimulatorState(
            t=state.t + self.length if done else state.t,
            x=readout.x_right[-1] if done else state.x,
            p=state.p,
            status=found.status or Status.STEP_FAILED,
            readout=readout if done else None,
            attempts=attempts,
            iterations=iterations,
            complementarity=found.complementarity,
            infeasibility=found.infeasibility,
        )


def _closed_before(state: SimulatorState) -> np.ndarray | None:
    """Which pairs were closed in the last element before the state, if there was one."""
    return None if state.readout is None else state.readout.closed[-1].astype(bool)


def run(
    system: CLS,
    *,
    x0: Any,
    duration: float,
    method: FESDJ | None,
    steps: int | None,
    u: Any,
    p: Any,
    solver: Strategy | None,
    callback: Callable[[SimulatorState], Any] | None,
    time_limit: float | None,
) -> Trajectory:
    """A loop over `Simulator.step`; see `nosnoc_py.simulate`."""
    method = FESDJ() if method is None else method
    length, count = _steps(duration, steps, _rows(u))
    control = control_law(u, system.n_u, duration)
    simulator = Simulator(system, method, step=length, solver=solver)
    state = simulator.init(x0, p)
    parts: list[Readout] = []
    controls: list[np.ndarray] = []
    status, started = Status.SOLVED, time.monotonic()
    for k in range(count):
        if time_limit is not None and time.monotonic() - started > time_limit:
            status = Status.TIME_LIMIT
            break
        value = control((k + 0.5) * length, state.x)
        state = simulator.step(state, value)
        if state.readout is None:
            status = state.status
            break
        parts.append(state.readout)
        controls.append(value)
        stop = None if callback is None else asked_to_stop(callback, state)
        if stop is not None and k + 1 < count:
            status = stop
            break
    return _trajectory(simulator, state, parts, controls, status)


def _rows(u: Any) -> int:
    """Number of rows of a control that is an array with one row per interval, else 1."""
    return len(u) if isinstance(u, np.ndarray | list | tuple) and np.ndim(u) == 2 else 1


def _steps(duration: float, steps: int | None, rows: int) -> tuple[float, int]:
    """Length and number of the steps; by default a multiple of the rows of the control."""
    seconds = scalar(duration, "duration")
    if not 0 < seconds < np.inf:
        raise OptionError(f"duration: expected a positive finite number of seconds, given {duration!r}.")
    count = rows * -(-max(20, round(50 * seconds)) // max(rows, 1)) if steps is None else steps
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise OptionError(f"steps: expected a positive whole number, given {steps!r}.")
    if rows < 1 or count % rows:
        raise OptionError(f"steps: expected a multiple of the {rows} rows of the control, given {steps!r}.")
    return seconds / int(count), int(count)


def control_law(u: Any, n_u: int, duration: float) -> Callable[[float, np.ndarray], np.ndarray]:
    """A control as a function of (t, x) from a constant, rows, a function of t or (t, x), or a `Trajectory`.

    A function is called with (t, x) when it takes two positional arguments.
    """
    if u is None:
        return lambda t, x: np.zeros(n_u)
    if isinstance(u, Trajectory):
        return lambda t, x: np.asarray(u.control(min(t + u.t0, u.t0 + u.duration)))
    if callable(u):
        count = sum(
            parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            for parameter in inspect.signature(u).parameters.values()
        )
        return (
            (lambda t, x: numbers(u(t, x), "u(t, x)", n_u)) if count >= 2 else (lambda t, x: numbers(u(t), "u(t)", n_u))
        )
    law = control_guess(u, n_u, duration)
    return lambda t, x: law(t)


def _trajectory(
    simulator: Simulator, state: SimulatorState, parts: list[Readout], controls: list[np.ndarray], status: Status
) -> Trajectory:
    system, problem = simulator.system, simulator.problem
    parameters = dict(zip(system.parameter_names, state.p, strict=True))
    if not parts:
        return Trajectory(
            t=np.zeros(1),
            x=state.x[None, :],
            state_names=system.state_names,
            u_grid=np.zeros(1),
            u=np.zeros((0, system.n_u)),
            control_names=system.control_names,
            parameters=parameters,
            status=status,
        )
    u_grid = simulator.length * np.arange(len(parts) + 1)
    u = np.array(controls).reshape(len(parts), system.n_u)
    made = trajectory_fields(problem.dcs, problem.tableau, Readout.join(parts), u, u_grid)
    return Trajectory(**made, parameters=parameters, status=status)
