"""Integration with prediction of collisions: against closed forms, and where it has to refuse."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.indirect.forward import Forward, pieces
from nosnoc_py.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.indirect.sweep import SweepFailure
from nosnoc_py.status import Status
from nosnoc_py.systems.hybrid import HybridSystem, StateJump
from problems import two_discs


def ball(x0: Any, *, e: float = 0.5, gravity: float = 2.0, horizon: float = 2.0) -> HybridProblem:
    """A ball over a floor, pushed by u."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    floor = StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], -e * x[1]))
    system = HybridSystem(x=x, u=u, flow=ca.vertcat(x[1], u - gravity), jumps=[floor])
    return hybrid_problem(ns.OCP(system, horizon=horizon, x0=x0, stage_cost=u**2), "Test")


def test_steps_are_made_of_powers_of_two() -> None:
    for count in (1, 2, 3, 127, 128, 129, 480, 1000):
        sizes = list(pieces(count))
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


def test_two_guards_at_once_are_refused_and_named() -> None:
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u", 2)
    jumps = [
        StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], x[1], -x[2], x[3])),
        StateJump("side", guard=x[1], reset=ca.vertcat(x[0], x[1], x[2], -x[3])),
    ]
    system = HybridSystem(x=x, u=u, flow=ca.vertcat(x[2], x[3], u), jumps=jumps)

    def start(second: float) -> HybridProblem:
        ocp = ns.OCP(system, horizon=1.0, x0=[0.5, second, -1.0, -1.0], stage_cost=ca.sumsqr(u))
        return hybrid_problem(ocp, "Test")

    found = failure(start(0.5), [0.0, 0.0])
    assert found.status is Status.SIMULTANEOUS
    assert "'floor'" in found.message
    assert "'side'" in found.message
    assert len(Forward(start(0.51), 50, "rk4", "same")(np.zeros((50, 2))).collisions) == 2


def test_chatter_and_infinity_end() -> None:
    for e in (0.5, 0.98):
        assert failure(ball([0.1, 0.0], e=e, horizon=200.0), 0.0).status is Status.ZENO
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    system = HybridSystem(x=x, u=u, flow=x**2 + u, jumps=[StateJump("edge", guard=x, reset=-x)])
    explosive = hybrid_problem(ns.OCP(system, horizon=5.0, x0=[1.0], stage_cost=u**2), "Test")
    assert failure(explosive, 0.0).status is Status.NUMERICAL_ERROR
