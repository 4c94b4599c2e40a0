"""A touch of two placed shapes, and a pair of kinds of shapes whose touches are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import casadi as ca

from nosnoc_py.geometry.placed import Placed

# Length of a step, relative to the size of a body, that no motion resolves: a contact that is singular for one attitude
# (a rim that lies flat, capsules that are parallel) is lifted by it there, where others carry the load.
ASIDE = 1e-5
# Sine of the angle from that attitude at which the lift has ended: beyond it the gap is exact.
ENDED = 5e-3


class Touch(NamedTuple):
    """Gap, unit normal out of `other` and touching point, in the world; `on` is the body that is pushed along it."""

    gap: ca.SX
    normal: ca.SX
    point: ca.SX
    on: Placed
    other: Placed


class ShapePair(NamedTuple):
    """Kinds of shapes that touch each other by one formula.

    Attributes
    ----------
    first, second : tuple of type
        Every one of the first with every one of the second.
    touches : callable
        (first, second) -> list of Touch; a gap is a distance where `exact`, else it is exact where it is zero.
    how : str
        What touches, for the table of the documentation.
    """

    first: tuple[type, ...]
    second: tuple[type, ...]
    touches: Callable[[Placed, Placed], list[Touch]]
    how: str
    exact: bool = True


def lift(sine_squared: ca.SX) -> ca.SX:
    """Return 1 where a sine is zero, falling to 0 at `ENDED` with two continuous derivatives."""
    share = sine_squared / ENDED**2
    return ca.if_else(share < 1, (1 - share) ** 3, 0)
