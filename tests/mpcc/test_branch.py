"""A branch: how it is guessed, Newton and the NLP on it, and that a wrong one is never believed."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.mpcc.branch import Branch, BranchProgram, dependent_rows, guess_branch
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.nlp import Blocks
from nosnoc_py.mpcc.program import ProgramBuilder
from nosnoc_py.mpcc.residuals import Evaluator
from nosnoc_py.status import Status

pytestmark = pytest.mark.quick

NONE = np.zeros(0)


def shown(mpcc, w):
    branch = guess_branch(mpcc, Evaluator(mpcc)(np.asarray(w, float), NONE))
    return branch.G.tolist(), branch.H.tolist(), branch.r.tolist()


def newton(mpcc, w, branch):
    return BranchProgram(Blocks(mpcc)).newton(np.asarray(w, float), NONE, branch)


def lcp(program, **options):
    """0 <= z, M z + q >= 0 with the solution z = (1, 0), y = (0, 2); curved, so that Newton has something to do."""
    return program(
        ["z_0", "z_1", "y_0", "y_1"],
        lambda w: [(w[0], w[2]), (w[1], w[3])],
        rows=lambda w: [
            ("first", w[2] - (w[0] ** 2 + w[0] + w[1] - 2), 0, 0),
            ("second", w[3] - (ca.exp(w[0] - 1) + 3 * w[1] + 1), 0, 0),
        ],
        **options,
    )


@pytest.mark.parametrize(
    ("w", "G", "H"),
    [
        ([1e-6, 2.0, 3.0, 1e-7], [True, False], [False, True]),
        ([2.0, 1e-6, 1e-7, 3.0], [False, True], [True, False]),
        ([-1e-6, 2.0, 3.0, -1e-6], [True, False], [False, True]),  # sizes count, not signs
        ([0.0, 0.0, 0.0, 0.0], [False, False], [True, True]),  # a tie: the side that jumps is zero
    ],
)
def test_the_smaller_side_is_taken_to_be_zero(program, w, G, H):
    a, b, c, d = w
    mpcc = program(["a", "b", "c", "d"], lambda s: [(s[0], s[2]), (s[1], s[3])])
    assert shown(mpcc, [a, b, c, d])[:2] == (G, H)


def test_a_group_falls_as_a_whole():
    builder = ProgramBuilder()
    w = builder.variable("w", At(), tuple("abcde"))
    builder.group(builder.left.add(tuple("abc"), w[:3], At()), builder.right.add(tuple("de"), w[3:], At()))
    mpcc = builder.build(aggregation="stage_stage", enforce_switched=False)
    assert shown(mpcc, [1e-9, 1e-8, 1e-9, 1e-9, 5.0])[:2] == ([True] * 3, [False] * 2)
    assert shown(mpcc, [1e-9, 1e-8, 0.5, 1e-9, 0.1])[:2] == ([False] * 3, [True] * 2)


def test_switched_equations_hold_where_nothing_switches(program):
    mpcc = program(
        ["a", "b", "c", "d", "s"],
        lambda w: [(w[0], w[1]), (w[2], w[3])],
        switched=lambda w: [("equal steps", w[4] - 1)],  # eta = (sum of G) (sum of H)
    )
    assert shown(mpcc, [1.0, 0, 0, 1.0, 0])[2] == [True]
    assert shown(mpcc, [1.0, 0, 1.0, 0, 0])[2] == [False]


def test_newton_reaches_machine_precision(program):
    mpcc = lcp(program)
    branch = Branch(np.array([False, True]), np.array([True, False]), np.zeros(0, bool))
    w = newton(mpcc, [1.2, 1e-3, 1e-3, 1.5], branch)
    assert np.abs(w - [1, 0, 0, 2]).max() <= 1e-14


def test_newton_meets_bounds_targets_and_redundant_rows(program):
    mpcc = program(
        ["x", "y", "fixed"],
        rows=lambda w: [
            ("a", w[0] ** 2, 9, 9),
            ("twice", 2 * w[0], 6, 6),
            ("free", w[0], -1, 1),
            ("b", w[1] - w[2], 0, 0),
        ],
        lower=[0, 0, 5],
        upper=[10, 10, 5],
    )
    none = np.zeros(0, bool)
    w = newton(mpcc, [2.0, 0.0, 7.0], Branch(none, none, none))
    assert np.abs(w - [3, 5, 5]).max() <= 1e-13


def test_what_is_fixed_follows_the_parameters():
    """The row a - 2 k = 0 fixes a; b is fixed at its bound, whatever k is."""
    builder = ProgramBuilder()
    w = builder.variable("w", At(), tuple("ab"), lower=np.array([-np.inf, 0.0]), scale=np.array([4.0, 1.0]))
    k = builder.parameter("k", ("k",), [3.0])
    builder.group(builder.left.add(("a",), w[0] - 2 * k, At()), builder.right.add(("b",), w[1], At()))
    program = BranchProgram(Blocks(builder.build(aggregation="stage_stage", enforce_switched=False)))
    for zero_G, at_k in ((True, 10.0), (False, 0.0)):
        branch = Branch(np.array([zero_G]), np.array([not zero_G]), np.zeros(0, bool))
        fixed = ca.Function("fixed", [program.mpcc.p], [program.fixed(np.array([3.0]), branch)])
        lbx, ubx, *_ = program.bounds(np.array([5.0]), branch)
        assert (lbx == ubx).tolist() == [zero_G, not zero_G]
        expected = np.where(lbx == ubx, lbx, 0.0)
        assert np.array(fixed(5.0)).ravel() == pytest.approx(expected)
        assert expected[0] == pytest.approx(at_k / 4.0)


def test_newton_gives_up_without_an_exception(program):
    mpcc = program(["x"], rows=lambda w: [("root", ca.sqrt(w[0]), 1, 1)])
    none = np.zeros(0, bool)
    w = newton(mpcc, [-1.0], Branch(none, none, none))
    assert np.array_equal(w, [-1.0])


def test_the_finish_accepts_the_right_branch(program):
    mpcc, homotopy = lcp(program), Homotopy()
    state = homotopy._finish(homotopy.init(mpcc, np.array([1.1, 1e-3, 1e-3, 1.8])), np.inf)
    assert state.finished
    assert state.status is Status.SOLVED
    assert np.abs(state.w - [1, 0, 0, 2]).max() <= 1e-14
    assert max(state.complementarity, state.complementarity_min, state.infeasibility) <= 1e-14
    assert (state.records[-1].label, state.records[-1].solver_status) == ("finish", "newton")


def test_a_wrong_branch_is_not_accepted(program):
    """z = 0 gives y_0 = -2: a solution of the equations, complementary, but not nonnegative. The iterate is kept."""
    mpcc, homotopy = lcp(program), Homotopy()
    state = homotopy._finish(homotopy.init(mpcc, np.array([1e-9, 1e-9, 1.0, 1.0])), np.inf)
    assert not state.finished
    assert state.status is None
    np.testing.assert_array_equal(state.w, [1e-9, 1e-9, 1.0, 1.0])
    assert state.records[-1].infeasibility == pytest.approx(2.0)


def test_a_finish_that_fails_leaves_the_iterate_of_the_homotopy(program):
    """min (x - 1)^2 + (y - 1)^2 from the corner's wrong side: the branch y = 0 excludes what `far` demands."""
    mpcc = program(
        ["x", "y"],
        lambda w: [(w[0], w[1])],
        lambda w: w[0] ** 2 + w[1] ** 2,
        rows=lambda w: [("far", w[1] - 1e3 * w[0], 1e-3, np.inf)],
        initial=[0.0, 1.0],
    )
    homotopy = Homotopy()
    state = homotopy.init(mpcc, np.array([2e-3, 1e-3]))
    tried = homotopy.step(replace(state, finish_due=("hold",)))
    assert not tried.finished
    assert np.array_equal(tried.w, state.w)
    assert tried.records[-1].label == "finish"
    done = homotopy.run(mpcc)
    assert done.status is Status.SOLVED
    np.testing.assert_allclose(done.w, [0, 1e-3], atol=1e-7)


@pytest.mark.parametrize("lower", [1e-6, 1e-12])
def test_a_bound_that_excludes_the_branch_is_no_exception(program, lower):
    mpcc = program(["x", "y"], lambda w: [(w[0], w[1])], lambda w: (w[1] - 1) ** 2, lower=[lower, 0], initial=1.0)
    state = Homotopy().run(mpcc, np.array([lower, 1.0]))
    assert state.status is not None
    assert state.status is not Status.NUMERICAL_ERROR
    assert state.infeasibility <= 1e-8


def test_a_program_of_feasibility_is_finished_by_newton(program):
    state = Homotopy().run(lcp(program, initial=1.0))
    assert state.status is Status.SOLVED
    assert np.abs(state.w - [1, 0, 0, 2]).max() <= 1e-14
    assert state.records[-1].solver_status == "newton"


def test_switched_equations_are_met_after_the_finish(program):
    """The penalty pulls s to 0, the switched equation wants s = 1: after the finish it holds exactly."""
    mpcc = program(
        ["a", "b", "c", "d", "s"],
        lambda w: [(w[0], w[1]), (w[2], w[3])],
        lambda w: (w[0] - 1) ** 2 + w[1] + w[2] + (w[3] - 1) ** 2,
        penalty=lambda w: w[4] ** 2,
        switched=lambda w: [("equal steps", w[4] - 1)],
        initial=0.5,
    )
    state = Homotopy().run(mpcc)
    assert state.status is Status.SOLVED
    assert state.w == pytest.approx([1, 0, 0, 1, 1], abs=1e-9)
    assert state.values.penalty == pytest.approx(1.0)
    assert state.values.objective == pytest.approx(0.0, abs=1e-9)
    loose = Homotopy(finish="none").run(mpcc)
    assert loose.w[4] == pytest.approx(0.0, abs=1e-3)  # the negative control


# Pairs that overlap --------------------------------------------------------------------------------------------------


def shared(pairs, **fields):
    """min |w - 1|^2 where at most one of three variables is positive: every variable is a side of two pairs."""
    w = ca.SX.sym("w", 3)
    G, H = (ca.vertcat(*side) for side in zip(*pairs(w), strict=True))
    return ns.MPCC.of_pairs(w=w, G=G, H=H, objective=ca.sumsqr(w - 1), w0=[0.1, 0.2, 0.9], **fields)


OVERLAPPING = {
    "variables": lambda w: [(w[0], w[1]), (w[0], w[2]), (w[1], w[2])],
    "multiples": lambda w: [(2 * w[0], w[1]), (w[0], w[2] / 3), (-3 * w[1] * -1, w[2])],
    "sums": lambda w: [(w[0] + w[1], w[2]), (w[0], w[1] + w[2]), (w[0] + w[1], 2 * w[2]), (w[0] - w[1], 3 * w[2])],
}


@pytest.mark.parametrize("pairs", OVERLAPPING.values(), ids=OVERLAPPING)
def test_pairs_that_overlap_leave_no_more_equations_than_variables(pairs):
    """In the branch of the start two variables vanish, in four rows or more."""
    result = ns.solve_mpcc(shared(pairs), ns.Homotopy(finish_threshold=1e-2))
    finish = next(record for record in result.log if record.label == "finish")
    assert finish.solver_status == "Solve_Succeeded"
    assert result.success
    assert result.complementarity == pytest.approx(0.0, abs=1e-12)
    assert result.objective == pytest.approx(2.0, abs=1e-7)


def test_a_fixed_variable_leaves_nothing_to_its_rows():
    mpcc = shared(OVERLAPPING["variables"])
    program = BranchProgram(Blocks(mpcc))
    branch = Branch(np.array([True, True, True]), np.zeros(3, bool), np.zeros(0, bool))  # G: w_0 twice, and w_1
    lbx, ubx, lbg, ubg = program.bounds(NONE, branch)
    assert (lbx[:2] == ubx[:2]).all()
    assert lbx[2] < ubx[2]
    assert not (lbg == ubg).any()


def test_rows_that_contradict_each_other_stay_equations():
    """w_0 = 0 and w_0 = 1: the first fixes, the second is left for IPOPT to find wrong."""
    w = ca.SX.sym("w", 2)
    mpcc = ns.MPCC.of_pairs(w=w, G=ca.vertcat(w[0], 1 - w[0]), H=ca.vertcat(w[1], w[1]), objective=ca.sumsqr(w))
    program = BranchProgram(Blocks(mpcc))
    both = Branch(np.array([True, True]), np.zeros(2, bool), np.zeros(0, bool))
    lbx, ubx, lbg, ubg = program.bounds(NONE, both)
    assert (lbx[0], ubx[0]) == (0.0, 0.0)
    assert int((lbg == ubg).sum()) == 1


def test_dependent_rows():
    """Of the rows a, b, a + b, 1e6 a, c one of the first four twice is too many; rows of zeros always are."""
    a, b, c = np.eye(4)[:3]
    rows = np.array([a, b, a + b, 1e6 * a, c, 0 * a])
    mask = dependent_rows(rows)
    assert mask.sum() == 3
    assert mask[5]
    assert not mask[4]
    assert np.linalg.matrix_rank(rows[~mask]) == 3
    assert not dependent_rows(rows[[0, 1, 4]]).any()


def test_multipliers_of_a_variable_in_several_rows_are_counted_once():
    """At (0, 0, 1): grad f = (-2, -2, 0) is balanced by one row each of w_0 and w_1."""
    mpcc = shared(OVERLAPPING["multiples"])
    state = Homotopy(finish_threshold=1e-2).run(mpcc)
    jacobian = ca.Function("J", [mpcc.w], [ca.jacobian(mpcc.G, mpcc.w), ca.jacobian(mpcc.H, mpcc.w)])
    G, H = (np.array(part) for part in jacobian(state.w))
    gradient = 2 * (state.w - 1) + state.multipliers.w - G.T @ state.multipliers.G - H.T @ state.multipliers.H
    assert state.finished
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)
