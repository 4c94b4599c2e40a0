"""Ellipsoids and spheres: affine images of the unit ball, so that support, chords and moments have closed forms."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from attrs import field

from nosnoc_py.annotations import Numbers
from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import declared
from nosnoc_py.systems.shapes.mass_properties import Moments, ellipsoid_moments
from nosnoc_py.systems.shapes.shape import INSIDE, Features, Shape, point, positive_lengths, turn, unit
from nosnoc_py.systems.symbols import finite, positive


@declared
class Ellipsoid(Shape):
    """The body {center + R diag(semi_axes) y : |y| <= 1}.

    Parameters
    ----------
    semi_axes : (3,)
        Positive lengths [m].
    center : (3,)
        [m].
    rotation : (3, 3), optional
        R: its columns are the directions of the axes.

    Raises
    ------
    ModelError
        If a semi-axis is not positive, or the rotation is none.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.Ellipsoid([0.3, 0.2, 0.1]).support([1.0, 0.0, 0.0]).tolist()
    [0.3, 0.0, 0.0]
    """

    semi_axes: np.ndarray = field(converter=positive_lengths)
    center: np.ndarray = field(default=(0.0, 0.0, 0.0), converter=point)
    rotation: np.ndarray = field(default=None, converter=turn)

    @cached_property
    def matrix(self) -> np.ndarray:
        """A = R diag(a) (3, 3), which maps the unit ball to the body about its centre."""
        return self.rotation * self.semi_axes

    @cached_property
    def inverse(self) -> np.ndarray:
        """The inverse of A (3, 3)."""
        return self.rotation.T / self.semi_axes[:, None]

    def support(self, direction: Any) -> np.ndarray:
        """Return the point furthest in a direction: c + A A'd / |A'd|."""
        weights = unit(direction) @ self.matrix
        return self.center + self.matrix @ (weights / np.sqrt(weights @ weights))

    def heights(self, directions: np.ndarray) -> np.ndarray:
        """Return d.c + |A'd|."""
        return directions @ self.center + np.linalg.norm(directions @ self.matrix, axis=1)

    def contains(self, points: Any) -> np.ndarray:
        """Return a mask of the points (..., 3) that lie in it."""
        y = (np.asarray(points, dtype=float) - self.center) @ self.inverse.T
        # Twice the tolerance, as squares of lengths are compared.
        return (y**2).sum(axis=-1) <= 1 + 2 * INSIDE

    def moved(self, shift: Any) -> Ellipsoid:
        """Return the ellipsoid shifted by (3,) [m]."""
        return Ellipsoid(self.semi_axes, self.center + finite(shift, "moved: shift", 3), self.rotation)

    def features(self) -> Features:
        """Return centre and matrix."""
        return Features.of(ellipsoids=np.concatenate([self.center, self.matrix.ravel()]))

    def chords(self, points: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Return where lines enter and leave it: roots of |y + t d|^2 = 1."""
        y, d = (points - self.center) @ self.inverse.T, self.inverse @ direction
        middle, square = -(y @ d) / (d @ d), d @ d
        nearest = y + middle[:, None] * d
        radicand = 1 - (nearest**2).sum(axis=1)
        # For a line that misses, the sign makes the interval decreasing, which callers read as a miss.
        half = np.sign(radicand) * np.sqrt(np.abs(radicand) / square)
        return np.stack([middle - half, middle + half], axis=1)

    def moments(self) -> Moments:
        """Return exact integrals of 1, y and y y'."""
        return ellipsoid_moments(self.center, self.matrix)


@named_arguments
class Sphere(Ellipsoid):
    """Ball.

    Parameters
    ----------
    radius : float
        Positive [m].
    center : (3,)
        [m]

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.Sphere(0.1).support([0.0, 0.0, 2.0]).tolist()
    [0.0, 0.0, 0.1]
    """

    def __init__(self, radius: float, center: Numbers = (0.0, 0.0, 0.0)) -> None:
        super().__init__((positive(radius, "Sphere: radius"),) * 3, center)
