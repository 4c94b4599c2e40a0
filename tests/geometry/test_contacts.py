"""Contacts from shapes: exact distances, their gradients, and the velocities of the points that touch."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

import nosnoc_py as ns
from models import free_box
from nosnoc_py.rotations import exp, quaternion_of, rotation_of

pytestmark = pytest.mark.quick
POSES = 25


def two_bodies(first: Any, second: Any, **more: Any) -> tuple[ca.Function, ca.Function]:
    """(q, v) -> gaps and slips of two shapes on free bodies; and the derivatives of the gaps along v."""
    q, v = ca.SX.sym("q", 14), ca.SX.sym("v", 12)
    moves = ns.Coordinates(q, v, quaternions=[q[3:7], q[10:14]])
    a = ns.Placed(first, q[:3], q[3:7], coordinates=moves)
    b = ns.Placed(second, q[7:10], q[10:14], coordinates=moves)
    found = ns.contacts(a, b, name="pair", friction=0.5, **more)
    gaps = ca.vertcat(*[c.gap for c in found])
    slips = ca.vertcat(*[ca.norm_2(c.tangent.T @ v) for c in found])
    return ca.Function("gaps", [q, v], [gaps, slips]), ca.Function("rates", [q, v], [moves.jacobian(gaps) @ v])


def pose(rng: np.random.Generator, size: float = 1.0) -> np.ndarray:
    return np.concatenate([size * rng.normal(size=3), quaternion_of(exp(rng.normal(size=3)))])


def moved(q: np.ndarray, v: np.ndarray, step: float) -> np.ndarray:
    """Both bodies a little later."""
    parts = []
    for k in range(2):
        x, r = q[7 * k : 7 * k + 3], rotation_of(q[7 * k + 3 : 7 * k + 7])
        w = v[6 * k : 6 * k + 6]
        parts += [x + step * w[:3], quaternion_of(r @ exp(step * w[3:]))]
    return np.concatenate(parts)


def velocity_at(body: np.ndarray, v: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Of the material point of a body that is at a point of the world."""
    r = rotation_of(body[3:])
    return np.asarray(v[:3] + r @ np.cross(v[3:], r.T @ (point - body[:3])))


def in_box(half: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The point of a box nearest to one outside."""
    return np.clip(x, -half, half)


def on_segment(length: float, x: np.ndarray) -> np.ndarray:
    return np.array([0.0, 0.0, np.clip(x[2], -length / 2, length / 2)])


HALF = np.array([0.4, 0.3, 0.2])
SPHERE, BOX, CAPSULE = ns.Sphere(0.15), ns.Box(2 * HALF), ns.Capsule(0.1, 0.6)
# Two shapes, the point of the second one (or of its core) nearest to a point in its frame, and both radii together.
NEAREST = {
    "sphere on sphere": (SPHERE, ns.Sphere(0.2), lambda x: np.zeros(3), 0.35),
    "point on sphere": (ns.Point(), SPHERE, lambda x: np.zeros(3), 0.15),
    "sphere on box": (SPHERE, BOX, lambda x: in_box(HALF, x), 0.15),
    "point on box": (ns.Point(), BOX, lambda x: in_box(HALF, x), 0.0),
    "sphere on capsule": (SPHERE, CAPSULE, lambda x: on_segment(0.6, x), 0.25),
}


@pytest.mark.parametrize("name", NEAREST)
def test_distances_and_slips_of_pairs_are_those_of_the_nearest_points(name: str) -> None:
    first, second, nearest, radii = NEAREST[name]
    rng = np.random.default_rng(len(name))
    for order in (1, -1):
        gaps, rates = two_bodies(*(first, second)[::order])
        for _ in range(POSES):
            one, other = pose(rng), pose(rng)
            r = rotation_of(other[3:])
            core = other[:3] + r @ nearest(r.T @ (one[:3] - other[:3]))
            apart = one[:3] - core
            distance = np.linalg.norm(apart)
            if distance < radii + 0.01:
                continue
            q, v = np.concatenate([one, other][::order]), rng.normal(size=12)
            gap, slip = (np.array(value)[:, 0] for value in gaps(q, v))
            assert gap[0] == pytest.approx(distance - radii, abs=1e-12)
            difference = (gaps(moved(q, v, 1e-6), v)[0] - gaps(moved(q, v, -1e-6), v)[0]) / 2e-6
            assert float(rates(q, v)) == pytest.approx(float(difference), abs=1e-7)
            # Material points where they touch: on the probe, at its radius along the normal.
            normal, radius = apart / distance, 0.15 if "sphere on" in name else 0.0
            point = one[:3] - radius * normal
            if name == "sphere on sphere" and order == -1:  # the first one is the probe
                point = other[:3] + 0.2 * normal
            bodies = (one, v[:6] if order == 1 else v[6:]), (other, v[6:] if order == 1 else v[:6])
            at = [
                w[:3] + rotation_of(b[3:]) @ np.cross(w[3:], rotation_of(b[3:]).T @ (point - b[:3])) for b, w in bodies
            ]
            relative = at[0] - at[1]
            along = relative - normal * (normal @ relative)
            assert slip[0] == pytest.approx(np.linalg.norm(along), abs=1e-9)


def test_shapes_on_a_slope_stand_on_their_lowest_points() -> None:
    """Supports by the convex hull of points, or by optimisation."""
    rng, slope = np.random.default_rng(4), ns.HalfSpace((0.3, -0.2, 1.0), 0.1)
    size = np.linalg.norm([0.3, -0.2, 1.0])
    normal, offset = np.array([0.3, -0.2, 1.0]) / size, 0.1 / size
    axes = np.array([0.3, 0.2, 0.1])

    def lowest_of_ellipsoid(direction: np.ndarray) -> float:
        found = minimize(
            lambda s: direction @ (axes * s),
            -direction,
            constraints={"type": "eq", "fun": lambda s: s @ s - 1},
            tol=1e-14,
        )
        return float(found.fun)

    tetrahedron = ns.ConvexPolyhedron(rng.normal(size=(4, 3)))
    cylinder = ns.Cylinder(0.2, 0.5, points=12)

    def lowest_of_cylinder(d: np.ndarray) -> float:
        return float(-0.2 * np.hypot(d[0], d[1]) - 0.25 * abs(d[2]))

    cases: dict[str, tuple[Any, Any, int]] = {
        "box": (BOX, lambda d: -HALF @ np.abs(d), 8),
        "tetrahedron": (tetrahedron, lambda d: (tetrahedron.vertices @ d).min(), 4),
        "cylinder": (cylinder, lowest_of_cylinder, 26),
        "capsule": (CAPSULE, lambda d: -0.3 * abs(d[2]) - 0.1, 2),
        "sphere": (SPHERE, lambda d: -0.15, 1),
        "ellipsoid": (ns.Ellipsoid(axes), lowest_of_ellipsoid, 1),
    }
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    moves = ns.Coordinates(q, v, quaternions=[q[3:]])
    for shape, lowest, count in cases.values():
        found = ns.contacts(ns.Placed(shape, q[:3], q[3:], coordinates=moves), slope, friction=0.3)
        assert len(found) == count
        gaps = ca.Function("gaps", [q], [ca.vertcat(*[c.gap for c in found])])
        for _ in range(POSES):
            at = pose(rng)
            expected = normal @ at[:3] - offset + lowest(rotation_of(at[3:]).T @ normal)
            assert np.array(gaps(at)).min() == pytest.approx(expected, abs=2e-7)


def test_a_sphere_may_have_its_centre_anywhere() -> None:
    """A point at (2, 3, 5) is 6 m away from the centre (0, -1, 1) in directions (2, 4, 4) / 6."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    probe = ns.Placed(ns.Point(), q, coordinates=ns.Coordinates(q, v))
    (contact,) = ns.contacts(probe, ns.Sphere(0.5, center=[0.0, -1.0, 1.0]), friction=1.0)
    gap, slope = ca.Function("gap", [q], [contact.gap, ca.gradient(contact.gap, q)])([2.0, 3.0, 5.0])
    assert float(gap) == pytest.approx(5.5, abs=1e-13)
    np.testing.assert_allclose(slope.full().ravel(), np.array([1.0, 2.0, 2.0]) / 3.0, rtol=0, atol=1e-13)


def test_tangents_are_perpendicular_to_the_normal_wherever_it_points() -> None:
    """Of a point around a fixed sphere: (n, t1, t2) is a rotation for any direction, the poles among them."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    (contact,) = ns.contacts(ns.Placed(ns.Point(), q, coordinates=ns.Coordinates(q, v)), ns.Sphere(0.5), friction=1.0)
    frame = ca.Function("frame", [q], [ca.horzcat(ca.gradient(contact.gap, q), contact.tangent)])
    for direction in [*np.eye(3), *-np.eye(3), *np.random.default_rng(0).normal(size=(50, 3))]:
        matrix = np.array(frame(direction))
        np.testing.assert_allclose(matrix.T @ matrix, np.eye(3), rtol=0, atol=1e-12)


def test_polygons_are_as_far_apart_as_a_quadratic_program_says() -> None:
    rng = np.random.default_rng(8)
    first, second = (
        ns.ConvexPolygon([[-0.3, -0.2], [0.3, -0.2], [0.2, 0.3]]),
        ns.ConvexPolygon([[0, 0], [0, 0.5], [0.6, 0.4], [0.5, 0]]),
    )
    q, v = ca.SX.sym("q", 6), ca.SX.sym("v", 6)
    moves = ns.Coordinates(q, v)
    a, b = (ns.Placed(s, q[k : k + 2], q[k + 2], coordinates=moves) for s, k in ((first, 0), (second, 3)))
    found = ns.contacts(a, b, friction=0.2)
    assert len(found) == 7
    gaps = ca.Function("gaps", [q], [ca.vertcat(*[c.gap for c in found])])

    def turn(angle: float) -> np.ndarray:
        return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    checked = 0
    for _ in range(40):
        at = rng.normal(size=6)
        corners = [at[k : k + 2] + shape.vertices @ turn(at[k + 2]).T for shape, k in ((first, 0), (second, 3))]
        sizes = [len(part) for part in corners]
        start = np.concatenate([np.full(n, 1 / n) for n in sizes])
        sums = [{"type": "eq", "fun": lambda w, s=s: w[s].sum() - 1} for s in (slice(sizes[0]), slice(sizes[0], None))]
        best = minimize(
            lambda w, c=corners, n=sizes[0]: np.sum((w[:n] @ c[0] - w[n:] @ c[1]) ** 2),
            start, bounds=[(0, 1)] * sum(sizes), constraints=sums, tol=1e-15,
        )  # fmt: skip
        # Nearer than a tenth of the smaller body the gaps beside corners are larger than the distance.
        if best.fun > 4e-3:
            assert float(ca.mmin(gaps(at))) == pytest.approx(np.sqrt(best.fun), abs=1e-6)
            checked += 1
    assert checked > 15


def test_a_finger_over_a_box_touches_nothing_at_its_side() -> None:
    """The line of an edge goes on; its contact does not."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    finger = ns.Placed(ns.ConvexPolygon([[0, 0], [0.1, 0], [0.1, 1], [0, 1]]), q, coordinates=ns.Coordinates(q, v))
    box = ns.ConvexPolygon([[-1, 0], [0, 0], [0, 0.5], [-1, 0.5]])
    gaps = ca.Function("gaps", [q], [ca.vertcat(*[c.gap for c in ns.contacts(finger, box)])])
    assert float(ca.mmin(gaps([-0.05, 0.6]))) == pytest.approx(0.1, abs=1e-12)
    assert float(ca.mmin(gaps([0.02, 0.2]))) == pytest.approx(0.02, abs=1e-12)
    assert float(ca.mmin(gaps([-0.02, 0.2]))) == pytest.approx(-0.02, abs=1e-12)


def test_distances_have_numbers_for_derivatives_on_faces_and_corners() -> None:
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    (on_box,) = ns.contacts(ns.Placed(ns.Point(), q, coordinates=ns.Coordinates(q, v)), BOX)
    both = ca.Function("both", [q], [on_box.gap, ca.gradient(on_box.gap, q), ca.hessian(on_box.gap, q)[0]])
    for place in ([0.4, 0, 0], [0.4, 0.3, 0.2], [0, 0, 0], [0.4, 0.3, 0], [0.1, 0.1, 0.2]):
        gap, gradient, hessian = both(place)
        assert float(gap) <= 1e-15
        assert np.isfinite(np.array(gradient)).all()
        assert np.isfinite(np.array(ca.densify(hessian))).all()
    np.testing.assert_allclose(np.array(both([0.4, 0.1, 0])[1])[:, 0], [1, 0, 0], rtol=0, atol=1e-15)


@pytest.mark.parametrize("shift", [1e-12, 1e-11, 1e-10, 1e-9, 1e-6])
def test_the_curvature_of_a_polygon_changes_at_the_end_of_an_edge_and_nowhere_else(shift: float) -> None:
    """There the distances to two edges are equal up to rounding, which must not choose between the curvatures.

    The curvature of the distance is zero beside an edge, and one over the distance around a corner.
    """
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    finger = ns.Placed(ns.Sphere(0.02), q, coordinates=ns.Coordinates(q, v))
    square = ns.ConvexPolygon([[0, 0], [1, 0], [1, 1], [0, 1]])
    (touch,) = ns.contacts(finger, square)
    curvature = ca.Function("curvature", [q], [ca.hessian(touch.gap, q)[0][1, 1]])
    for beyond in np.random.default_rng(1).uniform(0.02, 0.03, 20):
        assert float(curvature([-beyond, 1.0 - shift])) == 0.0
        assert float(curvature([-beyond, 1.0 + shift])) == pytest.approx(1.0 / beyond, rel=1e-6)


def test_a_disc_is_pushed_along_a_face_and_over_its_corner() -> None:
    """The simulation steps over the end of the face; the corner is passed on a circle around it."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    disc = ns.Placed(ns.Sphere(0.1), q, coordinates=ns.Coordinates(q, v))
    square = ns.ConvexPolygon([[0, 0], [1, 0], [1, 1], [0, 1]])
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[5.0, 0.0], contacts=ns.contacts(disc, square))
    motion = ns.simulate(system, x0=[-0.1, 0.8, 0.0, 0.5], duration=0.6)
    assert motion.success, motion.message
    # 0.4 s along the face, then around the corner without losing contact: 5 N press more than 0.25 / 0.1 needs.
    assert motion(0.4)[:2] == pytest.approx([-0.1, 1.0], abs=1e-9)
    assert np.linalg.norm(motion(0.5)[:2] - [0.0, 1.0]) == pytest.approx(0.1, abs=1e-9)
    # A point mass on a circle: the force has done the work 5 (x + 0.1).
    x = motion(0.5)
    assert 0.5 * float(x[2:] @ x[2:]) == pytest.approx(0.5 * 0.25 + 5.0 * (x[0] + 0.1), abs=1e-8)


def test_a_disc_that_rolls_does_not_slip() -> None:
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    disc = ns.Placed(ns.Sphere(0.2), q[:2], q[2], coordinates=ns.Coordinates(q, v))
    (contact,) = ns.contacts(disc, ns.HalfSpace((0, 1)), name="ground", friction=0.5)
    slip = ca.Function("slip", [q, v], [contact.tangent.T @ v])
    assert float(slip([0.3, 0.2, 1.0], [1.0, 0.0, -5.0])) == pytest.approx(0.0, abs=1e-15)
    assert float(slip([0.3, 0.2, 1.0], [1.0, 0.0, 0.0])) == pytest.approx(1.0, abs=1e-15)


def test_hills_are_touched_where_they_are() -> None:
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    moves = ns.Coordinates(q, v)
    (slope,) = ns.contacts(
        ns.Placed(ns.Point(), q, coordinates=moves), ns.HeightMap(lambda x, y: 0.3 * x - 0.4 * y + 1)
    )
    far = ca.Function("far", [q], [slope.gap])
    assert float(far([1.0, 2.0, 3.0])) == pytest.approx((3 - (0.3 - 0.8 + 1)) / np.sqrt(1.25), abs=1e-14)
    (hill,) = ns.contacts(
        ns.Placed(ns.Point(), q, coordinates=moves), ns.HeightMap(lambda x, y: ca.sin(x) * ca.cos(y)), friction=0.5
    )
    on = np.array([0.7, 0.2, np.sin(0.7) * np.cos(0.2)])
    gradient = ca.Function("gradient", [q], [hill.gap, ca.gradient(hill.gap, q), hill.tangent])
    gap, normal, tangent = (np.array(value) for value in gradient(on))
    assert gap[0, 0] == pytest.approx(0.0, abs=1e-15)
    frame = np.hstack([normal, tangent])
    np.testing.assert_allclose(frame.T @ frame, np.eye(3), rtol=0, atol=1e-12)


def test_a_box_from_shapes_moves_as_one_written_by_hand() -> None:
    by_hand = free_box.build()
    moves = ns.Coordinates(by_hand.q, by_hand.v, quaternions=[by_hand.q[3:]])
    box = ns.Placed(ns.Box([0.4, 0.3, 0.2]), by_hand.q[:3], by_hand.q[3:], coordinates=moves)
    corners = ns.contacts(box, ns.HalfSpace(), name="corner", friction=0.5)
    a = [0.2, 0.15, 0.1]
    inertia = [(a[1] ** 2 + a[2] ** 2) / 3, (a[0] ** 2 + a[2] ** 2) / 3, (a[0] ** 2 + a[1] ** 2) / 3]
    w = by_hand.v[3:]
    force = ca.vertcat(0, 0, -free_box.GRAVITY, -ca.cross(w, ca.DM(inertia) * w))
    made = ns.CLS(
        q=by_hand.q, v=by_hand.v, quaternions=[by_hand.q[3:]], mass_matrix=ca.diag(ca.DM([1, 1, 1, *inertia])),
        force=force, contacts=corners,
    )  # fmt: skip
    x0 = free_box.start((0.2, 0.25, 0.15), 0.4)
    ends = [ns.simulate(system, x0=x0, duration=0.24).final_state for system in (by_hand, made)]
    np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=1e-9)


def test_a_ball_slides_off_a_box() -> None:
    """Without friction: on top until its centre is beyond the edge, then round the edge until it leaves."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    ball = ns.Placed(ns.Sphere(0.1), q, coordinates=ns.Coordinates(q, v))
    system = ns.CLS(
        q=q, v=v, mass_matrix=ca.SX.eye(3), force=ca.SX([0, 0, -9.81]), contacts=ns.contacts(ball, BOX, name="box")
    )
    motion = ns.simulate(system, x0=[0.2, 0.0, 0.3, 0.5, 0, 0], duration=0.6)
    assert motion.success, motion.message
    leaves = next(event.time for event in motion.events if event.kind == "release")
    # Round the edge the normal force ends at cos(a) = 2 / 3 + v^2 / (3 g r).
    angle = np.arccos(2 / 3 + 0.5**2 / (3 * 9.81 * 0.1))
    state = motion.x[np.searchsorted(motion.t, leaves)]
    assert np.arctan2(state[0] - 0.4, state[2] - 0.2) == pytest.approx(angle, abs=1e-6)


def test_a_ball_rolls_in_a_bowl_as_a_pendulum() -> None:
    """Without slip: a'' = -5 g sin(a) / (7 (R - r)), for the angle a of the centre in a bowl of radius R."""
    bowl, radius, g, start = 1.0, 0.2, 9.81, 0.6
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    moves = ns.Coordinates(q, v, quaternions=[q[3:]])
    ball = ns.Placed(ns.Sphere(radius), q[:3], q[3:], coordinates=moves)
    hollow = ns.HeightMap(lambda x, y: bowl - ca.sqrt(bowl**2 - x**2 - y**2))
    inertia = 0.4 * radius**2
    system = ns.CLS(
        q=q, v=v, quaternions=[q[3:]], mass_matrix=ca.diag(ca.DM([1, 1, 1, inertia, inertia, inertia])),
        force=ca.vertcat(0, 0, -g, 0, 0, 0), contacts=ns.contacts(ball, hollow, name="bowl", friction=1.0),
    )  # fmt: skip
    arm = bowl - radius
    x0 = [arm * np.sin(start), 0, bowl - arm * np.cos(start), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    motion = ns.simulate(system, x0=x0, duration=1.0)
    assert motion.success, motion.message
    own = solve_ivp(
        lambda t, s: [s[1], -5 / 7 * g / arm * np.sin(s[0])], (0, 1), [start, 0.0], rtol=1e-12, atol=1e-13
    ).y[0, -1]
    expected = [arm * np.sin(own), 0.0, bowl - arm * np.cos(own)]
    np.testing.assert_allclose(motion.final_state[:3], expected, rtol=0, atol=1e-8)


def test_rods_touch_once_where_an_end_stands_on_another() -> None:
    """The crossing of the axes lies beyond the end: it is no second contact."""
    gaps = two_bodies(ns.Capsule(0.05, 1.0), ns.Capsule(0.1, 1.0))[0]
    upright, along_y = (quaternion_of(exp(np.array(turn))) for turn in ([0.0, 0, 0], [np.pi / 2, 0, 0]))
    both = np.concatenate([[0.0, 0.2, 0.65], upright, [0.0, 0.0, 0.0], along_y])
    found = np.sort(np.array(gaps(both, np.zeros(12))[0])[:, 0])
    assert found[0] == pytest.approx(0.0, abs=1e-12)
    assert found[1] > 0.1


def test_a_rod_bounces_where_it_crosses_another() -> None:
    """Both level and crossed, the upper one above the middle of the lower: it falls by 0.1 m and rises again."""
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    moves = ns.Coordinates(q, v, quaternions=[q[3:]])
    rod = ns.Placed(ns.Capsule(0.05, 1.0), q[:3], q[3:], coordinates=moves)
    along_x, along_y = (quaternion_of(exp(np.array(turn))) for turn in ([0, np.pi / 2, 0], [np.pi / 2, 0, 0]))
    fixed = ns.Placed(ns.Capsule(0.1, 1.0), [0, 0, 0], along_y)
    system = ns.CLS(
        q=q, v=v, quaternions=[q[3:]], mass_matrix=ca.diag(ca.DM([1, 1, 1, 0.1, 0.1, 0.01])),
        force=ca.vertcat(0, 0, -9.81, 0, 0, 0), contacts=ns.contacts(rod, fixed, name="rods", restitution=1.0),
    )  # fmt: skip
    fall = np.sqrt(2 * 0.1 / 9.81)
    motion = ns.simulate(system, x0=[0, 0.2, 0.25, *along_x, 0, 0, 0, 0, 0, 0], duration=2 * fall)
    assert [event.kind for event in motion.events] == ["impact"]
    assert motion.impacts[0].time == pytest.approx(fall, abs=1e-10)
    np.testing.assert_allclose(motion.final_state, [0, 0.2, 0.25, *along_x, 0, 0, 0, 0, 0, 0], rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (BOX, ns.Cylinder(1, 1), "Box on Cylinder: a rim touches ground and hills"),
        (ns.Box([1, 1, 1], skin=0.1), BOX, "Box with a skin on a polyhedron: give it without"),
        (
            BOX,
            ns.ConvexPolyhedron(ns.Cylinder(1, 1, points=200).vertices),
            "pairs of edges may cross, and at most 1000",
        ),
        (CAPSULE, ns.Ellipsoid([1, 2, 3]), "Capsule on Ellipsoid: the distance of these is not exact"),
        (CAPSULE, ns.HeightMap(lambda x, y: x), "Capsule on HeightMap: a HeightMap is touched by points"),
        (ns.Box([1, 1, 1], skin=0.1), ns.HeightMap(lambda x, y: x), "Box on HeightMap: its corners have a skin"),
        (ns.Ellipsoid([1, 2, 3]), SPHERE, "not exact"),
        (ns.ConvexPolygon([[0, 0], [1, 0], [0, 1]]), SPHERE, "ConvexPolygon is not a shape in space"),
        (SPHERE, ns.HalfSpace((0, 1)), "HalfSpace is not a shape in space"),
        (SPHERE, "floor", "expected shapes such as"),
    ],
)
def test_what_is_not_exact_is_refused(first: Any, second: Any, said: str) -> None:
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    placed = ns.Placed(first, q[:3], q[3:], coordinates=ns.Coordinates(q, v, quaternions=[q[3:]]))
    with pytest.raises(ns.ModelError, match=said):
        ns.contacts(placed, second)


def test_other_mistakes() -> None:
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    one, other = (ns.Placed(SPHERE, q, coordinates=ns.Coordinates(q, v)) for _ in range(2))
    for call, said in (
        (lambda: ns.contacts(SPHERE, ns.HalfSpace()), "both shapes stand still"),
        (lambda: ns.contacts(one, other), "different coordinates"),
        (lambda: ns.Placed(SPHERE, q[0]), "expected 3 components, or 2 in the plane, given 1"),
        (lambda: ns.Placed(SPHERE, q, ca.SX.eye(2)), r"a matrix \(3, 3\) or a quaternion"),
        (lambda: ns.Coordinates(q, v[:2]), "expected 3 velocities"),
        (lambda: ns.ConvexPolygon([[0, 0], [1, 0], [0.2, 0.2], [0, 1]]), "expected the corners of a convex polygon"),
        (lambda: ns.ConvexPolygon([[0, 0], [1, 0]]), "three or more points"),
        (lambda: ns.Capsule(0.1, -1), "expected a positive number, given -1"),
        (lambda: ns.Cylinder(0.1, 1, points=2), "3 or more on a rim"),
        (lambda: ns.HalfSpace((0, 0, 0)), "not all zero"),
    ):
        with pytest.raises(ns.ModelError, match=said):
            call()
