"""Shooting over exact simulations: gradients and descents against closed forms, and the iterate of a simulation."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import lsq_linear

import nosnoc_py as ns
from nosnoc_py.search.multi_start import descend
from nosnoc_py.search.rollouts import IterateBuilder, Rollouts

METHOD = ns.FESDJ(control_stages=4, finite_elements=3, rk_stages=2)
WEIGHT = 100.0


def slider(x0: Any = (0, 0, 0, 0), friction: float = 0.0, **fields: Any) -> ns.OCP:
    """A unit mass on the ground that is to be at x = 1, at rest, after one second."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=friction)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -9.81), contacts=[ground])
    cost = WEIGHT * ((q[0] - 1) ** 2 + v[0] ** 2)
    return ns.OCP(system, horizon=1.0, x0=x0, stage_cost=u**2, terminal_cost=cost, **fields)


def transition(h: float = 0.25) -> tuple[np.ndarray, np.ndarray]:
    """x and v at the end, linear in the four controls of a mass without friction."""
    later = h * np.arange(3, -1, -1)
    return h**2 / 2 + h * later, np.full(4, h)


def least_squares(pushed: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows and target of the problem: minimise |rows u - target|^2, where `pushed` is taken off from every control."""
    x, v = transition()
    rows = np.vstack([np.sqrt(0.25) * np.eye(4), np.sqrt(WEIGHT) * x, np.sqrt(WEIGHT) * v])
    return rows, np.array([0, 0, 0, 0, *(np.sqrt(WEIGHT) * np.array([1 + pushed * x.sum(), pushed * v.sum()]))])


def optimum() -> tuple[np.ndarray, float]:
    """The minimiser of h |u|^2 + WEIGHT ((x - 1)^2 + v^2), a least-squares problem."""
    rows, target = least_squares()
    u, *_ = np.linalg.lstsq(rows, target, rcond=None)
    return u, float(((rows @ u - target) ** 2).sum())


def rollouts_of(ocp: ns.OCP, weight: float = 0.0, method: ns.FESDJ = METHOD) -> Rollouts:
    return Rollouts(ns.transcribe(ocp, method), weight)


def differences(rollouts: Rollouts, u: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Central differences of the objective by every control."""
    found = []
    for i in np.ndindex(*u.shape):
        ends = []
        for sign in (1.0, -1.0):
            moved = u.copy()
            moved[i] += sign * step
            ends.append(rollouts(moved).objective)
        found.append((ends[0] - ends[1]) / (2 * step))
    return np.array(found)


@pytest.mark.quick
def test_objective_and_gradient_of_a_free_mass() -> None:
    rollouts = rollouts_of(slider())
    u = np.array([[1.0], [-2.0], [3.0], [0.5]])
    here = rollouts(u)
    x, v = transition()
    end = np.array([x @ u[:, 0] - 1, v @ u[:, 0]])
    assert here.objective == pytest.approx(0.25 * float((u**2).sum()) + WEIGHT * float(end @ end), rel=1e-12)
    exact = 0.5 * u[:, 0] + 2 * WEIGHT * (end[0] * x + end[1] * v)
    np.testing.assert_allclose(rollouts.gradient(here), exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("x0", [(0, 0, 0, 0), (0, 0.2, 1, 0), (0, 0, 2, 0)])
def test_gradients_through_impacts_stick_and_slip(x0: tuple[float, ...]) -> None:
    """Landing with slip, stops, reversals and starts: against differences of the simulation."""
    rollouts = rollouts_of(slider(x0, friction=0.3), 10.0)
    u = np.array([[5.0], [-9.0], [-6.0], [7.0]])
    here = rollouts(u)
    assert here.w is not None
    np.testing.assert_allclose(rollouts.gradient(here), differences(rollouts, u), rtol=1e-6, atol=1e-6)


@pytest.mark.quick
def test_a_descent_finds_the_least_squares_solution() -> None:
    u, value = optimum()
    rollouts = rollouts_of(slider())
    bounds = np.array([-np.inf]), np.array([np.inf])
    found, here = descend(rollouts, np.zeros((4, 1)), bounds, 60, lambda _: False)
    assert here.objective == pytest.approx(value, rel=1e-8)
    np.testing.assert_allclose(found[:, 0], u, rtol=0, atol=1e-3)


def test_a_descent_stays_within_bounds() -> None:
    rollouts = rollouts_of(slider())
    bounds = np.array([-2.0]), np.array([2.0])
    found, _ = descend(rollouts, np.zeros((4, 1)), bounds, 60, lambda _: False)
    rows, target = least_squares()
    exact = lsq_linear(rows, target, (-2.0, 2.0), tol=1e-14).x
    assert np.abs(exact).max() > 2.0 - 1e-9
    np.testing.assert_allclose(found[:, 0], exact, rtol=0, atol=1e-3)


@pytest.mark.quick
def test_a_simulation_that_fails_costs_infinitely_much() -> None:
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ns.Contact("g", gap=q, restitution=0.9)])
    ocp = ns.OCP(ball, horizon=2.0, x0=[0.1, 0], stage_cost=u**2)
    rollouts = rollouts_of(ocp, 0.0, ns.FESDJ(control_stages=1))  # many bounces, two elements
    assert rollouts(np.zeros((1, 1))).objective == np.inf


def test_violations_are_penalised() -> None:
    limits = ([-np.inf] * 4, [0.25, np.inf, np.inf, np.inf])
    plain, bounded = slider(), slider(bounds=ns.Bounds(x=limits))
    u, method = np.full((4, 1), 1.0), ns.FESDJ(control_stages=4, finite_elements=1, rk_stages=1)  # x at the stage ends
    one, other = (rollouts_of(ocp, 10.0, method) for ocp in (plain, bounded))
    x = np.cumsum(0.25 * np.cumsum(np.full(4, 0.25)))
    more = 10.0 * float((np.maximum(0.0, x - 0.25) ** 2).sum())
    assert more > 0.1
    assert other(u).objective - one(u).objective == pytest.approx(more, rel=1e-12)
    np.testing.assert_allclose(other.gradient(other(u)), differences(other, u), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("x0", [(0, 0, 0, 0), (0, 0.2, 1, 0)])
def test_a_simulation_is_a_feasible_iterate(x0: tuple[float, ...]) -> None:
    ocp = slider(x0, friction=0.3)
    problem = ns.transcribe(ocp, METHOD.replace(gamma_h=1.0))
    w = IterateBuilder(problem)(np.array([[4.0], [-1.0], [-6.0], [0.0]]))
    assert w is not None
    evaluator = problem.solvers.evaluator
    at = evaluator(w, problem.mpcc.p0)
    assert evaluator.complementarity(at) < 1e-12
    assert evaluator.infeasibility(at) < 1e-12
    wrong = w.copy()
    wrong[problem.mpcc.variables["x", 2, 1, 0]] += 1e-3
    assert evaluator.infeasibility(evaluator(wrong, problem.mpcc.p0)) > 1e-4


def test_a_push_with_friction() -> None:
    """With dry friction mu g = 1 the mass needs a second to come to 1 and stop: against the reduced smooth problem."""
    ocp = slider(friction=1 / 9.81, bounds=ns.Bounds(u=(-20, 20)))
    states: list[Any] = []
    solution = ns.solve(ocp, METHOD, ns.MultiStart(starts=6, kicks=0, candidates=1), callback=states.append)
    assert solution.success
    assert solution.log[0].label.startswith("rough")
    assert len(states) > 1
    # Forwards all the time: the smooth problem with u - 1 instead of u in the dynamics.
    rows, target = least_squares(1.0)
    u, *_ = np.linalg.lstsq(rows, target, rcond=None)
    slides = np.cumsum(u - 1)
    assert (slides > 0).all()  # so the smooth problem is the right one
    np.testing.assert_allclose(solution.u[:, 0], u, rtol=0, atol=1e-5)
    assert solution.objective == pytest.approx(float(((rows @ u - target) ** 2).sum()), rel=1e-8)


def test_the_callback_and_the_clock_stop_the_search() -> None:
    ocp = slider(friction=0.1)
    stopped = ns.solve(ocp, METHOD, ns.MultiStart(starts=3), callback=lambda state: ns.Stop)
    assert stopped.status in (ns.Status.STOPPED, ns.Status.SOLVED)
    assert len([line for line in stopped.log if line.label.startswith(("rough", "shooting"))]) <= 2
    late = ns.solve(ocp, METHOD, ns.MultiStart(starts=3), time_limit=0.0)
    assert late.status in (ns.Status.TIME_LIMIT, ns.Status.SOLVED)


@pytest.mark.quick
def test_what_it_does_not_take() -> None:
    with pytest.raises(ns.OptionError, match="initial state free"):
        ns.solve(slider(None), METHOD, ns.MultiStart())
    with pytest.raises(ns.OptionError, match="friction_cone='paper'"):
        ns.solve(slider(friction=0.1), METHOD.replace(friction_cone="paper"), ns.MultiStart())
    with pytest.raises(ns.OptionError, match="starts"):
        ns.MultiStart(starts=0)


def test_the_same_seed_gives_the_same_solution() -> None:
    solver = ns.MultiStart(starts=2, iterations=2, candidates=2, seed=3)
    first, second = (ns.solve(slider(friction=0.1), METHOD, solver) for _ in range(2))
    np.testing.assert_allclose(first.u, second.u, rtol=0, atol=1e-9)


def test_events_that_are_too_many_are_pushed_out() -> None:
    """A mass that starts to slip and stops again in one stage, on elements of which two events are one too many."""
    ocp = slider((0, 0, 2, 0), friction=0.5)
    method = ns.FESDJ(control_stages=2, finite_elements=4, rk_stages=2)
    u = np.array([[0.0], [-6.0]])  # stops at .408 of .5, slips back from .5 on
    free, limited = (Rollouts(ns.transcribe(ocp, method), 10.0, events) for events in (None, 0))
    more = limited(u).objective - free(u).objective
    stop = 2 / (0.5 * 9.81)
    assert more == pytest.approx(10.0 * (min(stop, 0.5 - stop) + 0.1 * 0.125), rel=1e-9)
    np.testing.assert_allclose(limited.gradient(limited(u)), differences(limited, u), rtol=1e-6, atol=1e-6)
