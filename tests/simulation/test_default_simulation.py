"""`ns.simulate` without a method: event by event, right to its tolerance, with derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.special import erfinv

import nosnoc_py as ns
from models import bouncing_ball, switching_cases
from nosnoc_py.simulation import many_contacts

pytestmark = pytest.mark.quick

CONTROLS = np.array([[0.3, 0.2], [0.5, -0.1], [-0.2, 0.1]])


def puck() -> ns.CLS:
    """A mass p that is pushed in the plane, bounces and slides on the ground."""
    q, v, u, mass = (ca.SX.sym(name, n) for name, n in (("q", 2), ("v", 2), ("u", 2), ("m", 1)))
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.3, restitution=0.5)
    force = ca.vertcat(u[0], u[1] - 9.81 * mass)
    return ns.CLS(
        q=q, v=v, u=u, p=mass, p_default=[1.1], mass_matrix=mass * ca.SX.eye(2), force=force, contacts=[ground]
    )


def relay() -> ns.PSS:
    """x' = u - 2 sign(x) with a state that drifts: it crosses, slides on x = 0 and is pushed off by u = 3."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    flows = [ca.vertcat(u - 2, x[0]), ca.vertcat(u + 2, 1 + x[1] ** 2)]
    return ns.PSS(x=x, u=u, modes=ns.Modes("relay", flows=flows, functions=x[0], signs=[[1], [-1]]))


CASES: dict[str, tuple[Callable[[], Any], dict[str, Any], Any]] = {
    "bounces": (puck, {"x0": [0.0, 0.5, 1.0, 0.0], "duration": 0.9}, CONTROLS),
    "lands and slides": (puck, {"x0": [0.0, 0.0, 1.0, 0.0], "duration": 0.7}, CONTROLS),
    "relay": (relay, {"x0": [0.5, 0.0], "duration": 1.2}, np.array([[0.1], [0.5], [3.0]])),
}


def test_a_fast_oscillator_is_right() -> None:
    """1000 rad/s for a second: finite elements of .02 s returned zero, solved."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    system = ns.CLS(q=q, v=v, mass_matrix=1.0, force=-1e6 * q, contacts=[ns.Contact("far", gap=q + 10.0)])
    found = ns.simulate(system, x0=[0.01, 0.0], duration=1.0)
    assert found.success
    np.testing.assert_allclose(found.final_state, [0.01 * np.cos(1e3), -10.0 * np.sin(1e3)], rtol=0, atol=1e-7)


def test_steps_and_times_are_nodes() -> None:
    system, times = bouncing_ball.build(0.5), [0.1, 0.123456, 0.6]
    free, found = (
        ns.simulate(system, x0=[1.0, 0.0], duration=1.0, **more) for more in ({}, {"steps": 7, "times": times})
    )
    for t in (*times, *np.linspace(0.0, 1.0, 8)):
        assert np.abs(found.t - t).min() < 1e-15
    np.testing.assert_array_equal(found.final_state, free.final_state)
    height = found.x[np.argmin(np.abs(found.t - times[1])), 0]
    assert height == pytest.approx(1.0 - 0.5 * 9.81 * times[1] ** 2, abs=1e-13)
    assert found.u_grid.tolist() == pytest.approx(np.linspace(0.0, 1.0, 8).tolist())


@pytest.mark.parametrize("case", CASES)
def test_derivatives_by_controls_are_differences(case: str) -> None:
    """Central differences of the end, of the state at a time on the way and of the times of events."""
    build, start, controls = CASES[case]
    system, h, at = build(), 1e-6, 0.65

    def run(u: Any, **more: Any) -> ns.Trajectory:
        found = ns.simulate(system, **start, u=u, times=[at], **more)
        assert found.success, found.message
        return found

    def state(found: ns.Trajectory) -> Any:
        return found.x[np.argmin(np.abs(found.t - at))]

    found = run(controls, sensitivities=True)
    there, d = int(np.argmin(np.abs(found.t - at))), found.sensitivity
    assert d is not None
    assert d.u is not None
    assert d.orbital_u is not None
    assert d.event_times_u is not None
    assert d.orbital is not None
    np.testing.assert_array_equal(d.orbital[-1], d.x0)
    np.testing.assert_array_equal(d.orbital_u[-1], d.u)
    assert np.abs(d.u).max() > 0.01
    for k, j in np.ndindex(controls.shape):
        change = np.zeros_like(controls)
        change[k, j] = h
        ends = [run(controls + change), run(controls - change)]
        np.testing.assert_allclose(d.u[k, :, j], (ends[0].final_state - ends[1].final_state) / (2 * h), atol=1e-7)
        np.testing.assert_allclose(d.orbital_u[there, k, :, j], (state(ends[0]) - state(ends[1])) / (2 * h), atol=1e-7)
        times = [np.array([event.time for event in end.events]) for end in ends]
        np.testing.assert_allclose(d.event_times_u[:, k, j], (times[0] - times[1]) / (2 * h), atol=1e-7)


def test_derivatives_by_steps_add_up_to_those_of_intervals() -> None:
    build, start, controls = CASES["bounces"]
    coarse, fine = (
        ns.simulate(build(), **start, u=controls, sensitivities=True, **more).sensitivity for more in ({}, {"steps": 9})
    )
    assert coarse is not None
    assert fine is not None
    assert coarse.u is not None
    assert fine.u is not None
    np.testing.assert_allclose(fine.u.reshape(3, 3, 4, 2).sum(axis=1), coarse.u, rtol=0, atol=1e-12)


def test_a_callback_sees_steps_and_stops() -> None:
    seen: list[float] = []

    def callback(state: Any) -> Any:
        seen.append(state.t)
        return ns.Stop if state.t > 0.3 else None

    found = ns.simulate(puck(), x0=[0.0, 5.0, 1.0, 0.0], duration=1.0, callback=callback)
    assert found.status is ns.Status.STOPPED
    assert 0.3 < found.t[-1] == seen[-1] < 1.0
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("gap", [lambda q: ca.fabs(q), lambda q: q**2, lambda q: ca.norm_2(ca.vertcat(q, 0.0))])
def test_a_gap_without_a_sign_is_told(gap: Callable[[ca.SX], ca.SX]) -> None:
    """A body falls onto |q| = 0: it does not go through, and the message says how to write the gap."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    system = ns.CLS(q=q, v=v, mass_matrix=1.0, force=-9.81, contacts=[ns.Contact("floor", gap=gap(q), restitution=0.5)])
    found = ns.simulate(system, x0=[1.0, 0.0], duration=1.0)
    assert found.status in (ns.Status.GRAZING, ns.Status.NUMERICAL_ERROR)
    assert found.t[-1] == pytest.approx(np.sqrt(2 / 9.81), abs=1e-6)
    assert "becomes negative behind" in found.message


def test_points_that_meet_are_told() -> None:
    """Two points meet at t = d: their distance has no gradient there, and the rate of it that is searched no value."""
    q, v = ca.SX.sym("q", 4), ca.SX.sym("v", 4)
    contact = ns.Contact("points", gap=ca.norm_2(q[:2] - q[2:]), restitution=1.0)
    pair = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(4), force=ca.DM.zeros(4), contacts=[contact])
    # Rounding decides at which of them a search evaluates the rate where it is NaN.
    for height in (0.0, 0.1, 0.3, 1.0):
        for half in (0.5, 0.75, 0.9, 1.0, 1.1):
            found = ns.simulate(pair, x0=[-half, height, half, height, 1, 0, -1, 0], duration=2.0)
            assert found.status in (ns.Status.GRAZING, ns.Status.NUMERICAL_ERROR)
            assert found.message.startswith(f"at points, t = {half:g} s: ")
            assert "a distance minus the sum of the radii" in found.message


def test_a_true_touch_is_not_taken_for_it() -> None:
    """Negative control: a ball whose apex is at the ceiling."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ceiling = ns.Contact("ceiling", gap=5.0 - q[1])
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, -10]), contacts=[ceiling])
    found = ns.simulate(system, x0=[0.0, 0.0, 1.0, 10.0], duration=2.0)
    assert found.status is ns.Status.GRAZING
    assert found.message == "at ceiling"


def test_events_of_many_contacts_that_are_too_hard_are_stepped_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The touch of the test above, once in a system that counts as one of many contacts."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ceiling = ns.Contact("ceiling", gap=5.0 - q[1])
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, -10]), contacts=[ceiling])
    monkeypatch.setattr(many_contacts, "MANY", 0)
    found = ns.simulate(system, x0=[0.0, 0.0, 1.0, 10.0], duration=2.0)
    assert found.success
    assert found.message.startswith("ns.EventDriven() ends at 1 s: grazing contact; 1 contacts: ")
    np.testing.assert_allclose(found.final_state, [2.0, 0.0, 1.0, -10.0], rtol=0, atol=0.02)


def test_very_many_contacts_are_simulated_by_time_stepping() -> None:
    """Balls that fall 0.2 m: at rest after sqrt(0.4 / g), and their messages say how accurate they are."""
    n = 101
    q, v = ca.SX.sym("q", n), ca.SX.sym("v", n)
    contacts = [ns.Contact(f"c{i}", gap=q[i]) for i in range(n)]
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(n), force=-9.81 * ca.DM.ones(n), contacts=contacts)
    found = ns.simulate(system, x0=np.append(np.full(n, 0.2), np.zeros(n)), duration=0.3)
    assert found.success
    assert found.message.startswith("101 contacts: 3000 steps by ns.TimeStepping, of first order; positions end")
    assert len(found.impacts) == n
    assert found.impacts[0].time == pytest.approx(np.sqrt(0.4 / 9.81), abs=3e-4)
    assert np.abs(found.final_state).max() < 1e-12


def test_with_a_solver_finite_elements_are_meant() -> None:
    found = ns.simulate(puck(), x0=[0.0, 0.5, 1.0, 0.0], duration=0.2, steps=4, solver=ns.ActiveSetNewton())
    assert found.success
    assert found.u_grid.size == 5


# --- step by step ---


@pytest.mark.parametrize("case", CASES)
def test_steps_make_the_simulation(case: str) -> None:
    """`init` and `step`, `run`, and `simulate` with a row for every step: the same motion, and the same derivatives."""
    build, start, controls = CASES[case]
    count = 6
    rows = np.repeat(controls, count // len(controls), axis=0)
    simulator = ns.Simulator(build(), step=start["duration"] / count)
    state, made = simulator.init(start["x0"]), []
    for u in rows:
        state = simulator.step(state, u, sensitivities=True)
        assert state.status.success, state.message
        made.append(state)
    whole = ns.simulate(build(), **start, u=rows, sensitivities=True)
    run = simulator.run(start["x0"], steps=count, u=rows, sensitivities=True)
    assert state.t == pytest.approx(start["duration"], abs=1e-15)
    by_x0 = np.eye(state.x.size)
    for each in made:
        by_x0 = each.sensitivity.x @ by_x0
    np.testing.assert_array_equal(run.u, rows)
    assert [event.kind for event in run.events] == [event.kind for event in whole.events]
    for found in (run.final_state, state.x):
        np.testing.assert_allclose(found, whole.final_state, rtol=0, atol=1e-10)
    assert run.sensitivity is not None
    assert whole.sensitivity is not None
    np.testing.assert_allclose(run.sensitivity.u, whole.sensitivity.u, rtol=0, atol=1e-8)
    np.testing.assert_allclose(made[-1].sensitivity.u, whole.sensitivity.u[-1], rtol=0, atol=1e-8)
    if not any(each.sensitivity.flags for each in made):
        np.testing.assert_allclose(by_x0, whole.sensitivity.x0, rtol=0, atol=1e-7)


def test_time_stepping_in_a_closed_loop() -> None:
    """A law that sees the state every 0.05 s, by 20 inner steps each: `step` and `run` agree."""

    def law(t: float, x: Any) -> Any:
        return [-2.0 * x[2], 0.0]

    simulator = ns.Simulator(puck(), ns.TimeStepping(step=0.0025), step=0.05)
    state = simulator.init([0.0, 0.5, 1.0, 0.0])
    for _ in range(10):
        state = simulator.step(state, law(state.t, state.x))
        assert state.status.success
    whole = simulator.run([0.0, 0.5, 1.0, 0.0], steps=10, u=law)  # the law is held over every step, too
    np.testing.assert_allclose(whole.final_state, state.x, rtol=0, atol=1e-3)
    values = whole.u.reshape(10, 20, 2)
    np.testing.assert_array_equal(values, np.broadcast_to(values[:, :1], values.shape))
    exact = ns.Simulator(puck(), step=0.05).run([0.0, 0.5, 1.0, 0.0], steps=10, u=law)
    np.testing.assert_allclose(state.x, exact.final_state, rtol=0, atol=0.05)  # first order
    with pytest.raises(ns.OptionError, match="sensitivities: those of TimeStepping do not converge"):
        simulator.step(state, sensitivities=True)


def test_what_takes_no_steps_says_so() -> None:
    with pytest.raises(ns.OptionError, match="solver: EventDriven takes none"):
        ns.Simulator(puck(), ns.EventDriven(), step=0.1, solver=ns.ActiveSetNewton())
    with pytest.raises(ns.OptionError, match="step: expected a positive finite length"):
        ns.Simulator(puck(), step=-0.1)


@pytest.mark.parametrize("method", [ns.EventDriven(), ns.TimeStepping()])
def test_a_step_that_fails_leaves_the_state(method: Any) -> None:
    """And the next one goes on from there, solved."""
    simulator = ns.Simulator(puck(), method, step=0.5)
    state = simulator.init([0.0, 0.5, 1.0, 0.0])
    failed = simulator.step(state, [0.0, 0.0], time_limit=0.0)
    assert failed.status is ns.Status.TIME_LIMIT
    assert failed.t == 0.0
    np.testing.assert_array_equal(failed.x, state.x)
    again, first = (simulator.step(start, [0.0, 0.0]) for start in (failed, state))
    assert again.status is ns.Status.SOLVED
    assert again.t == 0.5
    np.testing.assert_array_equal(again.x, first.x)


def pole(sign: float) -> ns.CLS:
    """q'' = sign / q, far from its only contact."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    return ns.CLS(q=q, v=v, mass_matrix=1.0, force=sign / q, contacts=[ns.Contact("far", gap=q + 10.0)])


def test_a_force_like_one_over_q() -> None:
    """From rest at 1, q = exp(-s^2) where erf(s) = t sqrt(2 / pi): the pole is reached at sqrt(pi / 2)."""
    position = np.exp(-(erfinv(1.25 * np.sqrt(2.0 / np.pi)) ** 2))
    fall = ns.simulate(pole(-1.0), x0=[1.0, 0.0], duration=1.25)
    assert fall.success
    np.testing.assert_allclose(fall.final_state, [position, -np.sqrt(-2.0 * np.log(position))], rtol=0, atol=1e-10)
    through = ns.simulate(pole(-1.0), x0=[1.0, 0.0], duration=1.5)
    assert through.status is ns.Status.STEP_FAILED
    assert through.t[-1] == pytest.approx(np.sqrt(np.pi / 2.0), abs=1e-9)
    away = ns.simulate(pole(1.0), x0=[1.0, -1.0], duration=2.0)
    assert 0.5 * away.final_state[1] ** 2 - np.log(away.final_state[0]) == pytest.approx(0.5, abs=1e-11)


@pytest.mark.parametrize("case", switching_cases.CASES, ids=lambda case: case.name)
def test_all_ways_to_meet_a_surface(case: switching_cases.Case) -> None:
    found = ns.simulate(switching_cases.build(case), x0=case.x0, duration=case.duration)
    if case.unique:
        assert found.success
        end = switching_cases.exact(case, [case.duration])[0]
        np.testing.assert_allclose(found.final_state, end, rtol=0, atol=1e-12)
    else:
        assert found.status is ns.Status.GRAZING
        assert "3 motions are possible" in found.message


def test_a_rough_motion_of_very_many_contacts_is_not_called_solved() -> None:
    """Balls that bounce in steps that are much too long for them."""
    n = 101
    q, v = ca.SX.sym("q", n), ca.SX.sym("v", n)
    contacts = [ns.Contact(f"c{i}", gap=q[i], restitution=0.9) for i in range(n)]
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(n), force=-9.81 * ca.DM.ones(n), contacts=contacts)
    found = ns.simulate(system, x0=np.append(np.full(n, 0.2), np.zeros(n)), duration=2.0, steps=20)
    assert found.status is ns.Status.INACCURATE
    assert "from those of half as many" in found.message
    # Derivatives are those of EventDriven, whatever the number of contacts.
    exact = ns.simulate(system, x0=np.append(np.full(n, 0.2), np.zeros(n)), duration=0.1, sensitivities=True)
    assert exact.success
    assert exact.sensitivity is not None
