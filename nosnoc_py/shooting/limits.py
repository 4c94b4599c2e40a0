"""Time limits: the options of a method have one, and the call has one."""

from __future__ import annotations


def strictest(*limits: float | None) -> float:
    """The smallest of several limits [s]; infinite where none is given."""
    return min((limit for limit in limits if limit is not None), default=float("inf"))
