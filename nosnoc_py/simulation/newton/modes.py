"""What modes and nodes are, whatever the system: see `contact_modes` and `filippov_modes`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

# Contact by contact, or component by component of the pairs.
Mode = tuple[int, ...]


# So many modes are remembered.
MOST_KNOWN = 1000


def remembered(function: Callable[[Any], np.ndarray]) -> Callable[[Any], np.ndarray]:
    """A function of modes whose last values are kept."""
    return lru_cache(MOST_KNOWN)(function)


class Trouble(Enum):
    """Why a step fails."""

    SWITCHES = "more switches than finite elements"
    IMPACT = "no admissible impact"
    ENERGY = "an impact would gain energy"
    MODES = "no mode goes on"


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementNode:
    """What happens at the left boundary of an element.

    Attributes
    ----------
    x_minus, x_left : (n_x,)
        State before and after the jump.
    jump : (n_jump,)
        Impulses.
    modes : tuple of int
        Modes after the node.
    y : (n_y,)
        Algebraic unknowns right after the node, in these modes.
    trouble, message, place
        Why no motion goes on from here, and where in the system; None and "" when one does.
    detail
        What the system remembers of its analysis of the node; None where the motion just goes on.
    """

    x_minus: np.ndarray
    x_left: np.ndarray
    jump: np.ndarray
    modes: Mode = ()
    y: np.ndarray
    trouble: Trouble | None = None
    message: str = ""
    place: str = ""
    detail: Any = None
