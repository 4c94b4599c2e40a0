"""Derivatives through events: one matrix of differences for every method, closed forms, negative controls.

A row simulates the same four times more, at data beside its own: nothing but the simulation judges a derivative.
"""

from __future__ import annotations

import doctest
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball, oscillator, stick_slip
from nosnoc_py import implicit_function
from nosnoc_py.methods.event_selected import corner
from nosnoc_py.methods.indirect import successive_approximation
from nosnoc_py.methods.indirect.forward import Forward
from nosnoc_py.methods.indirect.moving_grid import MovingGrid
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.methods.shooting import event_gradient
from nosnoc_py.motion import variations
from nosnoc_py.motion.variations import Saltation, projection, saltation, step_transport, transport
from nosnoc_py.simulation.event_driven import walk
from tests.pairwise import slow_but
from tests.references.bouncing_ball import ball_by_hand

GRAVITY = 9.81
# Derivatives and fourth-order central differences may differ by this, relative to the largest entry and to 1.
TOLERANCE = 1e-8
# What leaves out the saltation has to be wrong by more than this, on the same scale.
WRONG = 1e-2


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """A map of data (n,) to numbers (m,), and its derivative (m, n), in directions that keep what is closed."""

    values: Callable[[np.ndarray], np.ndarray]
    derivative: Callable[[], np.ndarray]
    data: Any
    directions: Any = None
    step: float = 1e-4
    tolerance: float = TOLERANCE

    def errors(self) -> np.ndarray:
        """Of the derivative in every direction, relative to the size of the difference and to 1."""
        data, found, weights = np.array(self.data, float), self.derivative(), np.array([1, -8, 8, -1]) / 12
        errors = []
        for d in np.eye(data.size) if self.directions is None else np.array(self.directions, float):
            ends = [self.values(data + k * self.step * d) for k in (-2, -1, 1, 2)]
            expected = weights @ np.array(ends) / self.step
            errors.append(np.abs(found @ d - expected).max() / max(1.0, np.abs(expected).max()))
        return np.array(errors)


def simulation(system: Any, method: Any, x0: Any, duration: float, kinds: str | None = None, **more: Any) -> Row:
    """A row of `ns.simulate`: the end and, where the method has `kinds` of events, their times, by x0 and p."""
    n_x, row = len(x0), {name: more.pop(name) for name in ("directions", "step") if name in more}

    def run(data: np.ndarray, **asked: Any) -> ns.Trajectory:
        given = {"x0": data[:n_x], "p": data[n_x:], "duration": duration, "method": method, **more, **asked}
        found = ns.simulate(system, **given)
        found.raise_for_status()
        assert kinds is None or " ".join(event.kind for event in found.events) == kinds
        return found

    def values(data: np.ndarray) -> np.ndarray:
        found = run(data)
        return np.append(found.final_state, [] if kinds is None else [event.time for event in found.events])

    def derivative() -> np.ndarray:
        found = run(data, sensitivities=True).sensitivity
        assert found is not None
        assert found.flags == ()
        end = np.hstack([found.x0, found.p])
        return end if kinds is None else np.vstack([end, np.hstack([found.event_times_x0, found.event_times_p])])

    data = np.append(x0, system.p_default)
    return Row(values=values, derivative=derivative, data=data, **row)


# Systems -------------------------------------------------------------------------------------------------------------


def slider(friction: float, restitution: float = 0.0) -> ns.CLS:
    """A point mass over the ground with a force u; p = (gravity,)."""
    q, v, u, p = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2), ca.SX.sym("p")
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=friction, restitution=restitution)
    force = u - ca.vertcat(0, p)
    return ns.CLS(q=q, v=v, u=u, p=p, mass_matrix=ca.DM.eye(2), force=force, contacts=[ground], p_default=[GRAVITY])


def hopper() -> ns.EventSelectedSystem:
    """A mass on a leg with spring and damper; p = (stiffness, damping, length)."""
    x, mode, p = ca.SX.sym("x", 2), ca.SX.sym("mode"), ca.SX.sym("p", 3)
    flow = ca.vertcat(x[1], mode * (p[0] * (p[2] - x[0]) - p[1] * x[1]) - GRAVITY)
    foot = ns.Guard.contact("foot", p[2] - x[0])
    return ns.EventSelectedSystem(x=x, mode=mode, p=p, flow=flow, guards=[foot], p_default=[100.0, 5.0, 1.0])


def pushed_ball(x0: Any) -> HybridProblem:
    """A ball with a force, a cost of its height along the way, and of height and velocity in the end."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    floor = ns.Contact("floor", gap=q, restitution=0.5)
    ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 2.0, contacts=[floor])
    end = (q - 1) ** 2 + (v - 1) ** 2
    ocp = ns.OCP(ball, horizon=1.6, x0=x0, stage_cost=u**2 + q**2, terminal_cost=end, bounds=ns.Bounds(u=(-9, 9)))
    return hybrid_problem(ocp, "test")


def shooting(scheme: Any, after: Any) -> Row:
    """The objective by the controls of steps, in one of which the ball bounces."""
    controls = 0.3 * np.cos(np.arange(6)) - 0.2
    gradient = event_gradient.EventGradient(Forward(pushed_ball([1.0, 0.0]), 6, scheme, after))
    return Row(
        values=lambda u: np.array([gradient(u[:, None]).objective]),
        derivative=lambda: gradient(controls[:, None]).gradient.T,
        data=controls,
    )


def costate() -> Row:
    """The objective by the state at the start: the costate there, which goes back over the bounce."""

    def sweep(x0: np.ndarray) -> Any:
        grid = MovingGrid(pushed_ball(x0), nodes=2, steps=40)
        return grid.sweep(grid.initial(lambda t: np.array([0.3])))

    start = np.array([1.0, 0.2])
    return Row(
        values=lambda x0: np.array([sweep(x0).objective]),
        derivative=lambda: sweep(start).motion().phases[0].costate[:1],
        data=start,
        tolerance=1e-6,  # the jump takes the flow at the ends of phases, not the slope of their last steps
    )


EVENT_DRIVEN, SELECTED = ns.EventDriven(), ns.EventSelected(step=1e-2)
JUMPS, SWITCHES = ns.FESDJ(finite_elements=3, rk_stages=3), ns.FESD(finite_elements=2, rk_stages=2)
ON_GROUND = np.delete(np.eye(5), [1, 3], axis=0)
BESIDE_SWITCH = oscillator.exact([0.95])[0]

BY_SALTATION = {
    "event-driven: impacts": simulation(
        slider(0.0, 0.6), EVENT_DRIVEN, [0, 1, 1.5, 0], 1.2, "impact impact", u=[0.5, 0.0]
    ),
    "event-driven: impact with slip": simulation(slider(0.2, 0.6), EVENT_DRIVEN, [0, 1, 4.5, 0], 0.8, "impact"),
    "event-driven: impact with stick": simulation(
        slider(0.9, 0.6), EVENT_DRIVEN, [0, 1, 1.5, 0], 0.8, "impact"
    ),
    "event-driven: landing, slip, stick": simulation(
        slider(0.3), EVENT_DRIVEN, [0, 0.2, 2.0, 0], 1.2, "impact contact stick"
    ),
    "event-driven: slip to stick": simulation(
        slider(0.3), EVENT_DRIVEN, [0, 0, 2.0, 0], 1.2, "stick", directions=ON_GROUND
    ),
    "event-driven: stick to slip": simulation(
        slider(0.5), EVENT_DRIVEN, [0, 0, 0, 0], 0.8, "slip",
        u=lambda t: [8.0 * t + 2.0 * np.sin(3.0 * t), 0.0], directions=[[1, 0, 0, 0, 0], [0, 0, 0, 0, 1]],
    ),
    "event-driven: release": simulation(
        slider(0.1), EVENT_DRIVEN, [0, 0, 2.0, 0], 1.2, "release", u=lambda t: [0, 12.0 * t**2], directions=ON_GROUND
    ),
    "Filippov: crossing": simulation(oscillator.build(), EVENT_DRIVEN, oscillator.STANDARD.start, np.pi / 2, "switch"),
    "Filippov: into and out of sliding": simulation(
        stick_slip.build(), EVENT_DRIVEN, [0.05, 0.1], 2.0, "enter_sliding leave_sliding enter_sliding leave_sliding"
    ),
    "event-selected: contact and release": simulation(hopper(), SELECTED, [2.0, 0.0], 1.0, "contact release"),
    "shooting, as in the paper": shooting("euler", "next"),
    "shooting": shooting("rk4", "same"),
    "costate": costate(),
}  # fmt: skip
# Here the times of events are unknowns of the equations: there is no saltation to leave out.
BY_EQUATIONS = {
    "finite elements: impact": simulation(slider(0.0, 0.6), JUMPS, [0, 0.1, 1.5, -2.0], 0.1, u=[[0.5, 0.0]], steps=1),
    "finite elements: impact with slip": simulation(
        slider(0.2, 0.6), JUMPS, [0, 0.1, 2.5, -2.0], 0.1, u=[[0.5, 0.0]], steps=1
    ),
    "finite elements: slip to stick": simulation(
        slider(0.5), JUMPS, [0, 0, 0.2, 0], 0.1, u=[[0.0, 0.0]], steps=1, directions=ON_GROUND, step=1e-5
    ),
    "finite elements: switch": simulation(oscillator.build(), SWITCHES, BESIDE_SWITCH, 0.1, steps=1, step=1e-5),
}


# What the other rows have, too.
TWICE = {
    "event-driven: landing, slip, stick",
    "event-driven: impacts",
    "finite elements: impact",
    "finite elements: impact with slip",
    "finite elements: slip to stick",
}
# Of every simulator and method one.
ONE_OF_EACH = (
    "event-driven: impact with slip",
    "Filippov: crossing",
    "event-selected: contact and release",
    "shooting, as in the paper",
    "shooting",
    "costate",
)


@pytest.mark.parametrize(
    "name", slow_but(sorted({*BY_SALTATION, *BY_EQUATIONS} - TWICE), [*BY_SALTATION, *BY_EQUATIONS])
)
def test_derivatives_are_those_of_differences(name: str) -> None:
    row = {**BY_SALTATION, **BY_EQUATIONS}[name]
    assert row.errors().max() < row.tolerance


def without(
    gradient: np.ndarray, before: Any, after: Any, reset: np.ndarray | None = None, *, approach: Any = None
) -> Saltation:
    """What an event does to a neighbour that meets it at the same time: the reset alone."""
    return Saltation(np.eye(gradient.size) if reset is None else reset, np.zeros(gradient.size))


@pytest.mark.parametrize("name", slow_but(ONE_OF_EACH, BY_SALTATION))
def test_without_the_saltation_they_are_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of every row, and the proof that all of them take the one formula."""
    for module in (walk, corner, event_gradient, successive_approximation):
        monkeypatch.setattr(module, "saltation", without)
    assert BY_SALTATION[name].errors().max() > WRONG


# Closed forms --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("velocity", [0.0, 0.7])
def test_bouncing_ball_in_closed_form(velocity: float) -> None:
    """By the simulator, and by a product of saltations and transports at the impacts that are known by hand."""
    e, end = 0.9, 3.0
    found = ns.simulate(
        bouncing_ball.build(e), x0=[1.0, velocity], duration=end, method=EVENT_DRIVEN, sensitivities=True
    )
    dx, dt = ball_by_hand(e, 1.0, velocity, end, 4)
    assert len(found.impacts) == 4
    assert found.sensitivity is not None
    np.testing.assert_allclose(found.sensitivity.x0, dx, rtol=1e-10)
    np.testing.assert_allclose(found.sensitivity.event_times_x0, dt, rtol=1e-10)

    speed = np.sqrt(velocity**2 + 2 * GRAVITY)
    fall, reset, W, t = np.array([[[0.0, 1.0], [0.0, 0.0]]]), np.diag([1.0, -e]), np.eye(2), 0.0
    delays = []
    for k in range(4):
        time = (velocity + speed) / GRAVITY + 2 * speed / GRAVITY * sum(e**j for j in range(1, k + 1))
        W = transport(lambda s: fall.repeat(s.size, axis=0), t, time) @ W
        before, after = np.array([-speed * e**k, -GRAVITY]), np.array([speed * e ** (k + 1), -GRAVITY])
        event = saltation(np.array([1.0, 0.0]), before, after, reset)
        delays.append(event.delay @ W)
        W, t = event.jump @ W, time
    np.testing.assert_allclose(transport(lambda s: fall.repeat(s.size, axis=0), t, end) @ W, dx, rtol=1e-10)
    np.testing.assert_allclose(delays, dt, rtol=1e-10)


def test_a_guard_that_moves_with_time() -> None:
    """x' = 1, a guard x - 2 t = -1 at t = 1, then x' = 3: x(T) = x0 + t* + 3 (T - t*), dt* / dx0 = 1."""
    event = saltation(np.array([1.0]), np.array([1.0]), np.array([3.0]), approach=1.0 - 2.0)
    assert event.delay == pytest.approx([1.0], abs=1e-15)
    assert event.jump == pytest.approx(np.array([[-1.0]]), abs=1e-15)


def test_a_projection_is_the_limit_of_a_fast_motion() -> None:
    """A fast way along a column to the surface, and then on along it."""
    rows, column = np.array([[1.0, 0.5, 0.0]]), np.array([[2.0], [1.0], [3.0]])
    fast = saltation(rows[0], -1e9 * column[:, 0], np.ones(3))
    made = projection(rows, column, 1e-10)
    np.testing.assert_allclose(made, fast.jump, rtol=0, atol=1e-8)
    np.testing.assert_allclose(rows @ made, 0.0, rtol=0, atol=1e-15)


@pytest.mark.parametrize("batched", [False, True])
def test_steps_of_explicit_and_implicit_schemes(batched: bool) -> None:
    """R(h A) of a linear motion: 1 + z + z^2 / 2 of Heun's method, (1 + z / 2) / (1 - z / 2) of the midpoint rule."""
    A, eye = np.array([[0.2, 1.0], [-1.0, 0.1]]), np.eye(2)
    h = np.array([0.3, 0.7]) if batched else 0.3
    slopes = np.broadcast_to(A, (2, 2, 2, 2)) if batched else np.broadcast_to(A, (2, 2, 2))
    heun = step_transport(slopes, h, np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0.5, 0.5]))
    middle = step_transport(slopes[..., :1, :, :], h, np.array([[0.5]]), np.array([1.0]))
    for length, one, other in zip(np.atleast_1d(h), heun.reshape(-1, 2, 2), middle.reshape(-1, 2, 2), strict=True):
        z = length * A
        np.testing.assert_allclose(one, eye + z + z @ z / 2, rtol=0, atol=1e-15)
        np.testing.assert_allclose(other, np.linalg.solve(eye - z / 2, eye + z / 2), rtol=0, atol=1e-15)


@pytest.mark.parametrize("module", [variations, implicit_function])
def test_examples_run(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
