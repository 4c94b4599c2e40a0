"""Shapes as convex hulls of balls: the origin of a sphere, the ends of a capsule, the corners of a box."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from nosnoc_py.geometry.shapes import Capsule, ConvexPolygon, Point
from nosnoc_py.systems.shapes import Box, ConvexPolyhedron, Sphere

Array = np.ndarray


class Probe(NamedTuple):
    """Point of a shape in its frame, with a radius [m]."""

    place: Array
    radius: float


@runtime_checkable
class ShapeWithProbes(Protocol):
    """A shape that touches others: the convex hull of balls."""

    def probes(self, size: int) -> list[tuple[Any, float]]:
        """Return centres (size,) in the frame of the shape and radii [m] of balls, in the plane or in space."""


def _origin(shape: Any, size: int) -> list[Probe]:
    return [Probe(np.zeros(size), 0.0)]


def _ball(shape: Sphere, size: int) -> list[Probe]:
    # A sphere is a disc in the plane: its third coordinate is left out.
    return [Probe(np.asarray(shape.center)[:size], float(shape.semi_axes[0]))]


def _ends(shape: Capsule, size: int) -> list[Probe]:
    return [Probe(np.array([0.0, 0.0, z]), shape.radius) for z in (-shape.length / 2, shape.length / 2)]


def _corners(shape: Any, size: int) -> list[Probe]:
    return [Probe(np.asarray(place), float(getattr(shape, "skin", 0.0))) for place in shape.vertices]


PROBES: dict[type, Callable[[Any, int], list[Probe]]] = {
    Point: _origin,
    Sphere: _ball,
    Capsule: _ends,
    Box: _corners,
    ConvexPolyhedron: _corners,
    ConvexPolygon: _corners,
}


def probes_of(shape: Any, size: int) -> list[Probe]:
    """Return the balls of a shape; none if it can only be touched."""
    if type(shape) in PROBES:
        return PROBES[type(shape)](shape, size)
    own = shape.probes(size) if isinstance(shape, ShapeWithProbes) else []
    return [Probe(np.asarray(place, float), float(radius)) for place, radius in own]
