"""The process of one task: reads it from standard input, answers through a pipe, and dies with its parent.

The protocol has no pickle: a task is one line of JSON, an answer is one line of JSON (row, sizes of files), then the
contents of the files. What the task prints goes nowhere; standard error is kept by the parent for its report.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

Answer = tuple[dict[str, Any], dict[str, bytes]]


def main(parent: int) -> None:
    """Do the task that comes from standard input."""
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the parent, which ends this process
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # solvers write to the file descriptor itself
    order = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_watch, daemon=True).start()
    row, files = perform(order)
    head = {"row": row, "files": {suffix: len(content) for suffix, content in files.items()}}
    with os.fdopen(answer, "wb") as pipe:
        pipe.write(json.dumps(head, allow_nan=False).encode() + b"\n")
        for content in files.values():
            pipe.write(content)
    os._exit(0)  # no thread of the task keeps the process alive


def perform(order: Mapping[str, Any]) -> Answer:
    """Call the function of a task; what it raises is an answer, too."""
    from nosnoc_py.sweep.references import function
    from nosnoc_py.sweep.tasks import ERROR, failed_row

    sys.path[:0] = order["paths"]  # not before the library is there: its modules are not to be hidden by the user's
    try:
        found = function(order["function"])(**order["arguments"])
        row, files = found if isinstance(found, tuple) else (found, {})
        return plain(row), dict(files)
    except MemoryError:
        raise
    except Exception as error:
        return failed_row(ERROR, f"{type(error).__name__}: {error}"), {}


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as JSON gives it back: NaN and infinity are None, NumPy's scalars are numbers."""
    from nosnoc_py.sweep.store import encoded

    kept: dict[str, Any] = json.loads(encoded(dict(row)))
    return kept


def _die_with(parent: int) -> None:
    """Ask Linux for a SIGKILL when the thread that started this process ends."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it was faster
        os._exit(1)


def _watch() -> None:
    """The parent holds the other end of standard input as long as it lives."""
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os.killpg(0, signal.SIGKILL)  # with whatever the task has started
