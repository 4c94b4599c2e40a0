"""One thread for the dense linear algebra of solvers and simulators.

MUMPS, inside IPOPT, calls BLAS for the small dense blocks of its factors, and NumPy for matrices of contacts. Several
threads wait for each other longer than they compute: a program of 1 300 variables took 23 s of processor time on two
cores instead of 4 s, the simulation of eight dominoes 16 s instead of 8 s. They also add in another order, so that
results would depend on the number of cores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import cache
from importlib import import_module
from typing import Any


@cache
def _register() -> Any:
    """Tell threadpoolctl of the BLAS in CasADi's wheels, and return it."""
    import threadpoolctl  # not paid for by an import of the library

    class CasadiBLAS(threadpoolctl.LibController):  # type: ignore[misc,unused-ignore]
        user_api, internal_api = "blas", "casadi"
        filename_prefixes = ("libcasadi-tp-openblas",)
        check_symbols = ("openblas_get_num_threads", "openblas_set_num_threads")

        def get_num_threads(self) -> int:
            return int(self.dynlib.openblas_get_num_threads())

        def set_num_threads(self, num_threads: int) -> None:
            self.dynlib.openblas_set_num_threads(num_threads)

        def get_version(self) -> str | None:
            return None

    threadpoolctl.register(CasadiBLAS)
    return threadpoolctl


_FOUND: list[Any] = []


def _libraries() -> Any:
    """Return the controller of these libraries; they are looked for until the first solver that needs them is there."""
    if _FOUND:
        return _FOUND[0]
    found = _register().ThreadpoolController().select(internal_api="casadi")
    if found.lib_controllers:
        _FOUND.append(found)
    return found


@cache
def _numpys() -> Any:
    """Return the controller of the BLAS of NumPy and of SciPy, which each bring their own."""
    import_module("scipy.linalg")
    return _register().ThreadpoolController().select(user_api="blas")


class OneThread(ContextDecorator):
    """Context, or decorator of a function, in which linear algebra computes in one thread.

    The number of threads belongs to the process: of several calls at a time the last one to end restores it.

    Parameters
    ----------
    libraries : function
        Returns the controller of the libraries.

    Examples
    --------
    >>> with one_thread:
    ...     pass
    """

    def __init__(self, libraries: Callable[[], Any]) -> None:
        self._libraries = libraries
        self._lock, self._inside, self._limits = threading.Lock(), 0, list[Any]()

    def __enter__(self) -> None:
        with self._lock:
            found = self._libraries()
            self._inside += 1
            if any(library.num_threads != 1 for library in found.lib_controllers):
                self._limits.append(found.limit(limits=1))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            while self._limits and not self._inside:
                self._limits.pop().restore_original_limits()


one_thread, one_numpy_thread = OneThread(_libraries), OneThread(_numpys)
"""Of solvers that CasADi has loaded; of NumPy and SciPy."""
