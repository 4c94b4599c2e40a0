"""Crossings that the loop of `loop` locates by itself: one guard with one change of its sign in a step.

The zero is searched on the dense output (`motion.crossing.narrowed`), from that of the polynomial through the samples.
The state there is not taken from the dense output, which is less accurate: the step is repeated so that it ends at the
event, with corrections of its time by chords.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.motion.crossing import COARSE, CROSSES, HALVINGS, NODES, NONE, by_polynomial, decided, doubts, narrowed
from nosnoc_py.simulation.event_driven import explicit
from nosnoc_py.simulation.event_driven.dop853 import POWERS
from nosnoc_py.simulation.event_driven.steps import (
    EVALUATED,
    LOCATED,
    OPEN,
    RUNNING,
    Array,
    StepPlace,
    StepRows,
    StepRule,
    rate,
    rounding,
    sample,
)

# Corrections of the time of an event; corrections shorter than this fraction of the step need no other step, and longer
# ones than that are none: the dense output is better.
CORRECTIONS, SHORT_CORRECTION, LARGEST_CORRECTION = 4, 1e-9, 0.1
# A guard that is larger than this fraction of its size in the step where its sign changes has jumped there.
JUMPED = 1e-3


@jitable
def between(place: StepPlace, share: float, y: Array) -> None:
    """Set y to the dense output at a fraction of the last step."""
    weights = np.ones(POWERS)
    for m in range(POWERS):
        weights[m:] *= 1.0 - share if m % 2 else share
    y[:] = place.x + np.dot(weights, place.F)


@jitable
def has_jumped(value: float, values: Array) -> bool:
    """Return True if a guard with this value at its change of sign has jumped there; `values` (n,) are those around."""
    largest = 0.0
    for other in values:
        if math.isfinite(other):
            largest = max(largest, abs(other))
    return abs(value) > JUMPED * largest


@jitable
def locate(motion: Any, rule: StepRule, place: StepPlace, rows: StepRows, k: int, doubtful: Array) -> int:
    """End the open step at the crossing of a guard; RUNNING if none crosses, OPEN if that takes another search."""
    if not rule.locates:
        return OPEN
    t, end, n_x, noise = place.span[0], place.span[2], place.x.size, rounding(rule.noise, rows.forces[k])
    defect = rule.atol + rule.rtol * np.abs(rows.x[k]).max()
    times, x, guards, forces, rates = rows.t[k], rows.x[k], rows.guards[k], rows.forces[k], rows.rates[k]
    # The piece with this number among those that are so often halved: as in `GuardSearch`, from left to right.
    number, halvings = 0, 0
    while True:
        length = (end - t) * 0.5**halvings
        answer, guard, before, after = decided(
            doubtful,
            guards,
            rates,
            noise,
            rule.distances,
            length,
            rule.touching,
            rule.slow,
            defect,
        )
        if answer == CROSSES:
            break
        if answer == NONE:
            number += 1
            while halvings > 0 and number % 2 == 0:
                number, halvings = number // 2, halvings - 1
            if halvings == 0:
                return RUNNING
        elif answer == COARSE and halvings < HALVINGS:
            number, halvings = 2 * number, halvings + 1
        else:
            return OPEN
        length = (end - t) * 0.5**halvings
        times, x, guards = np.zeros(8), np.zeros((8, n_x)), np.zeros((8, noise.size))
        forces, rates = np.zeros((8, rows.forces.shape[2])), np.zeros((8, rows.rates.shape[2]))
        times[:] = t + length * (number + NODES)
        for m in range(NODES.size):
            between(place, (times[m] - t) / (end - t), x[m])
        sample(motion, times, x, guards, forces, rates)
        place.counts[EVALUATED] += NODES.size
        doubtful = doubts(guards, rates, rule.distances, length, rule.touching)
    now, time, slope = by_polynomial(guards[:, guard].copy(), times, before, after)
    low, high, chord, done = now[0], now[2], slope, False
    one_t, one_x, one_f = np.zeros(1), np.zeros((1, n_x)), np.zeros((1, rows.forces.shape[2]))
    one_g, one_r = np.zeros((1, noise.size)), np.zeros((1, rows.rates.shape[2]))
    while not done:
        one_t[0] = time
        between(place, (time - t) / (end - t), one_x[0])
        sample(motion, one_t, one_x, one_g, one_f, one_r)
        if not np.isfinite(one_g[0, guard]):
            return OPEN
        now, time, chord, done = narrowed(now, time, one_g[0, guard], chord, 1e-24 * (high - low))
    slow = guard < rule.distances and not abs(one_r[0, guard]) > rule.soft
    if slow or not time > t:
        return OPEN
    # Where a guard jumps its slope does not tell the place.
    jumps = has_jumped(one_g[0, guard], guards[:, guard].copy())
    place.found[0], place.found[1], place.found[2], place.found[4] = guard, low, high, end
    last_time, last, dense = time, 0.0, min(slope, 0.0)
    for attempt in range(CORRECTIONS):
        h = time - t
        explicit.part(motion, place, h)
        one_t[0], one_x[0] = time, place.y
        sample(motion, one_t, one_x, one_g, one_f, one_r)
        value = one_g[0, guard]
        # At loose tolerances the slope of the dense output is another one than that of the states at the ends of steps.
        chord = (value - last) / (time - last_time) if time != last_time else dense
        slope = min(max(chord, 2.0 * dense), 0.5 * dense)
        # Only a decreasing guard can be corrected by Newton's method; otherwise the time of the search is kept.
        way = -value / slope if slope < 0.0 else 0.0
        if jumps or not abs(way) > 2e-16 * max(1.0, abs(time)) or not t < time + way <= rule.end:
            break
        # A guard that is zero after a jump has rounding for a slope: no reason to leave the step.
        if abs(way) > LARGEST_CORRECTION * (end - t):
            break
        if abs(way) <= SHORT_CORRECTION * h:
            # An Euler step is accurate enough over so short a time, and the polynomial extends to it.
            time += way
            rate(motion, time, place.y, one_x[0])
            place.y[:] += way * one_x[0]
            break
        if attempt < CORRECTIONS - 1:
            last_time, last, time = time, value, time + way
    place.found[3], place.span[2] = time, time
    rows.t[k] = t + (time - t) * NODES
    for m in range(NODES.size):
        between(place, (rows.t[k, m] - t) / h, rows.x[k, m])
    sample(motion, rows.t[k], rows.x[k], rows.guards[k], rows.forces[k], rows.rates[k])
    return LOCATED
