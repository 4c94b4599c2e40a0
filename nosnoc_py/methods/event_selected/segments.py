"""One segment of the motion at a frozen mode: its states, and its length so that it ends on a guard.

All of it is in the part of Python that numba compiles. Row b of values and gradients belongs to guards with bit b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nosnoc_py.compiled import jitable

Array = np.ndarray

# Evaluations of one crossing at most; bisection alone needs fifty.
MOST = 60
ROUNDING = 2.2e-16
# The value of a function that is never crossed; finite, so that differences of it are zero.
NEVER = -1e300
# Values of a guard so much smaller than |D h| |x| are zero: the state is known no better.
NOISE = 1e-14
# Products of two corrections so much smaller than the square of the length: the error of a secant is below rounding.
NEAR = 1e-11
# The last correction below this part of the length is made along the slope at the end: another step of the scheme would
# give the same.
TINY = 1e-10


class Scheme(NamedTuple):
    """A tableau of a step of so many `own` stages: the rows of a, and b as the last one, (own + 1, own).

    A stage after them is the first of the next step.
    """

    weights: Array
    own: int


class EndPoint(NamedTuple):
    """The right end of a segment: its length, state, slope there with the mode of the segment, and guards there.

    `values` (1 or 2, m) are those of all functions, `live` (m,) of those that the bits wait for.
    """

    length: float
    x: Array
    slope: Array
    values: Array
    live: Array


class System(NamedTuple):
    """What is simulated: functions of `functions.Fields`, parameters (n_p,), and which bits are never cleared (m,).

    `loops` says how small sums are taken: loops are faster where they are compiled, and slow where they are not.
    """

    flow: Callable[..., Array]
    rows: Callable[..., Array]
    row_gradients: Callable[..., Array]
    p: Array
    once: Array
    scheme: Any
    rules: Any
    loops: bool


class Bracket(NamedTuple):
    """Lengths between which a guard is reached; `above` says that it is known to be above its level at `high`."""

    low: float
    guess: float
    high: float
    above: bool


@jitable
def live_of(values: Array, mode: Array, loops: bool) -> Array:
    """Values (m,) of the functions that the bits wait for; one row of values stands for two with opposite signs."""
    if loops:
        live = np.empty(len(mode))
        for k in range(len(mode)):
            if mode[k] < 0.5:
                live[k] = values[0, k]
            else:
                live[k] = -values[0, k] if len(values) == 1 else values[1, k]
        return live
    chosen: Array = values[0] * (1.0 - 2.0 * mode) if len(values) == 1 else np.where(mode > 0.5, values[1], values[0])
    return chosen


@jitable
def rate_of(gradients: Array, mode: Array, slope: Array, guard: int) -> float:
    """D h f of one guard."""
    if mode[guard] < 0.5:
        return float(np.dot(gradients[0, guard], slope))
    rate = np.dot(gradients[len(gradients) - 1, guard], slope)
    return float(-rate if len(gradients) == 1 else rate)


@jitable
def noise_of(gradients: Array, mode: Array, x: Array, guard: int) -> float:
    """What rounding of the state makes of the value of one guard."""
    row = 0 if mode[guard] < 0.5 else len(gradients) - 1
    return float(NOISE * np.dot(np.abs(gradients[row, guard]), np.abs(x)))


@jitable
def rates_of(gradients: Array, mode: Array, slope: Array, loops: bool) -> Array:
    """D h f (m,) of the functions that the bits wait for."""
    count, m, n_x = gradients.shape
    if loops:
        rates = np.empty(m)
        for k in range(m):
            row = 0 if mode[k] < 0.5 else count - 1
            rate = 0.0
            for j in range(n_x):
                rate += gradients[row, k, j] * slope[j]
            rates[k] = -rate if count == 1 and mode[k] > 0.5 else rate
        return rates
    return live_of(np.dot(gradients.reshape(-1, n_x), slope).reshape(count, m), mode, loops)


@jitable
def rates_at(system: Any, x: Array, mode: Array, slope: Array) -> Array:
    """D h f (m,) of the functions that the bits wait for, at a state."""
    return rates_of(system.row_gradients(x, system.p), mode, slope, system.loops)


@jitable
def step_by_loops(
    flow: Callable[..., Array], x: Array, mode: Array, p: Array, weights: Array, stages: Array, length: float
) -> Array:
    """The end of a step; its first slope is given, the others are filled in.

    A copy of `Tableau.step`, because numba cannot call that; `tests/motion/test_compiled_roots.py` holds them together.
    """
    own, n_x = len(weights) - 1, len(x)
    total = np.empty_like(x)
    for i in range(1, own + 1):
        for j in range(n_x):
            inner = 0.0
            for k in range(i):
                inner += weights[i, k] * stages[k, j]
            total[j] = x[j] + length * inner
        if i < own:
            slope = flow(total, mode, p)
            for j in range(n_x):
                stages[i, j] = slope[j]
    return total


@jitable
def step_by_arrays(
    flow: Callable[..., Array], x: Array, mode: Array, p: Array, weights: Array, stages: Array, length: float
) -> Array:
    """The same without loops over components: a copy, too, which the interpreter runs faster."""
    own, weights = len(weights) - 1, length * weights
    for i in range(1, own):
        stages[i] = flow(x + np.dot(weights[i, :i], stages[:i]), mode, p)
    return x + np.dot(weights[own], stages[:own])


@jitable
def end_at(system: Any, mode: Array, length: float, x: Array) -> EndPoint:
    """The right end of a segment at a state."""
    slope = system.flow(x, mode, system.p).copy()
    values = system.rows(x, system.p)
    return EndPoint(length, x, slope, values, live_of(values, mode, system.loops))


@jitable
def point_at(system: Any, x: Array, mode: Array, stages: Array, length: float) -> EndPoint:
    """A step of the scheme; `stages[0]` is given, the others are filled in."""
    if system.loops:
        end = step_by_loops(system.flow, x, mode, system.p, system.scheme.weights, stages, length)
    else:
        end = step_by_arrays(system.flow, x, mode, system.p, system.scheme.weights, stages, length)
    return end_at(system, mode, length, end)


@jitable
def is_finite(point: EndPoint, loops: bool) -> bool:
    """Whether everything at the end of a segment is finite."""
    if loops:
        return bool(np.isfinite(np.sum(point.x) + np.sum(point.slope) + np.sum(point.live)))
    # zero times what is not finite is not zero; no sum of arrays is as fast
    return bool(np.dot(point.x, 0.0 * point.slope) == 0.0 and np.dot(point.live, 0.0 * point.live) == 0.0)


@jitable
def located(
    system: Any,
    t: float,
    x: Array,
    mode: Array,
    stages: Array,
    guard: int,
    below: float,
    rise: float,
    level: float,
    bracket: Any,
    corrections: int,
) -> tuple[bool, EndPoint]:
    """The step that ends where a guard rises to its level, by Newton's method, by bisection where that leaves it.

    At the start the guard is `below` its level and has the rate `rise`, NaN if that is not known. If it is, and more
    corrections than one are allowed, the first one goes to the root of a cubic. Corrections that do not reduce the
    value to a tenth do not count. It is lost where the guard is not known to be reached, and Newton's method leaves the
    bracket.

    A copy of `motion.crossing.root`, because numba cannot call that, and with the slope because every value costs a
    step; `tests/motion/test_compiled_roots.py` holds them together.
    """
    low, length, high, above = bracket.low, bracket.guess, bracket.high, bracket.above
    counted, before, speed, old, last = -1, np.inf, 0.0, 0.0, below
    for _ in range(MOST):
        point = point_at(system, x, mode, stages, length)
        excess = point.live[guard] - level
        if not np.isfinite(excess):
            return False, point
        if excess > 0.0:
            high, above = length, True
        else:
            low = length
        better = abs(excess) <= 0.1 * before
        if better:
            counted += 1
        before = abs(excess)
        rounding = ROUNDING * max(abs(t), length)
        if excess == 0.0 or counted >= corrections or before <= rounding * speed:
            return True, point
        secant = (excess - last) / (length - old) if length != old else 0.0
        known = counted >= 1 and abs(excess * (length - old)) <= NEAR * length * length * secant
        if known:  # a secant is as good as the gradient, which costs more
            speed = secant
        else:
            gradients = system.row_gradients(point.x, system.p)
            if not better and before <= noise_of(gradients, mode, point.x, guard):
                return True, point
            speed = rate_of(gradients, mode, point.slope, guard)
        if before <= rounding * speed:
            return True, point
        if known and before <= TINY * length * speed:
            shift = -excess / speed
            return True, end_at(system, mode, length + shift, point.x + shift * point.slope)
        cubic = old == 0.0 and corrections > 1
        following = length + correction_of(length, below, excess, rise if cubic else np.nan, speed)
        old, last = length, excess
        if low < following < high:
            length = following
        elif above:
            length = 0.5 * (low + high)
        else:
            return False, point
    return True, point


@jitable
def correction_of(length: float, below: float, excess: float, rise: float, speed: float) -> float:
    """How far from its end a segment reaches the level: by a cubic where the rise is known, else by Newton's method."""
    if not speed > 0.0:
        return -np.inf
    return root_of(length, below, excess, rise, speed) if rise > 0.0 else -excess / speed


@jitable
def root_of(length: float, first: float, last: float, rise: float, speed: float) -> float:
    """How far from the end of an interval the root of the cubic is that has these values and slopes at both ends.

    Newton's method on the cubic last + speed d + b d^2 + a d^3, from where its tangent at the end is zero; where that
    is not near the end, the root of the tangent.
    """
    tangent = -last / speed
    if abs(tangent) > 0.25 * length:
        return tangent
    bend = first - last + speed * length
    a = (2.0 * bend + (rise - speed) * length) / length**3
    b = (3.0 * bend + (rise - speed) * length) / length**2
    d = tangent
    for _ in range(3):
        d -= (last + d * (speed + d * (b + d * a))) / (speed + d * (2.0 * b + 3.0 * d * a))
    return d if abs(d - tangent) <= 0.5 * abs(tangent) else tangent


@jitable
def sleeping(point: EndPoint, before: Array) -> EndPoint:
    """The same end, where functions sleep on that slept before and are above zero still; `live` is changed.

    With one row of values no function sleeps: one is as far below zero as the other is above.
    """
    if len(point.values) == 2:
        live = point.live
        live[(before <= NEVER) & (live > 0.0)] = NEVER
    return point


@jitable
def passed(system: Any, mode: Array, before: Array, point: EndPoint, band: float, but: int) -> tuple[int, float, float]:
    """The guard that first rises above its level in a segment, by straight lines, the fraction, and the level; or -1.

    The level is where the band begins, for a guard that is below it, else zero. One that is at zero at the start,
    because its bit changed there, falls before it rises: its fraction is 1.
    """
    first, fraction, reached, after = -1, 2.0, 0.0, point.live
    levels = np.where(before < -band * (1.0 + 1e-9), -band, 0.0)
    risen = np.flatnonzero((after > np.maximum(levels, before)) & (before > NEVER))
    if len(risen) == 0 or (len(risen) == 1 and risen[0] == but):
        return first, fraction, reached
    gradients = system.row_gradients(point.x, system.p)
    for index in risen:
        k = int(index)
        level, noise = levels[k], noise_of(gradients, mode, point.x, k)
        if k == but or after[k] <= max(level, before[k]) + noise:
            continue
        theta = 1.0 if before[k] > level - noise else (level - before[k]) / (after[k] - before[k])
        if theta < fraction:
            first, fraction, reached = k, theta, level
    return first, fraction, reached


@jitable
def top_of(before: float, after: float, rise: float, fall: float) -> tuple[float, float]:
    """Where the cubic with these values and slopes (over the unit interval, rise > 0 > fall) is largest, and how large.

    Its derivative is a s^2 + b s + c, with c = rise, one root of which lies in the interval.
    """
    a = 6.0 * (before - after) + 3.0 * (rise + fall)
    b = 6.0 * (after - before) - 4.0 * rise - 2.0 * fall
    root = np.sqrt(max(b * b - 4.0 * a * rise, 0.0))
    s = -2.0 * rise / (b - root) if b <= 0.0 else (-b - root) / (2.0 * a)
    s = min(max(s, 0.0), 1.0)
    hermite = (1 + 2 * s) * (1 - s) ** 2 * before + s * s * (3 - 2 * s) * after
    return s, hermite + s * (1 - s) ** 2 * rise - s * s * (1 - s) * fall
