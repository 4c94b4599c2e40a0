"""Notices to whoever shows progress: when work begins, what its limits are, and steps that take long.

`solve` and `simulate` are wrapped by `reported`. A callback with the methods of a `Listener`, such as `ns.Progress`,
then gets the limits of the run, and what happens deep inside the library can `notify` it without an argument that
every function on the way would have to pass on. Without a listener nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

P = ParamSpec("P")
R = TypeVar("R")

COMPILING = (
    "preparing the compiled time loop (numba): the first time on this machine this takes about half a minute, later "
    "it is read from disk"
)


@runtime_checkable
class Listener(Protocol):
    """A callback that also wants to know when work begins and ends, and what takes long inside."""

    def begin(self, duration: Any = None, time_limit: Any = None) -> None:
        """Work begins: length of the simulated interval [s], limit of the computing time [s]."""

    def notify(self, text: str) -> None:
        """Something that takes long begins."""

    def end(self) -> None:
        """The work has ended, by an exception perhaps."""


# A context variable, not a global: threads and nested runs have listeners of their own.
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def reported(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a verb with the keyword `callback`: a `Listener` hears of its beginning, its limits and its end.

    Examples
    --------
    >>> class Heard:
    ...     begin = end = lambda self, **limits: print(limits)
    ...     notify = print
    ...     __call__ = lambda self, state: None
    >>> @reported
    ... def work(*, callback=None, time_limit=None):
    ...     notify("something slow")
    >>> work(callback=Heard(), time_limit=3.0)
    {'duration': None, 'time_limit': 3.0}
    something slow
    {}
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        callback: Any = kwargs.get("callback")
        # A run inside a run with the same callback is a part of it: its beginning and end are nobody's business.
        if isinstance(callback, type) or not isinstance(callback, Listener) or callback is _listener.get():
            return function(*args, **kwargs)
        token = _listener.set(callback)
        callback.begin(duration=kwargs.get("duration"), time_limit=kwargs.get("time_limit"))
        try:
            return function(*args, **kwargs)
        finally:
            _listener.reset(token)
            callback.end()

    return run


def notify(text: str) -> None:
    """Tell the listener of the current run, if there is one, what takes long now."""
    if (listener := _listener.get()) is not None:
        listener.notify(text)
