"""Compilation by numba where it is installed (extra `[fast]`): one source runs compiled, or interpreted without it.

A kernel is a plain function of arrays in the part of Python that numba knows. What it calls is marked by `jitable`, so
that it can be called from both; `compiled` makes the fast version. numba is imported here only, and only when a kernel
is.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from nosnoc_py.errors import OptionError

F = TypeVar("F", bound=Callable[..., Any])
# Functions that were marked since the last kernel, with what numba compiles in their place.
_UNTOLD: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
_CALLS: list[Callable[..., Any]] = []
# Environment variable: "never", "now", or "beside" the work.
VARIABLE = "NOSNOC_PY_COMPILED"
# After so many seconds a compilation that has begun has failed.
GIVEN_UP = 300.0


def available() -> bool:
    """Return True if numba is installed."""
    return importlib.util.find_spec("numba") is not None


def jitable(function: F) -> F:
    """Mark a function as one that kernels call, compiled or interpreted."""
    return compiled_as(function)(function)


def compiled_as(loops: Callable[..., Any]) -> Callable[[F], F]:
    """Mark a function that kernels run as `loops` where they are compiled, and as it is written where they are not."""

    def mark(function: F) -> F:
        _UNTOLD.append((function, loops))
        return function

    return mark


def _tell() -> None:
    """Tell numba of the marked functions, which it does not know before a kernel is compiled."""
    from numba.extending import overload

    while _UNTOLD:
        function, loops = _UNTOLD.pop()
        overload(function, strict=False)(_always(loops))
    if not _CALLS:
        _CALLS.append(_pointer_call())
        overload(call_pointer, strict=False)(_always(_CALLS[0]))


def _always(loops: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **named: loops


def call_pointer(address: int, arguments: Any, results: Any, integers: Any, work: Any) -> int:
    """Call machine code of a CasADi function: addresses (n,) of its arguments and results, and room for its work."""
    code = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4, ctypes.c_int)(address)
    return code(*(array.ctypes.data for array in (arguments, results, integers, work)), 0)


def _pointer_call() -> Callable[..., Any]:
    """Return what numba compiles in place of `call_pointer`: the address is a number, so that code can be cached."""
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def called(context: Any, address: Any, a: Any, r: Any, i: Any, w: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            data, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(number, [data] * 4 + [number])
            code = builder.inttoptr(values[0], kind.as_pointer())
            return builder.call(code, [builder.inttoptr(value, data) for value in values[1:]] + [number(0)])

        return types.int32(types.int64, *[types.uintp] * 4), generate

    def call(address: int, arguments: Any, results: Any, integers: Any, work: Any) -> Any:
        return called(address, arguments.ctypes.data, results.ctypes.data, integers.ctypes.data, work.ctypes.data)

    return call


def faster(loops: F, arrays: F) -> F:
    """Return the version of a function that kernels run faster here: loops if numba is there, which compiles them to
    code without allocations, else operations on arrays.
    """
    return jitable(loops) if available() else arrays


def compiled(
    function: Callable[..., Any], *, examples: Sequence[Any] | None = None, cache: bool = False, raises: bool = True
) -> Any:
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
    raises
        Whether a division by zero raises; else it has the value of IEEE 754, as in NumPy.

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

    _tell()
    if examples is None and is_compiled(function):
        return function
    types = () if examples is None else (tuple(_type_of(example) for example in examples),)
    return numba.njit(*types, cache=cache, error_model="python" if raises else "numpy")(function)


def versioned_beside(
    versioned: Callable[[str], Any], modules: Sequence[ModuleType], run_once: Callable[[Any], None], start: str
) -> Any:
    """Return the kernel that a function of its version makes, see `version_of` and `beside`; None: it is interpreted.

    It is None as well without numba and where nothing is to be compiled, and numba is not imported then.
    """
    if not available() or os.environ.get(VARIABLE) == "never":
        return None
    try:
        kernel = compiled(versioned(version_of(*modules)), cache=True, raises=False)
    except RuntimeError:  # no folder for a cache can be written
        return None
    return beside(kernel, run_once, start)


def beside(kernel: Any, run_once: Callable[[Any], None], start: str) -> Any:
    """Return a compiled kernel that is on disk; else None, while another process compiles it beside the work.

    Parameters
    ----------
    kernel
        Of `compiled`, with a cache.
    run_once : function of the kernel
        Calls it with arguments of all its types; later calls have to have these types.
    start : str
        "module:function" that calls this function, for the other process.
    """
    import numba
    from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

    mode = os.environ.get(VARIABLE, "beside")
    source = Path(kernel.py_func.__code__.co_filename)
    own = [cell.cell_contents for cell in kernel.py_func.__closure__ or ()]
    machine = [get_host_cpu_name(), get_host_cpu_features().flatten()]
    state = [numba.__version__, sys.version, *machine, *own, str(source.stat().st_mtime_ns)]
    name = hashlib.sha256(" ".join(state).encode()).hexdigest()[:24]
    ready = Path(kernel.stats.cache_path) / f"{source.stem}-{name}.ready"
    if mode == "now" or ready.exists():
        try:
            run_once(kernel)
        except Exception:  # what is on disk cannot be read: the work does not depend on it
            if mode == "now":
                raise
            return None
        kernel.disable_compile()  # other types are a mistake: their compilation would take long
        if not ready.exists():
            ready.touch()
        return kernel
    _start(start, ready.with_suffix(".begun"))
    return None


def _start(start: str, begun: Path) -> None:
    """Call a function of a module in another process, unless one has begun already."""
    module, function = start.split(":")
    call = f"import os; getattr(os, 'nice', int)(10); import {module}; {module}.{function}()"
    try:
        begun.parent.mkdir(parents=True, exist_ok=True)
        if begun.exists() and time.time() - begun.stat().st_mtime < GIVEN_UP:
            return
        begun.touch()
        subprocess.Popen(
            [sys.executable, "-c", call],
            env={**os.environ, VARIABLE: "now", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return  # no cache on disk, no processes: the work stays interpreted


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
