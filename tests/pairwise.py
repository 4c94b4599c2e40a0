"""Few combinations of options in which every pair of values occurs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Row = tuple[Any, ...]


def pairs(row: Row) -> set[tuple[int, Any, int, Any]]:
    """The pairs of values in a row, with their places."""
    return {(i, row[i], j, row[j]) for i, j in combinations(range(len(row)), 2)}


def pairwise(values: Mapping[str, Sequence[Any]], allowed: Callable[[Row], bool] = lambda row: True) -> list[Row]:
    """Rows, a value of every option in each, with every pair of values that any allowed row has.

    The greedy algorithm: always the row with the most pairs that are missing, of several the first one. Faults of one
    option, or of two together, are found by far fewer runs than by the full product (Cohen et al., 1997, AETG).
    """
    rows = [row for row in product(*values.values()) if allowed(row)]
    missing = set().union(*(pairs(row) for row in rows))
    chosen: list[Row] = []
    while missing:
        best = max(rows, key=lambda row: len(pairs(row) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen
