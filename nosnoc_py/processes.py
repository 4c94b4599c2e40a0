"""Helper processes that do tasks one after another: for searches, for runs of sweeps, on this machine and on a cluster.

There are two kinds. A fork has all objects of this process, those that cannot be pickled included; where processes
cannot be forked there are none (`can_fork`; on macOS a fork may crash in the system's libraries, so that Linux alone
counts). A fresh process imports this library and nothing of the script that runs here, which therefore needs no guard;
it has a group of its own, and is killed with all that it has started. Both serve tasks until they are closed or this
process ends, so that many short tasks pay for one start; only tasks and answers cross the border.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import IO, Any

from nosnoc_py.errors import OptionError

POLL = 0.02  # seconds between looks at processes that die while their children keep the connection open
TAIL = 500  # characters of standard error that a death reports
MOST_TASKS = 100  # of a process: libraries may leak memory over thousands of solves, and a start costs about a second
# A script cannot be named here: Python would put its folder on the path. The first that it does, before the library is
# imported, is to ask Linux for a SIGKILL when the thread that started it ends (PR_SET_PDEATHSIG).
START = """
import ctypes, json, os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.platform == "linux":
    try:
        ctypes.CDLL(None).prctl(1, 9)
    except (OSError, AttributeError):
        pass
if os.getppid() != int(sys.argv[1]):  # it was faster
    os._exit(1)
sys.path[:] = json.loads(sys.argv[2])
from nosnoc_py import processes
processes.serve_fresh(int(sys.argv[3]), sys.argv[4])
"""


def can_fork() -> bool:
    """Return True if helpers can inherit the objects of this process."""
    return sys.platform == "linux" and "fork" in multiprocessing.get_all_start_methods()


class Helper:
    """One helper process; `close` ends it, whatever it does.

    Parameters
    ----------
    connection : Connection
        This side of the pipe of tasks and answers.

    Attributes
    ----------
    code : int, optional
        Exit code, negative the signal that killed it; None while it is alive.
    kill : callable
        Kills the process, and waits for its end.
    """

    code: Any
    kill: Callable[[], None]

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.tasks = 0
        self.late = False
        self._timer: threading.Timer | None = None

    def send(self, task: Any, timeout: float | None = None) -> None:
        """Send a task that has this long [s]; if the helper has died, `answer` says so."""
        self.tasks += 1
        if timeout is not None:
            self._timer = threading.Timer(min(timeout, threading.TIMEOUT_MAX), self._expire)
            self._timer.daemon = True
            self._timer.start()
        with suppress(OSError):
            self.connection.send(task)

    def answer(self) -> tuple[bool, Any]:
        """Wait for the answer: True and a value, or False and the words of an error.

        Raises
        ------
        EOFError
            If the helper has died, or was killed since it was late.
        """
        try:
            answer: tuple[bool, Any] = self.connection.recv()
        except OSError as error:
            raise EOFError(str(error)) from None
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer.join()  # afterwards it is certain whether it was late
                self._timer = None
        return answer

    def _expire(self) -> None:
        self.late = True
        self.kill()

    def close(self) -> str:
        """End the process; return how it has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self.kill()
        self.connection.close()
        code = self.code or 0
        names = {number.value: number.name for number in signal.Signals}  # those of real time have none
        return f"signal {names.get(-code, -code)}" if code < 0 else f"exit code {code}"


class Forked(Helper):
    """A fork of this process.

    Parameters
    ----------
    function : callable
        From a task to an answer; both have to be picklable, the function need not.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        super().__init__(here)
        self._process = context.Process(target=_serve_forked, args=(os.getpid(), there, function), daemon=True)
        with warnings.catch_warnings():
            # Threads of BLAS count as threads of this process; they hold no lock that a helper could wait for.
            warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
            self._process.start()
        there.close()

    @property
    def code(self) -> int | None:
        """Exit code."""
        return self._process.exitcode

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()


class Fresh(Helper):
    """A fresh process in a group of its own, which is killed with all that it has started.

    It dies with this process, even if this is killed (on Linux at once; elsewhere as soon as Python runs there).

    Parameters
    ----------
    function : str
        "module:function" of this library.
    environment : mapping
        Additional environment variables.
    """

    def __init__(self, function: str, environment: Mapping[str, str]) -> None:
        here, there = multiprocessing.Pipe()
        super().__init__(here)
        self._errors: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115, closed by close
        with there:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-c", START, str(os.getpid())),
                    *(json.dumps(sys.path), str(there.fileno()), function),
                ],
                stdin=subprocess.PIPE,  # open as long as this process lives
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env={**os.environ, **environment},
                pass_fds=[there.fileno()],
                start_new_session=True,  # so that it can be killed with all that it starts
            )

    def send(self, task: Any, timeout: float | None = None) -> None:
        """Send a task; what earlier ones wrote to standard error is forgotten."""
        self._errors.truncate(0)
        super().send(task, timeout)

    @property
    def code(self) -> int | None:
        """Exit code."""
        return self._process.poll()

    def kill(self) -> None:
        """Kill the process and all that it has started."""
        # The group may be gone; on macOS a group of zombies refuses signals.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> str:
        """End the process; return how it has ended, with the last words of standard error."""
        how = super().close()
        assert self._process.stdin is not None
        with self._process.stdin, self._errors as errors:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4 * TAIL))
            words = errors.read().decode(errors="replace").strip()[-TAIL:]
        return f"the process ended without an answer ({how})" + (f": {words}" if words else "")


# How a task ended: with True a value; with False the words of what was raised; with None the words about the death of
# the process, and whether it was killed at the timeout.
Ended = tuple[Any, bool | None, Any]


class Helpers:
    """Helper processes that are started when there are tasks, and replaced when they die; use it in a `with`.

    Parameters
    ----------
    start : callable
        Starts one.
    tasks_each : int
        Tasks after which a helper is replaced, too.
    """

    def __init__(self, start: Callable[[], Helper], tasks_each: int = MOST_TASKS) -> None:
        self._start, self._tasks_each = start, tasks_each
        self._idle: list[Helper] = []
        self._all: set[Helper] = set()

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all of them."""
        self.end_idle()
        while self._all:
            self._all.pop().close()

    def end_idle(self) -> int:
        """End those that have nothing to do; return how many are at work."""
        with suppress(IndexError):
            while True:
                self._end(self._idle.pop())
        return len(self._all)

    def send(self, task: Any, timeout: float | None = None) -> Helper:
        """Send a task to a helper that has nothing to do, or to a new one."""
        try:
            helper = self._idle.pop()
        except IndexError:
            helper = self._start()
            self._all.add(helper)
        helper.send(task, timeout)
        return helper

    def run(self, tasks: Iterable[Any], count: int) -> Generator[Ended]:
        """Yield how tasks ended, in the order of their ends, `count` at a time; closing it ends what is at work.

        A task that has an attribute `timeout` has that long [s].
        """
        waiting = iter(tasks)
        busy: dict[Helper, Any] = {}
        try:
            while True:
                while len(busy) < count and (task := next(waiting, None)) is not None:
                    busy[self.send(task, getattr(task, "timeout", None))] = task
                if not busy:
                    return
                ready = wait([helper.connection for helper in busy], POLL)
                for helper in [each for each in busy if each.connection in ready or each.code is not None]:
                    yield self._ended(helper, busy.pop(helper))
        finally:
            for helper in busy:
                self._end(helper)

    def _ended(self, helper: Helper, task: Any) -> Ended:
        if helper.code is not None:
            helper.kill()  # what it has started would keep the connection open
        try:
            success, value = helper.answer()
        except EOFError:
            return task, None, (self._end(helper), helper.late)
        if success and helper.tasks < self._tasks_each and not helper.late:
            self._idle.append(helper)
        else:
            self._end(helper)
        return task, success, value

    def _end(self, helper: Helper) -> str:
        self._all.discard(helper)
        return helper.close()


def serve_fresh(descriptor: int, reference: str) -> None:
    """Answer tasks in a fresh process, which has no input and whose output goes nowhere."""
    _leave_signals_to_the_parent()
    watched, nowhere = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)  # a task that reads meets the end at once
    threading.Thread(target=_watch, args=(watched,), daemon=True).start()
    module, _, name = reference.partition(":")
    _serve(Connection(descriptor), getattr(importlib.import_module(module), name))
    os._exit(0)  # no thread of a task keeps the process alive


def _serve_forked(parent: int, connection: Connection, function: Callable[[Any], Any]) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a parent that is killed takes its helpers along
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its helpers
    if os.getppid() == parent:
        _serve(connection, function)


def _serve(connection: Connection, function: Callable[[Any], Any]) -> None:
    """Answer tasks in their order until the other side is closed."""
    with suppress(EOFError, OSError):
        while True:
            task = connection.recv()
            try:
                answer = True, function(task)
            except Exception as error:  # it is the parent's to judge
                answer = False, f"{type(error).__name__}: {error}"
            connection.send(answer)


def _leave_signals_to_the_parent() -> None:
    """Ignore Ctrl-C and the SIGTERM of a batch job: the parent ends this process, so that no death is counted.

    What the task starts has its usual signals, such as the SIGTERM by which multiprocessing ends its processes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # a handler, other than SIG_IGN, is not handed on to programs
    # Between the fork and the change in the child a SIGTERM would meet the handler above and be lost: it has to wait.
    os.register_at_fork(
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),
        after_in_parent=_let_through,
        after_in_child=_usual,
    )


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def _usual() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _let_through()


def _watch(watched: int) -> None:
    """End this process with its parent, which holds the other end of the former standard input as long as it lives."""
    with suppress(OSError):
        while os.read(watched, 1):
            pass
    os.killpg(0, signal.SIGKILL)  # with whatever the task has started


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
    with Helpers(lambda: Forked(lambda number: function(tasks[number]))) as helpers:
        for number, success, value in helpers.run(range(len(tasks)), workers):
            if not success:
                raise OptionError("a helper process has died; use workers=1." if success is None else value)
            results[number] = value
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
