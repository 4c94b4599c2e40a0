"""What results say of their optimality: events that a grid holds, remedies with options, what a control really does."""

from __future__ import annotations

import casadi as ca
import pytest

import nosnoc_py as ns

q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")


def particle(height: float, end: float) -> ns.OCP:
    """A particle falls, and slides to rest under a horizontal force."""
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.6)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -9.81), contacts=[ground])
    goal = [ns.Constraint(system.x, [end, 0, 0, 0], [end, 0, 0, 0], name="goal")]
    bounds = ns.Bounds(u=(-10, 10))
    cost = {"stage_cost": u**2, "terminal_constraints": goal, "bounds": bounds}
    return ns.OCP(system, horizon=2.0, x0=[0, height, 0, 0], **cost)  # type: ignore[arg-type]


def dry_friction() -> ns.OCP:
    x = ca.SX.sym("x", 2)
    modes = ns.Modes("dry", flows=[[0.0, 1.0], [0.0, -1.0]], functions=x[1], signs=[[-1], [1]])
    system = ns.PSS(x=x, u=u, flow=ca.vertcat(x[1], u), modes=modes)
    goal = [ns.Constraint(x, [1, 0], [1, 0], name="goal")]
    return ns.OCP(
        system, horizon=3.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=goal, bounds=ns.Bounds(u=(-3, 3))
    )


def test_events_on_the_control_grid_are_told_by_kind() -> None:
    held = ns.solve(dry_friction(), ns.FESD(), certify=False)
    assert held.success
    start, end = (event.time for event in held.events)
    words = f"the grid holds the beginnings of sliding at t = {end:.6g}, the ends of sliding at t = {start:.6g} (on"
    assert words in held.message
    assert "solution.polish()" in held.message
    free = ns.solve(dry_friction(), ns.FESD(equidistant_control_grid=False), certify=False)
    assert free.success
    assert free.objective < held.objective
    assert "the grid holds" not in free.message


@pytest.mark.slow
def test_a_stick_beside_a_step_at_its_bound_is_told() -> None:
    """Solved, stationary, confirmed, and a fifth above the optimum: 66.95, where `polish` finds 55.46."""
    method = ns.FESDJ(control_stages=20, finite_elements=3, equidistant_control_grid=False)
    solution = ns.solve(particle(1.0, 2.0), method)
    assert solution.success
    if solution.objective > 60.0:
        (stick,) = [event.time for event in solution.events if event.kind == "stick"]
        assert f"the grid holds the sticks at t = {stick:.6g}" in solution.message
    polished = solution.polish()
    assert polished.objective == pytest.approx(55.43, rel=2e-3)


def test_remedies_name_options() -> None:
    assert "Nothing" not in ns.Status.SOLVED.remedy
    for words in ("local optimum", "ns.solve(ocp)", "polish", "certificate"):
        assert words in ns.Status.SOLVED.remedy
    for status in (ns.Status.LOCALLY_INFEASIBLE, ns.Status.NOT_COMPLEMENTARY):
        for words in ("control_stages", "finite_elements", "guess", "ns.solve(ocp)"):
            assert words in status.remedy
    assert "control_stages" in ns.Status.INFEASIBLE.remedy


def test_a_smoothed_solution_says_what_its_control_does() -> None:
    """No smoothed particle comes to rest, and yet the control moves the real one to within half a millimetre."""
    solution = ns.solve(particle(1.5, 3.0), ns.DirectShooting(form="smoothed", control_stages=20))
    assert solution.status is ns.Status.NOT_COMPLEMENTARY
    assert "its control, simulated, is nearly feasible (the terminal constraint goal" in solution.message
    assert "and costs 7" in solution.message
    assert "its control, simulated" in ns.explain(solution)


@pytest.mark.slow
def test_smoothed_shooting_does_not_forget_a_feasible_guess() -> None:
    ocp = particle(1.5, 3.0)
    start = ns.solve(ocp, ns.MultiPhase(intervals=20, follow=True), guess=ns.DirectShooting(form="smoothed").solve(ocp))
    assert start.success
    found = ns.solve(ocp, ns.DirectShooting(form="smoothed", control_stages=20), guess=start)
    assert found.status is not ns.Status.LOCALLY_INFEASIBLE
    assert "the control of the guess, simulated, is feasible" in found.message
