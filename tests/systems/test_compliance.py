"""Compliant contacts: springs in place of impacts, one word from rigid ones."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

pytestmark = pytest.mark.quick
G, EXACT = 9.81, ns.EventDriven(rtol=1e-11, atol=1e-11)


def ball(**words):
    """A ball over the ground."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    return ns.CLS(q=q, v=v, mass_matrix=1, force=-G, contacts=[ns.Contact("ground", gap=q, **words)])


def test_an_undamped_spring_gives_everything_back():
    """Energy, and the depth of a fall from 1 m: k d^2 / 2 = g (1 + d)."""
    s, k = ball(stiffness=1e4), 1e4
    motion = ns.simulate(s, x0=[1, 0], duration=1.0, method=EXACT)
    energy = 0.5 * s.v**2 + G * s.q + 0.5 * k * ca.fmin(0, s.q) ** 2
    times = np.linspace(0, 1, 2001)
    np.testing.assert_allclose(motion.sample(energy, times), G, rtol=0, atol=1e-6)
    depth = (G + np.sqrt(G**2 + 2 * k * G)) / k
    assert motion.sample(s.q, np.linspace(0.45, 0.49, 4001)).min() == pytest.approx(-depth, abs=1e-6)
    assert motion.sample(s.contact_force("ground"), np.linspace(0.45, 0.49, 4001)).max() == pytest.approx(
        k * depth, 1e-4
    )


def test_damping_is_that_of_hunt_and_crossley():
    """For restitutions near 1, e = 1 - 2/3 d v to first order, whatever the stiffness."""
    speed = np.sqrt(2 * G)
    for stiffness in (1e5, 1e6):
        motion = ns.simulate(ball(stiffness=stiffness, damping=0.01), x0=[1, 0], duration=0.6, method=EXACT)
        height, rate = motion.final_state
        e = np.sqrt((0.5 * rate**2 + G * height) / G)
        assert e == pytest.approx(1 - 2 / 3 * 0.01 * speed, abs=3e-3)


@pytest.mark.parametrize("method", [EXACT, ns.FESDJ(rk_stages=3), ns.TimeStepping(step=1e-3)])
def test_friction_holds_a_block_but_for_its_creep(method):
    """A push of 2 N against mu m g = 2.943 N: it creeps with s a / sqrt(1 - a^2), where a is their ratio."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ground = ns.Contact("ground", gap=q[1], tangent=[1, 0], friction=0.3, stiffness=1e3, damping=1.0, creep_speed=1e-2)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.vertcat(2, -G), contacts=[ground])
    start = {"q_1": -G / 1e3}
    more = {"steps": 40} if isinstance(method, ns.FESDJ) else {}
    motion = ns.simulate(system, x0=start, duration=0.2, method=method, **more)
    ratio = 2 / (0.3 * G)
    assert motion.final_state[2] == pytest.approx(1e-2 * ratio / np.sqrt(1 - ratio**2), abs=1e-6)


def test_soft_contacts_are_forces_like_others():
    """Rigid and compliant ones beside each other; stiffness as a parameter."""
    q, v, k = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("k")
    contacts = [ns.Contact("hard", gap=q[0], restitution=0.5), ns.Contact("soft", gap=q[1], stiffness=k)]
    system = ns.CLS(q=q, v=v, p=k, p_default=[1e3], mass_matrix=ca.DM.eye(2), force=ca.DM([-G, -G]), contacts=contacts)
    assert [contact.name for contact in system.contacts] == ["hard"]
    assert "soft: gap q_1, stiffness p_0, damping 0" in repr(system)
    motion = ns.simulate(system, x0=[1, 1, 0, 0], duration=0.6, p=[2e3], method=EXACT)
    assert [event.name for event in motion.impacts] == ["hard"]
    assert motion.final_state[1] > 0.3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"damping": 1.0}, "damping belongs to a compliant contact; give stiffness="),
        ({"stiffness": 1e3, "restitution": 0.5}, "a compliant contact has no restitution; give damping= instead"),
        ({"stiffness": -1.0}, "stiffness: expected a positive number, given -1"),
        ({"stiffness": "a"}, "stiffness: expected one number, given 'a'"),
        ({"stiffness": 1.0, "creep_speed": 0.0}, "creep_speed: expected a positive number, given 0"),
        ({"stiffness": ca.SX.sym("k")}, "coefficients depends on k, which is not among p"),
    ],
)
def test_mistakes_are_told(words, message):
    """What is given and what is expected."""
    with pytest.raises(ns.ModelError, match=message):
        ball(**words)
    with pytest.raises(ns.ModelError, match="unknown compliant contact 'wall'"):
        ball(stiffness=1.0).contact_force("wall")


@pytest.mark.quick
@pytest.mark.parametrize("p", [[-1.0, 0.1], [0.0, 0.1], [10.0, -0.1]])
def test_values_that_pull_or_drive_are_refused(p: list[float]) -> None:
    q, v, words = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("p", 2)
    ground = ns.Contact("ground", gap=q, stiffness=words[0], damping=words[1])
    system = ns.CLS(q=q, v=v, p=words, mass_matrix=1, force=-9.81, contacts=[ground])
    with pytest.raises(ns.ModelError, match="expected stiffness > 0 and damping >= 0"):
        ns.simulate(system, x0=[1.0, 0.0], duration=0.1, p=p)
