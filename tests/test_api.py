"""The verbs on small problems: guesses of every kind, statuses, callbacks, the loop by hand."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER

METHOD = ns.FESDJ(control_stages=4)


def throw() -> ns.OCP:
    """A body pushed against a wall, to be back at the start: min of the integral of u^2 with one impact."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    wall = ns.Contact("wall", gap=1.0 - q, restitution=0.5)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(1), force=u, contacts=[wall])
    home = ns.Constraint(q, -0.4, -0.4, name="home")
    return ns.OCP(system, horizon=2.0, x0=[0, 1.6], stage_cost=u**2, terminal_constraints=[home])


@pytest.fixture(scope="module")
def reference() -> ns.Solution:
    solution = ns.solve(throw(), METHOD)
    assert solution.success
    return solution


def test_solve_with_defaults(reference: ns.Solution) -> None:
    assert reference.complementarity <= 1e-8
    assert reference.infeasibility <= 1e-8
    assert reference.x[-1, 0] == pytest.approx(-0.4, abs=1e-8)
    assert len(reference.impacts) == 1
    coarse = ns.solve(throw(), ns.FESDJ(control_stages=1))
    assert coarse.status in ns.Status  # one constant control: whatever comes, no exception


GUESSES: dict[str, Any] = {
    "constant": 0.0,
    "vector": [0.0],
    "function": lambda t: [0.1 * t],
    "rows": np.zeros((4, 1)),
    "other rows": [[0.0], [0.0]],
}


@pytest.mark.parametrize("name", GUESSES)
def test_guesses_by_a_control(name: str) -> None:
    solution = ns.solve(throw(), METHOD, guess=GUESSES[name])
    assert solution.success
    assert abs(solution.x[-1, 0] + 0.4) < 1e-8


def test_a_guess_sets_the_controls_of_the_iterate() -> None:
    problem = ns.transcribe(throw(), METHOD)
    for guess, expected in (
        (0.7, np.full(4, 0.7)),
        ([0.7], np.full(4, 0.7)),
        (lambda t: [t], (np.arange(4) + 0.5) / 2),
        (np.arange(4.0)[:, None], np.arange(4.0)),
        ([[1.0], [2.0]], [1, 1, 2, 2]),
    ):
        np.testing.assert_allclose(problem.controls(problem.initial_guess(guess))[:, 0], expected, rtol=0, atol=1e-12)


def test_a_trajectory_as_guess(reference: ns.Solution) -> None:
    system = throw().system
    flight = ns.simulate(system, x0=[0, 1.6], duration=2.0, steps=12, u=[0.3])
    problem = ns.transcribe(throw(), METHOD)
    w = problem.initial_guess(flight)
    readout = problem.read(w, problem.mpcc.p0)
    np.testing.assert_allclose(readout.x_right, flight(np.cumsum(readout.h), "-"), rtol=0, atol=1e-12)
    np.testing.assert_allclose(problem.controls(w), 0.3, rtol=0, atol=1e-12)
    solution = problem.solve(guess=flight)
    assert solution.success
    assert solution.objective <= reference.objective + 1e-6


def test_a_solution_of_another_grid_as_guess(reference: ns.Solution) -> None:
    problem = ns.transcribe(throw(), ns.FESDJ(control_stages=8))
    w = problem.initial_guess(reference)
    readout = problem.read(w, problem.mpcc.p0)
    ends = np.cumsum(readout.h)
    np.testing.assert_allclose(readout.x_right, reference(ends, "-"), rtol=0, atol=1e-12)
    impact = reference.impacts[0]  # a node lies on it, with its impulse and the velocity after it
    node = int(np.argmin(np.abs(ends - impact.time))) + 1
    assert abs(ends[node - 1] - impact.time) < 1e-12
    assert abs(readout.impacts[node, 0, 0] - impact.impulse) < 1e-12
    np.testing.assert_allclose(readout.x_left[node], reference(impact.time, "+"), rtol=0, atol=1e-12)
    np.testing.assert_allclose(problem.controls(w), np.repeat(reference.u, 2, axis=0), rtol=0, atol=1e-12)
    finer = problem.solve(ns.Homotopy(sigma_0=1e-3), guess=reference)  # a small sigma does not forget the guess
    assert finer.success
    assert finer.objective < reference.objective  # more controls, the same impact
    assert abs(finer.impacts[0].time - impact.time) < 0.01
    assert finer.message == ""
    assert finer.x[-1, 0] == pytest.approx(-0.4, abs=1e-8)


def test_an_impact_that_the_grid_holds_is_told() -> None:
    """With u = -0.2 / (0.75^2 / 2) it hits at t = 0.75, where a stage ends; a small sigma does not forget that."""
    ocp, problem = throw(), ns.transcribe(throw(), ns.FESDJ(control_stages=8))
    law = {"u": [-0.2 / (0.5 * 0.75**2)], "method": ns.EventDriven()}
    start = ns.simulate(ocp.system, x0=[0, 1.6], duration=2.0, **law)
    assert start.impacts[0].time == pytest.approx(0.75, abs=1e-9)
    held = problem.solve(ns.Homotopy(sigma_0=1e-3), guess=start)
    assert held.success
    assert held.impacts[0].time == pytest.approx(0.75, abs=1e-6)
    assert "the grid holds the impacts at t = 0.75" in held.message
    assert "try equidistant_control_grid=False" in held.message


def test_a_solution_of_the_same_transcription_is_its_own_guess(reference: ns.Solution) -> None:
    problem = ns.transcribe(throw(), METHOD)
    assert problem.layout_key == reference.layout_key
    np.testing.assert_array_equal(problem.initial_guess(reference), reference.w)
    state = ns.Homotopy().init(problem.mpcc, reference.w, solvers=problem.solvers)
    assert state.infeasibility <= 1e-8
    assert state.complementarity <= 1e-8
    again = problem.solve(guess=reference)
    assert again.success
    assert again.objective == pytest.approx(reference.objective, abs=1e-7)
    warm = problem.solve(ns.Homotopy(sigma_0=1e-6), guess=reference)  # a small sigma does not forget the guess
    assert warm.success
    assert warm.objective == pytest.approx(reference.objective, abs=1e-8)
    assert len(warm.log) <= 4


@pytest.mark.parametrize(
    ("guess", "said"),
    [
        (np.nan, "finite"),
        ([np.nan], "finite"),
        (lambda t: [np.nan], "finite"),
        ([[0.0], [np.nan]], "finite"),
        ([1.0, 2.0], "1 numbers"),
        (lambda t: [1.0, 2.0], "1 numbers"),
        ("much", "control"),
        ({"v": 1}, r"Legal: .*x, u"),
        ({"u": [1.0, 2.0]}, "1 numbers"),
        ({"x": [1.0]}, "2 numbers"),
        ({"x": lambda t: [t]}, "2 numbers"),
        ({"x": [0.0, np.inf]}, "finite"),
        ({"x": "much"}, "x: expected 2 numbers"),
    ],
)
def test_guesses_that_do_not_fit(guess: Any, said: str) -> None:
    with pytest.raises(ns.NosnocError, match=said):
        ns.solve(throw(), METHOD, guess=guess)


def test_a_guess_of_another_system_is_refused() -> None:
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    other = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM.zeros(2), contacts=[])
    trajectory = ns.simulate(other, x0=[0, 0, 1, 1], duration=1.0, steps=2)
    with pytest.raises(ns.TranscriptionError, match="expected the states"):
        ns.solve(throw(), METHOD, guess=trajectory)


def test_an_iterate_with_nan_is_refused() -> None:
    problem = ns.transcribe(throw(), METHOD)
    w = problem.guess.copy()
    w[3] = np.nan
    with pytest.raises(ns.TranscriptionError, match="position 3"):
        ns.Homotopy().init(problem.mpcc, w, solvers=problem.solvers)


@pytest.mark.parametrize("solver", [ns.Homotopy(), ns.ActiveSet(), ns.Auto()], ids=lambda s: type(s).__name__)
def test_the_loop_by_hand_does_what_solve_does(solver: Any) -> None:
    problem, expected = ns.transcribe(throw(), METHOD), ns.solve(throw(), METHOD, solver)
    state = solver.init(problem.mpcc, problem.guess)
    while (status := solver.terminate(state)) is None:
        state = solver.step(state)
    assert status is ns.Status.SOLVED
    solution = problem.solution(state)
    assert solution.success
    np.testing.assert_allclose(solution.w, expected.w, rtol=0, atol=1e-8)
    assert [record.label for record in solution.log] == [record.label for record in expected.log]


def test_the_default_is_auto(reference: ns.Solution) -> None:
    np.testing.assert_allclose(ns.solve(throw(), METHOD, ns.Auto()).w, reference.w, rtol=0, atol=1e-8)
    # Both descents end at the same optimum here, so which one is kept is decided by rounding.
    assert reference.log[0].label in ("relaxed: homotopy", "elastic: homotopy")
    assert reference.stationarity in (ns.Stationarity.S, ns.Stationarity.B)
    plain = ns.solve(throw(), METHOD, ns.Homotopy())
    assert plain.log[0].label == "homotopy"
    assert reference.objective <= plain.objective + 1e-8


def test_a_callback_and_a_time_limit_end_the_work() -> None:
    stopped = ns.solve(throw(), METHOD, callback=lambda state: ns.Stop)
    assert stopped.status is ns.Status.STOPPED
    assert len(stopped.log) == 1
    late = ns.solve(throw(), METHOD, time_limit=1e-9)
    assert late.status is ns.Status.TIME_LIMIT
    assert np.isfinite(late.w).all()


def test_an_impossible_problem_is_a_status() -> None:
    ocp = throw()
    far = ns.Constraint(ocp.system.q, 3.0, 3.0, name="far")  # beyond the wall
    solution = ns.solve(
        ns.OCP(ocp.system, horizon=2.0, x0=[0, 1.6], stage_cost=ocp.stage_cost, terminal_constraints=[far]), METHOD
    )
    assert not solution.success
    assert solution.infeasibility > 0.1
    assert solution.worst
    with pytest.raises(ns.SolverError):
        solution.raise_for_status()


@pytest.mark.parametrize("aggregation", ["fe_stage", "stage_fe", "fe_fe", "stage_stage"])
@pytest.mark.parametrize("impulse_form", ["sum", "product"])
def test_what_is_reported_as_solved_is_physical(aggregation: str, impulse_form: str) -> None:
    """The found control, simulated again with small steps, ends where the solution says."""
    method = ns.FESDJ(control_stages=4, cross_complementarity=aggregation, impulse_form=impulse_form)
    solution = ns.solve(throw(), method)
    assert solution.success
    again = ns.simulate(throw().system, x0=[0, 1.6], duration=2.0, steps=24, u=solution)
    assert again.success
    np.testing.assert_allclose(again.final_state, solution.final_state, rtol=0, atol=1e-7)
    assert [i.time for i in again.impacts] == pytest.approx([i.time for i in solution.impacts], abs=1e-7)


def test_wrong_objects_are_named_before_any_solve() -> None:
    problem: Any = throw()
    for call, expected in (
        (
            lambda: ns.solve(problem, ns.Homotopy()),
            r"method: expected one made by ns.Search\(\.\.\.\), .* or ns.DirectShooting\(\.\.\.\), given Homotopy",
        ),  # type: ignore[arg-type]
        (lambda: ns.solve(problem, METHOD, METHOD), "solver: expected Strategy, given FESDJ; .*ns.Auto"),  # type: ignore[arg-type]
        (lambda: ns.solve(problem.system, METHOD), "ocp: expected OCP, given CLS"),
        (
            lambda: ns.simulate(problem, x0=[0, 1], duration=1.0),
            r"system: expected one made by ns.CLS\(\.\.\.\), .* or ns.RigidBody\(\.\.\.\), given OCP",
        ),
    ):
        with pytest.raises(ns.OptionError, match=expected):
            call()


def test_x0_outside_of_the_state_bounds() -> None:
    with pytest.raises(ns.ModelError, match="outside of its bounds"):
        ns.OCP(throw().system, horizon=1.0, x0=[0, 1.6], bounds=ns.Bounds(x=([-1, -1], [1, 1])))


@pytest.mark.parametrize("steps", [10, 20])
def test_a_simulation_that_leaves_the_model_ends_in_a_status(steps: int) -> None:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM(1), force=ca.sqrt(1.2 - q))
    trajectory = ns.simulate(system, x0=[1, 2], duration=1.0, steps=steps)  # q reaches 1.2 before t = .1
    assert not trajectory.success
    assert trajectory.t[-1] <= 0.1
    assert np.isfinite(trajectory.x).all()


def test_a_prediction_that_overflows_is_no_exception() -> None:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM(1), force=v**3)
    trajectory = ns.simulate(system, x0=[1, 2], duration=1.0, steps=10)
    assert np.isfinite(trajectory.x).all()


def test_bodies_do_not_pass_through_each_other() -> None:
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    pegs = [
        ns.Contact(f"peg {i}", gap=ca.sqrt((q[0] - x) ** 2 + q[1] ** 2) - 0.1, restitution=1.0)
        for i, x in enumerate((0.0, -1.0))
    ]
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.SX(2, 1), contacts=pegs)
    arguments: dict[str, Any] = {"x0": [-0.5, 0, 8, 0], "duration": 1.0}
    for steps in (2, 4):  # several impacts in a step: too many for an MPCC with two elements, Newton's method halves it
        coarse = ns.simulate(system, steps=steps, solver=SIMULATION_SOLVER, **arguments)
        assert not coarse.success
        assert np.abs(coarse.x[:, 0] + 0.5).max() <= 0.4 + 1e-9
        assert len(ns.simulate(system, steps=steps, **arguments).impacts) == 10
    fine = ns.simulate(system, steps=40, **arguments)
    assert fine.success
    assert len(fine.impacts) == 10
    # between the pegs there and back at 8 m/s
    travelled = 8.0 - 0.4 - 9 * 0.8
    assert fine.final_state[0] == pytest.approx(-0.9 + travelled, abs=1e-9)


def test_solve_and_simulate_say_what_they_take() -> None:
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    floor = ns.StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], -0.5 * x[1]))
    ball = ns.HybridSystem(x=x, u=u, flow=ca.vertcat(x[1], u - 9.81), jumps=[floor])
    ocp = ns.OCP(ball, horizon=1.0, x0=[1, 0], stage_cost=u**2)
    for wrong in (3, ns.EventDriven, ns.Homotopy()):
        with pytest.raises(ns.OptionError, match=r"expected one made by ns.Search.*ns.DirectShooting.*given"):
            ns.solve(ocp, wrong)
    with pytest.raises(ns.OptionError, match=r"FESD does not fit an ns.HybridSystem; use ns.MultiPhase"):
        ns.solve(ocp, ns.FESD())
    with pytest.raises(ns.OptionError, match=r"TimeStepping does not fit an ns\.HybridSystem.* ns\.EventDriven\(\)"):
        ns.simulate(ball, x0=[1, 0], duration=1.0, method=ns.TimeStepping())
    with pytest.raises(ns.OptionError, match=r"^system: .* use ns\.MultiPhase.* with ns\.solve"):
        ns.transcribe(ocp)
    for solver in (ns.Homotopy(), ns.Auto()):
        with pytest.raises(
            ns.OptionError, match=r"^solver: MinimumPrinciple has its own solver; solver= is for finite"
        ):
            ns.solve(ocp, ns.MinimumPrinciple(), solver)
    with pytest.raises(
        ns.OptionError, match=r"expected one made by ns\.CLS\(.*\), .* or ns\.HybridSystem.*, given int"
    ):
        ns.Simulator(3, step=0.1)
    with pytest.raises(ns.OptionError, match=r"system: given the class CLS; write ns\.CLS"):
        ns.Simulator(ns.CLS, step=0.1)
    with pytest.raises(ns.OptionError, match="callback"):
        ns.solve(ocp, ns.MinimumPrinciple(), callback=3)


def test_a_hybrid_system_is_solved_by_the_search_by_default() -> None:
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    floor = ns.StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], -0.5 * x[1]))
    ball = ns.HybridSystem(x=x, u=u, flow=ca.vertcat(x[1], u - 2), jumps=[floor])
    ocp = ns.OCP(ball, horizon=1.5, x0=[1, 0], stage_cost=u**2, terminal_cost=(x[0] - 1) ** 2)
    found = ns.solve(ocp, effort="quick")
    assert "Search" in found.method
    assert found.certificate.confirmed
    assert found.events[0].v_after == pytest.approx(-0.5 * found.events[0].v_before)


def test_systems_that_are_only_simulated() -> None:
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    hopper = ns.EventSelectedSystem(
        x=x,
        mode=mode,
        flow=ca.vertcat(x[1], 100 * mode * (1 - x[0]) - 9.81),
        guards=[ns.Guard.contact("foot", touchdown=1 - x[0])],
    )
    ball = ns.RigidBody.uniform(shape=ns.Sphere(0.5), planes=[ns.Plane("ground")])
    for system, own, start in (
        (hopper, "EventSelected", [2, 0]),
        (ball, "LieGroupVariational", ball.state((0, 0, 2))),
    ):
        assert len(ns.simulate(system, x0=start, duration=0.8).events) == 1
        for more, said in (
            ({"method": ns.FESD()}, rf"FESD does not fit .* use ns\.{own}"),
            ({"u": [1.0]}, "u: .*(no|neither) controls"),
            ({"callback": 5}, "callback: expected a function"),
            ({"time_limit": -1}, "time_limit: expected"),
        ):
            with pytest.raises(ns.OptionError, match=said):
                ns.simulate(system, x0=start, duration=1.0, **more)
        with pytest.raises(ns.ModelError, match="no controls, it is only simulated"):
            ns.OCP(system, horizon=1.0, x0=start)
        with pytest.raises(ns.OptionError, match=rf"fits none of .* use ns\.{own}\(\.\.\.\) with ns\.simulate"):
            ns.Simulator(system, step=0.1)
    with pytest.raises(ns.OptionError, match="tumbles chaotically"):
        ns.simulate(ball, x0=ball.state((0, 0, 2)), duration=1.0, sensitivities=True)
    impact = throw().system
    with pytest.raises(ns.OptionError, match=r"EventSelected does not fit an ns.CLS; use ns\.FESDJ"):
        ns.simulate(impact, x0=[0, 1.6], duration=1.0, method=ns.EventSelected())
    with pytest.raises(ns.OptionError, match="LieGroupVariational"):
        ns.simulate(impact, x0=[0, 1.6], duration=1.0, method=ns.LieGroupVariational())


def test_repr_says_why_it_ended() -> None:
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    sliding = ns.EventSelectedSystem(x=x, mode=mode, flow=ca.vertcat(1 - 2 * mode, 0), guards=[ns.Guard("wall", x[0])])
    found = ns.simulate(sliding, x0=[-1, 0], duration=2.0)
    assert found.status is ns.Status.NOT_EVENT_SELECTED
    assert "message: guard 'wall' is not crossed with speed at t = 1" in repr(found)
    assert found.status.remedy in repr(found)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda o: ns.solve(o, ns.FESDJ), r"method: given the class FESDJ; write ns.FESDJ\(\.\.\.\)"),  # type: ignore[arg-type]
        (lambda o: ns.solve(o, ns.MinimumPrinciple), r"write ns.MinimumPrinciple\(\.\.\.\)"),  # type: ignore[arg-type]
        (lambda o: ns.solve(o, METHOD, ns.Auto), r"solver: given the class Auto; write ns.Auto\(\.\.\.\)"),  # type: ignore[arg-type]
        (lambda o: ns.transcribe(o, ns.FESDJ), r"write ns.FESDJ\(\.\.\.\)"),  # type: ignore[arg-type]
        (
            lambda o: ns.simulate(o.system, x0=[0, 1], duration=1.0, method=ns.EventDriven),  # type: ignore[arg-type]
            r"write ns.EventDriven\(\.\.\.\)",
        ),
        (lambda o: ns.solve(o, ns.DirectShooting), "given DirectShooting"),  # type: ignore[arg-type]
    ],
)
def test_a_class_in_place_of_its_object(call: Any, message: str) -> None:
    with pytest.raises(ns.OptionError, match=message):
        call(throw())


@pytest.mark.parametrize("u", [lambda: 0.0, lambda t, x, p: 0.0, lambda t, *, gain: gain * t])
def test_functions_of_other_arguments_are_refused_before_anything_is_computed(u: Any) -> None:
    with pytest.raises(ns.TranscriptionError, match="u has to be a function of t, or of t and x, given <lambda>"):
        ns.simulate(throw().system, x0=[0, 1], duration=1.0, u=u)
    with pytest.raises(ns.TranscriptionError, match="guess: a control has to be a function of t, given <lambda>"):
        ns.solve(throw(), METHOD, guess=u)
    with pytest.raises(ns.TranscriptionError, match="guess x: a state has to be a function of t"):
        ns.solve(throw(), METHOD, guess={"x": u})


def test_functions_with_more_than_they_need() -> None:
    for u in (lambda t, gain=1.0: gain, lambda *arguments: 1.0, np.cos):
        found = ns.simulate(throw().system, x0=[0, 0], duration=0.1, steps=2, u=u)
        np.testing.assert_allclose(found.u[:, 0], 1.0, rtol=0, atol=0.01)
