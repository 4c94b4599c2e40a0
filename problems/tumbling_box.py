"""A box falls on a corner, tumbles and comes to rest on a face: `python -m problems.tumbling_box`.

Eight contacts with friction on a body that turns in space, its attitude a unit quaternion. Finite elements simulate it.
The result is compared with an event-driven simulation of the same system. It must lose energy at each impact, and end
on a face.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import free_box
from problems.runner import program, simulated

METHOD = ns.FESDJ(finite_elements=2, rk_stages=3, scheme="radau_iia")
QUICK = {"steps": 15, "duration": 0.25}


def simulate(
    yaw: float = 0.2,
    pitch: float = 0.25,
    roll: float = 0.15,
    height: float = 0.4,
    spin: float = 1.0,
    friction: float = 0.5,
    duration: float = 1.0,
    steps: int = 50,
    *,
    method: Any = METHOD,
    callback: Any = None,
) -> ns.Trajectory:
    """Simulate the box from its Euler angles [rad], at a height [m], with a spin about its own z axis [rad/s]."""
    system = free_box.build(friction=friction)
    x0 = _start(yaw, pitch, roll, height, spin)
    options: dict[str, Any] = {"steps": steps} if isinstance(method, ns.FESDJ) else {}
    return ns.simulate(system, x0=x0, duration=duration, method=method, callback=callback, **options)


def errors(trajectory: ns.Trajectory, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the position difference to the event-driven simulation [m], errors of quaternions, and energies."""
    events = simulate(**{k: v for k, v in arguments.items() if k != "steps"}, method=ns.EventDriven())
    times = [trajectory.t0, *(event.time for event in trajectory.impacts), float(trajectory.t[-1])]
    states = [trajectory(time, side="+") for time in times]
    return {
        "position": float(np.abs(trajectory.final_state - events.final_state)[:3].max()),
        "length": float(np.abs(np.linalg.norm(trajectory.x[:, 3:7], axis=1) - 1).max()),
        "height": float(trajectory.final_state[2]),
        "energy": [free_box.energy(x) for x in states],
    }


def film(path: str | Path) -> Path:
    """Write a film of the box, seen from a corner."""
    system = free_box.build(view="oblique")
    motion = ns.simulate(system, x0=_start(0.2, 0.25, 0.15, 0.4, 1.0), duration=1.0)
    return Path(ns.animate(system, motion, path))


def _start(yaw: float, pitch: float, roll: float, height: float, spin: float) -> np.ndarray:
    x0 = free_box.start((yaw, pitch, roll), height)
    x0[-1] = spin
    return x0


PROGRAM = program(
    __name__, simulated(simulate, errors), simulate, quick=QUICK, method=METHOD, fixed=("control_stages",)
)
