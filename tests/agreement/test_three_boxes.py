"""The three boxes (FESD-J, Section 5.3): full model, five contacts with friction, against the exact reduced motion."""

from __future__ import annotations

import numpy as np
import pytest

import nosnoc_py as ns
from problems.three_boxes import KNOWN_CONTROL, METHOD, SOLVERS, build
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
def test_the_known_optimum_is_one_of_the_discretised_problem() -> None:
    """From the optimum of the exact motion (301.83) the branch leads to a solution beside it."""
    solver = ns.MultiStart(starts=1, kicks=0, iterations=0)
    solution = ns.solve(build(), METHOD, solver, guess=np.array(KNOWN_CONTROL)[:, None])
    assert check(solution) == pytest.approx(301.8, abs=0.1)


@pytest.mark.slow
def test_from_a_cold_start() -> None:
    """By the strategy that `python -m problems.three_boxes` uses; 383.42 is a local optimum known before."""
    assert check(ns.solve(build(), METHOD, SOLVERS["multi_start"])) <= 384.0
