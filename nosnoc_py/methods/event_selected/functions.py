"""Flow, guards and their gradients as functions of arrays, from CasADi or NumPy, compiled where they can be."""

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
    """An event-selected system as numbers; bits of modes are 0.0 and 1.0.

    Guard k with bit b is crossed where its function in row b rises through zero.

    Attributes
    ----------
    flow : function (x, mode, p) -> (n_x,)
    rows : function (x, p) -> (2, m), or (1, m)
        Rows: the functions that set the bits, and those that clear them, `NEVER` where there is none. One row where
        every bit is cleared by the negative of the function that sets it: the loop needs not more.
    row_gradients : function (x, p) -> (2, m, n_x), or (1, m, n_x)
        Derivatives of `rows` by x.
    returns : (m,)
        Which bits can be cleared.
    compiled : bool
        Whether numba compiles these functions.
    """

    flow: Callable[..., np.ndarray]
    rows: Callable[..., np.ndarray]
    row_gradients: Callable[..., np.ndarray]
    returns: np.ndarray
    compiled: bool = False

    def guards(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Both rows of functions (2, m)."""
        return _both(self.rows(x, p))

    def gradients(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Their derivatives by x (2, m, n_x)."""
        return _both(self.row_gradients(x, p))


def fields_of(system: EventSelectedSystem, compile: bool | str = False) -> Fields:
    """The functions of a system.

    Parameters
    ----------
    system : EventSelectedSystem
    compile : bool or "auto"
        Whether numba compiles them; "auto" if all of them are functions of numba's already, and numba is installed.

    Raises
    ------
    OptionError
        If they are to be compiled and are CasADi expressions, or numba cannot.
    """
    if system.symbolic:
        if compile is True:
            raise OptionError(
                "compiled: the system is written in CasADi, which numba does not compile; write flow, functions and "
                "jacobian as NumPy functions, or leave compiled=True out."
            )
        return _symbolic(system)
    given = tuple(getattr(system, name) for name in ROLES)
    wanted = all(is_compiled(f) for f in given if callable(f)) and available() if compile == "auto" else bool(compile)
    flow, rows, row_gradients = _compiled(given) if wanted else _interpreted(given)
    return Fields(flow=flow, rows=rows, row_gradients=row_gradients, returns=system.returns, compiled=wanted)


def _both(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, -rows]) if len(rows) == 1 else rows


def _symbolic(system: EventSelectedSystem) -> Fields:
    x, p = system.x, system.p
    touch = ca.vertcat(*(guard.function for guard in system.guards))
    back = ca.vertcat(*(NEVER if guard.back is None else guard.back for guard in system.guards))
    flow = buffered(ca.Function("flow", [x, system.mode, p], [system.flow]))
    guards = buffered(ca.Function("guards", [x, p], [touch, back]))
    gradients = buffered(ca.Function("gradients", [x, p], [ca.jacobian(touch, x), ca.jacobian(back, x)]))
    return Fields(
        flow=lambda x, mode, p: flow(x, mode, p)[0].reshape(-1),
        rows=lambda x, p: np.stack([row.reshape(-1) for row in guards(x, p)]),
        row_gradients=lambda x, p: np.stack(gradients(x, p)),
        returns=system.returns,
    )


@lru_cache(maxsize=64)  # one system, one compilation
def _compiled(given: tuple[Any, ...]) -> tuple[Callable[..., Any], ...]:
    """Flow, guards and gradients as functions of numba's, all with the same types of arguments and results."""
    x, p = np.zeros(1), np.zeros(1)
    inner = []
    for role, function in zip(ROLES, given, strict=True):
        arguments = (x, x, p) if role == "flow" else (x, p)
        inner.append(_alone(role, function, arguments[: arity(function)]) if callable(function) else function)
    flow, guards, gradients = _interpreted(tuple(inner), compiled)

    def straight(x: Any, mode: Any, p: Any) -> Any:
        return flow(x, mode, p)

    def copied(x: Any, mode: Any, p: Any) -> Any:
        slope = np.empty_like(x)
        slope[:] = flow(x, mode, p)
        return slope

    first = compiled(straight, examples=(x, x, p))
    plain = first.nopython_signatures[0].return_type == first.typeof_pyval(x)
    made = first if plain else compiled(copied, examples=(x, x, p))  # slices and the like are made arrays of their own
    return made, compiled(guards, examples=(x, p)), compiled(gradients, examples=(x, p))


def _alone(role: str, function: Callable[..., Any], arguments: tuple[np.ndarray, ...]) -> Any:
    """Compile a function of the user's by itself, so that a failure names it."""
    fast = compiled(function)
    try:
        fast.compile(tuple(fast.typeof_pyval(value) for value in arguments))
    except Exception as error:  # numba has many kinds
        raise OptionError(
            f"compiled: numba cannot compile {role}: {_reason(error)} Write it in the part of Python that numba "
            "knows, or leave compiled=True out."
        ) from None
    return fast


def _interpreted(given: tuple[Any, ...], wrap: Callable[..., Any] = lambda f: f) -> tuple[Callable[..., Any], ...]:
    """Flow, guards and gradients of functions of NumPy."""
    flow, functions, jacobian, back, back_jacobian = (
        _with_parameters(f, role, wrap) for role, f in zip(ROLES, given, strict=True)
    )
    if given[3] is None:  # bits are never cleared
        back, back_jacobian = wrap(lambda x, p: NEVER), wrap(lambda x, p: 0.0)
    return flow, _stacked(functions, back), _stacked(jacobian, back_jacobian)


def _stacked(function: Any, back: Any) -> Any:
    """Rows (2, ...) of two functions, or (1, ...) of one whose negative clears the bits."""

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
    """A function that takes p as its last argument, whether it needs it or not."""
    if not callable(function):
        return None
    if role == "flow":
        return function if arity(function) == 3 else wrap(lambda x, mode, p: function(x, mode))
    return function if arity(function) == 2 else wrap(lambda x, p: function(x))


def _reason(error: Exception) -> str:
    """The first line of a message of numba that says something."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith("Failed in")]
    return (telling or [type(error).__name__])[0].rstrip(".") + "."
