"""An ant on four legs with eight drives: its URDF and its stand, with the sizes of the ant of MuJoCo and Gymnasium.

The torso is a ball that floats. Every leg turns about the vertical at its hip and bends at its ankle; its end is a
ball that touches the ground with friction in space. Its bodies are light, and the rotors of its drives are heavy
(Schulman et al. 2016).
"""

from __future__ import annotations

import casadi as ca
import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import urdf

Array = NDArray[np.float64]
LEGS = {"front_left": (1, 1), "front_right": (1, -1), "back_left": (-1, 1), "back_right": (-1, -1)}
RADIUS, LIMB, DENSITY = 0.25, 0.08, 5.0  # of torso and legs [m]; of all bodies [kg/m^3]
UPPER, LOWER = 0.2 * 2**0.5, 0.4 * 2**0.5  # lengths from torso to hip, from hip to ankle, and of the lower leg [m]
EFFORT, ROTOR = 150.0, 1.0  # of the drives [N m], inertia at the joint [kg m^2]
BENT = 1.0  # angle of the ankles in the stand [rad]


def file() -> str:
    """Return the URDF of the ant."""
    torso = DENSITY * 4 / 3 * np.pi * RADIUS**3
    seen = urdf.shape(f'<sphere radius="{RADIUS:g}"/>')
    parts = [urdf.link("torso", torso, moments=(0.4 * torso * RADIUS**2,) * 3, shapes=seen)]
    for leg, (x, y) in LEGS.items():
        # The hip is fixed to the end of a stub; its axis is vertical, that of the ankle horizontal across the leg.
        across = f"{-y / 2**0.5:.12g} {x / 2**0.5:.12g} 0"
        parts += [
            _limb(f"{leg}_stub", UPPER, x, y),
            _limb(f"{leg}_upper", UPPER, x, y),
            _limb(f"{leg}_lower", LOWER, x, y),
            urdf.link(f"{leg}_foot", shapes=urdf.ball(LIMB)),
            urdf.joint(f"{leg}_root", "torso", f"{leg}_stub"),
            urdf.joint(f"{leg}_hip", f"{leg}_stub", f"{leg}_upper", (0.2 * x, 0.2 * y, 0), "0 0 1", effort=EFFORT),
            urdf.joint(f"{leg}_ankle", f"{leg}_upper", f"{leg}_lower", (0.2 * x, 0.2 * y, 0), across, effort=EFFORT),
            urdf.joint(f"{leg}_end", f"{leg}_lower", f"{leg}_foot", (0.4 * x, 0.4 * y, 0)),
        ]
    return urdf.robot("ant", parts)


def _limb(name: str, length: float, x: float, y: float) -> str:
    """Return a rod from its joint along (x, y, 0); its moments are those of a slender rod in the mean of directions."""
    mass = DENSITY * np.pi * LIMB**2 * (length + 4 / 3 * LIMB)
    bent = mass * length**2 / 12
    return urdf.link(name, mass, (x * length / 2**1.5, y * length / 2**1.5, 0), (bent, bent, bent))


def robot() -> ns.Robot:
    """Return the robot on a floating base."""
    joints = [f"{leg}_{joint}" for leg in LEGS for joint in ("hip", "ankle")]
    return ns.Robot.from_urdf(file(), base="floating", armature=dict.fromkeys(joints, ROTOR))


def build(friction: float = 1.0) -> ns.CLS:
    """Return the system: torques of hips and ankles, and the four feet in contact with the ground."""
    ant = robot()
    return ant.system(ant.contacts(friction=friction), end_stops=False, limits=False)


def start(bent: float = BENT) -> Array:
    """Return the state at rest on all feet, with ankles bent by this angle [rad]."""
    ant = robot()
    q = np.concatenate([[0, 0, 0, 1, 0, 0, 0], np.tile([0.0, bent], 4)])
    foot = np.array(ca.Function("foot", [ant.q], [ant.position("front_left_foot")])(q)).ravel()
    q[2] = LIMB - foot[2]
    return np.concatenate([q, np.zeros(14)])
