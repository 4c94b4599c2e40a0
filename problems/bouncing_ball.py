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
from rich.table import Table

import nosnoc_py as ns
from models import bouncing_ball
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.fesd import SIMULATION_SOLVER
from problems.runner import Meter, Program, Report, main
from problems.settings import Settings, defaults_of

METHOD = ns.FESDJ(finite_elements=2, rk_stages=2, scheme="radau_iia")
SOLVER = SIMULATION_SOLVER
QUICK = {"steps": 20, "duration": 1.5}


def simulate(
    restitution: float = 0.9,
    height: float = 1.0,
    velocity: float = 0.0,
    gravity: float = 9.81,
    duration: float = 2.0,
    steps: int = 40,
    *,
    method: ns.FESDJ = METHOD,
    solver: ns.Homotopy = SOLVER,
    callback: Any = None,
) -> ns.Trajectory:
    """Simulate the ball from (height [m], velocity [m/s]) for `duration` seconds."""
    return ns.simulate(
        bouncing_ball.build(restitution, gravity),
        x0=[height, velocity],
        duration=duration,
        steps=steps,
        method=method,
        solver=solver,
        callback=callback,
    )


def errors(trajectory: ns.Trajectory, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Errors against the closed form: of the impact times [s], and the largest of the final state."""
    start = {name: arguments[name] for name in ("restitution", "height", "velocity", "gravity")}
    found = np.array([event.time for event in trajectory.impacts])
    exact = bouncing_ball.impact_times(**start, count=found.size)
    end = float(trajectory.t[-1])
    state = bouncing_ball.exact([end], **start)[0]
    comparable = exact.size == found.size
    return {
        "impact_times": np.abs(found - exact) if comparable else np.full(found.size, np.nan),
        "final_state": float(np.abs(trajectory.final_state - state).max()),
        "missed_impacts": int(np.sum(bouncing_ball.impact_times(**start, count=found.size + 1) < end - 1e-9)) - found.size,
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
        figures={"bouncing_ball.png": lambda path: _draw(trajectory, path)},
    )


def _show(console: Console, trajectory: ns.Trajectory, found: Mapping[str, Any]) -> None:
    console.print(f"{trajectory.status}, {len(trajectory.impacts)} impacts in {trajectory.duration:g} s")
    table = Table("impact", "t [s]", "error [s]", "velocity before [m/s]", "after [m/s]", "impulse [N s]")
    for i, (event, error) in enumerate(zip(trajectory.impacts, found["impact_times"], strict=True), start=1):
        speeds = (f"{event.v_before:.6f}", f"{event.v_after:.6f}", f"{event.impulse:.6f}")
        table.add_row(str(i), f"{event.time:.12f}", f"{error:.1e}", *speeds)
    console.print(table)
    console.print(f"largest error of the state at t = {trajectory.t[-1]:g} s: {found['final_state']:.1e}")
    if not trajectory.success:
        console.print(f"What to try: {trajectory.status.remedy}")


def _draw(trajectory: ns.Trajectory, path: Path) -> None:
    from nosnoc_py.plotting import plot

    plot(trajectory, ["height", "velocity", *_impulses(trajectory)], path=path)


def _impulses(trajectory: ns.Trajectory) -> list[str]:
    return [name for name in trajectory.series if name.startswith("Lambda_normal")]


PROGRAM = Program(
    name="bouncing_ball",
    about="A ball falls on the ground and bounces: simulation, errors against the closed form.",
    settings=Settings(method=METHOD, solver=SOLVER, arguments=_arguments, fixed=("control_stages",)),
    quick=QUICK,
    run=run,
)

if __name__ == "__main__":
    raise SystemExit(main(PROGRAM))
