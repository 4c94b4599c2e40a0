"""Surfaces of rigid bodies as flat polygons: numbers only, drawn in `bodies`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nosnoc_py.solution.arrays import Array
from nosnoc_py.systems.shapes import Shape
from nosnoc_py.systems.shapes.polyhedra import ConvexPolyhedron

FLAT = 1e-9  # cosine and height, relative, by which triangles count as one face
FINE = 1e-3  # of the size of a polyhedron: a skin that is thinner is not drawn


@dataclass(frozen=True, eq=False, kw_only=True)
class Mesh:
    """Polygons on the surface of a body, in its frame.

    Parameters
    ----------
    points : (n, 3)
        Corners [m].
    faces : tuple of tuples of int
        Corners of each polygon, counter-clockwise seen from outside.
    normals : (faces, 3)
        Unit normals, outwards.
    sharp : bool
        True if its edges are edges of the body, too.
    """

    points: Array
    faces: tuple[tuple[int, ...], ...]
    normals: Array
    sharp: bool


def triangles(faces: Iterable[Sequence[int]]) -> npt.NDArray[np.int64]:
    """Polygons by their corners, cut into triangles (m, 3)."""
    fans = [(face[0], face[k], face[k + 1]) for face in faces for k in range(1, len(face) - 1)]
    return np.array(fans, dtype=np.int64).reshape(-1, 3)


def meshes_of(shape: Shape, resolution: int = 16) -> tuple[Mesh, ...]:
    """Return one mesh for every convex part of a shape, without the faces that lie inside of other parts.

    Curved parts are drawn through the points furthest in 2 `resolution` x `resolution` directions.
    """
    parts = shape.parts
    meshes = []
    for k, part in enumerate(parts):
        mesh = _polyhedron(part) if isinstance(part, ConvexPolyhedron) and _sharp(part) else _curved(part, resolution)
        meshes.append(_outside(mesh, [other for j, other in enumerate(parts) if j != k]))
    return tuple(meshes)


def touching_point(shape: Shape, x: Array, normal: Array) -> Array:
    """Return the point (3,) of a body in state x (18,) that is nearest to a plane with this normal."""
    rotation = x[3:12].reshape(3, 3)
    return x[:3] + rotation @ shape.support(-(rotation.T @ normal))


def _sharp(part: ConvexPolyhedron) -> bool:
    return bool(part.skin <= FINE * np.ptp(part.vertices, axis=0).max())


def _polyhedron(part: ConvexPolyhedron) -> Mesh:
    """The faces, each from the triangles that share its plane."""
    left, faces, normals = list(range(len(part.normals))), [], []
    size = np.abs(part.vertices).max()
    while left:
        normal, offset = part.normals[left[0]], part.offsets[left[0]]
        # Hulls consist of triangles: those in one plane are one face.
        same = [k for k in left if normal @ part.normals[k] > 1 - FLAT and abs(offset - part.offsets[k]) < FLAT * size]
        left = [k for k in left if k not in same]
        corners = np.flatnonzero(np.abs(part.vertices @ normal + offset) < FLAT * size)
        faces.append(_around(part.vertices, corners, normal))
        normals.append(normal)
    return Mesh(points=part.vertices, faces=tuple(faces), normals=np.array(normals), sharp=True)


def _around(points: Array, corners: npt.NDArray[np.int64], normal: Array) -> tuple[int, ...]:
    """Corners of a face in their order around its normal."""
    arms = points[corners] - points[corners].mean(axis=0)
    first = arms[0] / np.linalg.norm(arms[0])
    second = np.cross(normal, first)
    # The polygon is convex, so the angle around its centre orders the corners.
    order = np.argsort(np.arctan2(arms @ second, arms @ first))
    return tuple(int(k) for k in corners[order])


def _curved(part: Shape, resolution: int) -> Mesh:
    """Quadrilaterals between the points furthest in directions along meridians, with triangles at the poles."""
    rows, columns = resolution, 2 * resolution
    polar = np.linspace(0.0, np.pi, rows + 1)[1:-1]
    around = np.arange(columns) * 2 * np.pi / columns
    theta, phi = (grid.ravel() for grid in np.meshgrid(polar, around, indexing="ij"))
    ring = np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)], axis=1)
    # Points of support instead of coordinates: they exist for every convex shape, smooth or not.
    directions = np.vstack([[[0.0, 0.0, 1.0]], ring, [[0.0, 0.0, -1.0]]])
    points = np.array([part.support(direction) for direction in directions])
    faces = list[tuple[int, ...]]()
    for k in range(columns):
        after = (k + 1) % columns
        faces.append((0, 1 + k, 1 + after))
        for row in range(rows - 2):
            upper, lower = 1 + row * columns, 1 + (row + 1) * columns
            faces.append((upper + k, lower + k, lower + after, upper + after))
        bottom = 1 + (rows - 2) * columns
        faces.append((len(points) - 1, bottom + after, bottom + k))
    normals = np.array([directions[list(face)].mean(axis=0) for face in faces])
    normals /= np.linalg.norm(normals, axis=1)[:, None]
    return Mesh(points=points, faces=tuple(faces), normals=normals, sharp=False)


def _outside(mesh: Mesh, others: list[Shape]) -> Mesh:
    """Leave out what other convex parts hide: faces whose corners all lie in one of them."""
    hidden = np.zeros(len(mesh.faces), dtype=bool)
    for other in others:
        inside = other.contains(mesh.points)
        # A face that is only partly inside of another part is drawn: depth sorting hides the rest.
        hidden |= np.array([inside[list(face)].all() for face in mesh.faces])
    faces = tuple(face for face, gone in zip(mesh.faces, hidden, strict=True) if not gone)
    return Mesh(points=mesh.points, faces=faces, normals=mesh.normals[~hidden], sharp=mesh.sharp)
