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
# Products of value and length so much smaller than the rate: the error of a secant is below rounding.
NEAR = 1e-17


class Scheme(NamedTuple):
    """A tableau; `own` stages belong to the step, a last one after them is the first of the next step.

    `loops` says how sums over stages are taken: loops are faster where they are compiled, and slow where they are not.
    """

    a: Array
    b: Array
    own: int
    loops: bool


class Point(NamedTuple):
    """The right end of a segment: its length, state, slope there with the mode of the segment, values of the guards."""

    length: float
    x: Array
    slope: Array
    values: Array


class System(NamedTuple):
    """What is simulated: functions of `functions.Fields`, parameters (n_p,), and which bits are never cleared (m,)."""

    flow: Callable[..., Array]
    guards: Callable[..., Array]
    gradients: Callable[..., Array]
    p: Array
    once: Array


class Bracket(NamedTuple):
    """Lengths between which a guard is reached; `above` says that it is known to be above its level at `high`."""

    low: float
    guess: float
    high: float
    above: bool


@jitable
def live_of(values: Array, mode: Array) -> Array:
    """Values (m,) of the functions that the bits wait for."""
    return selected(mode, values[1], values[0])


@jitable
def speeds_of(system: Any, x: Array, mode: Array, slope: Array) -> Array:
    """D h f (m,) of the functions that the bits wait for."""
    return along(system.gradients(x, system.p), mode, slope)


@jitable
def along(both: Array, mode: Array, slope: Array) -> Array:
    """Products of the gradients (2, m, n_x) of the functions that the bits wait for with a slope, (m,)."""
    back: Array = np.dot(both[1], slope)
    return selected(mode, back, np.dot(both[0], slope))


@jitable
def selected(mode: Array, back: Array, forth: Array) -> Array:
    """Values of one array where a bit is set, and of another where it is not."""
    chosen: Array = np.where(mode > 0.5, back, forth)
    return chosen


@jitable
def summed(x: Array, length: float, weights: Array, stages: Array, count: int, loops: bool) -> Array:
    """x + length sum_i w_i k_i over the first stages."""
    if not loops:
        return x + length * np.dot(weights[:count], stages[:count])
    total = x.copy()
    for i in range(count):
        factor = length * weights[i]
        for j in range(len(x)):
            total[j] += factor * stages[i, j]
    return total


@jitable
def point_at(
    system: Any,
    x: Array,
    mode: Array,
    stages: Array,
    scheme: Any,
    length: float,
) -> Point:
    """A step of the scheme; `stages[0]` is given, the others are filled in."""
    for i in range(1, scheme.own):
        stages[i] = system.flow(summed(x, length, scheme.a[i], stages, i, scheme.loops), mode, system.p)
    end = summed(x, length, scheme.b, stages, scheme.own, scheme.loops)
    slope = np.empty_like(x)
    slope[:] = system.flow(end, mode, system.p)
    return Point(length, end, slope, system.guards(end, system.p))


@jitable
def located(
    system: Any,
    t: float,
    x: Array,
    mode: Array,
    stages: Array,
    scheme: Any,
    guard: int,
    level: float,
    bracket: Any,
    corrections: int,
    noise: float,
) -> tuple[bool, Point]:
    """The step that ends where a guard rises to its level, by Newton's method, by bisection where that leaves it.

    Corrections that do not reduce the value to a tenth do not count. It is lost where the guard is not known to be
    reached, and Newton's method leaves the bracket.
    """
    low, length, high, above = bracket.low, bracket.guess, bracket.high, bracket.above
    row, counted, before, speed, old, last = int(mode[guard]), -1, np.inf, 0.0, 0.0, 0.0
    for _ in range(MOST):
        point = point_at(system, x, mode, stages, scheme, length)
        excess = point.values[row, guard] - level
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
        if excess == 0.0 or counted >= corrections or (before <= noise and not better):
            return True, point
        if abs(excess) <= ROUNDING * max(abs(t), length) * speed:
            return True, point
        secant = (excess - last) / (length - old) if length != old else 0.0
        if counted >= 1 and abs(excess * (length - old)) <= NEAR * secant:
            speed = secant  # as good as the gradient, which costs more
        else:
            speed = np.dot(system.gradients(point.x, system.p)[row, guard], point.slope)
        old, last = length, excess
        if abs(excess) <= ROUNDING * max(abs(t), length) * speed:
            return True, point
        following = length - excess / speed if speed > 0.0 else -1.0
        if low < following < high:
            length = following
        elif above:
            length = 0.5 * (low + high)
        else:
            return False, point
    return True, point


@jitable
def passed(before: Array, after: Array, levels: Array, noise: float, but: int) -> tuple[int, float]:
    """The guard that first rises above its level in a segment, by straight lines, and the fraction; or -1.

    One that is at zero at the start, because its bit changed there, falls before it rises: its fraction is 1.
    """
    first, fraction = -1, 2.0
    over = after > np.maximum(levels, before) + noise
    for k in np.flatnonzero(over):
        theta = 1.0 if before[k] > levels[k] - noise else (levels[k] - before[k]) / (after[k] - before[k])
        if k != but and theta < fraction:
            first, fraction = int(k), theta
    return first, fraction


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
