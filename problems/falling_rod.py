"""Simulation of a rod that falls on the ground, tip first: `python -m problems.falling_rod`.

Two contacts with friction on one rigid body: an impact turns the rod, the tip slips or sticks, the other end follows.
The first impact has a closed form, which checks the simulation up to there. The table shows all later events and the
energy loss of each impact. Newton's restitution with friction may add energy; a warning says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import falling_rod
from problems.runner import program, simulated

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
    """Return time and closed form of the first impact; the rod does not turn before it."""
    constants = _constants(arguments["friction"], arguments["restitution"])
    time = float(np.sqrt(2.0 * arguments["height"] / constants.gravity))
    v = [arguments["velocity"], -constants.gravity * time, 0.0]
    end: falling_rod.End = "left" if np.sin(arguments["theta"]) > 0.0 else "right"
    return time, falling_rod.strike(arguments["theta"], v, end, constants)


def errors(trajectory: ns.Trajectory, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return errors of time [s] and velocities after the first impact [m/s, rad/s]; energies after every impact [J]."""
    if not trajectory.impacts:
        return {"impact_time": np.nan, "velocity_after": np.nan, "energy": _energies(trajectory, arguments)}
    time, strike = first_impact(arguments)
    impact_time = trajectory.impacts[0].time
    after = trajectory(impact_time, side="+")[3:]
    late, wrong = abs(impact_time - time), float(np.abs(after - strike.v).max())
    return {"impact_time": late, "velocity_after": wrong, "energy": _energies(trajectory, arguments)}


def _constants(friction: float, restitution: float) -> falling_rod.Constants:
    return falling_rod.Constants(frictions=(friction, friction), restitutions=(restitution, restitution))


def _start(theta: float, height: float, velocity: float, constants: falling_rod.Constants) -> list[float]:
    x0 = list(falling_rod.tilted(theta, height, constants))
    x0[3] = velocity
    return x0


def _energies(trajectory: ns.Trajectory, arguments: Mapping[str, Any]) -> list[float]:
    """Return the energies [J] at the start, after every impact, and at the end."""
    constants = _constants(arguments["friction"], arguments["restitution"])
    times = [trajectory.t0, *(event.time for event in trajectory.impacts), float(trajectory.t[-1])]
    return [float(falling_rod.energy(trajectory(time, side="+"), constants)) for time in times]


PROGRAM = program(
    __name__, simulated(simulate, errors), simulate, quick=QUICK, method=METHOD, fixed=("control_stages",)
)
