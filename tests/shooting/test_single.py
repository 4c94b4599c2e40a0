"""Single shooting on events: gradients against finite differences of the referee, and how the descents end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from nosnoc_py.indirect.forward import Forward
from nosnoc_py.indirect.minimum_principle import MinimumPrinciple
from nosnoc_py.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.shooting.event_gradient import EventGradient
from nosnoc_py.shooting.single import SingleShooting
from nosnoc_py.status import Status, Stop
from problems.two_discs import build, data
from problems.two_discs_references import optimum, semi_norm

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
        shot = gradient(u)
        objective, impacts = simulated(problem, u)
        assert len(shot.rollout.collisions) == impacts >= (2 if experiment == "wall" else 1)
        assert shot.objective == pytest.approx(objective, abs=1e-10)
        near, far = (
            (simulated(problem, u + k * h * way)[0] - simulated(problem, u - k * h * way)[0]) / (2 * k * h)
            for k in (1, 2)
        )
        assert (shot.gradient * way).sum() == pytest.approx((4 * near - far) / 3, abs=1e-7)


@pytest.mark.parametrize(("scheme", "after"), [("euler", "next"), ("rk4", "same")])
@pytest.mark.parametrize("experiment", ["general", "wall"])
def test_gradient_is_that_of_the_numbers_the_integrator_returns(experiment: str, scheme: Any, after: Any) -> None:
    problem, random = hybrid_problem(build(experiment, **UNEQUAL), "test"), np.random.default_rng(4)
    gradient, h = EventGradient(Forward(problem, 40, scheme, after)), 1e-5
    u = random_control(experiment, 40, random)
    shot = gradient(u)
    ways = [random.normal(size=u.shape) for _ in range(4)]
    for collision in shot.rollout.collisions:  # the two controls that act in a step with a collision
        for n in (collision.step, min(collision.step + 1, 39)):
            ways.append(np.zeros_like(u))
            ways[-1][n] = random.normal(size=2)
    for way in ways:
        slope = (gradient(u + h * way).objective - gradient(u - h * way).objective) / (2 * h)
        assert (shot.gradient * way).sum() == pytest.approx(slope, abs=2e-9)


def test_gradient_needs_the_derivative_of_the_event_time(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, random = hybrid_problem(build("general"), "test"), np.random.default_rng(5)
    gradient, u = EventGradient(Forward(problem, 20, "rk4", "same")), random_control("general", 20, random)
    right = gradient(u).gradient
    monkeypatch.setattr(gradient, "_normals", lambda x: [np.eye(1, 8)])  # another surface
    assert np.abs(gradient(u).gradient - right).max() > 1e-2 * np.abs(right).max()


def test_euler_counts_the_running_cost_by_steps() -> None:
    """Eq. 36: sum of L(x_n, u_n) dt, whatever happens inside of a step."""
    problem = hybrid_problem(build("general"), "test")
    u = np.tile([0.0, 3.0], (30, 1)) + np.linspace(0, 1, 30)[:, None]
    shot = EventGradient(Forward(problem, 30))(u)
    end = shot.rollout.x[-1][2:4]
    assert shot.objective == pytest.approx(end @ end + 0.01 * (u**2).sum() / 30, abs=1e-14)


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
    assert found.status is Status.NOT_AN_OPTIMUM
    assert "between two control intervals" in found.message
    place = found.events[0].time * 80
    assert abs(place - round(place)) < 1e-6
    assert found.objective == min(record.objective for record in found.log)


@pytest.mark.parametrize("descent", ["lbfgs", "ipopt", "gradient"])
def test_bounds_are_kept(descent: Any) -> None:
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
    assert found.events  # the best iterate is kept
    assert np.isfinite(found.objective)


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
