"""Helper processes that inherit what this one knows, and exchange plain numbers with it.

A helper is a fork: it has all objects of this process, those that cannot be pickled included, and runs one function on
tasks that it is sent. Only tasks and answers cross the border. Where processes cannot be forked there are no helpers
(`can_fork`). On macOS a fork may crash in the system's libraries, so that Linux alone counts.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from nosnoc_py.errors import OptionError


def can_fork() -> bool:
    """Return True if helpers can inherit the objects of this process."""
    return sys.platform == "linux" and "fork" in multiprocessing.get_all_start_methods()


class Helper:
    """One helper process; `close` ends it, whatever it does.

    Parameters
    ----------
    function : callable
        From a task to an answer; both have to be picklable, the function need not.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(os.getpid(), other, function), daemon=True)
        with warnings.catch_warnings():
            # Threads of BLAS count as threads of this process; they hold no lock that a helper could wait for.
            warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
            self.process.start()
        other.close()

    def send(self, number: int, task: Any) -> None:
        """Send a task; if the helper has died, `answers` says so."""
        with suppress(OSError):
            self.connection.send((number, task))

    def answers(self, timeout: float | None = 0.0) -> Iterator[tuple[int, bool, Any]]:
        """Yield the answers that are there, after this time [s] at most: number of the task, success, value or message.

        Raises
        ------
        EOFError
            If the helper has died.
        """
        while self.connection.poll(timeout):
            try:
                yield self.connection.recv()
            except OSError as error:
                raise EOFError(str(error)) from None
            timeout = 0.0

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def _serve(parent: int, connection: Connection, function: Callable[[Any], Any]) -> None:
    """Answer tasks in their order until the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its helpers
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a parent that is killed takes its helpers along
    with suppress(EOFError, OSError):
        while os.getppid() == parent:
            number, task = connection.recv()
            try:
                answer = True, function(task)
            except Exception as error:  # it is the parent's to judge
                answer = False, f"{type(error).__name__}: {error}"
            connection.send((number, *answer))


@contextmanager
def helpers(function: Callable[[Any], Any], count: int) -> Iterator[list[Helper]]:
    """Start helpers, none where processes cannot be forked, and end them with the block."""
    with ExitStack() as stack:
        started = []
        for _ in range(count if can_fork() else 0):
            helper = Helper(function)
            stack.callback(helper.close)
            started.append(helper)
        yield started


def mapped(function: Callable[[Any], Any], tasks: Sequence[Any], workers: int = 1) -> list[Any]:
    """Return the answers to tasks in their order, by this process or by helpers.

    Parameters
    ----------
    function : callable
    tasks : sequence
    workers : int
        Number of helpers; with 1, or where processes cannot be forked, this process does it.

    Raises
    ------
    OptionError
        If a helper dies, or its function raises: the message has its words.

    Examples
    --------
    >>> mapped(lambda x: x**2, [1, 2, 3], workers=2)
    [1, 4, 9]
    """
    if min(workers, len(tasks)) <= 1 or not can_fork():
        return [function(task) for task in tasks]
    results: dict[int, Any] = {}
    with helpers(lambda number: function(tasks[number]), min(workers, len(tasks))) as started:
        left = iter(range(len(tasks)))
        for helper in started:
            helper.send(number := next(left), number)
        while len(results) < len(tasks):
            ready = wait([helper.connection for helper in started])
            for helper in (helper for helper in started if helper.connection in ready):
                try:
                    for number, success, value in helper.answers():
                        if not success:
                            raise OptionError(value)
                        results[number] = value
                        if (following := next(left, None)) is not None:
                            helper.send(following, following)
                except EOFError:
                    raise OptionError("a helper process has died; use workers=1.") from None
    return [results[number] for number in range(len(tasks))]


def in_order(function: Callable[[Any], Any], tasks: Sequence[Any], workers: int = 1) -> Iterator[Any]:
    """Yield the answers to tasks in their order, as many at a time as there are workers; see `mapped`.

    Examples
    --------
    >>> next(in_order(lambda x: x**2, [1, 2, 3], workers=2))
    1
    """
    for first in range(0, len(tasks), workers):
        yield from mapped(function, tasks[first : first + workers], workers)
