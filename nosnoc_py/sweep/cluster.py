"""Tasks on an existing Dask cluster (extra `[cluster]`): a worker has processes for them, too.

Dask restarts tasks of a dead worker by itself, which would hide crashes of solvers. So every task is bound to one
worker, without retries, and the loop in `DaskExecutor.run` notices workers that are gone. Every call to the scheduler
has a time limit, since clients of Dask may wait for ever for a scheduler that was stopped. Invariant: every task ends
in exactly one `Outcome`, an answer or a death.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from nosnoc_py.errors import OptionError, optional
from nosnoc_py.processes import Helpers
from nosnoc_py.sweep.local import outcomes, worker
from nosnoc_py.sweep.store import library_version
from nosnoc_py.sweep.tasks import Outcome, Task

PATIENCE = 10.0  # seconds in which a scheduler has to answer, and a worker to appear
FETCH = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # seconds in which an answer has to come over, files included: attempts
IMPORT = 120.0  # seconds in which the workers have to say their version
POLL = 0.5  # seconds between looks for workers that have come or gone

ADDRESS = re.compile(r"((tcp|tls|ws|wss)://)?(?P<host>[^\s:/\[\]]+|\[[0-9a-fA-F:.%]+\]):(?P<port>[0-9]+)")

# The processes of a sweep on this worker of a cluster, by the sweep's name: another one may have other modules.
HELPERS: dict[str, Helpers] = {}


def remote(session: str, task: Task) -> Outcome:
    """Run a task on a worker of the cluster, in a process that serves this sweep alone."""
    for other in [*HELPERS]:
        if other != session and not HELPERS[other].end_idle():
            HELPERS.pop(other, None)
    return next(outcomes(HELPERS.setdefault(session, Helpers(worker)), [task], 1))


def leave(session: str) -> None:
    """End the processes of a sweep on this worker of a cluster."""
    HELPERS.pop(session, Helpers(worker)).close()


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
        _check_address(address)
        self._client = _client(address, patience)
        self._done: SimpleQueue[Any] = SimpleQueue()
        self._session = uuid4().hex
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
        logger = logging.getLogger("distributed.client")  # it would log the end of a scheduler with a traceback
        logger.addFilter(_nothing)
        try:
            with suppress(Exception):  # a scheduler that is lost
                _within(self.patience, self._client.run, leave, self._session)
            with suppress(TimeoutError):
                _within(2 * self.patience, self._client.close, timeout=self.patience)
        finally:
            logger.removeFilter(_nothing)

    def run(self, tasks: Iterable[Task]) -> Generator[Outcome]:
        """Yield outcomes in the order of their ends; see `Executor`."""
        waiting = iter(tasks)
        running: dict[Any, tuple[Task, str]] = {}
        try:
            while True:
                threads = self._threads()
                # Before new tasks start: dead workers still count as busy threads otherwise.
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
                    yield self._outcome(*running.pop(future), future)
        finally:
            with suppress(TimeoutError):
                _within(self.patience, self._client.cancel, list(running))

    def _fill(self, waiting: Iterator[Task], running: dict[Any, tuple[Task, str]], threads: Mapping[str, int]) -> bool:
        """Start tasks on all free threads; True when there are no more."""
        busy = [worker for _, worker in running.values()]
        # Dask counts threads, not the processes that tasks start: no more than one task per thread.
        free = [name for name, count in threads.items() for _ in range(count - busy.count(name))]
        for name in free:
            task = next(waiting, None)
            if task is None:
                return True
            future = self._client.submit(
                remote,
                self._session,
                task,
                # A fresh key: Dask would return the stored result of an earlier attempt.
                key=f"{task.key}-{time.time_ns()}",
                workers=[name],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            running[future] = (task, name)
            # Called in a thread of the client; the queue hands the future over to this one.
            future.add_done_callback(self._done.put)
        return False

    def _ended(self, running: Mapping[Any, Any]) -> list[Any]:
        """Return the tasks that have ended; wait a little for the first."""
        ended = []
        with suppress(Empty):
            ended.append(self._done.get(timeout=POLL))
            while True:
                ended.append(self._done.get_nowait())
        return [future for future in ended if future in running]  # others were given up

    def _threads(self) -> dict[str, int]:
        try:
            return dict(_within(self.patience, self._client.nthreads))
        except Exception as error:
            raise self._lost(error) from None

    def _lost(self, error: Exception) -> OptionError:
        return OptionError(
            f"scheduler {self.address}: does not answer any more ({type(error).__name__}: {error}); finished runs are "
            "kept. Start again when it is back, or without a scheduler."
        )

    def _outcome(self, task: Task, worker: str, future: Any) -> Outcome:
        if future.status != "finished":
            reason = future.exception(timeout=self.patience) if future.status == "error" else future.status
            return Outcome(task=task, death=f"the cluster lost it ({reason})")
        for patience in FETCH:
            try:
                outcome: Outcome = future.result(timeout=patience)
                return outcome
            except TimeoutError:
                if worker not in self._threads():  # gone before its answer came over; nobody else has it
                    future.cancel()
                    return Outcome(task=task, death=f"the worker {worker} of the cluster is gone")
            except Exception as error:
                raise self._lost(error) from None
        raise self._lost(TimeoutError(f"no answer within {sum(FETCH):g} s"))

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
            versions = _within(IMPORT, self._client.run, library_version)
        except Exception as error:
            raise OptionError(
                f"scheduler {self.address}: its workers cannot run nosnoc_py ({type(error).__name__}: {error}); "
                "install it there."
            ) from None
        other = {worker: version for worker, version in versions.items() if version != library_version()}
        if other:
            raise OptionError(
                f"scheduler {self.address}: expected nosnoc_py {library_version()} on all workers, found {other}."
            )


def _nothing(record: logging.LogRecord) -> bool:
    return False


def _within(seconds: float, ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Answer of a call that may wait for ever, as for a scheduler that is stopped.

    Raises
    ------
    TimeoutError
        If there is none in time; the call is left to itself.
    """
    answered: Future[Any] = Future()

    def wait() -> None:
        try:
            answered.set_result(ask(*arguments, **options))
        except BaseException as error:  # handed over
            answered.set_exception(error)

    threading.Thread(target=wait, daemon=True).start()
    try:
        return answered.result(timeout=seconds)
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None


def _check_address(address: str) -> None:
    """Refuse what cannot be a scheduler before a client waits for it."""
    parts = ADDRESS.fullmatch(address)
    if parts is None:
        raise OptionError(f"scheduler: expected an address such as tcp://127.0.0.1:8786, given {address!r}.")
    try:
        socket.getaddrinfo(parts["host"].strip("[]"), int(parts["port"]))
    except (socket.gaierror, OverflowError) as error:  # no such name, no such port: waiting would not help
        raise OptionError(f"scheduler {address}: there is no such address ({error}); check it.") from None


def _silent(address: str, patience: float, error: Exception) -> OptionError:
    return OptionError(
        f"scheduler {address}: no answer within {patience:g} s ({' '.join(str(error).split())}); check the address and "
        'that it runs, e.g. "dask scheduler", or run without a scheduler.'
    )


def _client(address: str, patience: float) -> Any:
    distributed = optional(
        "distributed",
        'scheduler: distributed is not installed; pip install "nosnoc_py[cluster]", or run without a scheduler.',
    )
    try:
        return distributed.Client(address, timeout=patience, set_as_default=False)
    except (OSError, ValueError) as error:
        raise _silent(address, patience, error) from None
