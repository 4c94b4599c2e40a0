"""Quadratic programs with complementarity constraints: searches find what enumeration finds."""

from __future__ import annotations

import numpy as np
import pytest

from nosnoc_py.mpcc.qpcc import QPCC, QPCCOutcome
from tests.references.random_qpccs import enumerated, random_problem

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("compiled_search")]

MEANS = ("compiled", "interpreted")
CLOSE = 1e-6


def wrong_answers(count: int, seed: int) -> int:
    """Number of random problems whose answer violates a row, or is worse than that of enumeration."""
    rng, wrong = np.random.default_rng(seed), 0
    for _ in range(count):
        problem = random_problem(rng, int(rng.integers(4, 14)), int(rng.integers(1, 8)))
        answer, best = problem.solve(gap=1e-9), enumerated(problem)
        worse = answer.objective > best + CLOSE * max(1.0, abs(best))
        wrong += not answer.found or problem.violation(answer.z) > CLOSE or worse
    return wrong


def test_the_answer_is_that_of_enumeration():
    assert wrong_answers(100, seed=0) == 0


def test_the_answers_of_a_thousand_problems_are_those_of_enumeration():
    # Two in a hundred would be allowed; none is wrong.
    assert wrong_answers(1000, seed=1) == 0


def test_both_means_search_in_the_same_way():
    rng = np.random.default_rng(2)
    for _ in range(30):
        problem = random_problem(rng, int(rng.integers(8, 14)), int(rng.integers(1, 6)))
        for nodes in (2000, 6):
            fast, slow = (problem.solve(gap=1e-9, nodes=nodes, means=means) for means in MEANS)
            assert (slow.nodes, slow.outcome) == (fast.nodes, fast.outcome)
            if fast.found:
                assert slow.objective == pytest.approx(fast.objective, abs=CLOSE)
                assert slow.bound == pytest.approx(fast.bound, abs=CLOSE)


def test_bounds_that_nothing_satisfies_have_no_answer():
    for lower, upper in ((np.inf, np.inf), (-np.inf, -np.inf)):
        answer = QPCC.of(np.eye(1), [[1.0]], []).solve(np.zeros(1), np.array([lower]), np.array([upper]))
        assert not answer.found


def test_multipliers_satisfy_the_conditions_of_the_order():
    rng = np.random.default_rng(3)
    for _ in range(30):
        problem = random_problem(rng, 10, 4)
        answer = problem.solve()
        assert np.abs(problem.P @ answer.z + problem.c + problem.A.T @ answer.multipliers).max() < CLOSE
        rows = problem.A @ answer.z
        inactive = (rows - problem.lower > 1e-5) & (problem.upper - rows > 1e-5)
        assert not answer.multipliers[inactive].any()


def test_a_program_without_pairs_is_a_quadratic_program():
    # min (x - 2)^2 + (y + 1)^2 over x + y = 0, x <= 1: at (1, -1).
    program = QPCC.of(2 * np.eye(2), [[1, 1], [1, 0]], [])
    answer = program.solve(np.array([-4.0, 2.0]), np.array([0.0, -np.inf]), np.array([0.0, 1.0]), constant=5.0)
    assert answer.outcome is QPCCOutcome.SOLVED
    assert answer.z == pytest.approx([1, -1], abs=1e-12)
    assert answer.objective == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("means", MEANS)
def test_a_known_order_is_solved_first_and_its_loss_is_told(means):
    # min (x - 1)^2 + (y - 2)^2 over 0 <= x perp y >= 0: y = 0 costs 4, x = 0 costs 1.
    program = QPCC.of(2 * np.eye(2), np.eye(2), [[0, 1]])
    given = {"c": np.array([-2.0, -4.0]), "lower": np.zeros(2), "upper": np.full(2, np.inf), "constant": 5.0}
    answer = program.solve(**given, order=np.array([1]), means=means)
    assert (answer.kept, answer.objective) == (pytest.approx(4.0), pytest.approx(1.0))
    assert answer.sides.tolist() == [0]
    cut = program.solve(**given, order=np.array([1]), nodes=1, means=means)
    assert cut.outcome is QPCCOutcome.LIMIT
    assert cut.objective == pytest.approx(4.0)
    assert cut.bound <= 0.0  # nothing is known of the other order


@pytest.mark.parametrize("means", MEANS)
def test_what_has_no_answer_is_told(means):
    # x, y >= 1, one of which has to be at its lower bound 1: impossible where x + y >= 5 is asked of x, y <= 3.
    rows, lower = [[1, 0], [0, 1], [1, 1]], np.array([1.0, 1.0, 5.0])
    program = QPCC.of(np.eye(2), rows, [[0, 1]])
    answer = program.solve(np.zeros(2), lower, np.array([3.0, 3.0, np.inf]), means=means)
    assert answer.outcome is QPCCOutcome.INFEASIBLE
    assert not answer.found
    assert program.solve(np.zeros(2), lower, np.array([4.5, 4.5, np.inf]), means=means).found
    assert (
        QPCC.of(-np.eye(2), rows, [[0, 1]]).solve(np.zeros(2), lower, lower, means=means).outcome is QPCCOutcome.NUMBERS
    )


def test_the_limit_of_nodes_keeps_the_best_answer_so_far():
    problem = random_problem(np.random.default_rng(4), 40, 30, 10)
    whole, cut = problem.solve(nodes=20_000), problem.solve(nodes=30)
    assert cut.nodes == 30
    assert cut.outcome in (QPCCOutcome.LIMIT, QPCCOutcome.NOTHING)
    assert cut.bound <= whole.objective + CLOSE
    if cut.found:
        assert problem.violation(cut.z) < CLOSE
    again = problem.solve(nodes=20_000)
    assert (again.nodes, again.steps, again.objective) == (whole.nodes, whole.steps, whole.objective)


def test_a_working_set_has_no_more_rows_than_unknowns():
    # Many rows through one point, nearly dependent: rounding must not make n + 1 of them independent.
    rng = np.random.default_rng(5)
    for _ in range(50):
        A = np.vstack([rng.standard_normal((3, 4)) + 1e-9 * rng.standard_normal((3, 4)) for _ in range(8)])
        A = np.vstack([A, A + 1e-10 * rng.standard_normal(A.shape)])
        at = A @ np.ones(4)
        answer = QPCC.of(np.eye(4), A, []).solve(np.full(4, 9.0), at, np.full(at.size, np.inf))
        assert answer.outcome is QPCCOutcome.SOLVED
        assert (at - A @ answer.z).max() < 1e-7
