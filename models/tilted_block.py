"""Blocks on a tilted plane, in 2-D or 3-D, and two blocks on top of each other.

A block rests where tan(angle) <= mu and slides beyond. On a slope with tan(angle) = mu a block that is pushed along
the contour line turns into the fall line on a curve that is known in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models.point_mass import axes_of, labels
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Arrow, Ground, Mark, Rectangle


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Mass [kg], gravity [m/s^2], angle of the plane [rad], coefficient of friction and restitution of the contact.

    Raises
    ------
    ModelError
        If the mass is not positive, the angle outside [0, pi/2), the friction negative, or the restitution outside
        [0, 1].
    """

    mass: float = 1.0
    gravity: float = 9.81
    angle: float = float(np.deg2rad(20.0))
    friction: float = 0.5
    restitution: float = 0.0

    def __post_init__(self) -> None:
        if not (self.mass > 0.0 and 0.0 <= self.angle < np.pi / 2 and self.friction >= 0.0):
            raise ModelError(f"a block on a plane needs mass > 0, 0 <= angle < pi/2 and friction >= 0; given {self}.")
        if not 0.0 <= self.restitution <= 1.0:
            raise ModelError(f"a block on a plane needs 0 <= restitution <= 1; given {self}.")

    @property
    def fall_line(self) -> tuple[float, float]:
        """Unit vector down the plane, its horizontal and its vertical component."""
        return float(np.cos(self.angle)), -float(np.sin(self.angle))

    @property
    def critical_angle(self) -> float:
        """Angle beyond which a block at rest begins to slide [rad]."""
        return float(np.arctan(self.friction))


STANDARD = Constants()


@dataclass(frozen=True, kw_only=True)
class StackConstants:
    """Masses of the lower and the upper block [kg], frictions below the lower and between them, height [m], gravity."""

    masses: tuple[float, float] = (1.0, 1.0)
    frictions: tuple[float, float] = (0.2, 0.5)
    height: float = 1.0
    gravity: float = 9.81


STACK = StackConstants()
DRAWN = 0.1  # height of the block in pictures [m]


def build(dimension: int = 2, constants: Constants = STANDARD) -> ns.CLS:
    """Return a block, as a point, on a plane through the origin that falls in the direction of x.

    Parameters
    ----------
    dimension : int
        2: (x, y) with y up; 3: (x, y, z) with z up and y along the contour lines.
    constants : Constants

    Returns
    -------
    ns.CLS
        Cartesian states [m], [m/s]; no controls; contact "plane", whose tangents are the fall line and, in 3-D, the
        contour line.
    """
    axes = axes_of(dimension)
    q, v = ca.SX.sym("q", dimension), ca.SX.sym("v", dimension)
    down, drop = constants.fall_line
    tangent = np.zeros((dimension, dimension - 1))
    tangent[[0, -1], 0] = down, drop
    if dimension == 3:
        tangent[1, 1] = 1.0
    names, units = labels(axes, ())
    weight = constants.mass * constants.gravity
    normal = ca.DM([-drop, down])
    seen = [
        Rectangle(q[:2] + 0.5 * DRAWN * normal, [1.6 * DRAWN, DRAWN], -constants.angle),
        Ground(point=[0, 0], normal=normal),
        Mark("plane", q[:2]),
    ]
    plane = ns.Contact(
        "plane",
        gap=down * q[dimension - 1] - drop * q[0],
        tangent=ca.DM(tangent),
        friction=constants.friction,
        restitution=constants.restitution,
    )
    return ns.CLS(
        q=q,
        v=v,
        mass_matrix=constants.mass * ca.DM.eye(dimension),
        force=ca.vertcat(ca.SX(dimension - 1, 1), -weight),
        contacts=[plane],
        names=names,
        units=units,
        nominal={"force": weight},
        scene=seen if dimension == 2 else (),
    )


def build_stack(constants: StackConstants = STACK) -> ns.CLS:
    """Return two blocks on top of each other on the horizontal ground, in the plane; a force acts on the lower one.

    Returns
    -------
    ns.CLS
        States x_1, y_1 (lower), x_2, y_2 (upper) [m] and their rates [m/s], y from the foot of each block; control
        force_x_1 [N]; contacts "ground" and "stack", whose slip velocities are v_x_1 and v_x_2 - v_x_1.
    """
    q, v, u = ca.SX.sym("q", 4), ca.SX.sym("v", 4), ca.SX.sym("u", 1)
    m_1, m_2 = constants.masses
    names, units = labels(("x_1", "y_1", "x_2", "y_2"), ("x_1",))
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0, 0, 0]), friction=constants.frictions[0])
    gap = q[3] - q[1] - constants.height
    stack = ns.Contact("stack", gap=gap, tangent=ca.DM([-1, 0, 1, 0]), friction=constants.frictions[1])
    return ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.diag(ca.DM([m_1, m_1, m_2, m_2])),
        force=ca.vertcat(u, -m_1 * constants.gravity, 0, -m_2 * constants.gravity),
        contacts=[ground, stack],
        names=names,
        units=units,
        nominal={"force": [(m_1 + m_2) * constants.gravity, m_2 * constants.gravity]},
        scene=[
            Rectangle([q[0], q[1] + constants.height / 2], [2 * constants.height, constants.height], label="lower"),
            Rectangle([q[2], q[3] + constants.height / 2], [constants.height, constants.height], label="upper"),
            Arrow([q[0], q[1] + constants.height / 2], [u, 0], label="force"),
            Ground(),
            Mark("ground", q[:2]),
            Mark("stack", q[2:]),
        ],
    )
