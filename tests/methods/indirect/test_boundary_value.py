"""The boundary-value polish against exact optima, an independent shooting method, and points that are no motions."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize, root

import nosnoc_py as ns
from models import two_discs_elastic
from nosnoc_py.methods.indirect import boundary_value
from nosnoc_py.methods.indirect.boundary_arcs import Arc, ArcSolution
from nosnoc_py.methods.indirect.boundary_functions import BoundaryFunctions
from nosnoc_py.methods.indirect.boundary_system import BoundarySystem
from nosnoc_py.methods.indirect.boundary_value import motion_of, newton, polish
from nosnoc_py.methods.indirect.motion import HybridMotion, MotionPhase, solution_of
from nosnoc_py.methods.indirect.problem import hybrid_problem
from nosnoc_py.methods.indirect.successive_approximation import UniformGrid
from nosnoc_py.methods.indirect.validity import not_minimal, penetrated, times_out_of_order, wrong_approach
from nosnoc_py.status import Status
from nosnoc_py.systems.hybrid import HybridSystem, StateJump
from nosnoc_py.tableaus import gauss_legendre
from problems import two_discs
from tests.pairwise import every_value
from tests.references.two_discs import optimum, stationary_points

DIFFERENT = ((1.0, 1.5), 0.7)  # masses, restitution


def approximation(problem, control, iterations=80, steps=60, relaxation=0.01):
    """What the relaxed method of successive approximations ends at."""
    grid = UniformGrid(problem, steps, 0.05)
    u = grid.initial(lambda t: np.array(control, dtype=float))
    for _ in range(iterations):
        sweep = grid.sweep(u)
        u = (1.0 - relaxation) * sweep.control + relaxation * sweep.target
    return grid.sweep(u).motion()


def discs(experiment, masses=(1.0, 1.0), restitution=1.0):
    return hybrid_problem(two_discs.build(experiment, masses, restitution), "test")


def motion_at(point, problem, nodes=60, objective=0.0):
    """The motion with costates of a stationary point of the reduced cost of two discs without a wall."""
    s, phases = point.times[0], []
    for start, end in ((0.0, s), (s, 1.0)):
        t = np.linspace(start, end, nodes)
        inner = np.clip(t, start + 1e-12, end - 1e-12)
        x = point.state(inner)
        pull = 2.0 * point.final_state[2:4]
        v_1 = point.multiplier(t) if end <= s else np.zeros((nodes, 2))
        q_1 = -np.gradient(v_1, t, axis=0)
        costate = np.hstack([q_1, np.tile(pull, (nodes, 1)), v_1, (1.0 - t)[:, None] * pull])
        phases.append(MotionPhase(t=t, x=x, u=point.control(inner)[:-1], costate=costate))
    return HybridMotion(phases=tuple(phases), jumps=(0,), objective=objective)


# Two discs: exact optima ---------------------------------------------------------------------------------------------


@every_value(experiment=two_discs.EXPERIMENTS, setting=[((1.0, 1.0), 1.0), DIFFERENT])
def test_polish_reaches_the_exact_optimum_in_a_few_steps(experiment, setting):
    problem, exact = discs(experiment, *setting), optimum(experiment, *setting)
    start = approximation(problem, two_discs.data(experiment).control)
    assert abs(start.objective - exact.objective) > 5e-3  # the start is far away

    found = polish(problem, start)

    assert found.reason == ""
    assert found.iterations <= 6
    assert found.residual < 1e-13
    assert found.motion.objective == pytest.approx(exact.objective, abs=1e-12)
    np.testing.assert_allclose(found.motion.times, exact.times, rtol=0.0, atol=1e-11)
    assert tuple(problem.names[jump] for jump in found.motion.jumps) == exact.contacts


@pytest.mark.parametrize("experiment", list(two_discs.EXPERIMENTS))
def test_states_controls_and_costates_are_exact_everywhere(experiment):
    problem, exact = discs(experiment), optimum(experiment)
    found = polish(problem, approximation(problem, two_discs.data(experiment).control)).motion
    solution = solution_of(problem, found, status=Status.SOLVED)
    t = np.linspace(0.0, 1.0, 333)

    np.testing.assert_allclose(solution(t), exact.state(t), rtol=0.0, atol=1e-11)
    first, later = found.phases[0], found.phases[1]
    np.testing.assert_allclose(first.costate[:, 4:6], exact.multiplier(first.t), rtol=0.0, atol=1e-11)
    for phase in found.phases[1:]:
        np.testing.assert_allclose(phase.costate[:, 4:6], 0.0, atol=1e-13)
        np.testing.assert_allclose(phase.u, 0.0, atol=1e-11)
    jump = np.linalg.norm(first.costate[-1, :2] - later.costate[0, :2])
    assert jump > 0.05  # the costates of the positions jump: Eq. 10 is at work
    middles = 0.5 * (first.t[1:] + first.t[:-1])
    spacing = np.diff(first.t).max()
    np.testing.assert_allclose(first.u, exact.control(middles), rtol=0.0, atol=100 * spacing**2)


def test_random_starts_lead_to_the_same_point():
    problem, exact = discs("general"), optimum("general")
    random = np.random.default_rng(3)
    for _ in range(6):
        start = approximation(problem, np.array([0.0, 3.0]) + random.normal(scale=0.4, size=2))
        found = polish(problem, start)
        assert found.iterations <= 7
        assert found.motion.objective == pytest.approx(exact.objective, abs=1e-13)


def test_arcs_follow_the_regimes_of_the_length():
    problem = discs("length")
    found = polish(problem, approximation(problem, (0.0, 3.0)))
    assert [(arc.phase, arc.regime) for arc in found.arcs] == [(0, (1,)), (1, (0,))]


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["general", "length"])
def test_means_of_the_control_are_of_second_order_and_its_dense_output_is_exact(experiment):
    problem = discs(experiment)
    start, errors, lengths = approximation(problem, (0.0, 3.0)), [], []
    for intervals in (40, 80, 160):
        solution = solution_of(problem, polish(problem, start, intervals=intervals).motion, status=Status.SOLVED)
        means = ns.PiecewiseConstant(solution.u_grid, solution.u)
        common = dict(x0=problem.x0, duration=1.0, method=ns.EventDriven())
        simulated, exact = (ns.simulate(problem.ocp.system, u=u, **common) for u in (means, solution))
        errors.append(np.abs(simulated.final_state - solution.final_state).max())
        np.testing.assert_allclose(exact.final_state, solution.final_state, atol=1e-9)
        lengths.append(np.diff(solution.u_grid)[solution.u_grid[1:] <= solution.events[0].time].max())
    orders = np.diff(np.log(errors)) / np.diff(np.log(lengths))
    assert errors[-1] < 5e-4
    assert (orders > 1.8).all()


# Points that are no motions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", ["concentric", "general"])
def test_a_collision_from_inside_is_rejected(experiment):
    problem = discs(experiment)
    point = min(stationary_points(experiment), key=lambda one: one.approach)
    assert point.approach < 0.0
    found = polish(problem, motion_at(point, problem))
    assert found.motion is None
    assert "not approached" in found.reason
    assert found.residual < 1e-10  # the equations hold: only the check can tell
    assert found.arcs[0].end == pytest.approx(point.times[0], abs=1e-9)


def test_a_valid_point_is_not_rejected_when_started_in_the_same_way():
    problem, exact = discs("general"), optimum("general")
    found = polish(problem, motion_at(exact, problem))
    assert found.motion.objective == pytest.approx(exact.objective, abs=1e-13)


def walled(height):
    """5.2 with a wall that the paper does not have."""
    data = two_discs.data("general")
    system = two_discs_elastic.build(wall=height)
    x0 = (*data.start, 0.0, 0.0, 0.0, 0.0)
    u = system.u
    return hybrid_problem(
        ns.OCP(system, horizon=1.0, x0=x0, stage_cost=0.01 * ca.sumsqr(u), terminal_cost=ca.sumsqr(system.q[2:])),
        "test",
    )


@pytest.mark.parametrize(("height", "rejected"), [(-0.5, True), (5.0, False)])
def test_penetration_is_rejected(height, rejected):
    """The optimum without the wall solves all equations, but disc 2 goes through the wall where it is in the way."""
    start = approximation(discs("general"), (0.0, 3.0))
    found = polish(walled(height), start)
    assert (found.motion is None) == rejected
    if rejected:
        assert "'wall_2' is below zero" in found.reason
    else:
        assert found.motion.objective == pytest.approx(optimum("general").objective, abs=1e-13)


@pytest.mark.parametrize(("control", "rejected"), [((0.0, 0.0), False), ((0.0, 3.0), True)])
def test_an_objective_above_that_of_the_start_is_rejected(control, rejected):
    """No control and no collision solve all equations, with J = |q_2(0)|^2 = 2: a stationary point, if a poor one."""
    problem = discs("general")
    t, x0 = np.linspace(0.0, 1.0, 31), problem.x0
    pull = 2.0 * x0[2:4]
    costate = np.hstack([np.zeros((31, 2)), np.tile(pull, (31, 1)), np.zeros((31, 2)), (1.0 - t)[:, None] * pull])
    phase = MotionPhase(t=t, x=np.tile(x0, (31, 1)), u=np.tile(control, (30, 1)), costate=costate)
    found = polish(problem, HybridMotion(phases=(phase,), jumps=(), objective=2.0))
    if rejected:
        assert found.motion is None
        # constant force: the discs meet after 0.6 m, and disc 2 goes on with the speed of disc 1
        meeting = np.sqrt(2.0 * 0.6 / 3.0)
        height = -1.0 + (1.0 - meeting) * 3.0 * meeting
        said, number = found.reason.rsplit(maxsplit=1)
        assert said.endswith("above that of the start's control,")
        assert float(number) == pytest.approx(1.0 + height**2 + 0.01 * 9.0, abs=1e-8)
    else:
        assert found.motion.objective == pytest.approx(2.0, abs=1e-14)


def test_collisions_in_the_wrong_order_are_rejected():
    problem = discs("wall")
    start = approximation(problem, two_discs.data("wall").control)
    swapped = replace(start, jumps=start.jumps[::-1])
    found = polish(problem, swapped)
    assert found.motion is None
    assert found.reason == "the equations are singular"
    assert found.status is Status.NO_DESCENT


def solved_arcs(problem, start):
    """Arcs of the optimum, before any check."""
    functions, found = BoundaryFunctions(problem), polish(problem, start)
    system = BoundarySystem(problem, found.arcs, start.jumps, 4, 8, functions)
    return functions, system.solutions(newton(system, system.guess(found.motion), 1e-12, 20).z)


def test_checks_see_wrong_times_and_wrong_controls():
    problem = discs("general")
    functions, arcs = solved_arcs(problem, approximation(problem, (0.0, 3.0)))
    assert times_out_of_order(problem, arcs) is None
    assert not_minimal(problem, arcs) is None

    backward = replace(arcs[1], arc=replace(arcs[1].arc, end=arcs[1].arc.start - 0.1))
    assert "out of order" in times_out_of_order(problem, [arcs[0], backward])
    other = replace(arcs[0], u=arcs[0].u + 1e-3)
    assert "does not minimise" in not_minimal(problem, [other, arcs[1]])
    assert motion_of(functions, arcs, (0,), 10).objective == pytest.approx(0.311416870358472, abs=1e-13)


def particle(x0=(1.0, -1.0)):
    """One that bounces on a floor, or further up if its energy says so."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    floor = StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], -0.5 * x[1]))
    system = HybridSystem(x=x, u=u, flow=ca.vertcat(x[1], u), jumps=[floor])
    ocp = ns.OCP(system, horizon=2.0, x0=x0, stage_cost=u**2, terminal_cost=(x[0] - 1.0) ** 2)
    return hybrid_problem(ocp, "test")


def arc_along(state, start, end, phase=0, control=0.0, elements=2):
    """An arc with the states state(t) (n, 2), polynomials of degree 3 at most, without costates."""
    tableau = gauss_legendre(3)
    h = (end - start) / elements
    starts = start + h * np.arange(elements)
    nodes = state(np.append(starts, end))
    stages = state((starts[:, None] + h * tableau.c).ravel())
    return ArcSolution(
        arc=Arc(phase=phase, regime=(0,), start=start, end=end),
        tableau=tableau,
        nodes=np.hstack([nodes, np.zeros_like(nodes)]),
        stages=np.hstack([stages, np.zeros_like(stages)]).reshape(elements, 3, 4),
        u=np.full((elements, 3, 1), control),
        ends=np.full((2, 1), control),
    )


@pytest.mark.parametrize(("depth", "seen"), [(1e-6, True), (-1e-6, False)])
def test_a_shallow_dip_between_two_samples_is_seen(depth, seen):
    """(t - s)^2 - depth, lowest in the middle of two of the 24 samples of the first element."""
    s = 10.5 / 24.0
    dip = arc_along(lambda t: np.column_stack([(t - s) ** 2 - depth, 2.0 * (t - s)]), 0.0, 2.0)
    samples = dip.at(np.linspace(0.0, 1.0, 25))[0, :, 0]
    assert samples.min() > 1e-4
    assert (penetrated(particle(), [dip]) is not None) == seen


def test_the_infeasibility_of_a_solution_is_that_between_its_nodes_too():
    """Three nodes above the floor, and a parabola that dips 0.01 below in between."""
    nodes = np.array([0.0, 1.0, 2.0])
    state = lambda t: np.stack([(t - 0.4) ** 2 - 0.01, 2.0 * (t - 0.4)], axis=-1)  # noqa: E731
    c = np.array([0.5, 1.0])
    stages = state(nodes[:-1, None] + c)
    phase = MotionPhase(t=nodes, x=state(nodes), u=np.zeros((2, 1)), c=c, x_stages=stages)
    motion = HybridMotion(phases=(phase,), jumps=(), objective=0.0)
    assert state(nodes)[:, 0].min() > 0.1
    assert solution_of(particle(), motion, status=Status.SOLVED).infeasibility == pytest.approx(0.01, abs=1e-14)
    lines = replace(motion, phases=(replace(phase, c=None, x_stages=None),))
    assert solution_of(particle(), lines, status=Status.SOLVED).infeasibility == 0.0


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [(-1.0, 0.5, None), (-1.0, 0.0, "is not left"), (-1.0, -0.5, "is not left"), (1.0, 0.5, "is not approached")],
)
def test_a_collision_is_approached_and_left(before, after, said):
    first = arc_along(lambda t: np.column_stack([before * (t - 1.0), np.full_like(t, before)]), 0.0, 1.0)
    later = arc_along(lambda t: np.column_stack([after * (t - 1.0), np.full_like(t, after)]), 1.0, 2.0, phase=1)
    found = wrong_approach(particle(), [first, later], (0,))
    assert (found is None) if said is None else (said in found)


def test_a_guard_that_is_not_zero_after_the_reset_need_not_be_left():
    first = arc_along(lambda t: np.column_stack([1.0 - t, np.full_like(t, -1.0)]), 0.0, 1.0)
    later = arc_along(lambda t: np.column_stack([0.5 - 0.4 * (t - 1.0), np.full_like(t, -0.4)]), 1.0, 2.0, phase=1)
    assert wrong_approach(particle(), [first, later], (0,)) is None


def test_a_negative_phase_is_rejected(monkeypatch):
    """Newton's method may end at lengths that sum up to the horizon, one of them negative."""
    problem = discs("general")

    def backward(system, z, tolerance, steps):
        z = z.copy()
        z[system.lengths] = [1.1, -0.1]
        return boundary_value._NewtonEnd(z=z, residual=0.0, iterations=1)

    start = approximation(problem, (0.0, 3.0))
    monkeypatch.setattr(boundary_value, "newton", backward)
    found = polish(problem, start)
    assert "out of order" in found.reason
    assert found.status is Status.NOT_AN_OPTIMUM


@pytest.mark.parametrize(("steps", "status"), [(1, Status.ITERATION_LIMIT), (30, Status.SOLVED)])
def test_newton_that_runs_out_of_steps_says_so(steps, status):
    problem = discs("general")
    found = polish(problem, approximation(problem, (0.0, 3.0)), steps=steps)
    assert found.status is status
    assert found.reason == ("no convergence in 1 steps" if steps == 1 else "")


def test_rejected_points_are_no_optima():
    point = min(stationary_points("general"), key=lambda one: one.approach)
    problem = discs("general")
    assert polish(problem, motion_at(point, problem)).status is Status.NOT_AN_OPTIMUM
    empty = MotionPhase(t=np.zeros(1), x=problem.x0[None], u=np.empty((0, 2)), costate=np.zeros((1, 8)))
    found = polish(problem, HybridMotion(phases=(empty,), jumps=(), objective=0.0))
    assert (found.motion, found.status) == (None, Status.NOT_AN_OPTIMUM)


# A Hamiltonian with several minima -----------------------------------------------------------------------------------


def push():
    """A cart is to push another one 2 m far; H(u) = lambda u + 0.05 (u^2 / 4 + 1 - cos 4 u) has several minima."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    touch = ns.Contact("touch", gap=q[1] - q[0], restitution=0.8)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, 0), contacts=[touch])
    return ns.OCP(
        system,
        horizon=1.0,
        x0=[0.0, 0.3, 0.0, 0.0],
        stage_cost=0.05 * (u**2 / 4 + 1 - ca.cos(4 * u)),
        terminal_cost=(q[1] - 2.0) ** 2,
        bounds=ns.Bounds(u=(-5.0, 5.0)),
    )


def excess_of_the_hamiltonian(problem, motion):
    """How far H(u) is above its minimum over a fine grid of controls, at most along a motion."""
    function = ca.Function("H", [problem.x, problem.costate, problem.u], [problem.hamiltonian])
    worst = 0.0
    for phase in motion.phases:
        for k in range(len(phase.u_left)):
            values = np.array(function(phase.x[k], phase.costate[k], np.linspace(-5.0, 5.0, 4001)[None])).ravel()
            worst = max(worst, float(function(phase.x[k], phase.costate[k], phase.u_left[k])) - values.min())
    return worst


@every_value(grid=["moving", "uniform"], guess=[3.0, 4.6, 1.6])
def test_a_local_minimum_of_the_hamiltonian_is_no_optimum(guess, grid):
    problem = hybrid_problem(push(), "test")
    assert problem.minimiser.kind == "numeric"
    method = ns.MinimumPrinciple(steps=60, grid=grid, acceleration=5 if grid == "moving" else 0, relaxation=0.03)
    state = method.run(problem, guess=[guess])
    assert state.sweep.slope < method.tolerance
    assert "local minimiser" in state.message
    assert state.status is not Status.SOLVED
    found = polish(problem, state.sweep.motion())
    assert found.motion is None or excess_of_the_hamiltonian(problem, found.motion) < 1e-6


def test_other_controls_are_asked_that_the_minimiser_does_not_see(monkeypatch):
    """A minimiser that returns what it is given agrees with every stationary control."""
    problem = hybrid_problem(push(), "test")

    def arcs(u):
        """With the costate that makes H_u = 0; the curvature is positive near multiples of pi / 2."""
        value = -0.05 * (u / 2.0 + 4.0 * np.sin(4.0 * u))
        arc = arc_along(lambda t: np.column_stack([0.0 * t, 0.0 * t + 0.3]), 0.0, 1.0, control=u)
        stages = np.concatenate([np.zeros((2, 3, 4)), np.broadcast_to([0.0, 0.0, value, 0.0], (2, 3, 4))], axis=2)
        return [replace(arc, stages=stages, nodes=np.zeros((3, 8)))]

    same = lambda count: lambda x, costate, u: u  # noqa: E731
    monkeypatch.setattr(type(problem.minimiser), "mapped", lambda self, count: same(count))
    assert not_minimal(problem, arcs(0.0)) is None
    assert "does not minimise" in not_minimal(problem, arcs(np.pi - 0.05))


# A nonlinear system with bounds --------------------------------------------------------------------------------------

HORIZON, RESTITUTION, START = 1.5, 0.8, (0.8, 0.0)


def pendulum(bound, weight):
    """A pendulum with cubic drag and a torque that swings against a wall and is to come to rest at 0.6 rad."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=1,
        force=-9.81 * ca.sin(q) - 0.2 * v**3 + u,
        contacts=[ns.Contact("wall", gap=ca.sin(q) + 0.4, restitution=RESTITUTION)],
    )
    ocp = ns.OCP(
        system,
        horizon=HORIZON,
        x0=START,
        stage_cost=weight * u**2,
        terminal_cost=5.0 * ((q - 0.6) ** 2 + 0.1 * v**2),
        bounds=ns.Bounds(u=(-bound, bound)),
    )
    return hybrid_problem(ocp, "test")


def shooting(bound, weight, guess):
    """lambda(0), s, eta by single shooting with an adaptive integrator and the clipped control: objective, s."""

    def rate(t, y):
        q, v, l_q, l_v, _ = y
        u = np.clip(-l_v / (2.0 * weight), -bound, bound)
        return [v, -9.81 * np.sin(q) - 0.2 * v**3 + u, l_v * 9.81 * np.cos(q), -l_q + 0.6 * v**2 * l_v, weight * u**2]

    def hamiltonian(y):
        dq, dv, _, _, cost = rate(0.0, y)
        return y[2] * dq + y[3] * dv + cost

    def fly(y, duration):
        return solve_ivp(rate, (0.0, duration), y, method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]

    def shoot(z):
        before = fly([*START, z[0], z[1], 0.0], z[2])
        q, v, l_q, l_v, cost = before
        after = np.array([q, -RESTITUTION * v, l_q - z[3] * np.cos(q), -l_v / RESTITUTION, cost])
        end = fly(after, HORIZON - z[2])
        equations = [np.sin(q) + 0.4, hamiltonian(before) - hamiltonian(after)]
        return [*equations, end[2] - 10.0 * (end[0] - 0.6), end[3] - end[1]], end

    found = root(lambda z: shoot(z)[0], guess, tol=1e-12)
    equations, end = shoot(found.x)
    assert np.abs(equations).max() < 1e-11
    return end[4] + 5.0 * ((end[0] - 0.6) ** 2 + 0.1 * end[1] ** 2), found.x


@pytest.mark.parametrize(
    ("bound", "weight", "regimes"),
    [
        (2.0, 0.05, [(0, 1), (1, 1)]),
        (1.0, 0.005, [(0, 1), (1, 1), (1, 2), (1, 1)]),
        (0.6, 0.003, [(0, 0), (1, 2), (1, 1), (1, 0)]),
    ],
)
def test_a_nonlinear_system_with_active_bounds_agrees_with_shooting(bound, weight, regimes):
    problem = pendulum(bound, weight)
    found = polish(problem, approximation(problem, [-0.5], iterations=150))
    assert [(arc.phase, *arc.regime) for arc in found.arcs] == regimes
    assert found.iterations <= 12
    before, after = found.motion.phases
    jump = before.costate[-1, 0] - after.costate[0, 0]
    eta = jump / np.cos(before.x[-1, 0])
    guess = np.array([*before.costate[0], found.motion.times[0], eta]) * 1.003
    objective, z = shooting(bound, weight, guess)
    assert found.motion.objective == pytest.approx(objective, abs=1e-12)
    assert found.motion.times[0] == pytest.approx(z[2], abs=1e-10)
    np.testing.assert_allclose(before.costate[0], z[:2], rtol=0.0, atol=1e-9)


def test_elements_are_halved_until_the_motion_is_accurate_everywhere():
    """The control of the length turns on a circle: one element of 8 stages is wrong by 1e-4."""
    problem, exact, t = discs("length"), optimum("length"), np.linspace(0.0, 1.0, 777)
    start, errors = approximation(problem, (0.0, 3.0)), []
    for accuracy in (1.0, 1e-6, 1e-11):
        found = polish(problem, start, elements=1, accuracy=accuracy)
        solution = solution_of(problem, found.motion, status=Status.SOLVED)
        errors.append(np.abs(solution(t) - exact.state(t)).max())
    assert errors[0] > 1e-5
    assert errors[1] < 1e-6
    assert errors[2] < 1e-11


def test_collocation_converges_with_its_order():
    """Four Gauss stages have order 8: the error falls by 2^8 and more per halving, before it reaches rounding."""
    problem = pendulum(2.0, 0.05)
    start = approximation(problem, [-0.5], iterations=150)
    exact, errors = polish(problem, start).motion.times, []
    for elements in (2, 4, 8):
        found = polish(problem, start, elements=elements, stages=4, accuracy=1.0)
        errors.append(abs(found.motion.times - exact)[0])
    assert errors[0] > 1e-7
    assert np.log2(errors[0] / errors[2]) > 14.0


def test_a_control_that_is_known_implicitly_gives_the_same_optimum():
    """5.2 with the force 2 sinh(u / 2): another control, the same motion; the law of u has no closed form."""
    data, exact = two_discs.data("general"), optimum("general")
    q, v, u = ca.SX.sym("q", 4), ca.SX.sym("v", 4), ca.SX.sym("u", 2)
    force = 2.0 * ca.sinh(u / 2.0)
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.DM.eye(4),
        force=ca.vertcat(force, 0, 0),
        contacts=[ns.Contact("discs", gap=ca.norm_2(q[:2] - q[2:]) - 0.4, restitution=1.0)],
    )
    x0 = (*data.start, 0.0, 0.0, 0.0, 0.0)
    cost = 0.01 * ca.sumsqr(force)
    problem = hybrid_problem(
        ns.OCP(system, horizon=1.0, x0=x0, stage_cost=cost, terminal_cost=ca.sumsqr(q[2:])), "test"
    )
    assert problem.minimiser.kind == "numeric"
    known = approximation(discs("general"), (0.0, 3.0))
    phases = [replace(phase, u=2.0 * np.arcsinh(phase.u / 2.0)) for phase in known.phases]
    found = polish(problem, replace(known, phases=tuple(phases)))
    assert found.motion.objective == pytest.approx(exact.objective, abs=1e-11)
    assert found.motion.times[0] == pytest.approx(exact.times[0], abs=1e-11)


def test_bounds_of_a_control_that_is_known_implicitly():
    """A torque 2 sinh(u / 2) within bounds gives the motion of a torque within their images."""
    known, bound = pendulum(1.0, 0.005), 2.0 * np.arcsinh(0.5)
    start = approximation(known, [-0.5], iterations=150)
    expected = polish(known, start)
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    torque = 2.0 * ca.sinh(u / 2.0)
    wall = ns.Contact("wall", gap=ca.sin(q) + 0.4, restitution=RESTITUTION)
    force = -9.81 * ca.sin(q) - 0.2 * v**3 + torque
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=force, contacts=[wall])
    end = 5.0 * ((q - 0.6) ** 2 + 0.1 * v**2)
    bounds = ns.Bounds(u=(-bound, bound))
    ocp = ns.OCP(system, horizon=HORIZON, x0=START, stage_cost=0.005 * torque**2, terminal_cost=end, bounds=bounds)
    problem = hybrid_problem(ocp, "test")
    assert problem.minimiser.kind == "numeric"
    phases = [replace(phase, u=2.0 * np.arcsinh(phase.u / 2.0)) for phase in start.phases]
    found = polish(problem, replace(start, phases=tuple(phases)))
    assert [(arc.phase, *arc.regime) for arc in found.arcs] == [(0, 1), (1, 1), (1, 2), (1, 1)]
    assert found.motion.objective == pytest.approx(expected.motion.objective, abs=1e-12)
    np.testing.assert_allclose([arc.end for arc in found.arcs], [arc.end for arc in expected.arcs], rtol=0.0, atol=1e-8)


# All or nothing -------------------------------------------------------------------------------------------------------


def ball(weight, horizon):
    """A ball that bounces, pushed up or down at a cost of weight |u|, and is to be at rest at 1 m."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    floor = ns.Contact("floor", gap=q, restitution=RESTITUTION)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 1.0, contacts=[floor])
    end = 5.0 * ((q - 1.0) ** 2 + 0.5 * v**2)
    bounds = ns.Bounds(u=(-0.5, 0.5))
    return hybrid_problem(
        ns.OCP(
            system, horizon=horizon, x0=(1.0, 0.0), stage_cost=weight * ca.fabs(u), terminal_cost=end, bounds=bounds
        ),
        "test",
    )


def cost_of_switching(switches, regimes, weight, horizon):
    """The objective of levels (phase, digit) that follow each other at the impact and at switches: parabolas."""
    q, v, t, cost = 1.0, 0.0, 0.0, 0.0
    times = iter([*switches, horizon])
    for k, (phase, digit) in enumerate(regimes):
        level = 0.25 * (digit - 2)
        impact = phase == 0 and regimes[k + 1][0] == 1
        step = (v + np.sqrt(v**2 + 2.0 * (1.0 - level) * q)) / (1.0 - level) if impact else next(times) - t
        q, v = q + v * step + 0.5 * (level - 1.0) * step**2, v + (level - 1.0) * step
        t, cost = t + step, cost + weight * abs(level) * step
        v = -RESTITUTION * v if impact else v
    return cost + 5.0 * ((q - 1.0) ** 2 + 0.5 * v**2)


@pytest.mark.parametrize(
    ("weight", "horizon", "regimes"),
    [
        (0.2, 2.5, [(0, 0), (0, 2), (1, 4), (1, 2), (1, 0)]),
        (0.1, 3.5, [(0, 4), (0, 2), (1, 2), (1, 4)]),
    ],
)
def test_switching_times_are_those_of_a_search(weight, horizon, regimes):
    problem = ball(weight, horizon)
    found = polish(problem, approximation(problem, [0.1], iterations=300))
    assert [(arc.phase, *arc.regime) for arc in found.arcs] == regimes
    impact = found.motion.times[0]
    switches = np.array([arc.end for arc in found.arcs if arc.end not in (impact, horizon)])
    assert len(switches) == len(regimes) - 2
    search = {"xatol": 1e-9, "fatol": 1e-15, "maxiter": 4000, "maxfev": 8000}
    best = minimize(
        cost_of_switching, switches + 0.01, (regimes, weight, horizon), method="Nelder-Mead", options=search
    )
    assert cost_of_switching(switches + 0.01, regimes, weight, horizon) > best.fun + 1e-5
    assert found.motion.objective == pytest.approx(best.fun, abs=1e-12)
    np.testing.assert_allclose(switches, best.x, rtol=0.0, atol=1e-5)
