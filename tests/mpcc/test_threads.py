"""Solvers of CasADi compute in one thread, and leave the number of threads as it was."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

from nosnoc_py.mpcc import ipopt
from nosnoc_py.mpcc.ipopt import Ipopt, SeenInterrupt
from nosnoc_py.mpcc.threads import _libraries, one_thread
from tests.references.random_nlps import made


def loaded() -> Any:
    """Return the BLAS of CasADi's wheel, which IPOPT loads."""
    program: Any = made(0)
    Ipopt(program, {}).solve(program.start, np.zeros(0))
    libraries = _libraries().lib_controllers
    if not libraries:
        pytest.skip("this CasADi has no BLAS of its own")
    return libraries[0]


def test_one_thread_inside_and_as_many_as_before_outside() -> None:
    library = loaded()
    before = library.num_threads
    try:
        library.set_num_threads(2)
        with one_thread:
            assert library.num_threads == 1
        assert library.num_threads == 2
        with pytest.raises(ZeroDivisionError), one_thread:
            1 / 0  # noqa: B018
        assert library.num_threads == 2
    finally:
        library.set_num_threads(before)


def test_of_two_solves_at_a_time_the_last_one_restores_the_number() -> None:
    """The first one ends while the second is at work, as in two threads of a user."""
    library = loaded()
    before = library.num_threads
    try:
        library.set_num_threads(2)
        one_thread.__enter__()
        one_thread.__enter__()
        one_thread.__exit__()
        assert library.num_threads == 1
        one_thread.__exit__()
        assert library.num_threads == 2
    finally:
        library.set_num_threads(before)


def test_ipopt_computes_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is read in the callback of the iterations."""
    library, seen = loaded(), list[int]()
    asked = ipopt._Deadline.eval

    def read(self: Any, arguments: Any) -> list[int]:
        seen.append(library.num_threads)
        return asked(self, arguments)

    monkeypatch.setattr(ipopt, "ITERATIONS_PER_QUESTION", 1)
    monkeypatch.setattr(ipopt._Deadline, "eval", read)
    program: Any = made(0)
    before = library.num_threads
    try:
        library.set_num_threads(2)
        assert Ipopt(program, {}).solve(program.start, np.zeros(0)).converged
        assert library.num_threads == 2
    finally:
        library.set_num_threads(before)
    assert set(seen) == {1}


def test_ctrl_c_is_seen_beside_its_handler() -> None:
    """IPOPT goes on where a function is interrupted: what was seen decides."""
    handled = list[int]()
    before = signal.signal(signal.SIGINT, lambda number, frame: handled.append(number))
    try:
        with SeenInterrupt() as interrupt:
            assert not interrupt.seen
            signal.raise_signal(signal.SIGINT)
        assert interrupt.seen
        assert handled == [signal.SIGINT]
        signal.raise_signal(signal.SIGINT)
        assert len(handled) == 2  # the handler is back
    finally:
        signal.signal(signal.SIGINT, before)
