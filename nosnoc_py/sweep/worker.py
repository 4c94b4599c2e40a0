"""A task in its process: the function of a task is called, and what it returns or raises becomes plain values."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from nosnoc_py.sweep.references import function, on_path
from nosnoc_py.sweep.store import check_suffix, encoded
from nosnoc_py.sweep.tasks import ERROR, Task, failed_row, is_shortage

Answer = tuple[dict[str, Any], dict[str, bytes]]


def perform(task: Task) -> Answer:
    """Call the function of a task; its errors are answers, too, unless the machine is out of memory or disk space."""
    before = os.getcwd()
    try:
        with on_path(*task.paths):
            returned = function(task.function)(**task.arguments)
        row, files = returned if isinstance(returned, tuple) else (returned, {})
        for suffix in files:
            check_suffix(suffix)
        return plain(row), dict(files)
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # nobody but the task raises the last two here
        if is_shortage(error):
            raise
        return plain(failed_row(ERROR, f"{type(error).__name__}: {error}")), {}
    finally:
        os.chdir(before)  # the next task of this process begins where this one did


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row as JSON reads it back: NaN and infinity are None, NumPy's scalars are numbers."""
    return json.loads(encoded(dict(row)))
