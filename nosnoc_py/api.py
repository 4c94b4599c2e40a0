"""The verbs: transcribe, solve, simulate, certify."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nosnoc_py.discretization.options import FESD, FESDJ, TimeFreezing
from nosnoc_py.errors import OptionError, check_type
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.strategy import Callback, Strategy
from nosnoc_py.ocp import OCP
from nosnoc_py.shooting import MultiStart
from nosnoc_py.simulation import fesd
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.simulation.event_driven import run as event_driven
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.newton.options import ActiveSetNewton
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.systems import SYSTEMS
from nosnoc_py.systems.described import Described
from nosnoc_py.transcription import transcribe

__all__ = ["certify", "simulate", "solve", "transcribe"]


def solve(
    ocp: OCP,
    method: FESD | TimeFreezing | None = None,
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
    method : FESD, FESDJ or TimeFreezing, optional
        Default `FESDJ()` for a `CLS`, else `FESD()`.
    solver : Auto, ActiveSet, Homotopy or MultiStart, optional
        Default `Auto()`.
    guess : optional
        A constant control (n_u,), rows of controls, a function of time, a `Trajectory` or a `Solution`.
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
    solver = Auto() if solver is None else solver
    method = fesd.default_method(ocp.system) if method is None else method
    if isinstance(solver, MultiStart):
        check_type(method, FESDJ, "method")
        assert isinstance(method, FESDJ)
        return solver.solve(ocp, method, guess=guess, callback=callback, time_limit=time_limit)
    check_type(solver, Strategy, "solver")
    problem = transcribe(ocp, method)
    return problem.solve(solver, guess=guess, callback=callback, time_limit=time_limit)


def simulate(
    system: Described,
    *,
    x0: Any,
    duration: float,
    method: FESD | TimeFreezing | EventDriven | None = None,
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
    system : CLS, PSS, Heaviside or PDS
    x0 : (n_x,)
        Initial state.
    duration : float
        Seconds.
    method : FESD, FESDJ, TimeFreezing or EventDriven, optional
        Default `FESDJ()` for a `CLS`, else `FESD()`.
    steps : int, optional
        With finite elements only: number of steps of equal length; default 50 per second, at least 20. `EventDriven`
        chooses its steps.
    u : optional
        Control: a constant (n_u,), rows (one per equal interval), a `PiecewiseConstant`, a function of t or of (t, x),
        a `Trajectory` or a `Solution`; zero by default. Finite elements keep it constant within a step, `EventDriven`
        applies it as it is.
    p : (n_p,), optional
    solver : ActiveSetNewton, Homotopy, ActiveSet or Auto, optional
        With finite elements only. Default `ActiveSetNewton()`, and an MPCC only for steps where that fails; another
        one solves every step as an MPCC.
    callback : callable, optional
        Called after every step with a `SimulatorState` by finite elements, after every phase with an
        `EventDrivenState` by `EventDriven`; returns `ns.Stop` to end the work.
    time_limit : float, optional
        Seconds.
    sensitivities : bool
        Whether to differentiate the state at the end and the times of events with respect to x0 and p:
        `trajectory.sensitivity`. With `EventDriven` only.

    Returns
    -------
    Trajectory
        Up to the step or the event where it failed, if it does: `status` says so.
    """
    check_type(system, SYSTEMS, "system")
    method = fesd.default_method(system) if method is None else method
    check_type(method, (FESD, TimeFreezing, EventDriven), "method")
    if sensitivities and not isinstance(method, EventDriven):
        raise OptionError(
            f"sensitivities: {type(method).__name__} does not compute them; give method=ns.EventDriven(...)."
        )
    simulator: Any = event_driven if isinstance(method, EventDriven) else fesd
    asked: dict[str, Any] = {"sensitivities": True} if sensitivities else {}
    return simulator.run(
        system,
        x0=x0,
        duration=duration,
        method=method,
        steps=steps,
        u=u,
        p=p,
        solver=solver,
        callback=callback,
        time_limit=time_limit,
        **asked,
    )
