"""Friction by place, time and slip speed, and static friction above sliding friction, beside closed forms and ODEs."""

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns

G = 9.81


def block(friction, force=0.0, static=None, belt=0.0, **more):
    """Return a block of 1 kg on a floor or belt; `friction` and `force` are functions of q."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    mu = friction(q) if callable(friction) else friction
    floor = ns.Contact("floor", gap=q[1], tangent=[1, 0], friction=mu, static_friction=static, surface_velocity=belt)
    pushed = ca.vertcat(force(q) if callable(force) else force, -G)
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=pushed, contacts=[floor], **more)


def slides(coefficient):
    """Return time and place at which a block from 1.5 m/s stops, for a coefficient of (x, speed), by DOP853."""

    def stops(t, y):
        return y[1]

    stops.terminal = True
    motion = solve_ivp(
        lambda t, y: [y[1], -G * coefficient(*y)],
        (0, 5),
        [0, 1.5],
        method="DOP853",
        rtol=1e-12,
        atol=1e-13,
        events=stops,
    )
    return motion.t[-1], motion.y[0, -1]


@pytest.mark.quick
@pytest.mark.parametrize("at_once", [True, False])
def test_stribecks_law_and_a_viscous_part(at_once):
    def law(s):
        return 0.3 + 0.2 * ca.exp(-s / 0.1) + 0.05 * s

    motion = ns.simulate(block(lambda q: law), x0=[0, 0, 1.5, 0], duration=1.0)
    time, place = slides(lambda x, s: 0.3 + 0.2 * np.exp(-s / 0.1) + 0.05 * s)
    assert [event.kind for event in motion.events] == ["stick"]
    assert abs(motion.events[0].time - time) < 1e-10
    assert abs(motion.final_state[0] - place) < 1e-10
    if at_once:
        return
    errors = []
    for step in (2e-3, 1e-3):
        coarse = ns.simulate(block(lambda q: law), x0=[0, 0, 1.5, 0], duration=1.0, method=ns.TimeStepping(step=step))
        errors.append(abs(coarse.final_state[0] - place))
    assert errors[1] < 5e-4
    assert errors[1] < 0.7 * errors[0]


@pytest.mark.quick
def test_friction_that_depends_on_the_place():
    motion = ns.simulate(block(lambda q: 0.2 + 0.1 * q[0]), x0=[0, 0, 1.5, 0], duration=1.0)
    time, place = slides(lambda x, s: 0.2 + 0.1 * x)
    assert abs(motion.events[0].time - time) < 1e-10
    assert abs(motion.final_state[0] - place) < 1e-10


@pytest.mark.quick
def test_a_slip_begins_at_static_friction_and_goes_on_with_sliding_friction():
    t = ca.SX.sym("t")
    system = block(0.3, force=lambda q: 2 * t, static=0.5, t=t)
    motion = ns.simulate(system, x0=[0, 0, 0, 0, 0], duration=4.0)
    begins = 0.5 * G / 2
    assert [event.kind for event in motion.events] == ["slip"]
    assert abs(motion.events[0].time - begins) < 1e-10
    assert abs(motion.final_state[2] - (16 - begins**2 - 0.3 * G * (4 - begins))) < 1e-10


def stick_slip():
    stiffness, belt = 20.0, 0.2
    return block(0.3, force=lambda q: -stiffness * q[0], static=0.5, belt=belt), stiffness, belt


def test_stick_slip_on_a_belt_has_its_closed_form():
    system, stiffness, belt = stick_slip()
    motion = ns.simulate(system, x0=[0, 0, belt, 0], duration=6.0)
    w, far, near = np.sqrt(stiffness), 0.5 * G / stiffness, 0.3 * G / stiffness
    # Slip from x = far with the speed of the belt, back to that speed at 2 near - far.
    slip = 2 * (np.pi - np.arctan((far - near) * w / belt)) / w
    stick = 2 * (far - near) / belt
    begin = far / belt
    times = np.ravel([[begin + k * (slip + stick), begin + slip + k * (slip + stick)] for k in range(3)])
    assert [event.kind for event in motion.events] == ["slip", "stick"] * 3
    assert np.abs(np.array([event.time for event in motion.events]) - times).max() < 1e-9
    stepped = ns.simulate(system, x0=[0, 0, belt, 0], duration=2.5, method=ns.TimeStepping(step=2e-3))
    # With the friction of a slip alone it is 0.07 away by then.
    assert abs(stepped.final_state[0] - motion(2.5)[0]) < 2e-3


def test_without_static_friction_the_block_slips_earlier():
    """Negative control of the closed form above."""
    system = block(0.3, force=lambda q: -20.0 * q[0], belt=0.2)
    first = ns.simulate(system, x0=[0, 0, 0.2, 0], duration=2.0).events[0]
    assert abs(first.time - 0.3 * G / 20.0 / 0.2) < 1e-9


@pytest.mark.quick
def test_what_has_one_coefficient_says_so():
    for system in (block(lambda q: lambda s: 0.3 + 0.1 * s), block(0.3, static=0.5)):
        with pytest.raises(ns.ModelError, match=r"ns\.EventDriven and ns\.TimeStepping"):
            ns.simulate(system, x0=[0, 0, 1, 0], duration=0.1, steps=10, method=ns.FESDJ())
        ocp = ns.OCP(system, horizon=1.0, x0=[0, 0, 0, 0])
        for method in (ns.FESDJ(), ns.TimeFreezing(), ns.DirectShooting()):
            with pytest.raises(ns.ModelError, match=f"{type(method).__name__} has one coefficient"):
                ns.solve(ocp, method)
        with pytest.raises(ns.ModelError, match="derivative"):
            ns.simulate(system, x0=[0, 0, 1, 0], duration=0.1, sensitivities=True)
    with pytest.raises(ns.ModelError, match="static_friction"):
        block(0.3, static=0.2)
    q = ca.SX.sym("q")
    with pytest.raises(ns.ModelError, match="leave out static_friction"):
        ns.Contact("mat", gap=q, tangent=[1], friction=0.2, static_friction=0.4, stiffness=1e4)


def test_two_tangents_have_the_same_laws():
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)

    def law(s):
        return 0.3 + 0.2 * ca.exp(-s / 0.1)

    floor = ns.Contact("floor", gap=q[2], tangent=[[1, 0], [0, 1], [0, 0]], friction=law)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=[0, 0, -G], contacts=[floor])
    motion = ns.simulate(system, x0=[0, 0, 0, 0.9, 1.2, 0], duration=1.0)
    time, place = slides(lambda x, s: 0.3 + 0.2 * np.exp(-s / 0.1))
    assert abs(motion.events[0].time - time) < 1e-8
    assert np.abs(motion.final_state[:2] - place * np.array([0.6, 0.8])).max() < 1e-8


@pytest.mark.quick
def test_friction_by_a_parameter_is_isotropic_in_space():
    q, v, p = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("p")
    ends = []
    for friction, more in ((0.4, {}), (p, {"p": p, "p_default": [0.4]})):
        floor = ns.Contact("floor", gap=q[2], tangent=[[1, 0], [0, 1], [0, 0]], friction=friction)
        system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=[0, 0, -G], contacts=[floor], **more)
        ends.append(ns.simulate(system, x0=[0, 0, 0, 0.9, 1.2, 0], duration=0.2).final_state)
    assert np.abs(ends[0] - ends[1]).max() < 1e-12
    speed = 1.5 - 0.4 * G * 0.2
    assert np.abs(ends[1][3:5] - speed * np.array([0.6, 0.8])).max() < 1e-9


@pytest.mark.quick
def test_friction_that_would_be_negative_is_none():
    motion = ns.simulate(block(lambda q: lambda s: 0.3 - s), x0=[0, 0, 2.0, 0], duration=1.0)
    assert motion.final_state[2] == pytest.approx(2.0, abs=1e-12)


def test_what_static_friction_holds_stays_beside_a_body_that_slides():
    """Modes of both are found together; on this slope sliding friction would not hold the first."""
    slope = np.arctan(0.4)
    q, v = ca.SX.sym("q", 4), ca.SX.sym("v", 4)
    held = ns.Contact("held", gap=q[1], tangent=[1, 0, 0, 0], friction=0.3, static_friction=0.5)
    loose = ns.Contact("loose", gap=q[3], tangent=[0, 0, 1, 0], friction=0.3)
    force = G * ca.DM([np.sin(slope), -np.cos(slope)] * 2)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(4), force=force, contacts=[held, loose])
    motion = ns.simulate(system, x0=np.zeros(8), duration=1.0)
    slides = 0.5 * G * (np.sin(slope) - 0.3 * np.cos(slope))
    assert np.abs(motion.final_state[:4] - [0, 0, slides, 0]).max() < 1e-10
