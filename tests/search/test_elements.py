"""Complementarities of the user's own: finite elements from many starts, against closed forms and one start."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from problems.benchmarks.contact import posed


def one_side(**changed: Any) -> ns.OCP:
    """A point is pushed from one side at a time to -1 in 1 s, min of the integral of u^2."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u", 2)
    asked: dict[str, Any] = {"stage_cost": ca.sumsqr(u), "terminal_constraints": [x == -1]}
    push = ns.Complementarity(u[0], u[1], name="one side")
    system = ns.ODE(x=x, u=u, flow=u[0] - u[1])
    return ns.OCP(system, horizon=1.0, x0=[0.0], complementarities=[push], **{**asked, **changed})


@pytest.mark.quick
def test_the_default_against_a_closed_form() -> None:
    solution = ns.solve(one_side(), effort="quick", progress=False)
    assert solution.status is ns.Status.SOLVED
    assert solution.objective == pytest.approx(1.0, rel=1e-6)
    np.testing.assert_allclose(solution.u[:, 0], 0.0, atol=1e-6)
    assert solution.candidates is not None
    assert [one.start for one in solution.candidates[:2]] == ["default", "random"]


@pytest.mark.quick
def test_it_stops_and_says_why() -> None:
    assert ns.solve(one_side(), callback=lambda state: ns.Stop).status is ns.Status.STOPPED


@pytest.mark.slow
def test_what_is_impossible_is_not_solved() -> None:
    impossible = one_side(bounds=ns.Bounds(u=(0, 0.5)))
    assert not ns.solve(impossible, effort="quick").success


@pytest.mark.slow
def test_random_starts_find_what_one_start_does_not() -> None:
    ocp = posed("crisp_push_box").build()
    one = ns.solve(ocp, ns.FESD(control_stages=20))
    many = ns.solve(ocp, effort="quick")
    assert one.objective > 14.0
    assert many.objective < 8.0
    assert many.certificate is not None
    assert many.certificate.verdict is ns.Verdict.CONFIRMED
