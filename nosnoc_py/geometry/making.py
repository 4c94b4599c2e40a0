"""Contacts between two shapes, by the touches of their pair: exact distances and their gradients, not smoothed.

`pairs/` has a file for each pair, or for each family of pairs that one formula serves; others are refused. A shape of
one's own has the balls whose hull it is, or a signed distance, as methods (`ShapeWithProbes`, `ShapeWithSurface`).
"""

from __future__ import annotations

from typing import Any

import casadi as ca

from nosnoc_py.annotations import Expression
from nosnoc_py.errors import ModelError
from nosnoc_py.geometry.balls import probes_of
from nosnoc_py.geometry.pairs import PAIRS, touches_of
from nosnoc_py.geometry.placed import ContactShape, Placed
from nosnoc_py.geometry.shapes import Capsule, ConvexPolygon, Cylinder, HalfSpace, HeightMap, ThinDisc
from nosnoc_py.geometry.surfaces import surface_of
from nosnoc_py.geometry.touch import Touch
from nosnoc_py.systems.cls import Contact
from nosnoc_py.systems.shapes import Box, ConvexPolyhedron

INSTEAD = {
    "round on hills": "a HeightMap is touched by points, corners and spheres; put such on the body, ns.Sphere()",
    "rims": "a rim touches ground and hills; give spheres or points on it, or ns.ConvexPolyhedron(shape.vertices)",
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
    cylinders and discs (by their rims) and ellipsoids on half-spaces; points, corners and spheres on height maps;
    points and spheres on spheres, capsules, boxes and convex polyhedra; capsules on capsules, boxes and polyhedra;
    boxes and convex polyhedra on each other, by their corners and where edges cross: 16 and 36 contacts for boxes. In
    the plane points, discs (spheres) and convex polygons on half-planes, discs and polygons; two polygons by the
    corners of each against the other, so that an edge has its range. A shape of one's own has a method `probes`, or
    `surface`, or both; `nosnoc_py.testing.check_shape` tests it.

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


def _touching(a: Placed, b: Placed) -> list[Touch]:
    known = {kind for pair in PAIRS for kind in pair.first + pair.second}
    for placed in (a, b):
        shape = placed.shape
        if not (type(shape) in known or probes_of(shape, placed.size) or surface_of(shape)):
            raise ModelError(f"contacts: expected shapes such as ns.Sphere(0.1), given {type(shape).__name__}.")
    kinds = type(a.shape), type(b.shape)
    touches = touches_of(a, b)
    if touches is None:
        raise ModelError(f"contacts: {kinds[0].__name__} on {kinds[1].__name__}: {_instead(kinds)}.")
    return touches


def _instead(kinds: tuple[type, type]) -> str:
    if HeightMap in kinds:
        return INSTEAD["round on hills"]
    sharp = (Box, ConvexPolyhedron, Cylinder, ThinDisc)
    return INSTEAD["rims"] if all(kind in sharp for kind in kinds) else INSTEAD["round"]


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
        spatial = isinstance(placed.shape, Capsule | Cylinder | ThinDisc | ConvexPolyhedron)
        half = isinstance(placed.shape, HalfSpace) and len(placed.shape.normal) != size
        if (planar and size == 3) or (spatial and size == 2) or half:
            where = "in space" if size == 3 else "in the plane"
            kind = type(placed.shape).__name__
            raise ModelError(f"contacts: {kind} is not a shape {where} (positions have {size} components).")
    return a, b
