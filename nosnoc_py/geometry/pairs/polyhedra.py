"""Boxes and convex polyhedra on each other, and polygons: by the corners of each, and where edges cross.

The face of one body along whose normal both bodies are furthest apart is the one that corners of the other one touch,
by their heights over it. Two edges a and b have the gap n'(p_a - p_b) along n = a x b / |a x b|, out of the second
body: where it is zero and the nearest points of both lines lie on the edges, these are a common point. It is no gap
where it is less than the separation of the bodies along another axis: there the edges are on the far sides.

Gaps are exact where they are zero. Beyond the range of a face or an edge a gap is reflected at a positive level. Where
corner, edge or face of one body meet an edge of the other one, rounding must not decide:

- where an edge lies flat on a face and leads over its border, ranges overlap by a step that no motion resolves: its
  corner carries until two steps beyond the border, it crosses the border from one step within its end on. What slides
  over a border passes from corners to crossings.
- A corner of a tilted body carries until the border, and its edges cross that until one step beyond their ends. What
  falls off a border passes from one crossing to the next, and does not strike with the corner between them.
- A reflected gap has the opposite normal: a contact that leaves its range would have to pull, and opens for that.
- Edges that are parallel, up to a third of a degree, do not cross: corners carry.

Parallel edges that have no face in common share a contact, for only one of them is outermost in a direction: twelve
edges of a box are six families, 6 x 6 crossings.

References
----------
Gottschalk, Lin and Manocha, OBBTree, SIGGRAPH (1996): separations along normals of faces and products of edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from typing import NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.geometry.features import SAME_PLANE, features_of
from nosnoc_py.geometry.pairs.rods import Segment, segments_of
from nosnoc_py.geometry.placed import Placed
from nosnoc_py.geometry.shapes import ConvexPolygon
from nosnoc_py.geometry.surfaces import surface_of
from nosnoc_py.geometry.touch import ASIDE, ENDED, ShapePair, Touch
from nosnoc_py.systems.shapes import Box, ConvexPolyhedron

# Step at the ends of ranges, and the level at which gaps are reflected beyond, relative to the smaller body: more than
# a body moves in a step in time, for which a gap that only comes nearer to its range must not seem to close.
STEP, LEVEL = ASIDE / 10, 0.1
# Heights and separations that differ by less, relative to the size, are equal: far above rounding, far below a step.
# Of two that are, rounding must not choose: aligned bodies have many.
SAME = STEP / 100
# An edge lies flat on a face up to this sine of their angle: over two steps it rises by less than what touches. It
# leads over a border of the face from that sine of the angle between edge and border on.
FLAT, ACROSS = 1e-4, 0.1
# Part of the size by which touching edges may be less apart than the bodies are: what steps in time leave. Edges on the
# far sides are less apart by the thickness of the bodies.
SHALLOW = 1e-3
# Within a step of its ends, a crossing is a touch down to this depth relative to the size, and beyond them down to that
# part of the way beyond: deeper ones are of edges on other sides, whose ends the same corners are.
DEPTH, OVER = 5e-12, 1e-2
# Largest number of pairs of edges that are written out.
MOST_PAIRS = 1000


class Polytope(NamedTuple):
    """A polyhedron or polygon in the world.

    Corners (3 or 2, n), faces normals'x = offsets in its frame, directions of edges with the corners at which they end,
    families of edges that may cross, size.
    """

    placed: Placed
    corners: ca.SX
    middle: ca.SX
    normals: ca.DM
    offsets: ca.DM
    edges: list[tuple[np.ndarray, set[int]]]
    families: list[list[Segment]]
    size: float


class Axis(NamedTuple):
    """Directions of two edges, their unit normal out of the second body, the sine squared, and if it is too small."""

    first: ca.SX
    second: ca.SX
    normal: ca.SX
    sine_squared: ca.SX
    parallel: ca.SX


def corners_and_crossings(one: Placed, other: Placed) -> list[Touch]:
    """Return the touches of the corners of each on the other, and of all edges that may cross."""
    a, b = polytope_of(one), polytope_of(other)
    families = list(product(a.families, b.families))
    size = min(a.size, b.size)
    if len(families) > MOST_PAIRS:
        raise ModelError(
            f"contacts: {len(families)} pairs of edges may cross, and at most {MOST_PAIRS} are written out; give "
            "shapes with fewer corners, or put spheres on one of them."
        )
    ways = [tuple(tuple(family[0].direction) for family in pair) for pair in families]
    axes = {way: _axis(a, way[0], b, way[1], size) for way in ways}
    heights = _heights(a, b), _heights(b, a)
    along = [_apart(part) for part in heights]
    for axis in axes.values():
        apart = ca.mmin(axis.normal.T @ a.corners) - ca.mmax(axis.normal.T @ b.corners)
        along.append(ca.if_else(axis.parallel, -size, apart))
    # The largest separation, positive for bodies that are apart; gaps of the touch are not much less.
    least = ca.mmax(ca.vertcat(*along)) - SHALLOW * size
    crossings = [
        _crossing(a, first, b, second, axes[way], least, size)
        for (first, second), way in zip(families, ways, strict=True)
    ]
    return [*_corners_on(a, b, heights[0], size, least), *_corners_on(b, a, heights[1], size, least), *crossings]


def corners_of_both(one: Placed, other: Placed) -> list[Touch]:
    """Return the touches of the corners of each on the other: all there are in the plane."""
    a, b = polytope_of(one), polytope_of(other)
    size = min(a.size, b.size)
    return [*_corners_on(a, b, _heights(a, b), size), *_corners_on(b, a, _heights(b, a), size)]


def _reflected(gap: ca.SX, level: ca.SX) -> ca.SX:
    """Return a gap that is not less than a level: what is below it is reflected."""
    return level + ca.fabs(gap - level)


def polytope_of(placed: Placed) -> Polytope:
    """Return a polyhedron in the world, or a polygon, whose edges are faces."""
    shape = placed.shape
    if getattr(shape, "skin", 0.0):
        raise ModelError(
            f"contacts: {type(shape).__name__} with a skin on a polyhedron: give it without, and spheres of its radius."
        )
    middle = shape.vertices.mean(axis=0)
    size = float(np.linalg.norm(shape.vertices - middle, axis=1).max())
    if isinstance(shape, ConvexPolygon):
        normals, offsets, families = shape.normals, shape.offsets, list[list[Segment]]()
        ways = np.column_stack([-normals[:, 1], normals[:, 0]])
        ends = [{k, (k + 1) % len(ways)} for k in range(len(ways))]
    else:
        planes = features_of(shape)[0]
        normals, offsets = np.array([plane.normal for plane in planes]), np.array([plane.offset for plane in planes])
        edges = segments_of(shape)
        families, ways = _families(edges, normals, offsets, size), np.array([edge.direction for edge in edges])
        ends = [{_nearest(shape.vertices, e.middle + sign * e.half * e.direction) for sign in (-1, 1)} for e in edges]
    return Polytope(
        placed,
        ca.horzcat(*[placed.in_world(corner) for corner in shape.vertices]),
        placed.in_world(middle),
        ca.DM(normals),
        ca.DM(offsets),
        _by_direction(ways, ends),
        families,
        size,
    )


def _nearest(points: np.ndarray, place: np.ndarray) -> int:
    return int(np.argmin(np.linalg.norm(points - place, axis=1)))


def _by_direction(ways: np.ndarray, ends: list[set[int]]) -> list[tuple[np.ndarray, set[int]]]:
    """Return the directions of edges, each once, with the corners at which they end."""
    result: list[tuple[np.ndarray, set[int]]] = []
    for way, corners in zip(ways, ends, strict=True):
        for known, own in result:
            if abs(way @ known) > 1 - SAME_PLANE:
                own |= corners
                break
        else:
            result.append((way, set(corners)))
    return result


def _families(edges: list[Segment], normals: np.ndarray, offsets: np.ndarray, size: float) -> list[list[Segment]]:
    """Return parallel edges that have no face in common: of those at most one is the outermost in any direction."""
    families: list[list[tuple[Segment, np.ndarray]]] = []
    for edge in edges:
        faces = np.abs(normals @ edge.middle - offsets) < SAME_PLANE**0.5 * size
        for family in families:
            turned = abs(family[0][0].direction @ edge.direction) < 1 - SAME_PLANE
            if not turned and not any((faces & others).any() for _, others in family):
                family.append((edge, faces))
                break
        else:
            families.append([(edge, faces)])
    return [[edge for edge, _ in family] for family in families]


def _heights(one: Polytope, other: Polytope) -> ca.SX:
    """Return the heights (n_f, n) of the corners of one over the faces of the other."""
    places = other.placed.rotation.T @ (one.corners - ca.repmat(other.placed.position, 1, one.corners.shape[1]))
    return other.normals @ places - ca.repmat(other.offsets, 1, one.corners.shape[1])


def _apart(heights: ca.SX) -> ca.SX:
    """Return by how much every face (n_f,) separates the corners over it from its body."""
    return ca.vertcat(*[ca.mmin(row) for row in ca.vertsplit(heights)])


def _corners_on(one: Polytope, other: Polytope, heights: ca.SX, size: float, least: ca.SX | None = None) -> list[Touch]:
    """Return the touches of the corners of one on the other: over the face that separates both bodies most.

    Outside of the range of this face the distance counts, of polyhedra the largest height, where it is above the level
    of reflection. A face that separates the bodies by less than the `least` of all axes is beside the touch.
    """
    apart = _apart(heights)
    face, touches, is_beside = _largest(apart, size), [], False if least is None else ca.mmax(apart) < least
    normal, over = face(other.normals), face(heights)
    leads = _leads_over(one, other, face)
    for k, corner in enumerate(ca.horzsplit(one.corners)):
        carries = reduce(ca.logic_or, [over_borders for over_borders, ends in leads if k in ends])
        beside = ca.fmax(heights[:, k] - ca.if_else(carries, 2 * STEP * size, 0), 0)
        is_past = ca.logic_or(ca.sum1(beside) - face(beside) > 0, is_beside)
        reflected, (away, outward) = _reflected(over[k], LEVEL * size), _away(other, corner, heights[:, k], size)
        # Over a face that ends at a sharp angle the distance may be that of its end.
        is_far = over[k] > LEVEL * size if not other.families else False
        is_away = ca.logic_or(ca.logic_and(is_past, away > reflected), is_far)
        gap = ca.if_else(is_away, away, ca.if_else(is_past, reflected, over[k]))
        out = other.placed.rotation @ ca.if_else(is_away, outward, normal.T)
        touches.append(Touch(gap, out, corner, one.placed, other.placed))
    return touches


def _leads_over(one: Polytope, other: Polytope, face: Callable[[ca.SX], ca.SX]) -> list[tuple[ca.SX, set[int]]]:
    """Return for directions of edges over which borders (n_f,) of a face they lead, flat, and where such edges end."""
    turned, result = (other.normals @ other.placed.rotation.T) @ one.placed.rotation, []
    for way, ends in one.edges:
        along = ca.fabs(turned @ ca.DM(way))
        result.append((ca.logic_and(along > ACROSS, face(along) < FLAT), ends))
    return result


def _away(other: Polytope, corner: ca.SX, heights: ca.SX, size: float) -> tuple[ca.SX, ca.SX]:
    """Return the distance from a polygon, or the largest height over the faces of a polyhedron, with the normal."""
    if other.families:
        nearest = _largest(heights, size)
        return nearest(heights), nearest(other.normals).T
    surface = surface_of(other.placed.shape)
    assert surface is not None
    return surface(other.placed.of_world(corner))


def _largest(values: ca.SX, size: float) -> Callable[[ca.SX], ca.SX]:
    """Return the function that takes the row of the largest value from a matrix; of equal ones it is the first."""
    most, later = values[0], []
    for value in ca.vertsplit(values)[1:]:
        later.append(value > most + SAME * size)
        most = ca.if_else(later[-1], value, most)

    def row_of(matrix: ca.SX) -> ca.SX:
        row, *rows = ca.vertsplit(ca.SX(matrix))
        for is_larger, other in zip(later, rows, strict=True):
            row = ca.if_else(is_larger, other, row)
        return row

    return row_of


def _axis(one: Polytope, first: Sequence[float], other: Polytope, second: Sequence[float], size: float) -> Axis:
    """Return the axis of two edges."""
    a, b = one.placed.rotation @ ca.DM(first), other.placed.rotation @ ca.DM(second)
    across, way = ca.cross(a, b), one.middle - other.middle
    sine_squared = ca.sumsqr(across)
    out = across / ca.sqrt(ca.fmax(sine_squared, ASIDE**2))
    normal = ca.if_else(ca.dot(out, way) < -SAME * size, -out, out)
    parallel = sine_squared < ASIDE**2
    # A gap needs a gradient everywhere: that of the distance of the middles, where it has no meaning.
    return Axis(a, b, ca.if_else(parallel, way / ca.norm_2(way), normal), sine_squared, parallel)


def _crossing(
    one: Polytope, first: list[Segment], other: Polytope, second: list[Segment], axis: Axis, least: ca.SX, size: float
) -> Touch:
    """Return the touch where the lowest edge of one family crosses the highest one of another."""
    a, b, normal = axis.first, axis.second, axis.normal
    (middle_a, half_a), (middle_b, half_b) = _outermost(one, first, -normal), _outermost(other, second, normal)
    apart, cosine = middle_a - middle_b, ca.dot(a, b)
    along_a, along_b, scale = ca.dot(a, apart), ca.dot(b, apart), ca.fmax(axis.sine_squared, ASIDE**2)
    s, t = (cosine * along_b - along_a) / scale, (along_b - cosine * along_a) / scale
    ways = [ca.fabs(place) - half for place, half in ((s, half_a), (t, half_b))]
    inside = [
        way <= ca.if_else(_is_face(face_of, normal), -STEP, STEP) * size
        for way, face_of in zip(ways, (other, one), strict=True)
    ]
    gap, beyond = ca.dot(normal, ca.if_else(axis.parallel, one.middle - other.middle, apart)), ca.fmax(*ways)
    deepest = ca.if_else(beyond > -STEP * size, -DEPTH * size - OVER * ca.fmax(beyond, 0), least)
    touches = reduce(ca.logic_and, inside, ca.logic_and(axis.sine_squared > ENDED**2, gap > ca.fmax(least, deepest)))
    point = middle_b + ca.fmin(ca.fmax(t, -half_b), half_b) * b
    return Touch(ca.if_else(touches, gap, _reflected(gap, LEVEL * size)), normal, point, one.placed, other.placed)


def _is_face(solid: Polytope, normal: ca.SX) -> ca.SX:
    """Return whether a direction is normal to a face."""
    cosines = ca.fabs(solid.normals @ (solid.placed.rotation.T @ normal))
    return ca.mmax(cosines) > 1 - FLAT**2 / 2


def _outermost(solid: Polytope, family: list[Segment], way: ca.SX) -> tuple[ca.SX, ca.SX]:
    """Return the middle in the world and half of the length of the edge of a family that is furthest along a way."""
    middle, half = solid.placed.in_world(family[0].middle), ca.SX(family[0].half)
    for edge in family[1:]:
        place = solid.placed.in_world(edge.middle)
        further = ca.dot(way, place) > ca.dot(way, middle) + SAME * solid.size
        middle, half = ca.if_else(further, place, middle), ca.if_else(further, edge.half, half)
    return middle, half


SOLIDS = (Box, ConvexPolyhedron)
PAIRS = (
    ShapePair(SOLIDS, SOLIDS, corners_and_crossings, "by corners, and where edges cross", exact=False),
    ShapePair((ConvexPolygon,), (ConvexPolygon,), corners_of_both, "by the corners of each", exact=False),
)
