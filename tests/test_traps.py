"""The traps of the published equations: each with the failure it guards against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball as ball
from nosnoc_py.api import Simulator
from nosnoc_py.discretization import cross_complementarity
from nosnoc_py.mpcc.homotopy import HomotopyState
from nosnoc_py.reformulation import contact
from nosnoc_py.simulation.checks import Checks
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER

RAW = ns.Homotopy(
    steering="direct",
    finish="none",
    sigma_min=1e-13,
    complementarity_tolerance=1e-11,
    infeasibility_tolerance=1e-9,
)
GRAVITY = 9.81


def one_step(restitution: float, solver: ns.Homotopy | None, **method: Any) -> Any:
    """A ball at .1 with the velocity -1: it hits at .0735, one step takes .1."""
    simulator = Simulator(ball.build(restitution), ns.FESDJ(**method), step=0.1, solver=solver)
    return simulator.step(simulator.init([0.1, -1.0]))


def landing_error(state: Any, restitution: float) -> float:
    return float(np.abs(state.x - ball.exact([0.1], restitution, height=0.1, velocity=-1.0)[0]).max())


# --- (a) the gap at the left boundary belongs into the cross terms ---


@pytest.mark.parametrize("initial_impulse", [True, False])
@pytest.mark.parametrize("restitution", [0.0, 0.9])
def test_with_the_left_gap_it_lands(restitution: float, initial_impulse: bool) -> None:
    state = one_step(restitution, None, initial_impulse=initial_impulse)
    assert state.status is ns.Status.SOLVED
    assert landing_error(state, restitution) < 1e-12
    assert state.readout.z_stages.max() < GRAVITY + 1e-9
    raw = one_step(restitution, RAW, initial_impulse=initial_impulse)
    assert raw.status is ns.Status.STEP_FAILED or landing_error(raw, restitution) < 1e-8


# --- (b) phantom impulses of persistent contact ---


def resting_ball() -> tuple[ns.CLS, list[float], None]:
    return ball.build(0.5), [0.0, 0.0], None


def pushed_disc() -> tuple[ns.CLS, list[float], list[float]]:
    """A cart that pushes another one with 3 N; they touch from the beginning."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    touching = ns.Contact("touch", gap=q[1] - q[0] - 1.0, restitution=0.3)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.diag(ca.DM([1, 2])), force=ca.vertcat(u, 0), contacts=[touching])
    return system, [0.0, 1.0, 0.0, 0.0], [3.0]


@pytest.mark.parametrize("make", [resting_ball, pushed_disc])
def test_phantom_impulses_are_no_impacts_and_the_polish_removes_them(make: Callable[[], tuple[Any, ...]]) -> None:
    system, x0, u = make()
    name = f"Lambda_normal[{system.contacts[0].name}]"
    # sigma ends at 1e-8: large enough for the double root to be seen
    loose = RAW.replace(sigma_min=1e-8, complementarity_tolerance=1e-6, infeasibility_tolerance=1e-6)
    raw = ns.simulate(system, x0=x0, u=u, duration=0.4, steps=4, solver=loose)
    assert raw.success
    assert raw[name].max() > 1e-6
    assert raw.impacts == ()
    polished = ns.simulate(system, method=ns.FESDJ(), x0=x0, u=u, duration=0.4, steps=4)
    assert polished.success
    assert np.abs(polished[name]).max() < 1e-12
    assert polished.impacts == ()


# --- hand-made iterates of a transcription ---


class Iterate:
    """Sets named variables of one transcription and measures the residuals."""

    def __init__(self, system: ns.CLS, x0: list[float], horizon: float, **method: Any) -> None:
        self.problem = ns.transcribe(ns.OCP(system, horizon=horizon, x0=x0), ns.FESDJ(control_stages=1, **method))
        self.w = self.problem.mpcc.w0.copy()

    def set(self, name: str, *place: int, value: Any) -> None:
        self.w[self.problem.mpcc.variables[name, *place]] = value

    def residuals(self) -> HomotopyState:
        solver = ns.Homotopy()
        return solver.init(self.problem.mpcc, self.w, clip=False, solvers=self.problem.solvers)


def caught(restitution: float, velocity: float, h: float, **method: Any) -> Iterate:
    """A ball on the ground with some velocity that a force stops inside the first element, without an impulse.

    Radau IIA with two stages: q = 0 at both stages means v = velocity (1 - 3 tau)(1 - tau).
    """
    it = Iterate(ball.build(restitution), [0.0, velocity], h, finite_elements=1, rk_stages=2, **method)
    law = velocity + restitution * min(velocity, 0.0)
    it.set("v_plus", 0, 0, value=velocity)
    it.set("Y_plus", 0, 0, value=max(law, 0.0))
    it.set("Y_minus", 0, 0, value=max(-law, 0.0))
    for j, slope in enumerate((-2.0, 2.0)):
        it.set("x", 0, 0, j, value=0.0)
        it.set("lambda_normal", 0, 0, j, value=GRAVITY + slope * velocity / h)
    return it


# --- (a) again, by hand: the ball of `one_step` is caught inside its only element, without an impulse ---


def caught_in_flight(restitution: float, initial_impulse: bool) -> Iterate:
    """q = .1, 0, 0 at tau = 0, 1/3, 1: velocities -1, -2, 2, forces 9.81 and 129.81."""
    it = Iterate(
        ball.build(restitution), [0.1, -1.0], 0.1, finite_elements=1, rk_stages=2, initial_impulse=initial_impulse
    )
    it.set("v_plus", 0, 0, value=-1.0)
    it.set("Y_minus", 0, 0, value=1.0 + restitution)
    for j, (velocity, force) in enumerate(((-2.0, GRAVITY), (2.0, GRAVITY + 120.0))):
        it.set("x", 0, 0, j, value=[0.0, velocity])
        it.set("lambda_normal", 0, 0, j, value=force)
    return it


@pytest.mark.parametrize("initial_impulse", [True, False])
@pytest.mark.parametrize("restitution", [0.0, 0.9])
def test_without_the_left_gap_a_ball_is_caught(
    restitution: float, initial_impulse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = caught_in_flight(restitution, initial_impulse).residuals()
    assert state.complementarity == pytest.approx(0.1, rel=1e-12)  # left gap .1 against a force larger than 1
    monkeypatch.setitem(cross_complementarity.CROSS, "left", lambda rows, i: [(rows.a[:, i], rows.b[:, i])])
    state = caught_in_flight(restitution, initial_impulse).residuals()
    assert state.complementarity < 1e-12
    assert state.complementarity_min < 1e-12
    assert state.infeasibility < 1e-12
    exact = ball.exact([0.1], restitution, height=0.1, velocity=-1.0)[0]
    assert abs(2.0 - exact[1]) > 0.5


# --- (d) the impact guard, Eq. 18 ---


def test_the_guard_excludes_a_landing_by_force() -> None:
    state = caught(0.9, -1.0, 1.0).residuals()
    assert state.complementarity < 1e-10
    assert state.infeasibility == pytest.approx(1e-3 * 1.9, abs=1e-12)
    assert state.infeasibility > 1e-4
    assert "impact guard" in state.solvers.evaluator.worst(state.values)[0].name


def test_without_the_guard_a_landing_by_force_satisfies_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught(0.9, -1.0, 1.0, epsilon_c=1e-12).residuals().infeasibility < 1e-10
    law = contact.impact_law
    monkeypatch.setattr(contact, "impact_law", lambda *a: replace(law(*a), inequalities=()))
    state = caught(0.9, -1.0, 1.0).residuals()
    assert state.infeasibility < 1e-10
    assert state.complementarity < 1e-10
    assert state.complementarity_min < 1e-10
    assert np.abs(state.values.G).min() >= 0.0


# --- (c) an element of length zero ---


def landing_in_no_time(length: float, **method: Any) -> Iterate:
    """A ball that hits the ground with -1 and is stopped by a force in an element of relative length `length`."""
    it = Iterate(ball.build(0.9), [0.0, -1.0], 0.2, finite_elements=2, rk_stages=1, **method)
    h = 0.1 * length
    it.set("s", 0, 0, value=length)
    it.set("s", 0, 1, value=2.0 - length)
    it.set("v_plus", 0, 0, value=-1.0)
    it.set("Y_minus", 0, 0, value=1.9)
    it.set("x", 0, 0, 0, value=0.0)
    it.set("lambda_normal", 0, 0, 0, value=GRAVITY + 1.0 / h)
    it.set("x", 0, 1, 0, value=0.0)
    it.set("lambda_normal", 0, 1, 0, value=GRAVITY)
    return it


def test_an_element_of_length_zero_carries_an_impulse_without_restitution() -> None:
    state = landing_in_no_time(1e-5, gamma_h=1.0).residuals()
    assert state.infeasibility < 1e-8  # accepted: the guard vanishes with h
    assert state.complementarity < 1e-8
    force = state.values.H.max()
    assert force * 1e-6 == pytest.approx(1.0, abs=1e-4)  # a finite impulse; restitution asks for 1.9


def test_default_bounds_keep_elements_long() -> None:
    problem = ns.transcribe(ns.OCP(ball.build(0.9), horizon=0.2, x0=[1, 0]), ns.FESDJ(control_stages=3))
    rows = np.concatenate([np.arange(b.start, b.start + 1) for b in problem.mpcc.variables.blocks("s")])
    np.testing.assert_allclose(problem.mpcc.lbw[rows], 0.1, rtol=0, atol=1e-15)
    np.testing.assert_allclose(problem.mpcc.ubw[rows], 1.9, rtol=0, atol=1e-15)
    state = landing_in_no_time(1e-5).residuals()
    assert state.infeasibility == pytest.approx(0.1 - 1e-5, abs=1e-12)
    # and at the shortest legal length the guard speaks
    assert landing_in_no_time(0.1).residuals().infeasibility == pytest.approx(1e-3 * 0.01 * 1.9, rel=1e-9)


# --- (e) an element longer than the flight catches a rebound ---


def test_a_rebound_is_not_caught_by_a_long_element(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two impacts in a step of two elements: no solution exists, but with n_s = 2 a spurious root does."""
    arguments: dict[str, Any] = {"x0": [1.0, 0.0], "duration": 2.0, "steps": 2}
    trajectory = ns.simulate(ball.build(0.9), **arguments, solver=SIMULATION_SOLVER)
    assert trajectory.status is ns.Status.STEP_FAILED
    np.testing.assert_allclose(trajectory.final_state, ball.exact(trajectory.t[-1:], 0.9)[0], rtol=0, atol=1e-12)
    enough = ns.simulate(ball.build(0.9), **arguments, method=ns.FESDJ(finite_elements=3))
    assert enough.success
    np.testing.assert_allclose(enough.final_state, ball.exact([2.0], 0.9)[0], rtol=0, atol=1e-12)
    thrown: dict[str, Any] = {"x0": [0.0, 1.0], "duration": 1.0, "steps": 1}  # bounces several times
    assert ns.simulate(ball.build(0.9), **thrown, solver=SIMULATION_SOLVER).status is ns.Status.STEP_FAILED
    monkeypatch.setattr(Checks, "catches", lambda *_: [])
    spurious = ns.simulate(ball.build(0.9), **thrown, solver=SIMULATION_SOLVER)
    assert spurious.success
    np.testing.assert_allclose(spurious.final_state, [0.0, 0.0], rtol=0, atol=1e-9)  # caught, and at rest


def test_the_equations_alone_admit_the_catch_of_a_rebound() -> None:
    """With n_s <= 2 the residuals vanish at a motion that is none: `Checks.catches` has to refuse it, see above."""
    state = caught(0.9, 1.0, 1.0).residuals()  # the flight takes .2, the element 1
    assert max(state.infeasibility, state.complementarity) < 1e-9


def test_three_stages_cannot_catch_a_rebound() -> None:
    # q = 0 at three stages: v = v_0 times a cubic, whose slopes ask for a negative force at one stage.
    trajectory = ns.simulate(
        ball.build(0.9), x0=[0.0, 1.0], duration=1.0, steps=1, method=ns.FESDJ(finite_elements=1, rk_stages=3)
    )
    assert trajectory.status is ns.Status.STEP_FAILED
