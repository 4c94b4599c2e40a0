"""Tasks in processes of this machine: a fresh one for each, so that a crash of one cannot harm another.

Numerical libraries may crash, hang, or leak memory over thousands of solves. Every task has a fresh process in a
process group of its own, which is killed with all that it starts: at its timeout, when the iterator is closed, and when
this process dies. Answers come through a file without a name, since a pipe would block a worker whose answer is larger
than its buffer. The protocol is in `worker`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from typing import Any

from nosnoc_py.errors import OptionError, check_whole
from nosnoc_py.sweep.tasks import TIMEOUT, Outcome, Task, failed_row

# One thread each: runs side by side would fight for the cores, and results would depend on their number.
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
TAIL = 500  # characters of standard error that a death reports
POLL = 0.02  # seconds between looks at the processes
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
from nosnoc_py.sweep import worker
worker.main()
"""


class LocalExecutor:
    """Runs tasks in processes of this machine.

    Every task has a process of its own, with one BLAS thread and in a process group of its own. It is killed at its
    timeout, when the iterator is closed, and when this process dies, even by SIGKILL (on Linux at once; elsewhere as
    soon as Python runs there). Not for Windows, which has no groups of processes that end together.

    Parameters
    ----------
    workers : int
        Processes at a time.

    Raises
    ------
    OptionError
        If `workers` is not positive, or on Windows.
    """

    def __init__(self, workers: int = 1) -> None:
        check_whole(workers=workers)
        if os.name != "posix":
            raise OptionError(
                "a sweep needs Linux or macOS, because every run has its own process; on Windows use WSL."
            )
        self.workers = workers

    def run(self, tasks: Iterable[Task]) -> Generator[Outcome]:
        """Yield outcomes in the order of their ends; see `Executor`."""
        waiting = iter(tasks)
        running: list[_Process] = []
        try:
            while True:
                while len(running) < self.workers and (task := next(waiting, None)) is not None:
                    running.append(_Process(task))
                if not running:
                    return
                time.sleep(POLL)
                for process in [process for process in running if process.ended]:
                    running.remove(process)
                    yield process.outcome()
        finally:
            for process in running:
                process.kill()


class _Process:
    """One task under way. It answers into a file without a name, which is read when it has ended."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._answer, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115, closed by kill
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, str(os.getpid()), json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=self._answer,
            stderr=self._errors,
            env={**os.environ, **dict.fromkeys(THREADS, "1")},
            start_new_session=True,  # so that it can be killed with all that it starts
        )
        self._deadline = float("inf") if task.timeout is None else time.monotonic() + task.timeout
        assert self._process.stdin is not None
        self._in = self._process.stdin
        order = {"function": task.function, "arguments": dict(task.arguments), "paths": task.paths}
        with suppress(BrokenPipeError):  # it died already: the end of its answer says so
            self._in.write(json.dumps(order).encode() + b"\n")
            self._in.flush()

    @property
    def ended(self) -> bool:
        """It has ended by itself, or its time is up."""
        return self._process.poll() is not None or time.monotonic() >= self._deadline

    def outcome(self) -> Outcome:
        """Return the outcome, and end the process."""
        # Before the kill, after which every process has ended.
        late = self._process.poll() is None
        code, content, errors = self.kill()
        # A complete answer counts, also if the process had to be killed or crashed at its exit.
        if (answer := _decoded(content)) is not None:
            return Outcome(task=self.task, row=answer[0], files=answer[1])
        if late:
            return Outcome(task=self.task, row=failed_row(TIMEOUT, f"killed after {self.task.timeout:g} s"))
        return Outcome(task=self.task, death=_death(code, errors.decode(errors="replace").strip()[-TAIL:]))

    def kill(self) -> tuple[int, bytes, bytes]:
        """End the process and all that it has started; return its exit code, its answer, and the end of its errors."""
        # The group may be gone; on macOS a group of zombies refuses signals.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        with suppress(OSError):
            self._in.close()
        with self._answer, self._errors:
            self._answer.seek(0)
            self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 4 * TAIL))
            return code, self._answer.read(), self._errors.read()


def _decoded(answer: bytes) -> tuple[dict[str, Any], dict[str, bytes]] | None:
    """Row and files of a complete answer."""
    end = answer.find(b"\n")
    if end < 0:
        return None
    head = json.loads(answer[:end])
    if len(answer) < end + 1 + sum(head["files"].values()):
        return None
    files, start = {}, end + 1
    for suffix, size in head["files"].items():
        files[suffix] = answer[start : start + size]
        start += size
    return head["row"], files


def _death(code: int, errors: str) -> str:
    how = f"signal {_signal(-code)}" if code < 0 else f"exit code {code}"
    return f"the process ended without an answer ({how})" + (f": {errors}" if errors else "")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # those of real time have no names
        return str(number)
