"""The search for the first guard that becomes zero in a step: guards are positive as long as a regime holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nosnoc_py.simulation.event_driven.chebyshev import FINE, NODES, between, doubt, slope_error
from nosnoc_py.tolerances import TOUCHING

# A step is halved, so often at most, where what its samples miss may hide a crossing and exceeds this share of a guard.
UNRESOLVED = 1e-4
HALVINGS = 10


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
class Crossing:
    """A guard that becomes negative between two times, or at once; `touches` when it comes to zero and turns back.

    `time` is where it is zero, of a touch where it is smallest [s]; `lost` where it ceases to be a number. Of a gap
    that closes softly (`soft_closing`) it is where its acceleration is zero, and `high` is where the motion without
    the contact has left the band around zero.
    """

    guard: int
    low: float
    high: float
    time: float
    at_once: bool = False
    touches: bool = False
    soft: bool = False
    lost: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Search:
    """Looks for the first crossing in a step.

    Attributes
    ----------
    noise : (n_g,)
        Violations that are rounding.
    look : function of t
    distances : int
        So many guards, the first ones, are distances: their rates are known, and they may be touched without speed.
    length : float
        The length at work.
    """

    noise: np.ndarray
    look: Callable[[float], Sample]
    distances: int
    length: float = 1.0

    def first(
        self, t: np.ndarray, guards: np.ndarray, rates: np.ndarray, armed: np.ndarray, halvings: int = HALVINGS
    ) -> Crossing | None:
        """The earliest crossing.

        Parameters
        ----------
        t : (8,)
            Chebyshev's extrema of the step.
        guards, rates : (8, n_g), (8, n_r)
            Values there.
        armed : (n_g,)
            Guards that have been positive in this phase, or are about to be.
        """
        finite = np.isfinite(guards)
        watched = np.flatnonzero(finite.all(axis=0))
        # Guards without a meaning are infinite in the whole step. One that is a number at some samples only may cross
        # before it is none: what lies behind a contact need not have a gap.
        broken = np.flatnonzero(~finite.all(axis=0) & ~np.isposinf(guards).all(axis=0))
        if broken.size:
            if halvings:
                return self._halves(t, armed, halvings - 1)
            low, high = float(t[0]), float(t[-1])
            return Crossing(guard=int(broken[0]), low=low, high=high, time=low, lost=True)
        fine, missed = between(guards[:, watched]), doubt(guards[:, watched])
        # The rates of distances are known: samples that miss a wave do not fit to them.
        count = self.distances
        gaps = watched[watched < count]
        wrong = slope_error(guards[:, gaps], (t[-1] - t[0]) * rates[:, gaps])
        missed[: gaps.size] = np.maximum(missed[: gaps.size], wrong)
        floor = fine.copy()
        # The lowest point of a parabola lies below that of its samples by an eighth of their second difference at most.
        floor[1:-1] -= 0.25 * np.abs(fine[2:] - 2.0 * fine[1:-1] + fine[:-2])
        near = floor.min(axis=0) - missed < self._margin(watched)
        coarse = missed > np.maximum(self.noise[watched], UNRESOLVED * np.abs(guards[:, watched]).max(axis=0))
        if halvings and (near & coarse).any():
            return self._halves(t, armed, halvings - 1)
        found = []
        for k in np.flatnonzero(near):
            guard = int(watched[k])
            opens = bool(armed[guard]) and guard < count and bool(rates[0, guard] > 0.0)
            found += [self._change(guard, t, guards[:, guard], armed=bool(armed[guard]), opens=opens)]
            found += [self._dip(guard, t, guards[:, guard], fine[:, k], floor[:, k] - missed[k])]
        crossings = [crossing for crossing in found if crossing is not None]
        return min(crossings, key=lambda crossing: (crossing.time, crossing.touches), default=None)

    def _margin(self, guards: np.ndarray) -> np.ndarray:
        """Values of guards below which something happens."""
        return np.where(guards < self.distances, TOUCHING * self.length, -self.noise[guards])

    def _halves(self, t: np.ndarray, armed: np.ndarray, halvings: int) -> Crossing | None:
        middle = 0.5 * (t[0] + t[-1])
        for low, high in ((t[0], middle), (middle, t[-1])):
            times = low + (high - low) * NODES
            samples = [self.look(s) for s in times]
            guards, rates = np.array([s.guards for s in samples]), np.array([s.rates for s in samples])
            found = self.first(times, guards, rates, armed, halvings)
            if found is not None:
                return found
            armed = armed | (guards[-1] > self.noise)
        return None

    def _change(self, guard: int, t: np.ndarray, values: np.ndarray, *, armed: bool, opens: bool) -> Crossing | None:
        """A guard that is negative at a sample."""
        noise = self.noise[guard]
        # A fast impact leaves its gap below zero by the rounding of large numbers, which may be more than the noise:
        # what opens at the beginning has to rise before it can cross.
        first = max(1, int(np.argmax(values > noise))) if opens else 0
        below = first + np.flatnonzero(values[first:] < -noise)
        if not below.size:
            return None
        j = int(below[0])
        above = np.flatnonzero(values[:j] > noise)
        if above.size:
            return self._between(guard, float(t[above[-1]]), float(t[j]))
        # It rises and falls between two samples: look for the rise close to the beginning.
        span = float(t[j] - t[0])
        for k in range(1, 50 if armed and j > 0 else 1):
            low = t[0] + span * 0.5**k
            if self.look(low).guards[guard] > 0.0:
                return self._between(guard, float(low), float(t[j]))
        return Crossing(guard=guard, low=float(t[0]), high=float(t[j]), time=float(t[0]), at_once=True)

    def _between(self, guard: int, low: float, high: float) -> Crossing:
        """The crossing of a guard that is positive at one time and negative at a later one."""
        from scipy.optimize import brentq  # not paid for by an import of the library

        def value(s: float) -> float:
            return float(self.look(s).guards[guard])

        time = float(brentq(value, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps))
        return Crossing(guard=guard, low=low, high=high, time=time)

    def _dip(
        self, guard: int, t: np.ndarray, values: np.ndarray, fine: np.ndarray, floor: np.ndarray
    ) -> Crossing | None:
        """A guard that comes down between two samples and rises again."""
        margin = float(self._margin(np.array(guard)))
        lowest = (fine[1:-1] <= fine[:-2]) & (fine[1:-1] <= fine[2:]) & (floor[1:-1] < margin)
        times = t[0] + (t[-1] - t[0]) * FINE
        for k in np.flatnonzero(lowest):
            bottom = self._bottom(guard, float(times[k]), float(times[k + 2]))
            value = float(self.look(bottom).guards[guard])
            before = t[(t < bottom) & (values > self.noise[guard])]
            if not (value < margin and before.size):
                continue
            low = float(before[-1])
            if value < -self.noise[guard]:
                return self._between(guard, low, bottom)
            return Crossing(guard=guard, low=low, high=bottom, time=bottom, touches=True)
        return None

    def _bottom(self, guard: int, low: float, high: float) -> float:
        """Time of the smallest value of a guard; of a gap, where its rate is zero."""
        from scipy.optimize import brentq, minimize_scalar  # not paid for by an import of the library

        if guard < self.distances and self.look(low).rates[guard] < 0.0 < self.look(high).rates[guard]:
            return float(brentq(lambda s: self.look(s).rates[guard], low, high, xtol=1e-15, rtol=1e-14))
        found = minimize_scalar(lambda s: self.look(s).guards[guard], bounds=(low, high), method="bounded")
        return float(found.x)
