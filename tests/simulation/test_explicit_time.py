"""Forces, surfaces and switches that are functions of time: no stroke is missed, whatever else rests."""

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import brentq

import nosnoc_py as ns
from nosnoc_py.systems.pace import SAMPLES, course_of, pace_of


def pulse(t, size, at, width):
    return size * ca.exp(-(((t - at) / width) ** 2))


def hammer(surface, t, force=0.0):
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    return ns.CLS(q=q, v=v, t=t, mass_matrix=1, force=force, contacts=[ns.Contact("hammer", gap=q - surface)])


@pytest.mark.quick
@pytest.mark.parametrize(
    ("at", "width"), [(0.3, 0.03), (0.5, 0.02), (1.0, 0.1), (2.0, 0.1), (5.0, 0.1), (5.0, 1.0), (40.0, 0.4)]
)
def test_a_body_at_rest_is_hit_by_a_stroke(at, width):
    t = ca.SX.sym("t")
    motion = ns.simulate(hammer(pulse(t, 0.05, at, width), t), x0=[0.04, 0.0], duration=2 * at)
    # The surface reaches 0.04 where the pulse is 0.8 of its height; the body leaves with that speed.
    hit = at - width * np.sqrt(-np.log(0.8))
    speed = 0.04 * 2 * (at - hit) / width**2
    assert motion.status is ns.Status.SOLVED
    assert abs(motion.impacts[0].time - hit) < 1e-9 * at
    # It leaves the surface, which slows down behind its inflection, with the speed of the inflection or of the stroke.
    top, fastest = at - width / np.sqrt(2), 0.05 * np.sqrt(2) / width * np.exp(-0.5)
    assert motion.final_state[1] == pytest.approx(fastest if hit < top else speed, rel=1e-8)


@pytest.mark.quick
def test_a_force_pulse_moves_a_body_that_rests():
    q, v, t = (ca.SX.sym(name) for name in ("q", "v", "t"))
    wall = ns.Contact("wall", gap=1 - q)
    system = ns.CLS(q=q, v=v, t=t, mass_matrix=1, force=pulse(t, 100, 5.0, 0.02), contacts=[wall])
    motion = ns.simulate(system, x0=[0.0, 0.0], duration=10.0)
    assert abs(motion.impacts[0].time - (5 + 1 / (2 * np.sqrt(np.pi)))) < 1e-8
    assert motion.impacts[0].v_before == pytest.approx(-2 * np.sqrt(np.pi), rel=1e-9)


def test_a_body_that_rests_on_a_floor_is_thrown_by_its_jerk():
    t = ca.SX.sym("t")
    motion = ns.simulate(hammer(pulse(t, 0.05, 5.0, 0.02), t, force=-9.81), x0=[0.0, 0.0], duration=10.0)
    level = ca.Function("level", [t], [ca.jacobian(ca.jacobian(pulse(t, 0.05, 5.0, 0.02), t), t)])
    left = brentq(lambda s: float(level(s)) + 9.81, 4.98, 4.99, xtol=1e-15)
    assert abs(next(e.time for e in motion.events if e.kind == "release") - left) < 1e-8


@pytest.mark.quick
def test_regions_that_open_briefly_are_entered():
    x, t = ca.SX.sym("x"), ca.SX.sym("t")
    gate = ns.Modes("gate", flows=[1, 0], functions=pulse(t, 1.0, 5.0, 0.1) - 0.5, signs=[[1], [-1]])
    motion = ns.simulate(ns.PSS(x=x, t=t, flow=0 * x, modes=gate), x0=[0.0], duration=10.0)
    assert abs(motion.final_state[0] - 0.2 * np.sqrt(np.log(2))) < 1e-9


@pytest.mark.parametrize("width", [0.2, 0.05, 0.02])
def test_lobes_of_a_cam_hit_a_follower_at_rest(width):
    t = ca.SX.sym("t")
    lobe = 0.1 + 0.05 * ca.exp(-((ca.sin(10 * t) / width) ** 2))
    motion = ns.simulate(hammer(lobe, t), x0=[0.14, 0.0, 0.05], duration=0.4)
    hit = (np.pi - np.arcsin(width * np.sqrt(-np.log(0.8)))) / 10 - 0.05
    assert abs(motion.impacts[0].time - hit) < 1e-9


def test_what_is_too_fast_for_the_samples_is_said():
    t = ca.SX.sym("t")
    motion = ns.simulate(hammer(0.05 * ca.sin(9000.0 * t), t), x0=[0.2, 0.0], duration=1.0)
    assert "faster than a thousandth of the run" in motion.message
    slow = ns.simulate(hammer(0.05 * ca.sin(90.0 * t), t), x0=[0.2, 0.0], duration=1.0)
    assert not slow.message


@pytest.mark.quick
def test_parts_are_as_short_as_what_happens_there():
    t = ca.SX.sym("t")
    system = hammer(pulse(t, 0.05, 5.0, 0.1), t)
    course = course_of(system, np.array([0.1, 0.0, 0.0]), lambda s, x: np.zeros(0), np.zeros(0), 10.0)
    pace = pace_of(course)
    at = pace.later(0.0)
    assert len(course.t) == SAMPLES + 1
    assert at(5.0)[1] < 0.2
    assert at(1.0)[1] > 0.5
    # What is linear in time needs no short steps.
    assert pace_of(course_of(hammer(0.3 * t, t), np.zeros(3), lambda s, x: np.zeros(0), np.zeros(0), 10.0)) is None


def test_without_the_pace_the_stroke_is_missed(monkeypatch):
    """Negative control."""
    from nosnoc_py.simulation.event_driven import history

    t = ca.SX.sym("t")
    monkeypatch.setattr(history, "pace_of", lambda course: None)
    motion = ns.simulate(hammer(pulse(t, 0.05, 5.0, 0.1), t), x0=[0.04, 0.0], duration=10.0)
    assert not motion.impacts


@pytest.mark.quick
def test_a_stroke_is_seen_whose_factor_is_zero_at_the_start():
    x, t = ca.SX.sym("x", 2), ca.SX.sym("t")
    push = ns.ODE(x=x, t=t, flow=ca.vertcat(x[1] * pulse(t, 1 / 0.03, 7.123, 0.03), 0.1))
    motion = ns.simulate(push, x0=[0, 0], duration=10.0)
    # x_1 = 0.1 t, and the pulse has the area sqrt(pi).
    assert motion.final_state[0] == pytest.approx(0.7123 * np.sqrt(np.pi), rel=1e-9)


@pytest.mark.quick
def test_steps_between_constants_have_no_rate():
    x, t = ca.SX.sym("x"), ca.SX.sym("t")
    flow = ca.if_else(ca.logic_and(t > 0.5, t < 0.6), 1.0, 0.0)
    with pytest.warns(ns.ModelWarning, match="jumps"):
        box = ns.ODE(x=x, t=t, flow=flow)
    assert ns.simulate(box, x0=[0], duration=1.0).final_state[0] == pytest.approx(0.1, abs=1e-6)
