"""The three boxes (FESD-J, Section 5.3): full model, five contacts with friction, against the exact reduced motion."""

from __future__ import annotations

import numpy as np
import pytest

import nosnoc_py as ns
from problems.three_boxes import KNOWN_CONTROL, METHOD, METHODS, SOLVERS, build
from tests.references.three_boxes import HORIZONTAL, reduced_simulation


def check(solution: ns.Solution) -> float:
    """Residuals of the unrelaxed problem, and the control simulated exactly; return the objective."""
    assert solution.success
    assert solution.complementarity <= 1e-8
    assert solution.infeasibility <= 1e-8
    motion, objective = reduced_simulation(solution.u[:, 0])
    np.testing.assert_allclose(solution.final_state[list(HORIZONTAL)], motion.end, rtol=0, atol=1e-6)
    boxes = [impact for impact in solution.impacts if not impact.name.startswith("ground")]
    assert [impact.name for impact in boxes] == [impact.name for impact in motion.impacts]
    exact = [impact.time for impact in motion.impacts]
    np.testing.assert_allclose([impact.time for impact in boxes], exact, rtol=0, atol=1e-6)
    assert solution.objective == pytest.approx(objective, rel=1e-3)  # two Radau nodes integrate the running cost
    return solution.objective


@pytest.mark.slow
def test_from_a_cold_start() -> None:
    """By the search of `python -m problems.three_boxes`; the best of 29 descents over exact motions is 301.83."""
    found = ns.solve(build(), METHODS["search"])
    assert found.status is ns.Status.SOLVED
    assert reduced_simulation(found.u[:, 0])[1] == pytest.approx(found.objective, rel=1e-6)
    assert found.objective <= 1.02 * 301.83


@pytest.mark.slow
def test_from_the_best_motion_known() -> None:
    """By a homotopy from a small sigma; 383.42 is a local optimum known before."""
    ocp = build()
    known = {"x0": ocp.x0, "duration": 6.0, "u": np.array(KNOWN_CONTROL)[:, None]}
    start = ns.simulate(ocp.system, **known, method=ns.EventDriven())
    assert check(ns.solve(ocp, METHOD, SOLVERS["warm"], guess=start)) <= 384.0
