"""Compilation by numba where it is installed (extra `[fast]`): one source runs compiled, or interpreted without it.

A kernel is a plain function of arrays in the part of Python that numba knows. What it calls is marked by `jitable`, so
that it can be called from both; `compiled` makes the fast version. numba is imported here only, and only when a kernel
is.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from nosnoc_py.errors import OptionError

F = TypeVar("F", bound=Callable[..., Any])


def available() -> bool:
    """Whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


def jitable(function: F) -> F:
    """Mark a function as one that kernels call, compiled or interpreted."""
    if not available():
        return function
    from numba.extending import register_jitable

    marked: F = register_jitable(function)
    return marked


def compiled(function: Callable[..., Any], *, cache: bool = False) -> Any:
    """The compiled version of a kernel, or of a user's function; `cache` keeps it on disk for the next process.

    Raises
    ------
    OptionError
        Without numba.
    """
    if is_compiled(function):
        return function
    if not available():
        raise OptionError(
            'compiled: numba is not installed; pip install "nosnoc_py[fast]", or leave compiled=True out.'
        )
    import numba

    return numba.njit(function, cache=cache)


def is_compiled(function: object) -> bool:
    """Whether it is a function that numba compiles when it is called."""
    return hasattr(function, "py_func") and hasattr(function, "nopython_signatures")


def compiled_for(function: Callable[..., Any], examples: Sequence[Any], *, cache: bool = False) -> Any:
    """A version for arguments of the types of some examples, and no others; one of a function made by it is a function.

    So a kernel that is given functions is compiled once for all functions with arguments and results of these types,
    and may be kept on disk. They are called through a pointer, not inlined.

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

    return numba.njit(tuple(_type_of(example) for example in examples), cache=cache)(function)


def _type_of(example: Any) -> Any:
    import numba

    if is_compiled(example):
        return numba.types.FunctionType(example.nopython_signatures[0])
    return numba.typeof(example)
