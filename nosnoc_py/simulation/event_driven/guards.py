"""Guards: quantities that are positive as long as the modes of the contacts hold, and where they become zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nosnoc_py.simulation.contact_frames import FREE, STICK
from nosnoc_py.simulation.event_driven.chebyshev import FINE, NODES, between, doubt, slope_error
from nosnoc_py.simulation.event_driven.mechanics import Look, Regime

GAP, FORCE, SLIP_SPEED, SLACK, STIFFNESS = range(5)
"""Gap of an open contact; normal force of a closed one; speed of a slip; distance of a stick from its cone; what a
normal force does against the approach of a slipping contact (not positive: the paradox of Painleve)."""
KINDS = ("touch", "release", "end of slip", "start of slip", "jam")
# Violations below this are rounding: gaps [m] and speeds [m/s], absolute; forces relative to the largest one, and to
# what accelerates the smallest mass by 1 m/s^2.
ROUNDING = 1e-11
FORCE_ROUNDING = 1e-9
# A gap [m] with a smallest value below this, and no crossing, is a touch without speed.
GRAZING = 1e-9
# A step is halved, so often at most, where what its samples miss may hide a crossing and exceeds this share of a guard.
UNRESOLVED = 1e-4
HALVINGS = 10


@dataclass(frozen=True, eq=False, kw_only=True)
class Sample:
    """What is known at one instant of a phase: guards (5 n_c,), contact forces and rates (n_c + n_tt,)."""

    guards: np.ndarray
    forces: np.ndarray
    rates: np.ndarray


def sample(look: Look, regime: Regime) -> Sample:
    """Evaluate the guards of a regime; those without a meaning are infinite."""
    frames, n_c = regime.frames, regime.frames.count
    forces, values = regime.forces(look), np.full((5, n_c), np.inf)
    for c, mode in enumerate(regime.modes):
        part, mu = frames.tangents[c], frames.friction[c]
        if mode == FREE:
            values[GAP, c] = look.gaps[c]
            continue
        values[FORCE, c] = forces[c]
        if mode == STICK:
            values[SLACK, c] = mu * forces[c] - np.linalg.norm(forces[n_c:][part])
        elif c in regime.slipping:
            values[SLIP_SPEED, c] = look.rates[n_c:][part] @ regime.direction[part]
            values[STIFFNESS, c] = regime.stiffness(c, look)
    return Sample(guards=values.reshape(-1), forces=forces, rates=look.rates)


def rounding(regime: Regime, forces: np.ndarray, inertia: float) -> np.ndarray:
    """Violations of the guards (5 n_c,) that are rounding, for contact forces (samples, n_c + n_tt) on an inertia."""
    force = FORCE_ROUNDING * (inertia + np.abs(forces).max(initial=0.0))
    return np.repeat([ROUNDING, force, ROUNDING, force, 0.0], regime.frames.count)


@dataclass(frozen=True, eq=False, kw_only=True)
class Crossing:
    """A guard that becomes negative between two times, or at once; `touches` when it comes to zero and turns back.

    `time` is where it is zero, of a touch where it is smallest [s].
    """

    guard: int
    low: float
    high: float
    time: float
    at_once: bool = False
    touches: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Search:
    """Looks for the first crossing in a step.

    Attributes
    ----------
    noise : (5 n_c,)
        Violations that are rounding.
    look : function of t
    """

    noise: np.ndarray
    look: Callable[[float], Sample]

    def first(
        self, t: np.ndarray, guards: np.ndarray, rates: np.ndarray, armed: np.ndarray, halvings: int = HALVINGS
    ) -> Crossing | None:
        """The earliest crossing.

        Parameters
        ----------
        t : (8,)
            Chebyshev's extrema of the step.
        guards, rates : (8, 5 n_c), (8, n_c + n_tt)
            Values there.
        armed : (5 n_c,)
            Guards that have been positive in this phase, or are about to be.
        """
        watched = np.flatnonzero(np.isfinite(guards).all(axis=0))
        fine, missed = between(guards[:, watched]), doubt(guards[:, watched])
        # The rates of gaps are known: samples that miss a wave do not fit to them.
        count = guards.shape[1] // 5
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
        return np.where(guards < self.noise.size // 5, GRAZING, -self.noise[guards])

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

        if guard < self.noise.size // 5 and self.look(low).rates[guard] < 0.0 < self.look(high).rates[guard]:
            return float(brentq(lambda s: self.look(s).rates[guard], low, high, xtol=1e-15, rtol=1e-14))
        found = minimize_scalar(lambda s: self.look(s).guards[guard], bounds=(low, high), method="bounded")
        return float(found.x)
