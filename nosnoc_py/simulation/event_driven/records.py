"""Records of an event-driven simulation: samples within a phase, phases, and nodes between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from nosnoc_py.motion.crossing import NODES, Crossing
from nosnoc_py.solution import Event
from nosnoc_py.status import Status
from nosnoc_py.tableaus import lagrange_basis

# DOP853 is limited by stability in so many steps in a row: Radau is tried.
STIFF_STEPS = 15
# Parts of a step shorter than this fraction of the time are not split off (rounding of times).
SHORTEST = 1e-14


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
class IntegratorStep:
    """One step of the integrator: times t (8,), with states, forces and rates as in a `Sample` (one row per time)."""

    t: np.ndarray
    x: np.ndarray
    forces: np.ndarray
    rates: np.ndarray

    def cut(self, times: np.ndarray) -> Sequence[IntegratorStep]:
        """Return the parts of a step between the times (n,) inside it, by the polynomials through its samples."""
        low, high = float(self.t[0]), float(self.t[-1])
        least = SHORTEST * max(abs(low), abs(high))
        inner = times[(times > low + least) & (times < high - least)]
        if not inner.size:
            return (self,)
        parts = []
        for left, right in pairwise([low, *inner.tolist(), high]):
            t = left + (right - left) * NODES
            basis = lagrange_basis(NODES, (t - low) / (high - low))
            parts.append(
                IntegratorStep(t=t, **{name: basis @ getattr(self, name) for name in ("x", "forces", "rates")})
            )
        return parts


@dataclass(frozen=True, eq=False, kw_only=True)
class Phase:
    """Result of the integration in one regime.

    Attributes
    ----------
    start, regime
        Regime at the start, and after the last step (with its directions of slip, for example).
    steps : tuple of IntegratorStep
    t, x
        The end.
    crossing : Crossing or None
        Event that ended the phase; None at the end of the interval.
    ahead : (n_x,) or None
        State slightly later, which decides the modes if a guard was violated at once or a contact closes softly.
    stiff : bool
    failure : str
        Reason why the integrator failed, or "".
    finite : bool
        False if rates of the state were not finite there.
    length : float
        Length of the step with the crossing, or of the steps through a rattle [s].
    patient : int
        Number of steps at the limit of stability after which a phase is taken to be stiff.
    events : tuple of Event
        Events within the phase, and
    note : str
        what is said of it, if it is not one regime but a pile that rattles (`simulation.rattling`).
    """

    start: Any
    regime: Any
    steps: tuple[IntegratorStep, ...]
    t: float
    x: np.ndarray
    crossing: Crossing | None = None
    ahead: np.ndarray | None = None
    stiff: bool = False
    failure: str = ""
    finite: bool = True
    length: float = 0.0
    patient: int = STIFF_STEPS
    events: tuple[Event, ...] = ()
    note: str = ""


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
        Fastest approach of a rebounding contact, as a fraction of the typical speed; infinite without one.
    is_unique : function
        Returns `unique`.
    sequence : bool
        True for several impacts, one after the other, at one instant.
    """

    modes: tuple[int, ...]
    impulses: np.ndarray
    rebounding: np.ndarray
    energy_gain: float
    bounce: float = np.inf
    is_unique: Callable[[], bool] = lambda: True
    sequence: bool = False

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
    agrees : bool
        True if the motion is the same up to rounding whether the surface is only touched or just crossed.
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
    agrees: bool = False
    accumulation: bool = False
    counted: bool = False
    status: Status = Status.SOLVED
    message: str = ""
