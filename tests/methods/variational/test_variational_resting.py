"""Bodies that rest, tip over, stick and slide after zeno="settle"; Coulomb's law at one impact and at many points."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import nnls

import nosnoc_py as ns
from nosnoc_py.methods.variational.contacts import solve_contacts, write_jacobian
from nosnoc_py.methods.variational.friction import coulomb, roots_between, slip_direction, tangents
from nosnoc_py.rotations import exp
from tests.methods.variational.rigid_bodies import G, ball, simulate
from tests.pairwise import compiled_row

SLENDER = (0.2, 2.0, 6.0)
TIPPING = math.atan(0.2 / 6.0)
EYE = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)


def tilted_box(lengths: Any, angle: float, friction: float = 0.0, mass: float = 1.0) -> tuple[ns.RigidBody, np.ndarray]:
    """A box that stands on its lower edge, at rest."""
    floor = ns.Plane("floor", restitution=0.0, friction=friction)
    body = ns.RigidBody.uniform(shape=ns.Box(lengths), planes=floor, mass=mass)
    x = body.state((0, 0, 0), rotation=exp(np.array([0, angle, 0])))
    x[2] -= body.gaps(x)[0]
    return body, x


def on_slope(degrees: float, friction: float, mass: float = 1.0) -> tuple[ns.RigidBody, np.ndarray, np.ndarray]:
    """A flat box on a slope, and the direction down it."""
    angle = np.deg2rad(degrees)
    plane = ns.Plane("slope", (np.sin(angle), 0, np.cos(angle)), restitution=0.0, friction=friction)
    body = ns.RigidBody.uniform(shape=ns.Box((2, 2, 0.5)), planes=plane, mass=mass)
    x = body.state((0, 0, 0), rotation=exp(np.array([0, angle, 0])))
    x[:3] -= body.gaps(x)[0] * np.asarray(plane.normal)
    return body, x, np.array([np.cos(angle), 0, -np.sin(angle)])


def tilt(x: np.ndarray) -> np.ndarray:
    """Angle about the second axis of states (..., 18)."""
    return np.arctan2(x[..., 5], x[..., 3])


def step_ends(trajectory: ns.Trajectory, h: float = 0.01) -> np.ndarray:
    """Which nodes are ends of steps, behind impacts at the same time."""
    count = round(float(trajectory.t[-1]) / h)
    return np.isin(trajectory.t, h * np.arange(count + 1)) & np.append(np.diff(trajectory.t) > 0, True)


class TestTipping:
    """A slender box falls over beyond tan a = w / l, and back onto its foot below."""

    @pytest.mark.parametrize(
        ("angle", "falls", "friction", "mass", "duration"),
        [
            (0.0332, False, 0.5, 7.0, 1.0),
            (0.2, True, 0.0, 7.0, 2.5),
            *(
                compiled_row(angle, falls, friction, mass, 10.0)
                for angle, falls in ((0.0332, False), (0.0335, True), (0.2, True))
                for friction in (0.0, 0.5)
                for mass in (1.0, 7.0)
            ),
        ],
    )
    def test_both_sides(self, angle: float, falls: bool, friction: float, mass: float, duration: float) -> None:
        body, x0 = tilted_box(SLENDER, angle, friction, mass)
        trajectory = simulate(body, x0, duration, zeno="settle")
        assert trajectory.success
        assert bool(trajectory["x_2"][-1] == pytest.approx(0.1, abs=1e-9)) is falls
        assert falls or np.abs(tilt(trajectory.x)).max() <= angle
        assert np.diff(trajectory["energy"]).max() < 1e-12 * mass
        assert trajectory["gap[floor]"].min() > -1e-12

    @pytest.mark.parametrize(
        ("angle", "falls", "duration"), [(0.03, False, 1.0), compiled_row(0.03, False, 8.0), (0.05, True, 4.0)]
    )
    def test_square_column(self, angle: float, falls: bool, duration: float) -> None:
        body, x0 = tilted_box((0.2, 0.2, 6), angle)
        assert bool(simulate(body, x0, duration, zeno="settle")["x_2"][-1] < 1.0) is falls

    @staticmethod
    def falling(angle: float, seconds: float, sticks: bool) -> float:
        """The angle by Runge-Kutta: z = (l cos a + w sin a) / 2, with the edge fixed or the centre above its place."""
        width, length = SLENDER[0], SLENDER[2]
        moment = (width**2 + length**2) / 12

        def rate(y: np.ndarray) -> np.ndarray:
            slope = 0.5 * (width * np.cos(y[0]) - length * np.sin(y[0]))
            height = 0.5 * (width * np.sin(y[0]) + length * np.cos(y[0]))
            if sticks:
                return np.array([y[1], -G * slope / (moment + (width**2 + length**2) / 4)])
            return np.array([y[1], (-G * slope + slope * height * y[1] ** 2) / (moment + slope**2)])

        y, h = np.array([angle, 0.0]), seconds / 2000
        for _ in range(2000):
            a = rate(y)
            b = rate(y + h / 2 * a)
            c = rate(y + h / 2 * b)
            y = y + h / 6 * (a + 2 * b + 2 * c + rate(y + h * c))
        return float(y[0])

    @pytest.mark.parametrize(("friction", "allowed"), [compiled_row(0.0, 1e-4), (3.0, 1e-3)])
    def test_motion_of_the_fall(self, friction: float, allowed: float) -> None:
        """It converges to the motion on a smooth edge, or about a fixed one, at least with the first order."""
        body, x0 = tilted_box(SLENDER, 0.3, friction)
        exact = self.falling(0.3, 0.8, friction > 0.0)
        assert exact > 0.45
        errors = [
            abs(float(tilt(simulate(body, x0, 0.8, h=h, zeno="settle").final_state)) - exact)
            for h in (0.02, 0.01, 5e-3)
        ]
        assert errors[1] < allowed
        assert errors[1] < 0.6 * errors[0]
        assert errors[2] < 0.6 * errors[1]

    def test_interpreted_and_compiled_agree(self) -> None:
        pytest.importorskip("numba")
        body, x0 = tilted_box(SLENDER, 0.3, 0.3)
        one, other = (simulate(body, x0, 0.1, zeno="settle", compiled=flag).final_state for flag in (True, False))
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)

    def test_known_by_its_support_only(self) -> None:
        """With one point at a time the shape is still carried, and does not sink."""
        floor = ns.Plane("floor", restitution=0.0)
        body = ns.RigidBody(shape=ns.SupportFunction(ns.Sphere(0.5).support), planes=floor, inertia=(0.1, 0.1, 0.1))
        x0 = body.state((0, 0, 0.5), (0.3, 0, 0))
        end = simulate(body, x0, 0.2, zeno="settle").final_state
        np.testing.assert_allclose(end[[0, 2]], (0.06, 0.5), rtol=0, atol=1e-12)


class TestSlope:
    @pytest.mark.parametrize(("mass", "duration"), [(5.0, 2.0), compiled_row(1.0, 100.0), compiled_row(5.0, 100.0)])
    def test_a_sticking_body_does_not_move_at_all(self, mass: float, duration: float) -> None:
        body, x0, _ = on_slope(30.0, 0.8, mass)
        trajectory = simulate(body, x0, duration, zeno="settle")
        assert trajectory.success
        assert (trajectory.x == x0).all()

    @pytest.mark.parametrize(("settled", "duration"), [(1.0, 2.0), compiled_row(5.0, 30.0)])
    def test_it_lands_and_stays(self, settled: float, duration: float) -> None:
        """Dropped flat onto the slope: still from the impact on, to the last bit."""
        body, x0, _ = on_slope(20.0, 0.6)
        x0[:3] += 0.3 * np.asarray(body.planes[0].normal)
        trajectory = simulate(body, x0, duration, zeno="settle")
        late = trajectory.x[trajectory.t > settled]
        assert (late == late[0]).all()
        assert (late[0, 12:] == 0.0).all()

    @pytest.mark.parametrize(("friction", "mass"), [(0.0, 1.0), (0.2, 1.0), (0.5, 4.0)])
    def test_a_sliding_body_has_the_acceleration_of_coulomb(self, friction: float, mass: float) -> None:
        body, x0, down = on_slope(30.0, friction, mass)
        trajectory = simulate(body, x0, 2.0, zeno="settle")
        rate = G * (0.5 - friction * np.sqrt(0.75))
        end = trajectory.final_state
        np.testing.assert_allclose(end[12:15], mass * 2 * rate * down, rtol=0, atol=1e-9)
        np.testing.assert_allclose(end[:3] - x0[:3], 2 * rate * down, rtol=0, atol=1e-9)
        np.testing.assert_allclose(end[15:], 0.0, rtol=0, atol=1e-10)
        assert np.diff(trajectory["energy"]).max() < 1e-12 * mass

    def test_a_sliding_body_stops(self) -> None:
        """v / mu g after it was pushed; behind that it does not move at all."""
        floor = ns.Plane("floor", restitution=0.0, friction=0.4)
        body = ns.RigidBody.uniform(shape=ns.Box((2, 2, 0.5)), planes=floor, mass=2.0)
        trajectory = simulate(body, body.state((0, 0, 0.25), (4, 2, 0)), 2.0, zeno="settle")
        speed = np.sqrt(5.0)
        still = trajectory.t > speed / (0.4 * G) + 0.01
        assert (trajectory.x[still] == trajectory.final_state).all()
        assert not (trajectory.x[trajectory.t < speed / (0.4 * G) - 0.01, 12:14] == 0.0).any(axis=1).any()
        # the last step, which is shorter, is of first order
        way = speed**2 / (0.8 * G)
        np.testing.assert_allclose(trajectory.final_state[:2], way * np.array([2, 1]) / speed, rtol=0, atol=4e-4)

    def test_the_mass_does_not_matter(self) -> None:
        """A tumbling box on a rough slope: the same motion, momenta with the mass."""
        ends = []
        for mass in (1.0, 3.0):
            body, x0, _ = on_slope(25.0, 0.3, mass)
            x0 = body.state(
                x0[:3] + np.array((0, 0, 1.0)), (0, 0.5 * mass, 0), np.asarray(body.inertia) @ (1.0, 2.0, -0.5)
            )
            trajectory = simulate(body, x0, 1.5, zeno="settle")
            assert any(event.kind == "impact" for event in trajectory.events)
            ends.append(trajectory.final_state / np.append(np.ones(12), np.full(6, mass)))
        np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=1e-7)


class TestWedge:
    SIDES = ((1, 0, 1), (-1, 0, 1))

    def planes(self, restitution: float, friction: float) -> tuple[ns.Plane, ...]:
        return tuple(ns.Plane(f"side {k}", n, 0.0, restitution, friction) for k, n in enumerate(self.SIDES))

    @pytest.mark.parametrize(("settled", "duration"), [(1.0, 1.5), compiled_row(4.0, 5.0)])
    def test_a_ball_at_rest_has_no_momentum(self, settled: float, duration: float) -> None:
        body = ns.RigidBody.uniform(shape=ns.Sphere(0.5), planes=self.planes(0.0, 0.2))
        x0 = body.state((0.1, 0, 1.0))
        trajectory = simulate(body, x0, duration, zeno="settle")
        end = trajectory.final_state
        np.testing.assert_allclose(end[[0, 2]], (0.0, 0.5 * np.sqrt(2)), rtol=0, atol=1e-6)
        assert (end[12:] == 0.0).all()
        assert (trajectory.x[trajectory.t > settled] == end).all()

    @pytest.mark.parametrize(("friction", "duration"), [(0.5, 2.0), compiled_row(0.0, 8.0), compiled_row(0.5, 8.0)])
    def test_energy_and_gaps_from_step_to_step(self, friction: float, duration: float) -> None:
        normals = [(1, 0, 2), (-1, 0, 2)]
        planes = [ns.Plane(f"side {k}", n, 0.0, 0.5, friction) for k, n in enumerate(normals)]
        points = [(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)]
        body = ns.RigidBody.uniform(shape=ns.ConvexPolyhedron(points), planes=planes, mass=2.0)
        x0 = body.state((0.1, 0, 3.0), (1, 0.5, 0), np.asarray(body.inertia) @ (1, 2, 0.5))
        trajectory = simulate(body, x0, duration, zeno="settle")
        assert trajectory.success
        assert any(event.kind == "contact" for event in trajectory.events)
        ends = step_ends(trajectory)
        assert ends.sum() == round(100 * duration) + 1
        assert np.diff(trajectory["energy"][ends]).max() < 1e-11
        assert min(trajectory[f"gap[side {k}]"][ends].min() for k in range(2)) > -1e-11

    def test_energy_that_an_impact_takes_is_gone(self) -> None:
        """A ball slides on the floor between walls with restitution 1/2: v is halved by every one of them."""
        planes = (
            ns.Plane("floor", restitution=0.0),
            ns.Plane("left", (1, 0, 0), -3.0, restitution=0.5),
            ns.Plane("right", (-1, 0, 0), -3.0, restitution=0.5),
        )
        body = ball(*planes)
        trajectory = simulate(body, body.state((0, 0, 2), (4, 0, 0)), 6.0, zeno="settle")
        impacts = trajectory.impacts
        assert [event.name for event in impacts] == ["right", "left", "right"][: len(impacts)]
        assert [event.time for event in impacts] == pytest.approx([0.25, 1.25, 3.25][: len(impacts)], abs=1e-9)
        assert len(impacts) == 3
        ends = step_ends(trajectory)
        t, energy = trajectory.t[ends], trajectory["energy"][ends] - 2 * G
        hits = np.array([0.25, 1.25, 3.25])
        expected = 8.0 * 0.25 ** np.searchsorted(hits, t)
        apart = np.abs(t[:, None] - hits).min(axis=1) > 1e-3
        np.testing.assert_allclose(energy[apart], expected[apart], rtol=0, atol=1e-10)

    def test_walls_are_hit_in_the_step_of_settling(self) -> None:
        """Many impacts on the floor within a step do not make one on a wall the last one of that."""
        planes = (
            ns.Plane("floor", restitution=0.5),
            ns.Plane("left", (1, 0, 0)),
            ns.Plane("right", (-1, 0, 0), offset=-4.1),
        )
        body = ball(*planes)
        trajectory = simulate(body, body.state((2.05, 0, 2.05), (30.0, 0, 0)), 0.6, zeno="settle", max_impacts=20)
        rests = [event for event in trajectory.events if event.kind == "contact"]
        assert [event.name for event in rests] == ["floor"]
        assert abs(trajectory.final_state[12]) == pytest.approx(30.0, abs=1e-9)
        times = [event.time for event in trajectory.impacts if event.name != "floor"]
        np.testing.assert_allclose(times, (0.05 + 0.1 * np.arange(len(times))) / 30, rtol=0, atol=1e-9)
        assert len(times) == 180


@pytest.mark.quick
class TestManyPoints:
    """`solve_contacts` for random points of a box under two planes."""

    def problem(self, seed: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        random = np.random.default_rng(seed)
        mass, lengths = float(np.exp(random.uniform(-1, 1))), np.exp(random.uniform(-1, 1, 3))
        moments = mass / 12 * ((lengths**2).sum() - lengths**2)
        body = (mass, (0.0, 0.0, -G), tuple(np.diag(moments).ravel()), tuple(np.diag(1 / moments).ravel()))
        count = int(random.integers(1, 9))
        rows = np.empty((count, 3, 6))
        normals = [np.array([*random.uniform(-1, 1, 2), 1.0]) for _ in range(2)]
        for row in rows:
            normal = normals[random.integers(2)]
            place = lengths / 2 * random.choice([-1.0, 1.0], 3)
            write_jacobian(row, np.append(normal / np.linalg.norm(normal), (0, 0, 0)), EYE, tuple(place))
        return body, rows, np.diag([mass] * 3 + list(moments)), random.standard_normal(6) - np.eye(6)[2]

    @pytest.mark.parametrize("seed", range(25))
    def test_without_friction_it_is_the_nearest_velocity(self, seed: int) -> None:
        """min (w - w_free) . M (w - w_free) / 2 over J w >= 0, here by nonnegative least squares for its dual."""
        body, rows, inertia, free = self.problem(seed)
        count = len(rows)
        impulses = np.zeros((count, 3))
        w = solve_contacts(body, rows, np.zeros(count), np.zeros(count), impulses, free)
        root = np.linalg.cholesky(inertia)
        normal = rows[:, 0] @ np.linalg.inv(root).T
        found, _ = nnls(normal.T, -root.T @ free)
        np.testing.assert_allclose(w, free + np.linalg.solve(inertia, rows[:, 0].T @ found), rtol=0, atol=1e-9)
        assert (impulses[:, 1:] == 0.0).all()
        assert (impulses[:, 0] >= 0.0).all()

    @pytest.mark.parametrize("seed", range(25))
    def test_law_of_coulomb(self, seed: int) -> None:
        body, rows, inertia, free = self.problem(seed)
        count = len(rows)
        impulses = np.zeros((count, 3))
        w = solve_contacts(body, rows, np.zeros(count), np.full(count, 0.3), impulses, free)
        np.testing.assert_allclose(inertia @ (w - free), np.einsum("irj,ir->j", rows, impulses), rtol=0, atol=1e-11)
        for (normal, *tangential), (velocity, *slip) in zip(impulses, rows @ w, strict=True):
            assert velocity > -1e-9
            assert normal >= 0.0
            assert abs(velocity * normal) < 1e-9
            assert np.hypot(*tangential) <= 0.3 * normal * (1 + 1e-12)
            np.testing.assert_allclose(
                np.hypot(*slip) * np.array(tangential), -0.3 * normal * np.array(slip), rtol=0, atol=1e-9
            )

    def test_impulses_are_taken_back(self) -> None:
        """Two points that start with impulses a free velocity does not need."""
        body, rows, _, _ = self.problem(0)
        impulses = np.ones((len(rows), 3))
        away = rows[:, 0].sum(axis=0) * (1, 1, 1, 0, 0, 0)
        w = solve_contacts(body, rows, np.zeros(len(rows)), np.full(len(rows), 0.3), impulses, away)
        assert (impulses == 0.0).all()
        np.testing.assert_allclose(w, away, rtol=0, atol=1e-12)


class TestOneImpact:
    """`coulomb` against a scan of all directions of slip."""

    @staticmethod
    def problem(seed: int) -> tuple[np.ndarray, np.ndarray, float, float]:
        random = np.random.default_rng(seed)
        lengths = np.exp(random.uniform(-1, 1, 3))
        moments = ((lengths**2).sum() - lengths**2) / 12
        arm = random.standard_normal(3)
        arm *= lengths / 2 / np.abs(arm).max()
        hat = np.cross(np.eye(3), arm)
        turn = np.linalg.qr(random.standard_normal((3, 3)))[0]
        weights = np.eye(3) + turn.T @ hat @ np.diag(1 / moments) @ hat.T @ turn
        u = random.standard_normal(3)
        u[2] = -abs(u[2])
        return 0.5 * (weights + weights.T), u, float(random.random()), float(random.uniform(0.1, 1.5))

    @staticmethod
    def scanned(weights: np.ndarray, u: np.ndarray, restitution: float, friction: float) -> np.ndarray:
        """Directions of slip in which slip and friction are opposite, to a fine grid."""
        angle = np.linspace(-np.pi, np.pi, 20001)
        c, s = np.cos(angle), np.sin(angle)
        value = -(1 + restitution) * u[2] / (weights[2, 2] - friction * (weights[2, 0] * c + weights[2, 1] * s))
        slip = u[:, None] + weights @ np.stack([-friction * value * c, -friction * value * s, value])
        across, along = c * slip[1] - s * slip[0], c * slip[0] + s * slip[1]
        ahead = (value > 0) & (along > 0)
        return angle[:-1][(across[:-1] * across[1:] <= 0) & ahead[:-1] & ahead[1:]]

    def test_nearest_root(self) -> None:
        slides = 0
        for seed in range(300):
            weights, u, restitution, friction = self.problem(seed)
            flat, velocity = tuple(weights.ravel()), tuple(u)
            p = np.array(coulomb(flat, velocity, restitution, friction))
            after = u + weights @ p
            assert after[2] == pytest.approx(-restitution * u[2], abs=1e-12)
            slip = np.hypot(after[0], after[1])
            assert np.hypot(p[0], p[1]) <= friction * p[2] * (1 + 1e-12)
            np.testing.assert_allclose(slip * p[:2], -friction * p[2] * after[:2], rtol=0, atol=1e-11)
            if slip < 1e-12:
                continue
            slides += 1
            found, angle = slip_direction(flat, velocity, restitution, friction)
            roots = self.scanned(weights, u, restitution, friction)
            assert found
            nearest = roots[np.argmax(np.cos(roots - np.arctan2(u[1], u[0])))]
            assert np.cos(angle - nearest) > np.cos(1e-3)
        assert slides > 100

    def test_a_root_between_two_close_ones(self) -> None:
        """It was missed by a search in 24 sectors."""
        u = (-1.39043049, -1.50617545, -0.0887995825)
        weights = (
            21.7082480, 1.23788195, -8.38141265, 1.23788195, 7.66811170, 2.86792650,
            -8.38141265, 2.86792650, 6.11347457,
        )  # fmt: skip
        p = np.array(coulomb(weights, u, 0.805955, 1.09526))
        np.testing.assert_allclose(p, (0.0576, 0.0610, 0.0766), rtol=0, atol=1e-4)
        after = u + np.reshape(weights, (3, 3)) @ p
        np.testing.assert_allclose(np.hypot(*after[:2]) * p[:2], -1.09526 * p[2] * after[:2], rtol=0, atol=1e-12)
        # along the slip before, which it was then, the law does not hold
        wrong = np.array((0.0543, 0.0588, 0.0731))
        after = u + np.reshape(weights, (3, 3)) @ wrong
        assert np.abs(np.hypot(*after[:2]) * wrong[:2] + 1.09526 * wrong[2] * after[:2]).max() > 1e-3

    def test_roots_of_a_polynomial(self) -> None:
        random = np.random.default_rng(2)
        for _ in range(100):
            roots = np.sort(random.uniform(-2, 2, 4))
            found = roots_between(np.poly(roots)[::-1].copy(), -1.0, 1.0)
            expected = roots[np.abs(roots) <= 1.0]
            if np.diff(roots).min() > 1e-2:
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
        np.testing.assert_allclose(roots_between(np.array((0.25, -1.0, 1.0, 0.0, 0.0)), -1.0, 1.0), 0.5, atol=1e-7)
        assert roots_between(np.array((1.0, 0.0, 1.0, 0.0, 0.0)), -1.0, 1.0).size == 0

    @pytest.mark.parametrize("normal", [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, 0, -1), (0.8, 0.6, 0), (0.79, 0.6131, 0)])
    def test_tangents(self, normal: Any) -> None:
        unit = np.array(normal) / np.linalg.norm(normal)
        frame = np.array([*tangents(tuple(unit)), unit])
        np.testing.assert_allclose(frame @ frame.T, np.eye(3), rtol=0, atol=1e-15)
        assert np.linalg.det(frame) == pytest.approx(1.0)

    @pytest.mark.parametrize("mass", [1.0, 3.0])
    def test_friction_on_a_wall(self, mass: float) -> None:
        """A ball thrown against (1, 0, 0): 2/7 of its slip is lost when it sticks, mu (1 + e) v_n when it slides."""
        for friction, expected in ((2.0, 5 / 7 * 1.5), (0.05, 1.5 - 0.05 * 1.6 * 2.0)):
            wall = ns.Plane("wall", (1, 0, 0), restitution=0.6, friction=friction)
            body = ns.RigidBody(shape=ns.Sphere(2.0), planes=wall, mass=mass, inertia=[1.6 * mass] * 3, gravity=0.0)
            end = simulate(body, body.state((2.5, 0, 0), mass * np.array((-2.0, 1.5, 0))), 0.5).final_state
            np.testing.assert_allclose(end[12:15] / mass, (1.2, expected, 0), rtol=0, atol=1e-12)
