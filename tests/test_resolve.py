"""Solving again: the branch that is kept, moved by stages, and what happens where it does not hold."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

pytestmark = pytest.mark.quick


def build(x0: Any = (0.0, 0.5), goal: float = 0.3) -> ns.OCP:
    """A mass is thrown against a wall, and is near a place in front of it at the end."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    wall = ns.Contact("wall", gap=0.5 - q, restitution=0.5)
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[wall])
    cost = 10 * (q - goal) ** 2 + v**2
    return ns.OCP(s, horizon=1.0, x0=x0, stage_cost=u**2, terminal_cost=cost, bounds=ns.Bounds(u=(-5, 5)))


METHOD = ns.FESDJ(control_stages=6, finite_elements=2, rk_stages=2)


@pytest.fixture(scope="module")
def problem() -> ns.Transcription:
    return ns.transcribe(build(), METHOD)


@pytest.fixture(scope="module")
def solution(problem: ns.Transcription) -> ns.Solution:
    return problem.solve(x0=[0.0, 2.0])


def test_a_kept_branch_is_the_same_optimum_as_a_solve(problem: ns.Transcription, solution: ns.Solution) -> None:
    assert solution.success
    assert len(solution.impacts) == 1
    for x0 in ([0.02, 2.0], [0.0, 2.1], [-0.03, 1.9]):
        answer = problem.resolve(solution, x0=x0)
        assert (answer.how, answer.success) == ("kept", True)
        state = answer.state
        assert max(state.infeasibility, state.complementarity) <= 1e-8
        anew = problem.solve(ns.Homotopy(sigma_0=1e-4), x0=x0, guess=solution)
        assert answer.objective == pytest.approx(anew.objective, rel=1e-7)
        assert answer.u == pytest.approx(anew.u, abs=1e-5)
        assert answer.solution.impacts[0].time == pytest.approx(anew.impacts[0].time, abs=1e-6)


def test_answers_follow_each_other(problem: ns.Transcription, solution: ns.Solution) -> None:
    last: Any = solution
    for k in range(4):
        last = problem.resolve(last, x0=[0.01 * k, 2.0])
        assert last.how == "kept"


def test_moved_by_a_stage_everything_comes_from_the_stage_after(
    problem: ns.Transcription, solution: ns.Solution
) -> None:
    moves = problem.moves(1)
    variables = problem.mpcc.variables
    controls = [solution.w[moves.w][variables["u", k]] for k in range(6)]
    assert np.ravel(controls) == pytest.approx(np.append(solution.u[1:], solution.u[-1:]))
    assert set(moves.lam_g) <= set(range(moves.lam_g.size))
    assert solution.branch is not None
    moved = moves.branch(solution.branch)
    assert [part.shape for part in (moved.G, moved.lam_x, moved.lam_g)] == [
        part.shape for part in (solution.branch.G, solution.branch.lam_x, solution.branch.lam_g)
    ]
    period = 1.0 / 6.0
    answer = problem.resolve(solution, x0=solution(period), shift=1)
    assert answer.success
    # What was planned still is nearly optimal: the horizon is longer by one stage.
    assert answer.u[0] == pytest.approx(solution.u[1], abs=0.5)


def test_where_the_branch_does_not_hold_the_solver_answers(problem: ns.Transcription, solution: ns.Solution) -> None:
    # Too slow to reach the wall.
    answer = problem.resolve(solution, x0=[0.0, 0.1])
    assert answer.success
    assert answer.how in ("neighbour", "fallback")
    assert not answer.solution.impacts
    assert answer.objective <= problem.solve(x0=[0.0, 0.1]).objective * (1 + 1e-6)


def test_files_and_shifts_keep_the_branch(problem: ns.Transcription, solution: ns.Solution, tmp_path: Any) -> None:
    loaded = ns.load(solution.save(tmp_path / "solution.nc"))
    assert isinstance(loaded, ns.Solution)
    assert loaded.branch is not None
    assert solution.branch is not None
    for part in ("G", "H", "r", "lam_x", "lam_g"):
        np.testing.assert_array_equal(getattr(loaded.branch, part), getattr(solution.branch, part))
    assert problem.resolve(loaded, x0=[0.02, 2.0]).how == "kept"
    again = problem.solve(x0=[0.01, 2.0], guess=solution)
    assert again.log[0].label == "same branch"
    assert len(again.log) == 1


def test_mistakes(problem: ns.Transcription, solution: ns.Solution) -> None:
    with pytest.raises(ns.OptionError, match="of another transcription"):
        ns.transcribe(build(), METHOD.replace(control_stages=5)).resolve(solution)
    with pytest.raises(ns.OptionError, match="from 0 to 5"):
        problem.resolve(solution, shift=6)
    with pytest.raises(ns.OptionError, match="an Answer or a Solution"):
        problem.resolve([1.0])  # type: ignore[arg-type]


def sliding_mass() -> ns.Transcription:
    """A mass under dry friction that is to return to a place."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    dry = ns.Modes("dry", flows=[[0.0, 1.0], [0.0, -1.0]], functions=x[1], signs=[[-1], [1]])
    ocp = ns.OCP(
        ns.PSS(x=x, u=u, flow=ca.vertcat(x[1], u), modes=dry),
        horizon=1.0,
        x0=[0.3, 0.0],
        stage_cost=10 * x[0] ** 2 + 0.1 * u**2,
        terminal_cost=10 * ca.sumsqr(x),
        bounds=ns.Bounds(u=(-5, 5)),
    )
    return ns.transcribe(ocp, ns.FESD(control_stages=6, finite_elements=2, rk_stages=2))


def test_beside_a_branch_that_fails_is_another_one() -> None:
    """From rest a mass under dry friction slides back at once; measured with a speed away, it slides on at first."""
    sliding = sliding_mass()
    answer = sliding.resolve(sliding.solve(), x0=[0.3, 0.02])
    assert answer.how == "neighbour"
    state = answer.state
    assert max(state.infeasibility, state.complementarity) <= 1e-8
    assert answer.objective <= sliding.solve(x0=[0.3, 0.02]).objective * (1 + 1e-6)
    assert any(event.kind == "switch" or event.kind == "enter_sliding" for event in answer.solution.events)


def test_what_is_prepared_is_the_plan_from_the_predicted_state(
    problem: ns.Transcription, solution: ns.Solution
) -> None:
    ready = problem.prepare(solution)
    assert ready.how == "prepared"
    assert ready.success
    predicted = solution(1.0 / 6.0)
    assert ready.solution.x[0] == pytest.approx(predicted, abs=1e-6)
    moved = problem.resolve(solution, x0=predicted, shift=1)
    assert ready.objective <= moved.objective * (1 + 1e-6)
    # The state is measured as predicted: the control is the prepared one.
    answer = problem.resolve(ready, x0=predicted)
    assert answer.how == "kept"
    assert answer.u == pytest.approx(ready.u, abs=1e-6)


def test_the_expected_objective_is_right_to_first_order(problem: ns.Transcription, solution: ns.Solution) -> None:
    ready = problem.prepare(solution)
    known = ready.prepared
    assert known is not None
    where = problem.mpcc.parameters["x0"]
    errors = []
    for h in (1e-3, 1e-4):
        p = known.p.copy()
        p[where] += h * np.array([1.0, -0.5])
        change = problem.resolve(ready, x0=p[where]).objective - ready.objective
        errors.append(abs(known.expected(p) - known.objective - change))
        assert errors[-1] <= 0.1 * abs(change)
    assert errors[1] <= 0.03 * errors[0]  # of second order


def test_a_plan_that_has_drifted_from_the_optimum_is_noticed() -> None:
    """The mass starts too slow to strike; a plan that never strikes holds for a fast one, too, far from the best."""
    drifting = ns.transcribe(build(x0=(0.0, 0.1), goal=0.1), METHOD)
    kept: Any = drifting.solve()
    for speed in (0.6, 1.1, 1.6, 2.1):
        kept = drifting.resolve(kept, x0=[0.0, speed])
    ready = drifting.prepare(kept, shift=0)
    best = drifting.solve(x0=[0.0, 2.1])
    assert ready.objective <= best.objective * 1.01
    assert ready.objective <= kept.objective * (1 + 1e-9)


def test_branches_a_step_away_are_prepared() -> None:
    """Just fast enough to slide on at first: a little slower the mass turns round at once, on another branch."""
    sliding = sliding_mass()
    plan = sliding.solve(x0=[0.3, 0.02])
    ready = sliding.prepare(plan, shift=0, spread=[0.0, 0.04])
    assert ready.prepared is not None
    assert len(ready.prepared.others) == 1
    other = ready.prepared.others[0]
    x0 = (ready.prepared.p + other.step)[sliding.mpcc.parameters["x0"]]
    assert x0 == pytest.approx([0.3, -0.02], abs=1e-9)
    answer = sliding.resolve(ready, x0=x0)
    assert answer.how == "neighbour"
    assert len(answer.state.records) == 1  # the first branch that is tried
    assert answer.objective <= 1.5 * ready.prepared.expected(ready.prepared.p + other.step)
    none = sliding.prepare(plan, shift=0, spread=0.0).prepared
    assert none is not None
    assert not none.others


def test_a_plan_that_failed_is_not_prepared(problem: ns.Transcription, solution: ns.Solution) -> None:
    failed = problem.resolve(solution, x0=[0.0, 2.0], time_limit=1e-6)
    assert not failed.success
    with pytest.raises(ns.OptionError, match="expected a solved plan"):
        problem.prepare(failed)
    with pytest.raises(ns.ModelError, match="spread: expected 2"):
        problem.prepare(solution, spread=[1.0])


@pytest.mark.quick
def test_what_is_given_wrongly_is_told_at_once():
    """A solver that is none, a time limit that is none, a spread below zero."""
    made = ns.transcribe(short_push(), ns.FESDJ(control_stages=4, finite_elements=1))
    plan = made.solve()
    for call in (made.resolve, made.prepare):
        with pytest.raises(ns.OptionError, match=r"solver: expected ns\.Auto"):
            call(plan, solver=ns.Search())
        for limit in (-1, np.nan, "a"):
            with pytest.raises(ns.OptionError, match="time_limit: expected a number of seconds"):
                call(plan, time_limit=limit)
    with pytest.raises(ns.OptionError, match="spread: expected nonnegative numbers"):
        made.prepare(plan, spread=[-1, -1])
    assert made.resolve(plan, shift=np.int64(1)).success


@pytest.mark.quick
def test_a_preparation_keeps_the_horizon_of_the_answer():
    """And what it is solved for again may be another one."""
    made = ns.transcribe(short_push(), ns.FESDJ(control_stages=4, finite_elements=1))
    answer = made.resolve(made.solve(), horizon=2.0)
    assert made.prepare(answer, shift=0).solution.horizon == pytest.approx(2.0)


@pytest.mark.quick
def test_a_solution_of_another_problem_has_no_derivatives_here():
    """Its variables are the same, its objective is not."""
    method = ns.FESDJ(control_stages=4, finite_elements=1)
    made, other = (ns.transcribe(short_push(weight), method) for weight in (10.0, 20.0))
    with pytest.raises(ns.OptionError, match="of another one with the same variables"):
        made.differentiate(other.solve(), x0=True)
    assert made.differentiate(made.solve(), x0=True).objective.shape == (2,)


def short_push(weight=10.0):
    """A mass before a wall."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    return ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=weight * (q - 0.9) ** 2)
