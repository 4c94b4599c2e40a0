"""Processes for the tasks of the benchmark: they may crash or hang, and the benchmark goes on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from problems.benchmarks.nosbench_rows import Row
from problems.benchmarks.nosbench_task import Task, execute, warm_up

GRACE = 30.0  # seconds beyond the time limit before a process is ended
ALLOWED = {"loading": 120.0, "judging": 120.0}  # seconds
POLL = 0.2  # seconds


def serve(connection: Connection) -> None:
    """The loop of a worker: take a task, tell the stages, send the row; ends when the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the parent
    _silence()
    warm: set[str] = set()
    with suppress(EOFError, OSError):
        while True:
            task: Task = connection.recv()
            connection.send(("loading", task.row()))
            if task.solver not in warm:
                warm_up(task.solver)
                warm.add(task.solver)
            row = execute(task, lambda stage, row: connection.send((stage, row)) if stage != "done" else None)
            connection.send(("done", row))


def _silence() -> None:
    """Solvers write to the file descriptors themselves."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())


class Worker:
    """A process that does tasks one after another; the next one starts a new process if this one has ended.

    Parameters
    ----------
    target : function (Connection)
        What runs in the process.
    grace : float
        Seconds beyond the time limit before the process is ended.
    stopping : function () -> bool
        Asked several times per second; True ends the process.
    """

    def __init__(
        self,
        target: Callable[[Connection], None] = serve,
        grace: float = GRACE,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._target, self._grace, self._stopping = target, grace, stopping
        self._process: Any = None
        self._pipe: Connection | None = None

    def run(self, task: Task) -> Row | None:
        """Do a task; a crash and an overrun become rows; None when asked to stop."""
        pipe = self._pipe or self._start()
        stage, row = "loading", task.row()
        began = time.perf_counter()
        try:
            pipe.send(task)
            while not self._stopping():
                allowed = {**ALLOWED, "solving": task.time_limit + self._grace}[stage]
                if pipe.poll(POLL):
                    stage, row = pipe.recv()
                    began = time.perf_counter()
                    if stage == "done":
                        return row
                elif time.perf_counter() - began > allowed:
                    self.close()
                    return _ended(row, "killed", stage, began, f"no answer after {allowed:.0f} s of {stage}")
        except (EOFError, OSError):
            return _ended(row, "crashed", stage, began, f"the process ended while {stage}: {self.close()}")
        self.close()
        return None

    def close(self) -> str:
        """End the process; return how it ended."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if process is None or pipe is None:
            return ""
        pipe.close()
        process.join(1.0)
        if process.exitcode is None:
            process.kill()
            process.join()
        code = int(process.exitcode)
        process.close()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=self._target, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        return self._pipe


def _ended(row: Row, status: str, stage: str, began: float, message: str) -> Row:
    seconds = row.wall_seconds if stage != "solving" else time.perf_counter() - began
    return replace(row, status=status, claimed=False, wall_seconds=seconds, message=message)


def run_tasks(tasks: Sequence[Task], stopping: Callable[[], bool], done: Callable[[Row], None]) -> None:
    """Do the tasks of one problem one after another in one process, so that their times can be compared."""
    worker = Worker(stopping=stopping)
    try:
        for task in tasks:
            if stopping() or (row := worker.run(task)) is None:
                return
            done(row)
    finally:
        worker.close()
