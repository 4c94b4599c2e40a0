"""Base class of the shapes of rigid bodies: support function, interior, mass properties, features for kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nosnoc_py.annotations import Numbers
from nosnoc_py.errors import ModelError
from nosnoc_py.rotations import check_rotation
from nosnoc_py.systems.shapes.mass_properties import MassProperties, Moments, convex_moments
from nosnoc_py.systems.symbols import finite, floats, positive

# Tolerance of `contains`, relative to the size of a body: rounding must not put points of its surface outside.
INSIDE = 1e-12


class Features(NamedTuple):
    """A body as plain arrays, for compiled kernels: the union of all rows.

    Attributes
    ----------
    ellipsoids : (n_e, 12)
        Centre c and matrix A, row by row: {c + A y : |y| <= 1}.
    vertices : (n_v, 4)
        Points and the radius of the skin around them.
    lenses : (n_l, 24)
        Two ellipsoids whose intersection it is; column k of the second matrix is parallel to that of the first.
    """

    ellipsoids: np.ndarray
    vertices: np.ndarray
    lenses: np.ndarray

    @classmethod
    def of(cls, *, ellipsoids: Any = (), vertices: Any = (), lenses: Any = ()) -> Features:
        """Return the features of some rows of each kind."""
        rows = ((ellipsoids, 12), (vertices, 4), (lenses, 24))
        # Contiguous: compiled kernels are specialised for this layout.
        return cls(*(np.ascontiguousarray(np.reshape(np.asarray(r, dtype=float), (-1, n))) for r, n in rows))

    @classmethod
    def joined(cls, features: Sequence[Features]) -> Features:
        """Return the features of a union."""
        return cls(*(np.ascontiguousarray(np.concatenate(rows)) for rows in zip(*features, strict=True)))


class Shape(ABC):
    """A body in its own frame; lengths in metres."""

    @abstractmethod
    def support(self, direction: Any) -> np.ndarray:
        """Return the point (3,) of the body that is furthest in a direction (3,), of any length but zero.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> ns.Ellipsoid((1.0, 2.0, 3.0)).support([0, 0, 1]).round(6) + 0.0
        array([0., 0., 3.])
        """

    def heights(self, directions: np.ndarray) -> np.ndarray:
        """Return how far the body reaches, max d.y, in directions (k, 3) of any length but zero: (k,).

        Examples
        --------
        >>> import numpy as np, nosnoc_py as ns
        >>> ns.Ellipsoid((1.0, 2.0, 3.0)).heights(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])).round(6)
        array([1., 3.])
        """
        return np.array([direction @ self.support(direction) for direction in directions])

    @abstractmethod
    def contains(self, points: Any) -> np.ndarray:
        """Return a mask of the points (..., 3) that lie in the body or on its surface.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> ns.Sphere(1.0).contains([[0.0, 0.0, 0.5], [1.0, 1.0, 0.0]])
        array([ True, False])
        """

    @abstractmethod
    def moved(self, shift: Any) -> Shape:
        """Return the shape shifted by (3,) [m].

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> bool(ns.Sphere(1.0).moved([3.0, 0.0, 0.0]).contains([3.5, 0.0, 0.0]))
        True
        """

    @abstractmethod
    def features(self) -> Features | None:
        """Return the body as plain arrays; None if they cannot describe it."""

    @abstractmethod
    def chords(self, points: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Return where lines from points (k, 3) enter and leave a convex body (k, 2); decreasing for a miss."""

    @property
    def parts(self) -> tuple[Shape, ...]:
        """Convex shapes whose union it is."""
        return (self,)

    def moments(self) -> Moments:
        """Return integrals of 1, y and y y' over the body."""
        return convex_moments(self.chords, self.box)

    def mass_properties(self, density: float = 1.0) -> MassProperties:
        """Return mass [kg], centroid [m] and inertia about it [kg m^2] of a body of constant density [kg/m^3].

        Raises
        ------
        ModelError
            If the density is not positive.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> mass, center, inertia = ns.Box((2.0, 1.0, 1.0)).mass_properties(density=3.0)
        >>> round(mass, 6), center.round(6) + 0.0, inertia.diagonal().round(6)
        (6.0, array([0., 0., 0.]), array([1. , 2.5, 2.5]))
        """
        return self.moments().properties(positive(density, "mass_properties: density"))

    def box(self, rows: np.ndarray) -> np.ndarray:
        """Return smallest and largest products (2, n) of points of the body with rows (n, 3) of any length."""
        # The smallest product in a direction is the support in the opposite one.
        return np.array([[row @ self.support(sign * row) for row in rows] for sign in (-1, 1)])


def point(value: Numbers, what: str = "center") -> np.ndarray:
    """Return three finite numbers (3,)."""
    return finite(value, what, 3)


def positive_lengths(value: Numbers, what: str = "lengths") -> np.ndarray:
    """Return three positive lengths (3,)."""
    result = finite(value, what, 3)
    if (result <= 0).any():
        raise ModelError(f"{what}: expected three positive lengths, given {result}.")
    return result


def turn(value: Numbers | None, what: str = "rotation") -> np.ndarray:
    """Return a rotation matrix (3, 3), by default the identity."""
    return np.eye(3) if value is None else check_rotation(value, what)


def unit(direction: Any) -> np.ndarray:
    """Return a direction (3,) with length one; raise `ModelError` for zero and for other shapes."""
    try:
        vector = np.asarray(direction, dtype=float).reshape(3)
    except (TypeError, ValueError):
        vector = np.zeros(3)
    length = float(np.sqrt(vector @ vector))
    if not 0 < length < np.inf:
        raise ModelError(f"direction: expected three finite numbers that are not all zero, given {direction!r}.")
    return vector / length


def matrix(value: Any, what: str, shape: tuple[int, int]) -> np.ndarray:
    """Return a matrix of finite numbers; a shape of -1 is any number of rows."""
    array = floats(value, what)
    if array.ndim != 2 or any(n not in (-1, m) for n, m in zip(shape, array.shape, strict=True)):
        expected = tuple("n" if n < 0 else n for n in shape)
        raise ModelError(f"{what}: expected an array of shape {expected}, given one of shape {array.shape}.")
    if not np.isfinite(array).all():
        raise ModelError(f"{what}: expected finite numbers, given {array[~np.isfinite(array)][0]}.")
    return array
