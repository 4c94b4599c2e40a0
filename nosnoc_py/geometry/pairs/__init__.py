"""The pairs of shapes whose touches are known, one file each, or for each family that one formula serves."""

from __future__ import annotations

from nosnoc_py.geometry.balls import probes_of
from nosnoc_py.geometry.pairs import balls, ellipsoids, hills, polyhedra, rims, rods
from nosnoc_py.geometry.placed import Placed
from nosnoc_py.geometry.shapes import HalfSpace, HeightMap
from nosnoc_py.geometry.surfaces import surface_of
from nosnoc_py.geometry.touch import ShapePair, Touch

PAIRS: tuple[ShapePair, ...] = (
    *balls.PAIRS,
    *ellipsoids.PAIRS,
    *hills.PAIRS,
    *polyhedra.PAIRS,
    *rims.PAIRS,
    *rods.PAIRS,
)


def touches_of(a: Placed, b: Placed) -> list[Touch] | None:
    """Return the touches of two shapes in either order; None for a pair that is not known."""
    for one, other in ((a, b), (b, a)):
        for pair in PAIRS:
            if type(one.shape) in pair.first and type(other.shape) in pair.second:
                return pair.touches(one, other)
    for one, other in ((a, b), (b, a)):
        if surface_of(other.shape) is not None and _touches_by_balls(one, other):
            return balls.on_surface(one, other)
    return None


def _touches_by_balls(one: Placed, other: Placed) -> bool:
    """Return True if the distance of the nearest ball is that of the two shapes: for shapes of one's own."""
    probes = probes_of(one.shape, one.size)
    if isinstance(other.shape, HalfSpace):
        return bool(probes)
    # The distance to hills is exact where it is zero only: a ball would touch at the distance of its radius.
    if isinstance(other.shape, HeightMap):
        return bool(probes) and not any(probe.radius for probe in probes)
    return len(probes) == 1
