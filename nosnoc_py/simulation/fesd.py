"""Simulation by finite elements, step by step: FESD-J by active-set Newton, and an MPCC where that fails; or MPCCs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nosnoc_py.discretization.options import FESD, FESDJ
from nosnoc_py.discretization.readout import Readout
from nosnoc_py.errors import OptionError, check_type
from nosnoc_py.mpcc.strategy import SolverState, Strategy
from nosnoc_py.simulation.checks import Checks
from nosnoc_py.simulation.common import energy_note, seconds_of
from nosnoc_py.simulation.newton.filling import is_exact
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER, FilippovStep, MPCCStep, NewtonStepper
from nosnoc_py.solution import Trajectory
from nosnoc_py.status import Status, asked_to_stop
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import control_of
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.symbols import numbers
from nosnoc_py.transcription import Method, transcribe_step
from nosnoc_py.transcription.transcription import fesd_of


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
    u : (n_u,) or None
        Controls of the last step, with time-freezing also the speed of time.
    attempts : int
        Initial guesses of the MPCC tried in the last step; 0 when Newton's method did it alone.
    iterations : int
        NLP iterations of the last step.
    complementarity, infeasibility : float
        Residuals of the last step, of the unrelaxed equations.
    modes : (n_c,) or None
        Contact modes at the end of the last step, where Newton's method did it.
    message : str
        Why Newton's method gave up, if it did.
    """

    t: float
    x: np.ndarray
    p: np.ndarray
    status: Status = Status.SOLVED
    readout: Readout | None = None
    u: np.ndarray | None = None
    attempts: int = 0
    iterations: int = 0
    complementarity: float = 0.0
    infeasibility: float = 0.0
    modes: np.ndarray | None = None
    message: str = ""


class Simulator:
    """Steps of equal length of one system by one method; the program is built once.

    Every step is first solved by the active-set Newton method and certified on the residuals of the unrelaxed
    finite-element equations; where that fails, it is solved as an MPCC. A method that Newton's does not fit (fixed
    steps, a friction cone that is not Coulomb's) is solved as an MPCC throughout.

    Parameters
    ----------
    system : CLS, PSS, Heaviside or PDS
    method : FESDJ, TimeFreezing or FESD
        `finite_elements`, `rk_stages`, `scheme` and so on; `control_stages` has no meaning here.
    step : float
        Length of a step [s].
    solver : Homotopy, ActiveSet or Auto, optional
        Solves every step as an MPCC, without Newton's method.
    """

    def __init__(
        self, system: Described, method: Method | None = None, *, step: float, solver: Strategy | None = None
    ) -> None:
        if not 0 < float(step) < np.inf:
            raise OptionError(f"step: expected a positive finite length, given {step!r}.")
        method = default_method(system) if method is None else method
        self.system, self.length = system, float(step)
        self.solver = SIMULATION_SOLVER if solver is None else solver
        check_type(self.solver, Strategy, "solver")
        self.problem = transcribe_step(system, method)
        self._checks, self._newton_step = Checks(self.problem), None
        self._mpcc_step: MPCCStep | FilippovStep
        if isinstance(method, FESDJ):
            assert isinstance(system, CLS)
            self._mpcc_step = MPCCStep(system, self.problem, self.solver)
            exact = method.switch_detection and is_exact(system, method.friction_cone)
            self._newton_step = NewtonStepper(system, self.problem) if solver is None and exact else None
        else:
            self._mpcc_step = FilippovStep(self.problem, self.solver, self._prediction(system, method))

    def _prediction(self, system: Described, method: Method) -> Callable[[np.ndarray], Trajectory | None]:
        """Steps of time-freezing start from what the same elements with jumps, and Newton's method, make of them."""
        if self.problem.frozen is None:
            return lambda values: None
        options = fesd_of(method)
        fits = options.scheme if options.scheme in ("radau_iia", "gauss_legendre") else "radau_iia"
        jumps = FESDJ(finite_elements=options.finite_elements, rk_stages=options.rk_stages, scheme=fits)
        simulator = Simulator(system, jumps, step=self.length)

        def predict(values: np.ndarray) -> Trajectory | None:
            layout = self.problem.mpcc.parameters
            start = SimulatorState(t=0.0, x=values[layout["x0"]], p=values[layout["p"]])
            found = simulator.step(start, values[layout["u"]], newton_only=True)
            if found.readout is None or found.u is None:
                return None
            grid = np.array([0.0, self.length])
            return Trajectory(**simulator.problem.fields_of(found.readout, start.p, found.u[None], grid))

        return predict

    def init(self, x0: Any, p: Any = None) -> SimulatorState:
        """The state at t = 0; raises `ModelError` when x0 has the wrong shape or penetrates a contact."""
        parameters = self.system.p_default if p is None else numbers(p, "p", self.system.n_p)
        return SimulatorState(t=0.0, x=self.system.check_state(x0, parameters), p=parameters)

    def step(
        self, state: SimulatorState, u: Any = None, *, time_limit: float | None = None, newton_only: bool = False
    ) -> SimulatorState:
        """One step with constant control u; a step that fails has its status and leaves t and x where they were.

        `newton_only` does not try an MPCC where Newton's method fails.
        """
        deadline = np.inf if time_limit is None else time.monotonic() + time_limit
        values = self._values(state, u)
        message = ""
        if self._newton_step is not None:
            found = self._newton_step(values, state.modes)
            if found.w is not None:
                return self._advance(state, found.w, values, modes=found.modes, **found.residuals)
            message = found.message
            if found.status is not None:
                return replace(state, status=found.status, message=message, readout=None, attempts=0)
        if newton_only:
            return replace(state, status=Status.STEP_FAILED, message=message, readout=None, attempts=0)
        return self._as_mpcc(state, values, message, deadline)

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
            more["message"] = message or said + (f"; {late}" if late else "")
            return replace(state, status=best.status or Status.STEP_FAILED, readout=None, modes=None, **more)
        return self._advance(state, best.w, values, **more)

    def _is_wrong(self, state: SimulatorState, found: SolverState) -> bool:
        """Whether a step that satisfies every equation is none: a body caught by a force, or a missed event."""
        r = self.problem.read(found.w, found.p)
        before = None if state.readout is None else self._checks.closed(state.readout)[-1]
        u = found.p[self.problem.mpcc.parameters["u"]]
        checks = self._checks
        return checks.catches(before, r, u, state.p) or checks.penetrates(r, state.p) or checks.misses(r, state.p)

    def _values(self, state: SimulatorState, u: Any) -> np.ndarray:
        layout = self.problem.mpcc.parameters
        values = self.problem.mpcc.p0.copy()
        values[layout["x0"]], values[layout["p"]] = state.x, state.p
        values[layout["horizon"]] = self.length
        values[layout["u"]] = numbers(0.0 if u is None else u, "u", self.system.n_u)
        return values

    def _advance(self, state: SimulatorState, w: np.ndarray, values: np.ndarray, **fields: Any) -> SimulatorState:
        readout = self.problem.read(w, values)
        u = values[self.problem.mpcc.parameters["u"]]
        x = readout.x_right[-1]
        if self.problem.frozen is not None:
            readout, u, x = readout.later(state.t), np.append(u, self.problem.speeds(w)), x[:-1]
        return SimulatorState(t=state.t + self.length, x=x, p=state.p, readout=readout, u=u, **fields)


def run(
    system: Described,
    *,
    x0: Any,
    duration: float,
    method: Method | None,
    steps: int | None,
    u: Any,
    p: Any,
    solver: Strategy | None,
    callback: Callable[[SimulatorState], Any] | None,
    time_limit: float | None,
) -> Trajectory:
    """A loop over `Simulator.step`; see `nosnoc_py.simulate`."""
    method = default_method(system) if method is None else method
    length, count = _steps(duration, steps, _rows(u))
    control = control_of(u, system.n_u, duration)
    simulator = Simulator(system, method, step=length, solver=solver)
    state = simulator.init(x0, p)
    parts: list[Readout] = []
    controls: list[np.ndarray] = []
    notes: list[str] = []
    status, started = Status.SOLVED, time.monotonic()
    for k in range(count):
        if time_limit is not None and time.monotonic() - started > time_limit:
            status = Status.TIME_LIMIT
            break
        value = control((k + 0.5) * length, state.x)
        left = None if time_limit is None else max(0.0, time_limit - (time.monotonic() - started))
        state = simulator.step(state, value, time_limit=left)
        if state.message:
            notes.append(f"t = {k * length:.6g}: {state.message}")
        if state.readout is None:
            status = state.status
            break
        assert state.u is not None
        parts.append(state.readout)
        controls.append(state.u)
        stop = None if callback is None else asked_to_stop(callback, state)
        if stop is not None and k + 1 < count:
            status = stop
            break
    return _trajectory(simulator, state, parts, controls, status, notes)


def default_method(system: Any) -> Method:
    """The finite elements that fit a system."""
    return FESDJ() if isinstance(system, CLS) else FESD()


def _told(notes: list[str], failed: bool, gain: float) -> str:
    """The steps Newton's method left to the MPCC, or why the last one failed, and energy that came from nowhere."""
    count = len(notes) - failed
    said = [f"{count} step{'s' if count > 1 else ''} solved as MPCC"] if count else []
    said += notes[-1:] if notes else []
    return "; ".join(said + energy_note(gain))


def _rows(u: Any) -> int:
    """Number of rows of a control that is an array with one row per interval, else 1."""
    return len(u) if isinstance(u, np.ndarray | list | tuple) and np.ndim(u) == 2 else 1


def _steps(duration: float, steps: int | None, rows: int) -> tuple[float, int]:
    """Length and number of the steps; by default a multiple of the rows of the control."""
    seconds = seconds_of(duration)
    count = rows * -(-max(20, round(50 * seconds)) // max(rows, 1)) if steps is None else steps
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise OptionError(f"steps: expected a positive whole number, given {steps!r}.")
    if rows < 1 or count % rows:
        raise OptionError(f"steps: expected a multiple of the {rows} rows of the control, given {steps!r}.")
    return seconds / int(count), int(count)


def _trajectory(
    simulator: Simulator,
    state: SimulatorState,
    parts: list[Readout],
    controls: list[np.ndarray],
    status: Status,
    notes: list[str],
) -> Trajectory:
    system, problem = simulator.system, simulator.problem
    failed = status in (Status.STEP_FAILED, Status.NO_ADMISSIBLE_IMPACT)
    common: dict[str, Any] = {"parameters": dict(zip(system.parameter_names, state.p, strict=True)), "status": status}
    if not parts:
        return Trajectory(
            t=np.zeros(1),
            x=state.x[None, :],
            state_names=system.state_names,
            u_grid=np.zeros(1),
            u=np.zeros((0, system.n_u)),
            control_names=system.control_names,
            message=_told(notes, failed, 0.0),
            **common,
        )
    u_grid = simulator.length * np.arange(len(parts) + 1)
    u = np.array(controls).reshape(len(parts), len(problem.dcs.u_names))
    made = problem.fields_of(Readout.join(parts), state.p, u, u_grid, len(parts))
    gain = sum({e.time: max(0.0, e.energy_gain or 0.0) for e in made["events"]}.values())
    return Trajectory(**made, **common, message=_told(notes, failed, gain))
