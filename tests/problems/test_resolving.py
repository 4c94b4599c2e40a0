"""Shifted plans in a closed loop, and what the comparison of solving again with solving anew reports."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from problems import receding_horizon
from problems.benchmarks import resolve_speed

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def steps() -> list[Any]:
    method = receding_horizon.METHOD
    return receding_horizon.loop(method.replace(fesd=method.fesd.replace(control_stages=5)), ns.Auto(), 4)


def test_shifted_plans_take_fewer_iterations_than_cold_starts(steps: list[Any]) -> None:
    """Before, in and after the sample with the impact; the optimum is not worse."""
    assert len(steps) == 4
    assert [len(step.motion.impacts) for step in steps] == [0, 1, 0, 0]
    for step in steps[1:]:
        assert step.plan.success
        assert step.cold.success
        assert step.plan.iterations < step.cold.iterations
        assert step.plan.objective <= step.cold.objective * (1.0 + 1e-6)  # a cold start may find a worse minimum
        assert step.plan.log[0].label in ("same branch", "homotopy")
        assert step.cold.log[0].sigma == 1.0
    assert 2 * sum(s.plan.iterations for s in steps[1:]) < sum(s.cold.iterations for s in steps[1:])


def test_the_plant_does_what_was_planned(steps: list[Any]) -> None:
    """Without disturbances the first stage of the next plan begins where the last one said."""
    for before, after in pairwise(steps[1:]):
        planned = before.plan(before.plan.horizon / 5)
        np.testing.assert_allclose(after.x, planned, rtol=0, atol=1e-3)
    assert abs(steps[-1].motion.final_state[0] - receding_horizon.GOAL) < 1.0


def test_the_path_of_initial_states() -> None:
    path = resolve_speed.states(50)
    assert path.shape == (50, 4)
    assert len(np.unique(path, axis=0)) == 50
    assert np.abs(np.diff(path[:, :2], axis=0)).max() <= 0.05 + 1e-12  # neighbours are near
    assert resolve_speed.states(3).shape == (3, 4)
    with pytest.raises(ns.OptionError, match="states"):
        resolve_speed.states(1)


def test_ratios_and_differences() -> None:
    def rows(seconds: float, *objectives: float) -> list[dict[str, Any]]:
        return [{"seconds": seconds, "objective": value, "status": "solved"} for value in objectives]

    ways = dict(zip(resolve_speed.WAYS, (rows(4.0, 10.0, 20.0), rows(2.0, 10.0, 20.0), *2 * (rows(1.0, 10.0, 18.0),)), strict=True))  # fmt: skip  # noqa: E501
    cold, warm, both = resolve_speed.compared(ways)
    assert (cold["ratio"], cold["largest_difference"], cold["lower"], cold["higher"]) == (2.0, 0.0, 0, 0)
    assert warm["ratio"] == 1.0
    assert (both["ratio"], both["lower"], both["higher"]) == (4.0, 1, 0)
    assert both["largest_difference"] == pytest.approx(0.1, abs=1e-12)
