"""Shapes: furthest points against brute force and convex solvers, mass properties against closed forms."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize, nnls

import nosnoc_py as ns
from nosnoc_py.compiled import compiled
from nosnoc_py.rotations import exp
from nosnoc_py.systems.shapes import (
    Box,
    ConvexPolyhedron,
    Ellipsoid,
    Intersection,
    Sphere,
    SupportFunction,
    Union,
)
from nosnoc_py.systems.shapes.intersections import Cut, Lens
from nosnoc_py.systems.shapes.support_kernels import lens_support

rng = np.random.default_rng(4)
TURN = exp([0.4, -0.7, 0.2])
DIRECTIONS = np.concatenate([np.eye(3), -np.eye(3), rng.normal(size=(40, 3))])
ELLIPSOID = Ellipsoid((3.0, 1.0, 0.5), (0.3, -0.2, 1.0), TURN)
SOLID = ConvexPolyhedron(rng.normal(size=(12, 3)))
LENS = Intersection([Ellipsoid((2.0, 1.0, 1.0), (0.0, 0.1, 0.0), TURN), Ellipsoid((1.0, 1.5, 0.7), (0.5, 0.0, 0.4))])
MIXED = Intersection([Sphere(1.2), Box((2.0, 2.0, 1.0), (0.1, 0.2, 0.0), TURN)])
SHAPES = {
    "ellipsoid": ELLIPSOID,
    "sphere": Sphere(1.5, (1.0, 2.0, 3.0)),
    "polyhedron": SOLID,
    "skin": ConvexPolyhedron(SOLID.vertices, skin=0.1),
    "box": Box((1.0, 2.0, 3.0), (0.5, 0.0, 0.0), TURN),
    "union": Union([ELLIPSOID, SOLID, Sphere(0.4, (2.0, 0.0, 0.0))]),
    "lens": LENS,
    "mixed": MIXED,
    "pieces": Intersection([Union([Sphere(1.0), Sphere(1.0, (3.0, 0.0, 0.0))]), Box((4.0, 1.0, 1.0), (1.5, 0.0, 0.0))]),
    "support": SupportFunction(lambda d: ELLIPSOID.support(d)),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
IDENTITY = np.eye(3)


def refused(message, build, *arguments, **named):
    with pytest.raises(ns.ModelError, match=message):
        build(*arguments, **named)


def rotated(matrix, vectors):
    return np.asarray(vectors) @ np.asarray(matrix).T


# Furthest points ----------------------------------------------------------------------------------------------------


@shapes
def test_no_point_inside_is_further_than_the_support_and_the_support_is_inside(shape):
    box = shape.box(IDENTITY)
    cloud = box[0] + rng.random((4000, 3)) * (box[1] - box[0])
    inside = cloud[shape.contains(cloud)]
    assert len(inside) > 200
    size = np.ptp(box, axis=0).max()
    for direction in DIRECTIONS:
        point = shape.support(direction)
        height = direction @ point
        assert (inside @ direction).max() <= height + 1e-9 * size
        assert (inside @ direction).max() >= height - 0.4 * size * np.linalg.norm(direction)
        if not isinstance(shape, SupportFunction):  # its inside is that of a hull
            assert shape.contains(point + 1e-9 * (inside.mean(axis=0) - point)) or len(shape.parts) > 1
            assert not shape.contains(point + 1e-6 * direction / np.linalg.norm(direction))


@shapes
def test_heights_are_those_of_furthest_points(shape):
    expected = [direction @ shape.support(direction) for direction in DIRECTIONS]
    np.testing.assert_allclose(shape.heights(DIRECTIONS), expected, rtol=0, atol=1e-13)


@shapes
def test_the_length_of_a_direction_does_not_matter(shape):
    for direction in DIRECTIONS[6:12]:
        np.testing.assert_allclose(shape.support(1e-3 * direction), shape.support(direction), rtol=0, atol=1e-9)
    for direction in ((0, 0, 0), (1, 0), "down", (np.nan, 0, 0)):
        refused("not all zero", shape.support, direction)


@shapes
def test_moved_shapes(shape):
    shift = np.array([1.0, -2.0, 0.5])
    moved = shape.moved(shift)
    for direction in DIRECTIONS[:12]:
        expected = direction @ (shape.support(direction) + shift)  # the point itself may be one of several
        assert abs(direction @ moved.support(direction) - expected) < 1e-9


def test_support_of_an_ellipsoid_against_its_surface():
    y = rng.normal(size=(200000, 3))
    surface = ELLIPSOID.center + rotated(TURN, y / np.linalg.norm(y, axis=1, keepdims=True) * ELLIPSOID.semi_axes)
    for direction in DIRECTIONS:
        height = direction @ ELLIPSOID.support(direction)
        assert 0 <= height - (surface @ direction).max() < 1e-3 * np.linalg.norm(direction)


@shapes
def test_features_describe_the_same_body(shape):
    features = shape.features()
    if shape in (SHAPES["mixed"], SHAPES["support"], SHAPES["pieces"]):
        assert features is None
        return
    for direction in DIRECTIONS:
        places = [(row[:3], row[3:].reshape(3, 3)) for row in features.ellipsoids]
        points = [c + A @ A.T @ direction / np.linalg.norm(A.T @ direction) for c, A in places]
        points += [row[:3] + row[3] * direction / np.linalg.norm(direction) for row in features.vertices]
        points += [lens_support(row, direction) for row in features.lenses]
        height = max(direction @ point for point in points)
        assert abs(height - direction @ shape.support(direction)) < 1e-13


def test_kernels_give_the_same_compiled():
    pytest.importorskip("numba")
    fast, row = compiled(lens_support), LENS.features().lenses[0]
    for direction in DIRECTIONS:
        np.testing.assert_allclose(fast(row, direction), lens_support(row, direction), rtol=0, atol=1e-14)


# Intersections ------------------------------------------------------------------------------------------------------


def brute_force(ellipsoids, direction, start):
    """Furthest point by sequential quadratic programming, from scipy."""
    limits = [{"type": "ineq", "fun": lambda y, e=e: 1 - np.sum((e.inverse @ (y - e.center)) ** 2)} for e in ellipsoids]
    options = {"ftol": 1e-15, "maxiter": 500}
    return minimize(lambda y: -direction @ y, start, constraints=limits, method="SLSQP", options=options).x


@pytest.mark.parametrize("seed", range(6))
def test_support_of_a_lens_against_a_convex_solver(seed):
    random = np.random.default_rng(seed)
    first, second = (
        Ellipsoid(random.uniform(0.3, 2.0, 3), 0.3 * random.normal(size=3), exp(random.normal(size=3))) for _ in "ab"
    )
    shape = Intersection([first, second])
    lens = shape.parts[0]
    assert isinstance(lens, Lens)
    other = Cut(lens.members, lens.inside)
    for direction in random.normal(size=(20, 3)):
        direction /= np.linalg.norm(direction)
        point = lens.support(direction)
        expected = brute_force([first, second], direction, lens.inside)
        assert abs(direction @ (point - expected)) < 1e-7
        np.testing.assert_allclose(other.support(direction), point, rtol=0, atol=1e-10)
        assert max(np.sum((e.inverse @ (point - e.center)) ** 2) for e in (first, second)) < 1 + 1e-13


def test_a_lens_is_optimal_by_its_multipliers():
    """d = alpha grad q_A + beta grad q_B, alpha, beta >= 0, each zero where its ellipsoid is not touched."""
    first, second = LENS.shapes
    for direction in DIRECTIONS:
        point = LENS.support(direction)
        values = np.array([np.sum((e.inverse @ (point - e.center)) ** 2) for e in (first, second)])
        gradients = np.array([e.inverse.T @ e.inverse @ (point - e.center) for e in (first, second)])
        weights, residual = nnls(gradients.T, direction)
        assert residual < 1e-12
        assert np.abs(weights * (values - 1)).max() < 1e-12
        assert values.max() < 1 + 1e-13


def test_the_gap_of_an_intersection_is_not_the_largest_of_the_gaps():
    """Unit balls about (+-1/2, 0, 0) both reach down to -1, the lens only to -sqrt(3) / 2, at its rim."""
    balls = [Sphere(1.0, (0.5, 0.0, 0.0)), Sphere(1.0, (-0.5, 0.0, 0.0))]
    lens, down = Intersection(balls), np.array([0.0, 0.0, -1.0])
    np.testing.assert_allclose(lens.support(down), [0.0, 0.0, -np.sqrt(3) / 2], rtol=0, atol=1e-14)
    largest = max(2.0 - down @ ball.support(down) for ball in balls)  # of the gaps over a plane at z = -2
    assert abs(2.0 - down @ lens.support(down) - largest) > 0.13


def test_one_ellipsoid_inside_the_other_is_the_intersection():
    small = Ellipsoid((0.5, 0.3, 0.2), (0.1, 0.0, 0.1), TURN)
    for members in ([small, Sphere(2.0)], [Sphere(2.0), small]):
        both = Intersection(members)
        for direction in DIRECTIONS:
            np.testing.assert_allclose(both.support(direction), small.support(direction), rtol=0, atol=1e-14)


def test_very_flat_and_very_thin_lenses():
    for gap in (1e-2, 1e-4, 1e-6):
        balls = [Sphere(1.0, (1 - gap, 0.0, 0.0)), Sphere(1.0, (gap - 1, 0.0, 0.0))]
        lens = Intersection(balls)
        rim = np.sqrt(gap * (2 - gap))
        np.testing.assert_allclose(lens.support((1, 0, 0)), [gap, 0, 0], rtol=0, atol=1e-14)
        np.testing.assert_allclose(lens.support((0, 0, -2)), [0, 0, -rim], rtol=0, atol=1e-12 / rim)


@pytest.mark.parametrize("distance", [2.0, 2.0 + 1e-9, 3.0, 100.0])
def test_an_empty_intersection_is_refused(distance):
    refused("no common volume", Intersection, [Sphere(1.0), Sphere(1.0, (distance, 0.0, 0.0))])


def test_an_empty_intersection_of_three_that_meet_in_pairs_is_refused():
    corners = 0.9 * np.array([[np.cos(a), np.sin(a), 0.0] for a in 2 * np.pi * np.arange(3) / 3])
    balls = [Sphere(0.85, corner) for corner in corners]
    for k in range(3):
        Intersection(balls[:k] + balls[k + 1 :])
    refused("no common volume", Intersection, balls)


def test_polyhedra_are_cut_exactly():
    common = Intersection([Box((2.0, 2.0, 2.0)), Box((2.0, 2.0, 2.0), (0.5, 0.25, 1.0))])
    (solid,) = common.parts
    assert isinstance(solid, ConvexPolyhedron)
    assert len(solid.vertices) == 8
    np.testing.assert_allclose(solid.vertices.min(axis=0), [-0.5, -0.75, 0.0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(solid.vertices.max(axis=0), [1.0, 1.0, 1.0], rtol=0, atol=1e-14)
    assert common.features() is not None


@pytest.mark.parametrize("seed", range(4))
def test_cut_polyhedra_far_from_the_origin_against_the_interior_point_method(seed):
    random = np.random.default_rng(seed)
    center = 1e3 * random.normal(size=3)
    members = (
        ConvexPolyhedron(center + random.normal(size=(15, 3))),
        Box((1.0, 2.0, 0.5), center, exp(random.normal(size=3))),
    )
    solid = Intersection(members).parts[0]
    other = Cut(members, solid.vertices.mean(axis=0))
    for direction in random.normal(size=(10, 3)):
        assert abs(direction @ (solid.support(direction) - other.support(direction))) < 1e-9


def test_a_mixture_against_closed_forms():
    """A ball of radius 1.2 in a cube of edge 2: on the faces as far as 1, at the edges and corners it is the ball."""
    body = Intersection([Sphere(1.2), Box((2.0, 2.0, 2.0))])
    corner, edge = np.ones(3) / np.sqrt(3), np.array([1.0, 1.0, 0.0]) / np.sqrt(2)
    np.testing.assert_allclose(body.support(corner), 1.2 * corner, rtol=0, atol=1e-10)
    np.testing.assert_allclose(body.support(edge), 1.2 * edge, rtol=0, atol=1e-10)
    assert abs(body.support((0, 0, -1))[2] + 1) < 1e-12
    tilted = np.array([1.0, 0.2, 0.0]) / np.sqrt(1.04)  # touches the rim of the face x = 1
    np.testing.assert_allclose(body.support(tilted), [1.0, np.sqrt(0.44), 0.0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_mixtures_are_optimal_by_their_multipliers(seed):
    random = np.random.default_rng(seed)
    solid = ConvexPolyhedron(random.normal(size=(10, 3)))
    round_one = Ellipsoid(random.uniform(0.4, 1.5, 3), 0.2 * random.normal(size=3), exp(random.normal(size=3)))
    body = Intersection([solid, round_one, Sphere(0.9)])
    balls = (round_one, Sphere(0.9))
    for direction in random.normal(size=(10, 3)):
        direction /= np.linalg.norm(direction)
        y = body.support(direction)
        curved = [np.sum((e.inverse @ (y - e.center)) ** 2) - 1 for e in balls]
        gradients = [2 * e.inverse.T @ e.inverse @ (y - e.center) for e in balls]
        values = np.concatenate([curved, solid.normals @ y + solid.offsets])
        touched = values > -1e-9
        _, residual = nnls(np.concatenate([gradients, solid.normals])[touched].T, direction)
        assert values.max() < 1e-13
        assert residual < 1e-9


def test_three_ellipsoids_against_a_convex_solver():
    balls = [Ellipsoid((1.0, 0.8, 1.2), center, TURN) for center in ((0.3, 0, 0), (-0.3, 0.1, 0), (0, -0.3, 0.2))]
    body = Intersection(balls)
    for direction in DIRECTIONS:
        point = body.support(direction)
        expected = brute_force(balls, direction, body.parts[0].inside)
        assert abs(direction @ (point - expected)) < 1e-7
        assert max(np.sum((e.inverse @ (point - e.center)) ** 2) for e in balls) < 1 + 1e-13


def test_intersections_of_intersections_are_one():
    balls = [Sphere(1.0, (0.3, 0, 0)), Sphere(1.0, (-0.3, 0.1, 0)), Sphere(1.0, (0, -0.3, 0.2))]
    nested = Intersection([Intersection(balls[:2]), balls[2]])
    flat = Intersection(balls)
    for direction in DIRECTIONS:
        np.testing.assert_allclose(nested.support(direction), flat.support(direction), rtol=0, atol=1e-9)


# Mass properties ----------------------------------------------------------------------------------------------------


def test_mass_of_an_ellipsoid():
    a, b, c = ELLIPSOID.semi_axes
    mass, centroid, inertia = ELLIPSOID.mass_properties(2.5)
    expected = 2.5 * 4 / 3 * np.pi * a * b * c
    assert mass == pytest.approx(expected, rel=1e-14)
    np.testing.assert_allclose(centroid, ELLIPSOID.center, rtol=0, atol=1e-14)
    principal = expected / 5 * np.diag([b * b + c * c, a * a + c * c, a * a + b * b])
    np.testing.assert_allclose(inertia, TURN @ principal @ TURN.T, rtol=0, atol=1e-13 * expected)


def test_mass_of_a_box_and_of_a_regular_tetrahedron():
    mass, centroid, inertia = Box((1.0, 2.0, 3.0), (5.0, 0.0, 0.0), TURN).mass_properties()
    assert mass == pytest.approx(6, rel=1e-13)
    np.testing.assert_allclose(centroid, [5, 0, 0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(inertia, TURN @ np.diag([6.5, 5.0, 2.5]) @ TURN.T, rtol=0, atol=1e-12)
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / np.sqrt(8)  # edges of length one
    mass, centroid, inertia = ConvexPolyhedron(corners).mass_properties()
    assert mass == pytest.approx(1 / np.sqrt(72), rel=1e-13)
    np.testing.assert_allclose(centroid, 0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(inertia, mass / 20 * np.eye(3), rtol=0, atol=1e-15)


def test_mass_of_a_skewed_tetrahedron_by_integration_in_the_reference_one():
    corners = np.array([[0.3, 0.1, -0.2], [1.5, 0.2, 0.4], [0.1, 2.0, 0.3], [0.5, -0.4, 1.7]])
    mass, centroid, inertia = ConvexPolyhedron(corners).mass_properties(3.0)
    edges = (corners[1:] - corners[0]).T
    volume = abs(np.linalg.det(edges)) / 6
    spread = edges @ (np.full((3, 3), -1 / 80) + np.eye(3) / 20) @ edges.T / 1.0  # covariance of a unit simplex
    assert mass == pytest.approx(3 * volume, rel=1e-13)
    np.testing.assert_allclose(centroid, corners.mean(axis=0), rtol=0, atol=1e-14)
    np.testing.assert_allclose(inertia, mass * (np.trace(spread) * np.eye(3) - spread), rtol=0, atol=1e-13)


def revolution(profile, low, high, breaks=()):
    """Volume, centroid and moments (axial, transverse) of a body of revolution about x, from its radius r(x)."""

    def integral(function):
        options = {"epsabs": 1e-13, "epsrel": 1e-13, "limit": 400}
        ends = [low, *breaks, high]
        return sum(quad(function, a, b, **options)[0] for a, b in pairwise(ends))

    volume = np.pi * integral(lambda x: profile(x) ** 2)
    center = np.pi * integral(lambda x: x * profile(x) ** 2) / volume
    axial = np.pi / 2 * integral(lambda x: profile(x) ** 4)
    across = axial / 2 + np.pi * integral(lambda x: (x - center) ** 2 * profile(x) ** 2)
    return volume, center, axial, across


def ball(x, center, radius):
    return np.sqrt(max(0.0, radius**2 - (x - center) ** 2))


def test_mass_of_a_lens_of_two_balls():
    """Two spherical caps: of unit balls at +-1/2, V = 2 pi h^2 (3 - h) / 3 with h = 1/2."""
    lens = Intersection([Sphere(1.0, (0.5, 0.0, 0.0)), Sphere(1.0, (-0.5, 0.0, 0.0))])
    mass, centroid, inertia = lens.mass_properties()
    volume, _, axial, across = revolution(lambda x: ball(abs(x), -0.5, 1.0), -0.5, 0.5, (0.0,))
    assert volume == pytest.approx(2 * np.pi * 0.25 * 2.5 / 3, rel=1e-12)
    assert mass == pytest.approx(volume, rel=1e-6)
    np.testing.assert_allclose(centroid, 0, rtol=0, atol=1e-6)
    np.testing.assert_allclose(inertia, np.diag([axial, across, across]), rtol=0, atol=1e-6 * axial)


def test_mass_of_a_union_of_two_balls():
    body = Union([Sphere(1.0), Sphere(0.7, (0.9, 0.0, 0.0))])
    crossing = (1 - 0.49 + 0.81) / 1.8
    reference = revolution(lambda x: max(ball(x, 0.0, 1.0), ball(x, 0.9, 0.7)), -1.0, 1.6, (crossing,))
    volume, center, axial, across = reference
    mass, centroid, inertia = body.mass_properties()
    assert mass == pytest.approx(volume, rel=1e-6)
    np.testing.assert_allclose(centroid, [center, 0, 0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(inertia, np.diag([axial, across, across]), rtol=0, atol=1e-6 * axial)
    apart = sum(part.mass_properties().mass for part in body.parts)
    assert abs(apart / volume - 1) > 0.1  # what is counted twice is no small thing here


def test_mass_of_overlapping_boxes_by_inclusion_and_exclusion():
    boxes = [Box((2.0, 1.0, 1.0)), Box((1.0, 2.0, 1.0), (0.3, 0.4, 0.1)), Box((1.0, 1.0, 1.5), (0.2, 0.1, 0.3), TURN)]
    signed = [(1, each) for each in boxes] + [(-1, Intersection(boxes[:k] + boxes[k + 1 :])) for k in range(3)]
    signed.append((1, Intersection(boxes)))
    moments = [(sign, each.parts[0].moments()) for sign, each in signed]
    found = Union(boxes).moments()
    for name in ("volume", "first", "second"):
        expected = sum(sign * getattr(each, name) for sign, each in moments)
        np.testing.assert_allclose(getattr(found, name), expected, rtol=0, atol=1e-5 * moments[0][1].volume)


def test_mass_of_a_union_of_disjoint_shapes_is_exact():
    parts = [Sphere(1.0), Box((1.0, 1.0, 1.0), (3.0, 0.0, 0.0))]
    mass, centroid, _ = Union(parts).mass_properties()
    assert mass == pytest.approx(4 / 3 * np.pi + 1, rel=1e-14)
    assert centroid[0] == pytest.approx(3 / mass, rel=1e-13)


def test_the_centroid_of_case_three():
    """LGVCI, Table 3, Case III: not the printed point; cross sections of the overlap in closed form, one integral."""

    def overlap(x):  # of the ellipse with semi-axes 4 r, 5 r and the circle of radius s
        r, s = np.sqrt(1 - ((x - 1.5) / 3) ** 2), np.sqrt(max(0.0, 1 - ((x + 4.5) / 6) ** 2))
        a, b = 4 * r, 5 * r
        if s <= a or s >= b:
            return np.pi * min(s * s, a * b)
        y = np.sqrt((1 - (s / b) ** 2) / (1 / a**2 - 1 / b**2))
        z = np.sqrt(s * s - y * y)
        return 2 * (a * b * np.arctan2(z / b, y / a) + s * s * np.arctan2(y, z))

    breaks = (-1.4551164374847834, -1.4299771760511626)  # where the circle is as large as the axes
    ends, options = (-1.5, *breaks, 1.5), {"epsabs": 1e-12, "epsrel": 1e-12, "limit": 400}
    both, first = (
        sum(quad(lambda x, k=k: x**k * overlap(x), a, b, **options)[0] for a, b in pairwise(ends)) for k in (0, 1)
    )
    volume = 88 * np.pi - both
    centroid = (1.5 * 80 * np.pi - 4.5 * 8 * np.pi - first) / volume
    assert centroid == pytest.approx(0.974176, abs=5e-7)
    body = Union([Ellipsoid((3, 4, 5), (1.5, 0, 0)), Ellipsoid((6, 1, 1), (-4.5, 0, 0))])
    found = body.mass_properties()
    assert found.mass == pytest.approx(volume, rel=1e-6)
    np.testing.assert_allclose(found.centroid, [centroid, 0, 0], rtol=0, atol=1e-6)


def test_mass_of_a_ball_in_a_cube():
    body = Intersection([Sphere(1.2), Box((2.0, 2.0, 2.0))])
    volume = 4 / 3 * np.pi * 1.2**3 - 6 * np.pi * 0.2**2 * (3.6 - 0.2) / 3
    assert body.mass_properties().mass == pytest.approx(volume, rel=1e-5)


def test_mass_of_a_body_known_by_its_support():
    mass, centroid, inertia = SHAPES["support"].mass_properties()
    exact = ELLIPSOID.mass_properties()
    assert 0.997 < mass / exact.mass < 1
    np.testing.assert_allclose(centroid, exact.centroid, rtol=0, atol=1e-3)
    np.testing.assert_allclose(inertia, exact.inertia, rtol=0, atol=5e-3 * np.trace(exact.inertia))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_mass_of_long_overlapping_ellipsoids_of_any_size(scale):
    """Balls that are stretched: the same share is counted twice, V = 8 pi / 3 - 5 pi / 12 for centres at distance 1."""
    axes = np.diag(scale * np.array([200.0, 1.0, 0.5]))
    pair = [Ellipsoid(np.diag(axes), axes @ [x, 0, 0]) for x in (0.0, 1.0)]
    found = Union(pair).moments()
    volume = (8 / 3 - 5 / 12) * np.pi * np.linalg.det(axes)
    assert found.volume == pytest.approx(volume, rel=1e-6)
    np.testing.assert_allclose(found.first / found.volume, axes @ [0.5, 0, 0], rtol=0, atol=1e-6 * axes[0, 0])


def test_the_inside_of_a_box_known_by_its_support_is_the_box():
    found = SupportFunction(Box((1.0, 2.0, 3.0)).support).mass_properties()
    assert found.mass == pytest.approx(6, rel=1e-13)
    np.testing.assert_allclose(found.inertia, np.diag([6.5, 5.0, 2.5]), rtol=0, atol=1e-12)


def test_a_skin_has_no_mass():
    assert SHAPES["skin"].mass_properties().mass == pytest.approx(SOLID.mass_properties().mass, rel=1e-13)


# Polyhedra ----------------------------------------------------------------------------------------------------------


def test_points_inside_the_hull_are_dropped():
    corners = Box((2.0, 2.0, 2.0)).vertices
    solid = ConvexPolyhedron([*corners, [0.0, 0.1, 0.2], [0.5, 0.5, 0.5]])
    np.testing.assert_array_equal(solid.vertices, corners)


def test_a_skin_reaches_as_far_from_the_hull_in_every_direction():
    box, radius = Box((1.0, 2.0, 3.0), skin=0.2), np.linalg.norm
    points = rng.uniform(-2.0, 2.0, (5000, 3))
    distance = radius(np.maximum(np.abs(points) - [0.5, 1.0, 1.5], 0), axis=1)
    np.testing.assert_array_equal(box.contains(points), distance <= 0.2)
    sharp = Box((1.0, 2.0, 3.0))
    for direction in DIRECTIONS:
        assert direction @ (box.support(direction) - sharp.support(direction)) == pytest.approx(
            0.2 * radius(direction), rel=1e-12
        )


def test_the_inside_of_a_skin_against_a_convex_solver():
    solid = SHAPES["skin"]
    for point in rng.normal(size=(200, 3)) * 1.2:
        system = np.vstack([solid.vertices.T, 1e4 * np.ones(len(solid.vertices))])
        weights, _ = nnls(system, np.append(point, 1e4))
        distance = np.linalg.norm(solid.vertices.T @ weights / weights.sum() - point)
        if abs(distance - 0.1) > 1e-3:
            assert solid.contains(point) == (distance < 0.1)


FLAT = np.column_stack([rng.normal(size=(6, 2)), np.zeros(6)]) @ TURN.T


@pytest.mark.parametrize(
    ("vertices", "message"),
    [
        (np.eye(3), "needs four points"),
        (FLAT, "in one plane"),
        (np.outer(np.arange(5.0), [1, 2, 3]), "in one plane"),
        ([*Box((1, 1, 1)).vertices, [0.5, 0.5, 0.5]], "points 7 and 8 are the same"),
        (np.full((5, 3), np.nan), "finite numbers"),
        (np.ones((5, 2)), r"shape \('n', 3\)"),
        ("cube", "expected"),
        ([[1, 2, 3], [1, 2]], "expected numbers"),
    ],
)
def test_degenerate_polyhedra_are_refused(vertices, message):
    refused(message, ConvexPolyhedron, vertices)


def test_a_nearly_flat_polyhedron_is_a_body():
    assert Box((1.0, 1.0, 1e-6)).mass_properties().mass == pytest.approx(1e-6, rel=1e-9)
    refused("in one plane", Box, (1.0, 1.0, 1e-12))


# Other bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Ellipsoid((1, 2)), "expected 3 numbers"),
        (lambda: Ellipsoid((1, 2, 0)), "three positive lengths"),
        (lambda: Ellipsoid((1, 2, 3), rotation=2 * np.eye(3)), "not orthonormal"),
        (lambda: Sphere(-1.0), "positive number"),
        (lambda: Box((1, 1, -1)), "three positive lengths"),
        (lambda: Box((1, 1, 1), skin=-0.1), "skin: expected a nonnegative number"),
        (lambda: Union([]), "one or more shapes"),
        (lambda: Union([Sphere(1.0), "ball"]), "one or more shapes"),
        (lambda: Intersection(Sphere(1.0)), "one or more shapes"),
        (lambda: Intersection([Sphere(1.0), Box((1, 1, 1), skin=0.1)]), "with a skin .* leave the skin out"),
        (lambda: Intersection([Sphere(1.0), SHAPES["support"]]), "write the support of the intersection"),
        (lambda: SupportFunction(3.0), "expected a function"),
        (lambda: SupportFunction(lambda d: d[:2]), "expected 3 numbers"),
        (lambda: SupportFunction(lambda d: -d), "return the furthest point"),
        (lambda: Sphere(1.0).mass_properties(0.0), "density: expected a positive number"),
        (lambda: SHAPES["union"].chords(np.zeros((1, 3)), np.eye(3)[0]), "not convex"),
    ],
)
def test_bad_shapes_are_refused(build, message):
    refused(message, build)
