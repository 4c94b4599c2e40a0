"""Tasks for helper processes, their outcomes, and the interface of executors.

Sweeps know tasks, machines know executors, and neither knows the other. Outcomes:

- The function returns: its row is the answer.
- The function raises: an answer as well, because the same call would raise again. The row has the status "error" and
  the message, and the task is not tried again. (Not so `MemoryError` and the `OSError` of a machine that is full: these
  are deaths.)
- The time is up: the process is killed, and another one takes its place. The row has the status "timeout"; more of the
  same time would not help, so the task is not tried again either.
- The process ends without an answer (a crash, a kill, the machine out of memory): a death, which costs one attempt.
- What runs the tasks is interrupted or killed: no end at all. The task is started anew the next time.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from nosnoc_py.errors import OptionError

# Statuses of rows without a result, besides the words of `nosnoc_py.Status`.
ERROR, TIMEOUT, DIED = "error", "timeout", "died"
FAILED = (ERROR, TIMEOUT, DIED)
# No place, no more files or processes, no memory, a broken disc: later, or elsewhere, the same call may succeed.
SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO)


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """A call that a helper process makes.

    Parameters
    ----------
    key : str
        Name of its result: letters, digits, "_", "-" and "." only, so that files can have it.
    function : str
        "module:function", called as function(**arguments). It returns a mapping, the row, that JSON can hold; or
        (row, {suffix: bytes}) with files to keep, e.g. {".nc": ...}.
    arguments : mapping
        What JSON can hold.
    paths : tuple of str
        Folders to put in front of sys.path.
    timeout : float, optional
        Seconds; for the first task of a process imports included.
    """

    key: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", self.key):
            raise OptionError(f"key of a task: expected letters, digits, '_', '-' and '.', given {self.key!r}.")


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """Outcome of a task.

    Parameters
    ----------
    task : Task
    row : dict, optional
        The answer; None after a death.
    files : mapping
        Contents by suffix.
    death : str, optional
        Cause of death of the process, if it gave no answer.
    """

    task: Task
    row: dict[str, Any] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    death: str | None = None


class Executor(Protocol):
    """Interface of the executors: processes of this machine, or a cluster."""

    def run(self, tasks: Iterable[Task]) -> Generator[Outcome]:
        """Yield an outcome for every task, in the order in which they end.

        Closing the generator ends the tasks that still run.
        """
        ...


def failed_row(status: str, message: str) -> dict[str, Any]:
    """Return the row of a task without a result."""
    return {"status": status, "success": False, "message": message}


def is_shortage(error: BaseException) -> bool:
    """Return True if an error is about the machine, not the task."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORTAGES)
