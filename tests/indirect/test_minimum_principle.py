"""The minimum principle as a method: statuses, history, refinement to the exact optimum, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import stick_slip, tilted_block
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.indirect.minimum_principle import LABEL, MinimumPrinciple
from nosnoc_py.solution.solution import costate_name
from nosnoc_py.status import Status
from nosnoc_py.systems.hybrid import HybridSystem, StateJump
from problems import two_discs
from problems.multi_phase import multi_phase
from problems.two_discs_references import optimum

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
    assert found.objective == method.solution(state).objective
    np.testing.assert_array_equal(found.u[:10], controls[-1][:10])


def test_the_log_is_the_history_and_survives_the_disk(tmp_path: Path) -> None:
    found = solved("wall", MinimumPrinciple(steps=120, tolerance=1e-3))
    assert found.status is Status.SOLVED
    assert [record.label for record in found.log] == [LABEL] * found.iterations
    slopes = [record.slope for record in found.log]
    assert slopes[-1] is not None
    assert slopes[-1] < 1e-3 < slopes[-2]  # type: ignore[operator]
    assert [name for name, _ in found.log[-1].collisions] == ["discs", "wall_2"]
    assert found.log[-1].collisions[0][1] == found.events[0].time
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
    assert MinimumPrinciple().solve(ocp, guess=start("general"), time_limit=0.0).status is Status.TIME_LIMIT


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


def test_zero_is_a_stationary_point_and_no_success() -> None:
    """Without the demand for a collision the trap is visible: H_u = 0 at u = 0."""
    found = MinimumPrinciple(steps=60, require_collision=False).solve(two_discs.build("general"))
    assert found.status is Status.SOLVED
    assert found.objective == pytest.approx(2.0)
    assert found.objective > 6 * optimum("general").objective


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
    with pytest.raises(OptionError, match=r"PSS|Heaviside.*FESD"):
        MinimumPrinciple().solve(ocp)


@pytest.mark.parametrize("options", [{"relaxation": 0.0}, {"relaxation": 1.5}, {"grid": "fine"}, {"step": 3}])
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        MinimumPrinciple(**options)
