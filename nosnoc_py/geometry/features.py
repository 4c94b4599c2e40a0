"""Faces and edges of convex polyhedra, with the directions that bound the region over each of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nosnoc_py.systems.shapes import ConvexPolyhedron

Array = np.ndarray
# Two triangles are one face if the cosine of the angle of their normals is this near to one: a few digits above
# rounding, as the angle itself is then 1e-6.
SAME_PLANE = 1e-12


class Edge(NamedTuple):
    """Edge from `start` [m] along a unit direction, with the directions out of both faces that it bounds."""

    start: Array
    direction: Array
    length: float
    sides: tuple[Array, ...]


class Face(NamedTuple):
    """Face normal'x = offset, with a point on each of its edges and the direction out of the face there."""

    normal: Array
    offset: float
    rims: list[tuple[Array, Array]]


def features_of(shape: ConvexPolyhedron) -> tuple[list[Face], list[Edge]]:
    """Return the faces, whose triangles are joined, and the edges between two of them."""
    planes: list[Face] = []
    owners: dict[tuple[Any, ...], list[tuple[Face, Array, Array]]] = {}
    for corners, normal, offset in zip(shape.triangles, shape.normals, shape.offsets, strict=True):
        known = [plane for plane in planes if plane.normal @ normal > 1 - SAME_PLANE]
        plane = known[0] if known else Face(normal, -float(offset), [])
        if not known:
            planes.append(plane)
        for start, end in zip(corners, np.roll(corners, -1, 0), strict=True):
            key = tuple(sorted((tuple(start), tuple(end))))
            owners.setdefault(key, []).append((plane, *np.array(key)))
    edges = []
    for (one, start, end), (other, _, _) in owners.values():
        # Between two triangles of one face there is no edge.
        if one is other:
            continue
        length = float(np.linalg.norm(end - start))
        direction = (end - start) / length
        sides = []
        for plane, opposite in ((one, other), (other, one)):
            side = np.cross(direction, plane.normal)
            # Out of a face is the side on which the other one slopes down.
            sides.append(side * np.sign(side @ opposite.normal))
            plane.rims.append((start, sides[-1]))
        edges.append(Edge(start, direction, length, tuple(sides)))
    return planes, edges
