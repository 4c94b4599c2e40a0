"""Simulation of a ball that falls on the ground and bounces: `python -m problems.bouncing_ball`.

The smallest simulation with state jumps. The times of the impacts and the state at the end are compared with the closed
form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import bouncing_ball
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER as SOLVER
from problems.runner import program, simulated

METHOD = ns.FESDJ(finite_elements=2, rk_stages=2, scheme="radau_iia")
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
    """Simulate from (height [m], velocity [m/s]); another solver than `SOLVER` solves every step as an MPCC."""
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
    """Return the errors against the closed form: of the impact times [s], and the largest of the final state."""
    start = {name: arguments[name] for name in ("restitution", "height", "velocity", "gravity")}
    times = np.array([event.time for event in trajectory.impacts])
    exact = bouncing_ball.impact_times(**start, count=times.size)
    state = bouncing_ball.exact([float(trajectory.t[-1])], **start)[0]
    return {
        "impact_times": np.abs(times - exact) if exact.size == times.size else np.full(times.size, np.nan),
        "final_state": float(np.abs(trajectory.final_state - state).max()),
    }


PROGRAM = program(
    __name__,
    simulated(simulate, errors),
    simulate,
    quick=QUICK,
    method=METHOD,
    solver=SOLVER,
    fixed=("control_stages",),
)
