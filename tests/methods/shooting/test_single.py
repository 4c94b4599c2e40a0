"""Single shooting on events: gradients against finite differences of the referee, and how the descents end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from nosnoc_py.methods.indirect.forward import Forward, SweepFailure
from nosnoc_py.methods.indirect.minimum_principle import MinimumPrinciple
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.methods.shooting.event_gradient import EventGradient
from nosnoc_py.methods.shooting.single import SingleShooting
from nosnoc_py.methods.shooting.single_descents import Descent, no_descent
from nosnoc_py.status import Status, Stop
from nosnoc_py.systems.hybrid import HybridSystem, StateJump
from problems.two_discs import build, data
from tests.references.two_discs import optimum, semi_norm

UNEQUAL: dict[str, Any] = {"masses": (1.0, 1.5), "restitution": 0.7}
CASES = [("concentric", {}), ("general", {}), ("general", UNEQUAL), ("wall", {}), ("wall", UNEQUAL)]


def random_control(experiment: str, steps: int, random: np.random.Generator) -> np.ndarray:
    """Around the paper's start; with a wall, one under which disc 2 hits it."""
    lift = (0.0, 0.3) if experiment == "wall" else (0.0, 0.0)
    return np.array(data(experiment).control) + lift + 0.5 * random.normal(size=(steps, 2))


def simulated(problem: HybridProblem, u: np.ndarray) -> tuple[float, int]:
    """Objective and number of impacts by the event-driven referee."""
    found = ns.simulate(problem.ocp.system, x0=problem.x0, duration=problem.horizon, u=u, method=ns.EventDriven())
    end = ca.Function("end", [problem.x], [problem.terminal_cost])(found.final_state)
    running = ca.Function("running", [problem.u], [problem.running_cost]).map(len(u))(u.T)
    return float(end) + problem.horizon / len(u) * float(np.array(running).sum()), len(found.impacts)


@pytest.mark.parametrize(("experiment", "changes"), CASES)
def test_gradient_is_that_of_the_simulated_objective(experiment: str, changes: Any) -> None:
    problem, random = hybrid_problem(build(experiment, **changes), "test"), np.random.default_rng(3)
    steps, h = 8, 1e-3
    gradient = EventGradient(Forward(problem, steps, "rk4", "same"))
    for _ in range(2):
        u, way = random_control(experiment, steps, random), random.normal(size=(steps, 2))
        evaluate = gradient(u)
        objective, impacts = simulated(problem, u)
        assert len(evaluate.rollout.collisions) == impacts >= (2 if experiment == "wall" else 1)
        assert evaluate.objective == pytest.approx(objective, abs=1e-10)
        near, far = (
            (simulated(problem, u + k * h * way)[0] - simulated(problem, u - k * h * way)[0]) / (2 * k * h)
            for k in (1, 2)
        )
        assert (evaluate.gradient * way).sum() == pytest.approx((4 * near - far) / 3, abs=1e-7)


@pytest.mark.parametrize(("scheme", "after"), [("euler", "next"), ("rk4", "same")])
@pytest.mark.parametrize("experiment", ["general", "wall"])
def test_gradient_is_that_of_the_numbers_the_integrator_returns(experiment: str, scheme: Any, after: Any) -> None:
    problem, random = hybrid_problem(build(experiment, **UNEQUAL), "test"), np.random.default_rng(4)
    gradient, h = EventGradient(Forward(problem, 40, scheme, after)), 1e-5
    u = random_control(experiment, 40, random)
    evaluate = gradient(u)
    ways = [random.normal(size=u.shape) for _ in range(4)]
    for collision in evaluate.rollout.collisions:  # the two controls that act in a step with a collision
        for n in (collision.step, min(collision.step + 1, 39)):
            ways.append(np.zeros_like(u))
            ways[-1][n] = random.normal(size=2)
    for way in ways:
        slope = (gradient(u + h * way).objective - gradient(u - h * way).objective) / (2 * h)
        assert (evaluate.gradient * way).sum() == pytest.approx(slope, abs=2e-9)


def bouncing(
    horizon: float, *, stage_cost: bool = True, restitution: float = 0.5, weight: float = 2.0, **bounds: Any
) -> HybridProblem:
    """A ball that falls from 1 m; the cost depends on the state along the way, and on the velocity in the end."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    floor = StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], -restitution * x[1]))
    system = HybridSystem(x=x, u=u, flow=ca.vertcat(x[1], u - weight), jumps=[floor])
    cost = u**2 + (x[0] ** 2 if stage_cost else 0)
    end = (x[0] - 1) ** 2 + (x[1] - 1) ** 2
    ocp = ns.OCP(system, horizon=horizon, x0=[1.0, 0.0], stage_cost=cost, terminal_cost=end, **bounds)
    return hybrid_problem(ocp, "test")


def check_every_component(gradient: EventGradient, u: np.ndarray, h: float = 1e-5) -> list[int]:
    """Against central differences of the objective; the steps of the collisions."""
    evaluate = gradient(u)
    for n, way in enumerate(np.eye(u.size).reshape(-1, *u.shape)):
        slope = (gradient(u + h * way).objective - gradient(u - h * way).objective) / (2 * h)
        assert evaluate.gradient.ravel()[n] == pytest.approx(slope, abs=1e-7)
    return [collision.step for collision in evaluate.rollout.collisions]


@pytest.mark.parametrize(
    ("horizon", "steps", "broken"), [(1.6, 4, [2]), (2.2, 1, [0, 0]), (2.6, 3, [1, 2, 2]), (2.35, 4, [1, 3, 3])]
)
def test_gradient_of_a_running_cost_of_the_state(horizon: float, steps: int, broken: list[int]) -> None:
    u = 0.3 * np.cos(np.arange(steps))[:, None] - 0.2
    assert check_every_component(EventGradient(Forward(bouncing(horizon), steps, "rk4", "same")), u) == broken


def test_gradient_of_discs_with_a_running_cost_of_the_state() -> None:
    free = build("wall", **UNEQUAL)
    x = free.system.x
    ocp = ns.OCP(
        free.system,
        horizon=1.0,
        x0=free.x0,
        stage_cost=free.stage_cost + ca.sumsqr(x[:4]) + 0.1 * ca.sumsqr(x[4:]),
        terminal_cost=free.terminal_cost,
    )
    gradient = EventGradient(Forward(hybrid_problem(ocp, "test"), 6, "rk4", "same"))
    u = random_control("wall", 6, np.random.default_rng(7))
    assert len(check_every_component(gradient, u)) >= 2


def test_gradient_of_a_collision_in_the_last_step_of_euler() -> None:
    """There is no next control: the last one goes on."""
    u = np.array([[0.1], [-0.2], [0.3], [0.1]])
    assert check_every_component(EventGradient(Forward(bouncing(1.25, stage_cost=False), 4)), u)[-1] == 3


def test_gradient_needs_the_derivative_of_the_event_time(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, random = hybrid_problem(build("general"), "test"), np.random.default_rng(5)
    gradient, u = EventGradient(Forward(problem, 20, "rk4", "same")), random_control("general", 20, random)
    right = gradient(u).gradient

    def turned(crossing: Any) -> Any:
        """With the normal of another surface."""
        return lambda x: [*crossing(x)[:3], np.eye(1, 8)]

    monkeypatch.setitem(problem.__dict__, "crossings", tuple(turned(crossing) for crossing in problem.crossings))
    assert np.abs(gradient(u).gradient - right).max() > 1e-2 * np.abs(right).max()


def test_euler_counts_the_running_cost_by_steps() -> None:
    """Eq. 36: sum of L(x_n, u_n) dt, whatever happens inside of a step."""
    problem = hybrid_problem(build("general"), "test")
    u = np.tile([0.0, 3.0], (30, 1)) + np.linspace(0, 1, 30)[:, None]
    evaluate = EventGradient(Forward(problem, 30))(u)
    end = evaluate.rollout.x[-1][2:4]
    assert evaluate.objective == pytest.approx(end @ end + 0.01 * (u**2).sum() / 30, abs=1e-14)


def test_gradient_descent_makes_the_step_of_the_paper() -> None:
    ocp, steps, alpha, epsilon = build("general"), 50, 0.01, 0.01
    seen: list[np.ndarray] = []
    options = SingleShooting(steps=steps, scheme="euler", descent="gradient", relaxation=alpha, max_iterations=3)
    found = options.solve(ocp, guess=(0, 3), callback=lambda state: seen.append(state.control))
    gradient = EventGradient(Forward(hybrid_problem(ocp, "test"), steps))
    for u, after in pairwise(seen):
        assert after == pytest.approx(u - alpha * steps / (2 * epsilon) * gradient(u).gradient, abs=1e-12)
    assert found.status is Status.ITERATION_LIMIT
    assert len(seen) == len(found.log) == 4
    assert found.log[0].objective > found.log[-1].objective
    rate = options.replace(rate=alpha * steps / (2 * epsilon)).solve(ocp, guess=(0, 3))
    assert rate.u == pytest.approx(found.u, abs=1e-13)


@pytest.mark.parametrize("descent", ["lbfgs", "ipopt"])
def test_descent_ends_at_a_stationary_motion(descent: Any) -> None:
    """With 20 intervals the collision of the concentric discs is inside of one: no kink is in the way."""
    ocp = build("concentric")
    found = SingleShooting(steps=20, descent=descent, tolerance=1e-6, max_iterations=300).solve(ocp, guess=(3, 3))
    assert found.status is Status.SOLVED, found.message
    assert found.log[-1].slope is not None
    assert found.log[-1].slope <= 1e-6
    assert found.objective - optimum("concentric").objective == pytest.approx(4.561e-3, abs=1e-6)
    again, impacts = simulated(hybrid_problem(ocp, "test"), rows_of(found, 20))
    assert impacts == len(found.events) == 1
    assert again == pytest.approx(found.objective, abs=1e-11)


def rows_of(found: ns.Solution, steps: int) -> np.ndarray:
    """The control on its equal intervals."""
    return found.control((np.arange(steps) + 0.5) / steps)


def test_fine_grids_end_at_a_kink() -> None:
    """The collision comes to lie between two intervals, where the discrete objective has no derivative."""
    found = SingleShooting(steps=80).solve(build("concentric"), guess=(3, 3))
    assert found.status is Status.NO_DESCENT
    assert "between two control intervals" in found.message
    place = found.events[0].time * 80
    assert abs(place - round(place)) < 1e-6
    assert found.objective == pytest.approx(min(record.objective for record in found.log), rel=1e-12)


@pytest.mark.parametrize(
    ("descent", "status"),
    [("lbfgs", Status.SOLVED), ("ipopt", Status.SOLVED), ("gradient", Status.ITERATION_LIMIT)],
)
def test_bounds_are_kept(descent: Any, status: Status) -> None:
    free = build("general")
    ocp = ns.OCP(
        free.system,
        horizon=1.0,
        x0=free.x0,
        stage_cost=free.stage_cost,
        terminal_cost=free.terminal_cost,
        bounds=ns.Bounds(u=([-1.0, 0.0], [1.0, 4.0])),
    )
    found = SingleShooting(steps=30, descent=descent, max_iterations=150).solve(ocp, guess=(0, 3))
    assert found.status is status, found.message
    assert (found.u <= np.array([1.0, 4.0]) + 1e-12).all()
    assert found.u[:, 1].max() == pytest.approx(4.0, abs=1e-6)  # they bind
    assert (found.u >= np.array([-1.0, 0.0]) - 1e-12).all()
    assert found.objective < found.log[0].objective - 0.05


def test_a_ball_is_kept() -> None:
    found = SingleShooting(steps=20, descent="ipopt", max_iterations=60).solve(
        build("length", smoothing=0.3), guess=(0, 3)
    )
    assert np.linalg.norm(found.u, axis=1).max() == pytest.approx(5 * np.sqrt(2), abs=1e-6)


def test_without_a_collision_there_is_nothing_to_descend() -> None:
    found = SingleShooting(steps=20).solve(build("general"))
    assert found.status is Status.COLLISION_LOST
    assert not found.events
    assert "no collision" in found.message


def test_too_long_a_step_loses_the_collision() -> None:
    options = SingleShooting(steps=60, scheme="euler", descent="gradient", relaxation=0.5)
    found = options.solve(build("general"), guess=(0, 3))
    assert found.status is Status.COLLISION_LOST
    assert found.events
    assert found.objective == pytest.approx(min(record.objective for record in found.log), rel=1e-12)


def test_the_best_iterate_is_kept() -> None:
    """The second step of this rate is worse than the first, the third loses the collision."""
    options = SingleShooting(steps=60, scheme="euler", descent="gradient", relaxation=0.02, max_iterations=200)
    found = options.solve(build("general"), guess=(0, 3))
    objectives = [record.objective for record in found.log]
    assert found.objective == pytest.approx(min(objectives), rel=1e-12)
    assert min(objectives) < objectives[-1] - 1e-6


@pytest.mark.parametrize("descent", ["lbfgs", "ipopt"])
def test_solved_where_bounds_are_active(descent: Any) -> None:
    """H_u is not small there, but u - P(u - H_u) is."""
    free = build("concentric")
    ocp = ns.OCP(
        free.system,
        horizon=1.0,
        x0=free.x0,
        stage_cost=free.stage_cost,
        terminal_cost=free.terminal_cost,
        bounds=ns.Bounds(u=([-3.0, -3.0], [3.0, 3.0])),
    )
    found = SingleShooting(steps=20, descent=descent, tolerance=1e-6, max_iterations=300).solve(ocp, guess=(2.8, 2.8))
    assert found.status is Status.SOLVED, found.message
    assert found.u.max() == pytest.approx(3.0, abs=1e-6)
    gradient = EventGradient(Forward(hybrid_problem(ocp, "test"), 20, "rk4", "same"))
    assert np.abs(gradient(rows_of(found, 20)).gradient * 20).max() > 0.1


def run_of(problem: HybridProblem, steps: int) -> Descent:
    return Descent(
        gradient=EventGradient(Forward(problem, steps, "rk4", "same")),
        label="test",
        tolerance=1e-8,
        max_iterations=5,
        callback=None,
        deadline=np.inf,
    )


def test_a_line_search_sees_a_wall_where_the_integrator_fails() -> None:
    run, u = run_of(bouncing(1.6), 4), np.full((4, 1), 0.1)
    wild = np.full_like(u, np.nan)
    with pytest.raises(SweepFailure):  # nothing to compare with
        run.trial(wild)
    run.accept(run.evaluate(u))
    value, gradient = run.trial(wild)
    assert run.best is not None
    assert value > 1e5 * (1 + abs(run.best.objective))
    assert (gradient == 0).all()
    first = run.evaluate(u)
    u += 0.1  # as solvers do
    assert run.evaluate(u) is not first
    assert run.evaluate(u.copy()) is run.evaluate(u)


@pytest.mark.parametrize(("place", "kink"), [(5e-4, True), (1 - 5e-4, True), (0.01, False), (0.5, False)])
def test_a_kink_is_one_where_a_collision_is_at_a_node(place: float, kink: bool) -> None:
    problem, steps = bouncing(1.6), 4
    run = run_of(problem, steps)
    time = (2 + place) * run.dt
    run.accept(run.evaluate(np.full((steps, 1), 2 - 2 / time**2)))
    status, message = no_descent(run, exhausted=False)
    assert status is Status.NO_DESCENT
    assert ("kink" in message) == kink
    assert no_descent(run, exhausted=True)[0] is Status.ITERATION_LIMIT


# --- IPOPT calls back into Python ---


def test_an_error_of_the_user_comes_out_of_ipopt(capfd: pytest.CaptureFixture[str]) -> None:
    options = SingleShooting(steps=20, descent="ipopt", max_iterations=30)

    def wrong(state: Any) -> None:
        if len(state.records) == 3:
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        options.solve(build("concentric"), guess=(3, 3), callback=wrong)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("fault", [RuntimeError("deep"), KeyboardInterrupt(), SweepFailure(Status.GRAZING, "hm")])
def test_what_is_raised_in_an_evaluation_ends_ipopt(
    fault: BaseException, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    options, calls = SingleShooting(steps=20, descent="ipopt", max_iterations=30), []
    whole = EventGradient.__call__

    def failing(self: EventGradient, u: np.ndarray) -> Any:
        calls.append(u)
        if len(calls) > 4:
            raise fault
        return whole(self, u)

    monkeypatch.setattr(EventGradient, "__call__", failing)
    if isinstance(fault, RuntimeError):
        with pytest.raises(RuntimeError, match="deep"):
            options.solve(build("concentric"), guess=(3, 3))
    else:
        found = options.solve(build("concentric"), guess=(3, 3))
        assert found.status is not Status.SOLVED
        assert found.log
        assert (found.status is Status.INTERRUPTED) == isinstance(fault, KeyboardInterrupt)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("descent", ["lbfgs", "ipopt"])
def test_a_control_is_integrated_once(descent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, seen = EventGradient.__call__, list[bytes]()

    def counted(self: EventGradient, u: np.ndarray) -> Any:
        seen.append(u.tobytes())
        return whole(self, u)

    monkeypatch.setattr(EventGradient, "__call__", counted)
    found = SingleShooting(steps=20, descent=descent, tolerance=1e-6).solve(build("concentric"), guess=(3, 3))
    assert found.success
    assert len(set(seen)) == len(seen)
    assert len(seen) <= 2 * found.iterations


def test_no_number_at_the_start_is_a_status() -> None:
    free = build("general")
    cost = ca.sqrt(-1 - ca.sumsqr(free.system.x))
    ocp = ns.OCP(free.system, horizon=1.0, x0=free.x0, stage_cost=free.stage_cost, terminal_cost=cost)
    for descent in ("lbfgs", "ipopt"):
        found = SingleShooting(steps=20, descent=descent).solve(ocp, guess=(0, 3))
        assert found.status is Status.NUMERICAL_ERROR
        assert found.message


def test_callback_and_clock_stop() -> None:
    ocp, options = build("general"), SingleShooting(steps=40, descent="gradient")
    stopped = options.solve(ocp, guess=(0, 3), callback=lambda state: Stop if len(state.records) == 3 else None)
    assert stopped.status is Status.STOPPED
    assert len(stopped.log) == 3
    for descent in ("gradient", "lbfgs", "ipopt"):
        late = options.replace(descent=descent).solve(ocp, guess=(0, 3), time_limit=0.0)
        assert late.status is Status.TIME_LIMIT
        assert len(late.log) == 1


def test_what_it_cannot_take() -> None:
    with pytest.raises(OptionError, match="no derivative"):
        SingleShooting().solve(build("length"), guess=(0, 3))
    with pytest.raises(OptionError, match="length"):
        SingleShooting().solve(build("length", smoothing=0.1), guess=(0, 3))
    with pytest.raises(OptionError, match="rate"):
        SingleShooting(descent="gradient").solve(build("length", smoothing=0.1), guess=(0, 3))


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["concentric", "general", "wall"])
def test_direct_method_stalls_farther_from_the_optimum(experiment: str) -> None:
    """Section 6.2, Fig. 13: N = 480, 3000 iterations, rate alpha N / (2 epsilon); at least ten times farther."""
    steps, best = 480, optimum(experiment)
    t = np.arange(steps) / steps
    start: dict[str, Any] = {"guess": data(experiment).control}

    def distance(found: ns.Solution) -> float:
        return semi_norm(found.control(t + 1e-9) - best.control(t), t, best.times)

    direct = SingleShooting(steps=steps, scheme="euler", descent="gradient", max_iterations=3000)
    indirect = MinimumPrinciple(steps=steps, relaxation=0.01, max_iterations=3000)
    far, near = distance(direct.solve(build(experiment), **start)), distance(indirect.solve(build(experiment), **start))
    assert far >= 10 * near
