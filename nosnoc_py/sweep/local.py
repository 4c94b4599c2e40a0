"""Tasks in processes of this machine that are fresh, warm, and replaced: a crash of one harms no other.

Numerical libraries may crash, hang, or leak memory over thousands of solves. So tasks run in helper processes, one
after another in each, since a process needs about a second to start and a short run much less. A process that dies or
is late is replaced; `processes` has the mechanism.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Mapping
from typing import Any

from nosnoc_py.errors import OptionError, check_whole
from nosnoc_py.processes import MOST_TASKS, Fresh, Helpers
from nosnoc_py.sweep.references import function, on_path
from nosnoc_py.sweep.store import check_suffix, encoded
from nosnoc_py.sweep.tasks import ERROR, TIMEOUT, Outcome, Task, failed_row, is_shortage

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


class LocalExecutor:
    """Runs tasks in processes of this machine.

    A process does one task after another, with one BLAS thread and in a process group of its own. It is killed at the
    timeout of a task, when the iterator is closed, and when this process dies, even by SIGKILL (on Linux at once;
    elsewhere as soon as Python runs there). Not for Windows, which has no groups of processes that end together.

    Parameters
    ----------
    workers : int
        Processes at a time.
    tasks_each : int
        Tasks that a process does before another one takes its place; 1 where times are compared.

    Raises
    ------
    OptionError
        If `workers` is not positive, or on Windows.
    """

    def __init__(self, workers: int = 1, tasks_each: int = MOST_TASKS) -> None:
        check_whole(workers=workers)
        if os.name != "posix":
            raise OptionError("a sweep needs Linux or macOS, because runs have processes; on Windows use WSL.")
        self.workers, self.tasks_each = workers, tasks_each

    def run(self, tasks: Iterable[Task]) -> Generator[Outcome]:
        """Yield outcomes in the order of their ends; see `Executor`."""
        with Helpers(worker, self.tasks_each) as helpers:
            yield from outcomes(helpers, tasks, self.workers)


def worker() -> Fresh:
    """Start a process for tasks."""
    return Fresh("nosnoc_py.sweep.local:done", dict.fromkeys(THREADS, "1"))


def outcomes(helpers: Helpers, tasks: Iterable[Task], workers: int) -> Generator[Outcome]:
    """Yield outcomes of tasks that helpers do."""
    for task, success, value in helpers.run(tasks, workers):
        if success:
            yield Outcome(task=task, row=value[0], files=value[1])
            continue
        death, late = (value, False) if success is not None else value
        row = failed_row(TIMEOUT, f"killed after {task.timeout:g} s") if late else None
        yield Outcome(task=task, row=row, death=None if late else death)


def done(task: Task) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Call the function of a task; its errors are answers, too, unless the machine is out of memory or disk space."""
    before, environment = os.getcwd(), dict(os.environ)
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
        os.chdir(before)  # the next task of this process begins as this one did
        if os.environ != environment:
            os.environ.clear()
            os.environ.update(environment)


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row as JSON reads it back: NaN and infinity are None, NumPy's scalars are numbers."""
    return json.loads(encoded(dict(row)))
