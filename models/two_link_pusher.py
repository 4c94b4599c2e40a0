"""A planar arm of two links on a table, beside a puck that slides along x, as one URDF.

Both joints turn about z, so that gravity has no effect; the puck rubs on the table with dry friction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import urdf

Array = NDArray[np.float64]
LENGTHS = (0.35, 0.3)  # lengths of the links [m]
TIP, PUCK = 0.015, 0.04  # radii [m]
RUBS = 1.5  # dry friction of the puck [N]


def file() -> str:
    """Return the URDF of arm and puck."""
    upper, fore = LENGTHS
    sliding: dict[str, Any] = {"kind": "prismatic", "ends": (-1, 1), "effort": 0, "velocity": 9, "friction": RUBS}
    return urdf.robot(
        "two_link_pusher",
        [
            urdf.link("table"),
            urdf.block("upper", 1.5, (upper, 0.06, 0.05), (upper / 2, 0, 0)),
            urdf.block("fore", 1.0, (fore, 0.04, 0.04), (fore / 2, 0, 0)),
            urdf.link("tip", shapes=urdf.ball(TIP)),
            urdf.link("puck", 0.4, moments=(3e-4, 3e-4, 3e-4), shapes=urdf.ball(PUCK)),
            urdf.joint("shoulder", "table", "upper", axis="0 0 1", effort=20, velocity=8),
            urdf.joint("elbow", "upper", "fore", (upper, 0, 0), "0 0 1", effort=20, velocity=8),
            urdf.joint("wrist", "fore", "tip", (fore, 0, 0)),
            urdf.joint("puck_x", "table", "puck", (0, 0.3, 0), "1 0 0", **sliding),
        ],
    )


def robot() -> ns.Robot:
    """Return the robot on its table."""
    return ns.Robot.from_urdf(file())


def build() -> ns.CLS:
    """Return the system: the tip touches the puck without friction."""
    arm = robot()
    touching = ns.contacts(arm.shape("tip", ns.Sphere(TIP)), arm.shape("puck", ns.Sphere(PUCK)), name="tip")
    return arm.system(touching, actuated=["shoulder", "elbow"], end_stops=False, limits=False, scene=arm.scene("xy"))


def reaching(x: float, y: float) -> Array:
    """Return the angles of shoulder and elbow (2,) with the tip at this position [m] and the elbow on its left."""
    upper, fore = LENGTHS
    far = np.hypot(x, y)
    elbow = -np.arccos((far**2 - upper**2 - fore**2) / (2 * upper * fore))
    shoulder = np.arctan2(y, x) - np.arctan2(fore * np.sin(elbow), upper + fore * np.cos(elbow))
    return np.array([shoulder, elbow])


def start(puck: float = 0.0, gap: float = 0.05) -> dict[str, float]:
    """Return the state at rest, the puck at this x, the tip a gap behind it [m]."""
    joints = reaching(puck - PUCK - TIP - gap, 0.3)
    return {"shoulder": joints[0], "elbow": joints[1], "puck_x": puck}
