"""A rod falls on the ground, tip first: `python -m problems.falling_rod`.

Two contacts with friction on one rigid body: an impact turns the rod, the tip slips or sticks, the other end follows.
The first impact is known in closed form and checks the simulation up to there; after that the table shows what
happens, and the energy that each impact takes. Newton's restitution with friction may add some: a warning says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import nosnoc_py as ns
from models import falling_rod
from nosnoc_py.progress import Progress
from problems.runner import Meter, Report, program, table
from problems.settings import Settings

METHOD = ns.FESDJ(finite_elements=2, rk_stages=3, scheme="radau_iia")
QUICK = {"steps": 20, "duration": 0.5}


def simulate(
    friction: float = 0.3,
    restitution: float = 0.0,
    theta: float = 0.5,
    height: float = 0.5,
    velocity: float = 0.0,
    duration: float = 0.8,
    steps: int = 40,
    *,
    method: ns.FESDJ = METHOD,
    callback: Any = None,
) -> ns.Trajectory:
    """Simulate the rod from the angle theta [rad], its lower end at `height` [m], with a horizontal velocity [m/s]."""
    constants = _constants(friction, restitution)
    x0 = _start(theta, height, velocity, constants)
    system = falling_rod.build(constants)
    return ns.simulate(system, x0=x0, duration=duration, steps=steps, method=method, callback=callback)


def first_impact(arguments: Mapping[str, Any]) -> tuple[float, falling_rod.Strike]:
    """Time and closed form of the first impact; the rod does not turn before it."""
    constants = _constants(arguments["friction"], arguments["restitution"])
    time = float(np.sqrt(2.0 * arguments["height"] / constants.gravity))
    v = [arguments["velocity"], -constants.gravity * time, 0.0]
    end: falling_rod.End = "left" if np.sin(arguments["theta"]) > 0.0 else "right"
    return time, falling_rod.strike(arguments["theta"], v, end, constants)


def errors(trajectory: ns.Trajectory, arguments: Mapping[str, Any]) -> dict[str, float]:
    """Errors of the time of the first impact [s], and of the velocities right after it [m/s, rad/s]."""
    if not trajectory.impacts:
        return {"impact_time": np.nan, "velocity_after": np.nan}
    time, strike = first_impact(arguments)
    found = trajectory.impacts[0].time
    after = trajectory(found, side="+")[3:]
    return {"impact_time": abs(found - time), "velocity_after": float(np.abs(after - strike.v).max())}


def run(settings: Settings, progress: Progress) -> Report:
    """Simulate and report."""
    meter = Meter(progress)
    progress.expect(steps=settings.arguments["steps"])
    trajectory = simulate(**settings.arguments, method=settings.method, callback=meter)
    found = errors(trajectory, settings.arguments)
    energies = _energies(trajectory, settings.arguments)
    return Report(
        results={**meter.results(trajectory), "errors": found, "energy": energies},
        success=trajectory.success,
        show=lambda console: _show(console, trajectory, found, energies),
        figures={"falling_rod.png": lambda path: _draw(trajectory, settings.arguments, path)},
    )


def _constants(friction: float, restitution: float) -> falling_rod.Constants:
    return falling_rod.Constants(frictions=(friction, friction), restitutions=(restitution, restitution))


def _start(theta: float, height: float, velocity: float, constants: falling_rod.Constants) -> list[float]:
    x0 = list(falling_rod.tilted(theta, height, constants))
    x0[3] = velocity
    return x0


def _energies(trajectory: ns.Trajectory, arguments: Mapping[str, Any]) -> list[float]:
    """Energies [J] at the start, after every impact, and at the end."""
    constants = _constants(arguments["friction"], arguments["restitution"])
    times = [trajectory.t0, *(event.time for event in trajectory.impacts), float(trajectory.t[-1])]
    return [float(falling_rod.energy(trajectory(time, side="+"), constants)) for time in times]


def _show(console: Console, trajectory: ns.Trajectory, found: Mapping[str, float], energies: list[float]) -> None:
    console.print(f"{trajectory.status}, {len(trajectory.events)} events in {trajectory.duration:g} s")
    rows = table("event", "end", "t [s]", "impulse [N s]", "velocity before [m/s]", "after [m/s]")
    for event in trajectory.events:
        numbers = (event.impulse, event.v_before, event.v_after)
        cells = ("-" if value is None else f"{value:.6f}" for value in numbers)
        rows.add_row(event.kind, event.name, f"{event.time:.9f}", *cells)
    console.print(rows)
    console.print(f"energy at the start, after the impacts, at the end: {', '.join(f'{e:.4f}' for e in energies)} J")
    console.print(
        f"first impact: error of its time {found['impact_time']:.1e} s, of v after it {found['velocity_after']:.1e}"
    )
    if trajectory.message:
        console.print(trajectory.message, markup=False)
    if not trajectory.success:
        console.print(f"What to try: {trajectory.status.remedy}")


def _draw(trajectory: ns.Trajectory, arguments: Mapping[str, Any], path: Path) -> None:
    from problems.drawing import rod  # matplotlib is slow to import and not needed with --json

    rod.strobe(trajectory, _constants(arguments["friction"], arguments["restitution"]), path)


PROGRAM = program(__name__, run, simulate, quick=QUICK, method=METHOD, fixed=("control_stages",))
