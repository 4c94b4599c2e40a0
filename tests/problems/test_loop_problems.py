"""Problems in a closed loop and from measurements: a control at every sample, and estimates that hold the truth."""

from __future__ import annotations

import pytest

from problems import disc_loop, paddle_loop, puck_identification, walled_cart_pole
from tests.problems.command_line import run_json


@pytest.mark.slow
def test_the_puck_tells_what_it_bounced_on(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(puck_identification.PROGRAM, capsys, "--quick")
    assert results["status"] == "solved"
    assert [row["value"] for row in results["rows"]] == list(puck_identification.TRUTH)
    assert max(abs(row["off"]) for row in results["rows"]) < 4.0


@pytest.mark.slow
def test_the_ball_stays_in_the_air_on_a_paddle_with_another_restitution(capsys: pytest.CaptureFixture[str]) -> None:
    log = paddle_loop.loop(samples=25)
    assert log.success, log.message
    assert len(log.u) == 25
    assert paddle_loop.assess(log)[1]


def test_the_pole_stays_up_until_it_is_kicked(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(walled_cart_pole.PROGRAM, capsys, "--quick")
    assert results["samples"] == 8
    assert results["largest_angle"] < 0.5
    assert results["impacts"] >= 1


@pytest.mark.slow
def test_the_disc_is_brought_around_the_obstacle_under_noise() -> None:
    log = disc_loop.loop(seed=1)
    assert log.success, log.message
    assert disc_loop.assess(log)[0]["end_error"] < 0.05
