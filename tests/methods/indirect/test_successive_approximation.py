"""Algorithm 1 on the problems of the paper: its numbers, its rates, and what happens without its precautions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.methods.indirect.forward import GridSweep
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.methods.indirect.successive_approximation import UniformGrid, costate_jumps
from nosnoc_py.systems.hybrid import HybridSystem, StateJump
from problems import two_discs
from tests.pairwise import slow_row
from tests.references.multi_phase import multi_phase
from tests.references.two_discs import optimum, semi_norm

Array = np.ndarray


@pytest.mark.parametrize(
    ("n", "steepest", "expected"),
    [
        (10, [9], (8, 11)),
        (10, [9, 11], (8, 11)),
        (10, [7], (6, 9)),
        (10, [13], (12, 15)),
        (10, [6], (6, 9)),
        (10, [14], (6, 9)),
        (1, [0], (0, 2)),
        (19, [18], (17, 19)),
    ],
)
def test_controls_beside_a_collision_are_those_beside_the_steepest_change(
    n: int, steepest: list[int], expected: tuple[int, int]
) -> None:
    """Eqs. 23-24 with u_k = k and steps of 1000 after `steepest`; |n - c| < 4, of ties the first, within the grid."""
    grid = UniformGrid(problem_of("general"), 20, 0.2)
    u = np.column_stack([np.arange(20.0), np.zeros(20)])
    for k in steepest:
        u[k + 1 :, 1] += 1000.0
    assert tuple(int(one[0]) for one in grid.limits(u, n)) == expected


def test_a_start_is_projected() -> None:
    free = two_discs.build("concentric")
    bounds = ns.Bounds(u=(-2.0, 2.0))
    ocp = ns.OCP(free.system, horizon=1.0, x0=free.x0, stage_cost=free.stage_cost, bounds=bounds)
    control = UniformGrid(hybrid_problem(ocp, "Test"), 20, 0.1).initial(lambda t: np.array([9.0, -9.0]))
    np.testing.assert_array_equal(control, np.tile([2.0, -2.0], (20, 1)))


def shuttle(x0: tuple[float, float]) -> HybridProblem:
    """A point between two walls that are hit with restitution; without force its speed is constant in between."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    jumps = [
        StateJump("left", guard=x[0], reset=ca.vertcat(x[0], -0.9 * x[1])),
        StateJump("right", guard=1.0 - x[0], reset=ca.vertcat(x[0], -0.8 * x[1])),
    ]
    system = HybridSystem(x=x, u=u, flow=ca.vertcat(x[1], u), jumps=jumps)
    end = (x[0] - 0.3) ** 2 + 0.5 * (x[1] - 1.0) ** 2
    return hybrid_problem(ns.OCP(system, horizon=1.0, x0=x0, stage_cost=u**2, terminal_cost=end), "Test")


@pytest.mark.parametrize(("steps", "count"), [(1, 3), (2, 2), (30, 1)])
def test_the_costate_is_the_gradient_through_several_collisions_of_one_step(steps: int, count: int) -> None:
    """Without force Euler and Eqs. 21, 22 are exact: lambda_0 is dJ/dx_0."""
    u = np.zeros((steps, 1))
    grid = UniformGrid(shuttle((0.6, -3.5)), steps, 0.0)
    rollout = grid.forward(u)
    assert max(np.bincount([c.step for c in rollout.collisions])) == count
    measured = []
    for k in range(2):
        sides = []
        for h in (1e-6, -1e-6):
            x0 = np.array([0.6, -3.5])
            x0[k] += h
            sides.append(UniformGrid(shuttle(tuple(x0)), steps, 0.0).sweep(u).objective)
        measured.append((sides[0] - sides[1]) / 2e-6)
    np.testing.assert_allclose(grid.backward(rollout)[0][0], measured, atol=1e-7)
    motion = grid.sweep(u).motion()
    np.testing.assert_allclose(motion.times, np.cumsum([0.6 / 3.5, 1 / 3.15, 1 / 2.52]), atol=1e-13)
    problem = grid.problem
    hamiltonian = ca.Function("H", [problem.x, problem.costate, problem.u], [problem.hamiltonian])
    for before, after in zip(motion.phases[:-1], motion.phases[1:], strict=True):
        assert before.costate is not None
        assert after.costate is not None
        sides = [float(hamiltonian(p.x[k], p.costate[k], 0.0)) for p, k in ((before, -1), (after, 0))]  # type: ignore[index]
        assert sides[0] == pytest.approx(sides[1], abs=1e-13)


@pytest.mark.slow
def test_a_cost_of_the_state_across_a_collision_is_of_first_order() -> None:
    """Against a program in phases; where in its step the collision lies makes the errors waver."""
    ocp = with_cost_of_the_state()
    elastic = optimum("general")
    exact = multi_phase(ocp, elastic.contacts, elastic.times, elastic.control)
    assert exact.success
    errors = []
    for steps in (60, 480):
        grid = UniformGrid(hybrid_problem(ocp, "Test"), steps, 0.05)
        sweep = last(grid, "general", 1500)
        assert sweep.slope < 1e-5
        errors.append(abs(sweep.objective - exact.objective))
    assert errors[0] < 0.01
    assert np.log2(errors[0] / errors[1]) / 3 == pytest.approx(1.0, abs=0.2)


def with_cost_of_the_state() -> ns.OCP:
    """5.2 with running costs of the place of disc 2 and of the speed of disc 1: both have derivatives, one a jump."""
    ocp = two_discs.build("general")
    s = ocp.system
    running = 0.01 * ca.sumsqr(s.u) + 0.1 * ca.sumsqr(s.q[2:]) + 0.02 * ca.sumsqr(s.v[:2])
    return ns.OCP(s, horizon=1.0, x0=ocp.x0, stage_cost=running, terminal_cost=ocp.terminal_cost)


def problem_of(experiment: str) -> HybridProblem:
    return hybrid_problem(two_discs.build(experiment), "Test")


def iterates(grid: UniformGrid, experiment: str, alpha: float, count: int) -> Iterator[GridSweep]:
    start = np.array(two_discs.EXPERIMENTS[experiment].control)
    control = grid.initial(lambda t: start)
    for _ in range(count):
        sweep = grid.sweep(control)
        control = (1 - alpha) * control + alpha * sweep.target
        yield sweep


def last(grid: UniformGrid, experiment: str, count: int = 2400) -> GridSweep:
    *_, sweep = iterates(grid, experiment, 0.01, count)
    return sweep


@cache
def exact_control(experiment: str, steps: int) -> tuple[Array, tuple[float, ...]]:
    exact = optimum(experiment)
    return exact.control(np.arange(steps) / steps), exact.times


def control_error(experiment: str, control: Array) -> float:
    exact, times = exact_control(experiment, len(control))
    return semi_norm(control - exact, np.arange(len(control)) / len(control), times)


@pytest.mark.parametrize(
    ("experiment", "steps", "objective", "error", "times"),
    [
        ("concentric", 60, 1.421551970, None, 1),
        slow_row("general", 480, 0.312109233, 2.031e-2, 1),
        slow_row("concentric", 480, 1.399599681, 3.187e-3, 1),
        slow_row("wall", 60, None, None, 2),
    ],
)
def test_the_iteration_ends_at_the_numbers_of_the_paper(
    experiment: str, steps: int, objective: float | None, error: float | None, times: int
) -> None:
    sweep = last(UniformGrid(problem_of(experiment), steps, 0.05), experiment)
    assert sweep.slope < 1e-9
    assert len(sweep.times) == times
    if objective is not None:
        assert sweep.objective == pytest.approx(objective, abs=1e-8)
    if error is not None:
        assert control_error(experiment, sweep.control) == pytest.approx(error, rel=5e-4)


@pytest.mark.parametrize(("alpha", "rate"), [(0.01, 0.99085), (0.005, 0.99570), slow_row(0.001, 0.99912)])
def test_the_linear_rate_is_that_of_the_relaxation(alpha: float, rate: float) -> None:
    """Fitted from the start to 5 / alpha, before the plateau of the discretisation."""
    count = math.ceil(5 / alpha)
    sweeps = iterates(UniformGrid(problem_of("general"), 480, 0.05), "general", alpha, count)
    errors = [control_error("general", sweep.control) for sweep in sweeps]
    slope = np.polyfit(np.arange(count), np.log(errors), 1)[0]
    assert math.exp(slope) == pytest.approx(rate, abs=5e-4)


@pytest.mark.slow
def test_the_length_cost_converges_to_full_thrust_and_then_none() -> None:
    sweep = last(UniformGrid(problem_of("length"), 240, 0.05), "length", 2600)
    assert sweep.slope < 1e-8
    t = np.arange(240) / 240
    size = np.linalg.norm(sweep.control, axis=1)
    far = np.abs(t - sweep.times[0]) > 0.05
    np.testing.assert_allclose(size[far & (t < sweep.times[0])], 5 * math.sqrt(2), atol=1e-7)
    np.testing.assert_allclose(size[far & (t > sweep.times[0])], 0.0, atol=1e-7)
    assert sweep.objective == pytest.approx(optimum("length").objective, rel=2e-2)


@pytest.mark.slow
def test_the_wall_takes_three_collisions_down_to_two() -> None:
    grid = UniformGrid(problem_of("wall"), 120, 0.05)
    control = np.tile([4.0, 4.5], (120, 1))
    first = grid.sweep(control)
    assert len(first.times) == 3
    for _ in range(2400):
        sweep = grid.sweep(control)
        control = 0.99 * control + 0.01 * sweep.target
    assert len(sweep.times) == 2
    same = last(UniformGrid(problem_of("wall"), 120, 0.05), "wall")
    assert sweep.objective == pytest.approx(same.objective, abs=1e-3)


def test_without_search_and_extrapolation_it_never_converges() -> None:
    """Negative control: the controls right beside the collision in place of Eqs. 23-24."""
    problem = problem_of("general")
    slopes = [sweep.slope for sweep in iterates(UniformGrid(problem, 120, 0.0), "general", 0.01, 2400)]
    assert min(slopes) > 1e-3
    assert max(slopes[-200:]) > 1e-2
    assert last(UniformGrid(problem, 120, 0.05), "general").slope < 1e-9


def test_forgetting_the_jump_of_the_running_cost_converges_to_a_wrong_control() -> None:
    """Negative control: Eq. 11 without L(-) - L(+) is smooth and wrong."""
    problem = problem_of("concentric")
    free = hybrid_problem(two_discs.build("concentric"), "Test")
    object.__setattr__(free, "running_cost", ca.SX(0))
    grid = UniformGrid(problem, 240, 0.05)
    grid.__dict__["_jumps"] = costate_jumps(free)
    wrong, right = last(grid, "concentric"), last(UniformGrid(problem, 240, 0.05), "concentric")
    assert wrong.slope < 1e-9
    assert control_error("concentric", wrong.control) > 10 * control_error("concentric", right.control)


def test_the_hamiltonian_is_continuous_across_a_jump() -> None:
    """Eq. 11 is H- = H+ (Remark 3.2); eta has the closed form of the discs."""
    problem = problem_of("general")
    jump = costate_jumps(problem)[0]
    hamiltonian = ca.Function("H", [problem.x, problem.costate, problem.u], [problem.hamiltonian])
    reset = ca.Function("g", [problem.x], [problem.resets[0]])
    random = np.random.default_rng(8)
    for _ in range(5):
        x, costate, before, after = (random.normal(size=n) for n in (8, 8, 2, 2))
        earlier = jump(costate, x, before, after)
        left, right = hamiltonian(x, earlier, before), hamiltonian(reset(x), costate, after)
        assert float(left) == pytest.approx(float(right), abs=1e-12)


def test_the_motion_has_both_limits_at_every_collision() -> None:
    grid = UniformGrid(problem_of("wall"), 60, 0.05)
    sweep = last(grid, "wall", 300)
    motion = sweep.motion()
    assert motion.jumps == sweep.jumps == (0, 2)
    np.testing.assert_allclose(motion.times, sweep.times, atol=0)
    assert [len(phase.u) for phase in motion.phases] == [len(phase.t) - 1 for phase in motion.phases]
    assert sum(len(phase.u) for phase in motion.phases) == 60 + 2
    for phase in motion.phases:
        assert phase.costate is not None
        flow = ca.Function("f", [grid.problem.x, grid.problem.u], [grid.problem.flow])
        steps = np.diff(phase.t)[:, None] * np.array(flow.map(len(phase.u))(phase.x[:-1].T, phase.u.T)).T
        np.testing.assert_allclose(np.diff(phase.x, axis=0), steps, atol=1e-14)
    before, after = motion.phases[0].x[-1], motion.phases[1].x[0]
    reset = ca.Function("g", [grid.problem.x], [grid.problem.resets[0]])
    np.testing.assert_allclose(np.array(reset(before)).reshape(-1), after, atol=1e-15)
