"""Shapes on bodies: their poses as expressions of coordinates, and the velocities of their points.

A pose is a position and a rotation matrix, both expressions of q. The Jacobian of a material point is taken with the
point fixed in the frame of the body, and then evaluated at the contact: the point of contact itself also moves along
the surfaces, and its velocity would be a wrong slip velocity. With q' = N(q) v Jacobians are by velocities, J = d(.)/dq
N(q).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import casadi as ca
from attrs import field

from nosnoc_py.annotations import Expression
from nosnoc_py.declared import declared
from nosnoc_py.errors import ModelError
from nosnoc_py.geometry.shapes import Capsule, ConvexPolygon, Cylinder, HalfSpace, HeightMap, Point, ThinDisc
from nosnoc_py.rotations import rotation_of
from nosnoc_py.systems.quaternions import body_rates, unit_parts
from nosnoc_py.systems.shapes import Box, ConvexPolyhedron, Ellipsoid, Sphere
from nosnoc_py.systems.symbols import column, symbols

# Shapes of the library that `Placed` accepts.
ContactShape: TypeAlias = (
    Point
    | Sphere
    | Capsule
    | Box
    | Cylinder
    | ThinDisc
    | ConvexPolyhedron
    | Ellipsoid
    | HalfSpace
    | HeightMap
    | ConvexPolygon
)


class KnowsVelocities(Protocol):
    """Protocol of objects with a Jacobian by the velocities: `ns.Robot` and `ns.Coordinates`."""

    def jacobian(self, expression: ca.SX) -> ca.SX:
        """Return J(q) (m, n_v) of an expression (m,) of q: its rate is J v."""


def _kinematic_matrix(value: Expression | None, owner: Any = None) -> ca.SX:
    if value is not None:
        return ca.SX(value)
    q, v = owner.q, owner.v
    units = unit_parts(q, owner.quaternions)
    if v.numel() != q.numel() - len(units):
        raise ModelError(
            f"Coordinates: expected {q.numel() - len(units)} velocities (three in the place of a quaternion), given "
            f"{v.numel()}; others need a kinematic_matrix."
        )
    # N(q) from q' = N(q) v: three columns for each quaternion, the identity for other coordinates.
    return ca.SX(ca.jacobian(body_rates(q, v, units), v))


@declared
class Coordinates:
    """Coordinates and velocities of a system, with the kinematic relation q' = N(q) v.

    Parameters
    ----------
    q, v : SX (n_q,), SX (n_v,)
    quaternions, kinematic_matrix
        As in `ns.CLS`.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    >>> ns.Coordinates(q, v).jacobian(q[0] * q[1]).shape
    (1, 3)
    """

    q: ca.SX = field(converter=symbols)
    v: ca.SX = field(converter=symbols)
    quaternions: Sequence[ca.SX] = field(default=(), kw_only=True)
    kinematic_matrix: ca.SX = field(default=None, converter=_kinematic_matrix, kw_only=True)

    def jacobian(self, expression: ca.SX) -> ca.SX:
        """Return J(q) (m, n_v) of an expression (m,) of q: its rate is J v.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        >>> ns.Coordinates(q, v).jacobian(ca.sumsqr(q) / 2)
        SX([[q_0, q_1]])
        """
        return ca.jacobian(expression, self.q) @ self.kinematic_matrix


def _position(value: Expression, what: str = "position") -> ca.SX:
    position = column(value, what)
    if position.numel() not in (2, 3):
        raise ModelError(f"{what}: expected 3 components, or 2 in the plane, given {position.numel()}.")
    return position


def _rotation(value: Expression | None, what: str = "rotation", owner: Any = None) -> ca.SX:
    """Return one form for all attitudes, a matrix, so that pairs need only matrices."""
    if value is None:
        return ca.SX.eye(owner.size)
    given = ca.SX(value)
    # Not checked for orthogonality: entries are expressions.
    if given.shape == (owner.size, owner.size):
        return given
    if owner.size == 3 and given.shape == (4, 1):
        return rotation_of(given)
    # In the plane an angle is positive counterclockwise, from x to y.
    if owner.size == 2 and given.numel() == 1:
        c, s = ca.cos(given), ca.sin(given)
        return ca.vertcat(ca.horzcat(c, -s), ca.horzcat(s, c))
    expected = "a matrix (3, 3) or a quaternion (4,)" if owner.size == 3 else "an angle or a matrix (2, 2)"
    raise ModelError(f"{what}: expected {expected}, given shape {given.shape}.")


def _shape(value: ContactShape) -> Any:
    return value


@declared
class Placed:
    """Shape attached to a body, or at rest in the world.

    Parameters
    ----------
    shape : Point, Sphere, Capsule, ...
        `ns.Point()`, `ns.Sphere(radius)`, `ns.Capsule`, `ns.Box`, `ns.Cylinder`, `ns.ThinDisc`, `ns.ConvexPolyhedron`,
        `ns.Ellipsoid`, `ns.HalfSpace`, `ns.HeightMap`; in the plane `ns.Point()`, `ns.Sphere`, `ns.ConvexPolygon`,
        `ns.HalfSpace`.
    position : SX (3,) or (2,)
        Origin of the shape's frame in the world [m].
    rotation : SX (3, 3), (2, 2), (4,) or scalar, optional
        Its attitude: a matrix, a unit quaternion, or in the plane an angle [rad].
    coordinates : Robot or Coordinates, optional
        Coordinates that the position depends on; without them the shape does not move.

    Raises
    ------
    ModelError
        For wrong shapes.

    Examples
    --------
    A disc of 0.1 m over the ground, in the plane:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    >>> disc = ns.Placed(ns.Sphere(0.1), q[:2], q[2], coordinates=ns.Coordinates(q, v))
    >>> contact, = ns.contacts(disc, ns.HalfSpace((0, 1)), name="ground", friction=0.5)
    >>> contact.gap
    SX((q_1-0.1))
    """

    shape: Any = field(converter=_shape)
    position: ca.SX = field(converter=_position)
    rotation: ca.SX = field(default=None, converter=_rotation)
    coordinates: KnowsVelocities | None = field(default=None, kw_only=True)

    @property
    def size(self) -> int:
        """2 in the plane, 3 in space."""
        return int(self.position.numel())

    def of_world(self, point: ca.SX) -> ca.SX:
        """Return a point of the world in the frame of the shape.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> box = ns.Placed(ns.Point(), [1, 0], ca.DM([[0, -1], [1, 0]]))  # turned by 90 degrees
        >>> box.of_world(ca.DM([1, 2]))
        SX([2, 0])
        """
        # The transpose of a rotation is its inverse.
        return self.rotation.T @ (point - self.position)

    def in_world(self, point: Any) -> ca.SX:
        """Return a point of the frame of the shape in the world.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        >>> ns.Placed(ns.Point(), q, coordinates=ns.Coordinates(q, v)).in_world([0, 0.1])
        SX([q_0, (q_1+0.1)])
        """
        return self.position + self.rotation @ ca.SX(ca.DM(point) if not isinstance(point, ca.SX) else point)

    def velocities_at(self, point: ca.SX, n_v: int) -> ca.SX:
        """Return J (2 or 3, n_v) of the material point at a point of the world; its velocity is J v.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
        >>> disc = ns.Placed(ns.Sphere(0.1), q[:2], q[2], coordinates=ns.Coordinates(q, v))
        >>> disc.velocities_at(q[:2] - ca.DM([0, 0.1]), 3).shape
        (2, 3)
        """
        if self.coordinates is None:
            # A shape at rest has a Jacobian of zeros (structural, so that differences stay sparse).
            return ca.SX(self.size, n_v)
        # A symbol for the point in the body's frame: it has to be constant while the Jacobian is taken.
        fixed = ca.SX.sym("fixed", self.size)
        moving = self.coordinates.jacobian(self.position + self.rotation @ fixed)
        return ca.substitute(moving, fixed, self.of_world(point))
