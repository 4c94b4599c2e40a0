"""Contacts between two shapes, from probes (points with a radius) of one and the signed distance of the other.

Probes are the origin of a sphere, the ends of a capsule, the corners of a box: balls whose convex hull is the shape.
The other shape is a surface with a signed distance of points in its frame. The gap of a contact is the distance of a
probe minus its radius. Pairs for which these are not all possible contacts (edges against edges in space) are refused.
Nothing is smoothed. The shapes of the library have their probes and surfaces in the tables here; a shape of one's own
has them as methods (`ShapeWithProbes`, `ShapeWithSurface`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import casadi as ca
import numpy as np

from nosnoc_py.annotations import Expression
from nosnoc_py.errors import ModelError
from nosnoc_py.geometry.placed import ContactShape, Placed
from nosnoc_py.geometry.shapes import Capsule, ConvexPolygon, Cylinder, HalfSpace, HeightMap, Point
from nosnoc_py.systems.cls import Contact
from nosnoc_py.systems.shapes import Box, ConvexPolyhedron, Ellipsoid, Sphere

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


@runtime_checkable
class ShapeWithSurface(Protocol):
    """A shape that is touched by others."""

    def surface(self, x: ca.SX) -> tuple[ca.SX, ca.SX]:
        """Return the signed distance of a point (size,) in the frame of the shape, and the unit normal there."""


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
    Cylinder: _corners,
    ConvexPolygon: _corners,
}

# --- signed distances of a point x in the frame of a shape, with the unit normal there ---


def _half_space(shape: HalfSpace, x: ca.SX) -> tuple[ca.SX, ca.SX]:
    normal = ca.SX(ca.DM(shape.normal))
    return ca.dot(normal, x) - shape.offset, ca.SX(normal)


def _height_map(shape: HeightMap, x: ca.SX) -> tuple[ca.SX, ca.SX]:
    """Return the height above the map divided by the norm of its gradient: the distance to first order."""
    *flat, z = ca.vertsplit(x)
    height = ca.SX(shape.height(*flat))
    slopes = ca.gradient(height, ca.vertcat(*flat)) if not height.is_constant() else ca.SX(len(flat), 1)
    normal = ca.vertcat(-slopes, 1) / ca.sqrt(1 + ca.sumsqr(slopes))
    # The last component of the normal is 1 over the norm of the gradient of z - height. Zero and normal are exact at
    # contact.
    return (z - height) * normal[-1], normal


def _sphere(shape: Sphere, x: ca.SX) -> tuple[ca.SX, ca.SX]:
    away = x - ca.DM(np.asarray(shape.center)[: x.numel()])
    distance = ca.norm_2(away)
    return distance - float(shape.semi_axes[0]), away / distance


def _capsule(shape: Capsule, x: ca.SX) -> tuple[ca.SX, ca.SX]:
    # Nearest point on the axis; beyond its ends the distance is that of a sphere.
    along = ca.fmin(ca.fmax(x[2], -shape.length / 2), shape.length / 2)
    away = ca.vertcat(x[0], x[1], x[2] - along)
    distance = ca.norm_2(away)
    return distance - shape.radius, away / distance


def _length(parts: ca.SX) -> ca.SX:
    """Return the norm, with derivatives that are numbers where it is zero."""
    square = ca.sumsqr(parts)
    return ca.if_else(square > 0, ca.sqrt(ca.if_else(square > 0, square, 1)), 0)


def _box(shape: Box, x: ca.SX) -> ca.SX:
    """Return the distance: outside to the nearest point of the box, inside to the nearest face (negative)."""
    if shape.skin:
        raise ModelError(
            "contacts: a Box with a skin cannot be touched; give a Box without, and a Sphere of its radius."
        )
    turn = ca.DM(shape.rotation)
    own = turn.T @ (x - ca.DM(shape.center))
    # Distance beyond the faces in each direction, in the frame of the box; symmetric, hence the absolute value.
    beyond = ca.fabs(own) - ca.DM(shape.half)
    deepest = ca.mmax(beyond)
    # Not fmin(deepest, 0): on a face that has half of the derivative.
    return _length(ca.fmax(beyond, 0)) + ca.if_else(deepest <= 0, deepest, 0)


def _polygon(shape: ConvexPolygon, x: ca.SX) -> ca.SX:
    """Return the distance: outside to the nearest edge, inside to the nearest line of an edge (negative)."""
    # The largest signed distance to a line of an edge is negative exactly inside.
    from_lines = ca.DM(shape.normals) @ x - ca.DM(shape.offsets)
    inside = ca.mmax(from_lines)
    # Beside an edge its line is nearest, elsewhere a corner. Not the least distance to all edges: near the end of an
    # edge, that to the corner of the next one is equal up to rounding, which would then choose between two curvatures.
    outside = ca.mmin(ca.vertcat(*[_length(x - ca.DM(corner)) for corner in shape.vertices]))
    ends = np.roll(shape.vertices, -1, 0)
    for start, end, above in zip(shape.vertices, ends, ca.vertsplit(from_lines), strict=True):
        edge = ca.DM(end - start)
        share = ca.dot(edge, x - ca.DM(start)) / float(ca.sumsqr(edge))
        beside = ca.logic_and(ca.logic_and(share >= 0, share <= 1), above > 0)
        outside = ca.if_else(beside, above, outside)
    return ca.if_else(inside > 0, outside, inside)


def _with_gradient(distance: Callable[[Any, ca.SX], ca.SX]) -> Callable[[Any, ca.SX], tuple[ca.SX, ca.SX]]:
    """Return a signed distance with its gradient, which has length one."""

    def surface(shape: Any, x: ca.SX) -> tuple[ca.SX, ca.SX]:
        # The gradient is taken for a plain symbol and substituted: x is a large expression of the coordinates.
        symbol = ca.SX.sym("x", x.numel())
        value = distance(shape, symbol)
        result = ca.substitute([value, ca.gradient(value, symbol)], [symbol], [x])
        return result[0], result[1]

    return surface


SURFACES: dict[type, Callable[[Any, ca.SX], tuple[ca.SX, ca.SX]]] = {
    HalfSpace: _half_space,
    HeightMap: _height_map,
    Sphere: _sphere,
    Capsule: _capsule,
    Box: _with_gradient(_box),
    ConvexPolygon: _with_gradient(_polygon),
}
INSTEAD = {
    "round on hills": "a HeightMap is touched by points and corners; put ns.Point()s on the body",
    "edges": "edges may cross in space, where no corner touches; give one of them spheres or points at its corners",
    "round": "the distance of these is not exact; give one of them spheres along it",
}


def contacts(
    first: Placed | ContactShape,
    second: Placed | ContactShape,
    *,
    name: str = "contact",
    friction: Expression = 0.0,
    restitution: float | ca.SX = 0.0,
    **more: Any,
) -> list[Contact]:
    """Make the contacts between two shapes.

    Exact distances and their gradients, without smoothing: points, spheres, capsules, boxes, convex polyhedra,
    cylinders (by points on their rims) and ellipsoids on half-spaces; points and corners on height maps; points and
    spheres on spheres, capsules and boxes. In the plane points, discs (spheres) and convex polygons on half-planes,
    discs and polygons; two polygons by the corners of each against the other, so that an edge has its range. A shape of
    one's own has a method `probes`, or `surface`, or both; `nosnoc_py.testing.check_shape` tests it.

    Parameters
    ----------
    first, second : Placed, or a shape that stands still
        In either order.
    name : str
        Of the contact; several are called "<name> 1", "<name> 2" and so on.
    friction, restitution, **more
        As in `ns.Contact`.

    Returns
    -------
    list of Contact
        For a `CLS` in the coordinates of the shapes. Tangents are those of the relative velocity of the material points
        that touch, in directions that are perpendicular to the normal everywhere.

    Raises
    ------
    ModelError
        For two shapes that stand still, shapes of different coordinates, and pairs whose distance is not exact: the
        message names a replacement.

    Examples
    --------
    A box on the ground, by its eight corners:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    >>> moves = ns.Coordinates(q, v, quaternions=[q[3:]])
    >>> box = ns.Placed(ns.Box([0.4, 0.3, 0.2]), q[:3], q[3:], coordinates=moves)
    >>> len(ns.contacts(box, ns.HalfSpace(), name="corner", friction=0.5))
    8
    """
    a, b = _both_placed(first, second)
    values = _touching(a, b)
    # An expression of p counts as friction, as in `Contact`.
    rubs = not (isinstance(friction, float | int) and friction == 0)
    result = []
    for k, (gap, normal, point, on, other) in enumerate(values):
        tangent = _tangents(normal, point, on, other) if rubs else None
        own = name if len(values) == 1 else f"{name} {k + 1}"
        laws = {**more, "tangent": tangent, "friction": friction if tangent is not None else 0.0}
        result.append(Contact(own, gap=gap, restitution=restitution, **laws))
    return result


class _Touch(NamedTuple):
    """Gap, unit normal out of `other` and touching point, in the world; `on` carries the probe, `other` the surface."""

    gap: ca.SX
    normal: ca.SX
    point: ca.SX
    on: Placed
    other: Placed


def _touching(a: Placed, b: Placed) -> list[_Touch]:
    kinds = type(a.shape), type(b.shape)
    for placed in (a, b):
        if not (
            isinstance(placed.shape, Ellipsoid) or probes_of(placed.shape, placed.size) or surface_of(placed.shape)
        ):
            raise ModelError(f"contacts: expected shapes such as ns.Sphere(0.1), given {type(placed.shape).__name__}.")
    if kinds == (ConvexPolygon, ConvexPolygon):
        # Corners of both: in the plane two convex polygons always touch at a corner of one of them.
        return [*_probed(a, b), *_probed(b, a)]
    for one, other in ((a, b), (b, a)):
        # An ellipsoid has no probe: its lowest point depends on the attitude.
        if type(other.shape) is HalfSpace and type(one.shape) is Ellipsoid:
            return [_ellipsoid(one, other)]
    for one, other in ((a, b), (b, a)):
        if surface_of(other.shape) is not None and _is_exact(probes_of(one.shape, one.size), other.shape):
            return _probed(one, other)
    raise ModelError(f"contacts: {kinds[0].__name__} on {kinds[1].__name__}: {_instead(kinds)}.")


def probes_of(shape: Any, size: int) -> list[Probe]:
    """Return the balls of a shape; none if it can only be touched."""
    if type(shape) in PROBES:
        return PROBES[type(shape)](shape, size)
    own = shape.probes(size) if isinstance(shape, ShapeWithProbes) else []
    return [Probe(np.asarray(place, float), float(radius)) for place, radius in own]


def surface_of(shape: Any) -> Callable[[ca.SX], tuple[ca.SX, ca.SX]] | None:
    """Return the function from a point in the frame of a shape to its distance and normal; None if there is none."""
    if type(shape) in SURFACES:
        return partial(SURFACES[type(shape)], shape)
    return shape.surface if isinstance(shape, ShapeWithSurface) else None


def _is_exact(probes: list[Probe], surface: Any) -> bool:
    """Return True if the distance of the nearest probe is that of the two shapes."""
    # The distance of a half-space is linear: its least value on a convex hull is that of a ball.
    if isinstance(surface, HalfSpace):
        return bool(probes)
    # The distance to hills is exact where it is zero only: a ball would touch at the distance of its radius.
    if isinstance(surface, HeightMap):
        return bool(probes) and not any(probe.radius for probe in probes)
    return len(probes) == 1


def _instead(kinds: tuple[type, type]) -> str:
    if HeightMap in kinds:
        return INSTEAD["round on hills"]
    sharp = (Box, ConvexPolyhedron, Cylinder)
    return INSTEAD["edges"] if all(kind in sharp for kind in kinds) else INSTEAD["round"]


def _probed(one: Placed, other: Placed) -> list[_Touch]:
    """Return the touches of all probes of one shape on the surface of the other."""
    surface = surface_of(other.shape)
    assert surface is not None
    result = []
    for place, radius in probes_of(one.shape, one.size):
        centre = one.in_world(place)
        distance, normal = surface(other.of_world(centre))
        out = other.rotation @ normal
        # The probe is a ball: it touches at its centre minus its radius along the normal out of the other shape.
        result.append(_Touch(distance - radius, out, centre - radius * out, one, other))
    return result


def _ellipsoid(one: Placed, ground: Placed) -> _Touch:
    """Return the touch at the lowest point c - E n / |A'n| of an ellipsoid with the matrix E = A A'."""
    out = ground.rotation @ ca.DM(ground.shape.normal)
    own = one.rotation.T @ out
    turn, axes = ca.DM(np.asarray(one.shape.rotation)), ca.DM(np.asarray(one.shape.semi_axes))
    scaled = axes * (turn.T @ own)
    # Never zero, since `out` has length one and all axes are positive.
    reach = ca.norm_2(scaled)
    lowest = one.in_world(ca.SX(ca.DM(np.asarray(one.shape.center))) - turn @ (axes * scaled) / reach)
    gap = ca.dot(ca.DM(ground.shape.normal), ground.of_world(lowest)) - ground.shape.offset
    return _Touch(gap, out, lowest, one, ground)


def _tangents(normal: ca.SX, point: ca.SX, on: Placed, other: Placed) -> ca.SX | None:
    """Return the friction directions (n_v, 1 or 2) of the relative velocity of the two material points.

    Directions in which the bodies cannot move are left out, such as those across the plane of a planar base.
    """
    moves = on.coordinates or other.coordinates
    assert moves is not None
    n_v = int(moves.jacobian(ca.SX(1, 1)).shape[1])
    # Velocities of material points, not of the contact point, which also moves along the surfaces.
    relative = on.velocities_at(point, n_v) - other.velocities_at(point, n_v)
    # A column that is structurally zero would make the tangents dependent, which `CLS` refuses.
    columns = ca.horzsplit(ca.sparsify((_frame(normal).T @ relative).T))
    moving = [column for column in columns if column.nnz()]
    return ca.horzcat(*moving) if moving else None


def _frame(normal: ca.SX) -> ca.SX:
    """Return unit directions (2, 1) or (3, 2) perpendicular to a unit normal, also where that turns.

    In space those of Duff et al. (2017), without a singularity; for a normal along z they are x and y.
    """
    if normal.numel() == 2:
        return ca.vertcat(normal[1], -normal[0])
    x, y, z = ca.vertsplit(normal)
    # The sign of z keeps the denominator sign + z away from zero.
    sign = ca.if_else(z < 0, -1, 1)
    a = -1 / (sign + z)
    b = x * y * a
    first = ca.vertcat(1 + sign * x**2 * a, sign * b, -sign * x)
    return ca.horzcat(first, ca.vertcat(b, sign + y**2 * a, -y))


def _both_placed(first: Any, second: Any) -> tuple[Placed, Placed]:
    sizes = [given.size for given in (first, second) if isinstance(given, Placed)]
    if not sizes or all(given.coordinates is None for given in (first, second) if isinstance(given, Placed)):
        raise ModelError(
            "contacts: both shapes stand still; give at least one as ns.Placed(shape, position, coordinates=...)."
        )
    if len(set(sizes)) > 1:
        raise ModelError(
            "contacts: one shape is in the plane, the other one in space; give positions of the same length."
        )
    a, b = (given if isinstance(given, Placed) else Placed(given, ca.SX(sizes[0], 1)) for given in (first, second))
    moving = [placed.coordinates for placed in (a, b) if placed.coordinates is not None]
    # By identity: equal symbols with other velocities would give other tangents.
    if any(other is not moving[0] for other in moving[1:]):
        raise ModelError(
            "contacts: the shapes have different coordinates; make one ns.Coordinates(q, v) of all bodies of the "
            "system."
        )
    for placed in (a, b):
        size = placed.size
        planar = isinstance(placed.shape, ConvexPolygon)
        spatial = isinstance(placed.shape, Capsule | Cylinder | ConvexPolyhedron)
        half = isinstance(placed.shape, HalfSpace) and len(placed.shape.normal) != size
        if (planar and size == 3) or (spatial and size == 2) or half:
            where = "in space" if size == 3 else "in the plane"
            kind = type(placed.shape).__name__
            raise ModelError(f"contacts: {kind} is not a shape {where} (positions have {size} components).")
    return a, b
