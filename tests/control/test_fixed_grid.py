"""OCPs on a fixed grid as QPCCs: contacts, friction, relays and projections obey their laws; costs have their order."""

from __future__ import annotations

from itertools import pairwise

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.control.grid_plan import GridPlanner
from nosnoc_py.errors import OptionError
from nosnoc_py.mpcc.qpcc import QPCCOutcome
from nosnoc_py.transcription.fixed_grid import PAIRS, FixedGrid, _clipped, _lengths
from problems import paddle_loop
from problems.loops import LOOPS

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("compiled_search")]

NONE = np.zeros(0)


def planned(ocp: ns.OCP, period: float, stages: int):
    """The first plan of a problem: expanded again until it stays."""
    answer = GridPlanner(ocp, period, stages).answer(np.asarray(ocp.x0, float), 0.0, ocp.system.parameters())
    assert answer is not None
    return answer


def driven(system, u, x0, horizon, period, **more):
    """The motion of the grid under given controls (moves, n_u): the only unknowns are forces."""
    ocp = ns.OCP(system, horizon=horizon, x0=x0, stage_cost=ca.sumsqr(system.x), **more)
    grid = FixedGrid.of(ocp, period)
    motion = grid.at_rest(np.asarray(x0, float))
    for _ in range(4):
        condensed = grid.linearised(motion, NONE)
        answer = condensed.solve(motion.x[0], moves=np.asarray(u, float))
        assert answer.found
        motion = condensed.motion_of(answer, motion.x[0])
    return grid, motion


def ball(restitution=0.0, **more) -> ns.CLS:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    floor = ns.Contact("floor", gap=q, restitution=restitution)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 10.0, contacts=[floor], **more)


def test_smooth_problems_have_errors_of_second_order():
    # From rest at 0 to rest at 1 in 1 s with the least integral of u^2: 12, u(0) = 6.
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=5.0 - q)])
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=[q == 1, v == 0])
    grids = [FixedGrid.of(ocp, 1.0 / n, steps=n) for n in (10, 20, 40)]
    answers = [grid.linearised(grid.at_rest(np.zeros(2)), NONE).solve(np.zeros(2)) for grid in grids]
    errors = [answer.objective - 12.0 for answer in answers]
    assert 0.0 < errors[2] < 0.06
    assert all(3.7 < before / after < 4.3 for before, after in pairwise(errors))


def test_a_ball_lands_and_stays_with_its_weight():
    grid, motion = driven(ball(), np.zeros((20, 1)), [0.4, 0.0], 1.0, 0.05)
    landed = grid.times > np.sqrt(0.08) + 0.05
    assert np.abs(motion.x[landed, 0]).max() < 1e-6
    assert np.abs(motion.x[landed, 1]).max() < 1e-5
    # The last step has one and a half of the impulse of the others; forces are divided by its length.
    assert motion.z[landed[1:], 0][2:] == pytest.approx(10.0, abs=1e-3)
    # Free fall is exact at the ends of the steps.
    assert motion.x[4, 0] == pytest.approx(0.4 - 0.5 * 10.0 * 0.2**2, abs=1e-9)


@pytest.mark.parametrize("restitution", [0.5, 0.8])
def test_a_ball_bounces_with_its_restitution(restitution):
    _, motion = driven(ball(restitution), np.zeros((20, 1)), [0.2, 0.0], 0.5, 0.025)
    speed = np.sqrt(2 * 10.0 * 0.2)
    first_up = motion.x[1:][motion.x[1:, 1] > 0.0][0, 1]
    # Within the change of the velocity in one step.
    assert abs(first_up - restitution * speed) < 10.0 * 0.025 * (1 + restitution)


def test_a_block_slides_as_far_as_friction_lets_it_and_sticks():
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    floor = ns.Contact("floor", gap=q[1], tangent=[1, 0], friction=0.5)
    block = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -10.0), contacts=[floor])
    _, motion = driven(block, np.zeros((8, 1)), [0, 0, 1.0, 0], 0.4, 0.05)
    # v^2 / (2 mu g) = 0.1, within the way of half a step at the speed of the last one.
    assert motion.x[-1, 0] == pytest.approx(0.1, abs=0.01)
    assert abs(motion.x[-1, 2]) < 1e-6
    _, held = driven(block, np.full((8, 1), 4.9), [0, 0, 0, 0], 0.4, 0.05)
    assert np.abs(held.x[-1, [0, 2]]).max() < 1e-6
    _, slips = driven(block, np.full((8, 1), 6.0), [0, 0, 0, 0], 0.4, 0.05)
    assert slips.x[-1, 2] == pytest.approx(0.4, abs=0.01)


def test_friction_in_space_opposes_the_slip():
    q, v, u = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("u")
    floor = ns.Contact("floor", gap=q[2], tangent=ca.DM([[1, 0], [0, 1], [0, 0]]), friction=0.5)
    block = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(3), force=ca.vertcat(u, 0, -10), contacts=[floor])
    _, motion = driven(block, np.zeros((5, 1)), [0, 0, 0, 0.0, 1.0, 0], 0.5, 0.1)
    assert abs(motion.x[-1, 4]) < 1e-6
    assert motion.x[-1, 1] == pytest.approx(0.1, abs=0.03)
    assert np.abs(motion.x[:, 0]).max() < 1e-6


def test_a_relay_slides_and_leaves():
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    relay = ns.PSS(x=x, u=u, flow=u, modes=[ns.Modes("side", flows=[-1, 1], functions=x, signs=[[1], [-1]])])
    _, motion = driven(relay, np.full((10, 1), 0.4), [0.3], 1.0, 0.1)
    # x' = -0.6 until 0, and 0 from there on.
    assert motion.x[3, 0] == pytest.approx(0.12, abs=1e-9)
    assert np.abs(motion.x[6:, 0]).max() < 1e-7
    _, away = driven(relay, np.full((10, 1), 1.5), [0.0], 1.0, 0.1)
    assert away.x[-1, 0] == pytest.approx(0.5, abs=1e-9)


def test_a_projected_motion_stays_in_its_set():
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    disc = ns.PDS(x=x, u=u, flow=ca.vertcat(1.0 + u, 0.5), constraints=[1.0 - x[0]])
    _, motion = driven(disc, np.zeros((10, 1)), [0.5, 0.0], 1.0, 0.1)
    assert motion.x[:, 0].max() < 1.0 + 1e-9
    assert motion.x[-1] == pytest.approx([1.0, 0.5], abs=1e-9)


def test_bounds_of_states_hold_where_they_can():
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=5.0 - q)])
    bounds = {"v_0": (-0.5, 0.5), "u_0": (-4, 4)}
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=(q - 1) ** 2, bounds=bounds)
    motion = planned(ocp, 0.1, 10).motion
    assert motion.x[:, 1].max() == pytest.approx(0.5, abs=2e-4)
    outside = GridPlanner(ocp, 0.1, 10).answer(np.array([0.0, 1.0]), 0.0, NONE)
    assert outside is not None  # beyond a bound there is an answer, too: it goes back
    assert outside.motion.x[-1, 1] < 0.51


def test_controls_that_are_given_have_no_lower_objective_than_the_best():
    answer = planned(_held_ball(), 0.05, 12)
    assert answer.objective_of(answer.u) == pytest.approx(answer.objective, rel=1e-6)
    assert answer.objective_of(answer.u + 1.0) > answer.objective


def _held_ball() -> ns.OCP:
    system = ball()
    cost = (system.q[0] - 0.2) ** 2 + 1e-3 * system.u[0] ** 2
    return ns.OCP(system, horizon=0.6, x0=[0.1, 0], stage_cost=cost, bounds=ns.Bounds(u=(-5, 15)))


def test_a_shift_by_a_period_keeps_the_motion():
    answer = planned(_held_ball(), 0.05, 12)
    grid, motion = answer.condensed.grid, answer.motion
    later = grid.shifted(motion, 0.05, motion.x[grid.times.searchsorted(0.05 - 1e-9)], NONE)
    at = grid.times[:-1] + 0.05 < grid.times[-1] - 1e-9
    inside = np.flatnonzero(at)
    step = round(0.05 / grid.lengths[0])
    assert np.abs(later.x[inside] - motion.x[inside + step]).max() < 1e-9
    assert (later.u[inside] == motion.u[inside + step]).all()


def test_means_of_controls_keep_their_integral():
    grid = FixedGrid.of(_held_ball(), 0.05, steps=7)
    u, ends = np.arange(12.0)[:, None], 0.05 * np.arange(1, 13)
    moves = grid.moves_of(u, ends)
    assert moves.shape == (7, 1)
    assert float(moves[:, 0] @ grid.lengths) == pytest.approx(0.05 * u.sum(), rel=1e-12)


def test_steps_grow_where_pairs_are_many():
    lengths, moves = _lengths(2.0, 0.05, 4, None)
    assert lengths.size * 4 <= PAIRS
    assert lengths[0] == pytest.approx(0.05)
    assert lengths.sum() == pytest.approx(2.0, rel=1e-12)
    assert (np.diff(lengths) > 0.0).all()
    fine, of = _lengths(0.5, 0.05, 1, None)
    assert fine.size == 20
    assert moves.tolist() == list(range(lengths.size))
    assert of.tolist() == [k // 2 for k in range(20)]


def test_negative_curvature_is_left_out():
    rng, symbol = np.random.default_rng(0), ca.SX.sym("m", 4, 4)
    clip = ca.Function("clip", [symbol], [_clipped(symbol)])
    for _ in range(20):
        matrix = rng.standard_normal((4, 4))
        matrix = matrix + matrix.T
        values, vectors = np.linalg.eigh(matrix)
        expected = (vectors * np.maximum(values, 0.0)) @ vectors.T
        assert np.abs(np.array(clip(matrix)) - expected).max() < 1e-8
    assert np.array(clip(np.diag([1.0, -2.0, 0.0, 3.0]))) == pytest.approx(np.diag([1.0, 0.0, 0.0, 3.0]), abs=1e-12)


def test_what_has_no_place_on_the_grid_is_refused():
    system = ball()
    with pytest.raises(OptionError, match="free horizon"):
        FixedGrid.of(ns.OCP(system, horizon=ns.FreeTime(0.5, 2.0), x0=[1, 0], stage_cost=system.u**2), 0.1)
    point = ns.PointCost([0.5], system.q, [0.4])
    ocp = ns.OCP(system, horizon=1.0, x0=[1, 0], point_costs=[point])
    with pytest.raises(OptionError, match="chosen times"):
        FixedGrid.of(ocp, 0.1)
    planner, reason = GridPlanner.of(ocp, 0.1, 10)
    assert planner is None
    assert "fixed grid" in reason


def test_a_search_proves_the_best_order_where_going_down_alone_takes_ten_thousand_nodes():
    # A paddle that has hit its ball upwards: all orders of the second bounce begin with the same relaxed objective.
    ocp, x = paddle_loop.build(), np.array([0.181, 0.319, 3.187, 2.024])
    grid = FixedGrid.of(ocp, 0.08)
    p, motion = ocp.system.parameters(), grid.at_rest(x)
    for _ in range(2):
        condensed = grid.linearised(motion, p)
        answer = condensed.solve(x, nodes=1000)
        motion = condensed.motion_of(answer, x)
    assert answer.outcome is QPCCOutcome.SOLVED
    assert answer.bound == pytest.approx(answer.objective, rel=1e-3)


def test_orders_have_the_same_objective_when_they_are_given():
    # Bounds of states are expensive to violate: what rounding leaves of a row would be worth more than the objective.
    loop = LOOPS["cart_pole"]()
    planner, p = GridPlanner(loop.ocp, loop.period, 10), loop.ocp.system.parameters()
    for x in ([0.0, 0.0, 0.0, 0.0], [0.5, 1.0, -1.0, 3.0], [-1.0, 2.0, 2.0, -4.0]):
        grid = planner.grid
        condensed = grid.linearised(grid.at_rest(np.array(x)), p)
        free = condensed.solve(x)
        again = condensed.solve(x, order=free.sides, nodes=1)
        assert again.kept == pytest.approx(free.objective, rel=1e-7)
        rows = condensed.qpcc.A @ free.z - (condensed.lower - condensed.lower_x @ (x - condensed.motion.x[0]))
        assert rows.min() > -1e-10


@pytest.mark.parametrize(
    ("cost", "objective", "end"),
    [
        # From 1 to .5 at full speed (30 downwards, then upwards), then rest.
        (lambda q, v, u: 1e3 * ca.fabs(q - 0.5) + 0.1 * v**2 + 0.001 * u**2, (40.0, 60.0), 0.5),
        # Up with the largest force, 20 m/s^2 net: the integral of -(1 + 10 t^2) is -13 / 3, the end 11.
        (lambda q, v, u: -q, (-4.34, -4.25), 11.0),
        # Least fuel without a goal: nothing; the ball falls, hits with .4 and bounces.
        (lambda q, v, u: u, (-1e-6, 1e-6), None),
    ],
)
def test_costs_without_curvature(cost, objective, end):
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    floor = ns.Contact("floor", gap=q, restitution=0.4)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 10.0, contacts=[floor])
    bounds = {"u_0": (0 if end is None else -30, 30)}
    answer = planned(ns.OCP(system, horizon=1.0, x0=[1, 0], stage_cost=cost(q, v, u), bounds=bounds), 0.05, 20)
    assert objective[0] <= answer.objective <= objective[1]
    # A step in which a bounce falls ends below the floor by up to e times its way.
    assert answer.motion.x[:, 0].min() > (-1e-6 if end is not None else -0.1)
    if end is not None:
        assert answer.motion.x[-1, 0] == pytest.approx(end, abs=0.15)


@pytest.mark.parametrize("weight", [1e2, 1e3, 1e5])
def test_soft_constraints_of_the_user_hold_and_their_slacks_are_no_controls(weight):
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=3 - q)])
    slow = ns.Constraint(v, upper=0.5, soft="l1", weight=weight, name="slow")
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=10 * (q - 1) ** 2 + 0.01 * u**2, path_constraints=[slow])
    answer = planned(ocp, 0.05, 20)
    assert answer.motion.x[:, 1].max() < 0.501
    # Its own controls, with slacks that say nothing, cost the same: slacks are found again.
    u = answer.u.copy()
    u[:, cart.n_u :] = 0.0
    assert answer.objective_of(u) == pytest.approx(answer.objective, rel=1e-3)


def test_the_end_follows_the_measured_start():
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=9 - q)])
    step = ns.Constraint(q - cart.x_initial[0], 1.0, 1.0, name="step")
    grid = FixedGrid.of(ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=[step]), 0.1)
    condensed, measured = grid.linearised(grid.at_rest(np.zeros(2)), NONE), np.array([0.4, 0.0])
    assert condensed.motion_of(condensed.solve(measured), measured).x[-1, 0] == pytest.approx(1.4, abs=1e-6)
