"""Names of events, by one rule for all methods: the state of a contact or surface before and after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from nosnoc_py.solution.records import Event

# Kind of an event; None for no event.
Kind = str | None


def of_modes(closed: Sequence[bool] | np.ndarray, slips: Sequence[bool] | np.ndarray, turns: bool = False) -> Kind:
    """Return the event of a contact from (before, after) of closed and slips; `turns` marks a reversal of the slip.

    Examples
    --------
    >>> of_modes((False, True), (False, False)), of_modes((True, True), (True, False))
    ('contact', 'stick')
    """
    if closed[0] != closed[1]:
        return "contact" if closed[1] else "release"
    if not closed[1]:
        return None
    if slips[0] != slips[1]:
        return "slip" if slips[1] else "stick"
    return "reversal" if slips[0] and turns else None


def of_sides(before: float, after: float) -> Kind:
    """Return the event of a state from its sides of a surface before and after; NaN means sliding along it.

    Examples
    --------
    >>> of_sides(-1.0, 1.0), of_sides(1.0, float("nan")), of_sides(1.0, 1.0)
    ('switch', 'enter_sliding', None)
    """
    slid, slides = np.isnan(before), np.isnan(after)
    if slid or slides:
        return None if slid and slides else "enter_sliding" if slides else "leave_sliding"
    return None if before == after else "switch"


def events_at(time: float, changes: Iterable[tuple[str, Kind]]) -> list[Event]:
    """Return the events of one instant from names and kinds; kinds that are None are left out."""
    return [Event(time, name, kind) for name, kind in changes if kind is not None]
