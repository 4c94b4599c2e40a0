"""What the events of a motion are called: one rule for what was and what is, whatever method tells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from nosnoc_py.solution.records import Event

# What happens to a thing at an instant; None for nothing.
Kind = str | None


def of_modes(closed: Sequence[bool] | np.ndarray, slips: Sequence[bool] | np.ndarray, turns: bool = False) -> Kind:
    """The change of a contact that was and is closed or not, and slips or not; one that goes on slipping may turn back.

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
    """The change of a state that was and is on a side of a surface; NaN while it slides along it.

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
    """Events of one instant from names and kinds, where there are any."""
    return [Event(time, name, kind) for name, kind in changes if kind is not None]
