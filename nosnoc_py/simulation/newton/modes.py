"""Types shared by the modes of all systems: `Mode`, `ElementNode` and the reasons why a step fails (`Trouble`).

The classes with the actual laws are `ContactModes` (contact_modes.py) and `FilippovModes` (filippov_modes.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

# One integer per contact, or one (0 or 1) per component of the complementarity pairs.
Mode = tuple[int, ...]


# Size of each cache of mode data. A long simulation meets few modes; the bound only limits memory.
MOST_KNOWN = 1000


def remembered(function: Callable[[Any], np.ndarray]) -> Callable[[Any], np.ndarray]:
    """Cache the values of a function of modes: masks are asked for at every Newton iteration."""
    return lru_cache(MOST_KNOWN)(function)


class Trouble(Enum):
    """Reason why a step fails; the values are parts of messages to the user."""

    SWITCHES = "more switches than finite elements"
    IMPACT = "no admissible impact"
    ENERGY = "an impact would gain energy"
    MODES = "no mode goes on"


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementNode:
    """State, impulses and modes at the left boundary of an element.

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
        Why no motion continues from here, and the name of the contact or component; None and "" when one does.
    detail
        Analysis of the node that `pivots` needs (contact problem or list of candidates); None where the previous modes
        are continued without an analysis.
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
