"""A feasible guess never ends as infeasible, nor above its own objective; `refine` stays where it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.simulation.guessed import simulated_guess

q, v, u = (ca.SX.sym(name) for name in "qvu")
STAGES = 4


def ball(restitution: float) -> ns.OCP:
    ground = ns.Contact("ground", gap=q, restitution=restitution)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ground])
    return ns.OCP(system, horizon=1.0, x0=[1.0, -2.0], stage_cost=u**2)


def slider() -> ns.OCP:
    x, y = ca.SX.sym("x", 2), ca.SX.sym("y", 2)
    ground = ns.Contact("ground", gap=x[1], friction=0.3, tangent=ca.DM([1, 0]))
    force = ca.vertcat(u, -9.81)
    system = ns.CLS(q=x, v=y, u=u, mass_matrix=ca.DM.eye(2), force=force, contacts=[ground])
    return ns.OCP(system, horizon=1.0, x0=[0, 0.05, 1.5, 0], stage_cost=u**2)


def relay() -> ns.OCP:
    x = ca.SX.sym("x")
    system = ns.PSS(x=x, u=u, modes=ns.Modes("m", flows=[u - 1, u + 1], functions=x, signs=[[1], [-1]]))
    return ns.OCP(system, horizon=1.0, x0=[0.4], stage_cost=u**2)


CASES: dict[str, tuple[ns.OCP, Any, list[float]]] = {
    "bounce": (ball(0.6), q, [-3.0, 2.0, 6.0, 1.0]),
    "catch": (ball(0.0), q, [0.0, 4.0, 12.0, 12.0]),
    "slide": (slider(), None, [-1.0, 0.0, 5.0, 4.0]),
    "relay": (relay(), None, [0.0, 0.5, -2.0, 0.0]),
}


def case(name: str) -> tuple[ns.OCP, np.ndarray, ns.FESD]:
    """The OCP whose goal is where a control ends, the control, and elements that represent it."""
    ocp, aim, rows = CASES[name]
    aim = ocp.system.x[0] if aim is None else aim
    control = np.array(rows)[:, None]
    end = ns.simulate(ocp.system, x0=ocp.x0, duration=ocp.horizon, u=control).final_state[0]
    goal = ns.Constraint(aim, float(end), float(end), name="goal")
    elements = {"control_stages": STAGES, "finite_elements": 3, "rk_stages": 3}
    method = ns.FESDJ(**elements) if isinstance(ocp.system, ns.CLS) else ns.FESD(**elements)
    return replace(ocp, terminal_constraints=[goal]), control, method


@pytest.mark.parametrize("name", CASES)
def test_feasible_guesses_end_no_worse(name: str) -> None:
    ocp, control, method = case(name)
    given = simulated_guess(ocp, control)
    assert given is not None
    assert given.feasible
    motion = ns.simulate(ocp.system, x0=ocp.x0, duration=ocp.horizon, u=control)
    for guess in (control, motion, {"u": control}):
        solution = ns.solve(ocp, method, guess=guess)
        assert solution.success, solution.summary()
        assert solution.objective <= given.objective * (1.0 + 1e-6)


def test_a_control_that_a_solver_forgets_is_started_from_again() -> None:
    for name, solver in (("bounce", ns.Homotopy()), ("slide", ns.Homotopy(max_iterations=10))):
        ocp, control, method = case(name)
        given = simulated_guess(ocp, control)
        assert given is not None
        lost = ns.transcribe(ocp, method).solve(solver, guess=control)
        assert not lost.success or lost.objective > 2.0 * given.objective
        kept = ns.solve(ocp, method, solver, guess=control)
        assert kept.success
        assert kept.objective <= given.objective * (1.0 + 1e-6)
        assert kept.iterations > lost.iterations  # the whole effort


def test_a_feasible_guess_that_elements_do_not_represent_is_said() -> None:
    ocp, _, method = case("bounce")
    exact = [*ocp.terminal_constraints, ns.Constraint(v, -1.0, -1.0, name="speed")]
    fine = replace(ocp, terminal_constraints=exact)
    fast = ns.solve(fine, ns.FESDJ(control_stages=8, finite_elements=3, rk_stages=3))
    if not fast.success:
        pytest.skip("no feasible control was found")
    coarse = ns.solve(fine, method.replace(control_stages=1), guess=fast)
    assert not coarse.success
    assert "raise control_stages" in coarse.message or "give them its control intervals" in coarse.message


def test_what_is_no_motion_of_the_problem_is_no_simulated_guess() -> None:
    ocp, control, _ = case("bounce")
    assert simulated_guess(ocp, None) is None
    assert simulated_guess(ocp, {"x": ocp.x0}) is None
    free = replace(ocp, x0=None)
    assert simulated_guess(free, control) is None
    other = ns.simulate(relay().system, x0=[0.4], duration=1.0, u=control)
    assert simulated_guess(ocp, other) is None
    missed = simulated_guess(ocp, control + 1.0)
    assert missed is not None
    assert not missed.feasible


def test_refining_a_solution(tmp_path: Path) -> None:
    ocp, control, method = case("slide")
    start = ns.solve(ocp, ns.MultiPhase(intervals=12, follow=True), guess=control)
    assert start.success
    fine = method.replace(control_stages=12)
    found = start.refine(fine)
    assert found.success
    assert found.certificate is not None
    assert found.method == repr(fine)
    assert found.objective <= start.objective * 1.02
    assert found.refine(ns.MultiPhase(intervals=12), certify=True).success
    assert found.polish().refine(fine).success
    assert replace(found, message="").refine(fine).objective == pytest.approx(found.objective, rel=1e-6)
    with pytest.raises(ns.OptionError, match=r"refine: this solution does not know its OCP.*use ns\.solve"):
        ns.load(found.save(tmp_path / "found.nc")).refine(fine)
    with pytest.raises(ns.OptionError, match="refine: expected a method"):
        found.refine(None)


def test_a_motion_that_roughly_reaches_the_goal_is_kept() -> None:
    """A ball is to be caught by a paddle: smoothed shooting finds the order of events, and misses."""
    x, y = ca.SX.sym("x", 2), ca.SX.sym("y", 2)
    paddle = ns.Contact("paddle", gap=x[1] - x[0], restitution=0.8)
    force = ca.vertcat(u - 9.81, -9.81 * 0.3)
    system = ns.CLS(q=x, v=y, u=u, mass_matrix=ca.diag(ca.DM([1.0, 0.3])), force=force, contacts=[paddle])
    goal = [ns.Constraint(ca.vertcat(x[1], y), [1.0, 0.0, 0.0], [1.0, 0.0, 0.0], name="goal")]
    ocp = ns.OCP(system, horizon=1.0, x0=[0, 0.5, 0, 0], stage_cost=1e-3 * u**2, terminal_constraints=goal)
    smoothed = ns.solve(ocp, ns.DirectShooting(form="smoothed", control_stages=10))
    given = simulated_guess(ocp, smoothed)
    assert given is not None
    method = ns.FESDJ(control_stages=10, equidistant_control_grid=False)
    found = ns.solve(ocp, method, guess=smoothed)
    near = ns.transcribe(ocp, method).solve(guess=given.motion, near=True)
    if near.success and given.broken <= 0.3:
        assert found.success
        assert found.objective <= near.objective * 1.0001
