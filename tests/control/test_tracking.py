"""Feedback about plans: the regulator of a linear system, through impacts, at limits, with soft constraints."""

from __future__ import annotations

from functools import cache

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import OptionError

pytestmark = pytest.mark.quick


def carts() -> ns.CLS:
    """A cart pushes another one."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    touch = ns.Contact("touch", gap=q[1] - q[0] - 0.2)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -v[1]), contacts=[touch])


@cache
def plan_of_carts() -> ns.Trajectory:
    return ns.simulate(carts(), x0=[0, 0.4, 0, 0], duration=1.0, u=3.0)


def test_without_contacts_the_gains_are_those_of_the_discrete_regulator():
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    mass = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("far", gap=100 - q)])
    plan = ns.simulate(mass, x0=[0, 0], duration=1.0, u=np.linspace(1, -1, 20)[:, None])
    h, Q, R = 0.05, np.diag([2.0, 1.0]), np.array([[0.1]])
    law = ns.track(plan, Q=Q, R=R, Qf=np.eye(2), period=h)
    A, B, P = np.array([[1, h], [0, 1]]), np.array([[h * h / 2], [h]]), np.eye(2)
    for k in reversed(range(20)):
        K = np.linalg.solve(h * R + B.T @ P @ B, B.T @ P @ A)
        assert law.gains[k] == pytest.approx(K, abs=1e-7)
        P = h * Q + A.T @ P @ (A - B @ K)
    assert law.flags == ()


def test_the_feedback_brings_a_disturbed_start_back_through_an_impact():
    """A start 5 cm behind ends 9 times nearer than without feedback, and the nominal one stays on the plan."""
    plan = plan_of_carts()
    law = ns.track(plan)
    assert len(law.references) == 1
    assert law.robustness().errors[0] <= 1e-4  # nominal; measured 1e-6
    found = law.robustness(x0={"q_0": 0.05}, n=8, seed=1)
    assert np.median(found.errors) < 0.2 * np.median(found.open_loop_errors)
    assert found.lost == 0


def test_feedback_stays_within_the_limits():
    law = ns.track(plan_of_carts(), bounds=(-4.0, 4.0))
    pushed = [law(0.02 * k, np.array([-0.5, 0.4, 0.0, 0.0]))[0] for k in range(40)]
    assert max(np.abs(pushed)) == 4.0


def test_a_plan_with_slacks_is_tracked_by_the_controls_of_the_plant():
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    slow = ns.Constraint(v, upper=0.5, soft="l1", weight=10.0, name="speed")
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=10 * (q - 0.4) ** 2 + u**2, path_constraints=[slow])
    law = ns.track(ns.solve(ocp, ns.FESDJ(control_stages=10)))
    assert law.gains.shape[1:] == (1, 2)
    assert ns.simulate(cart, x0=[0.01, 0], duration=1.0, u=law).success


@pytest.mark.parametrize(
    ("change", "word"),
    [({"Q": np.eye(3)}, "Q"), ({"R": 0.0}, "R"), ({"period": 2.0}, "period"), ({"bounds": (1.0, -1.0)}, "bounds")],
)
def test_what_does_not_fit_is_said(change, word):
    with pytest.raises(OptionError, match=word):
        ns.track(plan_of_carts(), **change)
