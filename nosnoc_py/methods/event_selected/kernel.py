"""The loop over segments and crossings, interpreted or compiled.

At every node the bits are known. A segment ends one step further, at the edge of a band, or on the guard that is
crossed first; then the bits of all guards change that are crossed there.

All of it is in the part of Python that numba compiles, and in one file: the code that numba keeps on disk is made again
when this file changes, not when another one does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.event_selected.segments import (
    NEVER,
    ROUNDING,
    Bracket,
    EndPoint,
    System,
    end_at,
    is_finite,
    live_of,
    located,
    noise_of,
    passed,
    point_at,
    rate_of,
    rates_at,
    rates_of,
    sleeping,
    top_of,
)

Array = np.ndarray

FINISHED, FULL, NOT_LIVE, TOO_MANY, NOT_FINITE = range(5)

# Guards whose crossings are closer than this part of a step, and so many roundings of the time, are crossed at once.
AT_ONCE, ROUNDINGS = 1e-11, 4.0
# With a fixed eps a single step reaches a guard from this many steps away at most.
AHEAD = 20.0
SAFETY = 1.1
# The speed D h f with which a guard has to be crossed at least, in its units per second.
LIVENESS = 1e-8
# Where its speed changes by more than this part on the way to a guard, no step of Euler's is made.
ALIKE = 0.5


class Rules(NamedTuple):
    """Numbers of the options; `eps` is negative for "auto"."""

    step: float
    eps: float
    corrections: int
    euler: bool
    max_events: int


class State(NamedTuple):
    """A node: time, state, bits, f there, guards as in `EndPoint`, and rates (m,) of the live ones.

    Rates are those at the node (`exact`), or the mean ones of the last segment. `crossed` counts the guards crossed so
    far. A function that was above zero already when its bit began to wait for it sleeps, until it is not above zero any
    more: its `live` value is `NEVER`.
    """

    t: float
    x: Array
    mode: Array
    slope: Array
    values: Array
    live: Array
    rates: Array
    exact: bool
    crossed: int


class Buffers(NamedTuple):
    """Where segments and crossings of a chunk go.

    `crossings` has rows (node, guard, which sweep); `report` is of a guard that violates the liveness: its index, D h f
    before and after.
    """

    t: Array
    x: Array
    h: Array
    slopes: Array
    euler: Array
    crossings: Array
    report: Array


def start_at(system: System, x: Array, mode: Array) -> State:
    """The first node."""
    point = end_at(system, mode, 0.0, x)
    rates = rates_at(system, x, mode, point.slope)
    return State(0.0, x, mode, point.slope, point.values, point.live, rates, True, 0)


@jitable
def advance(
    flow: Callable[..., Array],
    rows: Callable[..., Array],
    row_gradients: Callable[..., Array],
    p: Array,
    once: Array,
    scheme: Any,
    rules: Any,
    state: State,
    t_end: float,
    buffers: Any,
    loops: bool,
) -> tuple[State, int, int, int]:
    """Go on until the end, or until the buffers are full: the last node, counts of segments and crossings, and why.

    A copy of the loop of `motion.loop.driven`, because numba cannot call that; limits and callbacks have their turn
    between the calls.
    """
    # here, because numba takes no functions within a tuple
    system = System(flow, rows, row_gradients, p, once, scheme, rules, loops)
    gradients = row_gradients(state.x, p)
    lasting = bool(np.any(once))
    segments, crossings, sweeps = 0, 0, 0
    while True:
        if state.t >= t_end:
            return state, segments, crossings, FINISHED
        if segments == len(buffers.h) or crossings + len(once) > len(buffers.crossings):
            return state, segments, crossings, FULL
        if state.crossed > rules.max_events:
            return state, segments, crossings, TOO_MANY
        guard, ahead, straight = -1, np.inf, False
        if not state.exact and may_cross(rules, state, loops):
            state = with_rates(system, state)
        if state.exact:
            guard, ahead = next_guard(rules, state)
        if not (guard >= 0 and ahead == 0.0):
            stages = buffers.slopes[segments]  # they are written where they stay
            stages[0] = state.slope
            if rules.euler and guard >= 0 and ahead < t_end - state.t:
                straight, point, gradients = line_to(system, state, guard, ahead)
                guard = guard if straight else -1
            if not straight:
                point, guard = segment(system, state, t_end - state.t, stages, guard, ahead)
            if not is_finite(point, loops):
                return state, segments, crossings, NOT_FINITE
            if straight:
                stages[1:] = 0.0
            elif scheme.own < len(stages):
                stages[scheme.own] = point.slope
            old, state = state, behind(state, point, t_end)
            buffers.t[segments], buffers.h[segments], buffers.euler[segments] = state.t, point.length, straight
            buffers.x[segments] = state.x
            segments += 1
            k = fallen(system, old, state) if lasting else -1
            if k >= 0:
                write_report(buffers, k, (state.values[0, k] - old.values[0, k]) / point.length, np.nan)
                return state, segments, crossings, NOT_LIVE
        if guard >= 0:
            if not straight:  # else they are known
                gradients = row_gradients(state.x, p)
            state, count, alive = cross(system, state, guard, gradients, buffers, segments, crossings, sweeps)
            if not alive:
                return state, segments, crossings, NOT_LIVE
            crossings += count
            sweeps += 1


@jitable
def line_to(system: Any, state: State, guard: int, ahead: float) -> tuple[bool, EndPoint, Array]:
    """A step of Euler's to a guard: whether it is good, its end, and gradients there.

    It is not where the guard is much faster or slower at its end (then the step is far too long), and where another
    guard is passed.
    """
    point = sleeping(end_at(system, state.mode, ahead, state.x + ahead * state.slope), state.live)
    gradients = system.row_gradients(point.x, system.p)
    rate = rate_of(gradients, state.mode, point.slope, guard)
    alike = abs(rate - state.rates[guard]) <= ALIKE * state.rates[guard]
    return alike and passed(system, state.mode, state.live, point, 0.0, guard)[0] < 0, point, gradients


@jitable
def behind(state: State, point: EndPoint, t_end: float) -> State:
    """The node at the end of a segment."""
    rates = (point.live - state.live) / point.length
    t = t_end if point.length >= t_end - state.t else state.t + point.length
    return State(t, point.x, state.mode, point.slope, point.values, point.live, rates, False, state.crossed)


@jitable
def write_report(buffers: Any, guard: int, before: float, after: float) -> None:
    """Say which guard is not live."""
    buffers.report[0] = guard
    buffers.report[1] = before
    buffers.report[2] = after


@jitable
def may_cross(rules: Any, state: State, loops: bool) -> bool:
    """Whether a guard may be in its band, so that the rates at the node are worth their price."""
    edge = -2.0 * rules.eps if rules.eps >= 0.0 else np.inf
    if not loops:
        reach = np.maximum(state.live + 2.0 * rules.step * np.abs(state.rates), state.live - edge)
        return bool(reach.max() >= 0.0)
    for k in range(len(state.live)):
        live = state.live[k]
        if live + 2.0 * rules.step * abs(state.rates[k]) >= 0.0 or live >= edge:
            return True
    return False


@jitable
def with_rates(system: Any, state: State) -> State:
    """The node with the rates of its guards there."""
    s, rates = state, rates_at(system, state.x, state.mode, state.slope)
    return State(s.t, s.x, s.mode, s.slope, s.values, s.live, rates, True, s.crossed)


@jitable
def next_guard(rules: Any, state: State) -> tuple[int, float]:
    """The guard in its band that straight lines reach first, and when; or -1."""
    first, ahead, reach = -1, np.inf, SAFETY * rules.step
    edges = -rules.eps * (1.0 + 1e-9) + 0.0 * state.rates if rules.eps >= 0.0 else -reach * state.rates
    for k in np.flatnonzero((state.rates > LIVENESS) & (state.live >= edges)):
        tau = wait_for(rules, state, int(k))
        if tau < ahead:
            first, ahead = int(k), tau
    return first, ahead


@jitable
def wait_for(rules: Any, state: State, guard: int) -> float:
    """When straight lines reach a guard that rises in its band."""
    live, rate = state.live[guard], state.rates[guard]
    return 0.0 if live >= -at_once(rules, state.t) * rate else float(-live / rate)


@jitable
def at_once(rules: Any, t: float) -> float:
    """Times [s] shorter than this are none."""
    return AT_ONCE * rules.step + ROUNDINGS * ROUNDING * abs(t)


@jitable
def segment(
    system: Any, state: State, remaining: float, stages: Array, guard: int, ahead: float
) -> tuple[EndPoint, int]:
    """The next segment, with frozen bits, and the guard that it ends on; or -1."""
    x, mode, live, rules = state.x, state.mode, state.live, system.rules
    step = remaining if remaining < rules.step * (1.0 + 1e-9) else rules.step
    found, band = False, 0.0
    if guard >= 0 and ahead < min(remaining, AHEAD * rules.step):
        bracket = Bracket(0.0, ahead, min(remaining, 1.5 * max(ahead, rules.step)), False)
        below, rise = live[guard], state.rates[guard]
        found, point = located(system, state.t, x, mode, stages, guard, below, rise, 0.0, bracket, rules.corrections)
    if not found:
        guard, band = -1, max(rules.eps, 0.0)
        point = point_at(system, x, mode, stages, step)
    point = sleeping(point, live)
    if not found and not state.exact and point.live.max() <= -band:
        return point, -1
    if not is_finite(point, system.loops):
        return point, -1
    if state.exact:
        top = top_before(system, state, stages, point)
        if top < point.length:
            guard = -1
            point = sleeping(point_at(system, x, mode, stages, top), live)
    return up_to_first(system, state, stages, point, guard, band)


@jitable
def up_to_first(
    system: Any, state: State, stages: Array, point: EndPoint, guard: int, band: float
) -> tuple[EndPoint, int]:
    """The part of a segment, which ends on a guard or on none, up to the first guard or edge of a band in it."""
    x, mode, live, level = state.x, state.mode, state.live, 0.0
    for _ in range(2 * len(live) + 4):
        if point.live.max() <= -band:
            break
        k, fraction, high = passed(system, mode, live, point, band, guard)
        if k < 0:
            break
        guard, level, many = k, high, system.rules.corrections
        many = many if high == 0.0 else max(many, 4)
        bracket = Bracket(0.0, fraction * point.length, point.length, True)
        rise = state.rates[k] if state.exact else np.nan
        _, point = located(system, state.t, x, mode, stages, k, live[k] - level, rise, level, bracket, many)
        point = sleeping(point, live)
    return point, -1 if guard >= 0 and level < 0.0 else guard


@jitable
def top_before(system: Any, state: State, given: Array, point: EndPoint) -> float:
    """Where in a segment a guard that is below zero at both ends is above it, or the length of the segment."""
    x, mode, length, before, after = state.x, state.mode, point.length, state.live, point.live
    rates = state.rates
    if not np.any(doubtful(before, after, length * rates)):
        return length
    gradients = system.row_gradients(point.x, system.p)
    falls = rates_of(gradients, mode, point.slope, system.loops)
    first, stages = length, given.copy()
    for k in range(len(before)):
        if not (doubtful(before[k], after[k], length * rates[k]) and falls[k] < 0.0):
            continue
        noise = noise_of(gradients, mode, point.x, k)
        if before[k] >= -noise:
            continue
        fraction, height = top_of(before[k], after[k], length * rates[k], length * falls[k])
        if height > 0.0 and 0.0 < fraction * length < first:
            trial = point_at(system, x, mode, stages, fraction * length)
            if trial.live[k] > noise:
                first = fraction * length
    return first


@jitable
def doubtful(before: Any, after: Any, rise: Any) -> Any:
    """Whether a guard, or each of many, may have been above zero in between, by its values and its rise at the start.

    A parabola through what is known falls at the end with 2 (after - before) - rise; another one at most so much less.
    """
    return (before < 0.0) & (after < 0.0) & (rise > np.maximum(-0.5 * before, (after - before) / 0.75))


@jitable
def fallen(system: Any, old: State, new: State) -> int:
    """A guard that falls below zero again although its bit cannot be cleared, or -1."""
    low = system.once & (new.mode > 0.5) & (new.values[0] < 0.0) & (new.values[0] < old.values[0])
    found = np.flatnonzero(low)
    if len(found):
        gradients, unset = system.row_gradients(new.x, system.p), np.zeros(len(new.mode))
        for k in found:
            if new.values[0, k] < -noise_of(gradients, unset, new.x, int(k)):
                return int(k)
    return -1


@jitable
def cross(
    system: Any, state: State, guard: int, gradients: Array, buffers: Any, node: int, row: int, sweep: int
) -> tuple[State, int, bool]:
    """Cross a guard and all others that are reached at this node: the node after it, how many, whether all are live."""
    x, mode, rules = state.x, state.mode.copy(), system.rules
    speeds = rates_of(gradients, mode, state.slope, system.loops)
    hit = (speeds > LIVENESS) & (state.live >= -at_once(rules, state.t) * speeds)
    hit[guard] = True
    crossed = np.flatnonzero(hit)
    for k in crossed:
        mode[k] = 1.0 - mode[k]
    slope = system.flow(x, mode, system.p).copy()
    live = live_of(state.values, mode, system.loops)
    if len(state.values) == 2:
        live[(state.live <= NEVER) & (live > 0.0)] = NEVER
    for i, k in enumerate(crossed):
        beyond, turns = rate_of(gradients, state.mode, slope, int(k)), False
        if beyond <= LIVENESS or live[k] > abs(state.live[k]):
            far = abs(state.live[k]) + noise_of(gradients, mode, x, int(k))
            # A bit with hysteresis is cleared elsewhere, so that the flow may turn round here.
            turns = not system.once[k] and live[k] < -far
            if live[k] > far:
                live[k] = NEVER
        if not (speeds[k] > LIVENESS and (beyond > LIVENESS or turns)):
            write_report(buffers, int(k), speeds[k], beyond)
            return state, 0, False
        buffers.crossings[row + i, 0] = node
        buffers.crossings[row + i, 1] = k
        buffers.crossings[row + i, 2] = sweep
    rates = rates_of(gradients, mode, slope, system.loops)
    after = State(state.t, x, mode, slope, state.values, live, rates, True, state.crossed + len(crossed))
    return after, len(crossed), True


def versioned(version: str) -> Callable[..., Any]:
    """`advance`, as another function for every version of its sources."""

    def advance_version(
        flow: Any, rows: Any, row_gradients: Any, p: Any, once: Any, scheme: Any, rules: Any, state: Any,
        t_end: float, buffers: Any, loops: bool,
    ) -> Any:  # fmt: skip
        _ = version
        return advance(flow, rows, row_gradients, p, once, scheme, rules, state, t_end, buffers, loops)

    return advance_version
