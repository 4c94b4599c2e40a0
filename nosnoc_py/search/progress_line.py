"""One line of progress of a search, on standard error in a terminal or in a notebook, and nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nosnoc_py.search.state import SearchState


@contextmanager
def progress_line(wanted: bool, callback: Callable[[Any], Any] | None) -> Iterator[Callable[[Any], Any] | None]:
    """Show a line while a search runs; it vanishes at the end.

    Parameters
    ----------
    wanted : bool
    callback : callable, optional
        The user's; a user who watches the search needs no line.

    Yields
    ------
    callable or None
        Callback of the search.
    """
    from rich.console import Console  # not paid for by an import of the library

    console = Console(stderr=True)
    if not wanted or callback is not None or not (console.is_terminal or console.is_jupyter):
        yield callback
        return
    with console.status("search: no start yet") as status:
        yield lambda state: status.update(line_of(state))


def line_of(state: SearchState) -> str:
    """Return the line for a state of a search."""
    count, best = len(state.candidates), "no motion yet"
    if state.leader is not None and state.leader.attempt.rank.feasible:
        attempt = state.leader.attempt
        best = f"best {attempt.solution.objective:.6g} ({attempt.verdict or 'not simulated'})"
    agree = f", found by {', '.join(state.agreement)}" if state.agreement else ""
    return f"search: {count} start{'' if count == 1 else 's'}, {best}{agree}, {state.used:.0%} of the work"
