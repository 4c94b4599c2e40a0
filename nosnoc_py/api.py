"""The verbs: transcribe, solve, simulate, certify."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from nosnoc_py.discretization.options import FESD, FESDJ, TimeFreezing
from nosnoc_py.errors import OptionError, check_run, check_type
from nosnoc_py.methods.event_selected.options import EventSelected
from nosnoc_py.methods.indirect.minimum_principle import MinimumPrinciple
from nosnoc_py.methods.variational.options import LieGroupVariational
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.strategy import Callback, Strategy
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod
from nosnoc_py.search import MultiStart
from nosnoc_py.simulation import fesd
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.simulation.common import Task
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.newton.options import ActiveSetNewton
from nosnoc_py.simulation.time_stepping.options import TimeStepping
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.systems import SYSTEMS
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.event_selected import EventSelectedSystem
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.rigid_body import RigidBody
from nosnoc_py.transcription import check_elements, transcribe

__all__ = ["certify", "simulate", "solve", "transcribe"]

# Where the simulation of a method is. Imported when it is asked for: some are compiled by numba, which loads slowly.
SIMULATIONS: dict[type, str] = {
    FESD: "simulation.fesd",
    FESDJ: "simulation.fesd",
    TimeFreezing: "simulation.fesd",
    EventDriven: "simulation.event_driven.run",
    TimeStepping: "simulation.time_stepping.run",
    EventSelected: "methods.event_selected.run",
    LieGroupVariational: "methods.variational.run",
}
# What solves an optimal control problem.
METHODS = (FESD, TimeFreezing, CompleteMethod)
# Systems that only one method simulates.
OWN_METHODS: dict[type, type] = {EventSelectedSystem: EventSelected, RigidBody: LieGroupVariational}


def solve(
    ocp: OCP,
    method: FESD | TimeFreezing | CompleteMethod | None = None,
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
    method = default_method(ocp) if method is None else method
    if isinstance(method, CompleteMethod):
        if solver is not None:
            raise OptionError(
                f"solver: {type(method).__name__} solves by itself; solver= is for finite elements (ns.FESDJ, ns.FESD, "
                "ns.TimeFreezing)."
            )
        check_run(callback, time_limit)
        return method.solve(ocp, guess=guess, callback=callback, time_limit=time_limit)
    if isinstance(method, type) and issubclass(method, METHODS):
        check_type(method, METHODS, "method")
    if not isinstance(method, FESD | TimeFreezing):
        given = getattr(method, "__name__", type(method).__name__)
        raise OptionError(
            "method: expected one made by ns.FESDJ(...), ns.FESD(...), ns.TimeFreezing(...), ns.MinimumPrinciple(...), "
            f"ns.AutonomousSwitching(...) or ns.DirectShooting(...), given {given}."
        )
    check_elements(ocp.system)
    solver = Auto() if solver is None else solver
    if isinstance(solver, MultiStart):
        check_type(method, FESDJ, "method")
        assert isinstance(method, FESDJ)
        return solver.solve(ocp, method, guess=guess, callback=callback, time_limit=time_limit)
    check_type(solver, Strategy, "solver")
    problem = transcribe(ocp, method)
    return problem.solve(solver, guess=guess, callback=callback, time_limit=time_limit)


def default_method(ocp: OCP) -> FESD | TimeFreezing | CompleteMethod:
    """The method that `solve` takes when none is given."""
    return MinimumPrinciple() if isinstance(ocp.system, HybridSystem) else fesd.default_method(ocp.system)


def simulate(
    system: Described,
    *,
    x0: Any,
    duration: float,
    method: FESD | TimeFreezing | EventDriven | TimeStepping | EventSelected | LieGroupVariational | None = None,
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
    if isinstance(system, HybridSystem):
        raise OptionError(
            "system: a HybridSystem is solved (ns.MinimumPrinciple, ns.DirectShooting), not simulated; write mechanics "
            "as an ns.CLS, which both take."
        )
    check_type(system, (*SYSTEMS, *OWN_METHODS), "system")
    method = _simulation_method(system, method)
    check_run(callback, time_limit)
    if sensitivities and isinstance(method, LieGroupVariational):
        raise OptionError("sensitivities: a rigid body tumbles chaotically, its derivatives are not computed.")
    if sensitivities and isinstance(method, TimeStepping):
        raise OptionError(
            "sensitivities: those of TimeStepping do not converge to those of the motion; give method=ns.FESDJ(...) or "
            "ns.EventDriven(...)."
        )
    task = Task(
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
    simulation = importlib.import_module(f"nosnoc_py.{SIMULATIONS[type(method)]}")
    found: Trajectory = simulation.run(system, method, task)
    return found


def _simulation_method(system: Described, method: Any) -> Any:
    """The method that is given, or the default one of a kind of system; they have to fit together."""
    own = OWN_METHODS.get(type(system))
    if method is None:
        return fesd.default_method(system) if own is None else own()
    check_type(method, tuple(SIMULATIONS), "method")
    if own is not None and not isinstance(method, own):
        raise OptionError(
            f"method: {type(method).__name__} does not take an ns.{type(system).__name__}, which is simulated by "
            f"ns.{own.__name__}(...)."
        )
    return method
