"""What smoothing costs, in a small version: the rows, and that less smoothing is less wrong."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.methods.shooting.options import SmoothedShooting
from problems.benchmarks import smoothing
from problems.runner import main
from tests.references import particle as references

KEYS = {"status", "objective", "complementarity", "infeasibility", "iterations", "wall_seconds", "final_state"}
PARTICLE = smoothing.TASKS["particle"]


@pytest.mark.slow
def test_quick(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(smoothing.PROGRAM, ["--quick", "--json"])
    results: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert results.keys() >= KEYS
    assert code == 0
    rows = results["rows"]["particle"]
    assert [row["method"] for row in rows] == [
        "FESD-J",
        "FESD-J, no detection",
        "smoothed",
        "smoothed",
        "FESD-J from the last",
    ]
    coarse, fine, warm = rows[2:]
    assert (coarse["sigma"], fine["sigma"]) == (1e-2, 1e-3)
    assert {coarse["status"], fine["status"]} == {"not complementary"}
    assert fine["complementarity"] < 0.5 * coarse["complementarity"]
    assert warm["status"] == "solved"
    best = references.piecewise_constant_optimum(20).objective
    assert warm["objective"] == pytest.approx(best, abs=5e-3)
    assert fine["objective"] == pytest.approx(best, abs=2e-2)


@pytest.mark.slow
def test_a_smoothed_control_leads_close_to_where_it_claims() -> None:
    """The end state errs by the smoothing and by the steps; with too much smoothing the goal is missed widely."""
    method = SmoothedShooting(sigma_0=1.0)
    fine = smoothing.shoot(PARTICLE, 1e-3, 8, method)
    assert fine.certificate.true_objective == pytest.approx(fine.solution.objective, abs=1e-9)  # no state in the cost
    assert smoothing.error_of(fine) < 1e-3
    assert fine.violation == pytest.approx(smoothing.error_of(fine), rel=1e-2)  # of the goal
    coarse = smoothing.shoot(PARTICLE, 1.0, 8, method)  # negative control
    assert not smoothing.error_of(coarse) < 30 * smoothing.error_of(fine)


def test_the_true_motion_has_the_impact_that_is_smeared() -> None:
    ocp = PARTICLE.build()
    row = smoothing.shoot(PARTICLE, 1e-2, 4, SmoothedShooting())
    assert row.solution.events == ()
    motion = smoothing.true_motion(ocp, row.solution)
    assert [event.time for event in motion.impacts] == pytest.approx([np.sqrt(2 / references.GRAVITY)], abs=1e-9)
    assert isinstance(motion, ns.Trajectory)


def test_unknown_tasks_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(smoothing.PROGRAM, ["--quick", "--json", "--set", "tasks=party,"]) == 2
    assert "unknown task 'party'" in capsys.readouterr().err
