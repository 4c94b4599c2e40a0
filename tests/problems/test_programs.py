"""Every problem runs from the command line: JSON, exit codes, figures, errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems import bouncing_ball, disc_manipulation, disc_shot
from problems.benchmarks import (
    event_selected_hopper,
    event_selected_mujoco,
    event_selected_order,
    many_balls,
    plate_on_springs,
    two_balls_order,
)
from problems.runner import Program, main
from tests.problems.command_line import PNG, run_json

PROGRAMS = tuple(
    problem.PROGRAM
    for problem in (
        bouncing_ball,
        disc_manipulation,
        disc_shot,
        two_balls_order,
        event_selected_order,
        event_selected_hopper,
        event_selected_mujoco,
        plate_on_springs,
    )
)


def test_bouncing_ball(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(bouncing_ball.PROGRAM, capsys, "--quick")
    assert results["objective"] is None
    assert results["figures"] == []
    times = [event["time"] for event in results["events"] if event["kind"] == "impact"]
    assert times == pytest.approx([0.451523640986, 1.264266194760], abs=1e-11)
    assert max(results["errors"]["impact_times"]) < 1e-12
    assert results["errors"]["final_state"] < 1e-12
    assert results["infeasibility"] < 1e-9


def test_what_is_printed_fits_a_screen_and_says_nothing_twice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(bouncing_ball.PROGRAM, ["--figures", str(tmp_path)]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert "errors and references:" in lines
    assert len(lines) <= 25
    assert len(set(lines)) == len(lines)


@pytest.mark.slow
def test_the_first_command_of_the_readme_ends_in_a_confirmed_motion(capsys: pytest.CaptureFixture[str]) -> None:
    """The plain call, a minute of processor time; one impact, past the post."""
    results = run_json(disc_shot.PROGRAM, capsys)
    assert results["certificate"]["verdict"] == "confirmed"
    assert results["objective"] <= 1.01 * 7.4792488
    assert [event["kind"] for event in results["events"]] == ["impact"]
    assert results["reference"]["goal missed by [m]"] < 1e-6
    assert results["reference"]["post [m]"] > -1e-6


def test_every_option_reaches_the_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ("restitution=0.5", "scheme=gauss_legendre", "rk_stages=1", "duration=1", "steps=20")
    results = run_json(bouncing_ball.PROGRAM, capsys, "--set", *changes)
    before, after = results["events"][0]["v_before"], results["events"][0]["v_after"]
    assert after == pytest.approx(-0.5 * before, abs=1e-12)
    assert results["errors"]["final_state"] < 1e-12


def test_discs_quick(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    results = run_json(disc_manipulation.PROGRAM, capsys, "--quick", "--figures", str(tmp_path))
    check_discs(results)
    certificate = results["certificate"]
    assert certificate["verdict"] in {verdict.value for verdict in ns.Verdict}
    assert certificate["objective"] == results["objective"]
    assert certificate["referee_status"] == "solved"
    assert [Path(path).name for path in results["figures"]] == ["disc_manipulation_frames.png", "disc_manipulation.png"]
    assert all(Path(path).read_bytes()[:8] == PNG for path in results["figures"])


@pytest.mark.slow
def test_discs_in_full() -> None:
    """The acceptance limits of the manipulation task, from the shipped cold start."""
    solution = disc_manipulation.run(disc_manipulation.PROGRAM.settings, Progress()).results
    check_discs(solution)
    assert solution["objective"] <= 720.0
    assert solution["certificate"]["verdict"] in ("same events, inaccurate", "confirmed")
    distance = np.abs(np.subtract(solution["final_state"], disc_manipulation.TARGET))[:4]
    assert distance.max() < 0.1


def check_discs(results: Any) -> None:
    assert results["status"] == "solved"
    assert results["complementarity"] <= 1e-8
    assert results["complementarity_min"] <= 1e-6
    assert results["infeasibility"] <= 1e-8
    assert any(event["kind"] == "impact" for event in results["events"])


@pytest.mark.slow
def test_smooth_drag_leaves_the_symmetric_saddle(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(disc_manipulation.PROGRAM, capsys, "--quick", "--set", "drag=smooth")
    check_discs(results)
    assert results["objective"] < 2000.0  # the saddle, disc 1 stuck before the obstacle, has some 28000


def test_a_failure_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(
        disc_manipulation.PROGRAM, capsys, "--quick", "--set", "solver=homotopy", "max_iterations=3", "sigma_min=0.1"
    )
    assert results["status"] != "solved"


@pytest.mark.slow
def test_order_experiment_quick(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(two_balls_order.PROGRAM, capsys, "--quick", "--set", "stages=3", "steps=100,141,200")
    assert results["orders"]["Radau 3"] == pytest.approx(5, abs=0.4)
    assert results["orders"]["Gauss 3"] == pytest.approx(6, abs=0.4)
    assert results["errors"]["Gauss 3"].keys() == {"100", "141", "200"}
    assert set(results["failures"].values()) == {0}
    times = [event["time"] for event in results["events"] if event["kind"] == "impact"]
    assert times == pytest.approx([0.403855021876922, 0.423316968814707], abs=1e-8)


@pytest.mark.slow
def test_many_balls_quick(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(many_balls.PROGRAM, capsys, "--quick")
    assert results["penetration"] < 0.02
    assert sum(event["kind"] == "impact" for event in results["events"]) > 10


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_wrong_key_names_the_legal_ones(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(program, ["--quick", "--set", "restitusion=1"]) == 2
    said = capsys.readouterr().err
    assert "unknown key 'restitusion'" in said
    assert all(name in said for name in program.settings.keys)


@pytest.mark.parametrize(
    ("program", "change"),
    [
        (disc_manipulation.PROGRAM, "drag=rough"),
        (bouncing_ball.PROGRAM, "restitution=2"),
        (bouncing_ball.PROGRAM, "steps=many"),
        (two_balls_order.PROGRAM, "schemes=euler"),
        (two_balls_order.PROGRAM, "stiffness=-1"),
        (event_selected_order.PROGRAM, "scheme=radau_iia"),
        (event_selected_order.PROGRAM, "step=-1"),
        (event_selected_hopper.PROGRAM, "stiffness=-1"),
        (plate_on_springs.PROGRAM, "contacts=1"),
    ],
)
def test_a_wrong_value_is_one_clear_error(program: Program, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(program, ["--quick", "--set", change]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"problems.{program.name}: ")


@pytest.mark.slow
def test_as_a_module_with_a_summary_and_a_figure(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "problems.bouncing_ball", "--quick"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(root), "PATH": ""}, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    assert "0.451523641" in done.stdout
    assert "figure: figures/bouncing_ball.png" in done.stdout
    assert (tmp_path / "figures" / "bouncing_ball.png").read_bytes()[:8] == PNG


def test_configurations_can_name_the_builder() -> None:
    ocp = disc_manipulation.build(drag="smooth")
    assert isinstance(ocp, ns.OCP)
    assert ocp.horizon == 4.0
    assert np.array_equal(ocp.x0, disc_manipulation.START)
    assert [constraint.at for constraint in ocp.path_constraints] == ["element_ends"] * 2
