"""Composed shapes of rigid bodies: unions, intersections, and convex bodies given by their support function.

The support of a union is the largest one of its parts, which is all that contacts with planes need. The support of an
intersection is not the smallest one of its members: it is computed (`intersections`). Mass properties of overlapping
parts follow by inclusion and exclusion along parallel lines (`mass_properties`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import field

from nosnoc_py.annotations import Numbers
from nosnoc_py.declared import checked, declared
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.shapes.intersections import common
from nosnoc_py.systems.shapes.mass_properties import Moments, union_moments
from nosnoc_py.systems.shapes.polyhedra import ConvexPolyhedron, distinct
from nosnoc_py.systems.shapes.shape import Features, Shape, point, unit
from nosnoc_py.systems.symbols import finite

# Number of support points of a body that is known by its support function alone: an ellipsoid lacks 0.2 % of its mass.
POINTS = 4000


def _shapes(value: Sequence[Shape], owner: Any = None) -> tuple[Shape, ...]:
    result = tuple(value) if isinstance(value, list | tuple) else (None,)
    if not result or not all(isinstance(shape, Shape) for shape in result):
        given = [type(shape).__name__ for shape in result] if isinstance(value, list | tuple) else value
        what = type(owner).__name__
        raise ModelError(f"{what}: expected a list of one or more shapes, ns.Ellipsoid(...) and so on, given {given}.")
    return result


@declared
class Joined(Shape):
    """Several convex shapes, `parts`, whose union the body is; they come from the `shapes` of a user."""

    shapes: tuple[Shape, ...] = field(converter=_shapes)

    def moved(self, shift: Any) -> Shape:
        """Return the body shifted by (3,) [m]."""
        return type(self)(tuple(shape.moved(shift) for shape in self.shapes))

    def support(self, direction: Any) -> np.ndarray:
        """Return the furthest of the points furthest in a direction."""
        d = unit(direction)
        points = [part.support(d) for part in self.parts]
        return points[int(np.argmax([d @ point for point in points]))]

    def heights(self, directions: np.ndarray) -> np.ndarray:
        """Return the largest of those of the parts."""
        return np.max([part.heights(directions) for part in self.parts], axis=0)

    def contains(self, points: Any) -> np.ndarray:
        """Return a mask of the points (..., 3) that lie in a part."""
        return np.any([part.contains(points) for part in self.parts], axis=0)

    def features(self) -> Features | None:
        """Return those of all parts; None if one has none."""
        result = [part.features() for part in self.parts]
        known = [each for each in result if each is not None]
        return Features.joined(known) if len(known) == len(result) else None

    def chords(self, points: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Return where lines enter and leave; a body of several parts is not convex."""
        if len(self.parts) > 1:
            raise ModelError(f"{type(self).__name__}: chords: the body is not convex; look at its parts.")
        return self.parts[0].chords(points, direction)

    def moments(self) -> Moments:
        """Return integrals of 1, y and y y': the sum over the parts minus those of their intersections."""
        parts = self.parts
        moments = [part.moments() for part in parts]
        return union_moments(moments, [part.chords for part in parts], [part.box for part in parts])


@declared
class Union(Joined):
    """The points that lie in one of the shapes or in several.

    Parameters
    ----------
    shapes : sequence of Shape
        One or more; they need not overlap.

    Raises
    ------
    ModelError
        If there is no shape, or something that is none.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> dumbbell = ns.Union([ns.Sphere(0.1, (-0.3, 0, 0)), ns.Sphere(0.1, (0.3, 0, 0))])
    >>> dumbbell.support([1.0, 0.0, 0.0]).round(6).tolist()
    [0.4, 0.0, 0.0]
    """

    @property
    def parts(self) -> tuple[Shape, ...]:
        """Convex parts of all shapes."""
        return tuple(part for shape in self.shapes for part in shape.parts)


@declared
class Intersection(Joined):
    """The points that lie in all of the shapes.

    Its gap is that of its own support. The largest of the gaps of the shapes is a lower bound only: a shape may reach
    down where the other ones have ended.

    Parameters
    ----------
    shapes : sequence of Shape
        One or more. Polyhedra give a polyhedron, two ellipsoids a lens, both with `features`; other mixtures are
        known by their support, a small convex problem per direction. Unions are distributed over. Polyhedra with a
        skin and `SupportFunction` cannot be cut.

    Raises
    ------
    ModelError
        If the intersection is empty or has no inside, or a shape cannot be cut.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> lens = ns.Intersection([ns.Sphere(1.0, (-0.5, 0, 0)), ns.Sphere(1.0, (0.5, 0, 0))])
    >>> lens.support([1.0, 0.0, 0.0]).round(6).tolist()
    [0.5, 0.0, 0.0]
    """

    def __attrs_post_init__(self) -> None:
        assert self.parts  # raises where nothing is common

    @cached_property
    def parts(self) -> tuple[Shape, ...]:
        """Return the nonempty intersections of one convex part of every shape."""
        return common([shape.parts for shape in self.shapes])


def _check_function(value: Callable[[np.ndarray], Numbers], what: str) -> None:
    if not callable(value):
        raise ModelError(f"{what}: expected a function of a direction (3,), given {value!r}.")


@declared
class SupportFunction(Shape):
    """A convex body that is known by its furthest points.

    Its inside and its mass are those of the hull of some thousand furthest points, a little too small: an ellipsoid
    lacks 0.2 % of its mass. Pass the inertia to `RigidBody` where it is known.

    Parameters
    ----------
    function : callable
        Unit direction (3,) -> furthest point (3,) [m].
    shift : (3,)
        Added to the points that the function returns.

    Raises
    ------
    ModelError
        If the function does not return three finite numbers, or points that are not the furthest ones.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ball = ns.SupportFunction(lambda direction: 0.2 * direction)
    >>> ball.support([0.0, 0.0, 1.0]).tolist()
    [0.0, 0.0, 0.2]
    """

    function: Callable[[np.ndarray], Numbers] = field(validator=checked(_check_function))
    shift: np.ndarray = field(default=(0.0, 0.0, 0.0), converter=point)

    def __attrs_post_init__(self) -> None:
        _check_support(self.support)

    def support(self, direction: Any) -> np.ndarray:
        """Return the point furthest in a direction."""
        try:
            point = self.function(unit(direction))
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(
                f"SupportFunction: function: it has to return a point for every direction, for {direction} it raised "
                f"{error!r}."
            ) from error
        return finite(point, "SupportFunction: function", 3) + self.shift

    @cached_property
    def hull(self) -> ConvexPolyhedron:
        """Polyhedron of furthest points, in directions that spread the points evenly over a long or flat body."""
        # A tenth of the points is enough to see how long and flat the body is.
        coarse = self._hull(_directions(POINTS // 10))
        values, axes = np.linalg.eigh(coarse.moments().covariance)
        # In coordinates in which the body is round: even directions on a sphere would crowd the points of a long body
        # at its ends.
        return self._hull(_directions(POINTS) / np.sqrt(values) @ axes.T)

    def _hull(self, directions: np.ndarray) -> ConvexPolyhedron:
        return ConvexPolyhedron(distinct(np.array([self.support(direction) for direction in directions])))

    def contains(self, points: Any) -> np.ndarray:
        """Return a mask of the points (..., 3) that lie in the hull of furthest points."""
        return self.hull.contains(points)

    def moved(self, shift: Any) -> SupportFunction:
        """Return the body shifted by (3,) [m]."""
        return SupportFunction(self.function, self.shift + finite(shift, "moved: shift", 3))

    def features(self) -> None:
        """Return None: the function is called in Python."""

    def chords(self, points: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Return where lines enter and leave the hull of furthest points."""
        return self.hull.chords(points, direction)

    def moments(self) -> Moments:
        """Return integrals of 1, y and y y' over the hull of furthest points."""
        return self.hull.moments()


def _directions(count: int) -> np.ndarray:
    """Return the directions (count, 3) all over the sphere, on a spiral with the golden angle."""
    # Equal steps of height have equal areas on a sphere (Archimedes), and the golden angle avoids alignments.
    height = 1 - (2 * np.arange(count) + 1) / count
    angle = np.pi * (1 + np.sqrt(5)) * np.arange(count)
    radius = np.sqrt(1 - height**2)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=1)


def _check_support(support: Callable[[np.ndarray], np.ndarray]) -> None:
    """Raise `ModelError` if a support point lies beyond that of another direction."""
    directions = _directions(50)
    points = np.array([support(direction) for direction in directions])
    heights = directions @ points.T
    excess = heights.max(axis=1) - np.diag(heights)
    size = np.ptp(points, axis=0).max()
    # A convex body's support point is at least as far as every other of its points: a necessary condition, tested on a
    # few.
    if excess.max() > 1e-9 * max(size, np.abs(points).max()):
        k = int(np.argmax(excess))
        raise ModelError(
            f"SupportFunction: function: in direction {directions[k]} it returns {points[k]}, but the point "
            f"{points[int(np.argmax(heights[k]))]}, which it returns elsewhere, is {excess[k]:.1e} m further; it has "
            "to return the furthest point of the body."
        )
