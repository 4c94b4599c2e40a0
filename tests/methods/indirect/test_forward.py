"""Integration with prediction of collisions: against closed forms, and where it has to refuse."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.methods.indirect.forward import Forward, SweepFailure, chunk_sizes, motion_of
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.status import Status
from nosnoc_py.systems.hybrid import HybridSystem, StateJump
from problems import two_discs

pytestmark = pytest.mark.quick


def ball(x0: Any, *, e: float = 0.5, gravity: float = 2.0, horizon: float = 2.0) -> HybridProblem:
    """A ball over a floor, pushed by u."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    floor = StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], -e * x[1]))
    system = HybridSystem(x=x, u=u, flow=ca.vertcat(x[1], u - gravity), jumps=[floor])
    return hybrid_problem(ns.OCP(system, horizon=horizon, x0=x0, stage_cost=u**2), "Test")


def test_steps_are_made_of_powers_of_two() -> None:
    for count in (1, 2, 3, 127, 128, 129, 480, 1000):
        sizes = list(chunk_sizes(count))
        assert sum(sizes) == count
        assert all(size & (size - 1) == 0 for size in sizes)


@pytest.mark.parametrize("steps", [7, 60, 300])
def test_rk4_bounces_as_the_closed_form_says(steps: int) -> None:
    """A parabola is exact for RK4: hits at t = 1 with speed 2, leaves with 1, hits again at t = 2."""
    found = Forward(ball([1.0, 0.0], horizon=1.9), steps, "rk4", "same")(np.zeros((steps, 1)))
    (collision,) = found.collisions
    assert collision.step * 1.9 / steps + collision.s == pytest.approx(1.0, abs=1e-13)
    np.testing.assert_allclose(collision.x_before, [0.0, -2.0], atol=1e-13)
    np.testing.assert_allclose(collision.x_after, [0.0, 1.0], atol=1e-13)
    np.testing.assert_allclose(found.x[-1], [0.9 - 0.81, 1.0 - 1.8], atol=1e-12)


def test_several_collisions_inside_one_step() -> None:
    found = Forward(ball([1.0, 0.0], horizon=2.4), 1, "rk4", "same")(np.zeros((1, 1)))
    times = [c.s for c in found.collisions]
    np.testing.assert_allclose(times[:2], [1.0, 2.0], atol=1e-12)
    assert [c.step for c in found.collisions][:2] == [0, 0]


def test_euler_is_the_formula_of_the_paper() -> None:
    """HMP, Eqs. 17-19, in a loop over the discs with the closed form of the collision time (notes: C / (-B + ...))."""
    problem, steps = hybrid_problem(two_discs.build("general"), "Test"), 60
    random = np.random.default_rng(2)
    u = np.array([0.0, 3.0]) + 0.3 * random.normal(size=(steps, 2))
    found = Forward(problem, steps)(u)
    x, dt, hits = np.array(problem.x0), 1.0 / steps, []
    expected = [x]
    for n in range(steps):
        flow = lambda x, u: np.concatenate([x[4:], u, [0, 0]])  # noqa: E731
        d, w = x[:2] - x[2:4], x[4:6] - x[6:8]
        a, b, c = w @ w, d @ w, d @ d - 0.16
        s = c / (-b + np.sqrt(b * b - a * c)) if b < 0 and b * b > a * c else np.inf
        if s < dt:
            x = x + s * flow(x, u[n])
            normal = (x[:2] - x[2:4]) / 0.4
            jump = ((x[4:6] - x[6:8]) @ normal) * normal
            x = np.concatenate([x[:4], x[4:6] - jump, x[6:8] + jump])
            x = x + (dt - s) * flow(x, u[n + 1])
            hits.append(n * dt + s)
        else:
            x = x + dt * flow(x, u[n])
        expected.append(x)
    np.testing.assert_allclose(found.x, expected, atol=1e-13)
    np.testing.assert_allclose([c.step * dt + c.s for c in found.collisions], hits, atol=1e-14)
    assert len(hits) == 1


def test_a_dip_inside_of_one_step_is_a_collision() -> None:
    """With one step both ends are above the floor, only the rates tell: q = q0 - 2 t + 2 t^2, lowest at t = .5."""
    up = np.array([[6.0]])

    def forward(height: float) -> Forward:
        return Forward(ball([height, -2.0], gravity=2.0, horizon=1.5), 1, "rk4", "same")

    first = forward(0.49)(up).collisions[0]
    assert first.s == pytest.approx((2 - np.sqrt(4 - 8 * 0.49)) / 4, abs=1e-13)
    assert forward(0.51)(up).collisions == ()
    with pytest.raises(SweepFailure, match=r"'floor' is reached tangentially at t = 0.5 .*transversality") as caught:
        forward(0.5)(up)
    assert caught.value.status is Status.GRAZING


def test_control_after_a_collision() -> None:
    problem = ball([1.0, 0.0])
    u = np.arange(4.0)[:, None]
    assert Forward(problem, 4).control_after(u, 1)[0] == 2.0
    assert Forward(problem, 4).control_after(u, 3)[0] == 3.0
    assert Forward(problem, 4, "rk4", "same").control_after(u, 1)[0] == 1.0


def failure(problem: HybridProblem, u: Any, steps: int = 50) -> SweepFailure:
    with pytest.raises(SweepFailure) as caught:
        Forward(problem, steps, "rk4", "same")(np.broadcast_to(np.asarray(u, float), (steps, problem.n_u)))
    return caught.value


def corner(second: float, speed: float = -1.0, horizon: float = 1.0) -> HybridProblem:
    """A point that falls on a floor, half a metre below, and moves towards a wall."""
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u", 2)
    jumps = [
        StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], x[1], -x[2], x[3])),
        StateJump("side", guard=x[1], reset=ca.vertcat(x[0], x[1], x[2], -x[3])),
    ]
    system = HybridSystem(x=x, u=u, flow=ca.vertcat(x[2], x[3], u), jumps=jumps)
    ocp = ns.OCP(system, horizon=horizon, x0=[0.5, second, -1.0, speed], stage_cost=ca.sumsqr(u))
    return hybrid_problem(ocp, "Test")


def test_two_guards_at_once_are_refused_and_named() -> None:
    found = failure(corner(0.5), [0.0, 0.0])
    assert found.status is Status.SIMULTANEOUS
    assert "'floor'" in found.message
    assert "'side'" in found.message


@pytest.mark.parametrize("apart", [1e-2, 1e-8, -1e-8])
def test_two_guards_close_to_each_other_are_two_collisions(apart: float) -> None:
    found = Forward(corner(0.5 + apart), 10, "rk4", "same")(np.zeros((10, 2)))
    assert [c.jump for c in found.collisions] == ([0, 1] if apart > 0 else [1, 0])
    times = [0.1 * c.step + c.s for c in found.collisions]
    np.testing.assert_allclose(np.diff(times), abs(apart), atol=1e-14)


@pytest.mark.parametrize(("rate", "factor", "passes"), [(0.5, 1.0, True), (0.0, 1.0, False), (0.5, -1.0, False)])
def test_a_second_guard_at_zero_may_rise_but_not_rest(rate: float, factor: float, passes: bool) -> None:
    """psi_b = x_1 is zero where psi_a = x_0 is, and rises with x_2; the reset multiplies that."""
    x, u = ca.SX.sym("x", 3), ca.SX.sym("u")
    jumps = [
        StateJump("a", guard=x[0], reset=ca.vertcat(x[0] + 1.0, x[1], factor * x[2])),
        StateJump("b", guard=x[1], reset=x),
    ]
    system = HybridSystem(x=x, u=u, flow=ca.vertcat(-1.0, x[2], u), jumps=jumps)
    problem = hybrid_problem(ns.OCP(system, horizon=0.02, x0=[1e-13, 0.0, rate], stage_cost=u**2), "Test")
    if passes:
        assert [c.jump for c in Forward(problem, 1, "rk4", "same")(np.zeros((1, 1))).collisions] == [0]
    else:
        assert failure(problem, 0.0, 1).status is Status.SIMULTANEOUS


@pytest.mark.parametrize(("angle", "passes"), [(1e-5, True), (1e-10, False)])
def test_a_flat_angle_is_no_tangent(angle: float, passes: bool) -> None:
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    line = StateJump("line", guard=x[0], reset=ca.vertcat(1.0, x[1]))
    system = HybridSystem(x=x, u=u, flow=ca.vertcat(-angle, 1.0 + u), jumps=[line])
    problem = hybrid_problem(ns.OCP(system, horizon=1.0, x0=[0.5 * angle, 0.0], stage_cost=u**2), "Test")
    if passes:
        (collision,) = Forward(problem, 3, "rk4", "same")(np.zeros((3, 1))).collisions
        assert collision.step / 3 + collision.s == pytest.approx(0.5, abs=1e-10)
    else:
        assert failure(problem, 0.0, 3).status is Status.GRAZING


@pytest.mark.parametrize(("scheme", "after"), [("euler", "next"), ("rk4", "same")])
@pytest.mark.parametrize(("x0", "e"), [([0.0, 0.0], 0.5), ([1e-18, 0.0], 0.5), ([-1e-18, 0.0], 0.5), ([1.0, 0.0], 0.0)])
def test_a_contact_that_persists_is_no_collision(x0: Any, e: float, scheme: Any, after: Any) -> None:
    """At rest on the floor from the start, or after an impact without restitution; lifted off, it is none."""
    with pytest.raises(SweepFailure, match=r"'floor' is zero without a rate.*persists.*ns\.CLS") as caught:
        Forward(ball(x0, e=e), 20, scheme, after)(np.zeros((20, 1)))
    assert caught.value.status is Status.GRAZING
    if x0[0] < 1.0:
        found = Forward(ball(x0, e=e), 20, scheme, after)(3.0 * np.ones((20, 1)))
        assert found.collisions == ()
        assert found.x[-1, 0] > 1.5


def test_a_start_that_falls_from_a_guard_collides_at_once() -> None:
    (collision,) = Forward(ball([0.0, -2.0], horizon=0.5), 5, "rk4", "same")(np.zeros((5, 1))).collisions
    assert collision.step == 0
    assert collision.s == 0.0
    np.testing.assert_array_equal(collision.x_after, [0.0, 1.0])


@pytest.mark.parametrize("gap", [0.0, 1e-15, -1e-15])
@pytest.mark.parametrize(("scheme", "after"), [("euler", "next"), ("rk4", "same")])
def test_bodies_that_touch_from_the_start_are_hit_together(gap: float, scheme: Any, after: Any) -> None:
    """Three discs in a row, the last two touch: nothing happens until the first one comes."""
    q, v, u = ca.SX.sym("q", 6), ca.SX.sym("v", 6), ca.SX.sym("u", 2)
    contacts = [
        ns.Contact(name, gap=ca.norm_2(q[2 * k : 2 * k + 2] - q[2 * k + 2 : 2 * k + 4]) - 0.4, restitution=1.0)
        for k, name in enumerate(("ab", "bc"))
    ]
    force = ca.vertcat(u, 0, 0, 0, 0)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(6), force=force, contacts=contacts)
    x0 = [-1.0, 0.0, 0.0, 0.0, 0.4 + gap, 0.0, *np.zeros(6)]
    problem = hybrid_problem(ns.OCP(system, horizon=1.0, x0=x0, stage_cost=ca.sumsqr(u)), "Test")
    forward = Forward(problem, 60, scheme, after)
    assert forward(np.zeros((60, 2))).collisions == ()
    with pytest.raises(SweepFailure, match=r"'ab' and 'bc' are hit at once at t = 0\.6.* touch already") as caught:
        forward(np.tile([3.0, 0.0], (60, 1)))
    assert caught.value.status is Status.SIMULTANEOUS


@pytest.mark.parametrize("shift", [0.0, 2e-13, -2e-13])
@pytest.mark.parametrize(("steps", "horizon"), [(8, 1.6), (16, 1.6), (7, 1.4), (10, 2.0)])
def test_collisions_on_nodes_leave_no_empty_intervals(steps: int, horizon: float, shift: float) -> None:
    """The ball hits the floor at t = 1, and at t = 2, where the last horizon ends."""
    forward = Forward(ball([1.0 + shift, 0.0], horizon=horizon), steps, "rk4", "same")
    rollout = forward(np.zeros((steps, 1)))
    motion = motion_of(forward, rollout, 0.0)
    spans = np.concatenate([np.diff(phase.t) for phase in motion.phases])
    assert len(spans) == steps
    assert spans.min() > 0.9 * horizon / steps
    for collision, before, after in zip(rollout.collisions, motion.phases[:-1], motion.phases[1:], strict=True):
        np.testing.assert_array_equal(before.x[-1], collision.x_before)
        np.testing.assert_array_equal(after.x[0], collision.x_after)
        assert before.t[-1] == after.t[0]
        assert after.t[0] == pytest.approx(collision.step * forward.dt + collision.s, abs=1e-14)
    assert all(len(phase.t) == len(phase.u) + 1 == len(phase.x) for phase in motion.phases)


def test_chatter_and_infinity_end() -> None:
    for e in (0.5, 0.98):
        assert failure(ball([0.1, 0.0], e=e, horizon=200.0), 0.0).status is Status.ZENO
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    system = HybridSystem(x=x, u=u, flow=x**2 + u, jumps=[StateJump("edge", guard=x, reset=-x)])
    explosive = hybrid_problem(ns.OCP(system, horizon=5.0, x0=[1.0], stage_cost=u**2), "Test")
    assert failure(explosive, 0.0).status is Status.NUMERICAL_ERROR
