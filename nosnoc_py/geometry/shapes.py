"""Shapes that contacts are made of, beside those in `nosnoc_py.systems.shapes`: numbers in the frame of a body [m]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.annotations import Numbers
from nosnoc_py.arguments import construct, named_arguments
from nosnoc_py.declared import assign
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.symbols import finite, scalar

Array = np.ndarray
# Two edges of a polygon are parallel if the sine of their angle is below this (lengths relative to the longest edge): a
# few digits above rounding.
STRAIGHT = 1e-12


def _positive(shape: Any, *names: str) -> None:
    for name in names:
        what = f"{type(shape).__name__}: {name}"
        value = scalar(getattr(shape, name), what)
        if not 0.0 < value < np.inf:
            raise ModelError(f"{what}: expected a positive length, given {value:g}.")
        assign(shape, **{name: value})


@dataclass(frozen=True)
class Point:
    """Point at the origin of its frame: a foot, a fingertip.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.Point()
    Point()
    """


@named_arguments
@dataclass(frozen=True)
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

    radius: float
    length: float

    def __post_init__(self) -> None:
        _positive(self, "radius", "length")


@named_arguments
@dataclass(frozen=True)
class Cylinder:
    """Cylinder along z about the origin, with contact points on both rims.

    The contact points are the corners of a prism, because one gap cannot transmit the torque of a rim that lies flat.

    Parameters
    ----------
    radius, length : float
        [m]
    points : int
        Contact points per rim, at least 3.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.Cylinder(radius=0.1, length=0.3, points=6).vertices.shape
    (12, 3)
    """

    radius: float
    length: float
    points: int = 8

    def __post_init__(self) -> None:
        _positive(self, "radius", "length")
        if not (isinstance(self.points, int) and self.points >= 3):
            raise ModelError(f"Cylinder: points: expected 3 or more on a rim, given {self.points!r}.")

    @property
    def vertices(self) -> Array:
        """Points on the lower rim, then on the upper one (2 points, 3)."""
        # The end is left out: it would be the first point again.
        angles = 2 * np.pi * np.arange(self.points) / self.points
        rim = self.radius * np.column_stack([np.cos(angles), np.sin(angles)])
        return np.vstack([np.column_stack([rim, np.full(self.points, z)]) for z in (-self.length / 2, self.length / 2)])


@named_arguments
@dataclass(frozen=True, eq=False, init=False)
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

    normal: Array
    offset: float

    def __init__(self, normal: Numbers = (0.0, 0.0, 1.0), offset: float = 0.0) -> None:
        construct(self, locals())

    def __post_init__(self) -> None:
        size = np.size(self.normal)
        normal = finite(self.normal, "HalfSpace: normal", size)
        length = float(np.linalg.norm(normal))
        if size not in (2, 3) or length == 0.0:
            raise ModelError(f"HalfSpace: normal: expected 2 or 3 numbers that are not all zero, given {normal}.")
        # The offset belongs to the normal as given, so that both are divided by its length.
        assign(self, normal=normal / length, offset=scalar(self.offset, "HalfSpace: offset") / length)


@named_arguments
@dataclass(frozen=True, eq=False)
class HeightMap:
    """Ground below z = height(x, y), in the plane below z = height(x).

    It makes contacts with points and corners only: a round shape may touch it anywhere.

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

    height: Callable[..., ca.SX | float]

    def __post_init__(self) -> None:
        if not callable(self.height):
            raise ModelError(f"HeightMap: expected a function of x and y, given {type(self.height).__name__}.")


@named_arguments
@dataclass(frozen=True, eq=False, init=False)
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

    vertices: Array
    normals: Array = field(init=False, repr=False)
    offsets: Array = field(init=False, repr=False)

    def __init__(self, vertices: Numbers) -> None:
        construct(self, locals())

    def __post_init__(self) -> None:
        points = np.asarray(self.vertices, dtype=float)
        if points.ndim != 2 or points.shape[1] != 2 or len(points) < 3 or not np.isfinite(points).all():
            raise ModelError(
                f"ConvexPolygon: vertices: expected three or more points (n, 2), given shape {points.shape}."
            )
        if _area(points) < 0:
            # Vertices may be given in either sense: below they go round against the clock.
            points = points[::-1].copy()
        edges = np.roll(points, -1, 0) - points
        turns = _cross(edges, np.roll(edges, -1, 0))
        sizes = np.linalg.norm(edges, axis=1)
        # The turning angles of a polygon that winds once sum up to 2 pi; a star with only left turns has a multiple.
        whole = np.arctan2(turns, np.sum(edges * np.roll(edges, -1, 0), axis=1)).sum()
        # A vertex on a straight edge is no corner; it would give two contacts with the same normal.
        if (turns <= STRAIGHT * sizes.max() ** 2).any() or abs(whole - 2 * np.pi) > 1e-6:
            raise ModelError(
                "ConvexPolygon: vertices: expected the corners of a convex polygon in their order, none on a straight "
                "edge; split other shapes into convex parts."
            )
        # Vertices are counterclockwise here, so that an edge turned clockwise points outwards.
        normals = np.column_stack([edges[:, 1], -edges[:, 0]]) / sizes[:, None]
        assign(self, vertices=points, normals=normals, offsets=np.sum(normals * points, axis=1))


def _area(points: Array) -> float:
    """Return twice the area, positive where the vertices go round against the clock."""
    return float(_cross(points, np.roll(points, -1, 0)).sum())


def _cross(a: Array, b: Array) -> Array:
    return np.asarray(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])
