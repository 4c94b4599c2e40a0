"""The loop over attempts: what it keeps, from where an attempt begins, and when it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nosnoc_py.attempts.loop import best_attempt

pytestmark = pytest.mark.quick


class Attempts:
    """Attempts with given results (name, rank), which record from what they began."""

    def __init__(self, *results: tuple[str, float] | None) -> None:
        self.results, self.began = results, list[str | None]()

    def run(self, stop: float = -1.0) -> str | None:
        def attempt(result: tuple[str, float] | None) -> Callable[[tuple[str, float] | None], tuple[str, float] | None]:
            def made(best: tuple[str, float] | None) -> tuple[str, float] | None:
                self.began.append(best and best[0])
                return result

            return made

        best = best_attempt(map(attempt, self.results), rank=lambda r: r[1], stop=lambda r: r[1] <= stop)
        return best and best[0]


def test_the_best_is_kept_and_later_attempts_begin_there() -> None:
    attempts = Attempts(("a", 3.0), ("b", 1.0), ("c", 2.0), ("d", 9.0))
    assert attempts.run() == "b"
    assert attempts.began == [None, "a", "b", "b"]


def test_the_first_that_is_good_enough_ends_it() -> None:
    attempts = Attempts(("a", 3.0), ("b", 1.0), ("c", 0.0))
    assert attempts.run(stop=1.0) == "b"
    assert attempts.began == [None, "a"]
    assert Attempts(("a", 3.0), ("b", 1.0), ("c", 0.0)).run(stop=0.5) == "c"


def test_of_equal_ranks_the_later_one_is_kept() -> None:
    assert Attempts(("a", 3.0), ("b", 3.0)).run() == "b"


def test_an_attempt_that_does_not_apply_changes_nothing() -> None:
    attempts = Attempts(None, ("a", 3.0), None, ("b", 4.0))
    assert attempts.run() == "a"
    assert attempts.began == [None, None, "a", "a"]
    assert Attempts(None, None).run() is None
    assert Attempts().run() is None
