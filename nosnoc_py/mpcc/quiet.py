"""HiGHS without the lines that some of its versions print from inside, whatever their options (HiGHS issue 2783)."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

STDOUT = 1
# What the lines begin with.
HIGHS = (b"HighsMipSolverData::", b"tmpSolver.run()")
_lock, _open = Lock(), list[tuple[int, Any]]()
_inside = [0]


@contextmanager
def without_lines_of_highs() -> Iterator[None]:
    """Keep lines of HiGHS from the output of the process; everything else that is written meanwhile is written after.

    Threads may be inside together: the last one to leave writes what the others left.
    """
    with _lock:
        if _inside[0] == 0:
            _begin()
        _inside[0] += 1
    try:
        yield
    finally:
        with _lock:
            _inside[0] -= 1
            if _inside[0] == 0:
                _end()


def _begin() -> None:
    try:
        _flush()
        kept = os.dup(STDOUT)
    except OSError:  # no standard output: nothing to keep clean
        return
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `_end`
    os.dup2(file.fileno(), STDOUT)
    _open.append((kept, file))


def _end() -> None:
    if not _open:
        return
    kept, file = _open.pop()
    _flush()
    os.dup2(kept, STDOUT)
    os.close(kept)
    file.seek(0)
    others = b"".join(line for line in file if not line.startswith(HIGHS))
    file.close()
    while others:
        others = others[os.write(STDOUT, others) :]


def _flush() -> None:
    """Empty the buffers of C, whose lines would come later."""
    try:
        ctypes.CDLL(None).fflush(None)
    except (TypeError, OSError, AttributeError):  # another platform names its library
        return
