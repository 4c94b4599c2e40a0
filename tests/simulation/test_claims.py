"""What certificates say of solutions that stand in for optimised ones: windows, balances, lists of events."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from tests.simulation.claimed import solution_of

pytestmark = pytest.mark.quick

GRAVITY = 9.81


def point(friction: float = 0.5, restitution: float = 0.5) -> ns.CLS:
    """A point mass of 2 kg over the ground."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    more = {"tangent": ca.DM([1, 0]), "friction": friction} if friction else {}
    ground = ns.Contact("ground", gap=q[1], restitution=restitution, **more)
    return ns.CLS(q=q, v=v, mass_matrix=2.0 * ca.DM.eye(2), force=ca.DM([0, -2.0 * GRAVITY]), contacts=[ground])


def test_a_force_that_pulls_is_none() -> None:
    """Held down on the ground while the weight is negative: gap zero, and a normal force of the wrong sign."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    rises = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(1), force=ca.DM([1.0]), contacts=[ns.Contact("ground", gap=q)])
    falls = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(1), force=ca.DM([-1.0]), contacts=[ns.Contact("ground", gap=q)])
    rest = ns.simulate(falls, method=ns.FESDJ(), x0=[0.0, 0.0], duration=1.0, steps=2)
    assert np.abs(rest.x).max() < 1e-12
    ocp = ns.OCP(rises, horizon=1.0, x0=[0.0, 0.0])
    found = ns.certify(ocp, solution_of(ocp, replace(rest, series={})))
    assert found.verdict is ns.Verdict.REFUTED
    assert "a normal force pulls at ground" in found.reason


def test_a_window_that_begins_with_an_impact_flies_on() -> None:
    """The body touches the ground there and leaves it: it is not closed."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    ball = ns.CLS(
        q=q, v=v, mass_matrix=ca.DM.eye(1), force=ca.DM([-GRAVITY]), contacts=[ns.Contact("g", gap=q, restitution=0.8)]
    )
    hit = sqrt(2.0 / GRAVITY)
    ocp = ns.OCP(ball, horizon=2.0 * hit, x0=[1.0, 0.0])
    trajectory = ns.simulate(ball, x0=ocp.x0, duration=2.0 * hit, steps=2, method=ns.FESDJ(rk_stages=3))
    assert trajectory.success
    found = ns.certify(ocp, solution_of(ocp, trajectory), window=hit)
    assert found.confirmed, found
    assert len(found.windows) == 2
    assert max(window.defect for window in found.windows) < 1e-8


def test_the_balance_knows_of_a_mass_matrix_that_changes() -> None:
    """A pendulum on a cart: the identity dT = v'f dt + v'(dM/dt)v dt / 2 holds for any force."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    mass = ca.vertcat(ca.horzcat(3.0, ca.cos(q[1])), ca.horzcat(ca.cos(q[1]), 1.0))
    force = ca.vertcat(v[1] ** 2 * ca.sin(q[1]), -GRAVITY * ca.sin(q[1]))
    wall = ns.Contact("wall", gap=0.2 - q[0], restitution=0.5)
    system = ns.CLS(q=q, v=v, mass_matrix=mass, force=force, contacts=[wall])
    ocp = ns.OCP(system, horizon=1.5, x0=[0.0, 2.0, 0.0, 0.0])
    trajectory = ns.simulate(system, x0=ocp.x0, duration=1.5, steps=60, method=ns.FESDJ(rk_stages=3))
    found = ns.certify(ocp, solution_of(ocp, trajectory))
    assert found.balance is not None
    assert found.trajectory.impacts
    assert abs(found.balance.energy_residual) < 1e-9
    assert found.balance.impulse_residual < 1e-9
    # independent: potential energy -g cos(theta), so kinetic energy changes by that and by the impacts alone
    start, end = found.trajectory.x[0], found.trajectory.x[-1]
    drop = GRAVITY * (np.cos(end[1]) - np.cos(start[1]))
    kinetic = found.balance.kinetic_end - found.balance.kinetic_start
    assert kinetic == pytest.approx(drop + found.balance.impacts, abs=1e-9)


def test_an_event_listed_at_another_time_is_told() -> None:
    """The states agree, and the list of events does not: by a hundredth of that it is no more than inexact."""
    system = point()
    ocp = ns.OCP(system, horizon=1.0, x0=[0.0, 0.0, 3.0, 0.0])
    trajectory = ns.simulate(system, method=ns.FESDJ(), x0=ocp.x0, duration=1.0, steps=4)
    (stick,) = (event for event in trajectory.events if event.kind == "stick")
    right = ns.certify(ocp, solution_of(ocp, trajectory))
    assert right.reason == "end state and objective agree to 1e-06"
    assert all(window.events_agree for window in right.windows)
    early = replace(trajectory, events=[replace(stick, time=stick.time - 0.1)])
    found = ns.certify(ocp, solution_of(ocp, early))
    assert found.verdict is ns.Verdict.REFUTED
    assert found.reason.endswith(f"stick ground at {stick.time - 0.1:.6g} s comes 0.1 s later")
    near = replace(trajectory, events=[replace(stick, time=stick.time - 0.001)])
    assert ns.certify(ocp, solution_of(ocp, near)).confirmed
    odd = ns.certify(ocp, solution_of(ocp, early), window=1.0 / 3.0).windows[1]
    assert not odd.events_agree
    assert "comes 0.1 s later" in odd.difference
