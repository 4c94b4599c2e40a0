"""A quadruped on point feet with twelve joints: its URDF, its stand, and a control law that holds it.

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
STAND = np.tile([0.0, 0.7, -1.4], 4)  # joint angles of every leg [rad]: outwards, thigh, calf
FOOT = 0.02  # radius of the feet [m]


@dataclass(frozen=True, kw_only=True)
class Gains:
    """Stiffness [N m/rad] and damping [N m s/rad] of the springs that hold the stand."""

    stiffness: float = 150.0
    damping: float = 6.0


def file() -> str:
    """Return the URDF of the quadruped."""
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
    """Return the robot on a floating base."""
    return ns.Robot.from_urdf(file(), base="floating")


def build(friction: float = 0.8, *, gains: Gains | None = None, view: str = "xz") -> ns.CLS:
    """Return the system; with gains, springs and dampers hold the joints, otherwise the joints have drives."""
    quadruped = robot()
    force = 0 if gains is None else held(quadruped, gains)
    return quadruped.system(
        contacts=quadruped.contacts(friction=friction),
        actuated=None if gains is None else [],
        end_stops=False,
        limits=False,
        force=force,
        scene=quadruped.scene(view),
    )


def held(quadruped: ns.Robot, gains: Gains) -> ca.SX:
    """Return the torques of springs and dampers at the joints, which are the last coordinates and velocities."""
    joints, rates = quadruped.q[7:], quadruped.v[6:]
    return ca.vertcat(ca.SX(6, 1), gains.stiffness * (ca.DM(STAND) - joints) - gains.damping * rates)


def start(above: float = 0.0) -> Array:
    """Return the state at rest in the stand, the feet at a height [m]."""
    quadruped = robot()
    q = np.concatenate([[0, 0, 0], [1, 0, 0, 0], STAND])
    foot = ca.Function("foot", [quadruped.q], [quadruped.position("FL_foot")])
    q[2] = FOOT + above - float(foot(q)[2])
    return np.concatenate([q, np.zeros(18)])
