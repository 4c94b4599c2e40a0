"""Shapes that contacts are made of, beside those in `nosnoc_py.systems.shapes`: numbers in the frame of a body [m]."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import casadi as ca
import numpy as np
from attrs import field

from nosnoc_py.annotations import Numbers
from nosnoc_py.declared import assign, checked, declared
from nosnoc_py.errors import ModelError, is_whole
from nosnoc_py.systems.symbols import finite, floats, positive, scalar

Array = np.ndarray
# Two edges of a polygon are parallel if the sine of their angle is below this (lengths relative to the longest edge): a
# few digits above rounding.
STRAIGHT = 1e-12


@declared(eq=True)
class Point:
    """Point at the origin of its frame: a foot, a fingertip.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.Point()
    Point()
    """


@declared(eq=True)
class Capsule:
    """Capsule: all points within a radius of a segment along z about the origin.

    Parameters
    ----------
    radius, length : float
        Radius, and length of the segment between the centres of the ends [m].

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.Capsule(radius=0.05, length=0.4)
    Capsule(radius=0.05, length=0.4)
    """

    radius: float = field(converter=positive)
    length: float = field(converter=positive)


def _check_points(value: int, what: str) -> None:
    if not is_whole(value, 3):
        raise ModelError(f"{what}: expected 3 or more on a rim, given {value!r}.")


class Rimmed:
    """Body of revolution along z whose rims touch: circles of one radius at the heights `rims`."""

    radius: float
    points: int

    @property
    def rims(self) -> tuple[float, ...]:
        """Heights of the rims [m], the lower one first."""
        raise NotImplementedError

    @property
    def vertices(self) -> Array:
        """Points on the rims, those of the lower one first (rims points, 3)."""
        # The end is left out: it would be the first point again.
        angles = 2 * np.pi * np.arange(self.points) / self.points
        rim = self.radius * np.column_stack([np.cos(angles), np.sin(angles)])
        return np.vstack([np.column_stack([rim, np.full(self.points, z)]) for z in self.rims])

    def support(self, direction: Numbers) -> Array:
        """Return the point furthest in a direction (3,)."""
        d = finite(direction, "support: direction", 3)
        across = float(np.hypot(d[0], d[1]))
        out = self.radius * d[:2] / across if across else np.zeros(2)
        return np.append(out, self.rims[-1] if d[2] > 0 else self.rims[0])


@declared(eq=True)
class Cylinder(Rimmed):
    """Cylinder along z about the origin, which touches by its rims: at their lowest points, so that it rolls exactly.

    Where a face lies flat, points on its rim carry the load, because one gap transmits no torque.

    Parameters
    ----------
    radius, length : float
        [m]
    points : int
        Contact points of a rim that lies flat, at least 3.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.Cylinder(radius=0.1, length=0.3, points=6).vertices.shape
    (12, 3)
    """

    radius: float = field(converter=positive)
    length: float = field(converter=positive)
    points: int = field(default=6, validator=checked(_check_points))

    @property
    def rims(self) -> tuple[float, ...]:
        """Heights of both ends [m]."""
        return -self.length / 2, self.length / 2


@declared(eq=True)
class ThinDisc(Rimmed):
    """ThinDisc across z about the origin without a thickness, a coin or a thin wheel: a cylinder with one rim.

    Parameters
    ----------
    radius : float
        [m]
    points : int
        Contact points of the rim where it lies flat, at least 3.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.ThinDisc(radius=0.1).support([0.0, 2.0, 0.5]).tolist()
    [0.0, 0.1, 0.0]
    """

    radius: float = field(converter=positive)
    points: int = field(default=6, validator=checked(_check_points))

    @property
    def rims(self) -> tuple[float, ...]:
        """Height of the only rim [m]."""
        return (0.0,)


def _normal(value: Numbers, what: str = "normal") -> Array:
    normal = finite(value, what, np.size(value))
    if normal.size not in (2, 3) or not normal.any():
        raise ModelError(f"{what}: expected 2 or 3 numbers that are not all zero, given {normal}.")
    return normal


@declared
class HalfSpace:
    """Half-space normal'x <= offset: the ground is `HalfSpace()`, in the plane `HalfSpace((0, 1))`.

    Parameters
    ----------
    normal : (3,) or (2,)
        Outward normal of any length; it is normalised.
    offset : float
        normal'x on the surface, with the normal as given.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.HalfSpace((0, 2), offset=1.0).offset
    0.5
    """

    normal: Array = field(default=(0.0, 0.0, 1.0), converter=_normal)
    offset: float = field(default=0.0, converter=scalar)

    def __attrs_post_init__(self) -> None:
        # The offset belongs to the normal as given, so that both are divided by its length.
        length = float(np.linalg.norm(self.normal))
        assign(self, normal=self.normal / length, offset=self.offset / length)


def _check_height(value: Callable[..., ca.SX | float], what: str) -> None:
    if not callable(value):
        raise ModelError(f"{what}: expected a function of x and y, given {type(value).__name__}.")


@declared
class HeightMap:
    """Ground below z = height(x, y), in the plane below z = height(x).

    It makes contacts with points, corners and spheres. A sphere touches at one point, so its radius has to be less than
    that of the curvature of valleys; corners of a body do not see a hill between them.

    Parameters
    ----------
    height : function of SX x and y (in the plane of x) -> SX scalar
        Smooth height [m].

    Examples
    --------
    Waves of 0.1 m:

    >>> import casadi as ca, nosnoc_py as ns
    >>> hills = ns.HeightMap(lambda x, y: 0.1 * ca.sin(x) * ca.cos(y))
    >>> hills.height(0.0, 0.0)
    0.0
    """

    height: Callable[..., ca.SX | float] = field(validator=checked(_check_height))


def _corners(value: Numbers, what: str = "vertices") -> Array:
    """Return the corners of a convex polygon, counterclockwise."""
    points = floats(value, what)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 3 or not np.isfinite(points).all():
        raise ModelError(f"{what}: expected three or more points (n, 2), given shape {points.shape}.")
    if _area(points) < 0:
        # Vertices may be given in either sense: below they go round against the clock.
        points = points[::-1].copy()
    edges = np.roll(points, -1, 0) - points
    turns = _cross(edges, np.roll(edges, -1, 0))
    # The turning angles of a polygon that winds once sum up to 2 pi; a star with only left turns has a multiple.
    whole = np.arctan2(turns, np.sum(edges * np.roll(edges, -1, 0), axis=1)).sum()
    # A vertex on a straight edge is no corner; it would give two contacts with the same normal.
    straight = STRAIGHT * np.linalg.norm(edges, axis=1).max() ** 2
    if (turns <= straight).any() or abs(whole - 2 * np.pi) > 1e-6:
        raise ModelError(
            f"{what}: expected the corners of a convex polygon in their order, none on a straight edge; split other "
            "shapes into convex parts."
        )
    return points


@declared
class ConvexPolygon:
    """Convex polygon in the plane.

    Parameters
    ----------
    vertices : (n, 2)
        In either sense of rotation [m].

    Raises
    ------
    ModelError
        For fewer than three vertices, and for those of a polygon that is not convex.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.ConvexPolygon([[0, 0], [2, 0], [0, 1]]).offsets.round(4).tolist()
    [0.0, 0.8944, 0.0]
    """

    vertices: Array = field(converter=_corners)

    @cached_property
    def normals(self) -> Array:
        """Outward normals (n, 2) of the edges."""
        edges = np.roll(self.vertices, -1, 0) - self.vertices
        # Vertices are counterclockwise, so that an edge turned clockwise points outwards.
        return np.column_stack([edges[:, 1], -edges[:, 0]]) / np.linalg.norm(edges, axis=1)[:, None]

    @cached_property
    def offsets(self) -> Array:
        """Distances (n,) of the edges from the origin along their normals."""
        return np.asarray(np.sum(self.normals * self.vertices, axis=1))


def _area(points: Array) -> float:
    """Return twice the area, positive where the vertices go round against the clock."""
    return float(_cross(points, np.roll(points, -1, 0)).sum())


def _cross(a: Array, b: Array) -> Array:
    return np.asarray(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])
