"""A rigid rod falls on the ground in the plane: two end contacts with friction.

A force at an end of the rod turns it, so friction and normal force are coupled: with the angle theta and the ends at
(x +- l/2 cos theta, y +- l/2 sin theta),

    gap = y +- l/2 sin theta,    J_n = (0, 1, +- l/2 cos theta),    J_t = (1, 0, -+ l/2 sin theta).

`strike` gives the impact of one end in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Ground, Line, Mark, Trail

Array = NDArray[np.float64]
End = Literal["left", "right"]
SIDES: dict[str, float] = {"left": -1.0, "right": 1.0}


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Mass [kg], length [m], gravity [m/s^2]; friction and restitution of the (left, right) end.

    Raises
    ------
    ModelError
        If mass or length is not positive, a friction negative, or a restitution outside [0, 1].
    """

    mass: float = 1.0
    length: float = 1.0
    gravity: float = 9.81
    frictions: tuple[float, float] = (0.3, 0.3)
    restitutions: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        if not (self.mass > 0.0 and self.length > 0.0 and min(self.frictions) >= 0.0):
            raise ModelError(f"a rod needs mass > 0, length > 0 and frictions >= 0; given {self}.")
        if not all(0.0 <= e <= 1.0 for e in self.restitutions):
            raise ModelError(f"a rod needs restitutions in [0, 1]; given {self}.")

    @property
    def inertia(self) -> float:
        """Moment of inertia of a slender rod about its centre [kg m^2]."""
        return self.mass * self.length**2 / 12.0

    @property
    def masses(self) -> tuple[float, float, float]:
        """Diagonal of the constant mass matrix, for (x, y, theta)."""
        return self.mass, self.mass, self.inertia


STANDARD = Constants()


def build(constants: Constants = STANDARD) -> ns.CLS:
    """Return the rod as a system.

    Returns
    -------
    ns.CLS
        States x, y of the centre [m], theta [rad], v_x, v_y [m/s], omega [rad/s]; no controls; contacts "left" and
        "right".
    """
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    arm = 0.5 * constants.length * ca.vertcat(ca.cos(q[2]), ca.sin(q[2]))
    half, weight = 0.5 * constants.length, constants.mass * constants.gravity
    contacts = [
        ns.Contact(
            end,
            gap=q[1] + side * half * ca.sin(q[2]),
            tangent=ca.vertcat(1, 0, -side * half * ca.sin(q[2])),
            friction=friction,
            restitution=restitution,
        )
        for (end, side), friction, restitution in zip(
            SIDES.items(), constants.frictions, constants.restitutions, strict=True
        )
    ]
    return ns.CLS(
        q=q,
        v=v,
        mass_matrix=ca.diag(ca.DM(constants.masses)),
        force=ca.vertcat(0, -weight, 0),
        contacts=contacts,
        names={"q": ["x", "y", "theta"], "v": ["v_x", "v_y", "omega"]},
        units={"x": "m", "y": "m", "theta": "rad", "v_x": "m/s", "v_y": "m/s", "omega": "rad/s"},
        nominal={"force": weight},
        scene=[
            Trail(q[:2]),
            Line([q[:2] - arm, q[:2] + arm]),
            Ground(),
            *(Mark(end, q[:2] + side * arm) for end, side in SIDES.items()),
        ],
    )


def ends(x: ArrayLike, constants: Constants = STANDARD) -> Array:
    """Return the positions (..., 2, 2) of the left and the right end for states (..., 6)."""
    states = np.asarray(x, dtype=float)
    arm = 0.5 * constants.length * np.stack([np.cos(states[..., 2]), np.sin(states[..., 2])], axis=-1)
    return np.stack([states[..., :2] - arm, states[..., :2] + arm], axis=-2)


def energy(x: ArrayLike, constants: Constants = STANDARD) -> Array:
    """Return kinetic plus potential energy [J] of states (..., 6)."""
    states = np.asarray(x, dtype=float)
    kinetic = 0.5 * states[..., 3:] ** 2 @ np.array(constants.masses)
    total: Array = kinetic + constants.mass * constants.gravity * states[..., 1]
    return total


@dataclass(frozen=True, eq=False, kw_only=True)
class Strike:
    """Impact of one end: velocities after it (3,), impulses [N s], and whether the end sticks to the ground."""

    v: Array
    normal: float
    tangential: float
    sticks: bool


def strike(theta: float, v: ArrayLike, end: End, constants: Constants = STANDARD) -> Strike:
    """Return the impact of one end that touches the ground at the angle theta, with Newton's law and Coulomb friction.

    The velocity of the end (normal, tangential) changes by W (Lambda_n, Lambda_t) with

        W = [1/m + c^2/J, -s c/J; -s c/J, 1/m + s^2/J],  c = l/2 cos theta, s = l/2 sin theta.

    It sticks if the impulses that stop it lie in the cone; otherwise it slips with Lambda_t = -+ mu Lambda_n.

    Raises
    ------
    ModelError
        If the end does not approach the ground.
    """
    which, half, side = list(SIDES).index(end), 0.5 * constants.length, SIDES[end]
    cosine, sine = side * half * np.cos(theta), side * half * np.sin(theta)
    frame = np.array([[0.0, 1.0, cosine], [1.0, 0.0, -sine]])
    before = frame @ np.asarray(v, dtype=float)
    if before[0] >= 0.0:
        raise ModelError(f"the {end} end does not approach the ground; its velocity is {before[0]:.6g} m/s.")
    inverse = 1.0 / np.array(constants.masses)
    delassus = (frame * inverse) @ frame.T
    mu, wanted = constants.frictions[which], -(1.0 + constants.restitutions[which]) * before[0]
    impulse = np.linalg.solve(delassus, [wanted, -before[1]])
    sticks = bool(abs(impulse[1]) <= mu * impulse[0])
    if not sticks:
        impulse = _slipping(delassus, before, wanted, mu)
    after = np.asarray(v, dtype=float) + inverse * (frame.T @ impulse)
    return Strike(v=after, normal=float(impulse[0]), tangential=float(impulse[1]), sticks=sticks)


def _slipping(delassus: Array, before: Array, wanted: float, mu: float) -> Array:
    """Return the impulses (2,) of the slip whose direction agrees with the velocity that results from it."""
    for direction in (1.0, -1.0):
        share = np.array([1.0, -direction * mu])
        impulse = share * wanted / (delassus[0] @ share)
        if impulse[0] > 0.0 and direction * (before[1] + delassus[1] @ impulse) >= 0.0:
            return impulse
    raise ModelError("the impact has no solution with Coulomb friction; a smaller friction has one.")


def tilted(theta: float, height: float, constants: Constants = STANDARD) -> tuple[float, ...]:
    """Return the state at rest with the lower end `height` above the ground."""
    return 0.0, height + 0.5 * constants.length * abs(float(np.sin(theta))), theta, 0.0, 0.0, 0.0
