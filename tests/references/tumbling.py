"""What a motion of a tumbling body has to keep, and what it does not."""

from __future__ import annotations

from typing import Any

import numpy as np

import nosnoc_py as ns
from models.bouncing_bodies import energy


def findings(body: Any, trajectory: ns.Trajectory) -> dict[str, float]:
    """How well a motion keeps what it should keep.

    Largest values over all nodes: `energy_error` |E(t) - E(0)| [J], `orthogonality` |R'R - I|, `momentum_error` along
    the plane [kg m/s], `penetration` [m]; and over all impacts `complementarity` |v+ + e v-| [m/s]. What is not kept:
    `exchange`, the largest rotational energy that an impact gives or takes [J], beside `drift` of the same in flight
    [J]; and `bend` of the path seen from above, its largest distance from a straight line [m].
    """
    total, plane = energy(body, trajectory.x), body.planes[0]
    rotational = body.energies(trajectory.x)[:, 2]
    at_impact = np.diff(trajectory.t) == 0.0
    flights = np.split(rotational, np.flatnonzero(at_impact) + 1)
    path, ahead = trajectory.x[:, :2] - trajectory.x[0, :2], trajectory.x[0, 12:14]
    rotations = trajectory.x[:, 3:12].reshape(-1, 3, 3)
    products = np.transpose(rotations, (0, 2, 1)) @ rotations - np.eye(3)
    fallen = trajectory.x[:, 12:15] - trajectory.x[0, 12:15] - np.outer(trajectory.t, body.mass * body.gravity)
    along = fallen - np.outer(fallen @ plane.normal, plane.normal)
    rates = [abs(event.v_after + plane.restitution * event.v_before) for event in trajectory.impacts]
    return {
        "energy_error": float(np.abs(total - total[0]).max()),
        "orthogonality": float(np.abs(products).max()),
        "momentum_error": float(np.abs(along).max()),
        "penetration": float(max(0.0, -trajectory[f"gap[{plane.name}]"].min())),
        "complementarity": max(rates, default=0.0),
        "exchange": float(np.abs(np.diff(rotational)[at_impact]).max(initial=0.0)),
        "drift": max(float(np.ptp(flight)) for flight in flights),
        "bend": float(np.abs(path @ (ahead[1], -ahead[0])).max() / np.hypot(*ahead)),
    }
