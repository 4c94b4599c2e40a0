"""The loop of a simulation, from step to step or from event to event: limits, interruption and callbacks, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nosnoc_py.status import Status, iterated


def driven(
    state: Any,
    step: Callable[[Any], Any],
    is_over: Callable[[Any], bool],
    callback: Callable[[Any], Any] | None = None,
    deadline: float = np.inf,
) -> Any:
    """Step until the motion is over, a step fails, or the work is stopped; the status of the last state says which.

    Ctrl-C ends the work after the last whole step, with a status.

    Parameters
    ----------
    state : frozen dataclass with a status
        `SOLVED` as long as the motion goes on.
    step : function of a state
        The next one, of another status where the motion cannot go on.
    is_over : function of a state
    callback : function of a state, optional
        Sees every state that goes on or is the end, and may stop the work; at the end there is nothing to stop.
    deadline : float
        Stamp of time.monotonic().

    Examples
    --------
    >>> from dataclasses import dataclass, replace
    >>> @dataclass(frozen=True)
    ... class Count:
    ...     n: int = 0
    ...     status: Status = Status.SOLVED
    >>> driven(Count(), lambda state: replace(state, n=state.n + 1), lambda state: state.n == 3)
    Count(n=3, status=<Status.SOLVED: 'solved'>)
    """

    def judged(state: Any) -> dict[str, Any] | None:
        return None if state.status is Status.SOLVED and not is_over(state) else {"status": state.status}

    def shown(state: Any) -> Any:
        return callback(state) if callback is not None and state.status is Status.SOLVED else None

    return iterated(state, lambda current, _: step(current), judged, shown, deadline)
