"""A pole on a cart between walls that are hard or soft: one word changes."""

from __future__ import annotations

from typing import Any

import casadi as ca

import nosnoc_py as ns

HARD: dict[str, Any] = {"restitution": 0.0}
SOFT: dict[str, Any] = {"stiffness": 500.0, "damping": 0.2}


def problem(**wall: Any) -> ns.OCP:
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    coupling = 0.05 * ca.cos(q[1])
    tip = q[0] + 0.5 * ca.sin(q[1])
    system = ns.CLS(
        q=q, v=v, u=u, names={"q": ["cart", "angle"], "v": ["speed", "rate"], "u": ["push"]},
        mass_matrix=ca.vertcat(ca.horzcat(1.1, coupling), ca.horzcat(coupling, 0.025)),
        force=ca.vertcat(u + 0.05 * ca.sin(q[1]) * v[1] ** 2, 0.4905 * ca.sin(q[1])),
        contacts=[ns.Contact("left", gap=tip + 0.15, **wall), ns.Contact("right", gap=0.15 - tip, **wall)],
    )  # fmt: skip
    return ns.OCP(
        system, horizon=1.5, x0={"angle": 0.1, "rate": 1.2}, bounds={"push": (-8, 8)},
        stage_cost=ca.sumsqr(q) + 0.1 * ca.sumsqr(v) + 0.01 * u**2, terminal_cost=20 * ca.sumsqr(q) + 2 * ca.sumsqr(v),
    )  # fmt: skip


def test_hard_walls() -> None:
    """It falls against a wall, which it leaves again."""
    ocp = problem(**HARD)
    assert abs(ns.simulate(ocp.system, x0=ocp.x0, duration=1.5)["angle"]).max() > 0.25
    solution = ns.solve(ocp, ns.MultiPhase())
    assert solution.certificate is not None
    assert solution.certificate.confirmed
    assert [event.kind for event in solution.events] == ["impact", "contact", "release"]


def test_soft_walls() -> None:
    """They throw it back before it falls, after 48 ms of contact."""
    ocp = problem(**SOFT)
    solution = ns.solve(ocp, ns.MultiPhase())
    assert solution.certificate is not None
    # The pole is unstable: errors grow by a factor of 200, to 1e-6 of the motion.
    assert solution.certificate.verdict in (ns.Verdict.CONFIRMED, ns.Verdict.CONFIRMED_IN_WINDOWS)
    assert solution.sequence is not None
    assert list(solution.sequence.phases) == [{}, {"right": "pressed"}, {}]
    assert solution.objective < 0.1
    assert solution.value(ocp.system.contact_force("right")).max() > 1.0
