"""Inequalities that a program keeps at its points and breaks between them, and contacts that come near."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.sequences import refinement


def around(radius: float = 0.5) -> ns.OCP:
    """A mass goes round a disc that attracts it, from one side to the other."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u, contacts=[])
    disc = ns.Constraint(ca.sumsqr(q - ca.DM([0, -0.1])) - radius**2, 0.0, name="disc")
    return ns.OCP(
        s,
        horizon=1.0,
        x0=[-1, 0, 0, 0],
        stage_cost=0.01 * ca.sumsqr(u) + 10 * ca.sumsqr(q),
        terminal_constraints=[ns.Constraint(s.x, [1, 0, 0, 0], [1, 0, 0, 0])],
        path_constraints=[disc],
    )


def sideways(t: float) -> list[float]:
    """A control that passes above the disc."""
    return [6 - 12 * t, 20.0 if t < 0.25 or t > 0.75 else -20.0]


def test_an_arc_along_a_constraint_is_confirmed() -> None:
    solution = ns.solve(around(), ns.MultiPhase(intervals=10), guess=sideways)
    assert solution.status is ns.Status.SOLVED
    assert solution.certificate is not None
    assert solution.certificate.verdict is ns.Verdict.CONFIRMED
    times = np.linspace(0.0, 1.0, 2001)
    states = np.array([solution(t) for t in times])
    away = np.hypot(states[:, 0], states[:, 1] + 0.1) - 0.5
    assert away.min() > -2.0 * 1e-6  # the tolerance of the certificate, of a way of 2 m


def test_what_is_kept_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ns.solve(around(), ns.MultiPhase(intervals=10), guess=sideways)
    monkeypatch.setattr(refinement, "BACK", 0.0)
    bare = ns.solve(around(), ns.MultiPhase(intervals=10, refinements=0), guess=sideways)
    assert bare.certificate is not None
    assert bare.certificate.verdict is not ns.Verdict.CONFIRMED  # the arc needs more points
    assert bare.objective * (1 - 1e-4) <= kept.objective <= bare.objective * (1 + 1e-3)
