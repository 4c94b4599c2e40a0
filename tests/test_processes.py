"""Helper processes: order of answers, errors, deaths, tasks that are dropped."""

import os
import time

import pytest

from nosnoc_py import processes
from nosnoc_py.errors import OptionError
from nosnoc_py.processes import mapped

needs_fork = pytest.mark.skipif(not processes.can_fork(), reason="processes cannot be forked here")


@needs_fork
def test_answers_are_in_the_order_of_tasks_and_from_other_processes() -> None:
    def slow(k: int) -> tuple[int, int]:
        time.sleep(0.02 * (3 - k))  # the last one ends first
        return k, os.getpid()

    answers = mapped(slow, [0, 1, 2, 3], workers=3)
    assert [k for k, _ in answers] == [0, 1, 2, 3]
    assert os.getpid() not in {process for _, process in answers}


@pytest.mark.parametrize("workers", [1, 5])
def test_one_worker_or_one_task_needs_no_process(workers: int) -> None:
    tasks = [0, 1] if workers == 1 else [0]
    assert mapped(lambda _: os.getpid(), tasks, workers=workers) == [os.getpid()] * len(tasks)


def test_without_forks_this_process_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "can_fork", lambda: False)
    assert mapped(lambda _: os.getpid(), [0, 1, 2], workers=3) == [os.getpid()] * 3


@needs_fork
def test_an_error_has_its_words() -> None:
    with pytest.raises(OptionError, match=r"ZeroDivisionError: .*by zero"):
        mapped(lambda k: 1 // k, [1, 0, 2], workers=2)


@needs_fork
def test_a_death_is_told() -> None:
    with pytest.raises(OptionError, match="has died"):
        mapped(lambda k: os._exit(1), [0, 1], workers=2)
