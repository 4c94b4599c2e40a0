"""Optimal control of Filippov systems: cars with turbo and hysteresis, a cart with dry friction, against references."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from models import hysteresis_car as hysteresis_model
from models import turbo_car as turbo_model
from problems import cart_pole_friction, hysteresis_car, turbo_car
from problems.runner import Program, main

PROGRAMS = (turbo_car.PROGRAM, hysteresis_car.PROGRAM, cart_pole_friction.PROGRAM)
PNG = b"\x89PNG\r\n\x1a\n"


def run_json(program: Program, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = main(program, ["--json", *arguments])
    results: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == (0 if results["status"] == "solved" else 1)
    assert results["complementarity"] <= 1e-8
    assert results["infeasibility"] <= 1e-8
    return results


# --- turbo ---


@pytest.mark.parametrize("mode", ["stewart", "step"])
@pytest.mark.parametrize(("distance", "stages"), [(130.0, 6), (200.0, 10)])
def test_the_turbo_car_takes_the_time_of_the_closed_form(mode: str, distance: float, stages: int) -> None:
    """With 6 stages that of all controls, 9 s; with 10 that of ten equal stages, 12.01659 s, and not 11.8 s."""
    method = turbo_car.METHOD.replace(control_stages=stages, dcs_mode=mode)
    solution = ns.solve(turbo_car.build(distance), method)
    assert solution.success
    expected, control = turbo_model.fastest_stages(distance, stages)
    assert solution.objective == pytest.approx(expected, abs=1e-6)
    assert solution.duration == pytest.approx(solution.objective, abs=1e-12)
    np.testing.assert_allclose(solution.u[:, 0], control, rtol=0, atol=1e-5)
    states, crossings = turbo_model.motion(solution.u[:, 0], solution.duration)
    # equations hold to 1e-9 per element, and their errors add up over 9 to 12 s
    np.testing.assert_allclose(solution(solution.u_grid), states, rtol=0, atol=1e-7)
    assert [event.time for event in solution.events] == pytest.approx(crossings, abs=1e-8)
    off_grid = np.abs(np.subtract.outer(crossings, solution.u_grid)).min(axis=1)
    assert off_grid.max() > 0.3  # the turbo switches inside of control stages


def test_a_fixed_grid_arrives_elsewhere() -> None:
    """The negative control: its own optimum is "solved", and its control misses the goal."""
    method = turbo_car.METHOD.replace(switch_detection=False)
    solution = ns.solve(turbo_car.build(), method)
    states, _ = turbo_model.motion(solution.u[:, 0], solution.duration)
    assert np.abs(states[-1] - [130.0, 0.0]).max() > 0.1


def test_the_turbo_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    results = run_json(turbo_car.PROGRAM, capsys, "--quick", "--figures", str(tmp_path))
    assert results["reference"]["fastest_time_of_stages"] == pytest.approx(9.0, abs=1e-9)
    assert abs(results["reference"]["time_error"]) < 1e-6
    assert results["reference"]["motion_error"] < 1e-9
    assert (tmp_path / "turbo_car.png").read_bytes()[:8] == PNG


def test_below_the_threshold_it_is_the_double_integrator(capsys: pytest.CaptureFixture[str]) -> None:
    """15 m are driven without reaching 10 m/s, in 2 sqrt(15 / 5) s."""
    results = run_json(turbo_car.PROGRAM, capsys, "--set", "distance=15", "control_stages=2")
    assert results["objective"] == pytest.approx(2 * np.sqrt(15 / 5), abs=1e-6)
    assert results["events"] == []


# --- hysteresis ---


GRIDS = (("stewart", 5), ("step", 4))


@cache
def hysteresis_drive(mode: str, stages: int) -> ns.Solution:
    method = hysteresis_car.METHOD.replace(dcs_mode=mode, control_stages=stages)
    return ns.solve(hysteresis_car.build(regions="signs" if mode == "step" else "indicators"), method)


def best_drive() -> ns.Solution:
    return min((hysteresis_drive(*grid) for grid in GRIDS), key=lambda solution: solution.objective)


@pytest.mark.parametrize(("mode", "stages"), GRIDS)
def test_the_car_with_hysteresis_drives_as_it_says(mode: str, stages: int) -> None:
    """Whichever minimum is found: not faster than the fastest, not slower than without the turbo (13 s)."""
    solution = hysteresis_drive(mode, stages)
    assert solution.success
    assert hysteresis_model.fastest_time(150.0) - 1e-6 <= solution.objective <= 13.0 + 1e-6
    drive, lengths = hysteresis_car.driven(solution)
    assert lengths.sum() == pytest.approx(solution.objective, abs=1e-9)
    np.testing.assert_allclose(drive.x[-1], [150.0, 0.0], rtol=0, atol=1e-6)


def test_on_one_of_the_grids_it_takes_the_time_of_the_hybrid_optimum() -> None:
    """A stage too many or too few may end in a local optimum."""
    solution = best_drive()
    assert solution.objective == pytest.approx(hysteresis_model.fastest_time(150.0), abs=1e-6)
    drive, _ = hysteresis_car.driven(solution)
    assert [what for _, what in drive.changes] == ["on", "off"]
    times = [time for time, _ in drive.changes]
    assert times == pytest.approx([3.0, solution.objective - 2.0], abs=1e-6)


def test_the_clock_stands_still_while_the_turbo_changes() -> None:
    solution = best_drive()
    changing = (solution.x[:-1, 2] < 1e-6) & (solution.x[1:, 2] > 1 - 1e-6)
    assert changing.sum() == 1
    k = int(np.flatnonzero(changing)[0])
    np.testing.assert_allclose(solution.x[k : k + 2, 1], 15.0, rtol=0, atol=1e-8)
    assert np.diff(solution.x[k : k + 2, 3])[0] == pytest.approx(0.0, abs=1e-8)
    assert solution.t[k + 1] - solution.t[k] > 0.05


@pytest.mark.slow
def test_the_hysteresis_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    results = run_json(hysteresis_car.PROGRAM, capsys, "--quick", "--figures", str(tmp_path))
    assert results["reference"]["final_error"] < 1e-6
    assert results["objective"] >= results["reference"]["fastest_time"] - 1e-6
    assert (tmp_path / "hysteresis_car.png").read_bytes()[:8] == PNG


# --- cart with friction ---


@pytest.fixture(scope="module")
def swing_up() -> ns.Solution:
    return ns.solve(cart_pole_friction.build(), cart_pole_friction.METHOD, guess=cart_pole_friction.guess)


def test_the_swing_up_is_what_its_control_does(swing_up: ns.Solution) -> None:
    """The independent simulation ends within 1e-6, although the upright pole magnifies every error."""
    assert swing_up.success
    np.testing.assert_allclose(swing_up.final_state, cart_pole_friction.UPRIGHT, rtol=0, atol=1e-8)
    friction = cart_pole_friction.PROGRAM.settings.arguments["friction"]
    found = cart_pole_friction.held_against(swing_up, {"friction": friction})
    assert found["final_error"] < 1e-6
    cost = float(swing_up.u[:, 0] @ swing_up.u[:, 0]) * 3.0 / 20
    assert swing_up.objective == pytest.approx(cost, abs=1e-8)


def test_its_cart_sticks_and_so_does_that_of_the_reference(swing_up: ns.Solution) -> None:
    sticks = cart_pole_friction.sticks(swing_up)
    assert sum(end - begin for begin, end in sticks) > 0.3
    assert len(sticks) >= 2
    motion = cart_pole_friction.resimulated(swing_up, 5.0)
    longest = max(sticks, key=lambda phase: phase[1] - phase[0])
    nearest = min(motion.sticks, key=lambda phase: abs(phase[0] - longest[0]))
    assert nearest == pytest.approx(longest, abs=1e-4)
    for begin, end in sticks:
        inside = np.linspace(begin, end, 20)[1:-1]
        assert np.abs(swing_up(inside)[:, 1 + 1]).max() < 1e-8


def test_another_friction_ends_elsewhere(swing_up: ns.Solution) -> None:
    """The re-simulation would notice a wrong model."""
    assert cart_pole_friction.held_against(swing_up, {"friction": 4.9})["final_error"] > 0.01


@pytest.mark.slow
def test_friction_makes_the_swing_up_dearer(swing_up: ns.Solution) -> None:
    method = cart_pole_friction.METHOD.replace(rk_stages=3)
    easy = ns.solve(cart_pole_friction.build(friction=0.1), method, guess=cart_pole_friction.guess)
    assert easy.success
    assert easy.objective < 0.8 * swing_up.objective


@pytest.mark.slow
def test_a_fixed_grid_swings_up_in_its_own_world() -> None:
    """The negative control: without switch detection the control found does not end upright."""
    method = cart_pole_friction.METHOD.replace(switch_detection=False)
    solution = ns.solve(cart_pole_friction.build(), method, guess=cart_pole_friction.guess, time_limit=600)
    found = cart_pole_friction.held_against(solution, {"friction": 5.0})
    assert found["final_error"] > 1e-3


@pytest.mark.slow
def test_the_cart_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    results = run_json(cart_pole_friction.PROGRAM, capsys, "--quick", "--figures", str(tmp_path))
    assert results["reference"]["final_error"] < 0.01
    assert (tmp_path / "cart_pole_friction.png").read_bytes()[:8] == PNG


# --- all ---


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_wrong_key_is_one_clear_error(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(program, ["--quick", "--set", "speeed=1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"problems.{program.name}: unknown key 'speeed'")


@pytest.mark.parametrize(
    ("program", "change"),
    [
        (turbo_car.PROGRAM, "threshold=30"),
        (turbo_car.PROGRAM, "dcs_mode=filippov"),
        (hysteresis_car.PROGRAM, "regions=voronoi"),
        (cart_pole_friction.PROGRAM, "friction=-1"),
    ],
)
def test_a_wrong_value_is_one_clear_error(program: Program, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(program, ["--set", change]) == 2
    assert capsys.readouterr().err.startswith(f"problems.{program.name}: ")


def test_step_functions_need_signs() -> None:
    with pytest.raises(ns.OptionError, match="step functions need switching functions and signs"):
        ns.transcribe(hysteresis_car.build(), hysteresis_car.METHOD.replace(dcs_mode="step"))
