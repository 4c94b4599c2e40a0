"""An ellipsoid on a half-space, at its lowest point."""

from __future__ import annotations

import casadi as ca
import numpy as np

from nosnoc_py.geometry.placed import Placed
from nosnoc_py.geometry.shapes import HalfSpace
from nosnoc_py.geometry.touch import ShapePair, Touch
from nosnoc_py.systems.shapes import Ellipsoid


def lowest_point(one: Placed, ground: Placed) -> list[Touch]:
    """Return the touch at the lowest point c - E n / |A'n| of an ellipsoid with the matrix E = A A'."""
    out = ground.rotation @ ca.DM(ground.shape.normal)
    own = one.rotation.T @ out
    turn, axes = ca.DM(np.asarray(one.shape.rotation)), ca.DM(np.asarray(one.shape.semi_axes))
    scaled = axes * (turn.T @ own)
    # Never zero, since `out` has length one and all axes are positive.
    reach = ca.norm_2(scaled)
    lowest = one.in_world(ca.SX(ca.DM(np.asarray(one.shape.center))) - turn @ (axes * scaled) / reach)
    gap = ca.dot(ca.DM(ground.shape.normal), ground.of_world(lowest)) - ground.shape.offset
    return [Touch(gap, out, lowest, one, ground)]


PAIRS = (ShapePair((Ellipsoid,), (HalfSpace,), lowest_point, "at its lowest point"),)
