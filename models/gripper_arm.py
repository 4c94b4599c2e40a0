"""An arm of seven joints with a gripper beside a box that slides on a table: one URDF.

The joints of the arm turn about z and y in turn, as those of many arms; the gripper is closed and pushes with the tips
of its fingers, which together are one ball. The box moves in x and y on the table, where it rubs with dry friction
along each of the two, and does not turn. Motors carry the weight of the arm by themselves: the controls are what they
do besides.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import urdf

Array = NDArray[np.float64]
TIP = 0.02  # radius of the ball that models the fingertips [m]
SIDE = 0.1  # edge of the box [m]
RUBS = 2.0  # dry friction of the box in x and in y [N]
LENGTHS = (0.3, 0.3, 0.3, 0.15)  # lengths of column, upper arm, forearm, and hand to the fingertips [m]
ARM = tuple(f"joint_{k}" for k in range(1, 8))


def file() -> str:
    """Return the URDF of arm and box."""
    column, upper, fore, hand = LENGTHS
    places = [(0, 0, column), (0, 0, 0), (0, 0, upper), (0, 0, 0), (0, 0, fore), (0, 0, 0), (0, 0, 0.05)]
    bars = {2: upper, 4: fore}  # long links
    parts = [urdf.block("table", 5.0, (0.12, 0.12, column), (0, 0, column / 2))]
    before = "table"
    for k, (name, place) in enumerate(zip(ARM, places, strict=True)):
        length = bars.get(k + 1, 0.06)
        mass = 2.0 if k + 1 in bars else 0.8
        parts += [
            urdf.block(f"link_{k + 1}", mass, (0.07, 0.07, length), (0, 0, length / 2)),
            urdf.joint(name, before, f"link_{k + 1}", place, "0 1 0" if k % 2 else "0 0 1", effort=60, velocity=3),
        ]
        before = f"link_{k + 1}"
    parts += [urdf.block("hand", 0.4, (0.05, 0.12, 0.04)), urdf.joint("wrist", before, "hand", (0, 0, 0.05))]
    long = hand - 0.07
    for side, way in (("left", 1), ("right", -1)):
        parts += [
            urdf.block(f"{side}_finger", 0.08, (0.015, 0.012, long), (0, 0, long / 2)),
            urdf.joint(f"{side}_grip", "hand", f"{side}_finger", (0, 0.008 * way, 0.02)),
        ]
    parts += [urdf.link("tips", shapes=urdf.ball(TIP)), urdf.joint("tips_held", "hand", "tips", (0, 0, hand - 0.05))]
    sliding: dict[str, Any] = {"kind": "prismatic", "ends": (-1, 1), "effort": 0, "velocity": 9, "friction": RUBS}
    parts += [
        urdf.link("carriage", 0.01, moments=(1e-5, 1e-5, 1e-5)),
        urdf.joint("box_x", "table", "carriage", (0, 0, SIDE / 2), "1 0 0", **sliding),
        urdf.block("box", 0.5, (SIDE, SIDE, SIDE)),
        urdf.joint("box_y", "carriage", "box", (0, 0, 0), "0 1 0", **sliding),
    ]
    return urdf.robot("gripper_arm", parts)


def robot() -> ns.Robot:
    """Return the robot on its table."""
    return ns.Robot.from_urdf(file())


def build(view: str = "xz") -> ns.CLS:
    """Return the system: the fingertips touch the box without friction."""
    arm = robot()
    box = arm.shape("box", ns.Box([SIDE] * 3))
    touching = ns.contacts(arm.shape("tips", ns.Sphere(TIP)), box, name="tips")
    carried = ca.substitute(arm.bias, arm.v, ca.DM.zeros(arm.v.numel()))
    return arm.system(touching, actuated=ARM, end_stops=False, limits=False, force=carried, scene=arm.scene(view))


def reaching(x: float, height: float) -> Array:
    """Return the arm angles (7,) with the hand pointing down and the fingertips at this x and this height [m]."""
    column, upper, fore, hand = LENGTHS
    wrist = np.array([x, height + hand + 0.05 - column])
    far, up = np.hypot(*wrist), np.arctan2(*wrist)
    shoulder = up - np.arccos((upper**2 + far**2 - fore**2) / (2 * upper * far))
    elbow = np.pi - np.arccos((upper**2 + fore**2 - far**2) / (2 * upper * fore))
    return np.array([0, shoulder, 0, elbow, 0, np.pi - shoulder - elbow, 0])


def start(box: float = 0.5, gap: float = 0.02) -> Array:
    """Return the state at rest, the box at this x, the fingertips a gap behind it [m]."""
    q = np.concatenate([reaching(box - SIDE / 2 - TIP - gap, SIDE / 2), [box, 0]])
    names = build().state_names
    return np.concatenate([q, np.zeros(len(names) - len(q))])
