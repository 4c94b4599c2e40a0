"""Suppress lines that some versions of HiGHS print to standard output whatever their options (HiGHS issue 2783)."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

STDOUT = 1
# Beginnings of the lines.
HIGHS = (b"HighsMipSolverData::", b"tmpSolver.run()")
_lock, _open = Lock(), list[tuple[int, Any]]()
_inside = [0]


@contextmanager
def suppress_highs_output() -> Iterator[None]:
    """Remove lines of HiGHS from the standard output of the process; other output appears at the end of the block.

    Several threads may be inside: the last one to leave writes the output.
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
        original = os.dup(STDOUT)
    except OSError:  # no standard output
        return
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `_end`
    os.dup2(file.fileno(), STDOUT)
    _open.append((original, file))


def _end() -> None:
    if not _open:
        return
    original, file = _open.pop()
    _flush()
    os.dup2(original, STDOUT)
    os.close(original)
    file.seek(0)
    others = b"".join(line for line in file if not line.startswith(HIGHS))
    file.close()
    while others:
        others = others[os.write(STDOUT, others) :]


def _flush() -> None:
    """Flush the buffers of C: HiGHS writes through them, and their lines would appear later."""
    try:
        ctypes.CDLL(None).fflush(None)
    except (TypeError, OSError, AttributeError):  # platforms on which the C library has another name
        return
