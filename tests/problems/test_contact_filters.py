"""Filters and smoothers through impacts: a part of `problems.benchmarks.contact_filters`, and all of it (slow)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from problems import estimation_film
from problems.benchmarks import contact_filters
from tests.problems.command_line import run_json


def test_the_table_has_a_row_for_each_filter(capsys: pytest.CaptureFixture[str]) -> None:
    """One run of the ball: the filter that knows what it does not know is the more accurate one."""
    given = ("--set", "tasks=ball,", "filters=salted,ekf", "runs=1", "points=0", "smoothed=0", "data_sets=1")
    results = run_json(contact_filters.PROGRAM, capsys, *given)
    rows = {row["filter"]: row for row in results["filters"]}
    assert list(rows) == ["salted", "ekf"]
    assert rows["ekf"]["error"] < rows["salted"]["error"]
    assert rows["salted"]["reduction"] == pytest.approx(0.0)
    assert 1.0 <= rows["ekf"]["simulations"] < 1.5
    assert {row["what"] for row in results["coverage"]} >= {"e", "floor", "times of impacts", "states: speed"}


def test_what_is_wrong_is_said() -> None:
    def row(name: str, **more: Any) -> dict[str, Any]:
        return {"task": "ball", "filter": name, "error": 1.0, "probability": np.nan, **more}

    good = {
        "filters": [row("salted"), row("ekf", probability=0.5)],
        "coverage": [{"what": "e", "covered": 0.95, "data_sets": 400}],
    }
    assert contact_filters.failures(good) == []
    bad = {
        "filters": [row("salted", error=0.9), row("ekf", probability=0.9999)],
        "coverage": [{"what": "e", "covered": 0.91, "data_sets": 400}],
    }
    assert len(contact_filters.failures(bad)) == 3


def test_coverage_is_that_of_data_sets() -> None:
    """The error of a share is that of independent data sets, although each has several states."""
    rows = contact_filters.coverage_rows([{"e": [True], "x": [True, True]}, {"e": [False], "x": [True, False]}])
    assert [row["covered"] for row in rows] == [0.5, 0.75]
    assert [row["error"] for row in rows] == pytest.approx([0.5, 0.25])


def test_the_film_has_a_frame_for_each_sample(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    made = run_json(estimation_film.PROGRAM, capsys, "--set", "samples=3", "draws=2", f"folder={tmp_path}")
    with image.open(made["film"]) as film:
        assert film.n_frames == 3


@pytest.mark.slow
def test_two_hundred_runs_and_four_hundred_data_sets() -> None:
    """NIS of 200 runs passes its chi-square test; 95 % intervals cover 92 to 98 %."""
    tables = contact_filters.experiment(
        tasks=("ball",), filters=("salted", "uncertainty aware", "one part", "ekf"), runs=200, points=0, smoothed=0
    )
    assert contact_filters.failures(tables) == []
    rows = {row["filter"]: row for row in tables["filters"]}
    assert 0.001 < rows["ekf"]["probability"] < 0.999
    assert rows["ekf"]["error"] < 0.9 * rows["one part"]["error"]
    assert all(0.92 <= row["covered"] <= 0.98 for row in tables["coverage"])
