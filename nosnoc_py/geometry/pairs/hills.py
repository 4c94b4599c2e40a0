"""A ball on a height map, at the point of the map that is nearest to its centre.

The foot y of the centre c is the root of y - c + (h(y) - c_z) grad h(y) = 0. Newton's method starts below the centre;
it has converged to rounding where the radius is less than that of the curvature of a valley, where a ball touches once.
"""

from __future__ import annotations

import casadi as ca

from nosnoc_py.geometry.balls import probes_of
from nosnoc_py.geometry.placed import Placed
from nosnoc_py.geometry.shapes import HeightMap
from nosnoc_py.geometry.touch import ShapePair, Touch
from nosnoc_py.systems.shapes import Sphere

# Newton steps: each doubles the digits, and the first ones leave a slope of one.
STEPS = 8


def nearest_point(one: Placed, ground: Placed) -> list[Touch]:
    """Return the touch along the normal at the foot of the centre."""
    ((place, radius),) = probes_of(one.shape, one.size)
    centre = one.in_world(place)
    own = ground.of_world(centre)
    y, c = ca.SX.sym("y", one.size - 1), ca.SX.sym("c", one.size)
    height = ca.SX(ground.shape.height(*ca.vertsplit(y)))
    curvature, slopes = ca.hessian(height, y)
    slopes, above = ca.densify(slopes), height - c[-1]
    residual = y - c[:-1] + above * slopes
    step = ca.solve(ca.SX.eye(one.size - 1) + slopes @ slopes.T + above * ca.densify(curvature), residual)
    newton = ca.Function("newton", [y, c], [y - step])
    normal_at = ca.vertcat(-slopes, 1) / ca.sqrt(1 + ca.sumsqr(slopes))
    surface = ca.Function("surface", [y], [ca.vertcat(y, height), normal_at])
    foot = own[:-1]
    for _ in range(STEPS):
        foot = newton(foot, own)
    at, normal = surface(foot)
    out = ground.rotation @ normal
    return [Touch(ca.dot(normal, own - at) - radius, out, centre - radius * out, one, ground)]


PAIRS = (ShapePair((Sphere,), (HeightMap,), nearest_point, "at the point nearest to its centre", exact=False),)
