"""Projection of the tangential impulses of many contacts onto sections of their friction cones.

The section at a normal impulse is an interval in the plane, a disc in space, or a polygon for a polyhedral cone.
"""

from __future__ import annotations

import math

import numpy as np

from nosnoc_py.compiled import compiled_as


def _sections_by_loops(force: np.ndarray, radius: np.ndarray, corners: np.ndarray) -> np.ndarray:
    nearest, directions = np.empty(force.shape), corners.shape[0]
    for k in range(force.shape[0]):
        if force.shape[1] == 1:
            nearest[k, 0] = min(max(force[k, 0], -radius[k]), radius[k])
            continue
        x, y = force[k, 0], force[k, 1]
        nearest[k, 0], nearest[k, 1] = x, y
        if directions == 0:
            size = math.sqrt(x * x + y * y)
            if size > radius[k]:
                nearest[k, 0], nearest[k, 1] = x * (radius[k] / size), y * (radius[k] / size)
            continue
        least, inside = np.inf, True
        for d in range(directions):
            ax, ay = corners[d, 0], corners[d, 1]
            ex, ey = corners[(d + 1) % directions, 0] - ax, corners[(d + 1) % directions, 1] - ay
            inside = inside and x * ey - y * ex <= radius[k] * (ax * ey - ay * ex)
            along = ((x - radius[k] * ax) * ex + (y - radius[k] * ay) * ey) / (ex * ex + ey * ey)
            share = min(max(along, 0.0), radius[k])
            px, py = radius[k] * ax + share * ex, radius[k] * ay + share * ey
            far = (px - x) ** 2 + (py - y) ** 2
            if far < least:
                least, nearest[k, 0], nearest[k, 1] = far, px, py
        if inside:
            nearest[k, 0], nearest[k, 1] = x, y
    return nearest


@compiled_as(_sections_by_loops)
def onto_sections(force: np.ndarray, radius: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Return the nearest impulses (m, n_t) in sections with radii (m,).

    These are intervals for one tangent; for two discs, or polygons with corners (directions, 2).
    """
    if force.shape[1] < 2:
        return onto_interval(force, radius)
    return onto_polygon(force, radius, corners) if corners.size else onto_disc(force, radius)


def corners_of(directions: int | None) -> np.ndarray:
    """Return the corners of a polyhedral cone for `onto_sections`; none for Coulomb's."""
    return np.zeros((0, 2)) if directions is None else polygon(directions)


def onto_interval(force: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Project onto [-radius, radius]."""
    bound = radius[:, None]
    return np.minimum(np.maximum(force, -bound), bound)


def onto_disc(force: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Project onto the disc of this radius."""
    size = np.sqrt(np.einsum("mt,mt->m", force, force))
    # The inner `where` avoids a division by zero in the branch that is not taken.
    scale = np.where(size > radius, radius / np.where(size > 0, size, 1.0), 1.0)
    return np.asarray(force * scale[:, None])


def onto_polygon(force: np.ndarray, radius: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Project onto the polygon with these corners times the radius."""
    # Nearest points on all edges; the closest of them is the projection unless the force lies inside.
    edge = np.roll(corners, -1, axis=0) - corners
    outwards = np.column_stack([edge[:, 1], -edge[:, 0]])
    beyond = np.einsum("mt,dt->md", force, outwards) - radius[:, None] * np.einsum("dt,dt->d", corners, outwards)
    along = np.einsum("mdt,dt->md", force[:, None] - radius[:, None, None] * corners, edge)
    length = np.einsum("dt,dt->d", edge, edge)
    share = np.clip(along / length, 0.0, radius[:, None])
    nearest = radius[:, None, None] * corners + share[:, :, None] * edge
    best = np.argmin(np.sum((nearest - force[:, None]) ** 2, axis=2), axis=1)
    inside = (beyond <= 0.0).all(axis=1)
    return np.where(inside[:, None], force, nearest[np.arange(len(force)), best])


def polygon(directions: int) -> np.ndarray:
    """Return the corners (directions, 2) of the regular polygon with circumradius one, anticlockwise."""
    angles = 2.0 * np.pi * np.arange(directions) / directions
    return np.column_stack([np.cos(angles), np.sin(angles)])
