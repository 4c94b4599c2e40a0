"""Every registered pair of shapes against programs of their own: distance, gradient and normal at random poses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar, nnls

import nosnoc_py as ns
from nosnoc_py.geometry.balls import probes_of
from nosnoc_py.geometry.pairs import PAIRS, balls, rims
from nosnoc_py.geometry.touch import ENDED, ShapePair
from nosnoc_py.rotations import exp

pytestmark = pytest.mark.quick
POSES = 1000
HILL = np.array([0.2, 0.9, 0.7])


def hills(*x: Any) -> Any:
    """Waves whose valleys have a radius of 5 m and more."""
    return HILL[0] * ca.sin(HILL[1] * x[0]) * (ca.cos(HILL[2] * x[1]) if len(x) == 2 else 1)


SHAPES: dict[type, Any] = {
    ns.Point: ns.Point(),
    ns.Sphere: ns.Sphere(0.3, center=(0.1, 0.2, -0.1)),
    ns.Capsule: ns.Capsule(0.2, 0.9),
    ns.Box: ns.Box([0.9, 0.6, 0.4], center=(0.1, 0.0, -0.2), rotation=exp(np.array([0.3, 0.2, -0.4]))),
    ns.ConvexPolyhedron: ns.ConvexPolyhedron(
        [[0, 0, 0], [0.8, 0, 0.1], [0.2, 0.9, 0], [0.1, 0.2, 0.7], [0.9, 0.8, 0.5]]
    ),
    ns.Ellipsoid: ns.Ellipsoid([0.5, 0.3, 0.2], center=(0.1, 0.0, 0.2)),
    ns.Cylinder: ns.Cylinder(0.4, 0.5),
    ns.ThinDisc: ns.ThinDisc(0.4),
    ns.HalfSpace: ns.HalfSpace((0.3, -0.2, 1.0), 0.1),
    ns.HeightMap: ns.HeightMap(hills),
    ns.ConvexPolygon: ns.ConvexPolygon([[-0.3, -0.2], [0.3, -0.2], [0.2, 0.3]]),
}
CASES = [(pair, one, other) for pair in PAIRS for one in pair.first for other in pair.second]


def names(value: Any) -> str | None:
    return value.__name__ if isinstance(value, type) else ""


def size_of(*shapes: Any) -> int:
    return 2 if any(isinstance(shape, ns.ConvexPolygon) for shape in shapes) else 3


def in_the_plane(shape: Any) -> Any:
    return ns.HalfSpace((0.3, 1.0), 0.1) if isinstance(shape, ns.HalfSpace) else shape


def functions(first: Any, second: Any, size: int) -> ca.Function:
    """Positions and attitudes of two bodies -> gaps, and their derivatives by the positions."""
    q = ca.SX.sym("q", 2 * size)
    v = ca.SX.sym("v", 2 * size)
    turns = [ca.SX.sym("turn", size, size) for _ in range(2)]
    moves = ns.Coordinates(q, v)
    one = ns.Placed(first, q[:size], turns[0], coordinates=moves)
    other = ns.Placed(second, q[size:], turns[1], coordinates=moves)
    found = ns.contacts(one, other)
    gaps = ca.vertcat(*[contact.gap for contact in found])
    return ca.Function("gaps", [q, *turns], [gaps, ca.jacobian(gaps, q)])


def core(shape: Any, size: int) -> tuple[np.ndarray, float]:
    """Points (n, size) and the radius of the balls around them whose hull a shape is."""
    balls = probes_of(shape, size)
    return np.array([ball.place for ball in balls]), balls[0].radius


def distance_of_hulls(a: np.ndarray, b: np.ndarray) -> float:
    """Distance of two hulls: nearest point of their difference to the origin, by least squares that are not negative.

    With w >= 0, |A w|^2 + (sum w - 1)^2 is least where w / sum w is that point (Lawson and Hanson, Chapter 23).
    """
    differences = (a[:, None] - b[None]).reshape(-1, a.shape[1]).T
    rows = np.vstack([differences, np.ones(differences.shape[1])])
    weights = nnls(rows, np.append(np.zeros(a.shape[1]), 1.0))[0]
    return float(np.linalg.norm(differences @ weights) / weights.sum())


def support_of(shape: Any, direction: np.ndarray) -> float:
    """Largest component of the shape along a direction."""
    if isinstance(shape, ns.Ellipsoid):
        return float(direction @ shape.center + np.linalg.norm(shape.semi_axes * (shape.rotation.T @ direction)))
    if isinstance(shape, ns.Cylinder | ns.ThinDisc):
        return float(0.4 * np.hypot(*direction[:2]) + max(shape.rims) * abs(direction[2]))
    points, radius = core(shape, direction.size)
    return float((points @ direction).max() + radius)


def distance_of(first: Any, second: Any, place: np.ndarray, turns: list[np.ndarray]) -> float | None:
    """Distance of two shapes by an independent program; None where they overlap."""
    size = place.size // 2
    if isinstance(second, ns.HalfSpace):
        normal = turns[1] @ second.normal
        return float(normal @ (place[:size] - place[size:]) - second.offset - support_of(first, turns[0].T @ -normal))
    (a, ra), (b, rb) = core(first, size), core(second, size)
    found = distance_of_hulls(place[:size] + a @ turns[0].T, place[size:] + b @ turns[1].T)
    return found - ra - rb if found > 1e-6 else None


def turn_of(rng: np.random.Generator, size: int) -> np.ndarray:
    if size == 3:
        return exp(rng.normal(size=3) * 2)
    angle = rng.uniform(0, 6)
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


@pytest.mark.parametrize(("pair", "one", "other"), [case for case in CASES if case[0].exact], ids=names)
def test_distances_and_gradients(pair: ShapePair, one: type, other: type) -> None:
    first, second = SHAPES[one], SHAPES[other]
    size = size_of(first, second)
    first, second = (in_the_plane(shape) if size == 2 else shape for shape in (first, second))
    call, rng, compared = functions(first, second, size), np.random.default_rng(len(names(one) or "")), 0
    for k in range(POSES):
        place, turns = rng.normal(size=2 * size) * 0.8, [turn_of(rng, size) for _ in range(2)]
        expected = distance_of(first, second, place, turns)
        flat = pair in rims.PAIRS and np.hypot(*(turns[0].T @ turns[1] @ second.normal)[:2]) < ENDED
        if expected is None or flat:
            continue
        compared += 1
        gaps, slopes = (np.array(value) for value in call(place, *turns))
        nearest = int(np.argmin(gaps))
        assert gaps[nearest, 0] == pytest.approx(expected, abs=1e-9)
        # A distance changes by as much as the first shape moves along the normal.
        assert np.linalg.norm(slopes[nearest, :size]) == pytest.approx(1.0, abs=1e-9)
        np.testing.assert_allclose(slopes[nearest, :size], -slopes[nearest, size:], rtol=0, atol=1e-9)
        if k < 30:
            steps = 1e-6 * np.eye(2 * size)
            ahead, behind = (
                np.array([call(place + sign * h, *turns)[0].full()[nearest, 0] for h in steps]) for sign in (1, -1)
            )
            np.testing.assert_allclose(slopes[nearest], (ahead - behind) / 2e-6, rtol=0, atol=1e-6)
    assert compared > POSES // 4


def over_hills(point: np.ndarray) -> float:
    return float(point[-1] - hills(*point[:-1]))


def lowest_of_rims(shape: Any, place: np.ndarray, turn: np.ndarray) -> float:
    """Least height of points of all rims over the map, by a search along each."""

    def at(angle: float, z: float) -> float:
        return over_hills(place + turn @ [shape.radius * np.cos(angle), shape.radius * np.sin(angle), z])

    grid, least = np.linspace(0, 2 * np.pi, 73), []
    for z in shape.rims:
        near = grid[np.argmin([at(angle, z) for angle in grid])]
        least.append(minimize_scalar(at, bounds=(near - 0.1, near + 0.1), args=(z,), options={"xatol": 1e-12}).fun)
    return min(least)


def clearance(shape: Any, place: np.ndarray, turn: np.ndarray) -> float:
    """Height of the lowest corner, or of a rim, over the map; the distance of the map from a ball."""
    if isinstance(shape, ns.Cylinder | ns.ThinDisc):
        return lowest_of_rims(shape, place, turn)
    points, radius = core(shape, place.size)
    centres = place + points @ turn.T
    if radius == 0:
        return min(over_hills(centre) for centre in centres)
    (centre,) = centres
    nearest = minimize(
        lambda x: np.sum((x - centre[:-1]) ** 2) + (float(hills(*x)) - centre[-1]) ** 2, centre[:-1] + 0.1, tol=1e-14
    )
    return float(np.sqrt(nearest.fun) - radius)


@pytest.mark.parametrize(("pair", "one", "other"), [case for case in CASES if case[2] is ns.HeightMap], ids=names)
def test_contacts_with_hills_are_where_nothing_overlaps(pair: ShapePair, one: type, other: type) -> None:
    """A shape is let down until its gap is zero: then it touches the map."""
    first, second = SHAPES[one], SHAPES[other]
    size = size_of(first)
    call, rng = functions(first, second, size), np.random.default_rng(3)
    corners = pair.touches is balls.corners_on_map
    for _ in range(POSES if corners else POSES // 10):
        place, turns = np.append(rng.normal(size=size), np.zeros(size)), [turn_of(rng, size), np.eye(size)]
        if pair in rims.PAIRS and abs(turns[0][2, 2]) > 0.95:
            continue  # nearly flat: between two hills a rim touches at several points
        for _ in range(30):
            place[size - 1] -= float(np.min(call(place, *turns)[0].full()))
        assert clearance(first, place[:size], turns[0]) == pytest.approx(0.0, abs=1e-9 if corners else 1e-7)
        gaps, slopes = (np.array(value) for value in call(place, *turns))
        assert np.linalg.norm(slopes[np.argmin(gaps), :size]) == pytest.approx(1.0, abs=1e-9)


def test_all_kinds_of_shapes_have_an_example() -> None:
    assert {kind for _, one, other in CASES for kind in (one, other)} == set(SHAPES)


def test_the_table_of_the_documentation_is_that_of_the_registry() -> None:
    rows = ["| first shape | touches | how | gap |", "| --- | --- | --- | --- |"]
    for pair in PAIRS:
        kinds = [", ".join(f"`{kind.__name__}`" for kind in side) for side in (pair.first, pair.second)]
        rows.append(f"| {' | '.join(kinds)} | {pair.how} | {'distance' if pair.exact else 'zero and normal'} |")
    page = Path(__file__).parents[2] / "docs" / "contact_geometry.md"
    assert "\n".join(rows) in page.read_text(encoding="utf-8"), "\n".join(rows)
