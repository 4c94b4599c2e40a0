"""Hybrid systems with resets of the user: exact simulation, certificates, programs with free and periodic ends."""

import math
from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.status import Status

G, E = 9.81, 0.8


def ball(restitution: float = E, *, driven: bool = False) -> ns.HybridSystem:
    """A bouncing ball, with a force on request."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    bounce = ns.StateJump("ground", guard=x[0], reset=ca.vertcat(x[0], -restitution * x[1]))
    flow = ca.vertcat(x[1], (u if driven else 0) - G)
    return ns.HybridSystem(x=x, u=u if driven else None, flow=flow, jumps=[bounce])


@pytest.mark.quick
def test_bounces_and_their_derivatives_are_those_in_closed_form():
    motion = ns.simulate(ball(), x0=[1, 0], duration=3.0, sensitivities=True)
    speed, first = math.sqrt(2 * G), math.sqrt(2 / G)
    times = first + np.cumsum([0.0, *(2 * speed * E ** (k + 1) / G for k in range(5))])
    np.testing.assert_allclose([event.time for event in motion.events], times, rtol=0, atol=1e-12)
    np.testing.assert_allclose([event.v_before for event in motion.events[:2]], [-speed, -E * speed], rtol=1e-12)
    assert motion.sensitivity.flags == ()
    h = 1e-6
    ends = [ns.simulate(ball(), x0=[1 + step, 0], duration=3.0).final_state for step in (h, -h)]
    np.testing.assert_allclose(motion.sensitivity.x0[:, 0], (ends[0] - ends[1]) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(motion.sensitivity.event_times_x0[0, 0], 1 / speed, rtol=1e-9)


@pytest.mark.quick
def test_what_isolated_jumps_do_not_describe_is_a_status():
    zeno = ns.simulate(ball(), x0=[1, 0], duration=6.0)
    assert zeno.status is Status.ZENO
    limit = math.sqrt(2 / G) + 2 * math.sqrt(2 * G) * E / (1 - E) / G
    assert zeno.t[-1] == pytest.approx(limit, abs=1e-3)
    assert "ns.CLS" in zeno.message
    x = ca.SX.sym("x", 2)
    into_the_ground = ns.StateJump("ground", guard=x[0], reset=ca.vertcat(-0.1, -x[1]))
    broken = ns.HybridSystem(x=x, flow=ca.vertcat(x[1], -G), jumps=[into_the_ground])
    motion = ns.simulate(broken, x0=[1, 0], duration=1.0)
    assert motion.status is Status.STEP_FAILED
    assert "the reset of ground leads beyond the guard of ground, -0.1" in motion.message
    touch = ns.StateJump("line", guard=1 - x[0], reset=x)
    grazing = ns.HybridSystem(x=x, flow=ca.vertcat(x[1], -G), jumps=[touch])
    assert ns.simulate(grazing, x0=[0, math.sqrt(2 * G)], duration=1.0).status is Status.GRAZING
    with pytest.raises(ns.ModelError, match="beyond the guard of jump 'ground'"):
        ns.simulate(ball(), x0=[-1, 0], duration=1.0)


@pytest.mark.quick
def test_a_guard_may_follow_the_time():
    """A ball that falls on a table, which rises: they meet where 1 - g t^2 / 2 = rise t."""
    x, t, rise = ca.SX.sym("x", 2), ca.SX.sym("t"), 0.5
    table = ns.StateJump("table", guard=x[0] - rise * t, reset=ca.vertcat(x[0], 2 * rise - x[1]))
    system = ns.HybridSystem(x=x, t=t, flow=ca.vertcat(x[1], -G), jumps=[table])
    assert system.state_names == ("x_0", "x_1", "t")
    motion = ns.simulate(system, x0=[1, 0], duration=0.6)
    meeting = (-rise + math.sqrt(rise**2 + 2 * G)) / G
    assert motion.events[0].time == pytest.approx(meeting, abs=1e-12)
    assert motion(meeting, side="+")[1] == pytest.approx(2 * rise + G * meeting, rel=1e-11)
    assert motion.final_state[2] == pytest.approx(0.6, abs=1e-12)


def test_a_program_is_that_of_the_same_contact_system_and_certified():
    """The reset of an impact gives the optimum of the contact law; a changed motion is refuted."""
    system = ball(driven=True)
    sequence = ns.Sequence([{}, "impact ground", {}], [0.45])
    fields = {"horizon": 1.0, "x0": [1, 0]}
    ocp = ns.OCP(system, stage_cost=system.u**2, terminal_constraints=[system.x[0] == 0.7], **fields)
    solution = ns.solve(ocp, ns.MultiPhase(sequence=sequence))
    assert solution.success, solution.message
    assert solution.certificate.verdict is ns.Verdict.CONFIRMED
    assert [event.name for event in solution.events] == ["ground"]
    assert solution.events[0].v_after == pytest.approx(-E * solution.events[0].v_before, rel=1e-9)
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    ground = ns.Contact("ground", gap=q, restitution=E)
    contacts = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - G, contacts=[ground])
    same = ns.OCP(contacts, stage_cost=u**2, terminal_constraints=[q == 0.7], **fields)
    known = ns.solve(same, ns.MultiPhase(sequence=sequence), certify=False)
    assert solution.objective == pytest.approx(known.objective, rel=1e-7)
    own = solution.interpolant
    after = own.t_left >= solution.events[0].time - 1e-9
    slower = replace(own, x_left=np.where(after[:, None], own.x_left * [1, 0.9], own.x_left))
    assert ns.certify(ocp, replace(solution, interpolant=slower)).verdict is ns.Verdict.REFUTED


def test_a_rimless_wheel_rolls_on_its_limit_cycle():
    """Free start, free time and ends that are the same: McGeer's wheel, spokes 2 a apart on a slope c.

    A spoke is an inverted pendulum, w' = sin(angle); at a change of spokes the rate becomes cos(2 a) of it. The rate
    after it is 4 sin c sin a cos^2(2 a) / (1 - cos^2(2 a)) squared.
    """
    a, c = 0.3, 0.08
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    change = ns.StateJump("spoke", guard=c + a - x[0], reset=ca.vertcat(x[0] - 2 * a, math.cos(2 * a) * x[1]))
    wheel = ns.HybridSystem(
        x=x, u=u, flow=ca.vertcat(x[1], ca.sin(x[0]) + u), jumps=[change], names={"x": ["angle", "rate"]}
    )
    time = ns.FreeTime(0.2, 4.0)
    ocp = ns.OCP(
        wheel, horizon=time, stage_cost=u**2, bounds={"rate": (0.1, 3.0)}, initial_constraints=[x[0] == 0],
        terminal_constraints=[x == wheel.x_initial],
    )  # fmt: skip
    solution = ns.solve(ocp, ns.MultiPhase(sequence=[{}, "impact spoke", {}]), guess={"x": [0.0, 0.5], "u": [0.0]})
    assert solution.success, solution.message
    assert solution.objective == pytest.approx(0.0, abs=1e-10)
    squared = 4 * math.sin(c) * math.sin(a) * math.cos(2 * a) ** 2 / (1 - math.cos(2 * a) ** 2)
    (event,) = solution.events
    after = solution(event.time, side="+")
    assert after[1] == pytest.approx(math.sqrt(squared), rel=1e-6)
    assert after[0] == pytest.approx(c - a, abs=1e-9)
    # The simulation returns to its start, and attracts: the rate of a neighbour differs by cos^2(2 a) of it.
    again = ns.simulate(wheel, x0=solution.x0, duration=solution.horizon)
    np.testing.assert_allclose(again.final_state, solution.x0, atol=1e-6)


def test_a_rocket_drops_its_first_stage():
    """Speed by Tsiolkovsky's formula, stage by stage; the least integral of thrust squared burns at a constant rate."""
    exhaust, full, empty, shell, payload = 3.0, 10.0, 6.0, 2.0, 1.5
    x, u = ca.SX.sym("x", 3), ca.SX.sym("u")  # speed, mass, stage
    staging = ns.StateJump("staging", guard=x[1] - empty + full * x[2], reset=ca.vertcat(x[0], x[1] - shell, x[2] + 1))
    rocket = ns.HybridSystem(
        x=x, u=u, flow=ca.vertcat(exhaust * u / x[1], -u, 0), jumps=[staging],
        names={"x": ["speed", "mass", "stage"], "u": ["burn"]},
    )  # fmt: skip
    speed = exhaust * (math.log(full / empty) + math.log((empty - shell) / payload))
    burnt = (full - empty) + (empty - shell - payload)
    motion = ns.simulate(rocket, x0=[0, full, 0], duration=burnt, u=[1.0])
    assert motion.final_state[0] == pytest.approx(speed, rel=1e-10)
    assert motion.events[0].time == pytest.approx(full - empty, abs=1e-10)
    ends = {"bounds": {"burn": (0, 1)}, "terminal_state": {"mass": payload}}
    ocp = ns.OCP(rocket, horizon=10.0, x0=[0, full, 0], stage_cost=u**2, **ends)
    solution = ns.solve(ocp, ns.MultiPhase(), guess=[0.7])  # the sequence is that of the motion of the guess
    assert solution.success, solution.message
    assert solution.certificate.verdict is ns.Verdict.CONFIRMED
    assert solution.objective == pytest.approx(burnt**2 / 10.0, rel=1e-6)
    assert solution["speed"][-1] == pytest.approx(speed, rel=1e-7)


@pytest.mark.quick
def test_messages_name_methods_that_take_the_system():
    system = ball(driven=True)
    ocp = ns.OCP(system, horizon=1.0, x0=[1, 0], stage_cost=system.u**2, terminal_constraints=[system.x[0] == 0.7])
    with pytest.raises(ns.OptionError, match=r"MultiPhase\(sequence=\[\{\}, 'impact NAME', \{\}\]\)"):
        ns.solve(ocp, ns.MinimumPrinciple())
    with pytest.raises(ns.OptionError, match="MultiPhase"):
        ns.solve(ocp, ns.FESDJ())
    with pytest.raises(ns.ModelError, match="ground"):
        ns.solve(ocp, ns.MultiPhase(sequence=[{}, "impact grund", {}]), guess=[0.0])
    x = ca.SX.sym("x", 2)
    two = [ns.StateJump(name, guard=guard, reset=x) for name, guard in (("a", x[0]), ("b", x[1]))]
    both = ns.OCP(ns.HybridSystem(x=x, flow=ca.vertcat(-1, -1), jumps=two), horizon=1.0, x0=[1, 1])
    with pytest.raises(ns.ModelError, match="one jump at an instant"):
        ns.solve(both, ns.MultiPhase(sequence=[{}, "impact a, b", {}]))
