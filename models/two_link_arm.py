"""A planar arm of two links with motors at its joints; its tip may touch the ground.

The shoulder is fixed at the given height. phi_shoulder is the angle of the upper link from hanging down, phi_elbow that
of the lower link relative to the upper one, both counter-clockwise; with d(a) = (sin a, -cos a)

    elbow = shoulder + l_1 d(phi_shoulder),    tip = elbow + l_2 d(phi_shoulder + phi_elbow).

Mass matrix and forces come from the kinetic and the potential energy (`ns.lagrangian`).
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.lagrangian import Lagrangian, kinetic_energy, lagrangian
from nosnoc_py.systems.scene import Ground, Line, Mark, Trail

Array = NDArray[np.float64]
NAMES = ["phi_shoulder", "phi_elbow"]
SPEEDS = ["omega_shoulder", "omega_elbow"]
TORQUES = ["torque_shoulder", "torque_elbow"]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of the arm; pairs are (upper, lower) link.

    Parameters
    ----------
    masses : pair of float
        Masses of the links [kg].
    lengths, centres : pair of float
        Lengths of the links, and distances of their centres of mass from the upper end [m].
    inertias : pair of float
        Moments of inertia about the centres of mass [kg m^2]; the defaults are those of uniform rods.
    height : float
        Height of the shoulder above the ground [m].
    gravity : float
        [m/s^2].
    damping : float
        Viscous damping of both joints [N m s].
    friction, restitution : float
        Coefficients of the contact between tip and ground.

    Raises
    ------
    ModelError
        If a mass, a length or an inertia is not positive, or the damping negative.
    """

    masses: tuple[float, float] = (1.0, 1.0)
    lengths: tuple[float, float] = (0.5, 0.5)
    centres: tuple[float, float] = (0.25, 0.25)
    inertias: tuple[float, float] = (1.0 / 48.0, 1.0 / 48.0)
    height: float = 0.8
    gravity: float = 9.81
    damping: float = 0.0
    friction: float = 0.5
    restitution: float = 0.0

    def __post_init__(self) -> None:
        if not min(*self.masses, *self.lengths, *self.inertias) > 0.0:
            raise ModelError(f"an arm needs masses, lengths and inertias > 0; given {self}.")
        if not self.damping >= 0.0:
            raise ModelError(f"an arm needs a damping >= 0; given {self}.")


ARM = Constants()


@dataclass(frozen=True, eq=False, kw_only=True)
class Positions:
    """Positions (2,) of shoulder, elbow and tip and the two centres of mass, as expressions of q."""

    shoulder: ca.SX
    elbow: ca.SX
    tip: ca.SX
    centres: tuple[ca.SX, ca.SX]


def positions(q: ca.SX, constants: Constants = ARM) -> Positions:
    """Return the positions of joints, tip and centres of mass for coordinates q (2,)."""
    shoulder = ca.vertcat(ca.SX(0), constants.height)
    upper, lower = _along(q[0]), _along(q[0] + q[1])
    elbow = shoulder + constants.lengths[0] * upper
    return Positions(
        shoulder=shoulder,
        elbow=elbow,
        tip=elbow + constants.lengths[1] * lower,
        centres=(shoulder + constants.centres[0] * upper, elbow + constants.centres[1] * lower),
    )


def mechanics(q: ca.SX, v: ca.SX, u: ca.SX, constants: Constants = ARM) -> Lagrangian:
    """Return the equations of motion, derived from the energies."""
    centres, masses = positions(q, constants).centres, constants.masses
    return lagrangian(
        q=q,
        v=v,
        u=u,
        kinetic=kinetic_energy(
            q,
            v,
            masses=list(zip(masses, centres, strict=True)),
            inertias=list(zip(constants.inertias, (q[0], q[0] + q[1]), strict=True)),
        ),
        potential=constants.gravity * (masses[0] * centres[0][1] + masses[1] * centres[1][1]),
        forces=u,
        damping=constants.damping,
    )


def build(constants: Constants = ARM) -> ns.CLS:
    """Return the arm as a system.

    Returns
    -------
    ns.CLS
        States phi_shoulder, phi_elbow [rad], omega_shoulder, omega_elbow [rad/s]; controls torque_shoulder,
        torque_elbow [N m]; one contact "tip" with the ground z = 0.
    """
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    arm, at = mechanics(q, v, u, constants), positions(q, constants)
    tip = at.tip
    contact = ns.Contact(
        "tip",
        gap=tip[1],
        tangent=arm.jacobian(tip)[0, :].T,
        friction=constants.friction,
        restitution=constants.restitution,
    )
    units = dict.fromkeys(NAMES, "rad") | dict.fromkeys(SPEEDS, "rad/s") | dict.fromkeys(TORQUES, "N m")
    return ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=arm.mass_matrix,
        force=arm.force,
        contacts=[contact],
        names={"q": NAMES, "v": SPEEDS, "u": TORQUES},
        units=units,
        nominal={"force": sum(constants.masses) * constants.gravity},
        scene=[Trail(tip), Line([at.shoulder, at.elbow, tip], label="arm"), Ground(), Mark("tip", tip)],
    )


def joints(x: ArrayLike, constants: Constants = ARM) -> Array:
    """Return the positions of shoulder, elbow and tip, (..., 3, 2), for coordinates or states (..., 2 or more)."""
    q = np.asarray(x, dtype=float)
    upper, lower = q[..., 0], q[..., 0] + q[..., 1]
    shoulder = np.broadcast_to([0.0, constants.height], (*q.shape[:-1], 2))
    elbow = shoulder + constants.lengths[0] * np.stack([np.sin(upper), -np.cos(upper)], axis=-1)
    tip = elbow + constants.lengths[1] * np.stack([np.sin(lower), -np.cos(lower)], axis=-1)
    return np.stack([shoulder, elbow, tip], axis=-2)


def _along(angle: ca.SX) -> ca.SX:
    """Return the unit vector of a link that is turned by this angle from hanging down."""
    return ca.vertcat(ca.sin(angle), -ca.cos(angle))
