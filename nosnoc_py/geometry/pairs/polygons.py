"""Two convex polygons in the plane, which always touch at a corner of one of them."""

from __future__ import annotations

from nosnoc_py.geometry.pairs.balls import on_surface
from nosnoc_py.geometry.placed import Placed
from nosnoc_py.geometry.shapes import ConvexPolygon
from nosnoc_py.geometry.touch import ShapePair, Touch


def corners_of_both(one: Placed, other: Placed) -> list[Touch]:
    """Return the touches of the corners of each on the other."""
    return [*on_surface(one, other), *on_surface(other, one)]


PAIRS = (ShapePair((ConvexPolygon,), (ConvexPolygon,), corners_of_both, "by the corners of each"),)
