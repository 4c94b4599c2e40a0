"""Trajectories and solutions: names, shapes, summaries."""

from __future__ import annotations

import copy
import json
import re
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest

import nosnoc_py.solution
from nosnoc_py.errors import OptionError, SolverError, TranscriptionError, UnknownNameError
from nosnoc_py.solution import EVENT_KINDS, Event, Residual, Series, Solution, Trajectory
from nosnoc_py.status import Status

pytestmark = pytest.mark.quick


def test_lookup_by_name(trajectory: Trajectory) -> None:
    np.testing.assert_array_equal(trajectory.t, [0, 1, 1, 3])
    np.testing.assert_allclose(trajectory["v"], [1, 1, -2, -2], atol=1e-14)
    np.testing.assert_array_equal(trajectory["thrust"], [5, -5])
    np.testing.assert_array_equal(trajectory["lambda_wall"], [0, 1.25])
    assert trajectory["mass"] == 1.5
    for name in ("q", "thrust", "lambda_wall"):
        assert trajectory.times(name).shape == trajectory[name].shape
    np.testing.assert_array_equal(trajectory.times("thrust"), [0, 1.5])
    assert trajectory.names == ("q", "v", "thrust", "lambda_wall", "Lambda_wall", "mass")


def test_unknown_name_suggests(trajectory: Trajectory) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'thrust'"):
        trajectory["trust"]
    with pytest.raises(UnknownNameError, match="'mass'"):
        trajectory.times("mass")


def test_state_and_control_at_a_time(trajectory: Trajectory) -> None:
    assert trajectory(1.0, "-")[1] == pytest.approx(1.0, abs=1e-14)
    assert trajectory(1.0)[1] == pytest.approx(-2.0, abs=1e-14)
    assert trajectory([0.1, 0.2, 0.3]).shape == (3, 2)
    np.testing.assert_array_equal(trajectory.control([0, 1.4, 1.5, 3])[:, 0], [5, 5, -5, -5])
    assert trajectory.control(3.0).shape == (1,)
    with pytest.raises(TranscriptionError, match=r"\[0, 3\]"):
        trajectory.control(3.1)


def test_without_interpolant_nodes_are_joined_by_lines(trajectory: Trajectory) -> None:
    lines = replace(trajectory, interpolant=None)
    t = np.linspace(0, 3, 13)
    for side in "-+":
        np.testing.assert_allclose(lines(t, side), trajectory(t, side), atol=1e-13)
    single = Trajectory(t=[2], x=[[7]], state_names=["q"], u_grid=[2], u=np.zeros((0, 0)), control_names=[])
    assert single(2.0, "-") == single(2.0) == [7.0]
    with pytest.raises(TranscriptionError, match="no control stages"):
        single.control(2.0)


def test_properties(trajectory: Trajectory) -> None:
    assert trajectory.success
    assert (trajectory.t0, trajectory.duration) == (0.0, 3.0)
    assert trajectory.impacts == (trajectory.events[0],)
    np.testing.assert_allclose(trajectory.final_state, [-3, -2], atol=1e-14)


def test_results_do_not_change(trajectory: Trajectory) -> None:
    with pytest.raises(FrozenInstanceError):
        trajectory.t = np.zeros(3)  # type: ignore[misc]
    for array in (trajectory.x, trajectory["q"], trajectory["lambda_wall"], trajectory.final_state):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    mine = np.zeros(2)
    series = Series(mine, mine)
    mine[0] = 1.0
    assert series.values[0] == 0.0


def test_results_travel_between_processes(solution: Solution) -> None:
    # deepcopy takes the same way as multiprocessing
    again = copy.deepcopy(solution)
    np.testing.assert_allclose(again(0.5), solution(0.5), rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((4, 3))}, r"x .*given an array of shape \(4, 3\), expected \(4, 2\)"),
        ({"u": np.zeros((3, 1))}, r"u .*\(3, 1\), expected \(2, 1\)"),
        ({"t": np.zeros((4, 1))}, r"t: .*\(4, 1\), expected \(nodes,\)"),
        ({"control_names": ("q",)}, r"unique.*\['q'\]"),
        ({"t": [], "x": np.zeros((0, 2))}, "at least 1"),
    ],
)
def test_shapes_are_checked(trajectory: Trajectory, change: dict, message: str) -> None:
    with pytest.raises(TranscriptionError, match=message):
        replace(trajectory, **change)


def test_events() -> None:
    event = Event(np.float64(1.0), "ground", "impact", impulse=np.float64(2.0))
    assert event.to_dict() == {
        "time": 1.0,
        "name": "ground",
        "kind": "impact",
        "impulse": 2.0,
        "v_before": None,
        "v_after": None,
        "energy_gain": None,
    }
    assert event == Event(1.0, "ground", "impact", 2.0)
    assert len(EVENT_KINDS) == 9
    with pytest.raises(TranscriptionError, match="Did you mean 'impact'"):
        Event(0.0, "ground", "impakt")


def test_residual_says_where() -> None:
    residual = Residual(1.2e-3, "complementarity", "gap ground", "control stage 3, finite element 1, RK stage 2")
    text = "1.20e-03 complementarity gap ground (control stage 3, finite element 1, RK stage 2)"
    assert str(residual) == text
    with pytest.raises(TranscriptionError, match="kind of residual"):
        Residual(1.0, "comp", "gap")


def test_raise_for_status(trajectory: Trajectory) -> None:
    trajectory.raise_for_status()
    failed = replace(trajectory, status=Status.LOCALLY_INFEASIBLE, message="restoration failed")
    with pytest.raises(SolverError, match=r"locally infeasible \(restoration failed\)\. No point nearby"):
        failed.raise_for_status()


def test_repr_is_a_small_tree(trajectory: Trajectory, solution: Solution) -> None:
    lines = repr(trajectory).splitlines()
    assert lines[0] == "Trajectory: solved, t = 0 .. 3 s, 4 nodes"
    assert lines[1] == "├── states (2): q, v"
    assert lines[-1] == "└── events (2): impact wall at 1, release wall at 2"
    assert "objective: 0.3" in repr(solution)


def test_to_dict_is_json(solution: Solution) -> None:
    summary = json.loads(json.dumps(solution.to_dict(), allow_nan=False))
    legal = {"status", "objective", "complementarity", "complementarity_min", "infeasibility", "iterations"}
    assert legal | {"wall_seconds", "events", "final_state"} <= summary.keys()
    assert summary["status"] == "not complementary"
    assert summary["complementarity_min"] is None  # infinity is no JSON
    assert summary["events"][0] == solution.events[0].to_dict()
    np.testing.assert_allclose(summary["final_state"], [-3, -2], atol=1e-14)


def test_summary_says_what_to_try(solution: Solution) -> None:
    text = solution.summary()
    for part in (
        "not complementary",
        "note: sigma_min reached",
        "objective: 0.3",
        "1.0e-04",
        "12 iterations in 1 steps",
    ):
        assert part in text
    assert "impact wall at 1, impulse 3 N s, velocity 1 -> -2" in text
    assert "RK stage 2" in text
    assert solution.status.remedy in text
    solved = replace(solution, status=Status.SOLVED).summary()
    assert "RK stage 2" not in solved
    assert "What to try" not in solved


def test_the_objective_of_an_infeasible_iterate_is_called_so(solution: Solution) -> None:
    infeasible = replace(solution, infeasibility=0.1)
    assert "(of an infeasible iterate)" in infeasible.summary()
    assert "infeasible iterate" not in solution.summary()


def test_to_xarray(trajectory: Trajectory) -> None:
    pytest.importorskip("xarray")
    dataset = trajectory.to_xarray()
    assert dict(dataset.sizes) == {"node": 4, "control_stage": 2, "sample": 2, "impact": 1}
    np.testing.assert_array_equal(dataset["v"], trajectory["v"])
    np.testing.assert_array_equal(dataset["control_stage_time"], [0, 1.5])
    assert dataset["v"].attrs["units"] == "m/s"
    assert float(dataset["mass"]) == 1.5


def test_to_dataframe(trajectory: Trajectory) -> None:
    pytest.importorskip("pandas")
    frame = trajectory.to_dataframe()
    assert list(frame.columns) == ["t", "q", "v"]
    np.testing.assert_array_equal(frame["v"], trajectory["v"])


@pytest.mark.parametrize("package", ["xarray", "pandas"])
def test_optional_packages_are_named(trajectory: Trajectory, monkeypatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(OptionError, match=rf'needs {package}, .* pip install "nosnoc_py\[data\]"'):
        trajectory.to_xarray() if package == "xarray" else trajectory.to_dataframe()


def test_solution_room_imports_numbers_only() -> None:
    # read from the sources, so that what the package's front door imports does not count
    for path in Path(nosnoc_py.solution.__file__).parent.glob("*.py"):
        roots = set(re.findall(r"^(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        assert not roots & {"casadi", "matplotlib", "scipy", "xarray", "pandas"}, path
