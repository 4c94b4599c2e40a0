"""The benchmark of closed loops: what it counts, and a loop in which every sample is answered."""

from __future__ import annotations

import numpy as np
import pytest

import nosnoc_py as ns
from problems.benchmarks import closed_loops
from tests.problems.command_line import run_json

pytestmark = pytest.mark.quick


def row(**changes: object) -> closed_loops.Row:
    numbers = {"seed": 0, "sample": 1, "milliseconds": 2.0, "preparation": 3.0, "objective": 1.0, "residual": 0.0}
    return closed_loops.Row(**{"loop": "a", "how": "kept", "status": "solved", **numbers, **changes})  # type: ignore[arg-type]


def test_every_sample_is_counted_by_how_it_was_answered() -> None:
    rows = [
        row(sample=0, milliseconds=50.0),  # the first one builds
        row(sample=1),
        row(sample=2, how="neighbour", objective=1.1, reference=1.0),
        row(sample=3, how="none", objective=9.0, reference=1.0),
        row(loop="b", how="fallback"),
    ]
    first, second = closed_loops.summary(rows)
    assert [first[how] for how in (*closed_loops.WAYS, "none")] == [2, 1, 0, 1]
    assert first["p99"] == 2.0
    assert first["above_reference"] == pytest.approx(0.1)  # what has no answer has no objective
    assert (second["loop"], second["samples"], second["fallback"]) == ("b", 1, 1)
    assert np.isnan(second["above_reference"])


def test_a_state_that_penetrates_is_moved_back() -> None:
    system = closed_loops.discs().ocp.system
    moved = closed_loops.admissible(system, np.array([0.0, 0.0, 0.4, 0.3, 1.0, 2.0, 3.0, 4.0]))
    assert np.hypot(*(moved[:2] - moved[2:4])) == pytest.approx(0.6, abs=1e-12)
    assert moved[:2] + moved[2:4] == pytest.approx([0.4, 0.3])  # each by the same
    assert moved[4:] == pytest.approx([1, 2, 3, 4])
    free = np.array([0.0, 0.0, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert closed_loops.admissible(system, free) == pytest.approx(free)


def test_the_paddle_answers_every_sample(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(closed_loops.PROGRAM, capsys, "--set", "loops=paddle", "samples=3", "reference=2")
    assert results["status"] == ns.Status.SOLVED.value
    assert len(results["rows"]) == 3
    assert results["complementarity"] <= 1e-8
    assert results["summary"][0]["none"] == 0
    assert results["summary"][0]["above_reference"] <= 0.01


def test_mistakes() -> None:
    with pytest.raises(ns.OptionError, match="Did you mean"):
        list(closed_loops.experiment(loops=("padle",)))
