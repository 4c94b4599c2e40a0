"""Crossings that the loop of `loop` locates by itself: one guard with one change of its sign in a step.

The zero is searched on the dense output (`motion.crossing.narrowed`), from that of the polynomial through the samples.
The state there is not taken from the dense output, which is less accurate: the step is repeated so that it ends at the
event, with Newton corrections of its time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.motion.crossing import CROSSES, NODES, NONE, by_polynomial, decided, narrowed
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

# Newton corrections of the time of an event; corrections shorter than this share of the step need no other step.
CORRECTIONS, SHORT = 4, 1e-9


@jitable
def between(place: StepPlace, share: float, y: Array) -> None:
    """Set y to the dense output at a share of the last step."""
    weights = np.ones(POWERS)
    for m in range(POWERS):
        weights[m:] *= 1.0 - share if m % 2 else share
    y[:] = place.x + np.dot(weights, place.F)


@jitable
def locate(motion: Any, rule: StepRule, place: StepPlace, rows: StepRows, k: int, doubtful: Array) -> int:
    """End the open step at the crossing of a guard; RUNNING if none crosses, OPEN if that takes another search."""
    if not rule.locates:
        return OPEN
    t, end, guards = place.span[0], place.span[2], rows.guards[k]
    noise = rounding(rule.noise, rows.forces[k])
    defect = rule.atol + rule.rtol * np.abs(rows.x[k]).max()
    answer, guard, before, after = decided(
        doubtful,
        guards,
        rows.rates[k],
        place.enabled,
        noise,
        rule.distances,
        end - t,
        rule.touching,
        rule.slow,
        defect,
    )
    if answer != CROSSES:
        return RUNNING if answer == NONE else OPEN
    now, time, slope = by_polynomial(guards[:, guard].copy(), rows.t[k], before, after)
    low, high, chord, done = now[0], now[2], slope, False
    one_t, one_x, one_f = np.zeros(1), np.zeros((1, place.x.size)), np.zeros((1, rows.forces.shape[2]))
    one_g, one_r = np.zeros((1, guards.shape[1])), np.zeros((1, rows.rates.shape[2]))
    while not done:
        one_t[0] = time
        between(place, (time - t) / (end - t), one_x[0])
        sample(motion, one_t, one_x, one_g, one_f, one_r)
        place.counts[EVALUATED] += 1
        if not np.isfinite(one_g[0, guard]):
            return OPEN
        now, time, chord, done = narrowed(now, time, one_g[0, guard], chord, 1e-24 * (high - low))
    slow = guard < rule.distances and not abs(one_r[0, guard]) > rule.soft
    if slow or not time > t:
        return OPEN
    place.found[0], place.found[1], place.found[2], place.found[4] = guard, low, high, end
    for _ in range(CORRECTIONS):
        h = time - t
        explicit.part(motion, place, h)
        one_t[0], one_x[0] = time, place.y
        sample(motion, one_t, one_x, one_g, one_f, one_r)
        # Only a decreasing guard can be corrected by Newton's method; otherwise the time of the search is kept.
        correction = -one_g[0, guard] / slope if slope < 0.0 else 0.0
        if not abs(correction) > 2e-16 * max(1.0, abs(time)) or not t < time + correction <= rule.end:
            break
        time += correction
        if abs(correction) <= SHORT * (time - t):
            # An Euler step is accurate enough over so short a time, and the polynomial extends to it.
            rate(motion, time, place.y, one_x[0])
            place.y[:] += correction * one_x[0]
            break
    place.found[3], place.span[2] = time, time
    rows.t[k] = t + (time - t) * NODES
    for m in range(NODES.size):
        between(place, (rows.t[k, m] - t) / h, rows.x[k, m])
    sample(motion, rows.t[k], rows.x[k], rows.guards[k], rows.forces[k], rows.rates[k])
    return LOCATED
