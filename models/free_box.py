"""A box that falls on the ground, tumbles and comes to rest: eight contacts at its corners, attitude by quaternion.

Coordinates are the position of the centre and the unit quaternion of the attitude (real part first), velocities the
linear one in the world and the angular one in the frame of the box, so that M is constant and Euler's equations hold:
I w' = -w x I w + torques. With `euler` the same box has Euler angles (z, y', x'') and their rates instead, which fail
where the box stands on its side; tests hold both against each other.
"""

from __future__ import annotations

from itertools import combinations, product

import casadi as ca
import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from nosnoc_py.rotations import product as times
from nosnoc_py.rotations import rotation_of

Array = NDArray[np.float64]
GRAVITY = 9.81


def build(
    half: tuple[float, float, float] = (0.2, 0.15, 0.1),
    mass: float = 1.0,
    *,
    friction: float = 0.5,
    restitution: float = 0.0,
    thrust: bool = False,
    euler: bool = False,
    view: str | None = None,
) -> ns.CLS:
    """Return the box as a system.

    Parameters
    ----------
    half : (3,)
        Half of its lengths [m].
    mass : float
        [kg], spread evenly.
    thrust : bool
        True if a force in the world and a torque in the box are controls (6,).
    view : str, optional
        One of `ns.scene.VIEWS`, for pictures.
    """
    a = np.array(half)
    inertia = ca.SX(mass / 3 * (a @ a - a**2))
    q, v = ca.SX.sym("q", 6 if euler else 7), ca.SX.sym("v", 6)
    if euler:
        rotation = _turn(2, q[3]) @ _turn(1, q[4]) @ _turn(0, q[5])
        w = _vee(rotation.T @ ca.reshape(ca.jtimes(ca.vec(rotation), q, v), 3, 3))
        to_w = ca.jacobian(w, v)
        inner = ca.jtimes(to_w, q, v) @ v  # the part of w' that does not come from v'
    else:
        rotation, w, to_w, inner = rotation_of(q[3:]), v[3:], ca.horzcat(ca.SX(3, 3), ca.SX.eye(3)), ca.SX(3, 1)
    torque = -ca.cross(w, inertia * w) - inertia * inner
    u = ca.SX.sym("u", 6 if thrust else 0)
    force = ca.vertcat(0, 0, -mass * GRAVITY, 0, 0, 0) + to_w.T @ torque
    if thrust:
        force += ca.vertcat(u[:3], 0, 0, 0) + to_w.T @ u[3:]
    linear = ca.diagcat(mass * ca.SX.eye(3), ca.SX(3, 3))
    corners = {}
    for signs in product((-1, 1), repeat=3):
        arm = ca.DM(a * np.array(signs))
        velocity = v[:3] + rotation @ ca.cross(w, arm)
        name = "corner" + "".join("-+"[sign > 0] for sign in signs)
        corners[name] = q[:3] + rotation @ arm, ca.jacobian(velocity[:2], v).T
    contacts = [
        ns.Contact(name, gap=place[2], tangent=tangent, friction=friction, restitution=restitution)
        for name, (place, tangent) in corners.items()
    ]
    turned = ["yaw", "pitch", "roll"] if euler else ["qw", "qx", "qy", "qz"]
    rates = ["yaw_rate", "pitch_rate", "roll_rate"] if euler else ["wx", "wy", "wz"]
    names = {"q": ["x", "y", "z", *turned], "v": ["vx", "vy", "vz", *rates]}
    if thrust:
        names["u"] = ["fx", "fy", "fz", "tx", "ty", "tz"]
    drawn = [] if view is None else _drawn({name: place for name, (place, _) in corners.items()}, view)
    return ns.CLS(
        q=q,
        v=v,
        u=u,
        quaternions=[] if euler else [q[3:]],
        mass_matrix=linear + to_w.T @ ca.diag(inertia) @ to_w,
        force=force,
        contacts=contacts,
        names=names,
        scene=drawn,
    )


def _drawn(corners: dict[str, ca.SX], view: str) -> list[ns.scene.Shape]:
    """Return all edges of the box, including hidden ones, so that its rotation is visible."""
    drawn: list[ns.scene.Shape] = [ns.scene.Ground()] if view in ("xz", "yz") else []
    axes = ca.DM(np.array(ns.scene.VIEWS[view]))
    for (first, a), (second, b) in combinations(corners.items(), 2):
        if sum(one != other for one, other in zip(first, second, strict=True)) == 1:
            drawn.append(ns.scene.Line([axes @ a, axes @ b], colour="black"))
    return drawn


def energy(x: Array, half: tuple[float, float, float] = (0.2, 0.15, 0.1), mass: float = 1.0) -> float:
    """Return kinetic plus potential energy [J] of a state with a quaternion."""
    a = np.array(half)
    inertia = mass / 3 * (a @ a - a**2)
    return float(0.5 * (mass * x[7:10] @ x[7:10] + x[10:] @ (inertia * x[10:])) + mass * GRAVITY * x[2])


def start(angles: tuple[float, float, float], height: float, *, euler: bool = False) -> Array:
    """Return the state at rest at a height [m] with Euler angles (z, y', x'') [rad]."""
    if euler:
        return np.array([0, 0, height, *angles, *np.zeros(6)], dtype=float)
    halves = zip(np.array(angles) / 2, np.eye(3)[::-1], strict=True)
    z, y, x = (np.array([np.cos(half), *(np.sin(half) * axis)]) for half, axis in halves)
    return np.array([0, 0, height, *times(times(z, y), x), *np.zeros(6)])


def _turn(axis: int, angle: ca.SX) -> ca.SX:
    """Return the rotation about a coordinate axis."""
    cross = ca.skew(ca.DM(np.eye(3)[axis]))
    return ca.SX.eye(3) + ca.sin(angle) * cross + (1 - ca.cos(angle)) * (cross @ cross)


def _vee(matrix: ca.SX) -> ca.SX:
    return ca.vertcat(matrix[2, 1], matrix[0, 2], matrix[1, 0])
