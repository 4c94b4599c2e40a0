"""A ball on a paddle that moves as prescribed: kept in the air with the least force, and caught at a height."""

from __future__ import annotations

import casadi as ca
import pytest

import nosnoc_py as ns


def test_a_ball_on_a_paddle_that_swings() -> None:
    q, v, u, t = (ca.SX.sym(name) for name in "qvut")
    paddle = ns.Contact("paddle", gap=q - 0.15 * ca.sin(2 * ca.pi * t), restitution=0.8)
    ball = ns.CLS(
        q=q, v=v, u=u, t=t, mass_matrix=1, force=u - 9.81, contacts=[paddle], names={"q": ["height"], "u": ["push"]}
    )
    ocp = ns.OCP(
        ball, horizon=1.2, x0=[0.5, 0.0], stage_cost=u**2, terminal_state={"height": 0.8}, bounds={"push": (-5, 5)}
    )
    hits = [{}, "impact paddle", {}, "impact paddle", {}]
    solution = ns.solve(ocp, ns.MultiPhase(sequence=hits), guess=[1.0])
    assert solution.certificate is not None
    assert solution.certificate.confirmed
    assert solution["height"][-1] == pytest.approx(0.8, abs=1e-8)
    for event in solution.events:  # it leaves relative to the paddle with 0.8 of what it came with
        moved = 0.15 * 2 * 3.141592653589793 * float(ca.cos(2 * ca.pi * event.time))
        before, after = (solution(event.time, side)[1] for side in ("-", "+"))
        assert after - moved == pytest.approx(-0.8 * (before - moved), abs=1e-7)
