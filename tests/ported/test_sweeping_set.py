"""A point in a disc that moves, past an obstacle that moves: solved, and the time as a state of one's own."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns


def sets(x: ca.SX, t: ca.SX) -> ca.SX:
    disc = 1 - ca.sumsqr(x - ca.vertcat(ca.sin(t), ca.cos(t)))
    obstacle = ca.sumsqr(x - ca.vertcat(0.6 * t - 1.5, 0.0)) - 0.25
    return ca.vertcat(disc, obstacle)


def test_the_least_effort_past_the_obstacle() -> None:
    x, u, t = ca.SX.sym("x", 2), ca.SX.sym("u", 2), ca.SX.sym("t")
    swept = ns.PDS(x=x, u=u, t=t, flow=u, constraints=sets(x, t), constraint_names=["disc", "obstacle"])
    ocp = ns.OCP(
        swept, horizon=5.0, x0=[0.2, 1.0], stage_cost=ca.sumsqr(u), bounds=ns.Bounds(u=(-2, 2)),
        terminal_cost=10 * ns.least_squares(x, [1.0, -0.5]),
    )  # fmt: skip
    carried = ns.simulate(swept, x0=[0.2, 1.0], duration=5.0)
    assert [event.name for event in carried.events] == ["disc", "obstacle", "obstacle"]
    solution = ns.solve(ocp, ns.MultiPhase())
    assert solution.success
    certificate = solution.certificate
    assert certificate is not None
    assert certificate.end_state_error < 1e-3
    assert certificate.true_objective == pytest.approx(solution.objective, rel=1e-4)
    doing_nothing = 10 * float(((carried.final_state[:2] - [1.0, -0.5]) ** 2).sum())
    assert solution.objective < 0.8 * doing_nothing


def test_a_clock_of_ones_own_has_a_singular_metric() -> None:
    x, clock = ca.SX.sym("x", 2), ca.SX.sym("clock")
    own = ns.PDS(
        x=ca.vertcat(x, clock), flow=ca.vertcat(0, 0, 1), constraints=sets(x, clock), metric=np.diag([1.0, 1.0, 0.0])
    )
    t = ca.SX.sym("t")
    timed = ns.PDS(x=x, t=t, flow=ca.SX.zeros(2), constraints=sets(x, t))
    found = ns.simulate(own, x0=[0.2, 1.0, 0.0], duration=5.0)
    expected = ns.simulate(timed, x0=[0.2, 1.0], duration=5.0)
    np.testing.assert_allclose(found.final_state, expected.final_state, rtol=0, atol=1e-9)
