"""Shapes that contacts are made of, beside those in `nosnoc_py.systems.shapes`: numbers in the frame of a body [m]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.annotations import Numbers
from nosnoc_py.arguments import construct, named_arguments
from nosnoc_py.errors import ModelError
from nosnoc_py.solution.arrays import assign
from nosnoc_py.systems.symbols import finite, scalar

Array = np.ndarray
STRAIGHT = 1e-12  # sine of the angle between two edges of a polygon that are one, relative to their lengths


def _positive(shape: Any, *names: str) -> None:
    for name in names:
        what = f"{type(shape).__name__}: {name}"
        value = scalar(getattr(shape, name), what)
        if not 0.0 < value < np.inf:
            raise ModelError(f"{what}: expected a positive length, given {value:g}.")
        assign(shape, **{name: value})


@dataclass(frozen=True)
class Point:
    """The origin of a body, or the place it is put at: a foot, a fingertip."""


@named_arguments
@dataclass(frozen=True)
class Capsule:
    """All points nearer than a radius to a segment of a length [m] along z, about the origin."""

    radius: float
    length: float

    def __post_init__(self) -> None:
        _positive(self, "radius", "length")


@named_arguments
@dataclass(frozen=True)
class Cylinder:
    """A cylinder [m] along z about the origin, which touches with points on both of its rims.

    A rim that stands flat touches everywhere, so that no single gap carries a torque: the points are its corners, and
    the bodies that are meant are prisms with as many sides.
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
        angles = 2 * np.pi * np.arange(self.points) / self.points
        rim = self.radius * np.column_stack([np.cos(angles), np.sin(angles)])
        return np.vstack([np.column_stack([rim, np.full(self.points, z)]) for z in (-self.length / 2, self.length / 2)])


@named_arguments
@dataclass(frozen=True, eq=False, init=False)
class HalfSpace:
    """All points x with normal'x <= offset: the ground is `HalfSpace()`; in the plane `HalfSpace((0, 1))`."""

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
        assign(self, normal=normal / length, offset=scalar(self.offset, "HalfSpace: offset") / length)


@named_arguments
@dataclass(frozen=True, eq=False)
class HeightMap:
    """The ground below z = height(x, y), a smooth function of expressions; in the plane of height(x).

    Only points and corners stand on it: what is round would touch it elsewhere.
    """

    height: Callable[..., ca.SX | float]

    def __post_init__(self) -> None:
        if not callable(self.height):
            raise ModelError(f"HeightMap: expected a function of x and y, given {type(self.height).__name__}.")


@named_arguments
@dataclass(frozen=True, eq=False, init=False)
class ConvexPolygon:
    """A convex polygon in the plane.

    Parameters
    ----------
    vertices : (n, 2)
        In either sense of rotation [m].

    Raises
    ------
    ModelError
        For fewer than three vertices, and for those of a polygon that is not convex.
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
            points = points[::-1].copy()
        edges = np.roll(points, -1, 0) - points
        turns = _cross(edges, np.roll(edges, -1, 0))
        sizes = np.linalg.norm(edges, axis=1)
        whole = np.arctan2(turns, np.sum(edges * np.roll(edges, -1, 0), axis=1)).sum()
        if (turns <= STRAIGHT * sizes.max() ** 2).any() or abs(whole - 2 * np.pi) > 1e-6:
            raise ModelError(
                "ConvexPolygon: vertices: these do not go round a convex polygon with a corner at each; join convex "
                "parts."
            )
        normals = np.column_stack([edges[:, 1], -edges[:, 0]]) / sizes[:, None]
        assign(self, vertices=points, normals=normals, offsets=np.sum(normals * points, axis=1))


def _area(points: Array) -> float:
    """Return twice the area, positive where the vertices go round against the clock."""
    return float(_cross(points, np.roll(points, -1, 0)).sum())


def _cross(a: Array, b: Array) -> Array:
    return np.asarray(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])
