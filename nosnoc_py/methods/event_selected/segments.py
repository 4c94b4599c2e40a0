"""One segment of the motion in a frozen mode, and its length such that it ends on a guard.

The length of a Runge-Kutta step is corrected by Newton's method on h(x(length)) with D h f as derivative, safeguarded
by bisection. Every evaluation costs a whole step, so the first correction uses a cubic through values and slopes at
both ends, later ones the secant as soon as its error is below rounding, and the last one a Taylor step.

All code is in numba's subset of Python. Row b of guard values and gradients belongs to guards with bit b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nosnoc_py.compiled import jitable

Array = np.ndarray

# Maximal number of evaluations per crossing; bisection alone needs about fifty.
MAX_EVALUATIONS = 60
ROUNDING = 2.2e-16  # machine precision
# Value of a function that is never crossed; finite, so that its differences are zero, not NaN.
NEVER = -1e300
# Guard values below this fraction of |D h| |x| count as zero: rounding of the state.
NOISE_OF_GUARDS = 1e-14
# If the product of two corrections is below this fraction of the squared length, the error of a secant is rounding.
SECANT_ERROR = 1e-11
# A last correction below this fraction of the length is made along the slope at the end: another step of the scheme
# would give the same to rounding.
LAST_CORRECTION = 1e-10


class Scheme(NamedTuple):
    """Tableau of a step with `own` stages: the rows of a, and b as the last row, (own + 1, own).

    A further stage (first same as last) is the first one of the next step.
    """

    weights: Array
    own: int


class EndPoint(NamedTuple):
    """Right end of a segment: its length, state, slope in the mode of the segment, and guards.

    `values` (1 or 2, m) are those of all guard functions, `live` (m,) of those that the bits wait for.
    """

    length: float
    x: Array
    slope: Array
    values: Array
    live: Array


class System(NamedTuple):
    """Simulated system: functions of `functions.Fields`, parameters (n_p,), and bits that are never cleared (m,).

    `loops` selects explicit loops for small sums, which are faster compiled and slower interpreted.
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
    """Interval of lengths in which a guard is reached; `above`: it is known to be above its level at `high`."""

    low: float
    guess: float
    high: float
    above: bool


@jitable
def live_of(values: Array, mode: Array, loops: bool) -> Array:
    """Return the values (m,) of the live functions; a single row of values stands for two with opposite signs."""
    if loops:
        live = np.empty(len(mode))
        for k in range(len(mode)):
            if mode[k] < 0.5:
                live[k] = values[0, k]
            else:
                live[k] = -values[0, k] if len(values) == 1 else values[1, k]
        return live
    live_values: Array = (
        values[0] * (1.0 - 2.0 * mode) if len(values) == 1 else np.where(mode > 0.5, values[1], values[0])
    )
    return live_values


@jitable
def rate_of(gradients: Array, mode: Array, slope: Array, guard: int) -> float:
    """Return D h f of one guard."""
    if mode[guard] < 0.5:
        return float(np.dot(gradients[0, guard], slope))
    rate = np.dot(gradients[len(gradients) - 1, guard], slope)
    return float(-rate if len(gradients) == 1 else rate)


@jitable
def noise_of(gradients: Array, mode: Array, x: Array, guard: int) -> float:
    """Return the rounding error of the value of one guard."""
    row = 0 if mode[guard] < 0.5 else len(gradients) - 1
    return float(NOISE_OF_GUARDS * np.dot(np.abs(gradients[row, guard]), np.abs(x)))


@jitable
def rates_of(gradients: Array, mode: Array, slope: Array, loops: bool) -> Array:
    """Return D h f (m,) of the live functions."""
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
    """Return D h f (m,) of the live functions at a state."""
    return rates_of(system.row_gradients(x, system.p), mode, slope, system.loops)


@jitable
def step_by_loops(
    flow: Callable[..., Array], x: Array, mode: Array, p: Array, weights: Array, stages: Array, length: float
) -> Array:
    """Return the end of a step; `stages[0]` is given, the other slopes are filled in.

    A copy of `Tableau.step`, which numba cannot call; `tests/motion/test_compiled_roots.py` compares them.
    """
    own, n_x = len(weights) - 1, len(x)
    # One buffer for all stages: allocation would cost more than the sums.
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
    """Return the end of a step without loops over components, which the interpreter runs faster."""
    own, weights = len(weights) - 1, length * weights
    for i in range(1, own):
        stages[i] = flow(x + np.dot(weights[i, :i], stages[:i]), mode, p)
    return x + np.dot(weights[own], stages[:own])


@jitable
def end_at(system: Any, mode: Array, length: float, x: Array) -> EndPoint:
    """Return the right end of a segment at a state."""
    # A copy, because a user's flow may return the same array every time.
    slope = system.flow(x, mode, system.p).copy()
    values = system.rows(x, system.p)
    return EndPoint(length, x, slope, values, live_of(values, mode, system.loops))


@jitable
def point_at(system: Any, x: Array, mode: Array, stages: Array, length: float) -> EndPoint:
    """Take a step of the scheme; `stages[0]` is given, the others are filled in."""
    if system.loops:
        end = step_by_loops(system.flow, x, mode, system.p, system.scheme.weights, stages, length)
    else:
        end = step_by_arrays(system.flow, x, mode, system.p, system.scheme.weights, stages, length)
    return end_at(system, mode, length, end)


@jitable
def is_finite(point: EndPoint, loops: bool) -> bool:
    """True if everything at the end of a segment is finite."""
    if loops:
        return bool(np.isfinite(np.sum(point.x) + np.sum(point.slope) + np.sum(point.live)))
    # 0 * inf and 0 * NaN are NaN; one dot product is faster than isfinite and all.
    return bool(np.dot(point.x, 0.0 * point.slope) == 0.0 and np.dot(point.live, 0.0 * point.live) == 0.0)


@jitable
def locate_crossing(
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
    """Find the step that ends where a guard rises to its level, by Newton's method safeguarded by bisection.

    At the start the guard has the value `below` (relative to its level) and the rate `rise` (NaN if unknown). With a
    known rate and more than one allowed correction, the first correction goes to the root of a cubic. Corrections that
    do not reduce the value to a tenth are not counted. The search fails if the guard is not known to reach its level
    and Newton's method leaves the bracket.

    A copy of `motion.crossing.root`, which numba cannot call; it also uses the slope, since every value costs a step.
    `tests/motion/test_compiled_roots.py` compares them.
    """
    low, length, high, above = bracket.low, bracket.guess, bracket.high, bracket.above
    count, last_size, speed, last_length, last_excess = -1, np.inf, 0.0, 0.0, below
    for _ in range(MAX_EVALUATIONS):
        point = point_at(system, x, mode, stages, length)
        # Bracket for the bisection that safeguards Newton's method.
        excess = point.live[guard] - level
        if not np.isfinite(excess):
            return False, point
        if excess > 0.0:
            high, above = length, True
        else:
            low = length
        is_reduced = abs(excess) <= 0.1 * last_size
        if is_reduced:
            count += 1
        last_size = abs(excess)
        rounding = ROUNDING * max(abs(t), length)
        if excess == 0.0 or count >= corrections or last_size <= rounding * speed:
            return True, point
        secant = (excess - last_excess) / (length - last_length) if length != last_length else 0.0
        use_secant = count >= 1 and abs(excess * (length - last_length)) <= SECANT_ERROR * length * length * secant
        if use_secant:  # as accurate as the gradient, and cheaper
            speed = secant
        else:
            gradients = system.row_gradients(point.x, system.p)
            if not is_reduced and last_size <= noise_of(gradients, mode, point.x, guard):
                return True, point
            speed = rate_of(gradients, mode, point.slope, guard)
        if last_size <= rounding * speed:
            return True, point
        if use_secant and last_size <= LAST_CORRECTION * length * speed:
            shift = -excess / speed
            return True, end_at(system, mode, length + shift, point.x + shift * point.slope)
        # Once only, from the start of the segment; later the slope at the end is more accurate.
        cubic = last_length == 0.0 and corrections > 1
        next_length = length + correction_of(length, below, excess, rise if cubic else np.nan, speed)
        last_length, last_excess = length, excess
        if low < next_length < high:
            length = next_length
        # Newton left the bracket: bisect if the root is known to be inside, else give up.
        elif above:
            length = 0.5 * (low + high)
        else:
            return False, point
    return True, point


@jitable
def correction_of(length: float, below: float, excess: float, rise: float, speed: float) -> float:
    """Return the correction of a length: to the root of a cubic if the rise is known, else Newton's."""
    # A guard that does not rise at the end: minus infinity leaves the bracket, so that bisection or a failure follows.
    if not speed > 0.0:
        return -np.inf
    return root_of(length, below, excess, rise, speed) if rise > 0.0 else -excess / speed


@jitable
def root_of(length: float, first: float, last: float, rise: float, speed: float) -> float:
    """Return the distance from the end of an interval to the root of the cubic with these values and slopes.

    Newton's method on last + speed d + b d^2 + a d^3, started at the root of the tangent at the end; far from the end
    the root of the tangent itself.
    """
    # Start and fallback: the tangent at the end.
    tangent = -last / speed
    # The cubic interpolates; far outside of its data it is worse than the tangent.
    if abs(tangent) > 0.25 * length:
        return tangent
    difference = first - last + speed * length
    a = (2.0 * difference + (rise - speed) * length) / length**3
    b = (3.0 * difference + (rise - speed) * length) / length**2
    d = tangent
    for _ in range(3):
        d -= (last + d * (speed + d * (b + d * a))) / (speed + d * (2.0 * b + 3.0 * d * a))
    # A root far from that of the tangent belongs to another branch of the cubic.
    return d if abs(d - tangent) <= 0.5 * abs(tangent) else tangent


@jitable
def keep_asleep(point: EndPoint, before: Array) -> EndPoint:
    """Keep functions asleep that slept before and are still above zero; changes `live` in place.

    With a single row no function sleeps, since one is as far below zero as the other is above.
    """
    if len(point.values) == 2:
        live = point.live
        live[(before <= NEVER) & (live > 0.0)] = NEVER
    return point


@jitable
def first_passed(
    system: Any, mode: Array, before: Array, point: EndPoint, band: float, but: int
) -> tuple[int, float, float]:
    """Return the guard that first rises above its level in a segment, the fraction (linear), and the level; or -1.

    The level is the edge of the band for a guard below it, else zero. A guard that is at zero at the start, because its
    bit changed there, falls before it rises, so its fraction is 1. Guard `but` is ignored.
    """
    first, fraction, reached, after = -1, 2.0, 0.0, point.live
    # Below its band a guard waits for the edge, else for zero; 1e-9, because one that stopped at the edge goes on to
    # zero.
    levels = np.where(before < -band * (1.0 + 1e-9), -band, 0.0)
    risen = np.flatnonzero((after > np.maximum(levels, before)) & (before > NEVER))
    # Before the gradients, which cost more than the rest: most segments pass no guard.
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
def cubic_maximum(before: float, after: float, rise: float, fall: float) -> tuple[float, float]:
    """Return place and value of the maximum of the cubic with these end values and slopes (rise > 0 > fall) on [0, 1].

    Its derivative is a s^2 + b s + c with c = rise, and has one root in the interval.
    """
    a = 6.0 * (before - after) + 3.0 * (rise + fall)
    b = 6.0 * (after - before) - 4.0 * rise - 2.0 * fall
    root = np.sqrt(max(b * b - 4.0 * a * rise, 0.0))
    # Both forms of the quadratic formula, to avoid cancellation.
    s = -2.0 * rise / (b - root) if b <= 0.0 else (-b - root) / (2.0 * a)
    s = min(max(s, 0.0), 1.0)
    hermite = (1 + 2 * s) * (1 - s) ** 2 * before + s * s * (3 - 2 * s) * after
    return s, hermite + s * (1 - s) ** 2 * rise - s * s * (1 - s) * fall
