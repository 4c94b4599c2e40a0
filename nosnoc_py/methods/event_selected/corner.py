"""Directional derivative of the flow at a point where several guards are crossed at once.

The flow is piecewise linear there, with one piece for each order of crossings.

Near such a point x* the field is constant for every mode b, f_b = f(x*, b), and the guards are planes. A perturbation v
of the state, as it would be at the instant of the corner without any crossing, meets them one after the other:

    tau = min over the guards ahead of -D h_k w / (D h_k f_b),    w <- w + tau f_b,    b <- b with bit k changed,

and after the last crossing it is transported back to the instant of the corner with the last field,
w <- w - (sum of tau) f_b. A direction costs m + 1 evaluations of the field; the m! orders are never enumerated
(Council, Revzen, Burden: B-derivatives of event-selected flows; Burden et al. 2016). With one guard this is the
saltation matrix (`motion.variations`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nosnoc_py.motion.variations import Saltation, saltation

Array = np.ndarray

# The map counts as linear if all probes agree with one matrix to this relative tolerance.
LINEAR = 1e-10
# A guard with a rate below this fraction of |D h| |f| is touched, not crossed.
ALONG = 1e-12
PROBES = 16  # random orders of crossings that are tried


class LiveGuard(NamedTuple):
    """Guard and the value of its bit before the crossing, which is the row of its live function."""

    guard: int
    row: int


class Deviation(NamedTuple):
    """Image of a direction under the map over a corner.

    Attributes
    ----------
    w : (n_w,)
        Deviation after the corner, at the instant of the corner.
    delays : (crossings,)
        Changes of the crossing times, in the order of `Corner.crossings`.
    blocked : int
        Index of a crossing that does not happen in the order of this direction, or is undone because the field after it
        leads back; -1 if all happen.
    """

    w: Array
    delays: Array
    blocked: int = -1


@dataclass(frozen=True, eq=False, kw_only=True)
class Corner:
    """Several guards that are crossed at one instant.

    Parameters
    ----------
    t : float
        Instant [s].
    crossings : tuple of LiveGuard
        A guard may occur twice: its bit is set and cleared.
    gradients : (crossings, n_w)
        Gradients D h of the live functions.
    mode : (m,)
        Bits before the corner.
    flow : function (m,) -> (n_w,)
        Field at the corner in any mode.
    far : (crossings,) bool
        True if the function that changes the bit back is far below zero, so that the flow may reverse after the
        crossing.
    starts, ends : bool
        True if the motion starts here (no crossing can come before) or ends here (none can come after).
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
        """Return the one-sided derivative of the motion over the corner in a direction v (n_w,)."""
        w, mode = np.array(v, dtype=float), np.array(self.mode, dtype=float)
        delays, ahead = np.zeros(len(self.crossings)), np.arange(len(self.crossings))
        total, earliest, end, reach = 0.0, -np.inf, None, float(np.linalg.norm(w))
        while ahead.size:
            rate = self._field(mode)
            times = self._times_to_guards(w, mode, rate, ahead)
            next_index = int(np.argmin(times))
            # The first crossing may lie in the past (negative tau); later ones cannot precede it.
            tau = max(float(times[next_index]), earliest)
            blocked = self._undone_crossing(w, rate, ahead, min(tau, -total) if self.ends else tau, reach)
            if blocked < 0 and self.ends and end is None and total + tau > 0.0:
                # The motion ends before this crossing: the deviation is taken back to the end in the present mode.
                end = w - total * rate
            # No guard ahead rises in this mode: the order of this direction never completes.
            if blocked < 0 and tau == np.inf:
                blocked = int(ahead[next_index])
            if blocked >= 0:
                return _undefined(w, delays, blocked) if end is None else Deviation(end, np.full_like(delays, np.nan))
            # From now on 0: crossings follow each other in time.
            w, total, earliest = w + tau * rate, total + tau, 0.0
            crossed, ahead = int(ahead[next_index]), np.delete(ahead, next_index)
            delays[crossed] = total
            mode[self.crossings[crossed].guard] = 1 - self.crossings[crossed].row
        if end is not None:
            return Deviation(end, delays)
        blocked = self._undone_crossing(w, self._field(mode), ahead, -total, reach) if self.ends else -1
        return _undefined(w, delays, blocked) if blocked >= 0 else Deviation(w - total * self._field(mode), delays)

    @cached_property
    def _pairs(self) -> Array:
        return np.array(self.crossings)

    def _undone_crossing(self, w: Array, rate: Array, ahead: Array, span: float, reach: float) -> int:
        """Return a previous crossing that is undone within a time span, or -1; `reach` scales the rounding of w."""
        node_after = np.delete(np.arange(len(self.crossings)), ahead)
        if not (node_after.size and 0.0 < span < np.inf):
            return -1
        guards = self._pairs[:, 0]
        values, slopes = self.gradients @ w, self.gradients @ rate
        norms, speed = np.linalg.norm(self.gradients, axis=1), np.linalg.norm(rate)
        size, slack = norms * speed, ALONG * norms * (reach + span * speed)
        returns = (slopes <= ALONG * size) & (values + span * slopes <= slack) & (span * size > slack)
        single = np.bincount(guards)[guards] == 1  # a guard that occurs twice is undone by its own second crossing
        undone = node_after[(returns & single & ~np.asarray(self.far))[node_after]]
        return int(undone[0]) if undone.size else -1

    def _field(self, mode: Array) -> Array:
        # Directions share modes: each field is evaluated once, which matters as the flow may be expensive.
        key = mode.tobytes()
        if key not in self._fields:
            self._fields[key] = np.asarray(self.flow(mode))
        return self._fields[key]

    def _times_to_guards(self, w: Array, mode: Array, rate: Array, ahead: Array) -> Array:
        """Return the times to the crossings ahead; infinite for guards that are not live or do not rise."""
        gradients = self.gradients[ahead]
        values, slopes = gradients @ w, gradients @ rate
        size = np.linalg.norm(gradients, axis=1) * np.linalg.norm(rate)
        guards, rows = self._pairs[ahead].T
        live = mode[guards] == rows
        rises = live & (slopes > ALONG * size)
        times = np.full(len(ahead), np.inf)
        times[rises] = -values[rises] / slopes[rises]
        times[live & (values > 0.0) & self.starts] = (
            0.0  # the perturbed motion starts beyond the guard, with its bit changed
        )
        return times

    def linear(self) -> Saltation | None:
        """Return the matrices of the map, or None if it has kinks; tested along axes and in many orders of crossings.

        Rows of delays are NaN for crossings whose time is not differentiable although the state is.
        """
        # A single crossing inside the motion is always differentiable.
        if len(self.crossings) == 1 and not (self.starts or self.ends):
            return self._single()
        if np.bincount(self._pairs[:, 0]).max() > 2:
            return None  # it chatters
        n_w = self.gradients.shape[1]
        columns = [self(axis) for axis in np.eye(n_w)]
        # Candidate matrix from the axes; a piecewise linear map differs on other directions.
        jump, delays = np.array([column.w for column in columns]).T, np.array([column.delays for column in columns]).T
        tolerance = LINEAR * max(1.0, np.abs(jump).max())
        for v in self._probes():
            deviation, size = self(v), np.abs(v).max()
            if not np.abs(deviation.w - jump @ v).max() <= tolerance * size:
                return None
            reach = np.abs(delays) @ np.abs(v)
            delays[~(np.abs(deviation.delays - delays @ v) <= LINEAR * np.maximum(reach, size))] = np.nan
        return Saltation(jump, delays)

    def _single(self) -> Saltation:
        guard, row = self.crossings[0]
        before = np.array(self.mode, dtype=float)
        after = np.where(np.arange(before.size) == guard, 1.0 - row, before)
        jump, delay = saltation(self.gradients[0], self._field(before), self._field(after))
        return Saltation(jump, delay[None])

    def _probes(self) -> Array:
        """Return directions (probes, n_w): negative axes, and random ones (fixed seed) in the span of the delays.

        Other directions need no test, since the contribution of the corner depends on the delays only.
        """
        # A fixed seed: whether a motion is differentiable must not change from run to run.
        random = np.random.default_rng(0)
        n_g, n_w = self.gradients.shape
        slopes = self.gradients @ self._field(np.array(self.mode, dtype=float))
        orders = random.uniform(-1.0, 1.0, (PROBES, n_g)) * slopes @ np.linalg.pinv(self.gradients, rcond=ALONG).T
        orders = orders[np.abs(orders).max(axis=1) > 0.0]
        # Both signs: a kink at the corner shows as a map that is not odd.
        return np.concatenate([-np.eye(n_w), orders, -orders])


def _undefined(w: Array, delays: Array, blocked: int) -> Deviation:
    return Deviation(np.full_like(w, np.nan), np.full_like(delays, np.nan), blocked)
