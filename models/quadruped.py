"""A quadruped on point feet with twelve joints: its URDF, its stand, and a law that holds it there.

The trunk floats: position and unit quaternion, linear velocity in the world and angular velocity in the trunk. Feet are
balls that touch the ground with friction in space.
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import urdf

Array = NDArray[np.float64]
LEGS = {"FL": (1, 1), "FR": (1, -1), "RL": (-1, 1), "RR": (-1, -1)}
STAND = np.tile([0.0, 0.7, -1.4], 4)  # of the joints of every leg [rad]: outwards, thigh, calf
FOOT = 0.02  # radius [m]


@dataclass(frozen=True, kw_only=True)
class Gains:
    """Springs [N m/rad] and dampers [N m s/rad] that hold the stand."""

    stiffness: float = 150.0
    damping: float = 6.0


def file() -> str:
    """Its URDF."""
    parts = [urdf.block("trunk", 9.0, (0.45, 0.2, 0.12), (0.01, 0, 0.02))]
    for leg, (x, y) in LEGS.items():
        parts += [
            urdf.link(f"{leg}_hip", 0.6, (-0.005 * x, 0.003 * y, 0), (5e-4, 9e-4, 6e-4)),
            urdf.rod(f"{leg}_thigh", 0.9, 0.21, 0.04),
            urdf.rod(f"{leg}_calf", 0.15, 0.21, 0.03),
            urdf.link(f"{leg}_foot", 0.05, moments=(2e-5, 2e-5, 2e-5), shapes=urdf.ball(FOOT)),
            urdf.joint(f"{leg}_abduction", "trunk", f"{leg}_hip", (0.19 * x, 0.05 * y, 0), "1 0 0"),
            urdf.joint(f"{leg}_hip", f"{leg}_hip", f"{leg}_thigh", (0, 0.08 * y, 0), "0 1 0"),
            urdf.joint(f"{leg}_knee", f"{leg}_thigh", f"{leg}_calf", (0, 0, -0.21), "0 1 0"),
            urdf.joint(f"{leg}_ankle", f"{leg}_calf", f"{leg}_foot", (0, 0, -0.21)),
        ]
    return urdf.robot("quadruped", parts)


def robot() -> ns.Robot:
    """On a floating base."""
    return ns.Robot.from_urdf(file(), base="floating")


def build(friction: float = 0.8, *, gains: Gains | None = None, view: str = "xz") -> ns.CLS:
    """The system; with gains its joints are held at the stand, else they have drives."""
    made = robot()
    force = 0 if gains is None else held(made, gains)
    return made.system(
        contacts=made.contacts(friction=friction),
        actuated=None if gains is None else [],
        end_stops=False,
        force=force,
        scene=made.scene(view),
    )


def held(made: ns.Robot, gains: Gains) -> ca.SX:
    """Springs and dampers at the joints, which are the last coordinates and velocities."""
    joints, rates = made.q[7:], made.v[6:]
    return ca.vertcat(ca.SX(6, 1), gains.stiffness * (ca.DM(STAND) - joints) - gains.damping * rates)


def start(above: float = 0.0) -> Array:
    """At rest in the stand, the feet at a height [m]."""
    made = robot()
    q = np.concatenate([[0, 0, 0], [1, 0, 0, 0], STAND])
    foot = ca.Function("foot", [made.q], [made.position("FL_foot")])
    q[2] = FOOT + above - float(foot(q)[2])
    return np.concatenate([q, np.zeros(18)])
