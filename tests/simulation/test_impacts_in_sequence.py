"""Impacts of a chain of bodies that touch: at once, or one after the other as an impulse travels."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

COUNT = 5


def cradle(restitution, law, masses=None):
    """Return balls of 0.1 m in a row."""
    q, v = ca.SX.sym("q", COUNT), ca.SX.sym("v", COUNT)
    contacts = [ns.Contact(f"pair {k}", gap=q[k + 1] - q[k] - 0.1, restitution=restitution) for k in range(COUNT - 1)]
    inertia = ca.diag(ca.DM(masses or [1.0] * COUNT))
    return ns.CLS(q=q, v=v, mass_matrix=inertia, force=ca.DM.zeros(COUNT), contacts=contacts, simultaneous_impacts=law)


def hit(system, moving=1, gap=0.0):
    """Return the velocities after `moving` balls have hit the others with 1 m/s."""
    places = (0.1 + gap) * np.arange(COUNT)
    places[:moving] -= 0.05
    motion = ns.simulate(system, x0=np.r_[places, np.ones(moving), np.zeros(COUNT - moving)], duration=0.2)
    assert motion.status is ns.Status.SOLVED, motion.message
    return motion


@pytest.mark.quick
@pytest.mark.parametrize("moving", [1, 2, 3, 4])
def test_as_many_balls_leave_as_have_come(moving):
    after = hit(cradle(1.0, "in sequence"), moving).final_state[COUNT:]
    assert np.abs(after - np.r_[np.zeros(COUNT - moving), np.ones(moving)]).max() < 1e-12


@pytest.mark.quick
def test_at_once_newtons_law_shares_the_impulse():
    after = hit(cradle(1.0, "at once")).final_state[COUNT:]
    assert np.abs(after - [-0.6, 0.4, 0.4, 0.4, 0.4]).max() < 1e-12


@pytest.mark.quick
@pytest.mark.parametrize("restitution", [0.9, 0.5, 0.0])
def test_of_equal_balls_a_sequence_is_the_limit_of_small_gaps(restitution):
    touching = hit(cradle(restitution, "in sequence"))
    apart = hit(cradle(restitution, "at once"), gap=1e-6)
    assert np.abs(touching.final_state[COUNT:] - apart.final_state[COUNT:]).max() < 1e-9


@pytest.mark.quick
def test_impulses_of_a_sequence_are_those_of_the_whole_instant():
    masses = [1.0, 2.0, 0.5, 1.5, 1.0]
    motion = hit(cradle(0.5, "in sequence", masses))
    moved = np.array(masses) * motion.final_state[COUNT:]
    assert abs(moved.sum() - 1.0) < 1e-12
    impulses = [motion.series[f"Lambda_normal[pair {k}]"].values.sum() for k in range(COUNT - 1)]
    assert np.abs(np.array(impulses) - [moved[k + 1 :].sum() for k in range(COUNT - 1)]).max() < 1e-9
    # No pair approaches any more.
    assert (np.diff(motion.final_state[COUNT:]) > -1e-9).all()


def test_derivatives_of_a_sequence_are_flagged():
    places = 0.1 * np.arange(COUNT) - np.r_[0.05, np.zeros(COUNT - 1)]
    x0 = np.r_[places, 1.0, np.zeros(COUNT - 1)]
    motion = ns.simulate(cradle(1.0, "in sequence"), x0=x0, duration=0.2, sensitivities=True)
    assert motion.sensitivity.flags
    assert np.isnan(motion.sensitivity.x0).all()


@pytest.mark.quick
def test_outcomes_are_those_of_impacts_at_once():
    motion = hit(cradle(1.0, "in sequence"))
    with pytest.raises(ns.OptionError, match="in sequence"):
        motion.why(motion.impacts[0])
    shared = hit(cradle(1.0, "at once"))
    outcome = shared.why(shared.impacts[0])
    assert [one.chosen for one in outcome.outcomes] == [True]


@pytest.mark.quick
def test_other_methods_refuse_sequences():
    system = cradle(1.0, "in sequence")
    start = np.r_[0.1 * np.arange(COUNT), np.zeros(COUNT)]
    for method in (ns.TimeStepping(step=0.01), ns.FESDJ()):
        with pytest.raises(ns.ModelError, match="in sequence"):
            ns.simulate(system, x0=start, duration=0.1, steps=10, method=method)
    with pytest.raises(ns.ModelError, match="in sequence"):
        ns.OCP(system, horizon=1.0, x0=start)
    with pytest.raises(ns.ModelError, match="simultaneous_impacts"):
        cradle(1.0, "both")
