"""A whole sweep in one call: read and check the configuration, do its unfinished runs, write and return the results.

All checks that need no run come first: the configuration, its functions, the table, the scheduler, and earlier results.
The folder then gets the configuration and an index, so that it can be read at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from nosnoc_py.errors import OptionError
from nosnoc_py.sweep.config import Configuration, configuration, load
from nosnoc_py.sweep.grid import SweepRun, runs
from nosnoc_py.sweep.local import LocalExecutor
from nosnoc_py.sweep.perform import SweepState, perform
from nosnoc_py.sweep.results import Results, check_table, read, write_copy, write_index, write_table
from nosnoc_py.sweep.store import Store
from nosnoc_py.sweep.tasks import Executor, Task


def run(
    given: Configuration | Mapping[str, Any] | str | Path,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    output: str | Path | None = None,
    retry: bool = False,
    callback: Callable[[SweepState], Any] | None = None,
) -> Results:
    """Do all runs of a configuration that are not finished yet.

    Parameters
    ----------
    given : Configuration, mapping, or path of a YAML file
    scheduler : str, optional
        Address of a Dask scheduler, e.g. "tcp://127.0.0.1:8786"; without one, processes of this machine.
    workers : int, optional
        Processes at a time; by default those of the configuration.
    output : path, optional
        Folder of the results; by default that of the configuration.
    retry : bool
        True to repeat runs that failed without a result ("error", "timeout", "died"). A solver's own
        failure is a result.
    callback : callable, optional
        Called with a `SweepState` after every run; returns `ns.Stop` to end the work.

    Returns
    -------
    Results
        Of the finished runs; the table beside it (results.csv or results.parquet) is written also when the work is
        interrupted. A later call in the same folder goes on from there.

    Raises
    ------
    OptionError
        For mistakes that are known before the first run: see `load`, `runs`, `perform`, `DaskExecutor`.

    Examples
    --------
    >>> from nosnoc_py import sweep
    >>> results = sweep.run("problems/configs/disc_homotopy.yaml", workers=4)  # doctest: +SKIP
    >>> print(results.summary())  # doctest: +SKIP
    """
    whole = load(given) if isinstance(given, str | Path) else configuration(given)
    whole = whole.replace_run(workers=workers, output=None if output is None else str(output))
    todo = runs(whole)
    check_table(whole.run.table)
    store = Store(whole.output)
    with ExitStack() as stack:
        executor = _executor(whole, scheduler, stack)
        stack.enter_context(store.locked())
        for each in todo:
            store.row(each.key)  # an unreadable result raises before anything is written
        write_copy(store.folder, whole)
        write_index(store.folder, todo)
        try:
            perform(tasks(whole, todo), store, executor, retry=retry, callback=callback)
        except BaseException:
            with suppress(Exception):  # a full disc would be the reason of both
                _tabulated(store.folder, whole.run.table)
            raise
        return _tabulated(store.folder, whole.run.table)


def _tabulated(folder: Path, table: str) -> Results:
    results = read(folder)
    write_table(results.rows, folder, table)
    return results


def tasks(given: Configuration, todo: Sequence[SweepRun]) -> list[Task]:
    """Return the tasks of runs."""
    folder = None if given.folder is None else str(given.folder)
    paths = tuple(dict.fromkeys(path for path in (folder, str(Path.cwd())) if path is not None))
    return [
        Task(
            key=each.key,
            function="nosnoc_py.sweep.execute:produce",
            arguments={"resolved": each.resolved, "trajectory": given.run.trajectories, "folder": folder},
            paths=paths,
            timeout=given.run.timeout,
        )
        for each in todo
    ]


def _executor(given: Configuration, scheduler: str | None, stack: ExitStack) -> Executor:
    if scheduler is None:
        return LocalExecutor(given.run.workers)
    if not isinstance(scheduler, str) or not scheduler:
        raise OptionError(f"scheduler: expected an address such as tcp://127.0.0.1:8786, given {scheduler!r}.")
    from nosnoc_py.sweep.cluster import DaskExecutor

    return stack.enter_context(DaskExecutor(scheduler))
