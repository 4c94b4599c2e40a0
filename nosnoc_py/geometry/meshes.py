"""Triangle meshes as convex shapes: contacts see their convex hull."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from nosnoc_py.annotations import Numbers
from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import ModelError, ModelWarning
from nosnoc_py.systems.shapes import ConvexPolyhedron
from nosnoc_py.systems.shapes.polyhedra import distinct
from nosnoc_py.systems.symbols import floats, positive

# Volume that a hull adds, relative to its own, above which it is told: rounding of a file with seven digits is below.
ADDED = 1e-4


@named_arguments
def mesh_hull(
    source: str | Path | Numbers, faces: Any = None, *, scale: float | Numbers = 1.0, most: int | None = None
) -> ConvexPolyhedron:
    """Return the convex hull of a mesh, which contacts and rigid bodies take.

    Parameters
    ----------
    source : path, or vertices (n, 3)
        A file of a kind that trimesh reads (STL, OBJ, PLY and others; the extra `nosnoc_py[meshes]`), or points [m].
    faces : (n_f, 3), optional
        Indices of vertices, outwards; without them it is not known how much volume the hull adds.
    scale : float or (3,)
        Metres per unit of the source; for an axis less than zero to mirror it.
    most : int, optional
        Largest number of corners, at least 4: those that stand out most are kept. Every corner may be a contact.

    Raises
    ------
    ModelError
        For files that cannot be read, and for points in one plane.

    Warns
    -----
    ModelWarning
        If the hull is larger than the mesh: how much volume it adds. If corners were left out: how far they stand out.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.mesh_hull([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0.1, 0.1, 0.1]], scale=0.01).vertices.shape
    (4, 3)
    """
    vertices, triangles = _read(source) if isinstance(source, str | Path) else (floats(source, "mesh: vertices"), faces)
    if vertices.ndim != 2 or vertices.shape[1] != 3 or len(vertices) < 4:
        raise ModelError(f"mesh: vertices: expected four or more points (n, 3), given shape {vertices.shape}.")
    points = vertices * _scale(scale)
    hull = ConvexPolyhedron(distinct(points))
    if triangles is not None:
        corners = points[np.asarray(triangles, int)] - points.mean(axis=0)
        # Sum of the tetrahedra from one point to all faces, each a sixth of a determinant.
        volume, whole = abs(np.linalg.det(corners).sum()) / 6, float(hull.moments().volume)
        # Of a mesh with holes the volume is not known: every edge of a closed one belongs to two triangles.
        edges = np.sort(np.asarray(triangles, int)[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
        closed = bool((np.unique(edges, axis=0, return_counts=True)[1] == 2).all())
        if closed and whole - volume > ADDED * whole:
            warnings.warn(
                f"mesh: its convex hull adds {100 * (whole / volume - 1):.3g} % of volume, in which contacts see a "
                "body; split the mesh into convex parts, each a shape of its own.",
                ModelWarning,
                stacklevel=3,
            )
    return hull if most is None or len(hull.vertices) <= most else _of_few_corners(hull, most)


def _scale(scale: Any) -> Any:
    if np.ndim(scale) == 0:
        return positive(scale, "mesh: scale")
    values = floats(scale, "mesh: scale")
    if values.shape != (3,) or not values.all():
        raise ModelError(f"mesh: scale: expected one number, or three that are not zero, given {scale!r}.")
    return values


def _of_few_corners(hull: ConvexPolyhedron, most: int) -> ConvexPolyhedron:
    """Return the hull of the corners that stand out most, one after the other."""
    if not isinstance(most, int) or most < 4:
        raise ModelError(f"mesh: expected a number of corners of at least 4, given {most!r}.")
    points = hull.vertices
    chosen = [int(np.argmax(np.linalg.norm(points - points.mean(axis=0), axis=1)))]
    # The first four span as much as they can: a line, a triangle, a tetrahedron.
    while len(chosen) < 4:
        apart = points - points[chosen[0]]
        spanned = np.linalg.qr(apart[chosen[1:]].T)[0]
        chosen.append(int(np.argmax(np.linalg.norm(apart - apart @ spanned @ spanned.T, axis=1))))
    few, outside = _hull_and_heights(points, chosen)
    while len(chosen) < most:
        chosen.append(int(np.argmax(outside)))
        few, outside = _hull_and_heights(points, chosen)
    warnings.warn(
        f"mesh: of {len(points)} corners of its convex hull {most} are kept; it stands out of them by up to "
        f"{outside.max():.3g} m.",
        ModelWarning,
        stacklevel=4,
    )
    return few


def _hull_and_heights(points: np.ndarray, chosen: list[int]) -> tuple[ConvexPolyhedron, np.ndarray]:
    """Return the hull of some of the points, and by how much each of them (n,) stands out of it."""
    hull = ConvexPolyhedron(points[chosen])
    return hull, (points @ hull.normals.T + hull.offsets).max(axis=1)


def _read(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices and faces of a file."""
    try:
        import trimesh
    except ImportError:
        raise ModelError("mesh: files are read by trimesh: pip install 'nosnoc_py[meshes]'.") from None
    try:
        mesh = trimesh.load(path, force="mesh")
        return np.asarray(mesh.vertices, float), np.asarray(mesh.faces, int)
    except Exception as error:
        raise ModelError(f"mesh: {path}: the file cannot be read ({type(error).__name__}: {error}).") from error
