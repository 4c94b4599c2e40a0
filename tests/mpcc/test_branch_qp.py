"""Condensed quadratic programs of branches against independent solutions of the same programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.mpcc.again import Resolve
from nosnoc_py.mpcc.branch import Branch, Finish, complete
from nosnoc_py.mpcc.branch_qp import BranchQP, Elimination, Expansion
from nosnoc_py.mpcc.neighbours import Neighbours, neighbouring_sides
from nosnoc_py.mpcc.qpcc import QPCCOutcome
from nosnoc_py.mpcc.strategy import Solvers
from nosnoc_py.solution.records import SolvedBranch
from nosnoc_py.transcription.condensed import condensed

pytestmark = pytest.mark.quick


class Program:
    """An MPCC with its solution on the branch that a point shows."""

    def __init__(self, mpcc: ns.MPCC, near: Any) -> None:
        self.mpcc, self.p = mpcc, mpcc.p0
        self.finish: Finish = Solvers(mpcc).finish({})
        outcome = self.finish(np.array(near, float), self.p, np.inf)
        assert outcome.converged
        assert outcome.solved is not None
        self.w, self.solved = outcome.w, outcome.solved
        self.columns = np.arange(self.p.size)

    def qp(self) -> BranchQP:
        return BranchQP.of(self.finish, self.w, self.p, self.solved, self.columns)

    def by_ipopt(self, p: np.ndarray, branch: Branch | None = None) -> tuple[np.ndarray, float]:
        """Solution and objective of the NLP of a branch, by IPOPT alone."""
        own = Branch(self.solved.G, self.solved.H, self.solved.r) if branch is None else branch
        lbx, ubx, lbg, ubg = self.finish.program.bounds(p, own)
        nlp = self.finish.program.nlp
        solver = ca.nlpsol(
            "anew", "ipopt", {"x": nlp.x, "p": nlp.p, "f": nlp.f, "g": nlp.g},
            {"print_time": False, "ipopt": {"print_level": 0, "sb": "yes", "tol": 1e-12, "fixed_variable_treatment":
             "make_constraint", "bound_relax_factor": 0.0}},
        )  # fmt: skip
        start = np.clip(self.w / self.mpcc.w_scale, lbx, ubx)
        at = solver(x0=start, p=np.append(p, 0.0), lbx=lbx, ubx=ubx, lbg=lbg, ubg=ubg)
        assert solver.stats()["success"]
        return np.asarray(at["x"]).reshape(-1) * self.mpcc.w_scale, float(at["f"])


def linear_quadratic(extra: bool = False, scale: float = 1.0) -> ns.MPCC:
    """Five steps of x' = u from p_0 to p_1 with |u| <= 1; y >= 0 is complementary to z >= 0, and y = 0 at the solution.

    With `extra`, every equation is there twice, in other combinations.
    """
    x, u, y, z = ca.SX.sym("x", 5), ca.SX.sym("u", 5), ca.SX.sym("y"), ca.SX.sym("z")
    p = ca.SX.sym("p", 2)
    steps = x - ca.vertcat(p[0], x[:4]) - 0.2 * u + 0.1 * y
    rows = ca.vertcat(steps, z - 1 - x[4] - y)
    if extra:
        rows = ca.vertcat(rows, ca.sum1(rows), rows[0] - 2 * rows[4])
    objective = scale * (ca.sumsqr(u) / 5 + 4 * (x[4] - p[1]) ** 2 + ca.sumsqr(x) + p[0] ** 2 * 3 + p[0] * u[0])
    # An inequality whose bound moves with p.
    rows, equal = ca.vertcat(rows, x[3] - p[1]), [0.0] * rows.numel()
    return ns.MPCC.of_pairs(
        w=ca.vertcat(x, u, y, z), p=p, p0=[0.5, 0.2], G=y, H=z, g=rows, lbg=[*equal, -1.95], ubg=[*equal, 0.55],
        objective=objective,
        lbw=[-np.inf] * 5 + [-1.0] * 5 + [0.0, 0.0], ubw=[np.inf] * 5 + [1.0] * 5 + [np.inf] * 2,
    )  # fmt: skip


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("moved", [(0.0, 0.0), (0.1, -0.05), (0.7, -0.25), (1.5, 0.5), (-2.0, 1.0)])
def test_linear_quadratic_programs_are_solved_exactly(extra: bool, moved: tuple[float, float]) -> None:
    """Steps of any length, with other active bounds of the controls than at the solution, and redundant equations."""
    program = Program(linear_quadratic(extra), [0.4] * 5 + [0.0] * 5 + [0.0, 1.4])
    assert np.abs(program.w[5:10]).max() < 1.0
    p = program.p + moved
    step = program.qp().at(p)
    w, objective = Program(linear_quadratic(), [0.4] * 5 + [0.0] * 5 + [0.0, 1.4]).by_ipopt(p)
    assert step.found
    assert step.w == pytest.approx(w, abs=1e-8)
    assert step.objective == pytest.approx(objective, abs=1e-8)
    assert step.residual <= 1e-9
    assert step.distance == pytest.approx(np.abs(moved).max(), abs=1e-12)
    if np.abs(moved).max() > 1.0:
        # A bound that was inactive holds now, and has a multiplier.
        assert np.abs(step.w[5:10]).max() == pytest.approx(1.0, abs=1e-9)
        assert np.abs(step.multipliers).max() > 1e-3


def test_any_point_is_as_good_as_a_solution_for_linear_quadratic_programs() -> None:
    """There equations and zero sides are not met, and a fixed variable has another value."""
    program = Program(linear_quadratic(), [0.4] * 5 + [0.0] * 5 + [0.0, 1.4])
    w, p = np.linspace(-0.3, 0.9, 12), program.p + np.array([0.1, 0.3])
    step = BranchQP.of(program.finish, w, program.p, program.solved, program.columns).at(p)
    wanted, objective = program.by_ipopt(p)
    assert step.found
    assert step.w == pytest.approx(wanted, abs=1e-8)
    assert step.objective == pytest.approx(objective, abs=1e-8)


def test_a_variable_that_a_pair_fixes_moves_with_the_parameters() -> None:
    """w_0 = p on the branch, up to its bound."""
    w, p = ca.SX.sym("w", 2), ca.SX.sym("p")
    mpcc = ns.MPCC.of_pairs(
        w=w, p=p, p0=1.0, G=w[0] - p, H=w[1], objective=ca.sumsqr(w - ca.DM([0, 2])), lbw=[-5.0, 0.0], ubw=[3.0, 9.0],
    )  # fmt: skip
    qp = Program(mpcc, [1.0, 2.0]).qp()
    step = qp.at(np.array([2.5]))
    assert step.w == pytest.approx([2.5, 2.0], abs=1e-8)
    assert step.expected == pytest.approx(1.0 + 2.0 * 1.5)  # w_0^2 from p = 1, by the multiplier of its bound
    assert not qp.at(np.array([3.5])).found


def test_the_expected_objective_is_that_of_the_multipliers() -> None:
    """Against it, the predicted one has an error of second order: both begin with the derivative of the optimum."""
    program = Program(linear_quadratic(), [0.4] * 5 + [0.0] * 5 + [0.0, 1.4])
    differences = []
    for h in (1e-2, 5e-3):
        step = program.qp().at(program.p + np.array([h, -h]))
        differences.append(step.objective - step.expected)
        assert abs(differences[-1]) < 0.2 * abs(step.objective - program.qp().at(program.p).objective)
    assert differences[0] == pytest.approx(4 * differences[1], rel=1e-6)


def nonlinear() -> ns.MPCC:
    """A pendulum that is driven by a force and by u, from p; the force s pushes at q = 0 only."""
    n, h = 4, 0.15
    q, v, u, s = (ca.SX.sym(name, n) for name in "qvus")
    p = ca.SX.sym("p", 2)
    before_q, before_v = ca.vertcat(p[0], q[: n - 1]), ca.vertcat(p[1], v[: n - 1])
    rows = ca.vertcat(q - before_q - h * v, v - before_v + h * (9 * ca.sin(q) * ca.cos(v) - u - s * (1 + q**2)))
    objective = ca.sumsqr(u) + 20 * ca.sumsqr(ca.cos(q) - ca.cos(0.8)) + 0.3 * ca.sumsqr(v) + p[0] * v[0] ** 2
    return ns.MPCC.of_pairs(
        w=ca.vertcat(q, v, u, s), p=p, p0=[0.6, 0.1], G=s, H=q, g=rows, objective=objective,
        lbw=[-np.inf] * (3 * n) + [0.0] * n, ubw=[np.inf] * (2 * n) + [0.15] * n + [np.inf] * n,
    )  # fmt: skip


def test_errors_are_of_second_order() -> None:
    """Halving the change of the parameters quarters the error of the step; that of the objective falls faster."""
    program = Program(nonlinear(), [0.6] * 4 + [0.1] * 8 + [0.0] * 4)
    qp, errors = program.qp(), []
    for h in (0.16, 0.08, 0.04):
        p = program.p + h * np.array([1.0, -1.5])
        step, (w, objective) = qp.at(p), program.by_ipopt(p)
        assert step.found
        assert step.w is not None
        errors.append((np.abs(step.w - w).max(), abs(step.objective - objective)))
    (first, of_first), (second, of_second), (third, of_third) = errors
    assert 3.4 < first / second < 4.6
    assert 3.4 < second / third < 4.6
    assert of_first / of_second > 6.0
    assert of_second / of_third > 6.0
    assert program.w[8:12].max() == pytest.approx(0.15, abs=1e-8)  # an active bound


def test_equations_that_contradict_the_parameters_are_told() -> None:
    """x_0 = p_0 and x_0 = p_1: only equal changes are consistent."""
    x, p = ca.SX.sym("x", 3), ca.SX.sym("p", 2)
    mpcc = ns.MPCC.of_pairs(
        w=x, p=p, p0=[1.0, 1.0], G=x[1], H=x[2], g=ca.vertcat(x[0] - p[0], x[0] - p[1]),
        objective=ca.sumsqr(x - ca.DM([0, -1, 2])), lbw=[-np.inf, 0.0, 0.0],
    )  # fmt: skip
    qp = Program(mpcc, [1.0, 0.0, 2.0]).qp()
    assert qp.at(np.array([1.5, 1.5])).found
    step = qp.at(np.array([1.5, 1.4]))
    assert (step.found, step.w, step.objective, step.outcome) == (False, None, np.inf, QPCCOutcome.INFEASIBLE)
    assert step.residual == pytest.approx(0.1, rel=1e-6)


def test_bounds_that_nothing_can_move_are_checked() -> None:
    """x_0 = p_0 <= 2."""
    x, p = ca.SX.sym("x", 3), ca.SX.sym("p", 1)
    mpcc = ns.MPCC.of_pairs(
        w=x, p=p, p0=[1.0], G=x[1], H=x[2], g=x[0] - p[0], objective=ca.sumsqr(x - ca.DM([0, -1, 2])),
        lbw=[-np.inf, 0.0, 0.0], ubw=[2.0, np.inf, np.inf],
    )  # fmt: skip
    qp = Program(mpcc, [1.0, 0.0, 2.0]).qp()
    assert qp.at(np.array([1.9])).found
    step = qp.at(np.array([2.3]))
    assert not step.found
    assert step.residual == pytest.approx(0.3, rel=1e-6)


def two_pairs() -> ns.MPCC:
    """x_0 + x_1 + x_2 + x_3 = p with x_0, x_2 complementary to x_1, x_3; the row is there twice."""
    x, p = ca.SX.sym("x", 4), ca.SX.sym("p")
    row = ca.sum1(x) - p
    return ns.MPCC.of_pairs(
        w=x, p=p, p0=3.0, G=x[[0, 2]], H=x[[1, 3]], g=ca.vertcat(row, 2 * row),
        objective=ca.sumsqr(x - ca.DM([1, 2, 3, 4])) + x[0] * x[2], lbw=0.0,
    )  # fmt: skip


@pytest.mark.parametrize("left", [(True, True), (True, False), (False, True), (False, False)])
def test_programs_beside_a_branch_are_those_of_their_own(left: tuple[bool, bool]) -> None:
    """Of each of the four branches from the solution of one of them; fixed variables are released, others fixed."""
    program = Program(two_pairs(), [0.0, 1.0, 0.0, 2.0])
    branch = complete(program.mpcc, *program.mpcc.side(np.array(left)))
    at = Expansion.of(program.finish, program.w, program.p, program.solved, program.columns)
    own = Branch(program.solved.G, program.solved.H, program.solved.r)
    qp = Elimination(at, own, [branch]).programs[1]
    for p in (np.array([3.2]), np.array([4.5])):
        step, (w, objective) = qp.at(p), program.by_ipopt(p, branch)
        assert step.found
        # The expansion is exact: of second order in x, and the rows are linear.
        assert step.w == pytest.approx(w, abs=1e-7)
        assert step.objective == pytest.approx(objective, abs=1e-7)


def test_neighbours_change_one_side_or_all_of_the_first_ones() -> None:
    program = Program(two_pairs(), [0.0, 1.0, 0.0, 2.0])
    values = Solvers(program.mpcc).evaluator(program.w, program.p)
    sides, first = neighbouring_sides(program.mpcc, values, program.solved)
    assert {tuple(one.tolist()) for one in sides} == {(False, True), (True, False), (False, False)}
    assert first == 3
    around = Neighbours.of(program.finish, values, program.p, program.solved, program.columns)
    assert around is not None
    promising = around.promising(np.array([4.0]))
    objectives = [objective for objective, *_ in promising]
    assert objectives == sorted(objectives)
    # The best of the other three branches, by enumeration.
    masks = [complete(program.mpcc, *program.mpcc.side(one)) for one in sides]
    best = min(program.by_ipopt(np.array([4.0]), branch)[1] for branch in masks)
    assert objectives[0] == pytest.approx(best, abs=1e-7)
    assert around.fits(np.array([5.0]))
    assert around.contradicted(np.array([4.0])) == []


def test_infinite_derivatives_have_no_neighbours() -> None:
    program = Program(two_pairs(), [0.0, 1.0, 0.0, 2.0])
    values = Solvers(program.mpcc).evaluator(program.w, program.p)
    nothing = replace(program.solved, lam_g=np.full(program.solved.lam_g.size, np.nan))
    assert isinstance(nothing, SolvedBranch)
    broken = replace(values, w=np.full(4, np.nan))
    assert Neighbours.of(program.finish, broken, program.p, program.solved, program.columns) is None


def swinging() -> ns.Transcription:
    """A pendulum whose tip may strike a wall."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    wall = ns.Contact("wall", gap=0.5 - ca.sin(q), restitution=0.5)
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 2 * ca.sin(q), contacts=[wall])
    ocp = ns.OCP(
        s, horizon=1.0, x0=[0.0, 2.0], stage_cost=u**2 + q**2, terminal_cost=10 * (q - 0.2) ** 2 + v**2,
        bounds=ns.Bounds(u=(-5, 5)),
    )  # fmt: skip
    return ns.transcribe(ocp, ns.FESDJ(control_stages=6, finite_elements=2, rk_stages=2))


def test_controls_of_a_motion_with_an_impact_have_an_error_of_second_order() -> None:
    problem = swinging()
    plan = problem.solve()
    assert len(plan.impacts) == 1
    program, errors = condensed(problem, plan), []
    for h in (0.08, 0.04, 0.02):
        x0 = [0.2 * h, 2.0 + h]
        full, step = problem.resolve(plan, x0=x0), program.at(x0)
        assert (full.how, step.ok) == ("kept", True)
        errors.append(np.abs(step.u - full.u).max())
        assert step.objective == pytest.approx(full.objective, rel=1e-2)
    assert errors[0] / errors[1] > 3.4
    assert errors[1] / errors[2] > 3.4
    assert program.at([0.0, 2.0]).u == pytest.approx(plan.u, abs=1e-8)


def test_without_a_measured_state_there_is_no_program() -> None:
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    ocp = ns.OCP(
        ns.ODE(x=x, u=u, flow=u), horizon=1.0, stage_cost=u**2 + x**2,
        initial_constraints=[ns.Constraint(x, 1.0, 1.0, name="begin")],
    )  # fmt: skip
    problem = ns.transcribe(ocp, ns.FESD(control_stages=3))
    with pytest.raises(ns.OptionError, match="does not fix x0"):
        condensed(problem, problem.solve())


def drifting() -> ns.MPCC:
    """Parts of p_k = p_0 + k u, k = 0 ... 3: x_k - y_k with 0 <= x_k complementary to y_k >= 0; u costs."""
    x, y, u, p = ca.SX.sym("x", 4), ca.SX.sym("y", 4), ca.SX.sym("u"), ca.SX.sym("p")
    return ns.MPCC.of_pairs(
        w=ca.vertcat(x, y, u), p=p, p0=0.3, G=x, H=y, g=x - y - p - ca.DM([0, 1, 2, 3]) * u,
        objective=ca.sumsqr(x - 1) + 3 * ca.sumsqr(y) + 5 * (u - 0.8) ** 2, lbw=[0.0] * 8 + [-5.0],
    )  # fmt: skip


@pytest.mark.parametrize("prepared", [True, False])
def test_a_solution_whose_branch_ends_is_found_on_a_neighbour(prepared: bool) -> None:
    """With p below zero the first pair changes its side, and no other one: the best of all sixteen branches."""
    program, p = Program(drifting(), [0.3, 1.0, 1.8, 2.6, 0, 0, 0, 0, 0.7]), np.array([-0.2])
    solvers = Solvers(program.mpcc)
    known = None
    if prepared:
        # Steps to one side, on which the branch is kept: no other branch is prepared by them.
        around = Resolve(solvers, program.p, ns.Auto())
        known = around._around(around.solve_on_branch(program.w, program.solved), [np.array([0.1])])
        assert known is not None
        assert known.others == ()
    state, how = Resolve(solvers, p, ns.Auto()).solve_nearest(program.w, program.solved, known)
    assert how == "neighbour"
    assert state.status is ns.Status.SOLVED
    # No homotopy and no relaxed problem: one NLP, on a branch that was given.
    assert [record.label for record in state.records] == ["same branch"]
    objectives = []
    for number in range(16):
        left = np.array([number >> k & 1 for k in range(4)], bool)
        try:
            objectives.append(program.by_ipopt(p, complete(program.mpcc, *program.mpcc.side(left)))[1])
        except AssertionError:
            continue  # nothing is feasible on this branch
    assert state.values.objective == pytest.approx(min(objectives), rel=1e-8)
    assert state.solved_branch is not None
    assert np.flatnonzero(state.solved_branch.G != program.solved.G).tolist() == [0]


def test_branches_that_equations_contradict_are_tried_by_their_nlp() -> None:
    """w_1^2 = p + w_2 at w_1 = 0: to first order nothing there follows w_2, which is 1 on the other branch."""
    w, p = ca.SX.sym("w", 3), ca.SX.sym("p")
    mpcc = ns.MPCC.of_pairs(
        w=w, p=p, p0=0.0, G=w[0], H=w[2], g=ca.vertcat(w[1] ** 2 - p - w[2], w[0] - 1 + w[2]), lbw=[0.0, -5.0, 0.0],
        objective=ca.sumsqr(w),
    )  # fmt: skip
    solvers = Solvers(mpcc)
    program = Program(mpcc, [1.0, 0.0, 0.0])
    values = solvers.evaluator(np.array([1.0, 0.0, 0.0]), np.array([0.0]))
    around = Neighbours.of(program.finish, values, np.array([0.0]), program.solved, np.zeros(1, int))
    assert around is not None
    # w_2 = 1 on the other branch: w_1^2 = 1 + p, which the expansion at w_1 = 0 contradicts.
    assert around.promising(np.array([0.1])) == []
    ((start, solved),) = around.contradicted(np.array([0.1]))
    assert start == pytest.approx(program.w)
    assert solved.G.tolist() == [True]
    # w_2 = -0.1 and w_2 = 1: least squares leave half of the difference twice.
    (qp,) = around.beside
    assert qp.contradiction(np.array([0.1])) == pytest.approx(1.1 / np.sqrt(2))


@pytest.mark.parametrize("rows", [False, True])
def test_equations_of_other_pairs_may_be_violated_and_count(rows: bool) -> None:
    """a + b = 1 and b + c = 1 with a = c = 0: on the neighbour with b = 0, c = 0 is contradicted.

    With `rows`, c = 0 is no bound of a variable, but an equation c + e = 0.
    """
    w, p = ca.SX.sym("w", 5), ca.SX.sym("p")
    a, b, c, d, e = ca.vertsplit(w)
    mpcc = ns.MPCC.of_pairs(
        w=w, p=p, p0=0.0, G=ca.vertcat(a, c + e if rows else c), H=ca.vertcat(b, d),
        g=ca.vertcat(a + b - 1, b + c - 1, d - 1 - p, e), objective=ca.sumsqr(w),
        lbw=[0.0, 0.0, -5.0 if rows else 0.0, 0.0, -np.inf],
    )  # fmt: skip
    program = Program(mpcc, [0.0, 1.0, 0.0, 1.0, 0.0])
    left = np.array([[False, True], [True, False]])
    branches = [complete(mpcc, *mpcc.side(one)) for one in left]
    at = Expansion.of(program.finish, program.w, program.p, program.solved, program.columns)
    own = Branch(program.solved.G, program.solved.H, program.solved.r)
    qp = Elimination(at, own, branches, soft=2).programs[1]
    assert not qp.at(program.p).found
    # Which of the two equations is met depends on the order in which they are eliminated.
    left_over = qp.contradiction(program.p)
    assert 0.3 < left_over < 0.75
    assert Elimination(at, own, branches, soft=1).programs[1].contradiction(program.p) >= left_over - 1e-12


def test_without_another_answer_the_neighbour_of_a_motion_is_as_good_as_a_full_solve() -> None:
    """From rest a mass under dry friction slides back at once; measured with a speed away, it slides on at first."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    dry = ns.Modes("dry", flows=[[0.0, 1.0], [0.0, -1.0]], functions=x[1], signs=[[-1], [1]])
    ocp = ns.OCP(
        ns.PSS(x=x, u=u, flow=ca.vertcat(x[1], u), modes=dry), horizon=1.0, x0=[0.3, 0.0],
        stage_cost=10 * x[0] ** 2 + 0.1 * u**2, terminal_cost=10 * ca.sumsqr(x), bounds=ns.Bounds(u=(-5, 5)),
    )  # fmt: skip
    problem = ns.transcribe(ocp, ns.FESD(control_stages=6, finite_elements=2, rk_stages=2))
    plan, x0 = problem.solve(), [0.3, 0.02]
    answer = problem.resolve(plan, x0=x0)
    assert answer.how == "neighbour"
    assert [record.label for record in answer.state.records] == ["same branch"]
    others = [problem.solve(ns.Homotopy(sigma_0=s), x0=x0, guess=answer.u.mean()) for s in (1e-2, 1.0)]
    others += [problem.solve(x0=x0), problem.solve(x0=x0, guess=answer.solution)]
    assert answer.objective == pytest.approx(min(other.objective for other in others if other.success), rel=1e-6)
