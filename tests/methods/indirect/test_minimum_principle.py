"""The minimum principle as a method: statuses, history, refinement to the exact optimum, and what it refuses."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import stick_slip, tilted_block
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.methods.indirect import boundary_value, minimum_principle
from nosnoc_py.methods.indirect.minimum_principle import LABEL, MinimumPrinciple
from nosnoc_py.methods.indirect.successive_approximation import UniformGrid
from nosnoc_py.solution.solution import costate_name
from nosnoc_py.status import Status
from nosnoc_py.systems.hybrid import HybridSystem, StateJump
from problems import two_discs
from tests.pairwise import slow_but
from tests.references.multi_phase import multi_phase
from tests.references.two_discs import optimum

ALL = list(two_discs.EXPERIMENTS)
REFINED = MinimumPrinciple(steps=60, refine=True)


def start(experiment: str) -> Any:
    return np.array(two_discs.EXPERIMENTS[experiment].control)


def solved(experiment: str, method: MinimumPrinciple = REFINED, **data: Any) -> ns.Solution:
    return method.solve(two_discs.build(experiment, **data), guess=start(experiment))


@pytest.mark.parametrize("experiment", ALL)
def test_refinement_gives_the_exact_optimum(experiment: str) -> None:
    found, exact = solved(experiment), optimum(experiment)
    assert found.status is Status.SOLVED
    assert found.objective == pytest.approx(exact.objective, abs=1e-12)
    assert found.infeasibility < 1e-11
    np.testing.assert_allclose([event.time for event in found.events], exact.times, atol=1e-12)
    t = np.linspace(0, 1, 201)
    apart = np.abs(t[:, None] - np.array(exact.times)).min(axis=1) > 1e-3
    np.testing.assert_allclose(found.control(t)[apart], exact.control(t)[apart], atol=1e-9)
    np.testing.assert_allclose(found(t)[apart], exact.state(t)[apart], atol=1e-10)


@pytest.mark.parametrize("experiment", ["concentric", "general", "wall"])
def test_other_masses_and_restitution_agree_with_a_program_in_phases(experiment: str) -> None:
    data: dict[str, Any] = {"masses": (1.0, 1.5), "restitution": 0.7}
    found = solved(experiment, **data)
    assert found.status is Status.SOLVED
    ocp = two_discs.build(experiment, **data)
    elastic = optimum(experiment)  # of equal masses: a guess that knows nothing of what was found
    independent = multi_phase(ocp, elastic.contacts, elastic.times, elastic.control)
    assert independent.success
    assert found.objective == pytest.approx(independent.objective, abs=1e-9)
    np.testing.assert_allclose([event.time for event in found.events], independent.times, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ALL)
def test_the_referee_confirms_a_refined_solution(experiment: str) -> None:
    """The control goes to the simulator with its dense output: nothing is lost between the two."""
    ocp, found = two_discs.build(experiment), solved(experiment)
    again = ns.simulate(ocp.system, x0=ocp.x0, duration=1.0, u=found, method=ns.EventDriven())
    np.testing.assert_allclose(again.final_state, found.final_state, atol=1e-8)
    np.testing.assert_allclose([e.time for e in again.events], [e.time for e in found.events], atol=1e-9)
    certificate = ns.certify(ocp, found)
    assert certificate.verdict is ns.Verdict.CONFIRMED, str(certificate)


def test_the_moving_grid_accelerated_agrees() -> None:
    method = MinimumPrinciple(grid="moving", acceleration=5, tolerance=1e-11)
    for experiment in ("concentric", "general", "wall"):
        found = solved(experiment, method)
        assert found.status is Status.SOLVED
        assert found.objective == pytest.approx(optimum(experiment).objective, abs=1e-12)
        assert found.iterations < 150


def test_init_step_terminate_is_the_loop_of_run() -> None:
    method = MinimumPrinciple(steps=60, max_iterations=7)
    ocp = two_discs.build("general")
    state = method.init(ocp, start("general"))
    controls = []
    while (status := method.terminate(state)) is None:
        controls.append(state.control)
        state = method.step(state)
    assert status is Status.ITERATION_LIMIT
    assert len(controls) == 7
    assert "7 iterations" in repr(state)
    found = method.solve(ocp, guess=start("general"))
    assert found.status is status
    # Two computations: products of matrices round differently with the place of an array in memory.
    assert found.objective == pytest.approx(method.solution(state).objective, rel=1e-12)
    np.testing.assert_allclose(found.u[:10], controls[-1][:10], rtol=0, atol=1e-9)


def test_the_log_is_the_history_and_survives_the_disk(tmp_path: Path) -> None:
    found = solved("wall", MinimumPrinciple(steps=120, tolerance=1e-3))
    assert found.status is Status.SOLVED
    assert [record.label for record in found.log] == [LABEL] * found.iterations
    slopes = [record.slope for record in found.log]
    assert slopes[-1] is not None
    assert slopes[-1] < 1e-3 < slopes[-2]  # type: ignore[operator]
    assert [name for name, _ in found.log[-1].collisions] == ["discs", "wall_2"]
    assert found.log[-1].collisions[0][1] == pytest.approx(found.events[0].time, abs=1e-12)
    loaded = ns.load(found.save(tmp_path / "found.nc"))
    assert isinstance(loaded, ns.Solution)
    assert loaded.log == found.log
    np.testing.assert_array_equal(loaded.control(np.linspace(0, 1, 7)), found.control(np.linspace(0, 1, 7)))
    assert "failed" not in ns.explain(found)


def test_costates_are_series_and_end_at_the_gradient_of_the_cost() -> None:
    found = solved("general")
    final = [found[costate_name(name)][-1] for name in found.state_names]
    np.testing.assert_allclose(final, [0, 0, *(2 * found.final_state[2:4]), 0, 0, 0, 0], atol=1e-12)


def test_a_dense_control_survives_the_disk(tmp_path: Path) -> None:
    found = solved("general")
    loaded = ns.load(found.save(tmp_path / "found.nc"))
    t = np.linspace(0, 1, 77)
    np.testing.assert_array_equal(loaded.control(t), found.control(t))


def test_a_callback_stops_and_time_ends() -> None:
    seen: list[int] = []

    def callback(state: Any) -> Any:
        seen.append(state.iterations)
        return ns.Stop if len(seen) == 5 else None

    ocp = two_discs.build("general")
    found = MinimumPrinciple(steps=60).solve(ocp, guess=start("general"), callback=callback)
    assert found.status is Status.STOPPED
    assert seen == [1, 2, 3, 4, 5]
    assert len(found.events) == 1


@pytest.mark.parametrize("grid", ["uniform", "moving"])
def test_without_time_the_first_pass_is_made(grid: Any) -> None:
    found = MinimumPrinciple(grid=grid).solve(two_discs.build("general"), guess=start("general"), time_limit=0.0)
    assert found.status is Status.TIME_LIMIT
    assert found.iterations == 1
    # constant force 3: the discs meet after 0.6 m, and disc 2 goes on with the speed of disc 1
    meeting = np.sqrt(0.4)
    exact = 1.0 + (-1.0 + (1.0 - meeting) * 3.0 * meeting) ** 2 + 0.09
    assert found.objective == pytest.approx(exact, abs=1e-2 if grid == "uniform" else 1e-12)
    np.testing.assert_allclose(found.control(np.array([0.1, 0.9])), [[0.0, 3.0], [0.0, 3.0]], atol=1e-12)


def test_a_start_without_collision_is_a_status_of_its_own() -> None:
    for grid in ("uniform", "moving"):
        found = MinimumPrinciple(steps=60, grid=grid).solve(two_discs.build("general"))
        assert found.status is Status.COLLISION_LOST
        assert not found.success
        assert "the initial control leads to no collision" in found.message
        assert "guess" in found.status.remedy
        assert found.t[-1] == 1.0


def test_a_collision_lost_on_the_way_keeps_the_last_iterate() -> None:
    found = solved("general", MinimumPrinciple(steps=60, relaxation=0.5))
    assert found.status is Status.COLLISION_LOST
    assert "the last update leads to no collision" in found.message
    assert len(found.events) == 1


@pytest.mark.parametrize("experiment", ["general", "length"])
def test_a_step_that_loses_the_collision_is_taken_back(experiment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acceleration from the start leaps too far; without shorter steps that is the end."""
    tolerance = 1e-6 if experiment == "general" else 1e-4
    method = MinimumPrinciple(grid="moving", acceleration=5, tolerance=tolerance)
    ocp = two_discs.build(experiment)
    found = method.solve(ocp, guess=start(experiment))
    assert found.status is Status.SOLVED
    assert found.objective == pytest.approx(optimum(experiment).objective, abs=1e-3)
    assert found.iterations < 100
    monkeypatch.setattr(minimum_principle, "MAX_RETRIES", 0)
    found = method.solve(ocp, guess=start(experiment))
    assert found.status is Status.COLLISION_LOST
    assert len(found.events) == 1


def test_algorithm_1_takes_no_step_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain, on equal steps, it ends where the paper's does; so do all methods whose start does not collide."""
    monkeypatch.setattr(minimum_principle, "MAX_RETRIES", 1000)
    found = solved("general", MinimumPrinciple(steps=60, relaxation=0.5))
    assert found.status is Status.COLLISION_LOST
    for grid in ("uniform", "moving"):
        method = MinimumPrinciple(steps=60, grid=grid, acceleration=5)
        assert method.solve(two_discs.build("general")).status is Status.COLLISION_LOST


def test_acceleration_begins_after_its_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    for delay, same in ((10, 11), (30, 31)):
        ocp, histories = two_discs.build("concentric"), []
        for depth in (0, 5):
            monkeypatch.setattr(minimum_principle, "ACCELERATION_DELAY", delay)
            method = MinimumPrinciple(grid="moving", acceleration=depth, max_iterations=delay + 6, tolerance=1e-12)
            found = method.solve(ocp, guess=start("concentric"))
            histories.append([record.slope for record in found.log])
        plain, fast = (np.array(history) for history in histories)
        np.testing.assert_allclose(fast[:same], plain[:same], rtol=1e-12)
        assert fast[-1] < 0.5 * plain[-1]


def test_accelerated_iterates_on_equal_steps_stay_within_bounds() -> None:
    free = two_discs.build("concentric")
    bounds = ns.Bounds(u=([-3.0, -3.0], [3.0, 3.0]))
    ocp = ns.OCP(
        free.system,
        horizon=1.0,
        x0=free.x0,
        stage_cost=free.stage_cost,
        terminal_cost=free.terminal_cost,
        bounds=bounds,
    )
    method = MinimumPrinciple(steps=60, acceleration=5, max_iterations=150, tolerance=1e-12)
    state, largest = method.init(ocp, [2.8, 2.8]), []
    while method.terminate(state) is None:
        state = method.step(state)
        largest.append(np.abs(state.control).max())
    assert max(largest) == 3.0


@pytest.mark.slow
def test_a_limit_of_iterations_says_that_they_oscillate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without search (Eqs. 23-24) |H_u| never falls below some 0.01; with it, more iterations help."""
    with monkeypatch.context() as patch:
        patch.setattr(minimum_principle, "UniformGrid", partial(UniformGrid, search=0.0))
        found = solved("general", MinimumPrinciple(steps=120, max_iterations=2000))
    assert found.status is Status.ITERATION_LIMIT
    assert "oscillates" in found.message
    assert "grid='moving'" in found.message
    found = solved("general", MinimumPrinciple(steps=120, max_iterations=1000))
    assert found.status is Status.ITERATION_LIMIT
    assert found.message == ""


@pytest.mark.parametrize(
    "status", slow_but([Status.NO_DESCENT], [Status.NOT_AN_OPTIMUM, Status.NO_DESCENT, Status.ITERATION_LIMIT])
)
def test_a_refinement_that_fails_is_no_success(status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(problem: Any, motion: Any) -> boundary_value.BoundaryValueResult:
        return boundary_value.BoundaryValueResult(
            motion=None, residual=np.inf, iterations=3, reason="no luck", status=status, arcs=()
        )

    monkeypatch.setattr(boundary_value, "polish", failed)
    found = solved("concentric", MinimumPrinciple(steps=60, refine=True, tolerance=1e-3))
    assert found.status is status
    assert found.message == "refinement: no luck"
    assert found.objective > optimum("concentric").objective + 1e-3  # the iterate is kept
    assert found.log[-1].slope is not None


def test_the_record_of_a_refinement_is_that_of_its_motion() -> None:
    found, exact = solved("wall"), optimum("wall")
    before, last = found.log[-2:]
    assert before.slope is not None
    assert last.slope is None
    assert last.objective == pytest.approx(found.objective, rel=1e-12)
    np.testing.assert_allclose([time for _, time in last.collisions], exact.times, atol=1e-12)
    assert abs(before.collisions[0][1] - exact.times[0]) > 1e-4


@pytest.mark.parametrize(
    "method",
    [
        MinimumPrinciple(steps=60, refine=True, relaxation=0.005),
        MinimumPrinciple(grid="moving", acceleration=5, relaxation=0.005, refine=True),
    ],
)
def test_a_neuron_is_left_away_from_its_threshold(method: MinimumPrinciple) -> None:
    """x' = u, spike at 1, back to 0: u = S is constant, S = 1 + x(1) minimises S^2 + 100 (S - 1.5)^2."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    spike = StateJump("spike", guard=1 - x, reset=ca.SX(0))
    system = HybridSystem(x=x, u=u, flow=u, jumps=[spike])
    ocp = ns.OCP(system, horizon=1.0, x0=[0.0], stage_cost=u**2, terminal_cost=100 * (x - 0.5) ** 2)
    found = method.solve(ocp, guess=[1.6])
    assert found.status is Status.SOLVED, found.message
    size = 150 / 101
    assert found.objective == pytest.approx(size**2 + 100 * (size - 1.5) ** 2, abs=1e-12)
    assert found.events[0].time == pytest.approx(1 / size, abs=1e-12)


def test_simultaneous_and_tangent_collisions_are_statuses() -> None:
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u", 2)
    jumps = [
        StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], x[1], -x[2], x[3])),
        StateJump("side", guard=x[1], reset=ca.vertcat(x[0], x[1], x[2], -x[3])),
    ]
    system = HybridSystem(x=x, u=u, flow=ca.vertcat(x[2], x[3], u), jumps=jumps)
    ocp = ns.OCP(system, horizon=1.0, x0=[0.5, 0.5, -1.0, -1.0], stage_cost=ca.sumsqr(u))
    found = MinimumPrinciple(steps=50).solve(ocp)
    assert found.status is Status.SIMULTANEOUS
    assert "'floor' and 'side'" in found.message
    assert "FESDJ" in found.status.remedy
    y, w = ca.SX.sym("y", 2), ca.SX.sym("w")
    ceiling = StateJump("ceiling", guard=(y[0] - 1) ** 2, reset=ca.vertcat(y[0], -y[1]))
    tangent = HybridSystem(x=y, u=w, flow=ca.vertcat(y[1], w), jumps=[ceiling])
    ocp = ns.OCP(tangent, horizon=1.0, x0=[0.0, 2.0], stage_cost=w**2)
    found = MinimumPrinciple(steps=2).solve(ocp)
    assert found.status is Status.GRAZING
    assert "'ceiling'" in found.message
    assert "transversality" in found.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x0": None}, "a free initial state"),
        ({"horizon": ns.FreeTime(0.5, 2.0)}, "a free horizon"),
        ({"bounds": ns.Bounds(x=(-10, 10))}, "bounds on states"),
        ({"terminal": True}, "terminal constraints"),
        ({"path": True}, r"'path_0' is not a bound on the length"),
        ({"stage_cost": 0}, "unbounded below"),
    ],
)
def test_what_the_method_cannot_take_is_an_error_with_a_way_out(changes: dict[str, Any], message: str) -> None:
    ocp = two_discs.build("general")
    given: dict[str, Any] = {"horizon": 1.0, "x0": ocp.x0, "stage_cost": ocp.stage_cost}
    if changes.pop("terminal", False):
        changes["terminal_constraints"] = [ns.Constraint(ocp.system.q[0], 0, 0)]
    if changes.pop("path", False):
        changes["path_constraints"] = [ns.Constraint(ocp.system.q[0], 0, 0)]
    with pytest.raises(OptionError, match=rf"MinimumPrinciple.*{message}"):
        MinimumPrinciple().solve(ns.OCP(ocp.system, **{**given, **changes}))


def test_systems_with_friction_or_without_collisions_name_the_method_that_fits() -> None:
    friction = tilted_block.build()
    with pytest.raises(ModelError, match=r"friction.*FESDJ"):
        MinimumPrinciple().solve(ns.OCP(friction, horizon=1.0, x0=np.zeros(len(friction.state_names))))
    filippov = stick_slip.build()
    ocp = ns.OCP(filippov, horizon=1.0, x0=np.zeros(len(filippov.state_names)))
    with pytest.raises(OptionError, match=r"(PSS|Heaviside).*FESD"):
        MinimumPrinciple().solve(ocp)


@pytest.mark.parametrize("options", [{"relaxation": 0.0}, {"relaxation": 1.5}, {"grid": "fine"}, {"step": 3}])
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        MinimumPrinciple(**options)
