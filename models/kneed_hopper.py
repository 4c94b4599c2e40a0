"""A planar hopper with a hip and a knee: its URDF and its stance.

The body moves in x and z and pitches; both joints are driven, the foot is a ball that rubs on the ground.
"""

from __future__ import annotations

import casadi as ca
import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import urdf

Array = NDArray[np.float64]
FOOT = 0.02  # radius of the foot [m]
CROUCH = (-0.4, 0.8)  # hip and knee [rad]


def file() -> str:
    """Return the URDF of the hopper."""
    return urdf.robot(
        "hopper",
        [
            urdf.block("body", 3.0, (0.3, 0.2, 0.15), (0, 0, 0.05)),
            urdf.rod("thigh", 0.5, 0.3, 0.05),
            urdf.rod("shank", 0.3, 0.3, 0.04),
            urdf.link("foot", shapes=urdf.ball(FOOT)),
            urdf.joint("hip", "body", "thigh", axis="0 1 0", ends=(-1.5, 1.5), damping=0.1),
            urdf.joint("knee", "thigh", "shank", (0, 0, -0.3), "0 1 0", ends=(0.05, 2.5)),
            urdf.joint("ankle", "shank", "foot", (0, 0, -0.3)),
        ],
    )


def robot() -> ns.Robot:
    """Return the robot on a base that moves in the plane."""
    return ns.Robot.from_urdf(file(), base="planar")


def build(friction: float = 0.8, restitution: float = 0.0) -> ns.CLS:
    """Return the system: torques of hip and knee, and the foot in contact with the ground."""
    hopper = robot()
    touching = hopper.contacts(friction=friction, restitution=restitution)
    return hopper.system(touching, end_stops=False, limits=False, scene=hopper.scene())


def start(joints: tuple[float, float] = CROUCH, above: float = 0.0) -> Array:
    """Return the state at rest over its foot, the foot at a height [m] over the ground."""
    hopper = robot()
    q = np.array([0.0, 0.0, 0.0, *joints])
    foot = np.array(ca.Function("foot", [hopper.q], [hopper.position("foot")])(q)).reshape(3)
    q[:2] = -foot[0], FOOT + above - foot[2]
    return np.concatenate([q, np.zeros(5)])
