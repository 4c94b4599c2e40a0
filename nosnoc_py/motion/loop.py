"""Loop of all simulations, from step to step or from event to event: limits, interruption and callbacks."""

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
    """Step until the motion is over, a step fails, or the simulation is stopped; the last state has the status.

    Ctrl-C ends the simulation after the last complete step, with a status.

    Parameters
    ----------
    state : frozen dataclass with a status
        `SOLVED` as long as the motion continues.
    step : function of a state
        Returns the next state, with another status if the motion cannot continue.
    is_over : function of a state
        True at the end of the motion.
    callback : function of a state, optional
        Called with every state; may stop the simulation.
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

    def terminate(state: Any) -> dict[str, Any] | None:
        return None if state.status is Status.SOLVED and not is_over(state) else {"status": state.status}

    def report(state: Any) -> Any:
        return callback(state) if callback is not None and state.status is Status.SOLVED else None

    return iterated(state, lambda current, _: step(current), terminate, report, deadline)
