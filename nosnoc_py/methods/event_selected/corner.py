"""The flow near a point where several guards are crossed at once: piecewise linear, one order of crossings per piece.

Near such a point x* the field is constant for every mode b, f_b = f(x*, b), and the guards are planes. A perturbation v
of the state, as it would be at the instant of the corner without any crossing, meets them one after the other:

    tau = min over the guards ahead of -D h_k w / (D h_k f_b),    w <- w + tau f_b,    b <- b with bit k changed,

and after the last one it is taken back to the instant of the corner with the last field, w <- w - (sum of tau) f_b.
So one direction costs m + 1 fields; the m! orders are never listed (Council, Revzen, Burden: B-derivatives of flows).
With one guard it is the saltation matrix (`motion.variations`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nosnoc_py.motion.variations import Saltation, saltation

Array = np.ndarray

# The map is one matrix if it is to this, relative to its size, in all probes.
LINEAR = 1e-10
# A guard whose rate is so much smaller than |D h| |f| is not approached but touched.
ALONG = 1e-12
PROBES = 16


class LiveGuard(NamedTuple):
    """A guard and the value that its bit had before it was crossed: the row of its live function."""

    guard: int
    row: int


class Deviation(NamedTuple):
    """What becomes of a direction.

    Attributes
    ----------
    w : (n_w,)
        At the instant of the corner, behind it.
    delays : (crossings,)
        Change of the times of the crossings, in the order of `Corner.crossings`.
    stuck : int
        Index of a crossing that does not happen in the order that the direction asks for, or is undone because the
        field behind it leads back; -1 if all happen.
    """

    w: Array
    delays: Array
    stuck: int = -1


@dataclass(frozen=True, eq=False, kw_only=True)
class Corner:
    """Guards that are crossed at one instant.

    Parameters
    ----------
    t : float
    crossings : tuple of LiveGuard
        A guard may be there twice, set and cleared.
    gradients : (crossings, n_w)
        D h of the live functions.
    mode : (m,)
        Bits before.
    flow : function (m,) -> (n_w,)
        The field at the corner in any mode.
    far : (crossings,) bool
        Whether the function that changes the bit again is far below zero, so that the flow may turn round behind.
    starts, ends : bool
        Whether the motion starts here, so that no guard can be crossed before, or ends here, so that none can after.
    """

    t: float
    crossings: tuple[LiveGuard, ...]
    gradients: Array
    mode: Array
    flow: Callable[[Array], Array]
    far: Array
    starts: bool = False
    ends: bool = False
    _fields: dict[bytes, Array] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, v: Array) -> Deviation:
        """The one-sided derivative of the motion over the corner in a direction v (n_w,)."""
        w, mode = np.array(v, dtype=float), np.array(self.mode, dtype=float)
        delays, ahead = np.zeros(len(self.crossings)), np.arange(len(self.crossings))
        total, earliest, end, reach = 0.0, -np.inf, None, float(np.linalg.norm(w))
        while ahead.size:
            rate = self._field(mode)
            left = self._times(w, mode, rate, ahead)
            following = int(np.argmin(left))
            tau = max(float(left[following]), earliest)
            stuck = self._returning(w, rate, ahead, min(tau, -total) if self.ends else tau, reach)
            if stuck < 0 and self.ends and end is None and total + tau > 0.0:
                end = w - total * rate
            if stuck < 0 and tau == np.inf:
                stuck = int(ahead[following])
            if stuck >= 0:
                return _lost(w, delays, stuck) if end is None else Deviation(end, np.full_like(delays, np.nan))
            w, total, earliest = w + tau * rate, total + tau, 0.0
            crossed, ahead = int(ahead[following]), np.delete(ahead, following)
            delays[crossed] = total
            mode[self.crossings[crossed].guard] = 1 - self.crossings[crossed].row
        if end is not None:
            return Deviation(end, delays)
        stuck = self._returning(w, self._field(mode), ahead, -total, reach) if self.ends else -1
        return _lost(w, delays, stuck) if stuck >= 0 else Deviation(w - total * self._field(mode), delays)

    @cached_property
    def _pairs(self) -> Array:
        return np.array(self.crossings)

    def _returning(self, w: Array, rate: Array, ahead: Array, span: float, reach: float) -> int:
        """A crossing made already that is undone within a span of time, or -1; rounding is relative to a reach of w."""
        behind = np.delete(np.arange(len(self.crossings)), ahead)
        if not (behind.size and 0.0 < span < np.inf):
            return -1
        guards = self._pairs[:, 0]
        values, slopes = self.gradients @ w, self.gradients @ rate
        norms, speed = np.linalg.norm(self.gradients, axis=1), np.linalg.norm(rate)
        size, slack = norms * speed, ALONG * norms * (reach + span * speed)
        back = (slopes <= ALONG * size) & (values + span * slopes <= slack) & (span * size > slack)
        once = np.bincount(guards)[guards] == 1  # else it is undone by a crossing of its own
        found = behind[(back & once & ~np.asarray(self.far))[behind]]
        return int(found[0]) if found.size else -1

    def _field(self, mode: Array) -> Array:
        key = mode.tobytes()
        if key not in self._fields:
            self._fields[key] = np.asarray(self.flow(mode))
        return self._fields[key]

    def _times(self, w: Array, mode: Array, rate: Array, ahead: Array) -> Array:
        """Times until the crossings ahead; never for those whose guard is not live, or does not rise."""
        gradients = self.gradients[ahead]
        values, slopes = gradients @ w, gradients @ rate
        size = np.linalg.norm(gradients, axis=1) * np.linalg.norm(rate)
        guards, rows = self._pairs[ahead].T
        live = mode[guards] == rows
        rises = live & (slopes > ALONG * size)
        times = np.full(len(ahead), np.inf)
        times[rises] = -values[rises] / slopes[rises]
        times[live & (values > 0.0) & self.starts] = 0.0  # it starts beyond the guard, with its bit changed
        return times

    def linear(self) -> Saltation | None:
        """The matrices of the map, or None if it has kinks: probed along axes and in many orders.

        Rows of delays are NaN for crossings whose time is not differentiable although the state is.
        """
        if len(self.crossings) == 1 and not (self.starts or self.ends):
            return self._single()
        if np.bincount(self._pairs[:, 0]).max() > 2:
            return None  # it chatters
        n_w = self.gradients.shape[1]
        columns = [self(axis) for axis in np.eye(n_w)]
        jump, delays = np.array([column.w for column in columns]).T, np.array([column.delays for column in columns]).T
        tolerance = LINEAR * max(1.0, np.abs(jump).max())
        for v in self._probes():
            found, size = self(v), np.abs(v).max()
            if not np.abs(found.w - jump @ v).max() <= tolerance * size:
                return None
            reach = np.abs(delays) @ np.abs(v)
            delays[~(np.abs(found.delays - delays @ v) <= LINEAR * np.maximum(reach, size))] = np.nan
        return Saltation(jump, delays)

    def _single(self) -> Saltation:
        guard, row = self.crossings[0]
        before = np.array(self.mode, dtype=float)
        after = np.where(np.arange(before.size) == guard, 1.0 - row, before)
        jump, delay = saltation(self.gradients[0], self._field(before), self._field(after))
        return Saltation(jump, delay[None])

    def _probes(self) -> Array:
        """Directions (probes, n_w): axes backwards, and seeded ones that ask for delays, and so orders, at random.

        There are no others to ask: what the corner adds to a direction depends on its delays only.
        """
        random = np.random.default_rng(0)
        n_g, n_w = self.gradients.shape
        slopes = self.gradients @ self._field(np.array(self.mode, dtype=float))
        orders = random.uniform(-1.0, 1.0, (PROBES, n_g)) * slopes @ np.linalg.pinv(self.gradients, rcond=ALONG).T
        orders = orders[np.abs(orders).max(axis=1) > 0.0]
        return np.concatenate([-np.eye(n_w), orders, -orders])


def _lost(w: Array, delays: Array, stuck: int) -> Deviation:
    return Deviation(np.full_like(w, np.nan), np.full_like(delays, np.nan), stuck)
