"""Convex hulls of balls on surfaces with a signed distance: the gap is the distance of a centre less the radius."""

from __future__ import annotations

from nosnoc_py.errors import ModelError
from nosnoc_py.geometry.balls import probes_of
from nosnoc_py.geometry.placed import Placed
from nosnoc_py.geometry.shapes import Capsule, ConvexPolygon, HalfSpace, HeightMap, Point
from nosnoc_py.geometry.surfaces import surface_of
from nosnoc_py.geometry.touch import ShapePair, Touch
from nosnoc_py.systems.shapes import Box, ConvexPolyhedron, Sphere


def on_surface(one: Placed, other: Placed) -> list[Touch]:
    """Return the touches of all balls of one shape on the surface of the other."""
    surface = surface_of(other.shape)
    assert surface is not None
    result = []
    for place, radius in probes_of(one.shape, one.size):
        centre = one.in_world(place)
        distance, normal = surface(other.of_world(centre))
        out = other.rotation @ normal
        # A ball touches at its centre minus its radius along the normal out of the other shape.
        result.append(Touch(distance - radius, out, centre - radius * out, one, other))
    return result


def corners_on_map(one: Placed, ground: Placed) -> list[Touch]:
    """Return the touches of corners; those with a skin would touch anywhere on it."""
    if any(probe.radius for probe in probes_of(one.shape, one.size)):
        raise ModelError(
            f"contacts: {type(one.shape).__name__} on HeightMap: its corners have a skin; put ns.Sphere()s on the body."
        )
    return on_surface(one, ground)


HULLS = (Capsule, Box, ConvexPolyhedron, ConvexPolygon)
CORNERED = (Point, Box, ConvexPolyhedron, ConvexPolygon)
PAIRS = (
    # A linear distance is least at a ball of the hull.
    ShapePair(HULLS, (HalfSpace,), on_surface, "by its ends or corners"),
    ShapePair((Point, Sphere), (HalfSpace, Sphere, *HULLS), on_surface, "by its centre"),
    ShapePair(CORNERED, (HeightMap,), corners_on_map, "by its corners", exact=False),
)
