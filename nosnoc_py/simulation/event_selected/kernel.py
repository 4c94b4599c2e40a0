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
from nosnoc_py.simulation.event_selected.segments import (
    Bracket,
    Point,
    System,
    along,
    live_of,
    located,
    passed,
    point_at,
    speeds_of,
    top_of,
)

Array = np.ndarray

FINISHED, FULL, NOT_LIVE, TOO_MANY, NOT_FINITE = range(5)

# Guards whose crossings are closer than this [s], relative to times above one second, are crossed at once.
AT_ONCE = 1e-13
# Values of guards below this, relative to states above one, are zero.
NOISE = 1e-14
# A guard that can be crossed only once may be so far below zero afterwards; less is rounding.
FALLEN = 1e-10
# With a fixed eps a single step reaches a guard from this many steps away at most.
AHEAD = 20.0
SAFETY = 1.1
# Where its speed changes by more than this part on the way to a guard, no step of Euler's is made.
ALIKE = 0.5


class Rules(NamedTuple):
    """Numbers of the options; `eps` is negative for "auto"."""

    step: float
    eps: float
    corrections: int
    liveness: float
    euler: bool
    max_events: int


class State(NamedTuple):
    """A node: time, state, bits, f there, values of the guards (2, m), and their rates (m,), exact or of the last step.

    `crossed` counts the guards crossed so far.
    """

    t: float
    x: Array
    mode: Array
    slope: Array
    values: Array
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


@jitable
def start_at(
    flow: Callable[..., Array],
    guards: Callable[..., Array],
    gradients: Callable[..., Array],
    p: Array,
    once: Array,
    x: Array,
    mode: Array,
) -> State:
    """The first node."""
    system = System(flow, guards, gradients, p, once)
    slope = np.empty_like(x)
    slope[:] = flow(x, mode, p)
    return State(0.0, x, mode, slope, guards(x, p), speeds_of(system, x, mode, slope), True, 0)


@jitable
def advance(
    flow: Callable[..., Array],
    guards: Callable[..., Array],
    gradients: Callable[..., Array],
    p: Array,
    once: Array,
    scheme: Any,
    rules: Any,
    state: State,
    t_end: float,
    buffers: Any,
) -> tuple[State, int, int, int]:
    """Go on until the end, or until the buffers are full: the last node, counts of segments and crossings, and why."""
    system = System(flow, guards, gradients, p, once)  # here, because numba takes no functions within a tuple
    stages = np.zeros((len(scheme.b), len(state.x)))
    segments, rows, sweeps = 0, 0, 0
    while True:
        if state.t >= t_end:
            return state, segments, rows, FINISHED
        if segments == len(buffers.h) or rows + len(once) > len(buffers.crossings):
            return state, segments, rows, FULL
        if state.crossed > rules.max_events:
            return state, segments, rows, TOO_MANY
        state = with_rates(system, rules, state)
        guard, ahead = next_guard(rules, state)
        if not (guard >= 0 and ahead == 0.0):
            stages[0] = state.slope
            straight = False
            if rules.euler and guard >= 0 and ahead < t_end - state.t:
                straight, point = line_to(system, state, guard, ahead)
                guard = guard if straight else -1
            if not straight:
                point, guard = segment(system, scheme, rules, state, t_end - state.t, stages, guard, ahead)
            if not np.isfinite(np.sum(point.x) + np.sum(point.slope) + np.sum(point.values)):
                return state, segments, rows, NOT_FINITE
            if straight:
                stages[1:] = 0.0
            elif scheme.own < len(stages):
                stages[scheme.own] = point.slope
            old, state = state, behind(state, point, t_end)
            keep(buffers, segments, state, point.length, stages, straight)
            segments += 1
            k = fallen(once, old, state)
            if k >= 0:
                write_report(buffers, k, (state.values[0, k] - old.values[0, k]) / point.length, np.nan)
                return state, segments, rows, NOT_LIVE
        if guard >= 0:
            state, count, alive = cross(system, rules, state, guard, buffers, segments, rows, sweeps)
            if not alive:
                return state, segments, rows, NOT_LIVE
            rows += count
            sweeps += 1


@jitable
def line_to(
    system: Any,
    state: State,
    guard: int,
    ahead: float,
) -> tuple[bool, Point]:
    """A step of Euler's to a guard, and whether the guard is as fast at its end, or the step far too long."""
    x = state.x + ahead * state.slope
    slope = np.empty_like(x)
    slope[:] = system.flow(x, state.mode, system.p)
    speed = speeds_of(system, x, state.mode, slope)[guard]
    alike = abs(speed - state.rates[guard]) <= ALIKE * state.rates[guard]
    return alike, Point(ahead, x, slope, system.guards(x, system.p))


@jitable
def behind(state: State, point: Point, t_end: float) -> State:
    """The node at the end of a segment."""
    rates = (live_of(point.values, state.mode) - live_of(state.values, state.mode)) / point.length
    t = t_end if point.length >= t_end - state.t else state.t + point.length
    return State(t, point.x, state.mode, point.slope, point.values, rates, False, state.crossed)


@jitable
def keep(buffers: Any, segment: int, state: State, length: float, stages: Array, straight: bool) -> None:
    """Write a segment and the node at its end."""
    buffers.t[segment] = state.t
    buffers.x[segment] = state.x
    buffers.h[segment] = length
    buffers.slopes[segment] = stages
    buffers.euler[segment] = straight


@jitable
def write_report(buffers: Any, guard: int, before: float, after: float) -> None:
    """Say which guard is not live."""
    buffers.report[0] = guard
    buffers.report[1] = before
    buffers.report[2] = after


@jitable
def with_rates(system: Any, rules: Any, state: State) -> State:
    """The node with exact rates of its guards where one of them may be in its band."""
    if state.exact:
        return state
    live = live_of(state.values, state.mode)
    reach = np.max(live + 2.0 * rules.step * np.abs(state.rates))
    if reach < 0.0 and (rules.eps < 0.0 or np.max(live) < -2.0 * rules.eps):
        return state
    rates = speeds_of(system, state.x, state.mode, state.slope)
    return State(state.t, state.x, state.mode, state.slope, state.values, rates, True, state.crossed)


@jitable
def edges_of(rules: Any, state: State) -> Array:
    """Values (m,) of the guards where their bands begin."""
    if rules.eps >= 0.0:
        return np.full(len(state.rates), -rules.eps * (1.0 + 1e-9))
    return -SAFETY * rules.step * np.abs(state.rates)


@jitable
def next_guard(rules: Any, state: State) -> tuple[int, float]:
    """The guard in its band that straight lines reach first, and when; or -1."""
    first, ahead = -1, np.inf
    if not state.exact:
        return first, ahead
    live, rates = live_of(state.values, state.mode), state.rates
    for k in np.flatnonzero((rates > rules.liveness) & (live >= edges_of(rules, state))):
        tau = max(-live[k], 0.0) / rates[k]
        if live[k] >= -AT_ONCE * max(1.0, abs(state.t)) * rates[k]:
            tau = 0.0
        if tau < ahead:
            first, ahead = int(k), tau
    return first, ahead


@jitable
def segment(
    system: Any,
    scheme: Any,
    rules: Any,
    state: State,
    remaining: float,
    stages: Array,
    guard: int,
    ahead: float,
) -> tuple[Point, int]:
    """The next segment, with frozen bits, and the guard that it ends on; or -1."""
    t, x, mode = state.t, state.x, state.mode
    before, noise = live_of(state.values, mode), NOISE * max(1.0, np.max(np.abs(x)))
    levels = np.zeros_like(before)
    step = remaining if remaining < rules.step * (1.0 + 1e-9) else rules.step
    found = False
    if guard >= 0 and ahead < min(remaining, AHEAD * rules.step):
        bracket = Bracket(0.0, ahead, min(remaining, 1.5 * max(ahead, rules.step)), False)
        found, point = located(system, t, x, mode, stages, scheme, guard, 0.0, bracket, rules.corrections, noise)
    if not found:
        guard = -1
        point = point_at(system, x, mode, stages, scheme, step)
        if rules.eps >= 0.0:
            levels = np.where(before < -rules.eps * (1.0 + 1e-9), -rules.eps, 0.0)
    if not np.isfinite(np.sum(point.values)):
        return point, -1
    if state.exact:
        top = top_before(system, scheme, state, stages, point, noise)
        if top < point.length:
            guard = -1
            point = point_at(system, x, mode, stages, scheme, top)
    for _ in range(2 * len(before) + 4):
        k, fraction = passed(before, live_of(point.values, mode), levels, noise, guard)
        if k < 0:
            break
        guard, many = k, rules.corrections if levels[k] == 0.0 else max(rules.corrections, 4)
        bracket = Bracket(0.0, fraction * point.length, point.length, True)
        found, point = located(system, t, x, mode, stages, scheme, k, levels[k], bracket, many, noise)
    return point, -1 if guard >= 0 and levels[guard] < 0.0 else guard


@jitable
def top_before(
    system: Any,
    scheme: Any,
    state: State,
    given: Array,
    point: Point,
    noise: float,
) -> float:
    """Where in a segment a guard that is below zero at both ends is above it, or the length of the segment."""
    x, mode, length, rises = state.x, state.mode, point.length, state.rates
    before, after = live_of(state.values, mode), live_of(point.values, mode)
    # A parabola through what is known falls at the end with 2 (after - before) - rise; another one at most so much less
    bent = 2.0 * (after - before) < 1.5 * length * rises
    doubtful = (before < -noise) & (after < 0.0) & (rises > 0.0) & (before + 2.0 * length * rises > 0.0) & bent
    if not np.any(doubtful):
        return length
    falls = speeds_of(system, point.x, mode, point.slope)
    first, stages = length, given.copy()
    for k in np.flatnonzero(doubtful & (falls < 0.0)):
        fraction, height = top_of(before[k], after[k], length * rises[k], length * falls[k])
        if height > 0.0 and 0.0 < fraction * length < first:
            trial = point_at(system, x, mode, stages, scheme, fraction * length)
            if trial.values[int(mode[k]), k] > noise:
                first = fraction * length
    return first


@jitable
def fallen(once: Array, old: State, new: State) -> int:
    """A guard that falls below zero again although its bit cannot be cleared, or -1."""
    low = once & (new.mode > 0.5) & (new.values[0] < -FALLEN) & (new.values[0] < old.values[0])
    found = np.flatnonzero(low)
    return found[0] if len(found) else -1


@jitable
def cross(
    system: Any,
    rules: Any,
    state: State,
    guard: int,
    buffers: Any,
    node: int,
    row: int,
    sweep: int,
) -> tuple[State, int, bool]:
    """Cross a guard and all others that are reached at this node: the node after it, how many, whether all are live."""
    x, mode = state.x, state.mode.copy()
    both = system.gradients(x, system.p)
    speeds = along(both, mode, state.slope)
    at_once = AT_ONCE * max(1.0, abs(state.t)) * speeds
    hit = (speeds > rules.liveness) & (live_of(state.values, mode) >= -at_once)
    hit[guard] = True
    crossed = np.flatnonzero(hit)
    mode[crossed] = 1.0 - mode[crossed]
    slope = np.empty_like(x)
    slope[:] = system.flow(x, mode, system.p)
    beyond_speeds = along(both, state.mode, slope)
    before, after = live_of(state.values, state.mode), live_of(state.values, mode)
    # A bit with hysteresis is cleared elsewhere, so that the flow may turn round here.
    turns = ~system.once & (after < -np.abs(before) - FALLEN)
    for i, k in enumerate(crossed):
        if not (speeds[k] > rules.liveness and (beyond_speeds[k] > rules.liveness or turns[k])):
            write_report(buffers, int(k), speeds[k], beyond_speeds[k])
            return state, 0, False
        buffers.crossings[row + i, 0] = node
        buffers.crossings[row + i, 1] = k
        buffers.crossings[row + i, 2] = sweep
    rates = along(both, mode, slope)
    beyond = State(state.t, x, mode, slope, state.values, rates, True, state.crossed + len(crossed))
    return beyond, len(crossed), True


def versioned(version: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`start_at` and `advance`, as other functions for every version of their sources."""

    def start_version(flow: Any, guards: Any, gradients: Any, p: Array, once: Array, x: Array, mode: Array) -> Any:
        _ = version
        return start_at(flow, guards, gradients, p, once, x, mode)

    def advance_version(
        flow: Any,
        guards: Any,
        gradients: Any,
        p: Array,
        once: Array,
        scheme: Any,
        rules: Any,
        state: Any,
        t_end: float,
        buffers: Any,
    ) -> Any:
        _ = version
        return advance(flow, guards, gradients, p, once, scheme, rules, state, t_end, buffers)

    return start_version, advance_version
