"""A ball falls on the ground and bounces: `python -m problems.bouncing_ball`.

The smallest simulation with state jumps, and one with a closed form: the table shows the errors of the impact times
and of the state at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import nosnoc_py as ns
from models import bouncing_ball
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems.runner import Meter, Report, program, table
from problems.settings import Settings

METHOD = ns.FESDJ(finite_elements=2, rk_stages=2, scheme="radau_iia")
SOLVER = SIMULATION_SOLVER
QUICK = {"steps": 20, "duration": 1.5}


def simulate(
    restitution: float = 0.9,
    height: float = 1.0,
    velocity: float = 0.0,
    gravity: float = 9.81,
    duration: float = 3.0,
    steps: int = 60,
    *,
    method: ns.FESDJ = METHOD,
    solver: ns.Homotopy = SOLVER,
    callback: Any = None,
) -> ns.Trajectory:
    """Simulate the ball from (height [m], velocity [m/s]) for `duration` seconds.

    A solver with other options than `SOLVER` solves every step as an MPCC.
    """
    return ns.simulate(
        bouncing_ball.build(restitution, gravity),
        x0=[height, velocity],
        duration=duration,
        steps=steps,
        method=method,
        solver=None if solver == SOLVER else solver,
        callback=callback,
    )


def errors(trajectory: ns.Trajectory, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Errors against the closed form: of the impact times [s], and the largest of the final state."""
    start = _start(arguments)
    found = np.array([event.time for event in trajectory.impacts])
    exact = bouncing_ball.impact_times(**start, count=found.size)
    end = float(trajectory.t[-1])
    state = bouncing_ball.exact([end], **start)[0]
    comparable = exact.size == found.size
    return {
        "impact_times": np.abs(found - exact) if comparable else np.full(found.size, np.nan),
        "final_state": float(np.abs(trajectory.final_state - state).max()),
    }


def run(settings: Settings, progress: Progress) -> Report:
    """Simulate and compare."""
    meter = Meter(progress)
    progress.expect(steps=settings.arguments["steps"])
    trajectory = simulate(**settings.arguments, method=settings.method, solver=settings.solver, callback=meter)
    found = errors(trajectory, settings.arguments)
    return Report(
        results={**meter.results(trajectory), "errors": found},
        success=trajectory.success,
        show=lambda console: _show(console, trajectory, found),
        figures={"bouncing_ball.png": lambda path: _draw(trajectory, settings.arguments, path)},
    )


def _show(console: Console, trajectory: ns.Trajectory, found: Mapping[str, Any]) -> None:
    console.print(f"{trajectory.status}, {len(trajectory.impacts)} impacts in {trajectory.duration:g} s")
    rows = table("impact", "t [s]", "error [s]", "velocity before [m/s]", "after [m/s]", "impulse [N s]")
    for i, (event, error) in enumerate(zip(trajectory.impacts, found["impact_times"], strict=True), start=1):
        speeds = (f"{event.v_before:.6f}", f"{event.v_after:.6f}", f"{event.impulse:.6f}")
        rows.add_row(str(i), f"{event.time:.12f}", f"{error:.1e}", *speeds)
    console.print(rows)
    console.print(f"largest error of the state at t = {trajectory.t[-1]:g} s: {found['final_state']:.1e}")
    if not trajectory.success:
        console.print(f"What to try: {trajectory.status.remedy}")


def _draw(trajectory: ns.Trajectory, arguments: Mapping[str, Any], path: Path) -> None:
    """Height with the closed form upon it, velocity, impulses."""
    from nosnoc_py.plotting import plot  # matplotlib is slow to import and not needed with --json
    from problems.drawing.style import save

    made = plot(trajectory, ["height", "velocity", *_impulses(trajectory)])
    t = np.linspace(trajectory.t0, trajectory.t0 + trajectory.duration, 1000)
    height = bouncing_ball.exact(t, **_start(arguments))[:, 0]
    next(line for line in made.axes[0].lines if line.get_label() == "height").set_label("FESD-J")
    made.axes[0].plot(t, height, color="black", lw=1.0, ls=(0, (2, 3)), label="closed form")
    made.axes[0].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8)
    save(made, path)


def _impulses(trajectory: ns.Trajectory) -> list[str]:
    return [name for name in trajectory.series if name.startswith("Lambda_normal")]


def _start(arguments: Mapping[str, Any]) -> dict[str, float]:
    return {name: arguments[name] for name in ("restitution", "height", "velocity", "gravity")}


PROGRAM = program(__name__, run, simulate, quick=QUICK, method=METHOD, solver=SOLVER, fixed=("control_stages",))
