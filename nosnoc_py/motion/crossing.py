"""First zero of guards on a piece of a smooth motion, including dips between samples.

Guards are positive as long as the modes of a motion hold. A piece is sampled at the eight Chebyshev extrema. The
polynomials of degree 7 through the samples show where guards may be negative or dip below zero, and their last
coefficients bound the error of interpolation. If that bound may hide a crossing, the piece is halved.

Rules for zeros at the start: a guard that is zero at the start crosses at once, unless it is enabled (known to be about
to rise); then it has to rise first. Of several crossings the earliest is returned; a touch (a minimum at zero) counts
only for distances.

References
----------
Trefethen, Approximation Theory and Approximation Practice (2013): Chebyshev interpolation and decay of coefficients.
Chandrupatla, Advances in Engineering Software 28 (1997): search for a root by inverse quadratic interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebder, chebvander

from nosnoc_py.compiled import compiled_as, jitable

Array = np.ndarray
# Guards (m, n) at times (m,), and the rates (m, k) of the first k of them, which are distances.
GuardFunction = Callable[[Array], tuple[Array, Array]]

# Chebyshev extrema on [0, 1]. With the left end they determine the polynomials of degree 7 of DOP853 exactly.
NODES = 0.5 - 0.5 * np.cos(np.pi * np.arange(8) / 7)
# Points in [0, 1] at which the polynomial is evaluated.
FINE_GRID = np.linspace(0.0, 1.0, 57)
# A piece is halved, HALVINGS times at most, if the uncertainty may hide a crossing and exceeds this share of a guard.
UNRESOLVED = 1e-4
HALVINGS = 10
# Points close to the start at which a guard is evaluated that rises from zero and falls before the first sample.
CLOSE_TO_START = 0.5 ** np.arange(1, 50).reshape(7, 7)

# A chord has to make a value smaller by this factor; it is given up otherwise. Relative rounding of a root.
CHORD, ROUNDING_OF_ROOTS = 0.1, 4.0 * np.finfo(float).eps

_COEFFICIENTS = np.linalg.inv(chebvander(2.0 * NODES - 1.0, 7))
_SLOPE = 2.0 * chebvander(2.0 * NODES - 1.0, 6) @ chebder(_COEFFICIENTS)
_TO_FINE = chebvander(2.0 * FINE_GRID - 1.0, 7) @ _COEFFICIENTS


Place = tuple[float, float, float, float, float, float]
"""Last point of a search for a root, the one on the other side of the root, the one before; each with its value."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Crossing:
    """Crossing of a guard.

    Attributes
    ----------
    guard : int
        Index of the guard.
    low, high : float
        Times between which it becomes negative [s].
    time : float
        Time of its zero, for a touch of its minimum [s].
    at_once : bool
        It is negative from the start.
    touches : bool
        It comes to zero and turns back.
    lost : bool
        It is no longer finite.
    """

    guard: int
    low: float
    high: float
    time: float
    at_once: bool = False
    touches: bool = False
    lost: bool = False


def _doubts_by_loops(guards: Array, rates: Array, count: int, length: float, touching: float) -> Array:
    doubts = np.zeros(guards.shape[1], dtype=np.bool_)
    for g in range(guards.shape[1]):
        if guards[0, g] == np.inf:
            for k in range(1, 8):
                if guards[k, g] != np.inf:
                    doubts[g] = True
            continue
        least = 0.0
        for i in range(8):
            size = 0.0
            for k in range(8):
                size += _COEFFICIENTS[i, k] * guards[k, g]
            least += abs(size) * (1.0 if i == 0 else -1.0 if i < 5 else -5.0)
        if g < count:
            mismatch = 0.0
            for i in range(8):
                apart = -length * rates[i, g]
                for k in range(8):
                    apart += _SLOPE[i, k] * guards[k, g]
                if not abs(apart) <= mismatch:
                    mismatch = abs(apart)
            least -= mismatch
        doubts[g] = not (least > max(touching, 0.0) and guards[0, g] > 0.0)
    return doubts


@compiled_as(_doubts_by_loops)
def doubts(guards: Array, rates: Array, count: int, length: float, touching: float) -> Array:
    """Return False (n,) for guards of a piece that stay away from zero by the size of their coefficients: most do.

    Guards (8, n) at the samples of a piece of this length, with the rates (8, >= count) of the first of them.
    """
    here = np.isfinite(guards[0])
    answer = np.zeros(here.size, dtype=bool)
    answer[~here] = (guards[:, ~here] != np.inf).any(axis=0)
    size = np.abs(_COEFFICIENTS @ guards[:, here])
    # The constant coefficient is the mean of the guard; a positive one with small others means no zero.
    least = size[0] - size[1:].sum(axis=0) - 4.0 * size[5:].sum(axis=0)
    own = here[:count]
    mismatch = np.abs(_SLOPE @ guards[:, :count][:, own] - length * rates[:, :count][:, own])
    least[: mismatch.shape[1]] -= mismatch.max(axis=0, initial=0.0)
    answer[here] = ~((least > max(touching, 0.0)) & (guards[0, here] > 0.0))
    return answer


NONE, CROSSES, COARSE, UNDECIDED = range(4)
"""No guard crosses; one does; a piece is too long to tell; it takes a search to tell."""


@jitable
def decided(
    doubtful: Array,
    guards: Array,
    rates: Array,
    noise: Array,
    count: int,
    length: float,
    touching: float,
    slow: float,
    defect: float,
) -> tuple[int, int, int, int]:
    """Return whether a guard crosses in a piece: if one does, which, and the samples before and after.

    Simple pieces only, where the samples alone decide as `GuardSearch` would: one guard changes its sign once, or none
    does. Arguments are those of `doubts`, with its answer, and the attributes of a search.
    """
    found, before, after = -1, 0, 0
    for g in np.flatnonzero(doubtful):
        values = guards[:, g].copy()
        if not np.isfinite(values).all():
            return UNDECIDED, 0, 0, 0
        fine, parts, speeds = np.dot(_TO_FINE, values), np.dot(_COEFFICIENTS, values), np.zeros(8)
        floor = fine[1:-1] - 0.25 * np.abs(fine[2:] - 2.0 * fine[1:-1] + fine[:-2])
        uncertainty, margin = 4.0 * np.abs(parts[5:]).sum(), -noise[g]
        if g < count:
            speeds[:] = rates[:, g]
            margin, mismatch = touching, np.abs(np.dot(_SLOPE, values) - length * speeds).max()
            if np.isnan(mismatch):
                return UNDECIDED, 0, 0, 0
            uncertainty = max(uncertainty, mismatch if mismatch > defect else 0.0)
        if min(min(fine[0], fine[-1]), floor.min()) - uncertainty >= margin:
            continue
        below = values < -noise[g]
        if uncertainty > max(noise[g], UNRESOLVED * np.abs(values).max()):
            return COARSE, 0, 0, 0
        hidden = speeds[0] > slow and ((values < 0.0) & (speeds < -slow) & ~below).any()
        if hidden or below[0]:
            return UNDECIDED, 0, 0, 0
        last = int(np.argmax(below)) if below.any() else 8
        above = np.flatnonzero(values[:last] > noise[g])
        first = int(above[0]) if above.size else last
        # A minimum between samples above zero and the first one below may be an earlier crossing, or a touch.
        low, high = NODES[first] if first < 8 else 1.0, NODES[last] if last < 8 else 1.0
        lowest = (fine[1:-1] <= fine[:-2]) & (fine[1:-1] <= fine[2:]) & (floor < margin)
        dips = (lowest & (FINE_GRID[2:] > low) & (FINE_GRID[1:-1] < high)).any()
        turns = ((speeds[first : last - 1] < 0.0) & (speeds[first + 1 : last] > 0.0)).any()
        start, end = first == 0 and speeds[0] < 0.0 and fine[0] <= fine[1], speeds[7] > 0.0 and fine[-1] <= fine[-2]
        if dips or turns or start or (last == 8 and end) or (last < 8 and above.size == 0):
            return UNDECIDED, 0, 0, 0
        if last < 8 and found >= 0:  # in one of its halves only one of them may cross
            return COARSE, 0, 0, 0
        if last < 8:
            found, before, after = int(g), int(above[-1]), last
    return (NONE if found < 0 else CROSSES), found, before, after


@jitable
def by_polynomial(values: Array, t: Array, before: int, after: int) -> tuple[Place, float, float]:
    """Return the bracket of a root between two samples, the root of the polynomial through them, and its slope."""
    a, b, low, length = float(t[before]), float(t[after]), float(t[0]), float(t[-1] - t[0])
    fa, fb, parts = float(values[before]), float(values[after]), np.dot(_COEFFICIENTS, values)
    place = (a, fa, b, fb, b, fb)
    now, time, slope, done = place, a + (b - a) * fa / (fa - fb), 0.0, False
    while not done:
        value, _ = _clenshaw(parts, 2.0 * (time - low) / length - 1.0)
        now, time, slope, done = narrowed(now, time, value, slope, 1e-24 * (b - a))
    _, slope = _clenshaw(parts, 2.0 * (time - low) / length - 1.0)
    return place, time, slope * 2.0 / length


def _not_alone(guard: int, t: float) -> None:
    """Return nothing: all guards are evaluated together."""


@dataclass(frozen=True, eq=False, kw_only=True)
class GuardSearch:
    """Search for the first crossing on a piece with known samples.

    Attributes
    ----------
    evaluate : function of t (m,)
    noise : (n,)
        Violations that are rounding.
    touching : float
        A distance that comes down to this and turns back has been touched.
    rise : (n,)
        Guards that are zero at the beginning have to rise above this before they cross; else they do so at once.
    defect : float
        Error with which distances belong to their rates: states of an integrator satisfy them to its tolerance.
    slow : float
        Rates of distances below this are zero. A distance that rises faster at the beginning, and falls faster below
        zero, has crossed, even where the noise hides how far it rose.
    alone : function of (guard, t)
        One distance and its rate, where they cost less than all guards; None where they do not.
    """

    evaluate: GuardFunction
    noise: Array
    touching: float = 0.0
    rise: float | Array = 0.0
    defect: float = 0.0
    slow: float = np.inf
    alone: Callable[[int, float], tuple[float, float] | None] = _not_alone

    def first(self, t: Array, guards: Array, rates: Array, enabled: Array, halvings: int = HALVINGS) -> Crossing | None:
        """Return the earliest crossing, or None.

        Parameters
        ----------
        t : (8,)
            Chebyshev's extrema of the piece.
        guards, rates : (8, n), (8, k)
            Values there, infinite for guards without a meaning, and the rates of the first k.
        enabled : (n,)
            Guards that are positive at the beginning, or about to be.
        """
        if not doubts(guards, rates, rates.shape[1], float(t[-1] - t[0]), self.touching).any():
            return None
        return self.in_unclear(t, guards, rates, enabled, halvings)

    def in_unclear(
        self, t: Array, guards: Array, rates: Array, enabled: Array, halvings: int = HALVINGS
    ) -> Crossing | None:
        """Return `first` for samples that are known not to be clear."""
        count = rates.shape[1]
        whole = np.isfinite(guards).all(axis=0)
        watched = np.flatnonzero(whole)
        # Guards that do not apply are infinite in the whole step. One that is finite at some samples only may cross
        # before it ceases to be: behind a contact a gap may have no value.
        broken = np.flatnonzero((guards[:, ~whole] != np.inf).any(axis=0))
        if broken.size:
            if halvings:
                return self._search_halves(t, enabled, halvings - 1)
            low, high = float(t[0]), float(t[-1])
            return Crossing(guard=int(np.flatnonzero(~whole)[broken[0]]), low=low, high=high, time=low, lost=True)
        samples = guards[:, watched]
        fine, floor, uncertainty = _bounded(samples)
        # The rates of distances are known: samples that miss a wave between them do not fit these rates.
        distances = watched[watched < count]
        mismatch = np.abs(_SLOPE @ guards[:, distances] - (t[-1] - t[0]) * rates[:, distances]).max(axis=0)
        mismatch[mismatch <= self.defect] = 0.0
        mismatch[np.isnan(mismatch)] = np.inf  # a distance without a rate, as of two points that meet: anything may be
        uncertainty[: distances.size] = np.maximum(uncertainty[: distances.size], mismatch)
        margin = np.where(watched < count, self.touching, -self.noise[watched])
        near = floor.min(axis=0) - uncertainty < margin
        coarse = uncertainty > np.maximum(self.noise[watched], UNRESOLVED * np.abs(samples).max(axis=0))
        if halvings and (near & coarse).any():
            return self._search_halves(t, enabled, halvings - 1)
        candidates = []
        for k in np.flatnonzero(near):
            guard = int(watched[k])
            speeds = rates[:, guard] if guard < count else np.zeros(NODES.size)
            candidates += [self._sign_change(guard, t, guards[:, guard], speeds, enabled=bool(enabled[guard]))]
            low = floor[:, k] - uncertainty[k]
            candidates += [self._dip(guard, t, guards[:, guard], speeds, fine[:, k], low, float(margin[k]))]
        crossings = [crossing for crossing in candidates if crossing is not None]

        def order(crossing: Crossing) -> tuple[float, bool, float]:
            # Among guards violated from the start rounding would decide; the one that falls deepest is most certain.
            return crossing.time, crossing.touches, float(guards[1, crossing.guard]) if crossing.at_once else 0.0

        return min(crossings, key=order, default=None)

    def _search_halves(self, t: Array, enabled: Array, halvings: int) -> Crossing | None:
        middle = 0.5 * (t[0] + t[-1])
        for low, high in ((t[0], middle), (middle, t[-1])):
            times = low + (high - low) * NODES
            guards, rates = self.evaluate(times)
            crossing = self.first(times, guards, rates, enabled, halvings)
            if crossing is not None:
                return crossing
            enabled = enabled | (guards[-1] > self.noise)
        return None

    def _sign_change(self, guard: int, t: Array, values: Array, speeds: Array, *, enabled: bool) -> Crossing | None:
        """Return the crossing of a guard that is negative at a sample; `speeds` are its rates if known, else zero."""
        noise, opens_at_start = self.noise[guard], enabled and bool(speeds[0] > 0.0)
        # After a fast impact the gap may be below zero by the rounding of large numbers. A gap that opens at the start
        # has to rise before it can cross.
        risen = values > noise
        if opens_at_start and not risen.any() and (speeds > 0.0).all():
            return None
        first = max(1, int(np.argmax(risen))) if opens_at_start else 0
        hidden = (values < 0.0) & (speeds < -self.slow) & (speeds[0] > self.slow)
        below = first + np.flatnonzero((values < -noise)[first:] | hidden[first:])
        if not below.size:
            return None
        j = int(below[0])
        above = np.flatnonzero(values[:j] > noise)
        if above.size:
            # The root of the polynomial through the samples is close, and its slope makes chords.
            place, *guess = by_polynomial(values, t, int(above[-1]), j)
            return self._between(guard, place[0], place[2], place[:4], guess)
        # The guard rises and falls between two samples: look for the rise close to the start.
        rise = np.broadcast_to(self.rise, self.noise.shape)[guard]
        for shares in CLOSE_TO_START if enabled and j > 0 else ():
            times = t[0] + (t[j] - t[0]) * shares
            above = np.flatnonzero(self.evaluate(times)[0][:, guard] > rise)
            if above.size:
                return self._between(guard, float(times[above[0]]), float(t[j]))
        rising = np.flatnonzero(speeds[:j] > self.slow)
        if enabled and rising.size and speeds[j] < 0.0:
            # The noise hides how far it rose; its rate tells when it turned. What is rounding even there, is back after
            # twice the time to its turn.
            turn = root(lambda s: self._rate(guard, s), float(t[rising[-1]]), float(t[j]))
            if self._value(guard, turn) > 0.0:
                return self._between(guard, turn, float(t[j]))
            back = min(2.0 * turn - float(t[0]), float(t[j]))
            return Crossing(guard=guard, low=turn, high=float(t[j]), time=back)
        return Crossing(guard=guard, low=float(t[0]), high=float(t[j]), time=float(t[0]), at_once=True)

    def _value(self, guard: int, t: float) -> float:
        found = self.alone(guard, t)
        return float(self.evaluate(np.array([t]))[0][0, guard]) if found is None else found[0]

    def _rate(self, guard: int, t: float) -> float:
        found = self.alone(guard, t)
        return float(self.evaluate(np.array([t]))[1][0, guard]) if found is None else found[1]

    def _between(self, guard: int, low: float, high: float, *known: Any) -> Crossing:
        """Return the crossing of a guard that is positive at `low` and negative at `high`; `known` as in `root`."""
        return Crossing(guard=guard, low=low, high=high, time=root(lambda s: self._value(guard, s), low, high, *known))

    def _dip(
        self, guard: int, t: Array, values: Array, speeds: Array, fine: Array, floor: Array, margin: float
    ) -> Crossing | None:
        """Return the crossing or touch of a guard with a minimum between two samples."""
        above = values > self.noise[guard]
        if not above.any():  # it has been below from the start, or is zero all the time
            return None
        lowest = (fine[1:-1] <= fine[:-2]) & (fine[1:-1] <= fine[2:]) & (floor[1:-1] < margin)
        times = t[0] + (t[-1] - t[0]) * FINE_GRID
        # A sample where the distance is zero and has no rate, as that of two points that meet there.
        corners = np.flatnonzero(np.isnan(speeds) & (values < margin))
        brackets = [(float(t[k]), float(t[k])) for k in corners]
        brackets += [(float(times[k]), float(times[k + 2])) for k in np.flatnonzero(lowest)]
        # A minimum close to an end of the piece shows in the rates only.
        if speeds[0] < 0.0 and fine[0] <= fine[1]:
            brackets.insert(0, (float(times[0]), float(times[1])))
        if speeds[-1] > 0.0 and fine[-1] <= fine[-2]:
            brackets.append((float(times[-2]), float(times[-1])))
        # A distance of points turns in a corner, whose place the polynomial does not know: after it the rates decide.
        turns = np.flatnonzero((speeds[:-1] < 0.0) & (speeds[1:] > 0.0))
        brackets += [(float(t[k]), float(t[k + 1])) for k in turns]
        for first, last in brackets:
            bottom = self._bottom(guard, first, last)
            value = self._value(guard, bottom)
            before = t[(t < bottom) & above]
            if not (value < margin and before.size):
                continue
            low = float(before[-1])
            if value < -self.noise[guard]:
                return self._between(guard, low, bottom)
            return Crossing(guard=guard, low=low, high=bottom, time=bottom, touches=True)
        return None

    def _bottom(self, guard: int, low: float, high: float) -> float:
        """Return the time of the smallest value of a guard; for a distance the zero of its rate."""
        from scipy.optimize import minimize_scalar  # not paid for by an import of the library

        if low == high:
            return low
        ends = self.evaluate(np.array([low, high]))[1]
        if guard < ends.shape[1] and ends[0, guard] < 0.0 < ends[1, guard]:
            # A rate that is rounding may have another sign where it is evaluated alone.
            known = low, float(ends[0, guard]), high, float(ends[1, guard])
            return root(lambda s: self._rate(guard, s), low, high, known)
        fine = {"xatol": 1e-8 * (high - low)}
        return float(
            minimize_scalar(lambda s: self._value(guard, s), bounds=(low, high), method="bounded", options=fine).x
        )


def root(
    function: Callable[[float], float],
    low: float,
    high: float,
    ends: tuple[float, float, float, float] | None = None,
    guess: Sequence[float] | None = None,
) -> float:
    """Return the zero of a function with different signs at two points, to rounding (Chandrupatla, 1997).

    A point at which the function is no finite number ends the search like a zero: the rate of a distance of two points
    changes its sign by a jump, and has no value where they meet. The caller judges the motion at this point.

    Parameters
    ----------
    function
    low, high : float
    ends : (low, value, high, value), optional
        Values at the two points, if they are known.
    guess : (point, slope), optional
        A point close to the zero, and about the slope there: chords with this slope come first.

    Raises
    ------
    ValueError
        If the signs are the same.

    Examples
    --------
    >>> round(root(lambda t: t * t - 2.0, 1.0, 2.0), 12)
    1.414213562373
    """

    def value(t: float) -> float:
        exact = function(t)
        return exact if math.isfinite(exact) else 0.0

    a, fa, b, fb = ends or (low, value(low), high, value(high))
    if fa == 0.0 or fb == 0.0:
        return float(a if fa == 0.0 else b)
    if (fa > 0.0) == (fb > 0.0):
        raise ValueError("root: the values at the two points need different signs")
    # The relative tolerance decides; the absolute one ends the search for a zero of high order at t = 0.
    place, least = (a, fa, b, fb, b, fb), max(1e-24 * abs(high - low), float(np.finfo(float).tiny))
    t, slope = guess or (a + (b - a) * fa / (fa - fb), 0.0)
    done = False
    while not done:
        place, t, slope, done = narrowed(place, t, value(t), slope, least)
    return float(t)


@jitable
def narrowed(place: Place, t: float, value: float, slope: float, least: float) -> tuple[Place, float, float, bool]:
    """Return the place of a search after a value, the next point or the root, the slope of its chord (0: none), and
    whether the search is over.
    """
    a, fa, b, fb, c, fc = place
    smaller = abs(value) <= CHORD * abs(fa)
    if (value > 0.0) == (fa > 0.0):
        c, fc = a, fa
    else:
        c, fc, b, fb = b, fb, a, fa
    a, fa = t, value
    now = (a, fa, b, fb, c, fc)
    best = a if abs(fa) <= abs(fb) else b
    tolerance = ROUNDING_OF_ROOTS * abs(best) + least
    if fa == 0.0 or abs(b - a) <= tolerance:
        return now, best, 0.0, True
    if slope != 0.0 and smaller:
        way = -fa / slope
        if abs(way) <= tolerance:
            return now, a + way, slope, True
        if min(a, b) < a + way < max(a, b):
            return now, a + way, slope, False
    share, xi, phi = 0.5, (a - b) / (c - b) if c != b else 1.0, (fa - fb) / (fc - fb) if fc != fb else 1.0
    if phi * phi < xi and (1.0 - phi) * (1.0 - phi) < 1.0 - xi and fc != fa:
        share = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
    edge = 0.5 * tolerance / abs(b - a)
    return now, a + min(max(share, edge), 1.0 - edge) * (b - a), 0.0, False


@jitable
def _clenshaw(parts: Array, s: float) -> tuple[float, float]:
    """Return a polynomial with eight coefficients of Chebyshev, and its slope, at s."""
    first, second, by_first, by_second = 0.0, 0.0, 0.0, 0.0
    for k in range(7, 0, -1):
        by_first, by_second = 2.0 * first + 2.0 * s * by_first - by_second, by_first
        first, second = parts[k] + 2.0 * s * first - second, first
    return parts[0] + s * first - second, first + s * by_first - by_second


def may_cross(samples: Array, margin: float | Array) -> Array:
    """Return True where functions (...) may fall below a margin, from samples (8, ...) at the Chebyshev extrema."""
    _, floor, uncertainty = _bounded(samples.reshape(NODES.size, -1))
    return np.asarray((floor.min(axis=0) - uncertainty).reshape(samples.shape[1:]) < margin)


def _bounded(samples: Array) -> tuple[Array, Array, Array]:
    """Return polynomials through samples (8, n) at `FINE_GRID`, their lower bounds in between, and their uncertainty
    (n,).
    """
    fine = _TO_FINE @ samples
    floor = fine.copy()
    # The minimum of a parabola lies below its samples by at most an eighth of the second difference.
    floor[1:-1] -= 0.25 * np.abs(fine[2:] - 2.0 * fine[1:-1] + fine[:-2])
    return fine, floor, _uncertainty(samples)


def _uncertainty(samples: Array) -> Array:
    """Return four times the last three coefficients (n,), a bound of the error of the polynomials."""
    return np.asarray(4.0 * np.abs(_COEFFICIENTS[5:] @ samples).sum(axis=0))
