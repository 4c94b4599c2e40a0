"""Streams whose next items are computed ahead, and the cost of an attempt that was made ahead.

What is computed ahead counts as work when it is taken, and an attempt only serves if it would be the same then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from nosnoc_py.attempts.work import count, counted, left
from nosnoc_py.sequences.refinement import Cutoff
from nosnoc_py.solution import Sequence
from nosnoc_py.solution.records import StepRecord

# Marks the end of a generator, as None is an item of it.
END: Any = object()


class Peekable(Iterator[Sequence]):
    """Iterator over sequences whose next ones can be looked at."""

    def __init__(self, source: Iterator[Sequence]) -> None:
        self.source = source
        self.seen: deque[Sequence] = deque()

    def __next__(self) -> Sequence:
        return self.seen.popleft() if self.seen else next(self.source)

    def peek(self) -> Iterator[Sequence]:
        """Yield the next ones, which stay next."""
        yield from tuple(self.seen)
        for sequence in self.source:
            self.seen.append(sequence)
            yield sequence


class PreparedStream(Iterator[Any]):
    """Generator of starts whose next ones may be computed ahead; their work counts when they are taken."""

    def __init__(self, source: Iterator[Any]) -> None:
        self.source = source
        self.ready: deque[tuple[Any, float]] = deque()

    def __next__(self) -> Any:
        if not self.ready:
            return next(self.source)
        item, work = self.ready.popleft()
        count(work)  # that was done ahead, now that it is used
        if item is END:
            raise StopIteration
        return item

    def prepare(self, limit: float) -> None:
        """Compute the next item."""
        with counted(limit) as account:
            item = next(self.source, END)
        self.ready.append((item, account.total))

    @property
    def start(self) -> Any:
        """The next start that is ready; None if there is none yet, END if there are no more."""
        return next((item for item, _ in self.ready if item is not None), None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Cost:
    """Work of an attempt that was made ahead, and what has to hold for it to be used.

    Attributes
    ----------
    work : float
    log : tuple of StepRecord
    cutoff : Cutoff
    limit : float
        Limit of work of the attempt.
    """

    work: float
    log: tuple[StepRecord, ...]
    cutoff: Cutoff
    limit: float

    def holds(self, cutoff: Cutoff) -> bool:
        """True if this process would do the same with its own cutoff and the work that is left to it."""
        return cutoff == self.cutoff and self.work < min(self.limit, left())

    def pay(self, log: list[StepRecord]) -> None:
        """Count the work, and append the records to the log of the search."""
        count(self.work)
        first = len(log)
        log.extend(replace(record, step=first + k) for k, record in enumerate(self.log))
