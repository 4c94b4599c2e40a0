"""Starts from where contacts can be: which sequences are proposed, what their states touch, and what they lead to."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.search.portfolio import with_longest_phases
from nosnoc_py.search.stances import contact_sets, stances
from nosnoc_py.search.starts import StartTask
from nosnoc_py.search.tuning import TUNING
from nosnoc_py.sequences.plan import Plan
from nosnoc_py.sequences.refinement import laws_of
from problems.benchmarks.contact import posed

FLIGHT: frozenset[str] = frozenset()


def sets(*names: str) -> list[frozenset[str]]:
    """Of words such as "left right", one for every phase."""
    return [frozenset(one.split()) for one in names]


@pytest.mark.quick
def test_a_foot_hops() -> None:
    proposed = list(contact_sets(*sets("foot", "foot"), ["foot"]))
    assert proposed[:2] == [sets("foot"), sets("foot", "", "foot")]
    assert max(len(one) for one in proposed) == 7
    assert len({tuple(one) for one in proposed}) == len(proposed)


@pytest.mark.quick
def test_feet_step_one_after_the_other_and_fingers_grip() -> None:
    steps = list(contact_sets(*sets("left right", "left right"), ["left", "right"]))
    assert sets("left right", "left", "left right") in steps
    assert sets("left right", "right", "left right") in steps
    grips = list(contact_sets(*sets("", "left right"), ["left", "right"]))
    assert grips[0] == sets("", "left right")
    assert sets("", "left", "left right") in grips


@pytest.mark.quick
@pytest.mark.parametrize("name", ["kneed_hopper", "monoped", "five_link_biped", "ellipse_squeeze"])
def test_states_touch_what_their_phases_close(name: str) -> None:
    ocp = posed(name).build()
    system, names = ocp.system, [contact.name for contact in ocp.system.contacts]
    proposed = [one for one in stances(StartTask.of(ocp), np.random.default_rng(0)) if one is not None]
    assert len(proposed) >= 3
    for one in proposed:
        phases, times = one.sequence.phases, np.asarray(one.sequence.times)
        for k, t in enumerate(times, start=1):
            gaps = np.array(system.kinematics(one.motion(t)[None], 0.0, ocp.p).gaps[0])[: len(names)]
            closed = [contact in {**phases[k - 1], **phases[k]} for contact in names]
            np.testing.assert_allclose(gaps[closed], 0.0, atol=1e-6)
            assert gaps.min() > -1e-6


@pytest.mark.slow
def test_two_fingers_grip_an_ellipse_without_a_guess() -> None:
    """Motions that do nothing cost 4e6, one finger alone costs 4e5."""
    ocp = posed("ellipse_squeeze").build()
    solution = ns.Search(starts=("stances",), effort="quick").solve(ocp)
    assert solution.status is ns.Status.SOLVED
    assert solution.objective < 401.0  # 400.09 with one phase of grip, less with slips
    assert solution.final_state[1] == pytest.approx(0.3, abs=0.02)  # the height of the ellipse [m]


@pytest.mark.quick
def test_a_motion_that_rattles_keeps_its_long_phases() -> None:
    ocp = posed("throwing_ball").build()
    rest = np.zeros(ocp.system.n_u)
    motion = ns.simulate(ocp.system, x0=ocp.x0, duration=1.0, u=rest, method=ns.EventDriven())
    laws = laws_of(ocp, motion)
    items = [{}, *["impact ground", {}] * 40]
    times = np.cumsum(np.geomspace(0.5, 1e-4, 40))
    short = with_longest_phases(ns.Sequence(items, times), laws, float(times[-1]) + 1e-5)
    assert len(short.phases) <= TUNING.most_phases
    few = ns.Sequence([{}, "impact ground", {}], [0.3])
    assert with_longest_phases(few, laws, 1.0) is few


@pytest.mark.quick
def test_only_contacts_with_friction_stick() -> None:
    """A contact without friction has the mode "closed", also where it is given a tangent."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    slippery = ns.Contact("slippery", gap=q[1], tangent=ca.DM([1, 0]))
    rough = ns.Contact("rough", gap=1 - q[0], tangent=ca.DM([0, 1]), friction=0.5)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u, contacts=[slippery, rough])
    goal = ns.Constraint(q, [1, 0], [1, 0])
    ocp = ns.OCP(system, horizon=1.0, x0=[0, 1, 0, 0], stage_cost=ca.sumsqr(u), terminal_constraints=[goal])
    proposed = [one for one in stances(StartTask.of(ocp), np.random.default_rng(0)) if one is not None]
    modes = {item for one in proposed for phase in one.sequence.phases for item in phase.items()}
    assert modes == {("slippery", "closed"), ("rough", "stick")}
    for one in proposed:
        assert Plan.of(one.sequence, laws_of(ocp, one.motion)).modes
