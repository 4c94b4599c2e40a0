"""Random problems and the table of what agreement is worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from problems.benchmarks.agreement import ALONE, counts
from problems.benchmarks.cold_start import Row
from problems.benchmarks.random_ocps import FAMILIES, problem


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_draws_one_problem_of_at_most_four_states(family: str) -> None:
    first, again, other = problem(family, 1), problem(family, 1), problem(family, 2)
    assert first.system.x.numel() <= 4
    ends = [np.concatenate([c.lower for c in each.terminal_constraints]) for each in (first, again, other)]
    np.testing.assert_array_equal(ends[0], ends[1])
    assert ends[0].shape != ends[2].shape or not np.allclose(ends[0], ends[2])


def test_counts() -> None:
    row = Row(
        problem="",
        method="",
        seed=0,
        status="solved",
        verdict="confirmed",
        objective=1.0,
        best=1.0,
        seconds=1.0,
        near=1.01,
    )
    alone = replace(row, message=f"{ALONE}: one kind of start")
    rows = [row, replace(row, objective=1.02), alone, replace(alone, objective=np.inf), replace(row, objective=1.005)]
    assert [(each["problems"], each["within 1 %"]) for each in counts(rows)] == [(3, 2), (1, 1), (1, 0)]
