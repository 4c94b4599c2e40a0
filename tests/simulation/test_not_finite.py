"""Gaps, forces and derivatives that are no numbers end a simulation with a status; so does a law missed grossly."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from tests.pairwise import slow_row

GRAVITY = 9.81


def ball(gap: Any, force: Any = None, **more: Any) -> ns.CLS:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    law = ca.SX(-GRAVITY) if force is None else force(q, v)
    return ns.CLS(q=q, v=v, mass_matrix=ca.SX(1), force=law, contacts=[ns.Contact("ground", gap=gap(q), **more)])


def bowl() -> ns.CLS:
    """The unit circle from inside; there is no gap beside it."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    round_ = ns.Contact("bowl", gap=q[1] + ca.sqrt(1 - q[0] ** 2))
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, -GRAVITY]), contacts=[round_])


def test_a_gap_that_is_no_number_behind_the_contact_is_not_lost() -> None:
    """sqrt(q): the fall takes sqrt(2 / g) = .4515 s, and nothing is under the floor."""
    found = ns.simulate(ball(ca.sqrt), x0=[1.0, 0.0], duration=1.0, method=ns.EventDriven())
    assert found.status is ns.Status.NUMERICAL_ERROR
    assert "is no finite number any more" in found.message
    assert found.t[-1] == pytest.approx(np.sqrt(2.0 / GRAVITY), abs=2e-3)
    assert found.x[:, 0].min() > 0.0


def test_a_contact_before_the_gap_ceases_to_be_a_number_is_found() -> None:
    """A ball thrown into a bowl lands where its parabola meets the circle, .492 s later, in the first long step."""
    found = ns.simulate(bowl(), x0=[0.0, 1.0, 2.0, 0.0], duration=1.0, method=ns.EventDriven())
    assert found.impacts
    hit = found.impacts[0].time
    x, y = 2.0 * hit, 1.0 - 0.5 * GRAVITY * hit**2
    assert abs(x**2 + y**2 - 1.0) < 1e-9
    assert hit == pytest.approx(0.4916, abs=1e-3)


@pytest.mark.parametrize(
    "method", [slow_row(None), slow_row(ns.EventDriven()), ns.TimeStepping()], ids=["elements", "events", "steps"]
)
def test_no_simulator_flies_on_without_a_gap(method: Any) -> None:
    found = ns.simulate(bowl(), x0=[0.0, 1.0, 2.0, 0.0], duration=2.0, method=method, time_limit=60)
    assert not found.success
    assert found.status in (ns.Status.NUMERICAL_ERROR, ns.Status.STEP_FAILED)
    if not isinstance(method, ns.EventDriven):  # it stops on the rim, where the normal is infinite
        assert found.status is ns.Status.NUMERICAL_ERROR
        assert "finite number" in found.message
    assert found.final_state[1] > -1.0
    assert found.t[-1] < 1.2


@pytest.mark.parametrize("force", [lambda q, v: ca.sqrt(v) - GRAVITY, lambda q, v: ca.sqrt(q - 0.5) - GRAVITY])
def test_derivatives_that_are_infinite_are_a_numerical_error(force: Any) -> None:
    """The inverse of an infinite matrix is zero: the ball hung in the air for a second and was called solved."""
    found = ns.simulate(ball(lambda q: q, force), x0=[1.0, 0.0], duration=1.0, method=ns.TimeStepping())
    assert found.status is ns.Status.NUMERICAL_ERROR
    assert "no finite numbers" in found.message


def test_a_law_of_contacts_that_is_missed_grossly_is_not_solved() -> None:
    """A force 10 q^3 throws the body to infinity; steps that fail to stop it miss by as much as it is fast."""
    system = ball(lambda q: q + 50.0, lambda q, v: 10.0 * q**3, restitution=0.5)
    found = ns.simulate(system, x0=[1.0, 1.0], duration=3.0, method=ns.TimeStepping(), steps=1000)
    assert found.status in (ns.Status.INACCURATE, ns.Status.NUMERICAL_ERROR)
    gentle = ns.simulate(ball(lambda q: q), x0=[1.0, 0.0], duration=1.0, method=ns.TimeStepping(), steps=200)
    assert gentle.success
