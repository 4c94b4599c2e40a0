"""Compilation by numba where it is installed (extra `[fast]`): one source runs compiled, or interpreted without it.

A kernel is a plain function of arrays in the part of Python that numba knows. What it calls is marked by `jitable`, so
that it can be called from both; `compiled` makes the fast version. numba is imported here only, and only when a kernel
is.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from nosnoc_py.errors import OptionError

F = TypeVar("F", bound=Callable[..., Any])


def available() -> bool:
    """Return True if numba is installed."""
    return importlib.util.find_spec("numba") is not None


def jitable(function: F) -> F:
    """Mark a function as one that kernels call, compiled or interpreted."""
    if not available():
        return function
    from numba.extending import register_jitable

    return register_jitable(function)


def faster(loops: F, arrays: F) -> F:
    """Return the version of a function that kernels run faster here: loops if numba is there, which compiles them to
    code without allocations, else operations on arrays.
    """
    return jitable(loops) if available() else arrays


def compiled(function: Callable[..., Any], *, examples: Sequence[Any] | None = None, cache: bool = False) -> Any:
    """Return the compiled version of a kernel, or of a user's function.

    Parameters
    ----------
    function
    examples
        Arguments: it is compiled for their types at once, and for no others. A compiled function among them stands for
        all functions with arguments and results of its types, which are called through a pointer; so one compilation
        serves them all.
    cache
        Whether the machine code is kept on disk for the next process. See `version_of`.

    Raises
    ------
    OptionError
        Without numba.
    """
    if not available():
        raise OptionError(
            'compiled: numba is not installed; pip install "nosnoc_py[fast]", or leave compiled=True out.'
        )
    import numba

    if examples is None and is_compiled(function):
        return function
    types = () if examples is None else (tuple(_type_of(example) for example in examples),)
    return numba.njit(*types, cache=cache)(function)


def is_compiled(function: object) -> bool:
    """Return True if it is a function that numba compiles when it is called."""
    return hasattr(function, "py_func") and hasattr(function, "nopython_signatures")


def version_of(*modules: ModuleType) -> str:
    """Return a hash of the sources of kernels (all files of their folders), for caches on disk.

    numba looks at the file of a function when it asks whether its machine code is still good, not at those of the
    functions that it calls; but it also looks at the values that a function has taken from its surroundings. So a
    kernel of several modules is made by a function of their version.
    """
    digest = hashlib.sha256()
    for module in modules:
        for path in sorted(Path(str(module.__file__)).parent.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _type_of(example: Any) -> Any:
    import numba

    if is_compiled(example):
        return numba.types.FunctionType(example.nopython_signatures[0])
    return numba.typeof(example)
