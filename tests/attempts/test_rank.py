"""The order of results, and sizes of objectives in any unit of the cost."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from nosnoc_py.attempts.rank import LEAST_GAIN, SAME_OBJECTIVE, ObjectiveScale, Rank, RankGroup

pytestmark = pytest.mark.quick


def test_groups_come_before_amounts() -> None:
    ordered = [
        Rank(RankGroup.CONFIRMED, 9.0),
        Rank(RankGroup.SOUND, -1.0),
        Rank(RankGroup.SOUND, 8.0),
        Rank(RankGroup.WRONG, 7.0),
        Rank(RankGroup.UNTESTED, 6.0),
        Rank(RankGroup.MISSES, 1e-5),
        Rank(RankGroup.MISSES, 1e-1),
        Rank(RankGroup.BROKEN, np.inf),
    ]
    assert all(better < worse for better, worse in pairwise(ordered))
    assert [rank.feasible for rank in ordered] == [True] * 5 + [False] * 3


def test_a_sound_motion_promises_to_be_confirmed() -> None:
    assert Rank(RankGroup.SOUND, 3.0).promise == Rank(RankGroup.CONFIRMED, 3.0)
    for group in set(RankGroup) - {RankGroup.SOUND}:
        assert Rank(group, 3.0).promise == Rank(group, 3.0)
    assert Rank(RankGroup.SOUND, 3.0).promise < Rank(RankGroup.CONFIRMED, 4.0) < Rank(RankGroup.SOUND, 3.0)


@pytest.mark.parametrize(
    ("objective", "residual", "rank"),
    [
        (3.0, 0.9e-6, Rank(RankGroup.UNTESTED, 3.0)),
        (3.0, 1.1e-6, Rank(RankGroup.MISSES, 1.1e-6)),
        (np.nan, 0.0, Rank(RankGroup.BROKEN, np.inf)),
        (-np.inf, 0.0, Rank(RankGroup.BROKEN, np.inf)),
        (3.0, np.nan, Rank(RankGroup.BROKEN, np.inf)),
        (3.0, np.inf, Rank(RankGroup.BROKEN, np.inf)),
    ],
)
def test_a_point_counts_by_its_residual(objective: float, residual: float, rank: Rank) -> None:
    assert Rank.of_point(objective, residual, 1e-6) == rank


def test_the_scale_is_the_largest_finite_change() -> None:
    pairs = [(5.0, 2.0), (1.0, 9.0), (np.inf, 0.0), (0.0, np.nan)]
    assert ObjectiveScale.of(pairs).change == pytest.approx(8.0)
    assert ObjectiveScale.of([]).change == 0.0


def test_the_size_of_an_objective_is_its_own_or_a_millionth_of_the_change() -> None:
    scale = ObjectiveScale(8.0)
    assert scale.size(-3.0) == pytest.approx(3.0, rel=1e-12)
    assert scale.size(0.0) == pytest.approx(8e-6, rel=1e-12)
    assert scale.size(7e-6) == pytest.approx(8e-6, rel=1e-12)
    assert scale.above(-3.0, SAME_OBJECTIVE) == pytest.approx(-2.97, rel=1e-12)
    assert scale.above(3.0, -LEAST_GAIN) == pytest.approx(3.0 - 3e-4, rel=1e-12)
    assert scale.above(0.0, SAME_OBJECTIVE) == pytest.approx(8e-8, rel=1e-12)


@pytest.mark.parametrize("power", [-60, -7, 3, 40])
@pytest.mark.parametrize("objective", [-2.3, 0.0, 1e-7, 0.7])
def test_the_unit_of_the_cost_does_not_matter(objective: float, power: int) -> None:
    """Powers of two are exact, so that the comparison is, too; another constant would be an absolute size."""
    unit, pairs = 2.0**power, [(4.0, 0.7), (0.3, -2.3)]
    small, large = ObjectiveScale.of(pairs), ObjectiveScale.of([(unit * a, unit * b) for a, b in pairs])
    for share in (SAME_OBJECTIVE, -SAME_OBJECTIVE, LEAST_GAIN, -LEAST_GAIN, 0.0):
        assert large.above(unit * objective, share) == unit * small.above(objective, share)
    # Ranks of scaled objectives are in the same order, whatever their unit.
    others = (objective - 1e-3, objective, objective + 1e-3)
    ranks = [Rank.of_point(unit * other, 0.0, 1e-6) for other in others]
    assert all(better < worse for better, worse in pairwise(ranks))
    absolute = objective + SAME_OBJECTIVE
    assert absolute != small.above(objective, SAME_OBJECTIVE)
