"""Gaps that touch zero without a sign are refused by finite elements and time-stepping, and end others' motion."""

from __future__ import annotations

from typing import Any

import casadi as ca
import pytest

import nosnoc_py as ns
from nosnoc_py.systems.unsigned import is_never_negative

q, v = ca.SX.sym("q"), ca.SX.sym("v")
r = ca.SX.sym("r", 3)

NEVER_NEGATIVE = {
    "modulus": ca.fabs(q),
    "square": q**2,
    "scaled": 3 * ca.fabs(q) + q**4,
    "distance": ca.norm_2(r),
    "sum of squares": ca.sumsqr(r),
    "root": ca.sqrt(q),
    "high power": q**102,
    "product": q * q,
    "maximum": ca.fmax(q, 0),
}
SIGNED = {
    "height": q,
    "cube": q**3,
    "distance less a radius": ca.norm_2(r) - 0.5,
    "never closed": q**2 + 1,
    "exponential": ca.exp(q),
    "smaller one": ca.fmin(q, ca.fabs(v)),
    "circle": q + ca.sqrt(1 - v**2),
}


@pytest.mark.parametrize("name", NEVER_NEGATIVE)
def test_expressions_without_a_sign_are_known(name: str) -> None:
    assert is_never_negative(NEVER_NEGATIVE[name])


@pytest.mark.parametrize("name", SIGNED)
def test_others_are_left_alone(name: str) -> None:
    assert not is_never_negative(SIGNED[name])


def ball(gap: Any) -> ns.CLS:
    return ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=gap, restitution=0.5)])


@pytest.mark.parametrize("gap", [ca.fabs(q), q**2], ids=["modulus", "square"])
@pytest.mark.parametrize("method", [ns.FESDJ(), ns.TimeStepping()], ids=["elements", "steps"])
def test_a_ball_does_not_fall_through_a_gap_without_a_sign(method: Any, gap: Any) -> None:
    with pytest.raises(ns.ModelError, match=r"contact 'ground': the gap becomes zero and then positive.*negative"):
        ns.simulate(ball(gap), x0=[1, 0], duration=1.0, method=method)
    with pytest.raises(ns.ModelError, match="contact 'ground'"):
        ns.Simulator(ball(gap), method, step=0.05)


def test_two_points_do_not_pass_through_each_other() -> None:
    """Head on, in the plane: the distance of the points has no sign."""
    a = ca.SX.sym("a", 4)
    w = ca.SX.sym("w", 4)
    points = ns.Contact("points", gap=ca.norm_2(a[:2] - a[2:]), restitution=1.0)
    system = ns.CLS(q=a, v=w, mass_matrix=ca.DM.eye(4), force=ca.DM.zeros(4), contacts=[points])
    for method in (ns.FESDJ(), ns.TimeStepping()):
        with pytest.raises(ns.ModelError, match="distance minus the sum of the radii"):
            ns.simulate(system, x0=[0, 0, 1, 0, 1, 0, -1, 0], duration=1.01, method=method)
    trajectory = ns.simulate(system, x0=[0, 0, 1, 0, 1, 0, -1, 0], duration=1.01, method=ns.EventDriven())
    assert trajectory.status is ns.Status.GRAZING
