"""The benchmark of random smooth programs: what it counts, and no false claim in a part of it."""

from __future__ import annotations

from typing import Any

import pytest

from problems.benchmarks import random_nlps
from tests.problems.command_line import run_json

pytestmark = pytest.mark.quick

NUMBERS: dict[str, Any] = {"false": "", "ipopt_false": "", "iterations": 5, "ipopt_iterations": 6}


def row(**changes: Any) -> random_nlps.Row:
    words = {"seed": 0, "kind": "convex", "status": "Solve_Succeeded", "ipopt_status": "Solve_Succeeded"}
    numbers = {"solved": True, "ipopt_solved": True, "objective": 1.0, "ipopt_objective": 1.0}
    return random_nlps.Row(**{**NUMBERS, **words, **numbers, "seconds": 1.0, "ipopt_seconds": 4.0, **changes})


def test_what_is_counted() -> None:
    rows = [
        row(),
        row(objective=1.1),  # another optimum, and a worse one
        row(solved=False, seconds=100.0),
        row(kind="infeasible", ipopt_solved=False, false="rows 0.1"),
    ]
    convex, infeasible, every = random_nlps.summary(rows)
    assert [convex[name] for name in ("programs", "ipopt", "ours", "both", "as_good", "false")] == [3, 3, 2, 2, 1, 0]
    assert convex["time_ratio"] == pytest.approx(4.0)  # of what both solve
    assert (infeasible["ipopt"], infeasible["false"]) == (0, 1)
    assert (every["programs"], every["both"]) == (4, 2)


def test_a_part_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(random_nlps.PROGRAM, capsys, "--set", "count=16")
    assert results["false"] == []
    line = results["summary"][-1]
    assert line["programs"] == 16
    assert line["both"] >= 0.9 * line["ipopt"]
