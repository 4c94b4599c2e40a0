"""Robots from their URDF push, step and jump: confirmed, with the balances of energy and momentum that must hold."""

from __future__ import annotations

import pytest

from problems import arm_pushes_box, biped_step, kneed_hopper, quadruped_jump, two_link_push
from problems.runner import Program
from tests.problems.command_line import run_json

CONFIRMED = ("confirmed", "confirmed in windows")


@pytest.mark.quick
def test_the_puck_is_pushed_with_all_the_work_of_the_motors(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(two_link_push.PROGRAM, capsys)
    assert results["certificate"]["verdict"] in CONFIRMED
    found = results["reference"]
    assert found["friction"] == pytest.approx(0.15 * 1.5, abs=1e-9)
    assert found["motors"] > 0.23
    assert abs(found["left"]) < 1e-8


@pytest.mark.parametrize(
    "problem",
    [arm_pushes_box.PROGRAM, pytest.param(biped_step.PROGRAM, marks=pytest.mark.slow)],
    ids=["arm", "biped"],
)
def test_motors_work_into_friction_impacts_and_height(problem: Program, capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(problem, capsys)
    assert results["certificate"]["verdict"] in CONFIRMED
    assert results["reference"]["motors"] > 0.02
    assert abs(results["reference"]["left"]) < 1e-5


@pytest.mark.parametrize(
    "problem",
    [kneed_hopper.PROGRAM, pytest.param(quadruped_jump.PROGRAM, marks=pytest.mark.slow)],
    ids=["hopper", "quadruped"],
)
def test_jumps_end_in_a_free_fall(problem: Program, capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(problem, capsys)
    assert results["certificate"]["verdict"] in CONFIRMED
    assert 0.1 < results["reference"]["take_off"] < 0.35
    assert results["reference"]["missed_momentum"] < 1e-6
