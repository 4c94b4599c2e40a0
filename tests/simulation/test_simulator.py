"""Simulating: controls of every kind, bad input, endings, and the trajectory that comes back."""

from __future__ import annotations

import re
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball as ball


def cart() -> ns.CLS:
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(2.0), force=u, contacts=[ns.Contact("wall", gap=5 - q)])


def push(u: Any, steps: int = 8, **more: Any) -> ns.Trajectory:
    return ns.simulate(cart(), x0=[0.0, 0.0], duration=2.0, steps=steps, u=u, **more)


# --- controls ---


def test_a_constant_control() -> None:
    for u in (0.5, [0.5], np.array([0.5])):
        trajectory = push(u)
        np.testing.assert_allclose(trajectory.final_state, [0.5, 0.5], rtol=0, atol=1e-13)
        np.testing.assert_array_equal(trajectory.u, np.full((8, 1), 0.5))


def test_no_control_is_zero() -> None:
    np.testing.assert_allclose(push(None).final_state, [0.0, 0.0], rtol=0, atol=1e-14)


def test_a_function_of_time_is_taken_at_the_middle_of_every_step() -> None:
    trajectory = push(lambda t: [t])
    np.testing.assert_allclose(trajectory.u[:, 0], 0.125 + 0.25 * np.arange(8), rtol=0, atol=1e-14)
    assert trajectory.final_state[1] == pytest.approx(1.0, abs=1e-13)  # integral of t / 2


def test_a_feedback_sees_the_state_at_the_start_of_the_step() -> None:
    trajectory = push(lambda t, x: [1.0 - x[1]])
    v = 0.0
    for _ in range(8):
        v += 0.25 * (1.0 - v) / 2
    assert trajectory.final_state[1] == pytest.approx(v, abs=1e-13)


def test_rows_of_controls_over_equal_intervals() -> None:
    trajectory = push([[1.0], [0.0], [-1.0], [0.0]])
    np.testing.assert_array_equal(trajectory.u[:, 0], np.repeat([1.0, 0.0, -1.0, 0.0], 2))
    assert trajectory.final_state[1] == pytest.approx(0.0, abs=1e-13)


def test_a_solution_is_simulated_again() -> None:
    system = cart()
    ocp = ns.OCP(
        system,
        horizon=2.0,
        x0=[0, 0],
        stage_cost=ca.sumsqr(system.u),
        terminal_constraints=[ns.Constraint(system.x, [1, 0], [1, 0])],
    )
    solution = ns.solve(ocp, ns.FESDJ(control_stages=4))
    assert solution.success
    again = ns.simulate(system, x0=[0, 0], duration=2.0, steps=8, u=solution)
    np.testing.assert_allclose(again.final_state, [1.0, 0.0], rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("u", "said"),
    [
        ([1.0, 2.0], r"expected 1 numbers, given 2"),
        ([[1.0, 2.0]] * 8, r"expected 1 numbers, given 2"),
        (lambda t: [1.0, 2.0], r"u\(t\)"),
        (lambda t, x: [1.0, 2.0], r"u\(t, x\)"),
        ([np.nan], "NaN"),
        (lambda t: [np.nan], "NaN"),
        ("fast", "control"),
        ([[1.0]] * 3, "3"),  # eight steps are no multiple of three rows
    ],
)
def test_controls_that_do_not_fit(u: Any, said: str) -> None:
    with pytest.raises(ns.NosnocError, match=said):
        push(u)


# --- bad input ---


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"duration": -1.0}, "duration"),
        ({"duration": 0.0}, "duration"),
        ({"duration": np.inf}, "duration"),
        ({"duration": "long"}, "duration"),
        ({"steps": 0}, "steps"),
        ({"steps": -3}, "steps"),
        ({"steps": 2.5}, "steps"),
        ({"steps": True}, "steps"),
        ({"x0": [-0.1, 0.0]}, "penetrates contact 'ground'.*-0.1"),
        ({"x0": [1.0]}, "x0.*expected 2.*given 1"),
        ({"x0": [np.nan, 0.0]}, "x0.*NaN"),
        ({"x0": [np.inf, 0.0]}, "x0"),
        ({"p": [1.0]}, "p"),
        ({"method": ns.FESDJ(control_stages=2, finite_elements=(2, 3))}, "finite_elements"),
    ],
)
def test_bad_input_is_refused(bad: dict[str, Any], said: str) -> None:
    with pytest.raises(ns.NosnocError, match=re.compile(said, re.S)):
        ns.simulate(ball.build(), **{"x0": [1.0, 0.0], "duration": 1.0, "steps": 4, **bad})


def test_a_step_has_a_positive_length() -> None:
    for step in (0.0, -0.1, np.nan, np.inf):
        with pytest.raises(ns.OptionError, match="step"):
            ns.Simulator(ball.build(), step=step)


# --- endings ---


@pytest.mark.parametrize("steps", [20, 40, 41])
def test_a_zeno_ball_rests_or_ends_in_a_status(steps: int) -> None:
    """Impacts accumulate at 1.3546; whatever was accepted is right to the size of what is neglected."""
    trajectory = ns.simulate(ball.build(0.5), x0=[1.0, 0.0], duration=2.0, steps=steps)
    assert trajectory.success or trajectory.status is ns.Status.STEP_FAILED
    exact = ball.exact(trajectory.t, 0.5)
    before = trajectory.t < 1.2  # the first four impacts are behind, none is a node
    nodes = before & ~np.isin(trajectory.t, [i.time for i in trajectory.impacts])
    np.testing.assert_allclose(trajectory.x[nodes], exact[nodes], rtol=0, atol=1e-12)
    after = ball.exact([trajectory.t[-1]], 0.5)[0]
    np.testing.assert_allclose(trajectory.final_state, after, rtol=0, atol=2e-3)


def test_a_failed_step_keeps_the_trajectory_so_far() -> None:
    trajectory = ns.simulate(ball.build(0.9), x0=[1.0, 0.0], duration=2.0, steps=2)  # two impacts in the second step
    assert trajectory.status is ns.Status.STEP_FAILED
    assert trajectory.t[-1] == pytest.approx(1.0, abs=1e-12)
    assert len(trajectory.impacts) == 1
    assert trajectory.u_grid[-1] == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(ns.SolverError, match="simulation step failed"):
        trajectory.raise_for_status()


def test_a_first_step_that_fails_leaves_the_start() -> None:
    trajectory = ns.simulate(ball.build(0.9), x0=[1.0, 0.0], duration=2.0, steps=1)
    assert trajectory.status is ns.Status.STEP_FAILED
    np.testing.assert_array_equal(trajectory.x, [[1.0, 0.0]])


def test_the_time_limit_keeps_what_was_found() -> None:
    trajectory = ns.simulate(ball.build(), x0=[1.0, 0.0], duration=2.0, steps=10, time_limit=0.0)
    assert trajectory.status is ns.Status.TIME_LIMIT
    assert len(trajectory.t) <= 3


@pytest.mark.parametrize("answer", [ns.Stop, ns.Stop()])
def test_a_callback_stops_the_work(answer: Any) -> None:
    seen: list[float] = []

    def callback(state: Any) -> Any:
        seen.append(state.t)
        return answer if len(seen) == 3 else None

    trajectory = ns.simulate(ball.build(), x0=[1.0, 0.0], duration=1.0, steps=10, callback=callback)
    assert trajectory.status is ns.Status.STOPPED
    np.testing.assert_allclose(seen, [0.1, 0.2, 0.3], rtol=0, atol=1e-14)
    assert trajectory.t[-1] == pytest.approx(0.3, abs=1e-14)


# --- the simulator ---


def test_init_and_step_equal_simulate() -> None:
    simulator = ns.Simulator(ball.build(), ns.FESDJ(), step=0.1)
    state = simulator.init([1.0, 0.0])
    for _ in range(10):
        before, x = state, state.x.copy()
        state = simulator.step(state)
        assert state is not before
        np.testing.assert_array_equal(before.x, x)  # a step changes nothing the user holds
        assert before.t == pytest.approx(state.t - 0.1, abs=1e-14)
    whole = ns.simulate(ball.build(), x0=[1.0, 0.0], duration=1.0, steps=10)
    np.testing.assert_array_equal(state.x, whole.final_state)


def test_a_step_may_be_repeated_from_an_old_state() -> None:
    simulator = ns.Simulator(ball.build(), step=0.1)
    start = simulator.init([0.1, -1.0])
    first = simulator.step(start)
    simulator.step(first)
    np.testing.assert_array_equal(simulator.step(start).x, first.x)


def test_the_initial_state_is_a_copy() -> None:
    x0 = np.array([1.0, 0.0])
    state = ns.Simulator(ball.build(), step=0.1).init(x0)
    x0[:] = 7.0
    np.testing.assert_array_equal(state.x, [1.0, 0.0])


def test_an_impact_exactly_at_the_end_of_a_step_happens_once() -> None:
    first = ball.impact_times(0.9, 1)[0]
    trajectory = ns.simulate(ball.build(0.9), x0=[1.0, 0.0], duration=2 * first, steps=4)
    assert trajectory.success
    assert [i.time for i in trajectory.impacts] == pytest.approx([first], abs=1e-12)
    np.testing.assert_allclose(trajectory.final_state, ball.exact([2 * first], 0.9)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("lead", [1e-3, 1e-7, -1e-5, -1e-3])
def test_impacts_close_to_the_end_of_a_step(lead: float) -> None:
    """Right, or a status; elements are never shorter than 1e-4 of their nominal length, 2.3e-5 here."""
    length = ball.impact_times(0.9, 1)[0] + lead
    trajectory = ns.simulate(ball.build(0.9), x0=[1.0, 0.0], duration=2 * length, steps=2)
    if abs(lead) > 1e-4:
        assert trajectory.success
    if trajectory.success:
        np.testing.assert_allclose(trajectory.final_state, ball.exact([2 * length], 0.9)[0], rtol=0, atol=1e-9)


# --- dense output ---


def test_dense_output_and_the_sides_of_an_impact() -> None:
    trajectory = ns.simulate(ball.build(0.9), x0=[1.0, 0.0], duration=1.5, steps=10)
    t = np.linspace(0.0, 1.5, 401)
    exact = ball.exact(t, 0.9)
    np.testing.assert_allclose(trajectory(t), exact, rtol=1e-3, atol=1e-3)
    for time in ball.impact_times(0.9, 2):
        speed = -trajectory(time, "-")[1]
        np.testing.assert_allclose(trajectory(time, "+"), [0.0, 0.9 * speed], rtol=0, atol=1e-12)
        assert speed == pytest.approx(ball.exact([time], 0.9)[0, 1] / 0.9, abs=1e-11)
    twice = trajectory.t[1:][np.diff(trajectory.t) == 0.0]
    np.testing.assert_allclose(twice, ball.impact_times(0.9, 2), rtol=0, atol=1e-12)


def test_parameters_reach_the_model_and_the_trajectory() -> None:
    q, v, g = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("g")
    contact = ns.Contact("ground", gap=q, restitution=0.9)
    system = ns.CLS(
        q=q, v=v, p=g, mass_matrix=ca.DM(1), force=-g, contacts=[contact], names={"p": ["gravity"]}, p_default=[9.81]
    )
    for p, gravity in ((None, 9.81), ([3.7], 3.7)):
        trajectory = ns.simulate(system, x0=[1.0, 0.0], duration=1.0, steps=10, p=p)
        expected = ball.exact([1.0], 0.9, gravity=gravity)[0]
        np.testing.assert_allclose(trajectory.final_state, expected, rtol=0, atol=1e-12)
        assert trajectory["gravity"] == gravity
