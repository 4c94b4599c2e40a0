"""The loop over attempts: each may begin at the best result so far; the first that is good enough ends it.

As in optimistix (Rader et al. 2024) the best result so far is kept by the loop and not by the solver, which may end
anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")


def best_attempt(
    attempts: Iterable[Callable[[Result | None], Result | None]],
    rank: Callable[[Result], Any],
    stop: Callable[[Result], bool],
) -> Result | None:
    """Make attempts in order until the best result is good enough; return the best one.

    Parameters
    ----------
    attempts : iterable of functions
        From the best result so far (None before the first one) to a new result; None if the attempt does not apply.
    rank : function of a result
        Smaller is better; of equal ranks the later result is kept.
    stop : function of a result
        True if no further attempt is needed.

    Examples
    --------
    >>> attempts = [lambda best: 3.0, lambda best: best - 1.0, lambda best: None, lambda best: best - 9.0]
    >>> best_attempt(attempts, rank=abs, stop=lambda result: result <= 2.0)
    2.0
    """
    best: Result | None = None
    for attempt in attempts:
        if best is not None and stop(best):
            break
        result = attempt(best)
        if result is not None and (best is None or rank(result) <= rank(best)):
            best = result
    return best
