"""Perform tasks: skip finished ones, count deaths on disk, store every result at once.

Sweeps run for days on machines that fail. Every result is on disk before the next outcome is taken, so an interrupted
call loses only running tasks. A task that died is tried again after all others, at most `attempts` times; its deaths
are counted on disk, so a task that kills the whole machine is given up after some restarts as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from nosnoc_py.errors import OptionError
from nosnoc_py.status import asked_to_stop
from nosnoc_py.sweep.store import Store
from nosnoc_py.sweep.tasks import DIED, FAILED, Executor, Outcome, Task, failed_row

Row = dict[str, Any]
# Deaths after which a task is given up: a second attempt tells a crash of the solver from one of the machine.
ATTEMPTS = 2


@dataclass(frozen=True, eq=False, kw_only=True)
class SweepState:
    """Progress of a sweep: a callback receives it at the beginning and after every end of a task.

    Attributes
    ----------
    total : int
        Number of tasks.
    finished : int
        Tasks with a row, those of earlier calls included.
    skipped : int
        Finished tasks of earlier calls.
    failed : int
        Finished tasks without success.
    row : dict, optional
        The newest row.
    death : str, optional
        Cause of death of the newest attempt, if it will be tried again.

    Examples
    --------
    A callback that writes one line per run, for `sweep.run(..., callback=tell)`:

    >>> from nosnoc_py.sweep import SweepState
    >>> tell = lambda state: print(f"{state.finished} of {state.total} runs, {state.failed} failed")
    >>> tell(SweepState(total=24, finished=6, skipped=0, failed=1))
    6 of 24 runs, 1 failed
    """

    total: int
    finished: int
    skipped: int
    failed: int
    row: Row | None = None
    death: str | None = None


def perform(
    tasks: Iterable[Task],
    store: Store,
    executor: Executor,
    *,
    attempts: int = ATTEMPTS,
    retry: bool = False,
    callback: Callable[[SweepState], Any] | None = None,
) -> list[Row]:
    """Do all tasks that have no result yet.

    Parameters
    ----------
    tasks : of unique keys
    store : Store
        Folder of the results; its class describes the files.
    executor : Executor
    attempts : int
        A task that has died so often becomes a row with the status "died", whether in this call or in earlier ones.
        What was interrupted (Ctrl-C, `ns.Stop`) or killed together with this process has not died: it is started anew.
    retry : bool
        True to repeat tasks that failed without a result ("error", "timeout", "died").
    callback : callable, optional
        Called with a `SweepState`; returns `ns.Stop` to end the work.

    Returns
    -------
    list of dict
        Rows in the order of the tasks, with "key" first and "attempts" last; those of unfinished tasks are left out.

    Raises
    ------
    OptionError
        For keys that are not unique, and for a folder or a result that cannot be used; before anything is started.
    """
    tasks = tuple(tasks)
    twice = [key for key, count in Counter(task.key for task in tasks).items() if count > 1]
    if twice:
        raise OptionError(f"tasks: keys must be unique, given more than once: {', '.join(twice)}.")
    with store.locked():
        work = _Work(tasks, store, attempts, retry, callback)
        work.go(executor)
        return work.table()


class _Work:
    """Tasks of one call with their rows and deaths."""

    def __init__(
        self,
        tasks: Sequence[Task],
        store: Store,
        attempts: int,
        retry: bool,
        callback: Callable[[SweepState], Any] | None,
    ) -> None:
        self._tasks, self._store, self._limit, self._callback = tasks, store, attempts, callback
        stored = {task.key: store.row(task.key) for task in tasks}
        self._rows: dict[str, Row] = {key: row for key, row in stored.items() if row is not None}
        if retry:
            for key in [key for key, row in self._rows.items() if row.get("status") in FAILED]:
                store.forget(key)
                del self._rows[key]
        self._deaths = store.deaths()
        self._skipped = len(self._rows)

    def table(self) -> list[Row]:
        return [self._rows[task.key] for task in self._tasks if task.key in self._rows]

    def go(self, executor: Executor) -> None:
        """Run rounds of tasks: a task that has died waits until all others had their turn."""
        if self._notify() or any(self._given_up(task.key, "before this call") for task in self._tasks):
            return
        while waiting := [task for task in self._tasks if task.key not in self._rows]:
            # Closing ends the tasks that still run, also after an exception of the callback.
            with closing(executor.run(iter(waiting))) as outcomes:
                if any(self._take(outcome) for outcome in outcomes):
                    return

    def _take(self, outcome: Outcome) -> bool:
        """Store an outcome; return True if the callback stops the work."""
        key = outcome.task.key
        if outcome.row is not None:
            return self._keep(key, outcome.row, outcome.files)
        death = outcome.death or "it ended without an answer"
        self._store.bury(key, death)
        self._deaths[key] += 1
        if self._deaths[key] < self._limit:
            return self._notify(death=death)
        return self._given_up(key, death)

    def _given_up(self, key: str, death: str) -> bool:
        """Store a row for a task that has died too often; return True if the callback stops the work."""
        if key in self._rows or self._deaths[key] < self._limit:
            return False
        message = f"died in each of {self._deaths[key]} attempts; the last time: {death}"
        return self._keep(key, failed_row(DIED, message), {})

    def _keep(self, key: str, row: Row, files: Mapping[str, bytes]) -> bool:
        # An answer is one more attempt; a row of deaths counts these alone.
        attempts = self._deaths[key] + (row.get("status") != DIED)
        # Key first, and no column of the task's own can replace it.
        self._rows[key] = self._store.write(key, {"key": key} | row | {"key": key, "attempts": attempts}, files)
        return self._notify(row=self._rows[key])

    def _notify(self, row: Row | None = None, death: str | None = None) -> bool:
        if self._callback is None:
            return False
        state = SweepState(
            total=len(self._tasks),
            finished=len(self._rows),
            skipped=self._skipped,
            failed=sum(not kept.get("success", True) for kept in self._rows.values()),
            row=row,
            death=death,
        )
        return asked_to_stop(self._callback, state) is not None
