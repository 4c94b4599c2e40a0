"""What every shape of contacts satisfies: balls inside of it, a true distance, a unit normal, gaps over the ground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.geometry.balls import probes_of
from nosnoc_py.geometry.making import contacts
from nosnoc_py.geometry.placed import Coordinates, Placed
from nosnoc_py.geometry.shapes import HalfSpace
from nosnoc_py.geometry.surfaces import surface_of
from nosnoc_py.testing.checks import expect, run_checks

Array = np.ndarray
# Points around a shape, and where two distances are the same, relative to the size of the shape.
POINTS, SAME = 200, 1e-9
# Differences of the distance, over this length relative to the size of the shape, and their error.
STEP, SLOPE = 1e-6, 1e-6


@dataclass(frozen=True)
class ShapeCase:
    """A shape with points around it; see `check_shape`."""

    shape: Any
    size: int
    length: float
    exact: bool = True

    @property
    def points(self) -> Array:
        """Return points (n, size) within three lengths, the same for every shape."""
        return np.random.default_rng(0).uniform(-3.0, 3.0, (POINTS, self.size)) * self.length

    def distances(self, x: Array) -> tuple[Array, Array]:
        """Return distances (n,) and normals (n, size) at points (n, size)."""
        surface, symbol = surface_of(self.shape), ca.SX.sym("x", self.size)
        assert surface is not None
        distance, normal = (np.array(part) for part in ca.Function("s", [symbol], list(surface(symbol)))(x.T))
        return distance[0], normal.T


def check_shape(shape: Any, *, size: int = 3, length: float = 1.0, exact: bool = True) -> None:
    """Test a shape of contacts.

    Its balls lie inside of its surface; the distance is that of the nearest point, changes by at most the way and has a
    unit normal as its gradient; and its gap over the ground is the height of its lowest point.

    Parameters
    ----------
    shape : object with `probes`, `surface`, or both
    size : int
        3 in space, 2 in the plane.
    length : float
        Size of the shape [m].
    exact : bool
        False if the distance is exact at the surface only, as that of a height map.

    Raises
    ------
    AssertionError
        With everything that does not hold.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> from nosnoc_py.testing import check_shape
    >>> check_shape(ns.Capsule(0.1, 0.4), length=0.3)
    """
    case, checks = ShapeCase(shape, size, length, exact), list[Any]()
    touches = hasattr(shape, "support") or bool(probes_of(shape, size))
    is_touched = surface_of(shape) is not None
    expect(touches or is_touched, f"{type(shape).__name__}: expected a method `probes` or `surface`")
    checks += [gap_over_the_ground_is_that_of_its_lowest_point] if touches else []
    checks += [normals_are_unit_gradients] if is_touched else []
    checks += [distances_are_those_of_the_nearest_points, distances_change_by_the_way] if is_touched and exact else []
    checks += [balls_lie_inside, the_lowest_point_is_that_of_the_surface] if touches and is_touched else []
    run_checks(type(shape).__name__, checks, case)


def normals_are_unit_gradients(case: ShapeCase) -> None:
    """At random points outside, where the distance is smooth: both one-sided differences agree there."""
    x = case.points
    distance, normal = case.distances(x)
    step = STEP * case.length
    slopes = []
    for k in range(case.size):
        after, before = (case.distances(x + sign * step * np.eye(case.size)[k])[0] for sign in (1, -1))
        slopes.append(np.stack([after - distance, distance - before]) / step)
    one_sided = np.stack(slopes, axis=-1)
    smooth = (np.abs(one_sided[0] - one_sided[1]).max(axis=-1) < 1e-3) & (distance > 0.0)
    expect(smooth.sum() > POINTS // 10, "no points outside with a smooth distance; is `length` the size of the shape?")
    np.testing.assert_allclose(np.linalg.norm(normal[smooth], axis=1), 1.0, atol=SAME, err_msg="length of the normal")
    # The distance to hills has the direction of the normal only at the surface.
    if case.exact:
        middle = one_sided.mean(axis=0)[smooth]
        np.testing.assert_allclose(normal[smooth], middle, atol=SLOPE, err_msg="normal and gradient of the distance")


def distances_are_those_of_the_nearest_points(case: ShapeCase) -> None:
    """The point at the distance against the normal is on the surface."""
    x = case.points
    distance, normal = case.distances(x)
    outside = distance > 0.0
    feet = x[outside] - distance[outside, None] * normal[outside]
    tolerance = 1e3 * SAME * case.length  # a foot at a corner is one up to rounding of both
    np.testing.assert_allclose(case.distances(feet)[0], 0.0, atol=tolerance, err_msg="distance of the nearest points")


def distances_change_by_the_way(case: ShapeCase) -> None:
    """|d(x) - d(y)| <= |x - y| for all points outside."""
    x = case.points
    distance = case.distances(x)[0]
    x, distance = x[distance > 0.0], distance[distance > 0.0]
    ways = np.linalg.norm(x[:, None] - x[None], axis=-1)
    over = np.abs(distance[:, None] - distance[None]) - ways
    expect(over.max() <= SAME * case.length, f"a distance changes by {over.max():.2g} m more than the way")


def balls_lie_inside(case: ShapeCase) -> None:
    """The distance of a centre is at most minus the radius of its ball."""
    balls = probes_of(case.shape, case.size)
    # Next to the centre: the distance has no gradient, and maybe no value, in the middle of a ball.
    near = np.array([ball.place for ball in balls]) + SAME * case.length
    inside = case.distances(near)[0] + np.array([ball.radius for ball in balls])
    expect(inside.max() <= 10 * SAME * case.length, f"a ball is {inside.max():.2g} m outside of the surface")


def _height(case: ShapeCase) -> ca.Function:
    """Return the function from a position and a rotation matrix to the gap over the ground."""
    q, v = ca.SX.sym("q", case.size), ca.SX.sym("v", case.size)
    moves = Coordinates(q, v)
    turn = ca.SX.sym("turn", case.size, case.size)
    placed = Placed(case.shape, q, turn, coordinates=moves)
    ground = HalfSpace(tuple(np.eye(case.size)[-1]))
    gaps = ca.vertcat(*[contact.gap for contact in contacts(placed, ground)])
    return ca.Function("gap", [q, turn], [ca.mmin(gaps)])


def reach_of(shape: Any, direction: Array) -> float:
    """Return the largest component of points of a shape along a unit direction (size,)."""
    if hasattr(shape, "support") and direction.size == 3:
        return float(direction @ shape.support(direction))
    return max(float(direction @ ball.place) + ball.radius for ball in probes_of(shape, direction.size))


def _turns(case: ShapeCase) -> list[Array]:
    """Return rotation matrices, the same for every shape."""
    rng, turns = np.random.default_rng(1), []
    for _ in range(8):
        turn = np.linalg.qr(rng.normal(size=(case.size, case.size)))[0]
        turn[:, 0] *= np.sign(np.linalg.det(turn))
        turns.append(turn)
    return turns


def gap_over_the_ground_is_that_of_its_lowest_point(case: ShapeCase) -> None:
    """In all attitudes: the least height of a ball, or of a point that the shape calls its furthest."""
    gap = _height(case)
    place = 0.7 * case.length * np.ones(case.size)
    for turn in _turns(case):
        lowest = place[-1] - reach_of(case.shape, -turn[-1])
        found = float(gap(place, turn))
        expect(abs(found - lowest) <= SAME * case.length, f"gap {found:.9g} m, expected {lowest:.9g} m")


def the_lowest_point_is_that_of_the_surface(case: ShapeCase) -> None:
    """Points of the surface are never below the ground when the gap is zero, and come near to it."""
    gap = _height(case)
    x = case.points
    distance, normal = case.distances(x)
    feet = (x - distance[:, None] * normal)[distance > 0.0]
    for turn in _turns(case):
        heights = feet @ turn[-1] - float(gap(np.zeros(case.size), turn))
        expect(-1e3 * SAME * case.length <= heights.min(), f"the surface is {-heights.min():.2g} m below the ground")
        expect(heights.min() < 0.5 * case.length, f"no point of the surface comes nearer than {heights.min():.2g} m")
