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

Array = NDArray[np.float64]
LEGS = {"FL": (1, 1), "FR": (1, -1), "RL": (-1, 1), "RR": (-1, -1)}
STAND = np.tile([0.0, 0.7, -1.4], 4)  # of the joints of every leg [rad]: outwards, thigh, calf
FOOT = 0.02  # radius [m]


@dataclass(frozen=True, kw_only=True)
class Gains:
    """Springs [N m/rad] and dampers [N m s/rad] that hold the stand."""

    stiffness: float = 150.0
    damping: float = 6.0


def _link(name: str, mass: float, centre: Array, inertia: Array, shape: str = "") -> str:
    moments = " ".join(f'{axes}="{value:g}"' for axes, value in zip(("ixx", "iyy", "izz"), inertia, strict=True))
    place = " ".join(f"{x:g}" for x in centre)
    inertial = f'<inertial><origin xyz="{place}"/><mass value="{mass:g}"/><inertia {moments}/></inertial>'
    return f'<link name="{name}">{inertial}{shape}</link>'


def _joint(name: str, parent: str, child: str, place: tuple[float, float, float], axis: str) -> str:
    at = " ".join(f"{x:g}" for x in place)
    kind = "revolute" if axis else "fixed"
    more = f'<axis xyz="{axis}"/><limit lower="-2.6" upper="2.6" effort="40" velocity="20"/>' if axis else ""
    ends = f'<parent link="{parent}"/><child link="{child}"/>'
    return f'<joint name="{name}" type="{kind}">{ends}<origin xyz="{at}"/>{more}</joint>'


def _seen(what: str, place: tuple[float, float, float], tag: str = "visual") -> str:
    at = " ".join(f"{x:g}" for x in place)
    return f'<{tag}><origin xyz="{at}"/><geometry>{what}</geometry></{tag}>'


def urdf() -> str:
    """The file."""
    trunk = _seen('<box size="0.45 0.2 0.12"/>', (0, 0, 0))
    parts = [_link("trunk", 9.0, np.array([0.01, 0, 0.02]), np.array([0.05, 0.16, 0.19]), trunk)]
    for leg, (x, y) in LEGS.items():
        thigh = _seen('<box size="0.04 0.04 0.21"/>', (0, 0, -0.105))
        calf = _seen('<box size="0.03 0.03 0.21"/>', (0, 0, -0.105))
        ball = f'<sphere radius="{FOOT:g}"/>'
        touching = _seen(ball, (0, 0, 0), "collision") + _seen(ball, (0, 0, 0))
        parts += [
            _link(f"{leg}_hip", 0.6, np.array([-0.005 * x, 0.003 * y, 0]), np.array([5e-4, 9e-4, 6e-4])),
            _link(f"{leg}_thigh", 0.9, np.array([-0.004, -0.02 * y, -0.03]), np.array([5e-3, 5e-3, 1e-3]), thigh),
            _link(f"{leg}_calf", 0.15, np.array([0.003, 0, -0.12]), np.array([2e-3, 2e-3, 1e-4]), calf),
            _link(f"{leg}_foot", 0.05, np.zeros(3), np.full(3, 2e-5), touching),
            _joint(f"{leg}_abduction", "trunk", f"{leg}_hip", (0.19 * x, 0.05 * y, 0), "1 0 0"),
            _joint(f"{leg}_hip", f"{leg}_hip", f"{leg}_thigh", (0, 0.08 * y, 0), "0 1 0"),
            _joint(f"{leg}_knee", f"{leg}_thigh", f"{leg}_calf", (0, 0, -0.21), "0 1 0"),
            _joint(f"{leg}_ankle", f"{leg}_calf", f"{leg}_foot", (0, 0, -0.21), ""),
        ]
    return f'<robot name="quadruped">{"".join(parts)}</robot>'


def robot() -> ns.Robot:
    """On a floating base."""
    return ns.Robot.from_urdf(urdf(), base="floating")


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
