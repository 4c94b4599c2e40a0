"""The benchmark of gradients: what it measures of two scenes."""

from __future__ import annotations

import pytest

from problems.benchmarks import gradients
from tests.problems.command_line import run_json


def test_it_measures_errors_and_costs(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(gradients.PROGRAM, capsys, "--quick")
    assert [row["scene"] for row in results["scenes"]] == ["bounce_slip_2d", "hybrid"]
    assert max(row["to forward"] for row in results["scenes"]) < 1e-12
    assert max(row["to differences"] for row in results["scenes"]) < 1e-7
    assert results["random scenes"] == results["with finite gradients"] == 5
