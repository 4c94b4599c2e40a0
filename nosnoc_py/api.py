"""The verbs: transcribe, solve, simulate, certify."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nosnoc_py.discretization.options import FINITE_ELEMENTS, FiniteElementMethod
from nosnoc_py.errors import check_run, check_type
from nosnoc_py.methods.event_selected.options import EventSelected
from nosnoc_py.methods.indirect.autonomous_switching import AutonomousSwitching
from nosnoc_py.methods.indirect.minimum_principle import MinimumPrinciple
from nosnoc_py.methods.shooting.options import DirectShooting
from nosnoc_py.methods.variational.options import LieGroupVariational
from nosnoc_py.mpcc.active_set import ActiveSet
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.mpcc.strategy import Callback, Strategy
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod, Options, fitting
from nosnoc_py.search import MultiStart
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.simulation.common import SimulationMethod, SimulationTask
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.fesd import FiniteElementRun
from nosnoc_py.simulation.newton.options import ActiveSetNewton
from nosnoc_py.simulation.time_stepping.options import TimeStepping
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.systems.described import Described
from nosnoc_py.transcription import transcribe

__all__ = ["certify", "simulate", "solve", "transcribe"]

# What solves an optimal control problem, and what simulates: by default the first one that takes the system.
SOLVING: tuple[Callable[..., Options], ...] = (*FINITE_ELEMENTS, MinimumPrinciple, AutonomousSwitching, DirectShooting)
SIMULATING = (*FINITE_ELEMENTS, EventDriven, TimeStepping, EventSelected, LieGroupVariational)
METHODS: tuple[Callable[..., Options], ...] = tuple(dict.fromkeys((*SOLVING, *SIMULATING)))
SOLVERS: tuple[type[Options], ...] = (Auto, ActiveSet, Homotopy, MultiStart, ActiveSetNewton)


def solve(
    ocp: OCP,
    method: FiniteElementMethod | CompleteMethod | None = None,
    solver: Strategy | MultiStart | None = None,
    *,
    guess: Any = None,
    callback: Callback | None = None,
    time_limit: float | None = None,
) -> Solution:
    """Solve an optimal control problem.

    Parameters
    ----------
    ocp : OCP
    method : FESD, FESDJ, TimeFreezing, MinimumPrinciple, AutonomousSwitching or DirectShooting, optional
        Default `FESDJ()` for a `CLS`, `MinimumPrinciple()` for a `HybridSystem`, else `FESD()`.
    solver : Auto, ActiveSet, Homotopy or MultiStart, optional
        Of finite elements; default `Auto()`. The other methods solve by themselves.
    guess : optional
        Where the solver starts: a control (a constant (n_u,), rows for equal intervals, or a function of time), a
        mapping with controls as "u" and states as "x" (a constant (n_x,), rows at equally spaced times from 0 to the
        horizon, or a function of time), a `Trajectory`, or a `Solution` of any grid and method. States that are not
        given stay at x0. `solution.shift()` is the guess for the next problem of a receding horizon. Methods other
        than finite elements simulate, and take the controls only.
    callback : callable, optional
        Called with the solver's state after every step; returns `ns.Stop` to end the work.
    time_limit : float, optional
        Seconds.

    Returns
    -------
    Solution
        Also when the solver fails: `status` says why and what to try.
    """
    check_type(ocp, OCP, "ocp")
    check_run(callback, time_limit)
    chosen: FiniteElementMethod | CompleteMethod = fitting(
        ocp.system, method, SOLVING, (FiniteElementMethod, CompleteMethod)
    )
    limits: dict[str, Any] = {"guess": guess, "callback": callback, "time_limit": time_limit}
    if isinstance(chosen, CompleteMethod):
        return chosen.solve(ocp, solver, **limits)
    if isinstance(solver, MultiStart):
        return solver.solve(ocp, chosen, **limits)
    # Options of finite elements are in a room below those that solve and simulate: an object that does it holds them.
    return FiniteElementRun(chosen).solve(ocp, solver, **limits)


def simulate(
    system: Described,
    *,
    x0: Any,
    duration: float,
    method: FiniteElementMethod | SimulationMethod | None = None,
    steps: int | None = None,
    u: Any = None,
    p: Any = None,
    solver: Strategy | ActiveSetNewton | None = None,
    callback: Callable[[Any], Any] | None = None,
    time_limit: float | None = None,
    sensitivities: bool = False,
) -> Trajectory:
    """Simulate a system.

    Parameters
    ----------
    system : CLS, PSS, Heaviside, PDS, EventSelectedSystem or RigidBody
    x0 : (n_x,)
        Initial state.
    duration : float
        Seconds.
    method : FESD, FESDJ, TimeFreezing, EventDriven, TimeStepping, EventSelected or LieGroupVariational, optional
        Default `FESDJ()` for a `CLS`, `EventSelected()` for an `EventSelectedSystem`, `LieGroupVariational()` for a
        `RigidBody`, else `FESD()`.
    steps : int, optional
        Number of steps of equal length. Finite elements: default 50 per second, at least 20. `TimeStepping`,
        `EventSelected`, `LieGroupVariational`: instead of the step in their options. `EventDriven` chooses its steps.
    u : optional
        Control: a constant (n_u,), rows (one per equal interval), a `PiecewiseConstant`, a function of t or of (t, x),
        a `Trajectory` or a `Solution`; zero by default. Finite elements and `TimeStepping` keep its value at the middle
        of a step (of a law u(t, x): with the state at its beginning), `EventDriven` applies it as it is.
    p : (n_p,), optional
    solver : ActiveSetNewton, Homotopy, ActiveSet or Auto, optional
        With finite elements only. Default `ActiveSetNewton()`, and an MPCC only for steps where that fails; another
        one solves every step as an MPCC.
    callback : callable, optional
        Called after every step with the state of the simulator (`SimulatorState` of finite elements, a
        `TimeSteppingState` and so on), after every phase with an `EventDrivenState`; returns `ns.Stop` to end the work.
    time_limit : float, optional
        Seconds.
    sensitivities : bool
        Whether to differentiate the state at the end with respect to x0, p and the controls of the steps (finite
        elements, by the implicit function theorem), or the state at the end and the times of events with respect to x0
        and p (`EventDriven`, `EventSelected`, by saltation matrices): `trajectory.sensitivity`.

    Returns
    -------
    Trajectory
        Up to the step or the event where it failed, if it does: `status` says so.

    Raises
    ------
    OptionError, ModelError, TranscriptionError
        For what does not fit together, an x0 that penetrates or is not finite, a control of the wrong shape or for
        another interval, a duration that is not positive.
    """
    check_run(callback, time_limit)
    chosen: FiniteElementMethod | SimulationMethod = fitting(
        system, method, SIMULATING, (FiniteElementMethod, SimulationMethod)
    )
    task = SimulationTask(
        x0=x0,
        duration=duration,
        steps=steps,
        u=u,
        p=p,
        solver=solver,
        callback=callback,
        time_limit=time_limit,
        sensitivities=sensitivities,
    )
    task.check(chosen.refuses)
    way = FiniteElementRun(chosen) if isinstance(chosen, FiniteElementMethod) else chosen
    return way.simulate(system, task)
