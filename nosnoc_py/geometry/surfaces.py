"""Signed distances of a point x in the frame of a shape, with the unit normal there: exact, and not smoothed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Protocol, runtime_checkable

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.geometry.features import features_of
from nosnoc_py.geometry.shapes import Capsule, ConvexPolygon, HalfSpace, HeightMap
from nosnoc_py.systems.shapes import Box, ConvexPolyhedron, Sphere


@runtime_checkable
class ShapeWithSurface(Protocol):
    """A shape that is touched by others."""

    def surface(self, x: ca.SX) -> tuple[ca.SX, ca.SX]:
        """Return the signed distance of a point (size,) in the frame of the shape, and the unit normal there."""


def _half_space(shape: HalfSpace, x: ca.SX) -> tuple[ca.SX, ca.SX]:
    normal = ca.SX(ca.DM(shape.normal))
    return ca.dot(normal, x) - shape.offset, ca.SX(normal)


def _height_map(shape: HeightMap, x: ca.SX) -> tuple[ca.SX, ca.SX]:
    """Return the height above the map divided by the norm of its gradient: the distance to first order."""
    *flat, z = ca.vertsplit(x)
    height = ca.SX(shape.height(*flat))
    slopes = ca.gradient(height, x)[:-1]
    normal = ca.vertcat(-slopes, 1) / ca.sqrt(1 + ca.sumsqr(slopes))
    # The last component of the normal is 1 over the norm of the gradient of z - height. Zero and normal are exact at
    # contact.
    return (z - height) * normal[-1], normal


def _sphere(shape: Sphere, x: ca.SX) -> tuple[ca.SX, ca.SX]:
    away = x - ca.DM(np.asarray(shape.center)[: x.numel()])
    distance = ca.norm_2(away)
    return distance - float(shape.semi_axes[0]), away / distance


def _capsule(shape: Capsule, x: ca.SX) -> tuple[ca.SX, ca.SX]:
    # Nearest point on the axis; beyond its ends the distance is that of a sphere.
    along = ca.fmin(ca.fmax(x[2], -shape.length / 2), shape.length / 2)
    away = ca.vertcat(x[0], x[1], x[2] - along)
    distance = ca.norm_2(away)
    return distance - shape.radius, away / distance


def _length(parts: ca.SX) -> ca.SX:
    """Return the norm, with derivatives that are numbers where it is zero."""
    square = ca.sumsqr(parts)
    return ca.if_else(square > 0, ca.sqrt(ca.if_else(square > 0, square, 1)), 0)


def _box(shape: Box, x: ca.SX) -> ca.SX:
    """Return the distance: outside to the nearest point of the box, inside to the nearest face (negative)."""
    if shape.skin:
        raise ModelError(
            "contacts: a Box with a skin cannot be touched; give a Box without, and a Sphere of its radius."
        )
    turn = ca.DM(shape.rotation)
    own = turn.T @ (x - ca.DM(shape.center))
    # Distance beyond the faces in each direction, in the frame of the box; symmetric, hence the absolute value.
    beyond = ca.fabs(own) - ca.DM(shape.half)
    deepest = ca.mmax(beyond)
    # Not fmin(deepest, 0): on a face that has half of the derivative.
    return _length(ca.fmax(beyond, 0)) + ca.if_else(deepest <= 0, deepest, 0)


def _polygon(shape: ConvexPolygon, x: ca.SX) -> ca.SX:
    """Return the distance: outside to the nearest edge, inside to the nearest line of an edge (negative)."""
    # The largest signed distance to a line of an edge is negative exactly inside.
    from_lines = ca.DM(shape.normals) @ x - ca.DM(shape.offsets)
    inside = ca.mmax(from_lines)
    # Beside an edge its line is nearest, elsewhere a corner. Not the least distance to all edges: near the end of an
    # edge, that to the corner of the next one is equal up to rounding, which would then choose between two curvatures.
    outside = ca.mmin(ca.vertcat(*[_length(x - ca.DM(corner)) for corner in shape.vertices]))
    ends = np.roll(shape.vertices, -1, 0)
    for start, end, above in zip(shape.vertices, ends, ca.vertsplit(from_lines), strict=True):
        edge = ca.DM(end - start)
        share = ca.dot(edge, x - ca.DM(start)) / float(ca.sumsqr(edge))
        beside = ca.logic_and(ca.logic_and(share >= 0, share <= 1), above > 0)
        outside = ca.if_else(beside, above, outside)
    return ca.if_else(inside > 0, outside, inside)


def _polyhedron(shape: ConvexPolyhedron, x: ca.SX) -> ca.SX:
    """Return the distance: over a face to it, beside an edge to that, else to a corner; inside to the nearest face."""
    planes, edges = features_of(shape)
    heights = [ca.dot(ca.DM(plane.normal), x) - plane.offset for plane in planes]
    # As for polygons: which feature is nearest is decided by its region, not by distances that are equal at its end.
    outside = ca.mmin(ca.vertcat(*[_length(x - ca.DM(corner)) for corner in shape.vertices]))
    for edge in edges:
        away = x - ca.DM(edge.start)
        along = ca.dot(ca.DM(edge.direction), away)
        beside = [along >= 0, along <= edge.length, *(ca.dot(ca.DM(side), away) >= 0 for side in edge.sides)]
        outside = ca.if_else(_all(beside), _length(away - along * ca.DM(edge.direction)), outside)
    for plane, above in zip(planes, heights, strict=True):
        over = [above > 0, *(ca.dot(ca.DM(side), x - ca.DM(start)) <= 0 for start, side in plane.rims)]
        outside = ca.if_else(_all(over), above, outside)
    inside = ca.mmax(ca.vertcat(*heights))
    return ca.if_else(inside > 0, outside, inside) - shape.skin


def _all(conditions: list[ca.SX]) -> ca.SX:
    return reduce(ca.logic_and, conditions)


Surface = Callable[[Any, ca.SX], tuple[ca.SX, ca.SX]]


def _of_symbol(surface: Surface) -> Surface:
    """Return a surface that is evaluated for a plain symbol and substituted: x is a large expression of q."""

    def substituted(shape: Any, x: ca.SX) -> tuple[ca.SX, ca.SX]:
        symbol = ca.SX.sym("x", x.numel())
        result = ca.substitute(list(surface(shape, symbol)), [symbol], [x])
        return result[0], result[1]

    return substituted


def _with_gradient(distance: Callable[[Any, ca.SX], ca.SX]) -> Surface:
    """Return a signed distance with its gradient, which has length one."""

    def surface(shape: Any, x: ca.SX) -> tuple[ca.SX, ca.SX]:
        value = distance(shape, x)
        return value, ca.gradient(value, x)

    return _of_symbol(surface)


SURFACES: dict[type, Surface] = {
    HalfSpace: _half_space,
    HeightMap: _of_symbol(_height_map),
    Sphere: _sphere,
    Capsule: _capsule,
    Box: _with_gradient(_box),
    ConvexPolygon: _with_gradient(_polygon),
    ConvexPolyhedron: _with_gradient(_polyhedron),
}


def surface_of(shape: Any) -> Callable[[ca.SX], tuple[ca.SX, ca.SX]] | None:
    """Return the function from a point in the frame of a shape to its distance and normal; None if there is none."""
    if type(shape) in SURFACES:
        return partial(SURFACES[type(shape)], shape)
    return shape.surface if isinstance(shape, ShapeWithSurface) else None
