"""Simulating: controls of every kind, bad input, endings, and the trajectory that comes back."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball as ball
from nosnoc_py.simulation import fesd
from nosnoc_py.simulation.newton.stepper import NewtonResult, NewtonStepper
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER

pytestmark = pytest.mark.quick


def cart() -> ns.CLS:
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(2.0), force=u, contacts=[ns.Contact("wall", gap=5 - q)])


def push(u: Any, steps: int = 8, **more: Any) -> ns.Trajectory:
    return ns.simulate(cart(), method=ns.FESDJ(), x0=[0.0, 0.0], duration=2.0, steps=steps, u=u, **more)


def test_parameters_are_those_of_the_run() -> None:
    """v falls by p T; without values and without defaults the parameter is asked for by its name."""
    q, v, p = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("p")
    names = {"p": ["gravity"]}
    system = ns.CLS(q=q, v=v, p=p, mass_matrix=ca.DM(1), force=-p, contacts=[ns.Contact("ground", gap=q)], names=names)
    for method in (ns.FESDJ(), ns.TimeFreezing()):
        simulator = ns.Simulator(system, method, step=0.1)
        for gravity in (9.81, 1.62):
            found = simulator.run([5.0, 0.0], steps=2, p=[gravity])
            assert found.final_state[1] == pytest.approx(-0.2 * gravity, abs=1e-8)
        with pytest.raises(ns.ModelError, match="the parameters gravity of the CLS have no values"):
            simulator.run([5.0, 0.0], steps=2)
    found = ns.simulate(system, method=ns.FESDJ(), x0=[5.0, 0.0], p=[9.81], duration=0.2)
    assert found.final_state[1] == pytest.approx(-1.962, abs=1e-10)
    with pytest.raises(ns.ModelError, match="the parameters gravity of the CLS have no values"):
        ns.simulate(system, method=ns.FESDJ(), x0=[5.0, 0.0], duration=0.2)


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
    again = ns.simulate(system, method=ns.FESDJ(), x0=[0, 0], duration=2.0, steps=8, u=solution)
    np.testing.assert_allclose(again.final_state, [1.0, 0.0], rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("u", "said"),
    [
        ([1.0, 2.0], r"expected 1 numbers or rows of 1"),
        ([[1.0, 2.0]] * 8, r"expected 1 numbers, given 2"),
        (lambda t: [1.0, 2.0], r"u\(t\)"),
        (lambda t, x: [1.0, 2.0], r"u\(t, x\)"),
        ([np.nan], "finite"),
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
            ns.Simulator(ball.build(), ns.FESDJ(), step=step)


# --- endings ---


@pytest.mark.parametrize("steps", [20, 40, 41])
def test_a_zeno_ball_rests_or_ends_in_a_status(steps: int) -> None:
    """Impacts accumulate at 1.3546; whatever was accepted is right to the size of what is neglected."""
    trajectory = ns.simulate(ball.build(0.5), method=ns.FESDJ(), x0=[1.0, 0.0], duration=2.0, steps=steps)
    assert trajectory.success or trajectory.status is ns.Status.STEP_FAILED
    exact = ball.exact(trajectory.t, 0.5)
    before = trajectory.t < 1.2  # the first four impacts are behind, none is a node
    nodes = before & ~np.isin(trajectory.t, [i.time for i in trajectory.impacts])
    np.testing.assert_allclose(trajectory.x[nodes], exact[nodes], rtol=0, atol=1e-12)
    after = ball.exact([trajectory.t[-1]], 0.5)[0]
    np.testing.assert_allclose(trajectory.final_state, after, rtol=0, atol=2e-3)


def test_a_failed_step_keeps_the_trajectory_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two impacts in the second step, which two elements cannot hold."""
    monkeypatch.setattr(fesd, "MOST_SPLITS", 0)
    trajectory = ns.simulate(ball.build(0.9), method=ns.FESDJ(), x0=[1.0, 0.0], duration=2.0, steps=2)
    assert trajectory.status is ns.Status.STEP_FAILED
    assert trajectory.t[-1] == pytest.approx(1.0, abs=1e-12)
    assert len(trajectory.impacts) == 1
    assert trajectory.u_grid[-1] == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(ns.SolverError, match="simulation step failed"):
        trajectory.raise_for_status()


def test_a_first_step_that_fails_leaves_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fesd, "MOST_SPLITS", 0)
    trajectory = ns.simulate(ball.build(0.9), method=ns.FESDJ(), x0=[1.0, 0.0], duration=2.0, steps=1)
    assert trajectory.status is ns.Status.STEP_FAILED
    assert "it has 3 switches" in trajectory.message
    np.testing.assert_array_equal(trajectory.x, [[1.0, 0.0]])


@pytest.mark.parametrize("restitution", [0.2, 0.5, 0.8, 0.9])
def test_a_bouncing_ball_comes_to_rest_in_any_steps(restitution: float) -> None:
    """More and more impacts in a step, until they are slower than 1 mm/s: where they are too many it is cut."""
    trajectory = ns.simulate(ball.build(restitution), method=ns.FESDJ(), x0=[1.0, 0.0], duration=10.0, steps=100)
    assert trajectory.success, trajectory.message
    assert trajectory.message == ""
    np.testing.assert_allclose(trajectory.final_state, 0.0, rtol=0, atol=1e-9)
    first = [event.time for event in trajectory.impacts][:4]
    np.testing.assert_allclose(first, ball.impact_times(restitution, count=4), rtol=0, atol=1e-11)


def test_a_step_that_is_cut_has_its_parts_in_the_trajectory_and_in_the_derivatives() -> None:
    options: dict[str, Any] = {"method": ns.FESDJ(), "x0": [1.0, 0.0], "duration": 2.0, "sensitivities": True}
    found = ns.simulate(ball.build(0.9), steps=2, **options)
    assert found.success, found.message
    impacts = ball.impact_times(0.9, count=3)
    cut = 0.5 * (impacts[1] + impacts[2])  # the elements of the second step hold one impact
    np.testing.assert_allclose(found.u_grid, [0.0, 1.0, cut, 2.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.final_state, ball.exact([2.0], 0.9)[0], rtol=0, atol=1e-12)
    fine = ns.simulate(ball.build(0.9), steps=20, **options)
    assert found.sensitivity is not None
    assert fine.sensitivity is not None
    np.testing.assert_allclose(found.sensitivity.x0, fine.sensitivity.x0, rtol=1e-9, atol=1e-9)
    simulator = ns.Simulator(ball.build(0.9), ns.FESDJ(), step=1.0)
    state = simulator.step(simulator.step(simulator.init([1.0, 0.0])), sensitivities=True)
    assert len(state.parts) == 2
    assert state.sensitivity is not None
    assert state.sensitivity.x.shape == (2, 2)


def test_the_steps_that_fell_back_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newton's method fails in the first, the third and the fourth of five steps; no MPCC is solved in the fourth."""
    real, calls = NewtonStepper.__call__, []

    def fails(self: Any, values: Any, hint: Any) -> NewtonResult:
        calls.append(len(calls))
        if calls[-1] in (0, 2, 3):
            return NewtonResult(x=values[:2], residuals={}, message=f"forced {calls[-1]}")
        return real(self, values, hint)

    monkeypatch.setattr(NewtonStepper, "__call__", fails)
    real_mpcc = fesd.FiniteElementStepper._as_mpcc

    def limited(self: Any, state: Any, *rest: Any) -> Any:
        return (
            self._failed(state, rest[0], ns.Status.STEP_FAILED, message="forced")
            if state.t > 0.05
            else real_mpcc(self, state, *rest)
        )

    monkeypatch.setattr(fesd.FiniteElementStepper, "_as_mpcc", limited)
    found = ns.simulate(ball.build(0.9), method=ns.FESDJ(), x0=[1.0, 0.0], duration=0.1, steps=5)
    assert found.status is ns.Status.STEP_FAILED
    assert found.message == "2 steps solved as MPCC (t = 0, 0.04: forced 2); t = 0.06: forced"


def test_a_run_that_is_stopped_at_once_has_nothing_solved() -> None:
    found = ns.simulate(
        ball.build(0.9), x0=[1.0, 0.0], duration=1.0, steps=5, solver=SIMULATION_SOLVER, time_limit=1e-6
    )
    assert found.status is ns.Status.TIME_LIMIT
    assert "solved as MPCC" not in found.message


@pytest.mark.parametrize("offset", [1e-9, 1e-7, 1e-6, 1e-5, 1e-3])
def test_a_state_that_was_measured_forgets_how_the_last_step_ended(offset: float) -> None:
    """A relay that slides, put off its surface: it comes back to it, by Newton's method."""
    x = ca.SX.sym("x", 2)
    relay = ns.PSS(x=x, modes=ns.Modes("relay", flows=[[1, 1], [-1, 1]], functions=x[0], signs=[[-1], [1]]))
    simulator = ns.Simulator(relay, ns.FESD(finite_elements=3), step=0.1, solver=ns.ActiveSetNewton(fallback=False))
    state = simulator.init([0.05, 0.0])
    for _ in range(2):
        state = simulator.step(state)
    state = simulator.step(replace(state, x=state.x + np.array([offset, 0.0])))
    assert state.status is ns.Status.SOLVED, state.message
    np.testing.assert_allclose(state.x, [0.0, 0.3], rtol=0, atol=1e-9)


def test_a_control_that_jumps_ends_what_went_on() -> None:
    """x' = -u sign x slides on x = 0 while u > 0; then the surface repels, and the motion leaves it."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    relay = ns.PSS(x=x, u=u, modes=ns.Modes("relay", flows=[u, -u], functions=x, signs=[[-1], [1]]))
    found = ns.simulate(
        relay,
        x0=[0.05],
        duration=0.4,
        steps=4,
        u=[[1.0], [1.0], [-1.0], [-1.0]],
        solver=ns.ActiveSetNewton(fallback=False),
    )
    assert found.success, found.message
    assert abs(found.final_state[0]) == pytest.approx(0.2, abs=1e-12)


@pytest.mark.parametrize("steps", [0, -3, 2.5, "3", None, True])
def test_a_run_checks_the_number_of_its_steps(steps: Any) -> None:
    with pytest.raises(ns.OptionError, match="steps: expected a positive whole number"):
        ns.Simulator(cart(), ns.FESDJ(), step=0.1).run([0.0, 0.0], steps=steps)


def test_a_control_that_jumps_inside_of_steps_is_told() -> None:
    given = ns.PiecewiseConstant([0.0, 0.33, 1.0], [[1.0], [2.0]])
    found = ns.simulate(cart(), method=ns.FESDJ(), x0=[0.0, 0.0], duration=1.0, steps=10, u=given)
    assert "jumps inside of steps, first at t = 0.33" in found.message
    assert ns.simulate(cart(), method=ns.FESDJ(), x0=[0.0, 0.0], duration=1.0, steps=100, u=given).message == ""
    thirds = ns.PiecewiseConstant([0.0, 1 / 3, 2 / 3, 1.0], [[1.0], [2.0], [3.0]])
    default = ns.simulate(cart(), method=ns.FESDJ(), x0=[0.0, 0.0], duration=1.0, u=thirds)
    assert default.message == ""
    assert len(default.u) == 51


def test_a_run_checks_the_rows_of_its_control() -> None:
    with pytest.raises(ns.OptionError, match="multiple of the 3 rows"):
        ns.Simulator(cart(), ns.FESDJ(), step=0.1).run([0.0, 0.0], steps=10, u=[[1.0]] * 3)


@pytest.mark.parametrize("step", [0.0, -1.0, np.inf, "x", None])
def test_a_simulator_checks_the_length_of_its_steps(step: Any) -> None:
    with pytest.raises(ns.OptionError, match="step: expected a positive finite length"):
        ns.Simulator(cart(), ns.FESDJ(), step=step)


def test_the_time_limit_keeps_what_was_found() -> None:
    trajectory = ns.simulate(ball.build(), method=ns.FESDJ(), x0=[1.0, 0.0], duration=2.0, steps=10, time_limit=0.0)
    assert trajectory.status is ns.Status.TIME_LIMIT
    assert len(trajectory.t) <= 3


@pytest.mark.parametrize("answer", [ns.Stop, ns.Stop()])
def test_a_callback_stops_the_work(answer: Any) -> None:
    seen: list[float] = []

    def callback(state: Any) -> Any:
        seen.append(state.t)
        return answer if len(seen) == 3 else None

    trajectory = ns.simulate(ball.build(), method=ns.FESDJ(), x0=[1.0, 0.0], duration=1.0, steps=10, callback=callback)
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
    whole = ns.simulate(ball.build(), method=ns.FESDJ(), x0=[1.0, 0.0], duration=1.0, steps=10)
    np.testing.assert_allclose(state.x, whole.final_state, rtol=0, atol=1e-12)


def test_a_step_may_be_repeated_from_an_old_state() -> None:
    simulator = ns.Simulator(ball.build(), ns.FESDJ(), step=0.1)
    start = simulator.init([0.1, -1.0])
    first = simulator.step(start)
    simulator.step(first)
    np.testing.assert_allclose(simulator.step(start).x, first.x, rtol=0, atol=1e-13)


def test_the_initial_state_is_a_copy() -> None:
    x0 = np.array([1.0, 0.0])
    state = ns.Simulator(ball.build(), ns.FESDJ(), step=0.1).init(x0)
    x0[:] = 7.0
    np.testing.assert_array_equal(state.x, [1.0, 0.0])


def test_an_impact_exactly_at_the_end_of_a_step_happens_once() -> None:
    first = ball.impact_times(0.9, 1)[0]
    trajectory = ns.simulate(ball.build(0.9), method=ns.FESDJ(), x0=[1.0, 0.0], duration=2 * first, steps=4)
    assert trajectory.success
    assert [i.time for i in trajectory.impacts] == pytest.approx([first], abs=1e-12)
    np.testing.assert_allclose(trajectory.final_state, ball.exact([2 * first], 0.9)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("lead", [1e-3, 1e-7, -1e-5, -1e-3])
def test_impacts_close_to_the_end_of_a_step(lead: float) -> None:
    """Right, or a status; elements are never shorter than 1e-4 of their nominal length, 2.3e-5 here."""
    length = ball.impact_times(0.9, 1)[0] + lead
    trajectory = ns.simulate(ball.build(0.9), method=ns.FESDJ(), x0=[1.0, 0.0], duration=2 * length, steps=2)
    if abs(lead) > 1e-4:
        assert trajectory.success
    if trajectory.success:
        np.testing.assert_allclose(trajectory.final_state, ball.exact([2 * length], 0.9)[0], rtol=0, atol=1e-9)


# --- dense output ---


def test_dense_output_and_the_sides_of_an_impact() -> None:
    trajectory = ns.simulate(ball.build(0.9), method=ns.FESDJ(), x0=[1.0, 0.0], duration=1.5, steps=10)
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
        trajectory = ns.simulate(system, method=ns.FESDJ(), x0=[1.0, 0.0], duration=1.0, steps=10, p=p)
        expected = ball.exact([1.0], 0.9, gravity=gravity)[0]
        np.testing.assert_allclose(trajectory.final_state, expected, rtol=0, atol=1e-12)
        assert trajectory["gravity"] == gravity
