"""A planar one-legged robot: hip, thigh and shank, a point foot with friction, motors at hip and knee.

Coordinates are the position of the hip, the angle of the thigh and that of the shank relative to the thigh; with all
angles zero the leg hangs straight down. With d_1 = (-sin phi_hip, -cos phi_hip) and d_2 the same at phi_hip + phi_knee,

    knee = hip + l_1 d_1,    foot = knee + l_2 d_2.

The equations of motion come from the Lagrangian, M(q) v' = B u - dM/dt v + dT/dq - dV/dq + contact forces. The robot is
that of the time-freezing paper (Section 6): a heavy body without inertia at the hip and a light leg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Disc, Ground, Line, Mark, Trail

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Masses [kg] of body, thigh and shank; lengths of the links, distances of their centres of mass from the upper end
    [m], their moments of inertia about it [kg m^2], each (thigh, shank); gravity [m/s^2] and friction of the foot.

    Raises
    ------
    ModelError
        If a mass, a length or an inertia is not positive, or the friction negative.
    """

    body: float = 3.975
    masses: tuple[float, float] = (1.782, 0.548)
    lengths: tuple[float, float] = (0.2, 0.2)
    centres: tuple[float, float] = (0.016, 0.1)
    inertias: tuple[float, float] = (0.001, 0.0032)
    gravity: float = 9.81
    friction: float = 0.8

    def __post_init__(self) -> None:
        if not min(self.body, *self.masses, *self.lengths, *self.inertias) > 0.0:
            raise ModelError(f"a hopper needs masses, lengths and inertias > 0; given {self}.")
        if not self.friction >= 0.0:
            raise ModelError(f"a hopper needs a friction >= 0; given {self}.")

    @property
    def weight(self) -> float:
        """Weight of the robot [N]."""
        return (self.body + sum(self.masses)) * self.gravity


CAPLER = Constants()


@dataclass(frozen=True, eq=False, kw_only=True)
class Positions:
    """Positions (2,) of hip, knee and foot as expressions of q."""

    hip: ca.SX
    knee: ca.SX
    foot: ca.SX


def positions(q: ca.SX, constants: Constants = CAPLER) -> Positions:
    """Return the positions of hip, knee and foot for coordinates q (4,)."""
    hip, (thigh, shank) = q[:2], constants.lengths
    knee = hip + thigh * _down(q[2])
    return Positions(hip=hip, knee=knee, foot=knee + shank * _down(q[2] + q[3]))


def mass_matrix(q: ca.SX, constants: Constants = CAPLER) -> ca.SX:
    """Return M(q), (4, 4)."""
    turning = (ca.SX([[0, 0, 1, 0]]), ca.SX([[0, 0, 1, 1]]))
    matrix = constants.body * ca.diag(ca.SX([1, 1, 0, 0]))
    for centre, turn, mass, inertia in zip(
        _centres(q, constants), turning, constants.masses, constants.inertias, strict=True
    ):
        jacobian = ca.jacobian(centre, q)
        matrix += mass * jacobian.T @ jacobian + inertia * turn.T @ turn
    return matrix


def potential(q: ca.SX, constants: Constants = CAPLER) -> ca.SX:
    """Return the potential energy V [J], zero with all masses at z = 0."""
    heights = [centre[1] for centre in _centres(q, constants)]
    weighted = sum((mass * z for mass, z in zip(constants.masses, heights, strict=True)), constants.body * q[1])
    return constants.gravity * weighted


def free_force(q: ca.SX, v: ca.SX, constants: Constants = CAPLER) -> ca.SX:
    """Return the force (4,) of gravity and of the motion itself, -dM/dt v + dT/dq - dV/dq."""
    momentum = mass_matrix(q, constants) @ v
    kinetic = 0.5 * ca.dot(v, momentum)
    return -ca.jtimes(momentum, q, v) + ca.gradient(kinetic - potential(q, constants), q)


def build(constants: Constants = CAPLER) -> ns.CLS:
    """Return the robot as a system.

    Returns
    -------
    ns.CLS
        States x_hip, z_hip [m], phi_hip, phi_knee [rad], v_x, v_z [m/s], omega_hip, omega_knee [rad/s]; controls
        torque_hip, torque_knee [N m]; one contact "foot" with the ground z = 0, inelastic, with friction.
    """
    q, v, u = ca.SX.sym("q", 4), ca.SX.sym("v", 4), ca.SX.sym("u", 2)
    at = positions(q, constants)
    foot = at.foot
    contact = ns.Contact("foot", gap=foot[1], tangent=ca.gradient(foot[0], q), friction=constants.friction)
    velocities = {"v_x": "m/s", "v_z": "m/s", "omega_hip": "rad/s", "omega_knee": "rad/s"}
    return ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=mass_matrix(q, constants),
        force=free_force(q, v, constants) + ca.vertcat(0, 0, u),
        contacts=[contact],
        names={
            "q": ["x_hip", "z_hip", "phi_hip", "phi_knee"],
            "v": list(velocities),
            "u": ["torque_hip", "torque_knee"],
        },
        units={
            **{"x_hip": "m", "z_hip": "m", "phi_hip": "rad", "phi_knee": "rad"},
            **velocities,
            **{"torque_hip": "N m", "torque_knee": "N m"},
        },
        nominal={"force": constants.weight},
        scene=[
            Trail(foot),
            Line([at.hip, at.knee, foot], label="leg"),
            Disc(at.hip, 0.2 * sum(constants.lengths) / 2, label="body"),
            Ground(),
            Mark("foot", foot),
        ],
    )


def joints(x: ArrayLike, constants: Constants = CAPLER) -> Array:
    """Return the positions of hip, knee and foot, (..., 3, 2), for coordinates or states (..., 4 or more)."""
    q = np.asarray(x, dtype=float)
    thigh, shank = q[..., 2], q[..., 2] + q[..., 3]
    knee = q[..., :2] - constants.lengths[0] * np.stack([np.sin(thigh), np.cos(thigh)], axis=-1)
    foot = knee - constants.lengths[1] * np.stack([np.sin(shank), np.cos(shank)], axis=-1)
    return np.stack([q[..., :2], knee, foot], axis=-2)


def energy(x: ArrayLike, constants: Constants = CAPLER) -> Any:
    """Return kinetic plus potential energy [J] of states (8,) or (n, 8)."""
    q, v = ca.SX.sym("q", 4), ca.SX.sym("v", 4)
    total = 0.5 * ca.dot(v, mass_matrix(q, constants) @ v) + potential(q, constants)
    states = np.atleast_2d(np.asarray(x, dtype=float)).T
    values = np.array(ca.Function("energy", [q, v], [total])(states[:4], states[4:])).ravel()
    return float(values[0]) if np.ndim(x) == 1 else values


def _down(angle: ca.SX) -> ca.SX:
    """Return the unit vector of a link that is turned by this angle from hanging down."""
    return -ca.vertcat(ca.sin(angle), ca.cos(angle))


def _centres(q: ca.SX, constants: Constants) -> tuple[ca.SX, ca.SX]:
    """Return the centres of mass of thigh and shank."""
    thigh, shank = constants.centres
    return q[:2] + thigh * _down(q[2]), positions(q, constants).knee + shank * _down(q[2] + q[3])
