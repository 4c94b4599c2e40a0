"""Random problems and the table of what agreement is worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from problems.benchmarks.agreement import ALONE, Row, _full, counts, experiment
from problems.benchmarks.random_ocps import FAMILIES, problem


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_draws_one_problem_of_at_most_four_states(family: str) -> None:
    first, again, other = problem(family, 1), problem(family, 1), problem(family, 2)
    assert first.system.x.numel() <= 4
    ends = [np.concatenate([c.lower for c in each.terminal_constraints]) for each in (first, again, other)]
    np.testing.assert_array_equal(ends[0], ends[1])
    assert ends[0].shape != ends[2].shape or not np.allclose(ends[0], ends[2])


def test_the_energy_of_the_full_control() -> None:
    ocp = problem("cart", 1)
    most = float(np.abs(ocp.u_bounds[1]).max())
    assert _full(ocp) == pytest.approx(ocp.horizon * ocp.system.n_u * most**2)


def test_counts() -> None:
    row = Row(problem="", verdict="confirmed", objective=1.0, best=1.0, seconds=1.0, near=1.01)
    alone = replace(row, message=f"{ALONE}: one kind of start")
    rows = [row, replace(row, objective=1.02), alone, replace(alone, objective=np.inf), replace(row, objective=1.005)]
    assert [(each["problems"], each["within 1 %"]) for each in counts(rows)] == [(3, 2), (1, 1), (1, 0)]
    # Clopper and Pearson for 2 of 3: .0943 and .9916; for 1 of 1 the lower bound is .025.
    assert [each["95 % interval"] for each in counts(rows)] == ["9.4 to 99.2 %", "2.5 to 100.0 %", "0.0 to 97.5 %"]


def test_a_benchmark_takes_up_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[str] = []

    def solve(ocp: ns.OCP, **options: Any) -> ns.Solution:
        solved.append(options["effort"])
        raise RuntimeError("not solved here")

    monkeypatch.setattr(ns, "solve", solve)
    arguments: dict[str, Any] = {"references": 0, "kept": str(tmp_path / "rows.jsonl")}
    first = list(experiment(number=2, **arguments))
    again = list(experiment(number=3, **arguments))
    assert solved == ["normal"] * 3
    assert [row.problem for row in again] == [*(row.problem for row in first), "paddle 0"]
    assert again[:2] == first
