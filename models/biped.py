"""A planar biped of five links on point feet: its URDF and its stance.

The trunk moves in x and z and pitches; two hips and two knees are driven, none of the feet has an ankle.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import urdf

Array = NDArray[np.float64]
FOOT = 0.02  # radius of the feet [m]
SIDES = ("left", "right")
# Left hip and knee, right hip and knee [rad]; a positive hip turns the leg to the back.
STRIDE = (0.1, 0.4, -0.6, 0.4)


def file() -> str:
    """Return the URDF of the biped."""
    parts = [
        urdf.link("trunk", 12.0, (0, 0, 0.25), (0.6, 0.6, 0.1), urdf.shape('<box size="0.1 0.2 0.5"/>', (0, 0, 0.25)))
    ]
    for side in SIDES:
        parts += [
            urdf.rod(f"{side}_thigh", 3.0, 0.4, 0.08),
            urdf.rod(f"{side}_shank", 1.5, 0.4, 0.06),
            urdf.link(f"{side}_foot", shapes=urdf.ball(FOOT)),
            urdf.joint(f"{side}_hip", "trunk", f"{side}_thigh", axis="0 1 0", ends=(-1.5, 1.5), effort=80),
            urdf.joint(f"{side}_knee", f"{side}_thigh", f"{side}_shank", (0, 0, -0.4), "0 1 0", ends=(0, 2), effort=80),
            urdf.joint(f"{side}_ankle", f"{side}_shank", f"{side}_foot", (0, 0, -0.4)),
        ]
    return urdf.robot("biped", parts)


def robot() -> ns.Robot:
    """Return the robot on a base that moves in the plane."""
    return ns.Robot.from_urdf(file(), base="planar")


def build(friction: float = 0.8) -> ns.CLS:
    """Return the system: torques of hips and knees, and both feet in contact with the ground."""
    biped = robot()
    return biped.system(biped.contacts(friction=friction), end_stops=False, limits=False, scene=biped.scene())


def legs(left: float, right: float, height: float) -> Array:
    """Return the joint angles (4,) for feet at these x and at this depth below the hips [m]."""
    angles = []
    for ahead in (left, right):
        reach = np.hypot(ahead, height)
        knee = 2 * np.arccos(reach / 0.8)
        angles += [np.arctan2(-ahead, height) - knee / 2, knee]
    return np.array(angles)


def start(left: float = -0.15, right: float = 0.15, height: float = 0.72, hips: float = 0.0) -> Array:
    """Return the state at rest on both feet, the hips at x = `hips`, the feet at these x relative to the hips."""
    q = np.concatenate([[hips, FOOT + height, 0], legs(left, right, height)])
    return np.concatenate([q, np.zeros(7)])
