"""Flow, guards and gradients of an event-selected system as array functions, from CasADi or NumPy, or compiled.

All sources are brought to the same three functions with the same arguments, so that there is one loop (`kernel`). For
numba they also need the same types, whatever the system: the loop is then compiled once for all systems. Row b of the
guard functions belongs to guards whose bit is b.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.compiled import available, compiled, is_compiled
from nosnoc_py.errors import OptionError
from nosnoc_py.functions import buffered
from nosnoc_py.methods.event_selected.segments import NEVER
from nosnoc_py.systems.event_selected import EventSelectedSystem, arity

ROLES = ("flow", "functions", "jacobian", "back", "back_jacobian")


@dataclass(frozen=True, eq=False, kw_only=True)
class Fields:
    """Numeric functions of an event-selected system; bits of modes are 0.0 and 1.0.

    Guard k with bit b is crossed when its function in row b rises through zero.

    Attributes
    ----------
    flow : function (x, mode, p) -> (n_x,)
    rows : function (x, p) -> (2, m), or (1, m)
        Row 0: functions that set the bits. Row 1: functions that clear them, `NEVER` where there is none. A single row
        if every bit is cleared by the negative of the function that sets it, which saves evaluations in the loop.
    row_gradients : function (x, p) -> (2, m, n_x), or (1, m, n_x)
        Derivatives of `rows` by x.
    returns : (m,)
        True for bits that can be cleared.
    compiled : bool
        True if numba compiled these functions.
    """

    flow: Callable[..., np.ndarray]
    rows: Callable[..., np.ndarray]
    row_gradients: Callable[..., np.ndarray]
    returns: np.ndarray
    compiled: bool = False

    def guards(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return both rows of guard functions (2, m)."""
        return _two_rows(self.rows(x, p))

    def gradients(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the derivatives of both rows by x (2, m, n_x)."""
        return _two_rows(self.row_gradients(x, p))


def fields_of(system: EventSelectedSystem, compile: bool | str = False) -> Fields:
    """Return the numeric functions of a system.

    Parameters
    ----------
    system : EventSelectedSystem
    compile : bool or "auto"
        True compiles them by numba; "auto" does so if all of them are numba functions already and numba is installed.

    Raises
    ------
    OptionError
        If compilation is required for CasADi expressions, or numba fails.
    """
    if system.symbolic:
        # "auto" takes CasADi systems without compilation; only an explicit wish is refused.
        if compile is True:
            raise OptionError(
                "compiled: the system is written in CasADi, which numba does not compile; write flow, functions and "
                "jacobian as NumPy functions, or leave compiled=True out."
            )
        return _symbolic(system)
    functions = tuple(getattr(system, name) for name in ROLES)
    compiles = (
        all(is_compiled(f) for f in functions if callable(f)) and available() if compile == "auto" else bool(compile)
    )
    flow, rows, row_gradients = _compiled(functions) if compiles else _interpreted(functions)
    return Fields(flow=flow, rows=rows, row_gradients=row_gradients, returns=system.returns, compiled=compiles)


def _two_rows(rows: np.ndarray) -> np.ndarray:
    # One row: the negative of the function that sets a bit clears it.
    return np.concatenate([rows, -rows]) if len(rows) == 1 else rows


def _symbolic(system: EventSelectedSystem) -> Fields:
    x, p = system.x, system.p
    forward = ca.vertcat(*(guard.function for guard in system.guards))
    back = ca.vertcat(*(NEVER if guard.back is None else guard.back for guard in system.guards))
    flow = buffered(ca.Function("flow", [x, system.mode, p], [system.flow]))
    guards = buffered(ca.Function("guards", [x, p], [forward, back]))
    gradients = buffered(ca.Function("gradients", [x, p], [ca.jacobian(forward, x), ca.jacobian(back, x)]))
    return Fields(
        flow=lambda x, mode, p: flow(x, mode, p)[0].reshape(-1),
        rows=lambda x, p: np.stack([row.reshape(-1) for row in guards(x, p)]),
        row_gradients=lambda x, p: np.stack(gradients(x, p)),
        returns=system.returns,
    )


@lru_cache(maxsize=64)  # one system, one compilation
def _compiled(functions: tuple[Any, ...]) -> tuple[Callable[..., Any], ...]:
    """Compile flow, guards and gradients by numba, with equal types of arguments and results for all systems."""
    x, p = np.zeros(1), np.zeros(1)
    wrapped = []
    for role, function in zip(ROLES, functions, strict=True):
        arguments = (x, x, p) if role == "flow" else (x, p)
        wrapped.append(
            _compiled_by_itself(role, function, arguments[: arity(function)]) if callable(function) else function
        )
    flow, guards, gradients = _interpreted(tuple(wrapped), compiled)

    def direct_flow(x: Any, mode: Any, p: Any) -> Any:
        return flow(x, mode, p)

    def copied_flow(x: Any, mode: Any, p: Any) -> Any:
        slope = np.empty_like(x)
        slope[:] = flow(x, mode, p)
        return slope

    direct = compiled(direct_flow, examples=(x, x, p))
    returns_array = direct.nopython_signatures[0].return_type == direct.typeof_pyval(x)
    flow_function = (
        direct if returns_array else compiled(copied_flow, examples=(x, x, p))
    )  # slices and other layouts are copied to contiguous arrays, so that the loop is compiled only once
    return flow_function, compiled(guards, examples=(x, p)), compiled(gradients, examples=(x, p))


def _compiled_by_itself(role: str, function: Callable[..., Any], arguments: tuple[np.ndarray, ...]) -> Any:
    """Compile a user function by itself, so that an error names it."""
    fast = compiled(function)
    try:
        fast.compile(tuple(fast.typeof_pyval(value) for value in arguments))
    except Exception as error:  # numba has many kinds
        raise OptionError(
            f"compiled: numba cannot compile {role}: {_reason(error)} Use only those parts of Python that "
            "numba supports, or leave compiled=True out."
        ) from None
    return fast


def _interpreted(sources: tuple[Any, ...], wrap: Callable[..., Any] = lambda f: f) -> tuple[Callable[..., Any], ...]:
    """Return flow, guards and gradients from NumPy functions."""
    flow, functions, jacobian, back, back_jacobian = (
        _with_parameters(f, role, wrap) for role, f in zip(ROLES, sources, strict=True)
    )
    if sources[3] is None:  # bits are never cleared
        # None: bits are never cleared. "negative" is no function either: `_stacked` then negates `functions`.
        back, back_jacobian = wrap(lambda x, p: NEVER), wrap(lambda x, p: 0.0)
    return flow, _stacked(functions, back), _stacked(jacobian, back_jacobian)


def _stacked(function: Any, back: Any) -> Any:
    """Stack two functions to rows (2, ...), or return one row (1, ...) whose negative clears the bits."""

    def single(x: Any, p: Any) -> Any:
        values = function(x, p)
        rows = np.empty((1,) + values.shape)  # noqa: RUF005, numba unpacks no tuples
        rows[0] = values
        return rows

    def double(x: Any, p: Any) -> Any:
        values = function(x, p)
        rows = np.empty((2,) + values.shape)  # noqa: RUF005
        rows[0] = values
        rows[1] = back(x, p)
        return rows

    return single if back is None else double


def _with_parameters(function: Any, role: str, wrap: Callable[..., Any]) -> Any:
    """Return a function with p as its last argument, whether it uses it or not."""
    if not callable(function):
        return None
    if role == "flow":
        return function if arity(function) == 3 else wrap(lambda x, mode, p: function(x, mode))
    return function if arity(function) == 2 else wrap(lambda x, p: function(x))


def _reason(error: Exception) -> str:
    """Return the first informative line of a numba error."""
    lines = [line.strip() for line in str(error).splitlines()]
    # Numba repeats the stage at which it failed before the reason.
    informative = [line for line in lines if line and not line.startswith("Failed in")]
    return (informative or [type(error).__name__])[0].rstrip(".") + "."
