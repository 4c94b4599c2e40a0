"""The tiers: what runs by default has every pair of options, or every option, and nothing is lost."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.pairwise import Row, every_pair, every_value, pairs, pairwise, singles, slow_but

VALUES: dict[str, Any] = {"scheme": ["a", "b", "c"], "stages": [1, 2], "form": [[0], [1]], "cone": ["x", "y"]}


def legal(row: Row) -> bool:
    return row[0] != "c" or row[1] == 2


def rows_of(mark: pytest.MarkDecorator, slow: bool) -> list[Row]:
    """Hashable rows of a parametrization that are slow, or that are not."""
    names, params = mark.args
    assert tuple(names) == tuple(VALUES)
    return [tuple(map(str, one.values)) for one in params if bool(one.marks) is slow]


@pytest.mark.parametrize(("tier", "parts"), [(every_pair, pairs), (every_value, singles)])
def test_the_default_rows_cover_and_the_slow_ones_are_the_rest(tier: Any, parts: Any) -> None:
    """Negative control: without its last row something is missing."""
    mark = tier(legal, **VALUES)
    fast, slow = rows_of(mark, slow=False), rows_of(mark, slow=True)
    everything = [tuple(map(str, row)) for row in product(*VALUES.values()) if legal(row)]
    assert sorted(fast + slow) == sorted(everything)
    wanted = set().union(*map(parts, everything))
    assert set().union(*map(parts, fast)) == wanted
    assert any(set().union(*map(parts, fast[:k] + fast[k + 1 :])) < wanted for k in range(len(fast)))
    assert len(fast) < len(everything) / 2


def test_two_options_of_one_class_are_all_pairs() -> None:
    assert len(pairwise({"a": range(3), "b": range(4)})) == 12
    assert pairwise({"a": range(2), "b": range(4)}, parts=singles) == [(0, 0), (1, 1), (0, 2), (1, 3)]


def test_rows_are_the_same_in_every_process() -> None:
    """Workers have to collect the same tests: no sets decide the order."""
    assert pairwise({"a": "xy", "b": "xy", "c": "xy"}) == [
        ("x", "x", "x"),
        ("x", "y", "y"),
        ("y", "x", "y"),
        ("y", "y", "x"),
    ]


def test_slow_but() -> None:
    cases = [("one", 1), ("two", 2), ("three", 3)]
    assert [bool(one.marks) for one in slow_but(["two", ("three", 3)], cases)] == [True, False, False]
    assert [bool(one.marks) for one in slow_but([1], [True, 1, 1.0])] == [True, False, True]
    assert [bool(one.marks) for one in slow_but([None], [None, 7])] == [False, True]
    assert [bool(one.marks) for one in slow_but(["test_slow_but"], [test_slow_but, print])] == [False, True]
    with pytest.raises(ValueError, match=r"no such cases: \['four'\]"):
        slow_but(["four"], cases)
