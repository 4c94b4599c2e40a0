"""The planes below motions as polygons: numbers only, drawn in `scenes`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nosnoc_py.systems.rigid_body import Plane

Array = npt.NDArray[np.float64]

SLICES = 12  # a plane is drawn as so many strips each way, so that one can see how it lies
CARRIES = 0.15  # cosine at least between a plane's normal and upwards, if there shall be a shadow on it
PARALLEL = 1e-2  # sine of the angle between planes that need not meet
FAR = 1.0  # sizes of the scene; planes that meet farther away are not drawn up to there


def floors_of(planes: Sequence[Plane], places: Array, reach: float) -> list[list[Array]]:
    """Return for each plane polygons (corners, 3) below places (n, 3), cut where other planes begin.

    Planes that are not parallel reach to the line in which they meet, unless it is far away.
    """
    made = []
    for plane in planes:
        others = [other for other in planes if other is not plane]
        edges = [_edge(plane, other, places) for other in others]
        squares = floor_of(plane, np.vstack([places, *edges]), reach)
        made.append([cut for square in squares if len(cut := clipped(square, others))])
    return made


def _edge(plane: Plane, other: Plane, places: Array) -> Array:
    """Feet (n, 3) of places on the line in which two planes meet; none if it is further away than they are apart."""
    normals, offsets = np.array([plane.normal, other.normal]), np.array([plane.offset, other.offset])
    if np.linalg.norm(np.cross(*normals)) < PARALLEL:
        return np.zeros((0, 3))
    feet = places + (offsets - places @ normals.T) @ np.linalg.pinv(normals).T
    size = np.linalg.norm(np.ptp(places, axis=0)) + np.abs(places @ normals.T - offsets).max()
    near: Array = feet[np.linalg.norm(feet - places, axis=1) <= FAR * size]
    return near


def clipped(polygon: Array, planes: Sequence[Plane]) -> Array:
    """Return the part (m, 3) of a convex polygon (n, 3) on the free side of all planes; empty where there is none."""
    for plane in planes:
        gaps = polygon @ plane.normal - plane.offset
        kept = list[Array]()
        for k, gap in enumerate(gaps):
            before = gaps[k - 1]
            if (gap < 0.0) != (before < 0.0):
                kept.append(polygon[k - 1] + before / (before - gap) * (polygon[k] - polygon[k - 1]))
            if gap >= 0.0:
                kept.append(polygon[k])
        polygon = np.array(kept).reshape(-1, 3)
    return polygon if len(polygon) > 2 else np.zeros((0, 3))


def shadows_of(planes: Sequence[Plane], gravity: Array, polygons: Sequence[Array]) -> list[Array]:
    """Return what polygons (n, 3) cover, seen along gravity (3,), of the planes that carry."""
    down = gravity / (np.linalg.norm(gravity) or 1.0)
    fallen = list[Array]()
    for plane in planes:
        if -(slope := down @ plane.normal) > CARRIES:
            others = [other for other in planes if other is not plane]
            landed = [points - np.outer((points @ plane.normal - plane.offset) / slope, down) for points in polygons]
            fallen += [cut for points in landed if len(cut := clipped(points, others))]
    return fallen


def floor_of(plane: Plane, places: Array, reach: float) -> Array:
    """Return squares (count, 4, 3) of the plane that lie below places (n, 3), with a margin."""
    normal = np.asarray(plane.normal)
    first = np.cross((0.0, 1.0, 0.0) if abs(normal[1]) < 0.9 else (0.0, 0.0, 1.0), normal)
    first /= np.linalg.norm(first)
    frame = np.stack([first, np.cross(normal, first)])
    flat = places @ frame.T
    low, high = flat.min(axis=0) - reach, flat.max(axis=0) + reach
    a, b = (np.linspace(low[i], high[i], SLICES + 1) for i in range(2))
    corners = [
        [(a[i], b[j]), (a[i + 1], b[j]), (a[i + 1], b[j + 1]), (a[i], b[j + 1])]
        for i in range(SLICES)
        for j in range(SLICES)
    ]
    squares: Array = np.array(corners) @ frame + plane.offset * normal
    return squares
