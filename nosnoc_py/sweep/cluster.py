"""Tasks on an existing Dask cluster (extra `[cluster]`): in a process of their own there, too."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from nosnoc_py.errors import OptionError
from nosnoc_py.sweep.local import LocalExecutor
from nosnoc_py.sweep.store import library_version
from nosnoc_py.sweep.tasks import Outcome, Task

PATIENCE = 10.0  # seconds in which a scheduler has to answer, and a worker to appear
POLL = 0.5  # seconds between looks for workers that have come or gone

Answer = tuple[dict[str, Any] | None, dict[str, bytes], str | None]


def remote(order: Mapping[str, Any]) -> Answer:
    """What a worker of the cluster does: the task in a process of its own."""
    outcome = next(iter(LocalExecutor(1).run([Task(**order)])))
    return outcome.row, dict(outcome.files), outcome.death


class DaskExecutor:
    """Runs tasks on the workers of a Dask cluster, one at a time on each of their threads; use it in a `with`.

    The workers need this library in the same version, and the folders of the tasks (`Task.paths`) under the same
    names. A task is tied to a worker: if that worker dies, the task has died with it and costs one attempt, instead
    of being started elsewhere unseen. When this process ends, what runs on the cluster runs to its end or its timeout
    there, and its answer is lost.

    Parameters
    ----------
    address : str
        Of the scheduler, e.g. "tcp://127.0.0.1:8786".
    patience : float
        Seconds in which it has to answer, and to have a worker.

    Raises
    ------
    OptionError
        If distributed is not installed, the scheduler does not answer, it has no workers, or these have another
        version of this library or none.
    """

    def __init__(self, address: str, patience: float = PATIENCE) -> None:
        self.address, self.patience = address, patience
        self._client = _client(address, patience)
        self._done: SimpleQueue[Any] = SimpleQueue()
        try:
            self._wait_for_workers()
            self._check_versions()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> DaskExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster; the scheduler and its workers go on."""
        logger = logging.getLogger("distributed.client")  # it would tell the end of a scheduler by a traceback
        logger.addFilter(_nothing)
        try:
            self._client.close(timeout=self.patience)
        finally:
            logger.removeFilter(_nothing)

    def run(self, tasks: Iterable[Task]) -> Generator[Outcome]:
        """Yield outcomes in the order of their ends; see `Executor`."""
        waiting = iter(tasks)
        running: dict[Any, tuple[Task, str]] = {}
        try:
            while True:
                threads = self._threads()
                for future in [future for future, (_, worker) in running.items() if worker not in threads]:
                    task, worker = running.pop(future)
                    future.cancel()
                    yield Outcome(task=task, death=f"the worker {worker} of the cluster is gone")
                exhausted = self._fill(waiting, running, threads)
                if not running and exhausted:
                    return
                if not running:
                    self._wait_for_workers()
                for future in self._ended(running):
                    task, _ = running.pop(future)
                    yield _outcome(task, future)
        finally:
            self._client.cancel(list(running))

    def _fill(self, waiting: Iterator[Task], running: dict[Any, tuple[Task, str]], threads: Mapping[str, int]) -> bool:
        """Start tasks on all free threads; True when there are no more."""
        busy = [worker for _, worker in running.values()]
        free = [name for name, count in threads.items() for _ in range(count - busy.count(name))]
        for worker in free:
            task = next(waiting, None)
            if task is None:
                return True
            future = self._client.submit(
                remote,
                {**vars(task), "arguments": dict(task.arguments)},
                key=f"{task.key}-{time.time_ns()}",
                workers=[worker],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            running[future] = (task, worker)
            future.add_done_callback(self._done.put)
        return False

    def _ended(self, running: Mapping[Any, Any]) -> list[Any]:
        """What has ended; waits a little for the first."""
        ended = []
        with suppress(Empty):
            ended.append(self._done.get(timeout=POLL))
            while True:
                ended.append(self._done.get_nowait())
        return [future for future in ended if future in running]  # others were given up

    def _threads(self) -> dict[str, int]:
        try:
            return dict(self._client.nthreads())
        except Exception as error:
            raise self._lost(error) from None

    def _lost(self, error: Exception) -> OptionError:
        return OptionError(
            f"scheduler {self.address}: does not answer any more ({type(error).__name__}: {error}); finished runs are "
            "kept. Start again when it is back, or without a scheduler."
        )

    def _wait_for_workers(self) -> None:
        deadline = time.monotonic() + self.patience
        while not self._threads():
            if time.monotonic() > deadline:
                raise OptionError(
                    f"scheduler {self.address}: has no workers; start some, e.g. dask worker {self.address}"
                )
            time.sleep(POLL / 5)

    def _check_versions(self) -> None:
        try:
            found = self._client.run(library_version)
        except Exception as error:
            raise OptionError(
                f"scheduler {self.address}: its workers cannot run nosnoc_py ({type(error).__name__}: {error}); "
                "install it there."
            ) from None
        other = {worker: version for worker, version in found.items() if version != library_version()}
        if other:
            raise OptionError(
                f"scheduler {self.address}: expected nosnoc_py {library_version()} on all workers, found {other}."
            )


def _nothing(record: logging.LogRecord) -> bool:
    return False


def _client(address: str, patience: float) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise OptionError(
            'scheduler: distributed is not installed; pip install "nosnoc_py[cluster]", or run without a scheduler.'
        ) from None
    try:
        return Client(address, timeout=patience, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"scheduler {address}: no answer within {patience:g} s ({' '.join(str(error).split())}); check the address "
            'and that it runs, e.g. "dask scheduler", or run without a scheduler.'
        ) from None


def _outcome(task: Task, future: Any) -> Outcome:
    if future.status != "finished":
        said = future.exception(timeout=1.0) if future.status == "error" else future.status
        return Outcome(task=task, death=f"the cluster lost it ({said})")
    row, files, death = future.result()
    return Outcome(task=task, row=row, files=files, death=death)
