"""Capsules on capsules and on polyhedra: by the ends and corners of each on the other, and where edges cross.

The edge of a capsule is its axis. Two segments are nearest at an end of one, which is the touch of a ball or a corner
on the surface of the other, or inside of both, where they cross. The touch of a crossing is lifted by as much as its
points lie beyond the segments, so that it never is a second contact at an end; and, by a step that no motion resolves,
for parallel segments, which have no crossing and touch by their ends.

References
----------
Ericson, Real-Time Collision Detection (2005), Section 5.1.9: nearest points of two segments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.geometry.features import features_of
from nosnoc_py.geometry.pairs.balls import on_surface
from nosnoc_py.geometry.placed import Placed
from nosnoc_py.geometry.shapes import Capsule
from nosnoc_py.geometry.touch import ASIDE, ShapePair, Touch, lift
from nosnoc_py.systems.shapes import Box, ConvexPolyhedron


class Segment(NamedTuple):
    """Middle, unit direction and half of the length of an edge in the frame of its shape, with a radius [m]."""

    middle: np.ndarray
    direction: np.ndarray
    half: float
    radius: float


def segments_of(shape: Any) -> list[Segment]:
    """Return the axis of a capsule, or the edges of a polyhedron."""
    if isinstance(shape, Capsule):
        return [Segment(np.zeros(3), np.array([0.0, 0.0, 1.0]), shape.length / 2, shape.radius)]
    edges = features_of(shape)[1]
    return [Segment(e.start + e.length / 2 * e.direction, e.direction, e.length / 2, shape.skin) for e in edges]


def ends_and_crossings(one: Placed, other: Placed) -> list[Touch]:
    """Return the touches of ends and corners of each on the other, and of all edges that may cross."""
    crossings = [
        _crossing(one, first, other, second) for first in segments_of(one.shape) for second in segments_of(other.shape)
    ]
    return [*on_surface(one, other), *on_surface(other, one), *crossings]


def _crossing(one: Placed, first: Segment, other: Placed, second: Segment) -> Touch:
    """Return the touch where two segments cross."""
    a, b = (placed.rotation @ ca.DM(part.direction) for placed, part in ((one, first), (other, second)))
    apart = one.in_world(first.middle) - other.in_world(second.middle)
    cosine, sine_squared = ca.dot(a, b), ca.sumsqr(ca.cross(a, b))
    along_a, along_b = ca.dot(a, apart), ca.dot(b, apart)
    scale = sine_squared + ASIDE**2
    s, t = (cosine * along_b - along_a) / scale, (along_b - cosine * along_a) / scale
    inside_s, inside_t = (ca.fmin(ca.fmax(x, -part.half), part.half) for x, part in ((s, first), (t, second)))
    way = apart + inside_s * a - inside_t * b
    distance = ca.norm_2(way)
    normal, radius = way / distance, first.radius + second.radius
    # Times the scale, as positions along parallel segments have no limit. Squared, as the rate of a gap that is about
    # to begin must not look like an approach: steps in time would stop it.
    beyond = (scale * (ca.fabs(s - inside_s) + ca.fabs(t - inside_t))) ** 2 / radius
    gap = distance - radius + beyond + radius * ASIDE * lift(sine_squared)
    point = other.in_world(second.middle) + inside_t * b + second.radius * normal
    return Touch(gap, normal, point, one, other)


PAIRS = (
    ShapePair(
        (Capsule,), (Capsule, Box, ConvexPolyhedron), ends_and_crossings, "by ends and corners, and where edges cross"
    ),
)
