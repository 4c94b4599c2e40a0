"""Loop over segments and crossings of an event-selected system, interpreted or compiled by numba.

Anderson and Revzen, "Rapid integrator for a class of multi-contact systems" (called ESS here). Their algorithm with
guards h_k, mode bits b_k and a band h >= -eps:

1. With frozen bits take one step. It ends after `step`, at the edge of a band, or on the guard that is crossed first.
   The paper's projection is an Euler step of length -h / (D h f), of order eps^2; the default here is a Runge-Kutta
   step whose length is corrected by Newton's method, which keeps the order of the scheme.
2. Flip the bits of all guards crossed at this node, evaluate the flow in the new mode, continue.

Invariants: bits never change within a step; every crossed guard has D h f > LIVENESS before and after the crossing
(liveness, the condition of an event-selected system), else the loop stops with a report; the bits of crossed guards
come from the mask of crossed guards, not from the sign of h after the projection, which is rounding.

All code is in numba's subset of Python and in one file with `segments`: the compiled loop on disk is renewed when these
files change, not when others do.
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
    cubic_maximum,
    end_at,
    first_passed,
    is_finite,
    keep_asleep,
    live_of,
    locate_crossing,
    noise_of,
    point_at,
    rate_of,
    rates_at,
    rates_of,
)

Array = np.ndarray

# Reasons to leave the loop; FULL means that the buffers have to be emptied.
FINISHED, FULL, NOT_LIVE, TOO_MANY, NOT_FINITE = range(5)

# Crossings closer than this fraction of a step plus this many units of rounding of the time are simultaneous.
AT_ONCE, ROUNDINGS = 1e-11, 4.0
# With a fixed eps, a step to a guard may be at most this many times as long as the others.
MAX_REACH = 20.0
SAFETY = 1.1  # widens the automatic band, so that a guard reached in the next step is not missed
# Least speed D h f of a crossing, in units of the guard per second.
LIVENESS = 1e-8
# No Euler step to a guard whose speed changes by more than this fraction on the way: the step would be far off.
EULER_RATE_CHANGE = 0.5


class Rules(NamedTuple):
    """Numeric options of `EventSelected`; `eps` is negative for "auto"."""

    step: float
    eps: float
    corrections: int
    euler: bool
    max_events: int


class State(NamedTuple):
    """Node: time, state, bits, slope f, guards as in `EndPoint`, and rates (m,) of the live guards.

    Rates are those at the node if `exact`, else means over the last segment (cheaper, as no gradient is needed).
    `crossed` counts all crossings so far. A function that is above zero when its bit starts to wait for it sleeps until
    it is no longer above zero: its `live` value is `NEVER`.
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
    """Output arrays of segments and crossings of a chunk.

    `crossings` has rows (node, guard, sweep), where a sweep is one set of simultaneous crossings. `report` describes a
    guard that violates liveness: its index, D h f before and after the crossing.
    """

    t: Array
    x: Array
    h: Array
    slopes: Array
    euler: Array
    crossings: Array
    report: Array


def start_at(system: System, x: Array, mode: Array) -> State:
    """Return the first node."""
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
    """Advance to the end or until the buffers are full; return the last node, counts of segments and crossings, a code.

    A copy of the loop of `motion.loop.driven`, which numba cannot call; limits and callbacks act between the calls.
    """
    # Built here, because numba accepts no functions inside a tuple argument.
    system = System(flow, rows, row_gradients, p, once, scheme, rules, loops)
    gradients = row_gradients(state.x, p)
    has_permanent_bits = bool(np.any(once))
    segments, crossings, sweeps = 0, 0, 0
    while True:
        if state.t >= t_end:
            return state, segments, crossings, FINISHED
        # Tested before the step: a sweep may cross all guards at once.
        if segments == len(buffers.h) or crossings + len(once) > len(buffers.crossings):
            return state, segments, crossings, FULL
        if state.crossed > rules.max_events:
            return state, segments, crossings, TOO_MANY
        guard, ahead, is_euler = -1, np.inf, False
        # Gradients are expensive, so exact rates are computed only if a guard may be near.
        if not state.exact and may_cross(rules, state, loops):
            state = with_rates(system, state)
        if state.exact:
            guard, ahead = next_guard(rules, state)
        # A guard on its surface is crossed at this node without a step.
        if not (guard >= 0 and ahead == 0.0):
            stages = buffers.slopes[segments]  # written in place, to save a copy per segment
            stages[0] = state.slope
            if rules.euler and guard >= 0 and ahead < t_end - state.t:
                is_euler, point, gradients = line_to(system, state, guard, ahead)
                guard = guard if is_euler else -1
            if not is_euler:
                point, guard = segment(system, state, t_end - state.t, stages, guard, ahead)
            if not is_finite(point, loops):
                return state, segments, crossings, NOT_FINITE
            if is_euler:
                stages[1:] = 0.0
            elif scheme.own < len(stages):
                stages[scheme.own] = point.slope
            old, state = state, node_after(state, point, t_end)
            buffers.t[segments], buffers.h[segments], buffers.euler[segments] = state.t, point.length, is_euler
            buffers.x[segments] = state.x
            segments += 1
            # A permanent bit whose guard falls below zero again violates the assumptions of an event-selected system.
            fallen_guard = fallen_back(system, old, state) if has_permanent_bits else -1
            if fallen_guard >= 0:
                write_report(
                    buffers,
                    fallen_guard,
                    (state.values[0, fallen_guard] - old.values[0, fallen_guard]) / point.length,
                    np.nan,
                )
                return state, segments, crossings, NOT_LIVE
        if guard >= 0:
            if not is_euler:  # an Euler step has evaluated them
                gradients = row_gradients(state.x, p)
            state, count, alive = cross(system, state, guard, gradients, buffers, segments, crossings, sweeps)
            if not alive:
                return state, segments, crossings, NOT_LIVE
            crossings += count
            sweeps += 1


@jitable
def line_to(system: Any, state: State, guard: int, ahead: float) -> tuple[bool, EndPoint, Array]:
    """Take an Euler step to a guard (ESS projection); return whether it is accepted, its end, and gradients there.

    It is rejected if the speed of the guard changes much on the way (the step is then far off) or another guard is
    passed.
    """
    point = keep_asleep(end_at(system, state.mode, ahead, state.x + ahead * state.slope), state.live)
    gradients = system.row_gradients(point.x, system.p)
    rate = rate_of(gradients, state.mode, point.slope, guard)
    similar = abs(rate - state.rates[guard]) <= EULER_RATE_CHANGE * state.rates[guard]
    return similar and first_passed(system, state.mode, state.live, point, 0.0, guard)[0] < 0, point, gradients


@jitable
def node_after(state: State, point: EndPoint, t_end: float) -> State:
    """Return the node at the end of a segment."""
    # Mean rates over the segment: free of cost, and good enough to decide if a guard may be near.
    rates = (point.live - state.live) / point.length
    # A sum would miss the end by rounding, and leave a last segment of that length.
    t = t_end if point.length >= t_end - state.t else state.t + point.length
    return State(t, point.x, state.mode, point.slope, point.values, point.live, rates, False, state.crossed)


@jitable
def write_report(buffers: Any, guard: int, before: float, after: float) -> None:
    """Report the guard that violates liveness."""
    buffers.report[0] = guard
    buffers.report[1] = before
    buffers.report[2] = after


@jitable
def may_cross(rules: Any, state: State, loops: bool) -> bool:
    """True if a guard may be in its band, so that exact rates at the node are needed."""
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
    """Return the node with exact rates of its guards."""
    s, rates = state, rates_at(system, state.x, state.mode, state.slope)
    return State(s.t, s.x, s.mode, s.slope, s.values, s.live, rates, True, s.crossed)


@jitable
def next_guard(rules: Any, state: State) -> tuple[int, float]:
    """Return the guard in its band that is reached first by linear extrapolation, and the time to it; or -1."""
    first, ahead, reach = -1, np.inf, SAFETY * rules.step
    band_edges = -rules.eps * (1.0 + 1e-9) + 0.0 * state.rates if rules.eps >= 0.0 else -reach * state.rates
    for k in np.flatnonzero((state.rates > LIVENESS) & (state.live >= band_edges)):
        tau = time_to_guard(rules, state, int(k))
        if tau < ahead:
            first, ahead = int(k), tau
    return first, ahead


@jitable
def time_to_guard(rules: Any, state: State, guard: int) -> float:
    """Return the time [s] to a rising guard by linear extrapolation."""
    live, rate = state.live[guard], state.rates[guard]
    return 0.0 if live >= -simultaneity_limit(rules, state.t) * rate else float(-live / rate)


@jitable
def simultaneity_limit(rules: Any, t: float) -> float:
    """Return the time difference [s] below which crossings are simultaneous."""
    return AT_ONCE * rules.step + ROUNDINGS * ROUNDING * abs(t)


@jitable
def segment(
    system: Any, state: State, remaining: float, stages: Array, guard: int, ahead: float
) -> tuple[EndPoint, int]:
    """Integrate the next segment with frozen bits; return its end and the guard that it ends on, or -1."""
    x, mode, live, rules = state.x, state.mode, state.live, system.rules
    # 1e-9 keeps rounding from adding a tiny step at the end.
    step = remaining if remaining < rules.step * (1.0 + 1e-9) else rules.step
    is_located, band = False, 0.0
    if guard >= 0 and ahead < min(remaining, MAX_REACH * rules.step):
        bracket = Bracket(0.0, ahead, min(remaining, 1.5 * max(ahead, rules.step)), False)
        below, rise = live[guard], state.rates[guard]
        is_located, point = locate_crossing(
            system, state.t, x, mode, stages, guard, below, rise, 0.0, bracket, rules.corrections
        )
    if not is_located:
        guard, band = -1, max(rules.eps, 0.0)
        point = point_at(system, x, mode, stages, step)
    point = keep_asleep(point, live)
    # Fast path: no guard was near at the start and none at the end.
    if not is_located and not state.exact and point.live.max() <= -band:
        return point, -1
    # Before the comparisons below, in which NaN would pass as "not reached".
    if not is_finite(point, system.loops):
        return point, -1
    if state.exact:
        top = hidden_maximum(system, state, stages, point)
        if top < point.length:
            guard = -1
            point = keep_asleep(point_at(system, x, mode, stages, top), live)
    return up_to_first(system, state, stages, point, guard, band)


@jitable
def up_to_first(
    system: Any, state: State, stages: Array, point: EndPoint, guard: int, band: float
) -> tuple[EndPoint, int]:
    """Shorten a segment to the first guard or edge of a band inside of it."""
    x, mode, live, level = state.x, state.mode, state.live, 0.0
    # Every guard may shorten the segment at its band and at zero; the limit only guards against cycling.
    for _ in range(2 * len(live) + 4):
        if point.live.max() <= -band:
            break
        k, fraction, high = first_passed(system, mode, live, point, band, guard)
        if k < 0:
            break
        guard, level, many = k, high, system.rules.corrections
        # An edge of a band is no crossing: it is located well even if the user allows few corrections for guards.
        many = many if high == 0.0 else max(many, 4)
        bracket = Bracket(0.0, fraction * point.length, point.length, True)
        rise = state.rates[k] if state.exact else np.nan
        _, point = locate_crossing(system, state.t, x, mode, stages, k, live[k] - level, rise, level, bracket, many)
        point = keep_asleep(point, live)
    return point, -1 if guard >= 0 and level < 0.0 else guard


@jitable
def hidden_maximum(system: Any, state: State, slopes: Array, point: EndPoint) -> float:
    """Return a time at which a guard, negative at both ends of a segment, is positive, or the segment length."""
    x, mode, length, before, after = state.x, state.mode, point.length, state.live, point.live
    rates = state.rates
    if not np.any(may_rise_above_zero(before, after, length * rates)):
        return length
    gradients = system.row_gradients(point.x, system.p)
    end_rates = rates_of(gradients, mode, point.slope, system.loops)
    first, stages = length, slopes.copy()
    for k in range(len(before)):
        if not (may_rise_above_zero(before[k], after[k], length * rates[k]) and end_rates[k] < 0.0):
            continue
        noise = noise_of(gradients, mode, point.x, k)
        if before[k] >= -noise:
            continue
        fraction, height = cubic_maximum(before[k], after[k], length * rates[k], length * end_rates[k])
        if height > 0.0 and 0.0 < fraction * length < first:
            trial = point_at(system, x, mode, stages, fraction * length)
            if trial.live[k] > noise:
                first = fraction * length
    return first


@jitable
def may_rise_above_zero(before: Any, after: Any, rise: Any) -> Any:
    """True if a guard, negative at both ends, may be positive in between, by its values and its rise at the start.

    A cheap necessary condition: the parabola through these data ends with slope 2 (after - before) - rise, so a maximum
    inside the segment needs a rise that is large compared with both values.
    """
    return (before < 0.0) & (after < 0.0) & (rise > np.maximum(-0.5 * before, (after - before) / 0.75))


@jitable
def fallen_back(system: Any, old: State, new: State) -> int:
    """Return a guard that falls below zero again although its bit cannot be cleared, or -1."""
    below = system.once & (new.mode > 0.5) & (new.values[0] < 0.0) & (new.values[0] < old.values[0])
    candidates = np.flatnonzero(below)
    if len(candidates):
        gradients, unset = system.row_gradients(new.x, system.p), np.zeros(len(new.mode))
        for k in candidates:
            if new.values[0, k] < -noise_of(gradients, unset, new.x, int(k)):
                return int(k)
    return -1


@jitable
def cross(
    system: Any, state: State, guard: int, gradients: Array, buffers: Any, node: int, row: int, sweep: int
) -> tuple[State, int, bool]:
    """Cross a guard and all others reached at this node; return the next node, their number, True if all are live."""
    x, mode, rules = state.x, state.mode.copy(), system.rules
    speeds = rates_of(gradients, mode, state.slope, system.loops)
    is_crossed = (speeds > LIVENESS) & (state.live >= -simultaneity_limit(rules, state.t) * speeds)
    is_crossed[guard] = True
    # All guards that are reached within rounding change their bits together; the order does not matter here.
    crossed = np.flatnonzero(is_crossed)
    for k in crossed:
        mode[k] = 1.0 - mode[k]
    # A copy, because a user's flow may return the same array every time.
    slope = system.flow(x, mode, system.p).copy()
    live = live_of(state.values, mode, system.loops)
    if len(state.values) == 2:
        # Guards that slept before the crossing sleep on while they are above zero.
        live[(state.live <= NEVER) & (live > 0.0)] = NEVER
    for i, k in enumerate(crossed):
        speed_after, may_turn = rate_of(gradients, state.mode, slope, int(k)), False
        if speed_after <= LIVENESS or live[k] > abs(state.live[k]):
            far = abs(state.live[k]) + noise_of(gradients, mode, x, int(k))
            # A bit with hysteresis is cleared on another surface, so the flow may turn round on this one.
            may_turn = not system.once[k] and live[k] < -far
            if live[k] > far:
                live[k] = NEVER
        if not (speeds[k] > LIVENESS and (speed_after > LIVENESS or may_turn)):
            write_report(buffers, int(k), speeds[k], speed_after)
            return state, 0, False
        buffers.crossings[row + i, 0] = node
        buffers.crossings[row + i, 1] = k
        buffers.crossings[row + i, 2] = sweep
    rates = rates_of(gradients, mode, slope, system.loops)
    after = State(state.t, x, mode, slope, state.values, live, rates, True, state.crossed + len(crossed))
    return after, len(crossed), True


def versioned(version: str) -> Callable[..., Any]:
    """Return `advance` wrapped for one version of its sources, so that numba's cache on disk depends on it."""

    def advance_version(
        flow: Any, rows: Any, row_gradients: Any, p: Any, once: Any, scheme: Any, rules: Any, state: Any,
        t_end: float, buffers: Any, loops: bool,
    ) -> Any:  # fmt: skip
        _ = version
        return advance(flow, rows, row_gradients, p, once, scheme, rules, state, t_end, buffers, loops)

    return advance_version
