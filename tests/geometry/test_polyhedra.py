"""Boxes and convex polyhedra on each other: random poses, aligned ones, and motions with closed forms."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import linprog

import nosnoc_py as ns
from nosnoc_py.geometry.pairs import polyhedra
from nosnoc_py.rotations import exp, quaternion_of, rotation_of
from tests.geometry.test_pairs import SHAPES, distance_of, turn_of

pytestmark = pytest.mark.quick
BOX, SOLID = SHAPES[ns.Box], SHAPES[ns.ConvexPolyhedron]
PLATE, BEAM = ns.Box([1.5, 1.0, 0.02]), ns.Box([2.0, 0.05, 0.05])
G, SIDE = 9.81, 0.1
CUBE = ns.Box([SIDE] * 3)
TABLE = ns.Box([1, 1, 0.2], center=(-0.5, 0, -0.1))


def touches(first: Any, second: Any) -> ca.Function:
    """Positions and attitudes of two bodies -> gaps, normals and points as columns, slopes of the gaps."""
    q, v = ca.SX.sym("q", 6), ca.SX.sym("v", 6)
    turns, moves = [ca.SX.sym("turn", 3, 3) for _ in range(2)], ns.Coordinates(q, v)
    one, other = (
        ns.Placed(shape, q[k : k + 3], turn, coordinates=moves)
        for shape, k, turn in zip((first, second), (0, 3), turns, strict=True)
    )
    found = polyhedra.corners_and_crossings(one, other)
    gaps = ca.vertcat(*[touch.gap for touch in found])
    # Out of the second body, for corners of either.
    normals = ca.horzcat(*[touch.normal if touch.on is one else -touch.normal for touch in found])
    points = ca.horzcat(*[touch.point for touch in found])
    return ca.Function("touches", [q, *turns], [gaps, normals, points, ca.jacobian(gaps, q)])


def planes_of(shape: Any, place: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normals (n, 3) and offsets (n,) of a body in the world."""
    normals = shape.normals @ turn.T
    return normals, normals @ place - shape.offsets


def way_to_the_touch(first: Any, second: Any, place: np.ndarray, turns: list[np.ndarray], way: np.ndarray) -> float:
    """How far the first body goes along a way from inside of the second one until they touch: a linear program."""
    (a, above), (b, beyond) = (
        planes_of(shape, at, turn)
        for shape, at, turn in zip((first, second), (place[:3], place[3:]), turns, strict=True)
    )
    rows = np.vstack([np.column_stack([a, -a @ way]), np.column_stack([b, np.zeros(len(b))])])
    found = linprog([0, 0, 0, -1], A_ub=rows, b_ub=np.concatenate([above, beyond]), bounds=[(None, None)] * 4)
    return float(found.x[3])


@pytest.mark.parametrize(
    ("first", "second"),
    [(BOX, BOX), (BOX, SOLID), (SOLID, SOLID), (PLATE, PLATE), (PLATE, BEAM)],
    ids=["boxes", "box and solid", "solids", "plates", "plate and beam"],
)
def test_gaps_are_zero_at_the_touch_and_positive_apart(first: Any, second: Any) -> None:
    """200 poses each: distances by least squares of hulls, touches by linear programs."""
    call, rng, apart = touches(first, second), np.random.default_rng(1), 0
    for _ in range(200):
        place, turns = rng.normal(size=6) * 0.5, [turn_of(rng, 3) for _ in range(2)]
        expected = distance_of(first, second, place, turns)
        if expected is not None:
            apart += 1
            assert call(place, *turns)[0].full().min() > 0.0
        # The first body starts with its middle inside of the other one.
        way, middles = rng.normal(size=3), [shape.vertices.mean(0) for shape in (first, second)]
        place = np.concatenate([turns[1] @ middles[1] - turns[0] @ middles[0], np.zeros(3)])
        place[:3] += way_to_the_touch(first, second, place, turns, way) * way
        gaps, normals, points, slopes = (np.array(value) for value in call(place, *turns))
        least = int(np.argmin(gaps))
        normal, point = normals[:, least], points[:, least]
        assert abs(gaps[least, 0]) < 1e-9
        np.testing.assert_allclose(slopes[least], [*normal, *-normal], rtol=0, atol=1e-9)
        for shape, at, turn, sign in ((first, place[:3], turns[0], 1), (second, place[3:], turns[1], -1)):
            rows, offsets = planes_of(shape, at, turn)
            assert (rows @ point - offsets).max() < 1e-9
            # The plane through the point separates both.
            assert (sign * (at + shape.vertices @ turn.T - point) @ normal).min() > -1e-9
    assert apart > 60


def closed_at(place: list[float], turn: list[float], below: Any = CUBE) -> list[int]:
    """Numbers of the contacts that a cube has with another body at the origin: 16 of corners, then crossings."""
    gaps = touches(CUBE, below)(np.array([*place, 0, 0, 0]), exp(np.array(turn, float)), np.eye(3))[0]
    return np.flatnonzero(np.abs(gaps.full()[:, 0]) < 1e-9).tolist()


@pytest.mark.parametrize("shift", [0.0, 1e-17, -1e-13])
def test_aligned_cubes_stand_on_corners_and_turned_ones_on_crossings(shift: float) -> None:
    """Four corners of each; of the star of two squares eight crossings. Rounding does not choose."""
    for place in ([shift, -shift, SIDE], [SIDE, shift, -shift]):  # on top, and beside
        closed = closed_at(place, [0, 0, shift])
        assert len(closed) == 8
        assert max(closed) < 16
    for turn in (np.pi / 4, np.pi / 6, 0.02):
        closed = closed_at([shift, 0, SIDE], [0, 0, turn])
        assert len(closed) == 8
        assert min(closed) >= 16


@pytest.mark.parametrize(("steps", "corners", "crossings"), [(0.5, 4, 0), (1.5, 4, 2), (2.5, 2, 2)])
def test_a_border_is_passed_by_crossings_before_corners_leave(steps: float, corners: int, crossings: int) -> None:
    """The front of a cube is beyond the border of a table by some steps of a tenth of a micrometre."""
    step = polyhedra.STEP * SIDE * 0.75**0.5
    closed = closed_at([steps * step - SIDE / 2, 0, SIDE / 2], [0, 0, 0], TABLE)
    assert [sum(k < 16 for k in closed), sum(k >= 16 for k in closed)] == [corners, crossings]


def scene(bodies: list[Any], pairs: list[tuple[int, int]], table: Any, mu: float) -> ns.CLS:
    """Free boxes of 1 kg on a shape that stands still."""
    n = len(bodies)
    q, v = ca.SX.sym("q", 7 * n), ca.SX.sym("v", 6 * n)
    quaternions = [q[7 * k + 3 : 7 * k + 7] for k in range(n)]
    moves = ns.Coordinates(q, v, quaternions=quaternions)
    placed = [ns.Placed(s, q[7 * k : 7 * k + 3], quaternions[k], coordinates=moves) for k, s in enumerate(bodies)]
    masses, force, contacts = [], [], []
    for k, shape in enumerate(bodies):
        square = (2 * shape.half) ** 2
        inertia, w = ca.DM((square.sum() - square) / 12), v[6 * k + 3 : 6 * k + 6]
        masses += [1, 1, 1, inertia]
        force += [0, 0, -G, -ca.cross(w, inertia * w)]
        contacts += ns.contacts(placed[k], table, name=f"table {k}", friction=mu) if k == 0 else []
    for a, b in pairs:
        contacts += ns.contacts(placed[b], placed[a], name=f"{b} on {a}", friction=mu)
    return ns.CLS(
        q=q, v=v, quaternions=quaternions, mass_matrix=ca.diag(ca.vertcat(*masses)), force=ca.vertcat(*force),
        contacts=contacts,
    )  # fmt: skip


def start(*bodies: tuple[Any, Any, Any]) -> np.ndarray:
    """Positions, rotation vectors and velocities (3,) or (6,) -> x0."""
    q = [[*place, *quaternion_of(exp(np.array(turn, float)))] for place, turn, _ in bodies]
    return np.concatenate([*q, *[[*velocity, 0, 0, 0][:6] for *_, velocity in bodies]])


def energy(x: np.ndarray) -> float:
    """Of cubes of 1 kg."""
    n = x.size // 13
    masses = np.tile([1, 1, 1, *[SIDE**2 / 6] * 3], n)
    return float(0.5 * masses @ x[7 * n :] ** 2 + G * x[2 : 7 * n : 7].sum())


def depth(x: np.ndarray, first: int, second: Any) -> float:
    """Radius of the largest ball inside of a cube and of another one, or of a shape that stands still; <= 0 apart."""

    def planes(k: Any) -> tuple[np.ndarray, np.ndarray]:
        if not isinstance(k, int):
            return planes_of(k, np.zeros(3), np.eye(3))
        return planes_of(CUBE, x[7 * k : 7 * k + 3], rotation_of(x[7 * k + 3 : 7 * k + 7]))

    rows, offsets = (np.concatenate(part) for part in zip(planes(first), planes(second), strict=True))
    columns = np.column_stack([rows, np.ones(len(rows))])
    return float(linprog([0, 0, 0, -1], A_ub=columns, b_ub=offsets, bounds=[(None, None)] * 4).x[3])


def check(motion: Any, first: int, second: Any) -> None:
    """Energy never grows, and nothing overlaps, seen by an independent program."""
    assert motion.status is ns.Status.SOLVED
    assert max(np.diff([energy(x) for x in motion.x])) < 1e-9
    assert max(depth(x, first, second) for x in motion.x[:: max(1, len(motion.x) // 20)]) < 1e-7


def test_a_cube_slides_to_rest() -> None:
    """After v^2 / (2 mu g), on its corners."""
    motion = ns.simulate(
        scene([CUBE], [], TABLE, 0.3), x0=start(((-0.3, 0, 0.05), (0, 0, 0), (0.8, 0.6, 0))), duration=0.4
    )
    check(motion, 0, TABLE)
    way = 1.0 / (2 * 0.3 * G)
    np.testing.assert_allclose(motion.final_state[:3], [0.8 * way - 0.3, 0.6 * way, 0.05], rtol=0, atol=1e-9)
    assert [event.time for event in motion.events] == pytest.approx([1.0 / (0.3 * G)] * 4, abs=1e-9)


def test_a_cube_is_pushed_over_the_border_and_tips() -> None:
    """Its rear corners open when the resultant of weight and friction passes the border, mu h before its centre."""
    motion = ns.simulate(
        scene([CUBE], [], TABLE, 0.3), x0=start(((-0.25, 0, 0.05), (0, 0, 0), (1.3, 0, 0))), duration=0.6
    )
    check(motion, 0, TABLE)
    opened = {event.name: event.time for event in motion.events if event.kind == "release"}
    fronts = (-0.25 + 1.3 * t - 0.15 * G * t**2 + 0.05 for t in sorted(opened.values())[:2])
    assert list(fronts) == pytest.approx([0.0, 0.0], abs=1e-6)
    tips = sorted(opened.values())[2]
    assert motion(tips)[0] == pytest.approx(-0.3 * 0.05, abs=1e-8)
    assert motion.final_state[2] < -0.2
    # It turns over the border, about y alone.
    assert np.abs(motion.final_state[[1, 4, 6, 8, 10, 12]]).max() < 1e-9
    assert motion.final_state[11] > 5.0


@pytest.mark.parametrize(("turn", "shift"), [(0.0, 0.0), (np.pi / 4, 0.0), (np.pi / 6, 0.01)])
def test_a_cube_falls_on_another_one_and_stays(turn: float, shift: float) -> None:
    """Aligned, as a star, turned beside the middle."""
    x0 = start(((0, 0, 0.05), (0, 0, 0), (0, 0, 0)), ((shift, 0, 0.16), (0, 0, turn), (0, 0, 0)))
    motion = ns.simulate(scene([CUBE, CUBE], [(0, 1)], ns.HalfSpace(), 0.5), x0=x0, duration=0.08)
    check(motion, 0, 1)
    assert motion.events[0].time == pytest.approx(np.sqrt(0.02 / G), abs=1e-9)
    rest = x0 - 0.01 * (np.arange(26) == 9)
    np.testing.assert_allclose(motion.final_state, rest, rtol=0, atol=1e-9)


def test_a_tilted_cube_lands_on_the_edge_of_another_one() -> None:
    """Which meets its lower face: after the fall through the height of that face over the edge."""
    x0 = start(((0, 0, 0.05), (0, 0, 0), (0, 0, 0)), ((0.06, 0, 0.19), (0, 0.4, 0), (0, 0, 0)))
    motion = ns.simulate(scene([CUBE, CUBE], [(0, 1)], ns.HalfSpace(), 0.5), x0=x0, duration=0.1)
    check(motion, 0, 1)
    face = 0.19 - (0.05 - (0.06 - 0.05) * np.sin(0.4)) / np.cos(0.4)
    assert motion.events[0].time == pytest.approx(np.sqrt(2 * (face - 0.1) / G), abs=1e-9)
    assert motion.final_state[-2] > 1.0  # it turns about the edge


def test_edges_that_cross_touch_in_a_point() -> None:
    """Two cubes on their edges, crossed: the upper one falls with its edge across that of the other one."""
    placed = ns.Box([SIDE] * 3, rotation=exp(np.array([np.pi / 4, 0, 0])))  # an edge along x on top
    half = SIDE / 2**0.5
    x0 = start(((0.02, 0.0, 2 * half + 0.01), (0, np.pi / 4, 0), (0, 0, 0)))
    motion = ns.simulate(scene([CUBE], [], placed, 0.5), x0=x0, duration=0.05)
    check(motion, 0, placed)
    assert [event.kind for event in motion.events][:2] == ["impact", "contact"]
    assert motion.events[0].time == pytest.approx(np.sqrt(0.02 / G), abs=1e-9)


def test_steps_in_time_do_the_same() -> None:
    """A step passes the border at once: gaps beyond it must not seem to close. 1e-4 m is the error of first order."""
    system, x0 = scene([CUBE], [], TABLE, 0.3), start(((-0.25, 0, 0.05), (0, 0, 0), (1.3, 0, 0)))
    motion, exact = (
        ns.simulate(system, x0=x0, duration=0.6, method=method) for method in (ns.TimeStepping(step=1e-3), None)
    )
    np.testing.assert_allclose(motion.final_state[:3], exact.final_state[:3], rtol=0, atol=1e-4)


def test_an_edge_leaves_at_its_corner() -> None:
    """It slips along the edge of a block: its corner passes the border, and the next edge crosses it. No impact."""
    block = ns.Box([0.3, 0.3, 0.2], center=(0, 0, -0.1))
    velocity = (0.134, -0.161, 0.174, 1.094, 0.882, 0.085)
    x0 = start(((0.0047, 0.1802, 0.15), (0.33, -1.303, 0.905), velocity))
    motion = ns.simulate(scene([CUBE], [], block, 0.4), x0=x0, duration=0.2)
    check(motion, 0, block)
    told = [(event.name, event.kind) for event in motion.events]
    k = told.index(("table 0 26", "release"))
    assert told[k - 1] == ("table 0 50", "contact")
    assert motion.events[k].time - motion.events[k - 1].time < 1e-6
    assert motion.impacts[-1].time < motion.events[k].time - 0.01
    # Steps in time see the gap of the corner from above the border: it must not be that over the face beside it.
    steps = ns.simulate(
        scene([CUBE], [], block, 0.4), x0=x0, duration=0.2, method=ns.TimeStepping(step=1e-4, rest_velocity=0.0)
    )
    assert steps.success, steps.message
    assert steps.x[-1] == pytest.approx(motion.x[-1], abs=0.02)


@pytest.mark.parametrize(("yaw", "duration"), [(0.2, 0.5), (0.001, 0.12)])
def test_a_turned_cube_slides_over_the_border_without_spinning(yaw: float, duration: float) -> None:
    """Friction is central until it tips; contacts that leave their ranges must not hold, whatever the duration is."""
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    placed = ns.Placed(CUBE, q[:3], q[3:], coordinates=ns.Coordinates(q, v, quaternions=[q[3:]]))
    inertia = SIDE**2 / 6
    system = ns.CLS(
        q=q, v=v, quaternions=[q[3:]], mass_matrix=ca.diag(ca.DM([1, 1, 1, *[inertia] * 3])),
        force=[0, 0, -G, 0, 0, 0], contacts=ns.contacts(placed, TABLE, friction=0.3),
    )  # fmt: skip
    x0 = [-0.06, 0, SIDE / 2, *quaternion_of(exp(np.array([0, 0, yaw]))), 0.6, 0, 0, 0, 0, 0]
    motion = ns.simulate(system, x0=x0, duration=duration)
    assert motion.success, motion.message
    before = motion.t < 0.09
    assert np.abs(motion.x[before, 12]).max() < 1e-9
    assert motion(0.09)[7] == pytest.approx(0.6 - 0.3 * G * 0.09, abs=1e-9)
