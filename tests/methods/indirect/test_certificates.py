"""What `certify` makes of solutions that are not made of finite elements: motion and statements alike."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from problems import two_discs
from tests.pairwise import slow_row


@cache
def found() -> tuple[ns.OCP, ns.Solution]:
    ocp = two_discs.build("general")
    return ocp, ns.solve(ocp, ns.MinimumPrinciple(steps=60, refine=True), guess=[0, 3])


def test_a_true_solution_is_confirmed() -> None:
    certificate = ns.certify(*found())
    assert certificate.verdict is ns.Verdict.CONFIRMED, str(certificate)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"bounds": ns.Bounds(u=(-5, 5))}, "the bound of u_y is violated"),  # u_y begins at 5.22
        slow_row(
            {"bounds": ns.Bounds(x=([-9] * 4 + [-9] * 4, [9] * 4 + [9, 9, 0.5, 9]))}, "the bound of v_x_2 is violated"
        ),
        slow_row({"path": True}, "the path constraint thrust is violated"),
        slow_row({"terminal": True}, "the terminal constraint there is violated"),
    ],
)
def test_a_solution_that_breaks_the_problem_is_refuted(changes: dict[str, Any], what: str) -> None:
    ocp, solution = found()
    if changes.pop("path", False):
        changes["path_constraints"] = [ns.Constraint(ca.sumsqr(ocp.system.u), upper=1.0, name="thrust")]
    if changes.pop("terminal", False):
        changes["terminal_constraints"] = [ns.Constraint(ocp.system.q[0], 7.0, 7.0, name="there")]
    certificate = ns.certify(replace(ocp, **changes), solution)
    assert certificate.verdict is ns.Verdict.REFUTED
    assert what in str(certificate)


@pytest.mark.slow
def test_a_peak_of_the_control_between_its_means_is_seen() -> None:
    """The means of the control keep a bound that the control itself breaks."""
    ocp, solution = found()
    mean, peak = np.abs(solution.u[:, 1]).max(), np.abs(solution.control(np.linspace(0, 1, 5001))[:, 1]).max()
    assert peak - mean > 1e-4
    bound = mean + 0.2 * (peak - mean)
    certificate = ns.certify(replace(ocp, bounds=ns.Bounds(u=([-9, -bound], [9, bound]))), solution)
    assert certificate.verdict is ns.Verdict.REFUTED


def test_a_control_that_is_no_number_is_no_crash() -> None:
    ocp, solution = found()
    dense = solution.control_interpolant
    assert dense is not None
    broken = replace(dense, x_left=np.full_like(dense.x_left, np.nan))  # type: ignore[type-var]
    certificate = ns.certify(ocp, replace(solution, control_interpolant=broken))
    assert certificate.verdict is not ns.Verdict.CONFIRMED


def test_a_hybrid_system_has_a_referee() -> None:
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    floor = ns.StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], -0.5 * x[1]))
    ball = ns.HybridSystem(x=x, u=u, flow=ca.vertcat(x[1], u - 9.81), jumps=[floor])
    ocp = ns.OCP(ball, horizon=1.0, x0=[1, 0], stage_cost=u**2, terminal_cost=(x[0] - 1) ** 2)
    solution = ns.solve(ocp, ns.MinimumPrinciple(grid="moving", acceleration=5))
    assert ns.certify(ocp, solution).end_state_error < 1e-3
    with pytest.raises(ns.OptionError, match=r"FESDJ does not fit an ns\.HybridSystem"):
        ns.solve(ocp, ns.FESDJ(), ns.Auto())
