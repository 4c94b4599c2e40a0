"""Limit of time of a search: processor time by default, so that other work on the machine does not decide a result.

All deadlines of solvers and simulations are times of the clock. A limit of processor time becomes one by the load so
far, the time by the clock over the processor time: on a busy machine the deadline moves. A limit that the user gives is
one of the clock, and its deadline stays.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

# Largest time by the clock as a multiple of a limit of processor time: a process that waits for other reasons (a
# callback that sleeps) must end, too.
MOST_LOAD = 3.0


@dataclass(frozen=True)
class TimeBudget:
    """Limit of time that began at a certain moment.

    Attributes
    ----------
    began : float
        Time of the monotonic clock at the start [s].
    seconds : float
        Limit [s], of processor time if `processor_began` is given, else of the clock.
    processor_began : float, optional
        Processor time of the process at the start [s].
    """

    began: float
    seconds: float
    processor_began: float | None = None

    @classmethod
    def of(cls, started: float, deadline: float, default: float) -> TimeBudget:
        """Return the limit of the clock if there is a deadline, else the default limit of processor time [s]."""
        if np.isfinite(deadline):
            return cls(started, deadline - started)
        # Processor time before now (of a polish, or the transcription) is that of the clock, at worst.
        return cls(started, default, time.process_time() - (time.monotonic() - started))

    def load(self) -> float:
        """Return the time by the clock over the processor time so far, in [1, MOST_LOAD]; 1 for a limit of the clock.

        Threads of the user may use more processor time than the clock shows: they are not part of the search.
        """
        clock, used = self._spent()
        return min(clock / used, MOST_LOAD) if used > 0.0 else 1.0

    def deadline(self) -> float:
        """Return the time of the monotonic clock [s] at which the limit will be reached at the present load."""
        if self.processor_began is None:
            return self.began + self.seconds
        clock, used = self._spent()
        left = self.load() * max(0.0, self.seconds - used)
        return self.began + min(clock + left, MOST_LOAD * self.seconds)

    def _spent(self) -> tuple[float, float]:
        """Return the time by the clock, and the part of it that counts as used, since the start [s]."""
        clock = time.monotonic() - self.began
        return clock, clock if self.processor_began is None else min(clock, time.process_time() - self.processor_began)
