"""Guards: quantities that are positive as long as the modes of the contacts hold, and where they become zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nosnoc_py.simulation.contact_frames import FREE, STICK
from nosnoc_py.simulation.event_driven.mechanics import Look, Regime

GAP, FORCE, SLIP_SPEED, SLACK, STIFFNESS = range(5)
"""Gap of an open contact; normal force of a closed one; speed of a slip; distance of a stick from its cone; what a
normal force does against the approach of a slipping contact (not positive: the paradox of Painleve)."""
KINDS = ("touch", "release", "end of slip", "start of slip", "jam")
# Violations below this are rounding: gaps [m] and speeds [m/s], absolute; forces relative to the largest one.
ROUNDING = 1e-11
FORCE_ROUNDING = 1e-9
# A gap [m] with a smallest value below this, and no crossing, is a touch without speed.
GRAZING = 1e-9


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


def rounding(regime: Regime, forces: np.ndarray) -> np.ndarray:
    """Violations of the guards (5 n_c,) that are rounding, for contact forces (samples, n_c + n_tt)."""
    force = FORCE_ROUNDING * (1.0 + np.abs(forces).max(initial=0.0))
    return np.repeat([ROUNDING, force, ROUNDING, force, 0.0], regime.frames.count)


@dataclass(frozen=True, eq=False, kw_only=True)
class Crossing:
    """A guard that becomes negative between two times, or at once; `touches` when it comes to zero and turns back."""

    guard: int
    low: float
    high: float
    at_once: bool = False
    touches: bool = False


def first_crossing(
    t: np.ndarray,
    guards: np.ndarray,
    rates: np.ndarray,
    noise: np.ndarray,
    armed: np.ndarray,
    look: Callable[[float], Sample],
) -> Crossing | None:
    """The crossing with the earliest bracket in one step.

    Parameters
    ----------
    t : (m,)
        Samples of the step.
    guards, rates : (m, ...)
        Values at the samples.
    noise : (5 n_c,)
    armed : (5 n_c,)
        Guards that have been positive in this phase, or are about to be.
    look : function of t
    """
    found = [
        crossing
        for i in np.flatnonzero(np.isfinite(guards).all(axis=0))
        if (crossing := _crossing(int(i), t, guards[:, i], float(noise[i]), bool(armed[i]), look)) is not None
    ]
    n_c = guards.shape[1] // 5
    for c in np.flatnonzero(np.isfinite(guards[0, :n_c])):
        dip = _dip(int(c), t, guards[:, c], rates[:, c], look)
        found += [dip] if dip is not None else []
    return min(found, key=lambda crossing: (crossing.high, crossing.touches), default=None)


def _crossing(
    guard: int, t: np.ndarray, values: np.ndarray, noise: float, armed: bool, look: Callable[[float], Sample]
) -> Crossing | None:
    below = np.flatnonzero(values < -noise)
    if not below.size:
        return None
    j = int(below[0])
    above = np.flatnonzero(values[:j] > noise)
    if above.size:
        return Crossing(guard=guard, low=float(t[above[-1]]), high=float(t[j]))
    if not armed or j == 0:
        return Crossing(guard=guard, low=float(t[0]), high=float(t[j]), at_once=True)
    # It rises and falls between two samples: look for the rise close to the beginning.
    span = float(t[j] - t[0])
    for k in range(1, 50):
        low = t[0] + span * 0.5**k
        if look(low).guards[guard] > 0.0:
            return Crossing(guard=guard, low=float(low), high=float(t[j]))
    return Crossing(guard=guard, low=float(t[0]), high=float(t[j]), at_once=True)


def _dip(
    contact: int, t: np.ndarray, gaps: np.ndarray, rates: np.ndarray, look: Callable[[float], Sample]
) -> Crossing | None:
    """An open contact that comes close between two samples."""
    from scipy.optimize import brentq  # not paid for by an import of the library

    turns = np.flatnonzero((rates[:-1] < 0.0) & (rates[1:] > 0.0) & (gaps[:-1] > GRAZING) & (gaps[1:] > 0.0))
    for j in turns:
        # Far away and slow: it cannot come down in this interval.
        if gaps[j] + rates[j] * (t[j + 1] - t[j]) > 0.5 * gaps[j]:
            continue
        lowest = float(brentq(lambda s: look(s).rates[contact], t[j], t[j + 1], xtol=1e-15, rtol=1e-14))
        gap = float(look(lowest).guards[contact])
        if gap < GRAZING:
            return Crossing(guard=contact, low=float(t[j]), high=lowest, touches=gap >= -ROUNDING)
    return None
