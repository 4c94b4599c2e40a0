"""A small ball in the corner between a floor and a wall, in 2-D or 3-D: two simultaneous contacts.

The ball is a point without rotation. In a corner the friction of the floor acts against the normal velocity of the
wall and the other way round, so both impacts have to be solved together.
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models.point_mass import axes_of, labels
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Arrow, Disc, Ground, Mark, Trail


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Mass [kg], gravity [m/s^2], opening of the corner [rad]; friction and restitution of (floor, wall).

    Raises
    ------
    ModelError
        If the mass is not positive, the opening outside (0, pi), a friction negative, or a restitution outside [0, 1].
    """

    mass: float = 1.0
    gravity: float = 9.81
    opening: float = float(np.pi / 2)
    frictions: tuple[float, float] = (0.5, 0.3)
    restitutions: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        if not (self.mass > 0.0 and 0.0 < self.opening < np.pi and min(self.frictions) >= 0.0):
            raise ModelError(f"a corner needs mass > 0, 0 < opening < pi and frictions >= 0; given {self}.")
        if not all(0.0 <= e <= 1.0 for e in self.restitutions):
            raise ModelError(f"a corner needs restitutions in [0, 1]; given {self}.")

    @property
    def along_wall(self) -> tuple[float, float]:
        """Unit vector up the wall: its horizontal and its vertical component. Exact for a right angle."""
        if self.opening == np.pi / 2:
            return 0.0, 1.0
        return float(np.cos(self.opening)), float(np.sin(self.opening))


STANDARD = Constants()
DRAWN = 0.04  # radius of the ball in pictures [m]


def build(dimension: int = 2, constants: Constants = STANDARD) -> ns.CLS:
    """Return the ball as a system; the corner is the origin, the floor extends in the direction of x.

    Parameters
    ----------
    dimension : int
        2: (x, y) with y up; 3: (x, y, z) with z up and y along the edge.
    constants : Constants

    Returns
    -------
    ns.CLS
        Cartesian states [m], [m/s]; controls: a force along every axis [N]; contacts "floor" and "wall".
    """
    axes = axes_of(dimension)
    q, v, u = ca.SX.sym("q", dimension), ca.SX.sym("v", dimension), ca.SX.sym("u", dimension)
    across, up = constants.along_wall
    height, weight = q[dimension - 1], constants.mass * constants.gravity
    names, units = labels(axes, axes)
    # the ball is drawn with a radius; q is the point that touches both sides of the corner
    middle = q[:2] + DRAWN * ca.DM([1.0 / np.tan(constants.opening / 2), 1.0])
    seen = [
        Trail(middle),
        Disc(middle, DRAWN),
        Arrow(middle, u[:2], label="force"),
        Ground(),
        Ground(point=[0, 0], normal=[up, -across]),
        Mark("floor", [middle[0], middle[1] - DRAWN]),
        Mark("wall", middle - DRAWN * ca.DM([up, -across])),
    ]
    return ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=constants.mass * ca.DM.eye(dimension),
        force=u + ca.vertcat(ca.SX(dimension - 1, 1), -weight),
        contacts=[
            _contact("floor", height, _tangent(dimension, 1.0, 0.0), constants, 0),
            _contact("wall", up * q[0] - across * height, _tangent(dimension, across, up), constants, 1),
        ],
        names=names,
        units=units,
        nominal={"force": weight},
        scene=seen if dimension == 2 else (),
    )


def _tangent(dimension: int, across: float, up: float) -> ca.DM:
    """Return the directions of friction: (across, up) in the cross-section of the corner, and in 3-D the edge."""
    tangent = np.zeros((dimension, dimension - 1))
    tangent[[0, -1], 0] = across, up
    if dimension == 3:
        tangent[1, 1] = 1.0
    return ca.DM(tangent)


def _contact(name: str, gap: ca.SX, tangent: ca.DM, constants: Constants, which: int) -> ns.Contact:
    friction, restitution = constants.frictions[which], constants.restitutions[which]
    return ns.Contact(name, gap=gap, tangent=tangent, friction=friction, restitution=restitution)
