"""A point is pushed into a corner, along both of its walls and away again: `python -m problems.pushed_point`.

A projected dynamical system is compared with the polynomials of `models.pushed_point`. Contacts and releases, which are
tangential, are located to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import pushed_point
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems.runner import program, simulated
from tests.references.switching import boundary_errors

METHOD = ns.FESD(finite_elements=3, rk_stages=3)
SOLVER = SIMULATION_SOLVER
QUICK = {"duration": 1.5, "steps": 5}
TOLERANCE = 1e-8  # largest error of the final state for success [m]


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
    """Return the metric of the plane with unit diagonal."""
    return np.array([[1.0, coupling], [coupling, 1.0]])


def errors(trajectory: ns.Trajectory, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return errors of the state at the end, at element boundaries, and of times of contacts and releases [s]."""
    metric = metric_of(arguments["coupling"])
    events = pushed_point.events(float(trajectory.t[-1]), metric)
    error = np.abs(trajectory.x - pushed_point.exact(trajectory.t, metric)).max(axis=1)
    late = {f"{kind} {name}": boundary_errors(trajectory, [at])[0] for kind, name, at in events}
    return {"final_state": float(error[-1]), "largest": float(error.max()), "events": late}


PROGRAM = program(
    __name__,
    simulated(simulate, errors, lambda errors: errors["final_state"] < TOLERANCE),
    simulate,
    quick=QUICK,
    method=METHOD,
    solver=SOLVER,
    fixed=("control_stages", "dcs_mode"),
)
