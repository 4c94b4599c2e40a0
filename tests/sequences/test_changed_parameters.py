"""A solution with other parameters is a guess: one program, of kernels that exist already."""

from __future__ import annotations

import casadi as ca
import pytest

import nosnoc_py as ns
from nosnoc_py.kernels import kernel

SYMBOLS = [ca.SX.sym(name) for name in ("q", "v", "u", "g")]
Q, V, U, G = SYMBOLS
GROUND = ns.Contact("ground", gap=Q, restitution=0.5)
BALL = ns.CLS(q=Q, v=V, u=U, p=G, mass_matrix=1, force=U - G, contacts=[GROUND], names={"p": ["g"]})


def thrown(g: float) -> ns.OCP:
    """A ball falls from 1 m, bounces, and has to be at 0.2 m after 1 s."""
    return ns.OCP(BALL, horizon=1.0, x0=[1, 0], p=[g], stage_cost=U**2, terminal_constraints=[Q == 0.2])


def test_of_multi_phase_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    method = ns.MultiPhase(sequence=[{}, "impact ground", {}], intervals=8)
    first, known = ns.solve(thrown(9.81), method), ns.solve(thrown(9.0), method)
    made: list[object] = []
    build = kernel.Kernel.__init__
    monkeypatch.setattr(kernel.Kernel, "__init__", lambda self, *given: (made.append(given), build(self, *given))[1])
    again = ns.solve(thrown(9.0), ns.MultiPhase(intervals=8), guess=first)
    assert again.objective == pytest.approx(known.objective, rel=1e-7)
    assert first.objective > 1.01 * again.objective
    assert again.certificate is not None
    assert again.certificate.confirmed
    assert again.p.tolist() == [9.0]
    assert len(made) <= 2  # none for stages, boundaries and ends


def test_of_the_plain_call() -> None:
    method = ns.MultiPhase(sequence=[{}, "impact ground", {}], intervals=8)
    first = ns.solve(thrown(9.81), method)
    again = ns.solve(thrown(9.0), ns.Search(effort="quick", starts=("constant",)), guess=first)
    assert again.p.tolist() == [9.0]
    assert again.candidates[0].start == "guess"
    assert again.objective <= ns.solve(thrown(9.0), method).objective
