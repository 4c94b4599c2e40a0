"""MPC whose order of contacts is searched at every sample: controls, their sources and their quality."""

from __future__ import annotations

import time

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.control.durations import Durations
from nosnoc_py.control.grid_plan import GridPlanner
from nosnoc_py.control.mpc_step import Source
from nosnoc_py.mpcc.threads import one_numpy_thread
from nosnoc_py.transcription.again import shifted, solve_kept
from nosnoc_py.transcription.condensed import condensed_at
from problems import paddle_loop, walled_cart_pole
from problems.loops import projected_discs
from problems.loops.common import closed

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("compiled_search")]


def between_walls(**options) -> ns.MPC:
    return ns.MPC(walled_cart_pole.build(), walled_cart_pole.METHOD, **{"guess": [0.0]} | options)


def kicked(mpc: ns.MPC, samples: int, seed: int = 0) -> ns.ClosedLoop:
    names, rng = mpc.system.state_names, np.random.default_rng(seed)
    kicks = [(k * mpc.period, {names[3]: 2.0 * rng.choice([-1.0, 1.0])}) for k in range(8, samples, 8)]
    return ns.close_loop(
        mpc, mpc.system, samples * mpc.period, walled_cart_pole.START, noise=0.01, disturbances=kicks, seed=seed
    )


def test_a_kicked_pole_stands_and_every_sample_has_a_control():
    mpc, margins = between_walls(), []
    step = mpc.step

    def watched(x, t):
        u = step(x, t)
        margins.append(mpc.last.quality.margin)
        return u

    mpc.step = watched
    log = kicked(mpc, 25)
    assert log.success, log.message
    # In some sample another order is better than the expected one, in most the expected one is the best.
    assert max(margins[1:]) > 1e-3
    assert np.median(margins[1:]) < 1e-6
    assert np.abs(log["angle"]).max() < 0.8
    assert set(log.sources) <= {Source.SOLVED, Source.SEARCHED}
    assert log.counts[Source.SEARCHED] >= 1
    assert log.cost < 12.0


def test_where_nothing_changes_the_plan_of_finite_elements_acts():
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    cost = 10 * (q - 0.5) ** 2 + v**2
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=cost + 0.1 * u**2, terminal_cost=5 * cost)
    mpc = ns.MPC(ocp, period=0.1, guess=[0.0])
    log = ns.close_loop(mpc, cart, 1.0, [0, 0])
    assert log.counts == {"solved": 10}
    quality = mpc.last.quality
    assert 0.0 <= quality.loss < 0.2
    assert quality.residual < 1e-8
    assert quality.margin == pytest.approx(0.0, abs=1e-6)


def test_a_new_order_is_found_simulated_and_solved_by_finite_elements():
    mpc = ns.MPC(paddle_loop.build(), paddle_loop.METHOD, guess=[9.81])
    mpc.step([0.0, 0.5, 0.0, 0.0], 0.0)
    mpc.prepare()
    # Far from what was predicted: the ball is about to hit the paddle, and has to be pushed up.
    mpc.step([0.0, 0.05, 0.0, -2.0], mpc.period)
    assert mpc.last.source is Source.SEARCHED
    quality = mpc.last.quality
    assert quality.gap == pytest.approx(0.0, abs=1e-3)
    mpc.prepare()
    simulated = mpc.last.quality.simulated
    # The grid knows the time of an impact up to a step of 40 ms, in which the ball moves 8 cm.
    assert quality.objective < simulated < 3.0 * quality.objective
    # The plan of the next sample has this order, and at most this objective.
    assert mpc._prepared.plan is not None
    assert mpc._plan.objective < simulated * (1.0 + 1e-3)


def test_without_the_grid_nothing_is_searched():
    mpc = ns.MPC(paddle_loop.build(), paddle_loop.METHOD, guess=[9.81], fixed_grid=False)
    mpc.step(paddle_loop.START, 0.0)
    assert mpc.last.source is Source.SOLVED
    assert np.isnan(mpc.last.quality.loss)


def test_controls_after_a_period_are_counted_without_a_deadline(monkeypatch):
    mpc, answer = between_walls(), GridPlanner.answer

    def slow(self, *given):
        time.sleep(1.5 * mpc.period)
        return answer(self, *given)

    monkeypatch.setattr(GridPlanner, "answer", slow)
    log = kicked(mpc, 4)
    assert log.misses == 3  # all but the first, which has no deadline
    assert log.success


def test_where_both_models_fail_the_plan_goes_on(monkeypatch):
    mpc = ns.MPC(paddle_loop.build(), paddle_loop.METHOD, guess=[9.81])
    mpc.step(paddle_loop.START, 0.0)
    mpc.prepare()
    monkeypatch.setattr(GridPlanner, "answer", lambda self, *given: None)
    monkeypatch.setattr(ns.MPC, "_on_branch", lambda self, *given: None)
    planned = mpc._prepared.plan.u[0]
    u = mpc.step(paddle_loop.START, mpc.period)
    assert mpc.last.source is Source.SHIFTED
    assert u == pytest.approx(planned)
    assert "fixed grid" in mpc.last.message


def test_a_delay_is_predicted_through_impacts():
    # A ball 1 cm above the floor at 1 m/s down hits it 10 ms later, within the delay, and then goes up.
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    floor = ns.Contact("floor", gap=q, restitution=0.5)
    ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 10.0, contacts=[floor])
    cost = (q - 0.3) ** 2 + 0.1 * v**2
    ocp = ns.OCP(ball, horizon=0.5, x0=[0.3, 0], stage_cost=cost + 1e-3 * (u - 10) ** 2, bounds=ns.Bounds(u=(0, 30)))
    mpc = ns.MPC(ocp, period=0.05, delay=0.03, guess=[10.0])
    mpc.step([0.3, 0.0], 0.0)
    mpc.prepare()
    mpc.step([0.01, -1.0], 0.05)
    assert mpc.last.planned_from[1] > 0.4
    assert mpc.last.source in (Source.SOLVED, Source.SEARCHED)


def test_a_plan_in_an_order_that_the_grid_does_not_see_acts():
    """Two discs in the plane: expanded at rest, the grid pushes nothing (objective 166), finite elements do (85)."""
    loop = projected_discs.task()
    mpc = ns.MPC(loop.ocp, loop.method, period=loop.period)
    log = closed(loop, mpc, samples=4, seed=0)
    assert log.counts == {"solved": 4}
    assert mpc.last.quality.objective < 100.0
    assert mpc.last.quality.loss < -0.2
    # The driven disc has moved towards the other one at full speed.
    np.testing.assert_allclose(np.asarray(log.u)[:, 1], -3.0, rtol=0, atol=0.1)


def test_a_plan_that_is_shifted_and_not_solved_is_one_newton_step_from_its_answer():
    mpc = ns.MPC(paddle_loop.build(), paddle_loop.METHOD, guess=[9.81])
    mpc.step([0.0, 0.5, 0.0, 0.0], 0.0)
    problem, plan = mpc.problem, mpc.last.plan
    ahead = np.add(plan(mpc.stage), [1e-3, -1e-3, 0.0, 5e-3])
    values = problem.parameters(ahead)
    moved = shifted(problem, plan, 1, values)
    np.testing.assert_array_equal(moved.u[:-1], plan.u[1:])
    assert moved.status is ns.Status.STOPPED  # it is no solution, and does not say so
    by_step = condensed_at(problem, moved.state.w, moved.state.p, moved.state.solved_branch).at(ahead)
    solved = solve_kept(problem, plan, 1, values, np.inf)
    assert by_step.ok
    assert solved.success
    errors = [np.abs(u[0] - solved.u[0]).max() for u in (moved.u, by_step.u)]
    assert errors[1] < 0.1 * errors[0]
    assert errors[1] < 0.02 * (mpc.upper - mpc.lower)[0]


def test_a_preparation_without_time_leaves_a_control():
    mpc = between_walls()
    mpc.step(walled_cart_pole.START, 0.0)
    mpc.prepare(time_limit=1e-9)
    mpc.step(walled_cart_pole.START, mpc.period)
    assert mpc.last.source in (Source.SOLVED, Source.SEARCHED)


def test_a_part_that_does_not_fit_is_not_begun_and_tried_again_later():
    durations, now = Durations(), time.monotonic()
    assert durations.run("built", lambda left: left, np.inf) == np.inf
    assert durations.of("built") == 0.0  # functions are built the first time
    durations.last["long"] = 1000.0
    begun = [durations.run("long", lambda left: True, now + 300.0) for _ in range(3)]
    assert begun == [None, None, True]
    assert durations.of("long") < 300.0


def to_reference(**options) -> ns.MPC:
    q, v, u, p = (ca.SX.sym(name) for name in "qvup")
    wall = ns.Contact("wall", gap=3 - q, restitution=0.4)
    cart = ns.CLS(q=q, v=v, u=u, p=p, p_default=[0.0], mass_matrix=1, force=u, contacts=[wall])
    cost = 10 * (q - p) ** 2 + 0.1 * v**2 + 0.01 * u**2
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=cost, bounds={"u_0": (-10, 10)})
    return ns.MPC(ocp, period=0.05, guess=[0.0], **options)


def test_parameters_of_a_sample_are_those_of_its_control_and_of_the_next_preparation():
    mpc = to_reference()
    mpc.step([0, 0], 0.0, p=[0.0])
    mpc.prepare()
    assert mpc.step([0, 0], 0.05, p=[2.0]) == pytest.approx(10.0)  # prepared for 0, where it would be 0
    mpc.prepare()
    assert mpc.last.quality.gap == pytest.approx(0.0, abs=1e-3)
    assert mpc.step([0, 0], 0.1, p=[2.0]) == pytest.approx(10.0)
    assert mpc.last.source is Source.SOLVED


def test_a_slow_part_does_not_keep_finite_elements_out_for_ever():
    mpc = to_reference(preparation=0.5)
    for k in range(6):
        mpc.step([0.1, 0.0], 0.05 * k)
        if k == 2:
            mpc._durations.last["condense"] = 100.0
        mpc.prepare()
    assert mpc._prepared.program is not None
    assert mpc._durations.of("condense") < 1.0
    mpc.reset()
    assert not mpc._durations.last


def test_a_held_sample_has_no_search_and_a_second_preparation_changes_nothing():
    mpc = to_reference(not_finite="hold")
    mpc.step([0.5, 0.0], 0.0)
    mpc.prepare()
    mpc.step([np.nan, 0.0], 0.05)
    assert mpc.last.source is Source.HELD
    assert mpc._searched is None
    mpc.prepare()
    mpc.step([0.4, 0.0], 0.1)
    mpc.prepare()
    first = mpc._prepared.plan
    mpc.prepare()
    assert mpc._prepared.plan.objective == pytest.approx(first.objective, rel=1e-6)
    assert mpc._prepared.plan.u[0] == pytest.approx(first.u[0], abs=1e-5)


def test_a_control_of_the_grid_acts_late_and_counts_as_late():
    mpc = to_reference(deadline=1e-6)
    mpc.step([0.5, 0.0], 0.0)
    mpc.prepare()
    u = mpc.step([0.5, 0.0], 0.05)
    assert mpc.last.late
    assert mpc.last.source in (Source.SOLVED, Source.SEARCHED)
    assert u == pytest.approx(to_reference().step([0.5, 0.0], 0.05), abs=0.2)


def test_why_there_is_no_grid_is_told():
    assert to_reference().without_grid == ""
    assert to_reference(fixed_grid=False).without_grid == "fixed_grid=False"


def test_samples_and_preparations_compute_in_one_thread(monkeypatch):
    # Several threads of NumPy wait for each other: a plan was condensed in 14 to 160 ms instead of 5.
    mpc, inside = to_reference(), []
    answer, prepare = mpc._planner.answer, mpc._planner.prepare

    def watched(function):
        def run(*given):
            inside.append(one_numpy_thread._inside)
            return function(*given)

        return run

    monkeypatch.setattr(mpc._planner, "answer", watched(answer))
    monkeypatch.setattr(mpc._planner, "prepare", watched(prepare))
    mpc.step([0.5, 0.0], 0.0)
    mpc.prepare()
    assert len(inside) == 2
    assert min(inside) >= 1
    assert one_numpy_thread._inside == 0
