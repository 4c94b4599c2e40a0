"""The process of one task: reads it from standard input, answers into a file, and dies with its parent.

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


def main() -> None:
    """Do the task from standard input, and write the answer."""
    _leave_signals_to_the_parent()
    order = json.loads(sys.stdin.buffer.readline())
    watched, answer = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)  # a task that reads meets the end at once
    os.dup2(nowhere, 1)  # solvers write to the file descriptor itself
    threading.Thread(target=_watch, args=(watched,), daemon=True).start()
    row, files = perform(order)
    head = {"row": row, "files": {suffix: len(content) for suffix, content in files.items()}}
    with os.fdopen(answer, "wb") as file:
        file.write(json.dumps(head, allow_nan=False).encode() + b"\n")
        for content in files.values():
            file.write(content)
    os._exit(0)  # no thread of the task keeps the process alive


def perform(order: Mapping[str, Any]) -> Answer:
    """Call the function of a task; its errors are answers, too, unless the machine is out of memory or disk space."""
    from nosnoc_py.sweep.references import function
    from nosnoc_py.sweep.store import check_suffix
    from nosnoc_py.sweep.tasks import ERROR, failed_row, is_shortage

    sys.path[:0] = order["paths"]  # not before the library is there: its modules are not to be hidden by the user's
    try:
        returned = function(order["function"])(**order["arguments"])
        row, files = returned if isinstance(returned, tuple) else (returned, {})
        for suffix in files:
            check_suffix(suffix)
        return plain(row), dict(files)
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # nobody but the task raises the last two here
        if is_shortage(error):
            raise
        return plain(failed_row(ERROR, f"{type(error).__name__}: {error}")), {}


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row as JSON reads it back: NaN and infinity are None, NumPy's scalars are numbers."""
    from nosnoc_py.sweep.store import encoded

    return json.loads(encoded(dict(row)))


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
