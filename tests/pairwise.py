"""Which combinations of options run by default: every pair of values once, or every value once; the rest is slow.

Long rows of compiled loops need numba.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

from nosnoc_py.compiled import available

# Long runs of loops that numba compiles; interpreted they take minutes.
needs_numba = pytest.mark.skipif(not available(), reason="numba is not installed: minutes without it")

Row = tuple[Any, ...]


def pairs(row: Row) -> set[tuple[int, Any, int, Any]]:
    """The pairs of values in a row, with their places."""
    return {(i, row[i], j, row[j]) for i, j in combinations(range(len(row)), 2)}


def singles(row: Row) -> set[tuple[int, Any]]:
    """The values in a row, with their places."""
    return set(enumerate(row))


def always(row: Row) -> bool:
    """No row is left out."""
    return True


def pairwise(
    values: Mapping[str, Sequence[Any]],
    allowed: Callable[[Row], bool] = always,
    parts: Callable[[Row], set[Any]] = pairs,
) -> list[Row]:
    """Rows, a value of every option in each, with every pair of values that any allowed row has.

    The greedy algorithm: always the row with the most pairs that are missing, of several the first one. Faults of one
    option, or of two together, are found by far fewer runs than by the full product (Cohen et al., 1997, AETG).
    With `parts=singles` the rows have every value, beside as many others as possible.
    """
    rows = [row for row in product(*values.values()) if allowed(row)]
    missing = set().union(*(parts(row) for row in rows))
    chosen: list[Row] = []
    used: Counter[Any] = Counter()

    def gain(row: Row) -> tuple[int, int]:
        return len(parts(row) & missing), -sum(used[one] for one in parts(row)) if parts is singles else 0

    while missing:
        best = max(rows, key=gain)
        chosen.append(best)
        missing -= parts(best)
        used.update(parts(best))
    return chosen


def every_pair(allowed: Callable[[Row], bool] = always, /, **values: Sequence[Any]) -> pytest.MarkDecorator:
    """`parametrize` by the full product of options of one class; all but a covering of its pairs is slow."""
    return _product(allowed, pairs, values)


def every_value(allowed: Callable[[Row], bool] = always, /, **values: Sequence[Any]) -> pytest.MarkDecorator:
    """`parametrize` by the full product of what belongs to several classes; all but every value once is slow."""
    return _product(allowed, singles, values)


def _product(
    allowed: Callable[[Row], bool], parts: Callable[[Row], set[Any]], values: Mapping[str, Sequence[Any]]
) -> pytest.MarkDecorator:
    lists = [list(one) for one in values.values()]
    places = {name: range(len(one)) for name, one in zip(values, lists, strict=True)}  # values need no hash

    def row(numbers: Row) -> Row:
        return tuple(one[k] for one, k in zip(lists, numbers, strict=True))

    def legal(numbers: Row) -> bool:
        return allowed(row(numbers))

    chosen = set(pairwise(places, legal, parts))
    numbers = [one for one in product(*places.values()) if legal(one)]
    return pytest.mark.parametrize(tuple(values), [_param(row(one), one in chosen) for one in numbers])


def slow_row(*values: Any) -> Any:
    """A row for `parametrize` that is slow."""
    return pytest.param(*values, marks=pytest.mark.slow)


def compiled_row(*values: Any) -> Any:
    """A row for `parametrize` that runs by default, but where numba is absent."""
    return pytest.param(*values, marks=needs_numba)


def slow_but(kept: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """`cases` for `parametrize`: those in `kept` run by default, which says what each of them stands for, others slow.

    A case is known by its name or by itself, one of several arguments by the first one or by all of them.
    """
    cases, wanted = list(cases), list(kept)
    found = [_param(one if isinstance(one, tuple) else (one,), any(_is(one, name) for name in wanted)) for one in cases]
    unknown = [name for name in wanted if not any(_is(one, name) for one in cases)]
    if unknown:
        raise ValueError(f"no such cases: {unknown}")
    return found


def _is(case: Any, name: Any) -> bool:
    first = case[0] if isinstance(case, tuple) else case
    known = [case, first, *(getattr(first, word) for word in ("name", "__name__") if hasattr(first, word))]
    return any(type(one) is type(name) and one == name for one in known)


def _param(row: Row, by_default: bool) -> Any:
    return pytest.param(*row, marks=[] if by_default else [pytest.mark.slow])
