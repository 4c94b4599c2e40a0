"""A biped of five links in the plane, on point feet: its URDF, and where it stands.

The trunk moves in x and z and pitches; two hips and two knees are driven, none of the feet has an ankle.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import urdf

Array = NDArray[np.float64]
FOOT = 0.02  # radius [m]
SIDES = ("left", "right")
# Left hip and knee, right hip and knee [rad]; a positive hip turns the leg to the back.
STRIDE = (0.1, 0.4, -0.6, 0.4)


def file() -> str:
    """Its URDF."""
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
    """On a base that moves in the plane."""
    return ns.Robot.from_urdf(file(), base="planar")


def build(friction: float = 0.8) -> ns.CLS:
    """The system: torques of hips and knees, and both feet on the ground."""
    made = robot()
    return made.system(made.contacts(friction=friction), end_stops=False, scene=made.scene())


def legs(left: float, right: float, height: float) -> Array:
    """Angles of the joints (4,) with the feet at these x from the hips [m], so far below them."""
    found = []
    for ahead in (left, right):
        reach = np.hypot(ahead, height)
        knee = 2 * np.arccos(reach / 0.8)
        found += [np.arctan2(-ahead, height) - knee / 2, knee]
    return np.array(found)


def start(left: float = -0.15, right: float = 0.15, height: float = 0.72, hips: float = 0.0) -> Array:
    """At rest on both feet, the hips at x = `hips`, the feet at these x from them."""
    q = np.concatenate([[hips, FOOT + height, 0], legs(left, right, height)])
    return np.concatenate([q, np.zeros(7)])
