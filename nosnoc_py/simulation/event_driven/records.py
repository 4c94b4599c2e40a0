"""Records of an event-driven simulation: samples within a phase, and nodes between phases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nosnoc_py.solution import Event
from nosnoc_py.status import Status


@dataclass(frozen=True, eq=False)
class Held:
    """Constant control law with the value u (n_u,)."""

    u: np.ndarray

    def __call__(self, t: float, x: np.ndarray) -> np.ndarray:
        return self.u


@dataclass(frozen=True, eq=False, kw_only=True)
class Sample:
    """Values at one instant of a phase.

    Attributes
    ----------
    guards : (n_g,)
        Distances (gaps, or distances from surfaces) first; guards that do not apply are infinite.
    forces : (n_f,)
        Contact forces [N]; in Filippov systems multipliers and algebraic variables.
    rates : (n_r,)
        Rates of the distances, in their order; then slip velocities.
    """

    guards: np.ndarray
    forces: np.ndarray
    rates: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class ImpactRecord:
    """Impact: modes, impulses and velocities.

    Attributes
    ----------
    modes : tuple of int
    impulses : (n_c + n_tt,)
        Normal impulses first [N s].
    rebounding : (n_c,) bool
        Contacts fast enough to rebound.
    energy_gain : float
        Kinetic energy after minus before [J].
    bounce : float
        Fastest approach of a rebounding contact, as a share of the speed at work; infinite without one.
    is_unique : function
        Returns `unique`.
    """

    modes: tuple[int, ...]
    impulses: np.ndarray
    rebounding: np.ndarray
    energy_gain: float
    bounce: float = np.inf
    is_unique: Callable[[], bool] = lambda: True

    @cached_property
    def unique(self) -> bool:
        """False if other velocities after the impact are admissible; the search for them is made when this is read."""
        return self.is_unique()


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """Transition from one phase to the next.

    Attributes
    ----------
    t : float
        Time [s].
    before, after : (n_x,)
        Left and right limit of the state.
    trigger : int or None
        Guard that was crossed.
    impact : ImpactRecord or None
    regime
        Regime of the following phase; None if no motion continues (see `status` and `message`).
    events : tuple of Event
    grazing : str
        Contact or surface that is touched without speed and left again, or where the motion is not unique; else "".
    accumulation : bool
        True if infinitely many impacts end here.
    counted : bool
        True if too many such nodes within a time window end the simulation.
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
