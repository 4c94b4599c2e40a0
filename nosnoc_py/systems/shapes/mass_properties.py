"""Mass, centroid and inertia of bodies: exact for ellipsoids and polyhedra, by parallel lines for overlaps.

All properties follow from the moments of a body, the integrals of 1, y and y y', which are added over parts. Ellipsoids
and polyhedra have closed forms. Where parts overlap, and for bodies known by their chords only, the moments are
integrated along parallel lines: exact polynomials along a line, the midpoint rule across. A first coarse pass finds the
principal axes; the second one integrates in coordinates in which the body is round, so that flat or long bodies need no
more lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from nosnoc_py.rotations import nearest_rotation

LINES = 1000  # number of lines in each of the two directions across; the relative error is a few times LINES**-2
ROWS = 50  # number of rows of lines that are integrated together, which bounds the memory
# Lines have to be parallel to no face: along one, the length of a chord jumps and the error is LINES**-1.
TILT = nearest_rotation([[0.973, -0.185, 0.138], [0.195, 0.979, -0.063], [-0.124, 0.089, 0.988]])
Chords = Callable[[np.ndarray, np.ndarray], np.ndarray]
Boxes = Callable[[np.ndarray], np.ndarray]
_Select = Callable[[np.ndarray], np.ndarray]


class MassProperties(NamedTuple):
    """Mass [kg], centroid (3,) [m] and inertia about the centroid (3, 3) [kg m^2], in the axes of the shape.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> properties = ns.Box((2.0, 1.0, 1.0)).mass_properties(density=3.0)
    >>> round(properties.mass, 6), properties.inertia.shape
    (6.0, (3, 3))
    """

    mass: float
    centroid: np.ndarray
    inertia: np.ndarray


class Moments(NamedTuple):
    """Integrals of 1, y and y y' over a body, about the origin."""

    volume: float
    first: np.ndarray
    second: np.ndarray

    def plus(self, other: Moments, factor: float = 1.0) -> Moments:
        """Return the moments of both, the other one's times a factor."""
        return Moments(
            self.volume + factor * other.volume, self.first + factor * other.first, self.second + factor * other.second
        )

    @property
    def covariance(self) -> np.ndarray:
        """Integral of y y' about the centroid."""
        return self.second - np.outer(self.first, self.first) / self.volume

    def properties(self, density: float) -> MassProperties:
        """Return the mass properties of a body of this density [kg/m^3]."""
        spread = self.covariance
        # J = tr(S) I - S for the covariance S, from J = integral of (|y|^2 I - y y').
        inertia = density * (np.trace(spread) * np.eye(3) - spread)
        return MassProperties(density * self.volume, self.first / self.volume, (inertia + inertia.T) / 2)


NOTHING = Moments(0.0, np.zeros(3), np.zeros((3, 3)))


def ellipsoid_moments(center: np.ndarray, matrix: np.ndarray) -> Moments:
    """Return the moments of {center + matrix y : |y| <= 1}."""
    volume = 4 / 3 * np.pi * abs(float(np.linalg.det(matrix)))
    # The integral of z z' over the unit ball is 1/5 of its volume times I.
    return Moments(volume, volume * center, volume * (matrix @ matrix.T / 5 + np.outer(center, center)))


def polyhedron_moments(apex: np.ndarray, triangles: np.ndarray) -> Moments:
    """Return the moments of the tetrahedra between a point inside and the triangles (n, 3, 3) of a convex surface."""
    edges = triangles - apex
    volumes = np.abs(np.linalg.det(edges)) / 6
    corners = np.concatenate([np.broadcast_to(apex, (len(triangles), 1, 3)), triangles], axis=1)
    sums = corners.sum(axis=1)
    # Tetrahedron with corners v_k and their sum s: the integral of y y' is volume / 20 (sum v_k v_k' + s s').
    products = np.einsum("nki,nkj->nij", corners, corners) + np.einsum("ni,nj->nij", sums, sums)
    return Moments(float(volumes.sum()), volumes @ sums / 4, np.einsum("n,nij->ij", volumes, products) / 20)


def union_moments(parts: Sequence[Moments], chords: Sequence[Chords], boxes: Sequence[Boxes]) -> Moments:
    """Return the moments of a union of convex parts: the sum, minus overlaps, which are counted twice.

    Parameters
    ----------
    parts : sequence of Moments
        Of every part by itself.
    chords : sequence of functions (points (k, 3), direction (3,)) -> (k, 2)
        Where lines enter and leave a part; a line that misses it leaves before it enters.
    boxes : sequence of functions rows (3, 3) -> (2, 3)
        Smallest and largest products of the points of a part with the rows.
    """
    total = NOTHING
    for part in parts:
        total = total.plus(part)
    # Inclusion and exclusion along every line: each interval counts in full, minus its part covered by earlier ones.
    return total.plus(_by_lines(chords, boxes, _overlap_box, _counted_twice), -1.0)


def convex_moments(chords: Chords, box: Boxes) -> Moments:
    """Return the moments of a convex body given by its chords."""
    return _by_lines([chords], [box], lambda boxes: boxes[0], lambda intervals: intervals)


def _by_lines(
    chords: Sequence[Chords],
    boxes: Sequence[Boxes],
    region: Callable[[Sequence[np.ndarray]], np.ndarray | None],
    pieces: _Select,
) -> Moments:
    """Return the moments by two passes: a coarse one finds principal axes, in which the fine one integrates."""
    stretch, result = np.eye(3), NOTHING
    for count in (LINES // 5, LINES):
        box = region([each(TILT @ np.linalg.inv(stretch)) for each in boxes])
        if box is None:
            return NOTHING
        result = _one_pass(chords, stretch, box, pieces, count)
        if result.volume <= 0:
            return NOTHING
        values, axes = np.linalg.eigh(result.covariance / result.volume)
        # A flat body has a singular covariance: the smallest axis is bounded from below.
        stretch = axes * np.sqrt(np.maximum(values, 1e-12 * values[-1]))
    return result


def _one_pass(chords: Sequence[Chords], stretch: np.ndarray, box: np.ndarray, pieces: _Select, count: int) -> Moments:
    """Return the moments by the midpoint rule over lines along the first row of TILT, in coordinates z with y = L z."""
    direction, across = TILT[0], TILT[1:]
    widths = (box[1] - box[0])[1:] / count
    grids = [box[0, 1 + k] + widths[k] * (np.arange(count) + 0.5) for k in range(2)]
    reference = TILT.T @ box.mean(axis=0)  # moments about a point nearby: fewer digits lost
    total = NOTHING
    for first in range(0, count, ROWS):
        places = np.stack(np.meshgrid(grids[0][first : first + ROWS], grids[1], indexing="ij"), axis=-1).reshape(-1, 2)
        points = places @ across + (direction @ reference) * direction
        values = np.stack([each(points @ stretch.T, stretch @ direction) for each in chords], axis=1)
        total = total.plus(_line_moments(points - reference, direction, pieces(values)), float(widths.prod()))
    return _mapped(_shifted(total, reference), stretch)


def _line_moments(points: np.ndarray, direction: np.ndarray, intervals: np.ndarray) -> Moments:
    """Return the sum over lines of the integrals over their intervals (lines, n, 2)."""
    # A missed line has a decreasing interval, which becomes one of length zero.
    start, end = intervals[..., 0], np.maximum(intervals[..., 0], intervals[..., 1])
    zeroth = (end - start).sum(axis=1)
    first = ((end**2 - start**2) / 2).sum(axis=1)
    second = ((end**3 - start**3) / 3).sum()
    mixed = np.outer(first @ points, direction)
    return Moments(
        float(zeroth.sum()),
        zeroth @ points + first.sum() * direction,
        (points * zeroth[:, None]).T @ points + mixed + mixed.T + second * np.outer(direction, direction),
    )


def _shifted(moments: Moments, shift: np.ndarray) -> Moments:
    mixed = np.outer(moments.first, shift)
    second = moments.second + mixed + mixed.T + moments.volume * np.outer(shift, shift)
    return Moments(moments.volume, moments.first + moments.volume * shift, second)


def _mapped(moments: Moments, stretch: np.ndarray) -> Moments:
    """Return the moments of the body {L z} of those of z."""
    factor = abs(float(np.linalg.det(stretch)))
    second = stretch @ moments.second @ stretch.T
    return Moments(factor * moments.volume, factor * stretch @ moments.first, factor * second)


def _counted_twice(intervals: np.ndarray) -> np.ndarray:
    """Return the first part of every interval, as far as earlier intervals cover it."""
    missed = intervals[..., 1] <= intervals[..., 0]
    start = np.where(missed, np.inf, intervals[..., 0])
    order = np.argsort(start, axis=1)
    start = np.take_along_axis(start, order, axis=1)
    end = np.take_along_axis(np.where(missed, -np.inf, intervals[..., 1]), order, axis=1)
    # Intervals in the order of their starts: what earlier ones reach at most is what they cover of the next.
    before = np.maximum.accumulate(end, axis=1)[:, :-1]
    covered = np.minimum(before, end[:, 1:])
    there = covered > start[:, 1:]
    return np.stack([np.where(there, start[:, 1:], 0.0), np.where(there, covered, 0.0)], axis=-1)


def _overlap_box(boxes: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return a box around all overlaps of two boxes; None where there is none."""
    result = []
    for k, one in enumerate(boxes):
        for other in boxes[k + 1 :]:
            box = np.array([np.maximum(one[0], other[0]), np.minimum(one[1], other[1])])
            if (box[1] > box[0]).all():
                result.append(box)
    if not result:
        return None
    return np.array([np.min([box[0] for box in result], axis=0), np.max([box[1] for box in result], axis=0)])
