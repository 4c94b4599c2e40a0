"""What the active-set Newton method has to know about a system: its modes, and what happens at nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from nosnoc_py.simulation.newton.collocation import StageEquations

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
class Node:
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


class Modes(Protocol):
    """A system whose modes are chosen by numbers in its equations."""

    equations: StageEquations
    jumps: int
    """Number of impulses."""
    settles: bool
    """Whether unknowns right after a node are guesses, and have to be found by the beginning of a motion."""

    masks: Callable[[Mode], np.ndarray]
    """Numbers that choose the rows of the modes."""
    watched: Callable[[Mode], np.ndarray]
    """Which guards have a meaning in these modes (n_g,)."""

    def tolerances(self, guards: np.ndarray, y: np.ndarray, h: float) -> np.ndarray:
        """Violations that are rounding, for guards (n_g, samples) and unknowns y (n_y, stages) on lengths h."""

    def nearest(self) -> np.ndarray:
        """Relative times (n_g,) before which a violation means a wrong mode."""

    def describe(self, guard: int) -> tuple[str, str]:
        """Where in the system, and what the event of a guard is."""

    def places(self, modes: Mode) -> str:
        """Where in the system something is active."""

    def has_unique_forces(self, modes: Mode) -> bool:
        """Whether so little is active that its forces are unique, whatever the state."""

    def goes_on(self, x: np.ndarray, p: np.ndarray, modes: Mode) -> bool:
        """Whether nothing has to be decided at x, and these modes may just be tried."""

    def node(
        self, x: np.ndarray, u: np.ndarray, p: np.ndarray, hint: Sequence[int] | None, *, other_forces: bool = False
    ) -> Node:
        """A jump, then the modes of the motion that follows.

        `hint` are modes to try first, perhaps those of the step before, under `other_forces`.
        """

    def guess(self, node: Node, modes: Mode, u: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Algebraic unknowns right after a node in other modes."""

    def pivots(self, node: Node, modes: Mode, guard: int | None, y: np.ndarray) -> list[Mode]:
        """Modes to try when a guard is violated at once, or (None) when Newton's method fails, the likeliest first."""

    def after(self, modes: Mode, guard: int | None, x: np.ndarray, y: np.ndarray, p: np.ndarray) -> Mode:
        """Modes to try first after an event."""

    # Where a mode has one branch only, as most have, the following is all there is to say.

    def coherent(self, y_left: np.ndarray, y: np.ndarray, modes: Mode) -> np.ndarray:
        """Stage values y (m, n_y) of the branch that guards are about."""
        return y

    def turned(self, x: np.ndarray, y: np.ndarray, p: np.ndarray, modes: Mode) -> np.ndarray | None:
        """Stage values y (m, n_y) of a branch on which something turns sharply but goes on, or None."""
        return None

    def blind(self, modes: Mode) -> list[int]:
        """The guards that cannot tell a sharp turn from an event."""
        return []

    def goes_round(self, y: np.ndarray, modes: Mode) -> bool:
        """Whether stage values (m, n_y) are on the branch of the sharp turn."""
        return True
