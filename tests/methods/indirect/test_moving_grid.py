"""Successive approximations on phases: exact optima, order, gradients, and what happens when a sequence changes."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from scipy.interpolate import CubicHermiteSpline

import nosnoc_py as ns
from nosnoc_py.methods.indirect.anderson import AndersonMemory, advance
from nosnoc_py.methods.indirect.boundary_value import polish
from nosnoc_py.methods.indirect.forward import SweepFailure
from nosnoc_py.methods.indirect.motion import solution_of
from nosnoc_py.methods.indirect.moving_grid import MovingGrid, SequenceChange, interval_minima
from nosnoc_py.methods.indirect.problem import hybrid_problem
from nosnoc_py.status import Status
from nosnoc_py.systems.hybrid import HybridSystem, StateJump
from problems import two_discs
from tests.references.multi_phase import multi_phase
from tests.references.two_discs import optimum


def discs(experiment):
    return hybrid_problem(two_discs.build(experiment), "test")


def constant(experiment):
    return lambda t: np.array(two_discs.data(experiment).control, dtype=float)


def iterate(grid, guess, memory, relaxation=0.01, most=300, tolerance=1e-12):
    """Iterations until the control is its own target, and the last sweep."""
    control = grid.initial(guess)
    for count in range(most):
        sweep = grid.sweep(control)
        if np.abs(sweep.target - sweep.control).max() < tolerance:
            return count, sweep
        control, memory = advance(memory, sweep.control, sweep.target, relaxation, key=sweep.jumps)
    return most, sweep


@pytest.mark.parametrize(("experiment", "most"), [("concentric", 110), ("general", 150), ("wall", 110)])
def test_accelerated_iterations_end_at_the_exact_optimum(experiment, most):
    exact = optimum(experiment)
    count, sweep = iterate(MovingGrid(discs(experiment), nodes=4, steps=10), constant(experiment), AndersonMemory())
    assert count <= most
    assert sweep.objective == pytest.approx(exact.objective, abs=1e-12)
    np.testing.assert_allclose(sweep.times, exact.times, rtol=0.0, atol=1e-11)
    assert sweep.slope < 1e-12


def test_without_acceleration_they_do_not_in_as_many_iterations():
    grid = MovingGrid(discs("general"), nodes=4, steps=10)
    count, sweep = iterate(grid, constant("general"), AndersonMemory(depth=0), most=150)
    assert count == 150
    assert sweep.objective - optimum("general").objective > 1e-3


def test_polynomials_converge_to_the_control_of_the_length():
    """The control turns on a circle: no polynomial, so the error falls with the number of nodes."""
    exact, errors = optimum("length"), []
    for nodes, steps in ((4, 10), (8, 20), (16, 40)):
        _, sweep = iterate(
            MovingGrid(discs("length"), nodes, steps), constant("length"), AndersonMemory(), tolerance=1e-9
        )
        errors.append(abs(sweep.objective - exact.objective))
    assert errors[0] > 1e-4
    assert errors[1] < 0.1 * errors[0]
    assert errors[2] < 1e-7


def test_a_motion_of_the_grid_can_be_polished_and_simulated():
    problem, exact = discs("general"), optimum("general")
    _, sweep = iterate(MovingGrid(problem, nodes=4, steps=20), constant("general"), AndersonMemory())
    motion = sweep.motion()
    found = polish(problem, motion)
    assert found.iterations <= 4
    assert found.motion.objective == pytest.approx(exact.objective, abs=1e-13)
    solution = solution_of(problem, motion, status=Status.SOLVED)
    t = np.linspace(0.0, 1.0, 101)
    np.testing.assert_allclose(solution(t), exact.state(t), rtol=0.0, atol=1e-10)
    simulated = ns.simulate(problem.ocp.system, x0=problem.x0, duration=1.0, method=ns.EventDriven(), u=solution)
    np.testing.assert_allclose(simulated.final_state, solution.final_state, rtol=0.0, atol=1e-2)


# The costate is the gradient ------------------------------------------------------------------------------------------


def staircase(experiment, values):
    """A control that is constant in each phase, so that stretching a phase does not change it."""
    grid = MovingGrid(discs(experiment), nodes=3, steps=20)
    control = grid.initial(constant(experiment))
    rows = np.tile(values, (1, 3))
    assert len(rows) == len(control)
    control[:, 2:] = rows
    return grid, grid.sweep(control).control


STAIRS = {
    "general": [[0.3, 3.0], [-1.0, 0.5]],
    "wall": [[3.0, 3.2], [1.0, -0.5], [-0.7, 0.4]],
}


def slopes(grid, control):
    """The derivative of the objective along a direction: from costates (H_u = 2 epsilon (u - target)), and measured."""
    sweep = grid.sweep(control)
    direction = np.random.default_rng(5).normal(size=(len(control), grid.problem.n_u))
    values = (sweep.control - sweep.target)[:, 2:].reshape(len(control), grid.nodes, -1)
    lengths = np.diff([0.0, *sweep.times, 1.0])
    expected = np.einsum("p,j,pji,pi->", lengths, grid.weights, 2.0 * 0.01 * values, direction)
    step = np.zeros_like(control)
    step[:, 2:] = 1e-5 * np.tile(direction, (1, grid.nodes))
    measured = (grid.sweep(control + step).objective - grid.sweep(control - step).objective) / 2e-5
    return expected, measured


@pytest.mark.parametrize("experiment", list(STAIRS))
def test_costates_give_the_derivative_of_the_objective(experiment):
    expected, measured = slopes(*staircase(experiment, STAIRS[experiment]))
    assert abs(measured) > 0.05
    assert expected == pytest.approx(measured, abs=1e-8)


@pytest.mark.parametrize("experiment", list(STAIRS))
def test_they_do_not_with_one_control_on_both_sides_of_a_collision(experiment):
    """L(-) - L(+) in Eq. 11 is there for the jump of the control."""
    grid, control = staircase(experiment, STAIRS[experiment])
    jumps = grid._jumps
    grid.__dict__["_jumps"] = [lambda costate, x, u, _, right=right: right(costate, x, u, u) for right in jumps]
    expected, measured = slopes(grid, control)
    assert abs(expected - measured) > 1e-3


def test_the_scheme_is_of_fourth_order():
    """State, costate and minimisers of a fixed control, against 640 steps.

    The minimisers are at places that lie differently within the steps of every grid, so the order is a mean.
    """
    problem = pendulum()
    fine = MovingGrid(problem, nodes=5, steps=640)
    control = fine.initial(lambda t: np.array([np.sin(3.0 * t) - 0.5]))
    exact, errors = fine.sweep(control), []
    for steps in (20, 160):
        found = MovingGrid(problem, nodes=5, steps=steps).sweep(control)
        starts = [one.costate[0] - other.costate[0] for one, other in zip(*map(phases, (found, exact)), strict=True)]
        one = abs(found.times[0] - exact.times[0]), abs(found.objective - exact.objective), np.abs(starts).max()
        errors.append([*one, np.abs(found.target - exact.target)[:, 2:].max()])
    orders = np.log2(np.array(errors[0]) / np.array(errors[1])) / 3.0
    assert (np.abs(orders - 4.0) < 0.5).all()


def phases(sweep):
    return sweep.motion().phases


def pendulum():
    """A pendulum with cubic drag that swings against a wall."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    wall = ns.Contact("wall", gap=ca.sin(q) + 0.4, restitution=0.8)
    force = -9.81 * ca.sin(q) - 0.2 * v**3 + u
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=force, contacts=[wall])
    end = 5.0 * ((q - 0.6) ** 2 + 0.1 * v**2)
    ocp = ns.OCP(system, horizon=1.5, x0=(0.8, 0.0), stage_cost=0.05 * u**2, terminal_cost=end)
    return hybrid_problem(ocp, "test")


def test_a_nonlinear_system_ends_where_newton_does():
    """Forty steps per phase leave an error of fourth order."""
    problem = pendulum()
    count, sweep = iterate(
        MovingGrid(problem, nodes=10, steps=40),
        lambda t: np.array([-0.5]),
        AndersonMemory(),
        relaxation=0.05,
        tolerance=1e-9,
    )
    found = polish(problem, sweep.motion())
    assert count < 150
    assert sweep.objective == pytest.approx(found.motion.objective, abs=1e-7)
    assert sweep.times[0] == pytest.approx(found.motion.times[0], abs=1e-6)


# Sequences that change ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "jumps"),
    [((3.0, 3.0), (3.0, 4.0), (0, 2, 1)), ((3.0, 2.0), (3.0, 3.0), (0, 2)), ((3.0, 3.0), (0.0, 3.0), (1,))],
)
def test_other_collisions_than_expected_are_found(before, after, jumps):
    """One more, one less, another one: the same sweep as from the start with this control."""
    grid = MovingGrid(discs("wall"), nodes=4, steps=20)
    control = grid.initial(lambda t: np.array(before))
    assert grid.sweep(control).jumps != jumps
    control[:, 2:] = np.tile(after, 4)
    found, fresh = grid.sweep(control), grid.sweep(grid.initial(lambda t: np.array(after)))
    assert found.jumps == fresh.jumps == jumps
    assert found.control.shape == (len(jumps) + 1, 2 + 4 * 2)
    assert found.objective == pytest.approx(fresh.objective, abs=1e-12)
    np.testing.assert_allclose(found.times, fresh.times, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("start", [(4.0, 4.5), (4.0, 6.0), (4.0, 3.0)])
def test_starts_with_three_collisions_end_at_the_optimum_with_two(start):
    grid, exact = MovingGrid(discs("wall"), nodes=4, steps=20), optimum("wall")
    first = grid.sweep(grid.initial(lambda t: np.array(start)))
    assert len(first.jumps) == 3
    _, sweep = iterate(grid, lambda t: np.array(start), AndersonMemory(), most=400)
    assert sweep.jumps == (0, 2)
    assert sweep.objective == pytest.approx(exact.objective, abs=1e-12)


def test_no_collision_is_a_sequence_too():
    """From the start, and when the last one is lost: J = |q_2(0)|^2 + epsilon |u|^2, and no force is the minimiser."""
    grid = MovingGrid(discs("general"), nodes=4, steps=20)
    lost = grid.initial(constant("general"))
    lost[:, 2:] = np.tile((-1.0, 0.0), 4)
    for control in (lost, grid.initial(lambda t: np.array([-1.0, 0.0]))):
        sweep = grid.sweep(control)
        assert sweep.jumps == ()
        assert sweep.times == ()
        assert sweep.objective == pytest.approx(2.01, abs=1e-14)
        np.testing.assert_allclose(sweep.target, [[1.0, -1.0, *np.zeros(8)]], atol=1e-15)


def falling(q0, v0):
    """A ball above an elastic floor; a constant force makes its height a parabola."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    floor = StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], -x[1]))
    system = HybridSystem(x=x, u=u, flow=ca.vertcat(x[1], u), jumps=[floor])
    ocp = ns.OCP(system, horizon=1.0, x0=[q0, v0], stage_cost=u**2, terminal_cost=(x[0] - 1) ** 2)
    return hybrid_problem(ocp, "test")


@pytest.mark.parametrize(("depth", "hit"), [(0.03, True), (-0.03, False)])
@pytest.mark.parametrize("steps", [2, 20])
def test_a_collision_between_two_nodes_is_seen(steps, depth, hit):
    """The height is A (t - s)^2 - depth, with s in the middle of a step, and positive at the nodes."""
    dt = 1.0 / steps
    s, a = 0.5 * dt + (0.05 if steps == 20 else 0.0), 0.04 * 4.0 / dt**2
    grid = MovingGrid(falling(a * s**2 - depth, -2.0 * a * s), nodes=4, steps=steps)
    control = grid.initial(lambda t: np.array([16.0 * a]))
    assert grid.sweep(control).jumps == ()
    control[:, 2:] = 2.0 * a
    sweep = grid.sweep(control)
    assert sweep.jumps[:1] == ((0,) if hit else ())
    if hit:
        assert sweep.times[0] == pytest.approx(s - np.sqrt(depth / a), abs=1e-13)


def test_dips_are_the_minima_of_cubics():
    random = np.random.default_rng(4)
    values, slopes = random.normal(size=(3, 41)), random.normal(size=(3, 41))
    found = interval_minima(values, slopes)
    s = np.linspace(0.0, 1.0, 2001)
    for i in range(3):
        for k in range(40):
            cubic = CubicHermiteSpline([0.0, 1.0], values[i, k : k + 2], slopes[i, k : k + 2])(s)
            there = slopes[i, k] < 0.0 < slopes[i, k + 1]
            assert found[i, k] == (pytest.approx(cubic.min(), abs=1e-5) if there else np.inf)


def test_an_undecided_sequence_is_a_status(monkeypatch):
    grid = MovingGrid(discs("general"), nodes=4, steps=20)
    control = grid.initial(constant("general"))

    def changing(_):
        raise SequenceChange("there and back again")

    monkeypatch.setattr(grid, "forward", changing)
    with pytest.raises(SweepFailure, match="there and back again") as caught:
        grid.sweep(control)
    assert caught.value.status is Status.SEQUENCE_LOST


def test_the_norm_of_the_slope_is_weighted_by_lengths_and_the_means_are_exact():
    """H_u = 2 epsilon (u - u_*); a cubic control has means that three Gauss points give exactly."""
    grid = MovingGrid(discs("general"), nodes=4, steps=20)
    sweep = grid.sweep(grid.initial(lambda t: np.array([0.1 - t**2, 3 + t**3])))
    away = 0.02 * (sweep.control - sweep.target)[:, 2:].reshape(2, 4, 2)
    lengths = np.diff([0.0, *sweep.times, 1.0])
    assert sweep.slope == pytest.approx(np.sqrt(np.einsum("p,j,pji->", lengths, grid.weights, away**2)), rel=1e-12)
    control, (points, weights) = grid.function(sweep.control), np.polynomial.legendre.leggauss(3)
    for phase in sweep.motion().phases:
        for k in (0, 7, 19):
            t = phase.t[k] + (phase.t[k + 1] - phase.t[k]) * (1.0 + points) / 2.0
            exact = weights @ np.array([control(time) for time in t]) / 2.0
            np.testing.assert_allclose(phase.u[k], exact, atol=1e-12)


def test_a_cost_of_the_state_across_a_collision():
    """Against a program in phases, as well as what the polish makes of it."""
    ocp = two_discs.build("general")
    s = ocp.system
    running = 0.01 * ca.sumsqr(s.u) + 0.1 * ca.sumsqr(s.q[2:]) + 0.02 * ca.sumsqr(s.v[:2])
    ocp = replace(ocp, stage_cost=running)
    elastic = optimum("general")
    exact = multi_phase(ocp, elastic.contacts, elastic.times, elastic.control)
    assert exact.success
    problem = hybrid_problem(ocp, "test")
    _, sweep = iterate(
        MovingGrid(problem, nodes=10, steps=40), constant("general"), AndersonMemory(delay=60), tolerance=1e-8
    )
    assert sweep.objective == pytest.approx(exact.objective, abs=1e-8)
    assert sweep.times[0] == pytest.approx(exact.times[0], abs=1e-6)
    found = polish(problem, sweep.motion())
    assert found.motion.objective == pytest.approx(exact.objective, abs=1e-11)
    assert found.motion.times[0] == pytest.approx(exact.times[0], abs=1e-9)


def test_a_control_that_cannot_be_integrated_is_a_failure():
    grid = MovingGrid(discs("general"), nodes=4, steps=20)
    control = grid.initial(constant("general"))
    control[:, 2:] = np.nan
    with pytest.raises(SweepFailure):
        grid.sweep(control)


def test_a_control_is_a_function_of_time_and_back():
    grid = MovingGrid(discs("general"), nodes=4, steps=20)

    def guess(t):
        return np.array([0.1 - t**2, 3.0 + t**3])

    control = grid.initial(guess)
    function = grid.function(control)
    for t in (0.0, 0.2, 0.63, 0.99, 1.0):
        np.testing.assert_allclose(function(t), guess(t), atol=1e-13)
    assert control[:, 0].sum() == pytest.approx(1.0, abs=1e-14)
    assert control[:, 1].tolist() == [0.0, -1.0]


def test_bounds_hold_between_the_nodes_too():
    problem = pendulum()
    bounded = hybrid_problem(replace(problem.ocp, bounds=ns.Bounds(u=(-0.6, 0.6))), "test")
    grid = MovingGrid(bounded, nodes=6, steps=20)
    sweep = grid.sweep(grid.initial(lambda t: np.array([3.0 * np.sin(9.0 * t) - 0.5])))
    assert all(np.abs(phase.u).max() <= 0.6 + 1e-15 for phase in sweep.motion().phases)
    assert np.abs(sweep.target[:, 2:]).max() <= 0.6
