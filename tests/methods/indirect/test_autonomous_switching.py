"""HMP-MAS: gradients by switchings, the optimum with the right sequence, and what a wrong one ends at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from nosnoc_py.methods.indirect.autonomous_switching import AutonomousSwitching, SwitchingState
from nosnoc_py.methods.indirect.motion import HybridMotion, MotionPhase, solution_of
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.methods.indirect.switching_phases import NoArcError, OptimalArc, SwitchedPhases
from nosnoc_py.methods.indirect.switching_start import roll_out_sequence
from nosnoc_py.methods.indirect.validity import invalidity
from nosnoc_py.methods.shooting.phases import PhaseShooting
from nosnoc_py.status import Status, Stop, Verdict
from nosnoc_py.systems.hybrid import HybridSystem, StateJump
from problems.two_discs import build, data
from tests.pairwise import slow_row
from tests.references.two_discs import Optimum, optimum, stationary_points

UNEQUAL: dict[str, Any] = {"masses": (1.0, 1.5), "restitution": 0.7}
STEPS = 30


def swings(limit: float = np.inf) -> ns.OCP:
    """Two pendulums, one behind the other; the first is driven and hits the second, which is to stop at 0.8."""
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u")
    q, v = x[:2], x[2:]
    flow = ca.vertcat(v, u - 0.8 * ca.sin(q[0]) - 0.1 * v[0] ** 3, -0.8 * ca.sin(q[1]) - 0.1 * v[1] ** 3)
    impulse = 1.8 * (v[0] - v[1]) / 2
    reset = ca.vertcat(q, v[0] - impulse, v[1] + impulse)
    system = HybridSystem(x=x, u=u, flow=flow, jumps=[StateJump("hit", guard=q[1] - q[0] - 0.2, reset=reset)])
    cost = 10 * (q[1] - 0.8) ** 2 + (q[0] - 0.1) ** 2
    bounds = ns.Bounds(u=(-limit, limit))
    return ns.OCP(
        system, horizon=1.5, x0=[-1.0, 0.1, 0.2, -0.1], stage_cost=0.1 * u**2, terminal_cost=cost, bounds=bounds
    )


def constant(*values: float) -> Callable[[float], np.ndarray]:
    """A control as a function of time."""
    return lambda t: np.array(values)


def switched(problem: HybridProblem, jumps: Any, times: Any, law: Any) -> tuple[SwitchedPhases, np.ndarray]:
    """The cost as a function of switchings, and the switchings of a control."""
    ends, bases = roll_out_sequence(problem, jumps, np.array(times), law, STEPS)
    at = np.concatenate([times, *[b.T @ x for b, x in zip(bases, ends, strict=True)]])
    return SwitchedPhases(problem, jumps, STEPS, bases), at


def switched_discs(experiment: str, found: Optimum) -> tuple[SwitchedPhases, np.ndarray]:
    """At a stationary point of the reduced cost."""
    problem = hybrid_problem(build(experiment), "test")
    ends = np.array([_before(found, time) for time in found.times])
    jumps = [problem.names.index(name) for name in found.contacts]
    _, bases = roll_out_sequence(problem, jumps, np.array(found.times), lambda t: found.control(t)[0], STEPS)
    at = np.concatenate([found.times, *[b.T @ x for b, x in zip(bases, ends, strict=True)]])
    return SwitchedPhases(problem, jumps, STEPS, bases), at


def _before(found: Optimum, time: float) -> np.ndarray:
    """The state before a collision; `Optimum.state` gives that after it."""
    x = found.state(time)[0]
    if time == found.times[0]:
        x[4:] = [*found.velocity, 0.0, 0.0]
    elif x[7] < 0:
        x[7] = -x[7]
    return x


@pytest.mark.parametrize(
    ("ocp", "times"),
    [
        (build("general", **UNEQUAL), [0.5]),
        (build("wall"), [0.45, 0.7]),
        (swings(), [0.8]),
        (swings(1.8), [0.8]),
    ],
    ids=["discs", "wall", "swings", "bounded swings"],
)
def test_gradient_is_that_of_the_total_cost(ocp: ns.OCP, times: list[float]) -> None:
    problem, random = hybrid_problem(ocp, "test"), np.random.default_rng(1)
    push = np.array([1.5, 3.0])[: problem.n_u] if problem.n_u > 1 else np.array([1.7])
    jumps = list(range(len(times))) if len(times) == 1 else [0, 2]
    phases, at = switched(problem, jumps, times, constant(*push))
    eta, rho, h = random.normal(size=len(times)), 7.0, 1e-5
    z = at + 0.02 * random.normal(size=at.size)
    value = phases.value(z, eta, rho)
    slopes = []
    for way in np.eye(z.size):
        up, down = (phases.value(z + sign * h * way, eta, rho).total for sign in (1, -1))
        slopes.append((up - down) / (2 * h))
    # 30 Runge-Kutta steps stand for the flow, exactly that of the discs
    tolerance = 1e-7 if problem.n_u > 1 else 1e-6
    assert value.gradient == pytest.approx(slopes, abs=tolerance * np.abs(slopes).max())
    assert np.abs(value.gradient).max() > 0.1
    if problem.controls.is_box:
        assert (np.abs(phases.motion(value).phases[0].u) > 1.8 - 1e-9).sum() > 10


def test_gradient_needs_the_costate_of_what_the_control_does_not_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disc 2 on its way to the wall: without its multiplier the derivative by the time of the impact is wrong."""
    problem = hybrid_problem(build("wall"), "test")
    phases, at = switched(problem, [0, 2], [0.45, 0.7], constant(1.5, 3.0))
    right = phases.value(at, np.zeros(2), 7.0).gradient

    def left_out(arc: OptimalArc, i: int, rest: np.ndarray) -> OptimalArc:
        return arc

    monkeypatch.setattr(phases, "_with_unreached_costate", left_out)
    wrong = phases.value(at, np.zeros(2), 7.0).gradient
    assert np.abs(wrong[:2] - right[:2]).min() > 0.05


def test_only_what_the_control_reaches_is_prescribed() -> None:
    """Disc 1 before any collision: 4 numbers of 8; both pendulums never, the first always."""
    for ocp, jumps, size in ((build("wall"), [0, 2], 4), (swings(), [0], 2)):
        problem = hybrid_problem(ocp, "test")
        _, bases = roll_out_sequence(
            problem, jumps, np.linspace(0.4, 0.6, len(jumps)), constant(*np.ones(problem.n_u)), 20
        )
        for basis in bases:
            assert basis.shape == (problem.n_x, size)
            assert basis.T @ basis == pytest.approx(np.eye(size), abs=1e-12)
    others = [1, 3]
    assert np.abs(bases[0][others]).max() < 1e-10


@pytest.mark.parametrize(
    ("experiment", "changes"), [slow_row("concentric", {}), slow_row("general", {}), ("wall", {}), ("general", UNEQUAL)]
)
def test_right_sequence_ends_at_the_optimum(experiment: str, changes: Any) -> None:
    ocp, best = build(experiment, **changes), optimum(experiment, **changes)
    found = AutonomousSwitching(sequence=best.contacts).solve(ocp, guess=data(experiment).control)
    assert found.status is Status.SOLVED, found.message
    assert found.objective == pytest.approx(best.objective, abs=1e-9)
    assert [event.time for event in found.events] == pytest.approx(list(best.times), abs=1e-7)
    assert found.infeasibility < 1e-8
    inner = (found.u_grid[1:] + found.u_grid[:-1]) / 2
    assert found.u == pytest.approx(best.control(inner), abs=1e-5)
    s = best.times[0]
    t = found.t[found.t < s - 1e-6]
    costate = np.column_stack([found[f"costate[{name}]"][: t.size] for name in ("v_x_1", "v_y_1")])
    assert costate == pytest.approx(best.multiplier(t), abs=1e-6)
    hamiltonian = _hamiltonian(ocp, found)
    assert hamiltonian == pytest.approx(np.full_like(hamiltonian, hamiltonian[0]), abs=1e-6)
    again = ns.simulate(ocp.system, x0=ocp.x0, duration=1.0, u=found, method=ns.EventDriven())
    assert [event.name for event in again.impacts] == list(best.contacts)
    assert again.final_state == pytest.approx(found.final_state, abs=1e-8)


def _hamiltonian(ocp: ns.OCP, found: ns.Solution) -> np.ndarray:
    """H at the nodes of a solution, through the collisions (Eq. 11)."""
    problem = hybrid_problem(ocp, "test")
    control = problem.minimiser.control
    energy = ca.Function(
        "energy", [problem.x, problem.costate], [ca.substitute(problem.hamiltonian, problem.u, control)]
    )
    costate = np.column_stack([found[f"costate[{name}]"] for name in found.state_names])
    return np.array(energy.map(len(found.t))(found.x.T, costate.T))[0]


@pytest.mark.slow
def test_three_discs_are_certified() -> None:
    """The first pushes the second, which pushes the third."""
    q, v, u = ca.SX.sym("q", 6), ca.SX.sym("v", 6), ca.SX.sym("u", 2)
    pairs = {"first": q[:2] - q[2:4], "second": q[2:4] - q[4:]}
    contacts = [ns.Contact(name, gap=ca.norm_2(way) - 0.4, restitution=1.0) for name, way in pairs.items()]
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(6), force=ca.vertcat(u, ca.SX.zeros(4)), contacts=contacts)
    ocp = ns.OCP(
        system,
        horizon=2.0,
        x0=[-2, -0.1, -1, 0, -0.2, 0.05, *np.zeros(6)],
        stage_cost=0.1 * ca.sumsqr(u),
        terminal_cost=ca.sumsqr(q[4:] - ca.DM([0.5, 0.1])),
    )
    found = AutonomousSwitching().solve(ocp, guess=(2, 0))
    assert found.status is Status.SOLVED, found.message
    assert [event.name for event in found.events] == ["first", "second"]
    certificate = ns.certify(ocp, found)
    assert certificate.verdict is Verdict.CONFIRMED
    again = ns.simulate(system, x0=ocp.x0, duration=2.0, u=found, method=ns.EventDriven())
    assert again.final_state == pytest.approx(found.final_state, abs=1e-8)


def test_control_between_the_nodes_is_that_of_the_motion() -> None:
    """Of a motion that is not linear: the flow under the control that is stored, and its means."""
    ocp = swings()
    found = AutonomousSwitching(steps=40).solve(ocp, guess=1.1)
    assert found.status is Status.SOLVED, found.message
    problem = hybrid_problem(ocp, "test")
    flow = ca.Function("flow", [problem.x, problem.u], [problem.flow])
    x = found.x0
    edges = [0.0, found.events[0].time, found.horizon]
    for begin, end in pairwise(edges):

        def rate(t: float, x: np.ndarray, begin: float = begin, end: float = end) -> np.ndarray:
            u = found.control(np.clip(t, begin + 1e-12, end - 1e-12))
            return np.asarray(flow(x, u)).reshape(-1)

        x = solve_ivp(rate, (begin, end), x, method="DOP853", rtol=1e-10, atol=1e-12, max_step=0.02).y[:, -1]
        if end < found.horizon:
            x = np.array(ca.Function("reset", [problem.x], [problem.resets[0]])(x)).reshape(-1)
    assert x == pytest.approx(found.final_state, abs=2e-7)
    for k in (0, 17, 45):
        begin, end = found.u_grid[k : k + 2]
        inside = begin + (end - begin) * (np.arange(200) + 0.5) / 200
        assert found.control(inside).mean(axis=0) == pytest.approx(found.u[k], abs=1e-7)
        assert np.ptp(found.control(inside)) > 1e-4


@pytest.mark.parametrize("limit", [np.inf, 1.3])
def test_nonlinear_pendulums_as_by_direct_shooting(limit: float) -> None:
    """An independent method, extrapolated from 20 and 40 intervals (its error is of second order)."""
    ocp = swings(limit)
    found = AutonomousSwitching(steps=80).solve(ocp, guess=1.1)
    assert found.status is Status.SOLVED, found.message
    coarse, fine = (PhaseShooting(intervals=count).solve(ocp, guess=1.1) for count in (20, 40))
    assert coarse.status is fine.status is Status.SOLVED
    direct = (4 * fine.objective - coarse.objective) / 3
    assert found.objective == pytest.approx(direct, abs=2e-6)
    assert found.events[0].time == pytest.approx((4 * fine.events[0].time - coarse.events[0].time) / 3, abs=2e-4)
    bound = np.abs(found.u[:, 0]) > limit - 1e-9
    assert bound.any() == np.isfinite(limit)
    assert not bound.all()


@pytest.mark.parametrize(
    ("start", "sequence", "objective", "says"),
    [
        ((4.0, 4.5), ("discs", "wall_2", "wall_1"), None, "shrunk"),
        ((4.0, 6.0), ("discs", "wall_1", "wall_2"), None, "shrunk"),
        ((4.0, 3.0), ("discs", "wall_2", "discs"), 0.17560923, ""),
    ],
)
def test_three_collisions_do_not_become_two(
    start: tuple[float, float], sequence: tuple[str, ...], objective: float | None, says: str
) -> None:
    """Two starts run into a phase without duration, one ends at a worse optimum."""
    ocp, best = build("wall"), optimum("wall")
    three = AutonomousSwitching().solve(ocp, guess=start)
    assert tuple(event.name for event in three.events) == sequence
    assert three.objective > best.objective + 0.02
    assert three.status is (Status.NOT_AN_OPTIMUM if says else Status.SOLVED)
    assert (says in three.message) if says else three.message == ""
    if objective is not None:
        assert three.objective == pytest.approx(objective, abs=1e-7)
        direct = PhaseShooting(sequence=sequence, intervals=40).solve(ocp, guess=start)
        assert three.objective == pytest.approx(direct.objective, abs=5e-6)
    two = AutonomousSwitching(sequence=best.contacts).solve(ocp, guess=start)
    assert two.status is Status.SOLVED, two.message
    assert two.objective == pytest.approx(best.objective, abs=1e-9)


def test_too_few_collisions_are_noticed() -> None:
    found = AutonomousSwitching(sequence=("discs",)).solve(build("wall"), guess=(3, 3))
    assert found.status is Status.NOT_AN_OPTIMUM
    assert "penetrated" in found.message
    assert found.infeasibility > 0.1


def test_spurious_stationary_point_is_no_motion() -> None:
    """The lowest minimum of the reduced cost of 5.2 (Eq. 49): disc 1 would have to leave disc 2 to hit it."""
    spurious = stationary_points("general")[0]
    assert spurious.objective == pytest.approx(0.26459, abs=1e-5)
    phases, at = switched_discs("general", spurious)
    value = phases.value(at, np.zeros(1), 0.0)
    assert value.objective == pytest.approx(spurious.objective, abs=1e-10)
    assert abs(value.guards[0]) < 1e-12
    tolerances: dict[str, Any] = {"shortest": 1e-3, "tolerance": 1e-6}
    assert "not an approach" in invalidity(phases.problem, phases.motion(value), **tolerances)
    true, at = switched_discs("general", optimum("general"))
    assert not invalidity(true.problem, true.motion(true.value(at, np.zeros(1), 0.0)), **tolerances)


@pytest.mark.parametrize(("intervals", "objective"), [(2, 0.324584), (20, 0.311539)])
def test_direct_shooting_leaves_the_spurious_stationary_point(intervals: int, objective: float) -> None:
    """Its guard has to fall where it is reached, which it does not there: few nodes in between would not notice."""
    phases, at = switched_discs("general", stationary_points("general")[0])
    value = phases.value(at, np.zeros(1), 0.0)
    start = solution_of(phases.problem, phases.motion(value), status=Status.STOPPED)
    assert start.events[0].v_before > 0.5  # type: ignore[operator]
    found = PhaseShooting(intervals=intervals).solve(build("general"), guess=start)
    assert found.status is Status.SOLVED, found.message
    assert found.objective == pytest.approx(objective, abs=1e-6)
    assert found.objective == pytest.approx(
        PhaseShooting(intervals=intervals).solve(build("general"), guess=(0, 3)).objective, abs=1e-9
    )


@pytest.mark.parametrize("guess", [slow_row((0.0, 3.0)), (0.1, 4.0), slow_row((0.0, 3.8))])
def test_a_saturated_control_is_told(guess: tuple[float, float]) -> None:
    """Nothing can be prescribed where there is nothing to choose; what a guess leads to is shown all the same."""
    found = AutonomousSwitching().solve(in_a_ball(3.0), guess=guess)
    assert found.status is Status.NO_DESCENT
    assert "the control is at its bound throughout the phase; use ns.MinimumPrinciple" in found.message
    assert np.isfinite(found.objective)
    assert found.events


def test_a_control_at_its_bound_after_the_last_collision_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    options = AutonomousSwitching()
    state = options.init(in_a_box(0.0, 9.0), (0.5, 3))
    assert state.phases is not None
    assert state.value is not None
    assert [state.phases.saturated(arc) for arc in state.value.arcs] == [False, True]

    def none(*arguments: Any) -> None:
        raise NoArcError("no arc")

    monkeypatch.setattr(state.phases, "value", none)
    stuck = options.step(state)
    assert stuck.status is Status.NO_DESCENT
    assert stuck.message.endswith("from here no arc")


def test_a_control_that_is_saturated_from_the_start_is_told() -> None:
    """Its costate is not unique, and with almost no cost it cannot be found.

    Rounding decides whether the first phases have a descent direction at all, hence which of two statuses is reported.
    """
    found = AutonomousSwitching().solve(in_a_box(-3.0, 3.0, 1e-3), guess=(0, 3))
    assert found.status in {Status.LOCALLY_INFEASIBLE, Status.NO_DESCENT}
    assert "the control is at its bound throughout the phase" in found.message
    assert found.events[0].time == pytest.approx(0.632456, abs=1e-6)


def in_a_box(lower: float, upper: float, weight: float = 1.0) -> ns.OCP:
    free = build("general")
    costs: dict[str, Any] = {"stage_cost": weight * free.stage_cost, "terminal_cost": free.terminal_cost}
    return ns.OCP(free.system, horizon=1.0, x0=free.x0, bounds=ns.Bounds(u=(lower, upper)), **costs)


def in_a_ball(radius: float) -> ns.OCP:
    free = build("general")
    length = ns.Constraint(ca.norm_2(free.system.u), upper=radius)
    costs: dict[str, Any] = {"stage_cost": free.stage_cost, "terminal_cost": free.terminal_cost}
    return ns.OCP(free.system, horizon=1.0, x0=free.x0, path_constraints=[length], **costs)


def test_a_ball_that_is_reached_in_part() -> None:
    """The last phase ends at u = 0, the centre, where a length has no derivative."""
    ocp = in_a_ball(8.0)
    found = AutonomousSwitching(steps=80).solve(ocp, guess=(0, 3))
    assert found.status is Status.SOLVED, found.message
    length = np.linalg.norm(found.control(found.t), axis=1)
    assert length.max() == pytest.approx(8.0, abs=1e-9)
    # The control jumps to zero at the collision: its node may lie a rounding error on either side of the event.
    assert length[found.t < found.events[0].time - 1e-6].min() == pytest.approx(6.6, abs=0.1)
    coarse, fine = (PhaseShooting(intervals=count).solve(ocp, guess=(0, 3)).objective for count in (20, 40))
    assert found.objective == pytest.approx((4 * fine - coarse) / 3, abs=5e-7)
    assert found.objective > optimum("general").objective + 1e-4


def test_no_phases_to_begin_with_show_the_motion_of_the_guess() -> None:
    """A pendulum at its bound until it hits: no other end of this phase can be prescribed."""
    found = AutonomousSwitching().solve(swings(1.1), guess=1.1)
    assert found.status is Status.LOCALLY_INFEASIBLE
    assert "the control is at its bound throughout the phase" in found.message
    assert found.events[0].name == "hit"
    assert (found.u == 1.1).all()
    x, running = swings(1.1).system.x, 0.1 * 1.1**2 * 1.5
    terminal = ca.Function("terminal", [x], [10 * (x[1] - 0.8) ** 2 + (x[0] - 0.1) ** 2])
    assert found.objective == pytest.approx(float(terminal(found.final_state)) + running, abs=1e-12)


def test_a_collision_at_the_start_is_told() -> None:
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    floor = StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], -x[1] / 2))
    system = HybridSystem(x=x, u=u, flow=ca.vertcat(x[1], u), jumps=[floor])
    ocp = ns.OCP(system, horizon=1.0, x0=[0.0, -1.0], stage_cost=u**2, terminal_cost=(x[0] - 1) ** 2)
    found = AutonomousSwitching().solve(ocp, guess=0.1)
    assert found.status is Status.NOT_AN_OPTIMUM
    assert "'floor' is hit at t = 0" in found.message
    assert found.final_state == pytest.approx([0.55, 0.6], abs=1e-12)
    assert found.objective == pytest.approx(0.1**2 + 0.45**2, abs=1e-12)
    _, bases = roll_out_sequence(hybrid_problem(ocp, "test"), [0, 0], np.array([0.0, 0.5]), constant(0.1), 5)
    assert [basis.shape for basis in bases] == [(2, 0), (2, 2)]  # no time, no reach


def test_a_sequence_that_the_guess_begins_with_has_its_times() -> None:
    ocp = build("wall")
    simulated = ns.simulate(ocp.system, x0=ocp.x0, duration=1.0, u=[3.0, 3.0], method=ns.EventDriven()).impacts
    assert [event.name for event in simulated] == ["discs", "wall_2"]
    for names in (("discs",), ("discs", "wall_2")):
        state = AutonomousSwitching(sequence=names).init(ocp, (3, 3))
        assert state.times == pytest.approx([event.time for event in simulated[: len(names)]], abs=1e-6)
    other = AutonomousSwitching(sequence=("discs", "wall_1")).init(ocp, (3, 3))
    assert other.times == pytest.approx([1 / 3, 2 / 3])


def test_a_slow_approach_is_one() -> None:
    """Rates are small where times are long."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    system = HybridSystem(x=x, u=u, flow=u, jumps=[StateJump("spike", guard=1 - x, reset=ca.SX(0))])
    problem = hybrid_problem(ns.OCP(system, horizon=1.5e7, x0=[0.0], stage_cost=u**2), "test")
    first = MotionPhase(t=np.array([0.0, 1e7]), x=np.array([[0.0], [1.0]]), u=np.array([[1e-7]]))
    second = MotionPhase(t=np.array([1e7, 1.5e7]), x=np.array([[0.0], [0.5]]), u=np.array([[1e-7]]))
    tolerances: dict[str, Any] = {"shortest": 1e4, "tolerance": 1e-6}
    assert not invalidity(problem, HybridMotion(phases=(first, second), jumps=(0,), objective=0.0), **tolerances)
    still = replace(first, u=np.array([[1e-14]]))
    why = invalidity(problem, HybridMotion(phases=(still, second), jumps=(0,), objective=0.0), **tolerances)
    assert "not an approach" in why


def test_gradient_descent_goes_the_same_way_slowly() -> None:
    """As in the paper: a line search along the gradient."""
    ocp, best = build("concentric"), optimum("concentric")
    options = AutonomousSwitching(descent="gradient", max_iterations=300)
    slow, fast = options.solve(ocp, guess=(3, 3)), options.replace(descent="bfgs").solve(ocp, guess=(3, 3))
    assert slow.status is Status.ITERATION_LIMIT
    assert fast.iterations < 30
    assert slow.objective == pytest.approx(fast.objective, abs=1e-5)
    assert slow.objective == pytest.approx(best.objective, abs=0.02)
    objectives = [record.objective for record in slow.log]
    assert objectives[0] > objectives[-1]


def test_steps_of_the_user_are_those_of_solve() -> None:
    ocp, options = build("general"), AutonomousSwitching()
    state = options.init(ocp, (0, 3))
    while options.terminate(state) is None:
        state = options.step(state)
    found = options.solve(ocp, guess=(0, 3))
    mine = options.solution(state)
    assert mine.status is found.status is Status.SOLVED
    # Two computations: products of matrices round differently with the place of an array in memory.
    assert mine.objective == pytest.approx(found.objective, rel=1e-12)
    np.testing.assert_allclose(mine.x, found.x, rtol=0, atol=1e-9)
    assert len(found.log) == len(state.records)
    ((name, time),) = found.log[-1].collisions
    assert name == "discs"
    assert time == pytest.approx(found.events[0].time, abs=1e-9)


def test_ends_that_are_no_solution() -> None:
    ocp, options = build("general"), AutonomousSwitching()
    without = options.solve(ocp)
    assert without.status is Status.COLLISION_LOST
    assert not without.events
    few = options.replace(max_iterations=3).solve(ocp, guess=(0, 3))
    assert few.status is Status.ITERATION_LIMIT
    assert len(few.log) == 3
    assert options.solve(ocp, guess=(0, 3), time_limit=0.0).status is Status.TIME_LIMIT
    seen: list[SwitchingState] = []

    def stop(state: SwitchingState) -> Any:
        seen.append(state)
        return Stop if len(seen) == 2 else None

    stopped = options.solve(ocp, guess=(0, 3), callback=stop)
    assert stopped.status is Status.STOPPED
    assert len(stopped.log) == 2


def test_ends_that_cannot_be_reached() -> None:
    problem = hybrid_problem(swings(0.5), "test")
    phases, at = switched(problem, [0], [0.8], constant(0.5))
    far = at + np.array([0.0, 3.0, 3.0])
    with pytest.raises(NoArcError, match="phase 0"):
        phases.value(far, np.zeros(1), 1.0)


def test_what_it_cannot_take() -> None:
    with pytest.raises(OptionError, match="MinimumPrinciple"):
        AutonomousSwitching().solve(build("length"), guess=(0, 3))
    base = swings()
    x, u = base.system.x, base.system.u
    ocp = ns.OCP(base.system, horizon=1.5, x0=base.x0, stage_cost=(0.5 - x[0]) * u**2, bounds=ns.Bounds(u=(-2.0, 2.0)))
    with pytest.raises(OptionError, match="MinimumPrinciple"):  # the curvature is positive at the start only
        AutonomousSwitching().solve(ocp, guess=1.1)
    with pytest.raises(OptionError, match=r"'wall'.*discs"):
        AutonomousSwitching(sequence=("wall",)).solve(build("general"), guess=(0, 3))
