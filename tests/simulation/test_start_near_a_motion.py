"""Finite elements start near the simulated motion of a failed iterate: where homotopies smear an impact, this helps."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.strategy import SolverState


def landing() -> ns.OCP:
    """A puck is dropped from 0.1 m on a table with friction, and has to come to rest 1 m further after 1 s."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    table = ns.Contact("table", gap=q[1], tangent=[1, 0], friction=0.3)
    puck = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.SX.eye(2), force=ca.vertcat(u, -9.81), contacts=[table])
    return ns.OCP(
        puck,
        horizon=1.0,
        x0=[0, 0.1, 0, 0],
        stage_cost=u**2,
        bounds=ns.Bounds(u=(-30, 30)),
        terminal_constraints=[q[0] == 1, v[0] == 0],
    )


def test_an_impact_that_homotopies_smear_is_found_by_simulation() -> None:
    solution = ns.solve(landing(), ns.FESDJ(control_stages=10))
    assert solution.success
    assert solution.certificate is not None
    assert solution.certificate.confirmed
    assert solution.objective < 1.02 * 19.97  # the default search finds 19.97 with a control grid of its own


@pytest.mark.quick
@pytest.mark.parametrize("point", [None, [0.5, 0.5]])
def test_another_start_is_asked_for_once_where_the_first_descents_fail(point: list[float] | None) -> None:
    """Without iterations every attempt fails, so that the order of attempts does not depend on rounding."""
    x = ca.SX.sym("x", 2)
    program = ns.MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=(x[0] - 1) ** 2, g=x[0] ** 2 - 4, w0=0.3)
    failed: list[SolverState] = []

    def nearby(state: SolverState) -> np.ndarray | None:
        failed.append(state)
        return None if point is None else np.array(point)

    state = Auto(restarts=0, ipopt={"max_iter": 0}).run(program, nearby=nearby)
    assert not state.status.success
    assert len(failed) == 1
    assert any(line.label.startswith("near the motion") for line in state.records) == (point is not None)
