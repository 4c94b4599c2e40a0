"""Cylinders and discs: their rims on half-spaces and height maps.

The lowest point of a rim with centre c, radius r and axis a over a plane with normal n is c - r d / |d|, where d = n -
a (a'n) is the normal in the plane of the rim. It has a gap n'c - r |d| with the gradient of the material point there,
so that a wheel rolls exactly. Where the rim lies flat, d = 0: the point is anywhere, and one point carries no torque.
There fixed points of the rim carry the load. Both are true points of the rim, and neither disturbs the other:

- fixed points are lifted with the tilt, in second order where the rim lies flat; a rim that rolls stands on its lowest
  point alone;
- the lowest point is lifted by a step that no motion resolves (`touch.ASIDE`) while the rim lies flat; beyond a tilt
  of a third of a degree its gap is exact.

On a height map the lowest point of a rim is where its height over the map is least along the rim. Newton's method for
its angle starts at the lowest point over the tangent plane below the centre; it has converged to rounding where the map
is less curved than the rim.

A load between the polygon of the fixed points and the rim tilts the body by that step, until the lowest point, which is
where it tilts to, carries it: the body topples where the load leaves the circle, not the polygon.
"""

from __future__ import annotations

import casadi as ca

from nosnoc_py.geometry.placed import Placed
from nosnoc_py.geometry.shapes import Cylinder, HalfSpace, HeightMap, ThinDisc
from nosnoc_py.geometry.surfaces import surface_of
from nosnoc_py.geometry.touch import ASIDE, ShapePair, Touch, lift

# Sine of the tilt over which the lift of fixed points passes from second order to first, far above `ASIDE`; and that
# lift, relative to the height of the rim's centre.
TILT, SHARE = 1e-3, 0.5
# Newton steps for the lowest point over hills: each doubles the digits.
STEPS = 6


def on_rims(one: Placed, ground: Placed) -> list[Touch]:
    """Return the touches of all rims: the lowest points first, then the fixed ones."""
    r, surface = one.shape.radius, surface_of(ground.shape)
    assert surface is not None
    lowest, fixed = [], []
    for z in one.shape.rims:
        tilt = _tilt(one, ground, one.in_world([0.0, 0.0, z]))
        square = ca.sumsqr(tilt)
        # The root is rounded where the lowest point is lifted ten times as far: derivatives are numbers everywhere.
        sine = ca.sqrt(square + (ASIDE / 10) ** 2)
        toward = -tilt / sine
        if isinstance(ground.shape, HeightMap):
            toward = _lowest_direction(one, ground, z, toward)
        place = one.in_world(ca.vertcat(r * toward, z))
        distance, normal = surface(ground.of_world(place))
        lifted = r * ASIDE * lift(square)
        lowest.append(Touch(distance + lifted, ground.rotation @ normal, place, one, ground))
        raised = SHARE * r * square / (ca.sqrt(square + TILT**2) + TILT)
        for corner in one.shape.vertices[one.shape.vertices[:, 2] == z]:
            point = one.in_world(corner)
            distance, normal = surface(ground.of_world(point))
            fixed.append(Touch(distance + raised, ground.rotation @ normal, point, one, ground))
    return [*lowest, *fixed]


def _tilt(one: Placed, ground: Placed, point: ca.SX) -> ca.SX:
    """Return the components across the axis of the ground's normal below a point."""
    surface = surface_of(ground.shape)
    assert surface is not None
    return (one.rotation.T @ ground.rotation @ surface(ground.of_world(point))[1])[:2]


def _lowest_direction(one: Placed, ground: Placed, z: float, start: ca.SX) -> ca.SX:
    """Return the unit direction (2,) in the plane of a rim in which its height over the map is least."""
    place, turn = ground.of_world(one.position), ground.rotation.T @ one.rotation
    centre, sides = ca.SX.sym("centre", 3), ca.SX.sym("sides", 3, 2)
    angle, toward = ca.SX.sym("angle"), ca.SX.sym("toward", 2)
    ahead = ca.vertcat(-toward[1], toward[0])
    point = centre + one.shape.radius * sides @ (ca.cos(angle) * toward + ca.sin(angle) * ahead)
    over = point[2] - ca.SX(ground.shape.height(point[0], point[1]))
    slope = ca.gradient(over, angle)
    bend = ca.gradient(slope, angle)
    # Downhill also where the height bends down, next to a highest point; a rim that lies flat has no bend.
    change = -slope / ca.sqrt(bend**2 + (ASIDE * one.shape.radius) ** 2)
    step = ca.substitute(change, angle, 0)
    after = ca.cos(step) * toward + ca.sin(step) * ahead
    newton = ca.Function("newton", [toward, centre, sides], [after])
    for _ in range(STEPS):
        start = newton(start, place + z * turn[:, 2], turn[:, :2])
    return start


HOW = "at the lowest point of each rim, flat by points on it"
PAIRS = (
    ShapePair((Cylinder, ThinDisc), (HalfSpace,), on_rims, HOW),
    ShapePair((Cylinder, ThinDisc), (HeightMap,), on_rims, HOW, exact=False),
)
