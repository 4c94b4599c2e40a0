"""What the simulation knows at one instant, and what it notes where one phase ends and the next one begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.solution import Event
from nosnoc_py.status import Status


@dataclass(frozen=True, eq=False)
class Held:
    """A control law that is one value u (n_u,)."""

    u: np.ndarray

    def __call__(self, t: float, x: np.ndarray) -> np.ndarray:
        return self.u


@dataclass(frozen=True, eq=False, kw_only=True)
class Sample:
    """What is known at one instant of a phase.

    Attributes
    ----------
    guards : (n_g,)
        Distances (gaps, or how far the state is from surfaces) first; those without a meaning are infinite.
    forces : (n_f,)
        Contact forces; in Filippov systems multipliers and algebraic variables.
    rates : (n_r,)
        Rates of the distances, in their order; then slip velocities.
    """

    guards: np.ndarray
    forces: np.ndarray
    rates: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class ImpactRecord:
    """An impact: its modes, impulses (n_c + n_tt,), and which contacts (n_c,) are fast enough to be thrown back.

    `bounce` is the fastest approach of a contact that is thrown back, as a share of the speed at work, infinite if none
    is; `unique` says that no other velocity after it is admissible.
    """

    modes: tuple[int, ...]
    impulses: np.ndarray
    thrown: np.ndarray
    energy_gain: float
    bounce: float = np.inf
    unique: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """The transition from one phase to the next.

    Attributes
    ----------
    t : float
    before, after : (n_x,)
    trigger : int or None
        The guard that was crossed.
    impact : ImpactRecord or None
    regime
        That of the phase that follows; None where no motion goes on: `status` and `message` say why.
    events : tuple of Event
    grazing : str
        What is touched without speed and left again (a contact), or where the motion is not unique; "" for neither.
    accumulation : bool
        Whether infinitely many impacts come to an end here.
    counted : bool
        Whether too many such nodes within a window end the simulation.
    status, message
    """

    t: float
    before: np.ndarray
    after: np.ndarray
    trigger: int | None = None
    impact: ImpactRecord | None = None
    regime: Any = None
    events: tuple[Event, ...] = ()
    grazing: str = ""
    accumulation: bool = False
    counted: bool = False
    status: Status = Status.SOLVED
    message: str = ""
