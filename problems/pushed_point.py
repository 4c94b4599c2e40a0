"""A point is pushed into a corner, along both of its walls and away again: `python -m problems.pushed_point`.

A projected dynamical system against the polynomials of `models.pushed_point`: contacts and releases, which are
tangential, are landed on to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console

import nosnoc_py as ns
from models import pushed_point
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems.runner import Meter, Report, program, table
from problems.settings import Settings
from problems.switching_cases import boundary_errors

METHOD = ns.FESD(finite_elements=3, rk_stages=3)
SOLVER = SIMULATION_SOLVER
QUICK = {"duration": 1.5, "steps": 5}
TOLERANCE = 1e-8  # of the state at the end, for success [m]


def simulate(
    coupling: float = 0.0,
    duration: float = 2.7,
    steps: int = 9,
    *,
    method: ns.FESD = METHOD,
    solver: Any = SOLVER,
    callback: Any = None,
) -> ns.Trajectory:
    """Simulate the point; `coupling` is the off-diagonal entry of the metric, in (-1, 1)."""
    return ns.simulate(
        pushed_point.build(metric_of(coupling)),
        x0=[*pushed_point.START, 0.0],
        duration=duration,
        steps=steps,
        method=method,
        solver=solver,
        callback=callback,
    )


def metric_of(coupling: float) -> np.ndarray:
    """The metric of the plane with unit diagonal."""
    return np.array([[1.0, coupling], [coupling, 1.0]])


def errors(trajectory: ns.Trajectory, coupling: float) -> dict[str, Any]:
    """Errors of the state at the end, at all element boundaries, and of the times of contacts and releases [s]."""
    metric = metric_of(coupling)
    events = pushed_point.events(float(trajectory.t[-1]), metric)
    error = np.abs(trajectory.x - pushed_point.exact(trajectory.t, metric)).max(axis=1)
    late = {f"{kind} {name}": boundary_errors(trajectory, [at])[0] for kind, name, at in events}
    return {"final_state": float(error[-1]), "largest": float(error.max()), "events": late}


def run(settings: Settings, progress: Progress) -> Report:
    """Simulate and compare."""
    coupling = settings.arguments["coupling"]
    meter = Meter(progress)
    progress.expect(steps=settings.arguments["steps"])
    trajectory = simulate(**settings.arguments, method=settings.method, solver=settings.solver, callback=meter)
    found = errors(trajectory, coupling)
    return Report(
        results={**meter.results(trajectory), "errors": found},
        success=trajectory.success and found["final_state"] < TOLERANCE,
        show=lambda console: _show(console, trajectory, coupling, found),
        figures={"pushed_point.png": lambda path: _drawing().pushed(trajectory, metric_of(coupling), path)},
    )


def _show(console: Console, trajectory: ns.Trajectory, coupling: float, found: Mapping[str, Any]) -> None:
    console.print(f"{trajectory.status} in {trajectory.duration:g} s")
    rows = table("event", "exact [s]", "error [s]")
    for kind, name, at in pushed_point.events(float(trajectory.t[-1]), metric_of(coupling)):
        rows.add_row(f"{kind} {name}", f"{at:.9f}", f"{found['events'][f'{kind} {name}']:.1e}")
    console.print(rows)
    console.print(
        f"largest error of the state: {found['largest']:.1e}, at the end {found['final_state']:.1e} [m]", markup=False
    )


def _drawing() -> Any:
    from problems.drawing import filippov  # matplotlib is slow to import and not needed with --json

    return filippov


PROGRAM = program(
    __name__, run, simulate, quick=QUICK, method=METHOD, solver=SOLVER, fixed=("control_stages", "dcs_mode")
)
