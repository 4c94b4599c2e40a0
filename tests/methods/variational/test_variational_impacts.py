"""Impacts of the variational integrator: restitution, Zeno, friction, several planes, all shapes, sub-sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from tests.methods.variational.rigid_bodies import ELLIPSOID, FLOOR, G, ball, case, cube, drift, simulate, start
from tests.pairwise import compiled_row, slow_row

ZENO_TIME = 15.729601826324943


def floor(restitution: float = 1.0, friction: float = 0.0) -> ns.Plane:
    return ns.Plane("floor", restitution=restitution, friction=friction)


def falls(body: ns.RigidBody, height: float, velocity: Any = (0, 0, 0), spin: Any = (0, 0, 0)) -> np.ndarray:
    """A state at a height; `spin` is the angular velocity."""
    return body.state((0, 0, height), body.mass * np.array(velocity), np.asarray(body.inertia) @ spin)


class TestRestitution:
    def test_newton(self) -> None:
        body = ns.RigidBody(shape=ELLIPSOID, planes=floor(0.6), inertia=(5, 4, 2.6))
        trajectory = simulate(body, start(body), 6.0)
        assert len(trajectory.impacts) >= 3
        for event in trajectory.impacts:
            assert event.v_after == pytest.approx(-0.6 * event.v_before, rel=1e-12)
            assert event.energy_gain == pytest.approx(-0.5 * event.impulse * 0.4 * -event.v_before, rel=1e-12)
        lost = sum(event.energy_gain for event in trajectory.impacts)
        assert trajectory["energy"][-1] - trajectory["energy"][0] == pytest.approx(lost, abs=1e-11)

    @pytest.mark.parametrize(("spin", "allowed"), [(0.0, 1e-10), (4.0, 1e-7)])
    def test_zeno_time_of_a_ball(self, spin: float, allowed: float) -> None:
        """With a spin the height of the lowest point is rounded anew at every time: bounces below 1e-7 m/s are lost."""
        body = ball(floor(0.8))
        trajectory = simulate(body, body.state((0, 0, 10), (2, 2, 10), (spin, -spin, spin)), 20.0)
        assert trajectory.status is ns.Status.ZENO
        assert trajectory.t[-1] == pytest.approx(ZENO_TIME, abs=allowed)
        assert "zeno='settle'" in trajectory.message
        assert len(trajectory.impacts) > 60

    def test_guard_against_zeno(self) -> None:
        """Fewer impacts in a step stop earlier."""
        body = ball(floor(0.8))
        trajectory = simulate(body, start(body), 20.0, max_impacts=3)
        assert trajectory.status is ns.Status.ZENO
        assert ZENO_TIME - 0.1 < trajectory.t[-1] < ZENO_TIME - 1e-3

    def test_ball_settles(self) -> None:
        body = ball(floor(0.8))
        trajectory = simulate(body, start(body), 20.0, zeno="settle")
        assert trajectory.success
        contact = trajectory.events[-1]
        assert (contact.kind, contact.name) == ("contact", "floor")
        assert contact.time == pytest.approx(ZENO_TIME, abs=1e-7)
        np.testing.assert_allclose(trajectory.final_state[:3], (40, 40, 2), rtol=0, atol=1e-9)
        np.testing.assert_allclose(trajectory.final_state[12:], (2, 2, 0, 4, -4, 4), rtol=0, atol=1e-9)
        assert np.diff(trajectory["energy"]).max() < 1e-12

    @pytest.mark.parametrize(
        ("name", "friction", "restitution", "duration"),
        [
            ("III", 0.0, 0.3, 6.0),
            ("IV", 0.3, 0.3, 9.0),
            *(compiled_row(name, friction, 0.8, 25.0) for name in ("I", "III", "IV") for friction in (0.0, 0.3)),
        ],
    )
    def test_bodies_settle_with_decreasing_energy(
        self, name: str, friction: float, restitution: float, duration: float
    ) -> None:
        known = case(name)
        body = ns.RigidBody(shape=known.shape, planes=floor(restitution, friction), inertia=known.inertia)
        trajectory = simulate(body, start(body), duration, zeno="settle")
        assert trajectory.success
        assert any(event.kind == "contact" for event in trajectory.events)
        assert np.diff(trajectory["energy"]).max() < 1e-10
        assert trajectory["gap[floor]"].min() > -1e-11
        assert trajectory["gap[floor]"][-1] < 1e-3
        if name == "IV":  # on one of its faces
            assert trajectory["x_2"][-1] == pytest.approx(np.sqrt(3.0), abs=1e-6)

    @pytest.mark.parametrize(
        ("restitution", "bodies", "duration"), [(0.0, 1, 4.0), compiled_row(0.0, 8, 10.0), slow_row(0.5, 8, 10.0)]
    )
    def test_random_polyhedra_settle_between_three_planes(
        self, restitution: float, bodies: int, duration: float
    ) -> None:
        """At the ends of steps: no penetration, and the energy decreases."""
        random = np.random.default_rng(5)
        for _ in range(bodies):
            normals = [(0, 0, 1), *((*random.uniform(-0.7, 0.7, 2), 1) for _ in range(2))]
            friction = random.choice([0.0, 0.5])
            planes = [ns.Plane(f"plane {k}", n, 0.0, restitution, friction) for k, n in enumerate(normals)]
            shape = ns.ConvexPolyhedron(random.standard_normal((8, 3)))
            body = ns.RigidBody.uniform(shape=shape, planes=planes)
            spin = np.asarray(body.inertia) @ random.uniform(-4, 4, 3)
            trajectory = simulate(body, body.state((0, 0, 15), (1, 0, 0), spin), duration, zeno="settle")
            assert trajectory.success
            assert any(event.kind == "contact" for event in trajectory.events)
            steps = 0.01 * np.arange(round(100 * duration) + 1)
            ends = np.isin(trajectory.t, steps) & np.append(np.diff(trajectory.t) > 0, True)
            assert ends.sum() > 0.9 * len(steps)
            assert np.diff(trajectory["energy"][ends]).max() < 1e-9
            assert min(trajectory[f"gap[plane {k}]"][ends].min() for k in range(3)) > -1e-9

    def test_plastic_ball_slides_down_a_slope(self) -> None:
        """Without friction g sin(a) along the slope, whatever the restitution was."""
        angle = np.deg2rad(30.0)
        body = ball(ns.Plane("slope", (np.sin(angle), 0, np.cos(angle)), restitution=0.0))
        x0 = body.state((2 * np.sin(angle), 0, 2 * np.cos(angle)))
        trajectory = simulate(body, x0, 2.0, zeno="settle")
        along = np.array([np.cos(angle), 0, -np.sin(angle)])
        assert trajectory.final_state[12:15] @ along == pytest.approx(2 * G * 0.5, rel=1e-3)
        assert np.abs(trajectory["gap[slope]"]).max() < 1e-12
        assert drift(trajectory) < 1e-10

    def test_a_tilted_cube_topples_when_it_settles(self) -> None:
        """It stands on an edge, a little beyond balance: resting contacts must not hold it there."""
        body = ns.RigidBody(shape=cube(), planes=floor(0.0), inertia=(2, 2, 2))
        angle = np.pi / 4 - 0.05
        c, s = np.cos(angle), np.sin(angle)
        turn = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
        height = np.sqrt(3.0) * (c + s)
        trajectory = simulate(body, body.state((0, 0, height), rotation=turn), 6.0, zeno="settle")
        assert trajectory["x_2"][-1] == pytest.approx(np.sqrt(3.0), abs=1e-6)
        assert np.diff(trajectory["energy"]).max() < 1e-10


class TestFriction:
    """A ball with the slip s = v + w x (-r n): W_t = 1/m + r^2 / J, that is 7 / (2 m)."""

    def impact(self, friction: float, restitution: float, velocity: Any, spin: Any) -> tuple[ns.Event, Any, Any]:
        body = ball(floor(restitution, friction), mass=1.0)
        trajectory = simulate(body, falls(body, 2.05, velocity, spin), 0.5, max_impacts=5)
        event = trajectory.impacts[0]
        before, after = trajectory(event.time, "-"), trajectory(event.time, "+")
        return event, before, after

    @staticmethod
    def slip(x: np.ndarray) -> np.ndarray:
        omega = x[3:12].reshape(3, 3) @ x[15:] / 1.6
        return (x[12:15] + np.cross(omega, (0, 0, -2.0)))[:2]

    def test_sticking(self) -> None:
        event, before, after = self.impact(2.0, 0.7, (1.0, -0.5, -3.0), (0.3, 0.4, 0.5))
        slip = self.slip(before)
        np.testing.assert_allclose(self.slip(after), 0.0, rtol=0, atol=1e-13)
        np.testing.assert_allclose(after[12:14] - before[12:14], -2 / 7 * slip, rtol=0, atol=1e-13)
        assert after[14] == pytest.approx(-0.7 * before[14], abs=1e-13)
        assert event.impulse == pytest.approx(-1.7 * before[14], abs=1e-13)

    def test_sliding(self) -> None:
        event, before, after = self.impact(0.05, 0.7, (3.0, -2.0, -3.0), (0.3, 0.4, 0.5))
        slip = self.slip(before)
        direction = slip / np.linalg.norm(slip)
        tangential = -0.05 * event.impulse * direction
        np.testing.assert_allclose(after[12:14] - before[12:14], tangential, rtol=0, atol=1e-13)
        torque = np.cross((0, 0, -2.0), (*tangential, 0))
        R = before[3:12].reshape(3, 3)
        np.testing.assert_allclose(R @ (after[15:] - before[15:]), torque, rtol=0, atol=1e-13)
        kept = self.slip(after)
        assert kept @ direction > 0.0
        assert event.energy_gain == pytest.approx(self.kinetic(after) - self.kinetic(before), abs=1e-12)

    def test_bounds_of_sticking(self) -> None:
        """The coefficient at which 2/7 |s| = mu (1 + e) |v_n| parts both."""
        _, before, _ = self.impact(2.0, 0.5, (1.0, 0.0, -1.0), (0, 0, 0))
        limit = 2 / 7 * np.linalg.norm(self.slip(before)) / (1.5 * -before[14])
        for factor, sticks in ((1.001, True), (0.999, False)):
            _, _, after = self.impact(factor * limit, 0.5, (1.0, 0.0, -1.0), (0, 0, 0))
            assert bool(np.linalg.norm(self.slip(after)) < 1e-12) is sticks

    @staticmethod
    def kinetic(x: np.ndarray) -> float:
        return float(0.5 * x[12:15] @ x[12:15] + 0.5 * x[15:] @ x[15:] / 1.6)

    @pytest.mark.parametrize("restitution", [1.0, 0.9, 0.4])
    def test_energy_never_grows(self, restitution: float) -> None:
        """Random tumbling cubes on rough ground; some impacts would gain energy, and the message says so."""
        random, clipped = np.random.default_rng(3), 0
        body = ns.RigidBody(shape=cube(), planes=floor(restitution, 0.6), inertia=(2, 2, 2))
        for _ in range(10):
            x0 = body.state((0, 0, 6), 3 * random.standard_normal(3), 4 * random.standard_normal(3))
            trajectory = simulate(body, x0, 8.0)
            assert trajectory.impacts
            gains = [event.energy_gain for event in trajectory.impacts]
            assert max(gains) < 1e-12
            assert np.diff(trajectory["energy"]).max() < 1e-10
            for event in trajectory.impacts:
                assert event.v_after == pytest.approx(-restitution * event.v_before, abs=1e-10)
            clipped += "would have gained" in trajectory.message
        assert (clipped > 0) is (restitution > 0.5)

    def test_no_clipping_without_friction(self) -> None:
        body = ns.RigidBody(shape=cube(), planes=floor(0.9), inertia=(2, 2, 2))
        assert simulate(body, start(body), 8.0).message == ""

    def test_rolling_ball(self) -> None:
        """Settled on rough ground it ends up rolling, v = 5/7 of the sliding velocity without a spin."""
        body = ball(floor(0.0, 0.5))
        x0 = body.state((0, 0, 2.0), (3.0, 0, 0))
        trajectory = simulate(body, x0, 3.0, zeno="settle")
        np.testing.assert_allclose(self.slip(trajectory.final_state), 0.0, rtol=0, atol=1e-9)
        assert trajectory["gamma_0"][-1] == pytest.approx(3 * 5 / 7, abs=1e-9)


class TestPlanes:
    def test_v_of_two_planes_is_hit_at_once(self) -> None:
        """Orthogonal planes turn the velocity round; the ball comes back to where it was dropped."""
        sides = (ns.Plane("left", (1, 0, 1)), ns.Plane("right", (-1, 0, 1)))
        body = ball(*sides)
        trajectory = simulate(body, body.state((0, 0, 5.0)), 3.0)
        touch = np.sqrt(2 * (5.0 - 2 * np.sqrt(2.0)) / G)
        assert {event.name for event in trajectory.impacts[:2]} == {"left", "right"}
        for event in trajectory.impacts[:2]:
            assert event.time == pytest.approx(touch, abs=1e-12)
        np.testing.assert_allclose(trajectory(2 * touch)[[0, 2]], (0, 5), rtol=0, atol=1e-12)
        assert drift(trajectory) < 1e-11

    def test_v_with_a_tumbling_body(self) -> None:
        sides = (ns.Plane("left", (1, 0, 1)), ns.Plane("right", (-1, 0.2, 1)))
        body = ns.RigidBody(shape=ELLIPSOID, planes=sides, inertia=(5, 4, 2.6))
        trajectory = simulate(body, body.state((0.3, 0, 10), (1, 0, 0), (4, -4, 4)), 100.0)
        names = [event.name for event in trajectory.impacts]
        assert min(names.count("left"), names.count("right")) > 20
        assert drift(trajectory) < 1e-10
        assert min(trajectory["gap[left]"].min(), trajectory["gap[right]"].min()) > -1e-11

    def test_corner_of_three_planes(self) -> None:
        """Without gravity: a ball thrown into the corner comes out the way it went in."""
        walls = [ns.Plane(name, np.eye(3)[k]) for k, name in enumerate("xyz")]
        body = ball(*walls, gravity=0.0)
        trajectory = simulate(body, body.state((4, 4, 4), (-1, -1, -1)), 3.0)
        assert sorted(event.name for event in trajectory.impacts) == ["x", "y", "z"]
        assert [event.time for event in trajectory.impacts] == pytest.approx([2.0] * 3, abs=1e-12)
        np.testing.assert_allclose(trajectory.final_state[12:15], 1.0, rtol=0, atol=1e-12)
        np.testing.assert_allclose(trajectory.final_state[:3], 3.0, rtol=0, atol=1e-12)

    def test_the_earlier_plane_of_one_step_comes_first(self) -> None:
        """Between two walls that are 0.1 m apart from the ball, at 30 m/s: three impacts in a step of 0.01 s."""
        body = ball(ns.Plane("left", (1, 0, 0)), ns.Plane("right", (-1, 0, 0), offset=-4.1), gravity=0.0)
        trajectory = simulate(body, body.state((2.05, 0, 0), (30.0, 0, 0)), 0.01)
        found = [(event.name, event.time) for event in trajectory.impacts]
        expected = [("right", 0.05 / 30), ("left", 0.15 / 30), ("right", 0.25 / 30)]
        assert [name for name, _ in found] == [name for name, _ in expected]
        np.testing.assert_allclose([t for _, t in found], [t for _, t in expected], rtol=1e-12)

    @pytest.mark.parametrize("algorithm", ["5.2", "5.1"])
    def test_more_impacts_than_a_buffer_takes(self, algorithm: str) -> None:
        """The same for ten seconds: 3000 impacts, in the order of time, at equal intervals."""
        body = ball(ns.Plane("left", (1, 0, 0)), ns.Plane("right", (-1, 0, 0), offset=-4.1), gravity=0.0)
        trajectory = simulate(body, body.state((2.05, 0, 0), (30.0, 0, 0)), 10.0, algorithm=algorithm)
        times = [event.time for event in trajectory.impacts]
        np.testing.assert_allclose(times, (0.05 + 0.1 * np.arange(3000)) / 30, rtol=0, atol=1e-11)
        assert (np.diff(trajectory.t) >= 0.0).all()

    def test_start_on_a_plane(self) -> None:
        body = ball(FLOOR)
        up = simulate(body, body.state((0, 0, 2), (0, 0, 3)), 1.0)
        assert up.impacts[0].time == pytest.approx(6 / G, abs=1e-12)
        down = simulate(body, body.state((0, 0, 2), (0, 0, -3)), 1.0)
        assert [event.time for event in down.impacts] == pytest.approx([0.0, 6 / G], abs=1e-12)
        still = simulate(body, body.state((0, 0, 2)), 1.0)
        assert (still.status, still.t[-1]) == (ns.Status.ZENO, 0.0)
        assert "it lies still on plane 'floor' from t = 0 s" in still.message
        assert simulate(body, body.state((0, 0, 2)), 1.0, zeno="settle").success

    @pytest.mark.parametrize("normal", [(0, 0, 1), (1, 2, 3), (-0.3, 0.5, 0.1)])
    def test_without_gravity_it_slides(self, normal: Any) -> None:
        """Touching, along the plane: nothing presses it on, so it moves on for ever and never hits."""
        body = ball(ns.Plane("floor", normal), gravity=0.0)
        n = np.asarray(body.planes[0].normal)
        along = np.cross(n, (0.6, 0, 0.8))
        x0 = body.state(2 * n, 5 * along, (1, 2, 3))
        trajectory = simulate(body, x0, 100.0)
        assert trajectory.success
        assert not trajectory.events
        np.testing.assert_allclose(trajectory.final_state[:3], 2 * n + 500 * along, rtol=0, atol=1e-11)
        assert np.abs(trajectory["gap[floor]"]).max() < 1e-12

    def test_beside_a_wall_it_falls(self) -> None:
        body = ball(ns.Plane("wall", (1, 0, 0)))
        trajectory = simulate(body, body.state((2, 0, 50), (0, 1, 0), (1, 2, 3)), 3.0)
        assert trajectory.success
        assert not trajectory.events
        np.testing.assert_allclose(trajectory.final_state[:3], (2, 3, 50 - 4.5 * G), rtol=0, atol=1e-12)

    def test_apex_on_the_plane(self) -> None:
        """Gravity upwards: it touches the plane without speed at the end of a step, and rises again."""
        body = ball(FLOOR, gravity=(0, 0, 8.0))
        trajectory = simulate(body, body.state((0, 0, 6), (0, 0, -8)), 2.0, h=0.125)
        assert trajectory.success
        assert not trajectory.events
        assert trajectory["x_2"].min() == 2.0
        assert trajectory["x_2"][-1] == pytest.approx(6.0, abs=1e-12)

    def test_penetration_that_is_allowed_at_the_start(self) -> None:
        """0.9 nm: no impact at once, shown to a callback; once the gap was open its zero is that of the plane."""
        body, deepest = ball(FLOOR), []
        x0 = body.state((0, 0, 2 - 9e-10), (0, 0, 3))
        trajectory = simulate(body, x0, 0.9, h=1e-4, callback=lambda state: deepest.append(state.infeasibility))
        expected = (3 + np.sqrt(9 - 2 * G * 9e-10)) / G
        assert [event.time for event in trajectory.impacts] == pytest.approx([expected], abs=1e-12)
        still = ball(FLOOR, gravity=0.0)
        simulate(
            still,
            still.state((0, 0, 2 - 9e-10), (1, 0, 0)),
            0.1,
            callback=lambda state: deepest.append(-state.infeasibility),
        )
        np.testing.assert_allclose(deepest[-10:], -9e-10, rtol=0, atol=1e-15)
        assert max(deepest) < 1e-15

    @pytest.mark.parametrize("x", [0.71, 0.42])
    @pytest.mark.parametrize("algorithm", ["5.2", "5.1"])
    def test_impact_at_the_end_of_a_step(self, x: float, algorithm: str) -> None:
        """It falls into the last rounding error of a step: times stay in their order."""
        wall = ns.Plane("wall", (-1, 0, 0), offset=-2.0)
        body = ns.RigidBody(shape=ns.Sphere(1.0), planes=wall, inertia=(0.4,) * 3, gravity=0.0)
        trajectory = simulate(body, body.state((x, 0, 0), (1, 0, 0)), 1.5, algorithm=algorithm)
        assert [event.time for event in trajectory.impacts] == pytest.approx([1 - x], abs=1e-14)
        assert (np.diff(trajectory.t) >= 0.0).all()
        assert trajectory["x_0"][-1] == pytest.approx(2 - x - 1.5, abs=1e-13)

    @pytest.mark.parametrize("parts", [20, 50, 7, 10, 100])
    def test_fall_of_a_whole_number_of_steps(self, parts: int) -> None:
        body, fall = ball(FLOOR), np.sqrt(2 * 8 / G)
        trajectory = simulate(body, body.state((0, 0, 10)), 1.5 * fall, h=fall / parts)
        assert [event.time for event in trajectory.impacts] == pytest.approx([fall], abs=1e-13)
        assert (np.diff(trajectory.t) >= 0.0).all()

    @pytest.mark.parametrize(("offset", "tilt"), [(0.0, 0.0), (1e6, 1e-9)])
    @pytest.mark.parametrize("seed", range(3))
    def test_edge_strikes_with_its_faster_end(self, offset: float, tilt: float, seed: int) -> None:
        """A cube lands on an edge that is level but for rounding (1e-10 m at 1e6 m), and spins.

        Both ends are lowest then, and the one that approaches faster is struck, whatever frame the body has.
        """
        Q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))
        Q *= np.linalg.det(Q)
        c = np.sqrt(0.5)
        turn = np.array([[1, 0, 0], [0, 1, -tilt], [0, tilt, 1]]) @ [[c, 0, c], [0, 1, 0], [-c, 0, c]] @ Q.T
        shape = ns.ConvexPolyhedron(np.asarray(cube().vertices) @ Q.T)
        body = ns.RigidBody(shape=shape, planes=ns.Plane("floor", offset=offset), inertia=(2, 2, 2))
        for rate in (0.4, -0.4):
            x0 = body.state((0, 0, offset + np.sqrt(6.0)), (0, 0, -1), turn.T @ (2 * rate, 0, 0), rotation=turn)
            first = simulate(body, x0, 0.01).impacts[0]
            assert first.time == pytest.approx(0.0, abs=1e-8)
            assert first.v_before == pytest.approx(-1 - 0.4 * np.sqrt(3.0), abs=1e-7)

    def test_light_body_whose_point_moves_up_in_it(self) -> None:
        """0.1 kg, the centre at -1 m/s, the point by its spin 0.5 m/s slower: it approaches, and is struck."""
        body = ns.RigidBody(shape=ns.Sphere(1.0, (2, 0, 0)), planes=FLOOR, mass=0.1, inertia=(0.4,) * 3)
        trajectory = simulate(body, body.state((0, 0, 1), (0, 0, -0.1), (0, 0.4 * -0.25, 0)), 0.01)
        assert trajectory.success
        assert trajectory.impacts[0].v_before == pytest.approx(-0.5, abs=1e-12)
        assert trajectory.impacts[0].impulse == pytest.approx(2 * 0.5 / (1 / 0.1 + 4 / 0.4), abs=1e-12)

    def test_max_impacts_are_allowed(self) -> None:
        """Three impacts in a step: a limit of three lets them pass, one of two does not and says so."""
        body = ball(ns.Plane("left", (1, 0, 0)), ns.Plane("right", (-1, 0, 0), offset=-4.1), gravity=0.0)
        x0 = body.state((2.05, 0, 0), (30.0, 0, 0))
        assert len(simulate(body, x0, 0.01, max_impacts=3).impacts) == 3
        few = simulate(body, x0, 0.01, max_impacts=2)
        assert few.status is ns.Status.ZENO
        assert few.message.startswith("raise max_impacts or lower h: more than max_impacts = 2 impacts")
        assert few.t[-1] == pytest.approx(0.25 / 30, abs=1e-12)

    def test_fast_impacts_do_not_settle(self) -> None:
        """Elastic, 30 m/s, 300 impacts in a step: gluing the ball to a wall would lose its energy."""
        planes = (ns.Plane("left", (1, 0, 0)), ns.Plane("right", (-1, 0, 0), offset=-4.001))
        body = ball(*planes)
        x0 = body.state((2.0005, 0, 5), (30, 0, 0))
        stopped = simulate(body, x0, 0.1, zeno="settle")
        assert stopped.status is ns.Status.ZENO
        assert "raise max_impacts or lower h" in stopped.message
        assert drift(stopped) < 1e-11
        whole = simulate(body, x0, 0.1, zeno="settle", max_impacts=400)
        assert whole.success
        assert len(whole.impacts) == 3000
        lossy = tuple(ns.Plane(q.name, q.normal, q.offset, 0.999) for q in planes)
        assert simulate(ball(*lossy), x0, 0.1, zeno="settle").status is ns.Status.ZENO


class TestShapes:
    def dropped(self, shape: Any, inertia: Any, height: float, duration: float = 3.0) -> ns.Trajectory:
        body = ns.RigidBody(shape=shape, planes=FLOOR, inertia=inertia)
        return simulate(body, body.state((0, 0, height)), duration)

    def test_lens_touches_with_its_rim(self) -> None:
        """Two balls of radius 2 at a distance of 2: the rim has radius sqrt(3); the gaps of the balls are 1e-1 off."""
        parts = [ns.Ellipsoid((2, 2, 2), center=(x, 0, 0)) for x in (-1, 1)]
        trajectory = self.dropped(ns.Intersection(parts), (1.0, 1.0, 1.0), 3.0)
        fall = np.sqrt(2 * (3.0 - np.sqrt(3.0)) / G)
        assert trajectory.impacts[0].time == pytest.approx(fall, abs=1e-12)
        assert np.sqrt(2 * (3.0 - 2.0) / G) < fall - 0.03  # where the largest of the gaps would be zero

    def test_lens_tumbles(self) -> None:
        parts = [ns.Ellipsoid((2, 3, 4), center=(x, 0, 0)) for x in (-0.7, 0.7)]
        body = ns.RigidBody(shape=ns.Intersection(parts), planes=FLOOR, inertia=(5, 4, 2.6))
        trajectory = simulate(body, start(body), 60.0)
        assert len(trajectory.impacts) > 15
        assert drift(trajectory) < 1e-10
        assert trajectory["gap[floor]"].min() > -1e-11

    def test_support_function_is_interpreted_and_agrees(self) -> None:
        bodies = [
            ns.RigidBody(shape=shape, planes=FLOOR, inertia=(5, 4, 2.6))
            for shape in (ELLIPSOID, ns.SupportFunction(ELLIPSOID.support))
        ]
        one, other = (simulate(body, start(body), 5.5) for body in bodies)
        assert len(one.impacts) == 3
        for a, b in zip(one.impacts, other.impacts, strict=True):
            assert a.time == pytest.approx(b.time, abs=1e-11)
            assert a.impulse == pytest.approx(b.impulse, abs=1e-10)

    def test_cube_on_a_face(self) -> None:
        """Four corners at once: one impulse after the other, counted as such, until none approaches."""
        trajectory = self.dropped(cube(), (2, 2, 2), 5.0, 1.2)
        fall = np.sqrt(2 * (5.0 - np.sqrt(3.0)) / G)
        together = [event for event in trajectory.impacts if event.time < fall + 1e-9]
        assert [event.time for event in together] == pytest.approx([fall] * len(together), abs=1e-11)
        assert 2 <= len(together) <= 50
        assert drift(trajectory) < 1e-10
        assert trajectory["gap[floor]"].min() > -1e-11

    def test_plastic_cube_on_a_face(self) -> None:
        """With restitution 0 it stays on the face: the impulses add up to the momentum."""
        body = ns.RigidBody(shape=cube(), planes=floor(0.0), inertia=(2, 2, 2))
        trajectory = simulate(body, body.state((0, 0, 5.0)), 2.0, zeno="settle")
        fall = np.sqrt(2 * (5.0 - np.sqrt(3.0)) / G)
        assert sum(event.impulse for event in trajectory.impacts) == pytest.approx(G * fall, rel=1e-9)
        np.testing.assert_allclose(trajectory.final_state[:3], (0, 0, np.sqrt(3.0)), rtol=0, atol=1e-9)
        assert np.abs(trajectory.final_state[12:]).max() < 1e-9

    def test_skin(self) -> None:
        """A skin of 0.1 m is met that much earlier."""
        trajectory = self.dropped(cube(0.1), (2, 2, 2), 5.0, 1.0)
        fall = np.sqrt(2 * (5.0 - np.sqrt(3.0) - 0.1) / G)
        assert trajectory.impacts[0].time == pytest.approx(fall, abs=1e-12)

    def test_union_of_balls_and_a_box(self) -> None:
        """A dumbbell whose left ball is larger: it turns to the right."""
        shape = ns.Union([ns.Sphere(1.5, (-3, 0, 0)), ns.Box((6, 0.4, 0.4)), ns.Sphere(1.0, (3, 0, 0))])
        trajectory = self.dropped(shape, (2, 9, 9), 4.0, 40.0)
        fall = np.sqrt(2 * 2.5 / G)
        assert trajectory.impacts[0].time == pytest.approx(fall, abs=1e-12)
        impulse = 2 * G * fall / (1 + 9 / 9)
        assert trajectory.impacts[0].impulse == pytest.approx(impulse, rel=1e-12)
        after = trajectory(fall + 1e-6)
        assert after[16] == pytest.approx(3 * impulse, rel=1e-6)
        assert drift(trajectory) < 1e-10
        assert len(trajectory.impacts) > 10


class TestSampling:
    """A thin rod that turns by 0.6 in a step stands upright, and in the floor, between two ends of a step."""

    def rod(self) -> tuple[ns.RigidBody, np.ndarray]:
        body = ns.RigidBody(shape=ns.Ellipsoid((3, 0.1, 0.1)), planes=FLOOR, inertia=(0.004, 1.802, 1.802), gravity=0.0)
        # a discrete turn by the angle a in a step h has h Pi = J sin(a)
        angle, h = 0.6, 0.01
        first = np.pi / 2 - angle / 2 - 2 * angle
        c, s = np.cos(first), np.sin(first)
        turn = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
        return body, body.state((0, 0, 2.95), angular_momentum=(0, 1.802 * np.sin(angle) / h, 0), rotation=turn)

    def test_ends_of_steps_miss_it(self) -> None:
        body, x0 = self.rod()
        trajectory = simulate(body, x0, 0.04)
        assert not trajectory.impacts
        between = trajectory(0.025)
        assert body.gaps(between)[0] < -0.04

    def test_samples_find_it(self) -> None:
        body, x0 = self.rod()
        trajectory = simulate(body, x0, 0.04, samples=4)
        assert 0.02 < trajectory.impacts[0].time < 0.025
        assert drift(trajectory) < 1e-9

    def test_samples_change_nothing_else(self) -> None:
        body = case("I")
        one, other = (simulate(body, start(body), 6.0, samples=samples) for samples in (1, 3))
        assert [e.time for e in one.impacts] == pytest.approx([e.time for e in other.impacts], abs=1e-11)


def test_an_impact_that_makes_a_body_too_fast_ends_it() -> None:
    """The impulse of a fast rod makes its spin too large for the step: a status, and what to do."""
    body = ns.RigidBody(shape=ns.Box((0.2, 0.2, 6)), planes=FLOOR, inertia=(0.03, 0.03, 0.002), gravity=0.0)
    c, s = np.cos(1.0), np.sin(1.0)
    turn = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
    x0 = body.state((0, 0, 4), (0, 0, -20.0), rotation=turn)
    trajectory = simulate(body, x0, 1.0)
    assert trajectory.status is ns.Status.NUMERICAL_ERROR
    assert "take h below" in trajectory.message
    assert trajectory.impacts
    assert simulate(body, x0, 1.0, h=0.001).success
