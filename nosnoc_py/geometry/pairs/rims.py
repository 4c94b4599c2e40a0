"""Cylinders and discs: their rims on a half-space.

The lowest point of a rim with centre c, radius r and axis a over a plane with normal n is c - r d / |d|, where d = n -
a (a'n) is the normal in the plane of the rim. It has a gap n'c - r |d| with the gradient of the material point there,
so that a wheel rolls exactly. Where the rim lies flat, d = 0: the point is anywhere, and one point carries no torque.
There fixed points of the rim carry the load. Both are true points of the rim, and neither disturbs the other:

- fixed points are lifted with the tilt, in second order where the rim lies flat; a rim that rolls stands on its lowest
  point alone;
- the lowest point is lifted by a step that no motion resolves (`touch.ASIDE`) while the rim lies flat; beyond a tilt
  of a third of a degree its gap is exact.

A load between the polygon of the fixed points and the rim tilts the body by that step, until the lowest point, which is
where it tilts to, carries it: the body topples where the load leaves the circle, not the polygon.
"""

from __future__ import annotations

import casadi as ca

from nosnoc_py.geometry.placed import Placed
from nosnoc_py.geometry.shapes import Cylinder, HalfSpace, ThinDisc
from nosnoc_py.geometry.touch import ASIDE, ShapePair, Touch, height, lift

# Sine of the tilt over which the lift of fixed points passes from second order to first, far above `ASIDE`; and that
# lift, relative to the height of the rim's centre.
TILT, SHARE = 1e-3, 0.5


def on_rims(one: Placed, ground: Placed) -> list[Touch]:
    """Return the touches of all rims: the lowest points first, then the fixed ones."""
    r = one.shape.radius
    out = ground.rotation @ ca.DM(ground.shape.normal)
    tilt = (one.rotation.T @ out)[:2]
    square = ca.sumsqr(tilt)
    # The root is rounded where the lowest point is lifted ten times as far: derivatives are numbers everywhere.
    sine = ca.sqrt(square + (ASIDE / 10) ** 2)
    result = []
    for z in one.shape.rims:
        gap = height(ground, one.in_world([0.0, 0.0, z])) - r * sine + r * ASIDE * lift(square)
        result.append(Touch(gap, out, one.in_world(ca.vertcat(-r * tilt / sine, z)), one, ground))
    raised = SHARE * r * square / (ca.sqrt(square + TILT**2) + TILT)
    for place in one.shape.vertices:
        point = one.in_world(place)
        result.append(Touch(height(ground, point) + raised, out, point, one, ground))
    return result


PAIRS = (
    ShapePair((Cylinder, ThinDisc), (HalfSpace,), on_rims, "at the lowest point of each rim, flat by points on it"),
)
