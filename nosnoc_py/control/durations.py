"""Parts of a preparation that are begun only if there is time for them.

A solver looks at the clock between its iterations, and what it has begun is lost if it is cut. A part that took longer
the last time than what is left of the period is left out; from time to time it is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
# What is remembered of a duration after a time when the part was left out: it may have been an exception.
FADES = 0.5


class Durations:
    """Durations [s] of the parts of a preparation, by their names, the last time they were run.

    The first time is not counted: functions and solvers are built then.
    """

    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def of(self, name: str) -> float:
        """Return the last duration of a part; 0 for one that was never run."""
        return self.last.get(name, 0.0)

    def run(self, name: str, work: Callable[[float], Result], end: float) -> Result | None:
        """Return the result of a part, which is given the seconds until `end` (monotonic); None if it is left out."""
        began = time.monotonic()
        left = end - began
        if left <= self.of(name):
            self.last[name] = FADES * self.of(name)
            return None
        try:
            return work(left)
        finally:
            self.last[name] = time.monotonic() - began if name in self.last else 0.0
