"""The interior-point method against IPOPT and a judge of its own, from multipliers, and where there is no solution."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.mpcc.interior.kkt import KKT
from nosnoc_py.mpcc.interior.method import ABOVE, InteriorPoint
from nosnoc_py.mpcc.ipopt import Ipopt, NLPResult
from tests.references.random_nlps import KINDS, RandomNLP, false_claim, made

pytestmark = pytest.mark.quick
NOTHING = np.zeros(0)
OPTIONS = {"tol": 1e-8, "max_iter": 500}


def objective(program: RandomNLP, x: Any) -> float:
    return float(ca.Function("f", [program.x], [program.f])(x))


@pytest.mark.parametrize("kind", KINDS)
def test_random_programs_beside_ipopt(kind: str) -> None:
    """Eight programs of every kind: no false claim, and what IPOPT solves is solved but for one."""
    missed, worse, both = 0, 0, 0
    for seed in range(KINDS.index(kind), 8 * len(KINDS), len(KINDS)):
        program = made(seed)
        ours = InteriorPoint(program, OPTIONS).solve(program.start, NOTHING)
        known = Ipopt(program, OPTIONS).solve(program.start, NOTHING)
        if ours.converged:
            assert false_claim(program, ours.x, ours.lam_x, ours.lam_g) == "", seed
        if known.converged and false_claim(program, known.x, known.lam_x, known.lam_g) == "":
            missed += not ours.converged
            best = objective(program, known.x)
            both += ours.converged
            worse += ours.converged and objective(program, ours.x) > best + 1e-6 * (1 + abs(best))
    assert missed <= 1
    assert worse <= 2
    assert (both == 0) == (kind == "infeasible")


def test_the_judge_refuses_points_that_are_none() -> None:
    program = made(0)
    found = InteriorPoint(program, OPTIONS).solve(program.start, NOTHING)
    assert false_claim(program, found.x, found.lam_x, found.lam_g) == ""
    assert "slope" in false_claim(program, found.x, 0.0 * found.lam_x, 0.0 * found.lam_g + 1.0)
    assert "violates" in false_claim(program, found.x + 10.0, found.lam_x, found.lam_g)
    assert "no feasible" in false_claim(made(KINDS.index("infeasible")), found.x, found.lam_x, found.lam_g)


def test_multipliers_are_a_start() -> None:
    program = made(1)
    method = InteriorPoint(program, OPTIONS)
    cold = method.solve(program.start, NOTHING)
    warm = method.solve(cold.x, NOTHING, lam_x0=cold.lam_x, lam_g0=cold.lam_g)
    assert warm.converged
    assert 2 * warm.iterations <= cold.iterations
    np.testing.assert_allclose(warm.x, cold.x, atol=1e-5)


def test_a_quadratic_program_in_closed_form() -> None:
    """min (x - 2)^2 + (y + 1)^2, x + y = 0, x <= 0.5: (0.5, -0.5), multipliers -1 and 4 by hand."""
    x = ca.SX.sym("x", 2)
    program = replace(
        made(0),
        x=x,
        f=(x[0] - 2) ** 2 + (x[1] + 1) ** 2,
        g=x[0] + x[1],
        lbx=np.array([-np.inf, -np.inf]),
        ubx=np.array([0.5, np.inf]),
        lbg=np.zeros(1),
        ubg=np.zeros(1),
        start=np.zeros(2),
    )
    found = InteriorPoint(program, {"tol": 1e-10, "compl_inf_tol": 1e-10}).solve(program.start, NOTHING)
    assert found.converged
    np.testing.assert_allclose(found.x, [0.5, -0.5], atol=1e-8)
    np.testing.assert_allclose(found.lam_g, [-1.0], atol=1e-7)
    np.testing.assert_allclose(found.lam_x, [4.0, 0.0], atol=1e-7)
    # The same variable fixed by its bounds: its multiplier balances the slope.
    fixed = InteriorPoint(program, OPTIONS).solve(
        program.start, NOTHING, lbx=np.array([0.5, -np.inf]), ubx=np.array([0.5, np.inf])
    )
    np.testing.assert_allclose(fixed.lam_x, [4.0, 0.0], atol=1e-6)


def test_what_has_no_solution_says_so_soon() -> None:
    program = made(KINDS.index("infeasible"))
    found = InteriorPoint(program, OPTIONS).solve(program.start, NOTHING)
    assert found.solver_status == "Infeasible_Problem_Detected"
    assert found.iterations < 200
    late = InteriorPoint(program, OPTIONS).solve(program.start, NOTHING, deadline=time.monotonic() - 1.0)
    assert late.solver_status == "User_Requested_Stop"
    few = InteriorPoint(made(1), {"max_iter": 2}).solve(made(1).start, NOTHING)
    assert (few.solver_status, few.iterations) == ("Maximum_Iterations_Exceeded", 2)


@pytest.mark.parametrize("seed", [49, 88])
def test_a_program_above_the_cutoff_is_given_up(seed: int) -> None:
    """At three quarters of the iterations at most; one whose optimum is below it is solved as without a cutoff.

    The barrier parameter follows the error, so that there are iterations to save.
    """
    program = made(seed)

    def solved(**more: float) -> NLPResult:
        return InteriorPoint(program, {**OPTIONS, "mu_of_error": 0.3, **more}).solve(program.start, NOTHING)

    whole = solved()
    best = objective(program, whole.x)
    size = 1.0 + abs(best)
    above = solved(cutoff=best - 0.05 * size)
    assert above.solver_status == ABOVE
    assert not above.converged
    assert above.iterations <= 0.75 * whole.iterations
    below = solved(cutoff=best + 0.05 * size)
    assert (below.solver_status, below.iterations) == (whole.solver_status, whole.iterations)
    np.testing.assert_array_equal(below.x, whole.x)


def test_a_program_with_a_scaled_objective_comes_to_its_tolerances() -> None:
    """The least barrier parameter belongs to the scaled program, the tolerance of the complementarity to the other."""
    program = made(3)
    steep = replace(program, f=1e3 * program.f)
    found = InteriorPoint(steep, {**OPTIONS, "max_iter": 100}).solve(program.start, NOTHING)
    assert found.solver_status == "Solve_Succeeded"


def test_an_evaluation_that_is_no_number_is_told() -> None:
    x = ca.SX.sym("x", 3)
    program = replace(made(0), x=x, f=ca.sum1(ca.log(x)), g=ca.SX(0, 1), lbg=NOTHING, ubg=NOTHING)
    limits = {"lbx": np.full(3, -5.0), "ubx": np.full(3, 5.0)}
    found = InteriorPoint(program, OPTIONS).solve(np.full(3, -1.0), NOTHING, **limits)
    assert found.solver_status == "Invalid_Number_Detected"


def test_factors_tell_the_inertia_and_solve() -> None:
    """[[2, 0, 1], [0, -3, 1], [1, 1, -1]]: two negative eigenvalues; all variables free, one row."""
    pattern = (np.array([0, 1]), np.array([0, 1])), (np.array([0, 0]), np.array([0, 1]))
    kkt = KKT(*pattern, np.ones(2, bool), np.ones(1, bool))
    kkt.set_jacobian(np.array([1.0, 1.0]), np.ones(1))
    assert kkt.factorise(np.array([2.0, -3.0]), np.array([0.0, 0.0, -1.0])) == 2
    matrix = np.array([[2.0, 0, 1], [0, -3, 1], [1, 1, -1]])
    right = np.array([1.0, 2.0, 3.0])
    solution, residual = kkt.solve(right)
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, right), rtol=1e-12)
    assert residual < 1e-13
    assert kkt.factorise(np.array([0.0, 0.0]), np.zeros(3)) == -1
