"""Projection of the tangential impulses of many contacts onto sections of their friction cones.

The section at a normal impulse is an interval in the plane, a disc in space, or a polygon for a polyhedral cone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# (impulses (m, n_t), radii (m,)) -> nearest impulses in the sections (m, n_t)
Projection = Callable[[np.ndarray, np.ndarray], np.ndarray]


def projection_of(tangents: int, directions: int | None) -> Projection:
    """Return the projection for contacts with this number of tangents.

    Parameters
    ----------
    tangents : int
        0, 1 or 2.
    directions : int, optional
        Number of corners of a polygon; None is a disc.
    """
    if tangents < 2:
        return onto_interval
    return onto_disc if directions is None else lambda force, radius: onto_polygon(force, radius, directions)


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


def onto_polygon(force: np.ndarray, radius: np.ndarray, directions: int) -> np.ndarray:
    """Project onto the regular polygon with this circumradius and its first corner on the first axis."""
    # Nearest points on all edges; the closest of them is the projection unless the force lies inside.
    corners = polygon(directions)
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
