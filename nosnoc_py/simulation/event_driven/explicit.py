"""Steps of DOP853 with the coefficients, the control of the step and the dense output of SciPy.

References
----------
Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I (1993), Section II.5: DOP853 and its dense output.
Hairer and Wanner, Solving Ordinary Differential Equations II (1996), Section IV.2: detection of stiffness.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.motion.crossing import NODES
from nosnoc_py.simulation.event_driven.dop853 import ALL_STAGES, FIFTH, POWERS, STAGES, THIRD, A, D
from nosnoc_py.simulation.event_driven.steps import LOST, Array, StepPlace, StepRule, stages

# Two stages at the end of a step: their difference in rates and states estimates the largest |lambda|.
APART = A[STAGES] - A[STAGES - 1]
# Limits of the change of the step size and its safety factor, as in SciPy.
MIN_FACTOR, MAX_FACTOR, SAFETY, EXPONENT = 0.2, 10.0, 0.9, -1.0 / 8.0
# Hairer's test: DOP853 is limited by stability if h |lambda| exceeds this in some steps in a row.
STABILITY_LIMIT = 6.1


def weights_of(share: Any) -> Array:
    """Return the weights (7, ...) of the dense output at shares of a step: s, s (1 - s), s^2 (1 - s), ..."""
    return np.asarray(np.array([share, 1.0 - np.asarray(share)] * 4)[:POWERS].cumprod(axis=0))


WEIGHTS = np.ascontiguousarray(weights_of(NODES).T)


@jitable
def error_of(K: Array, x: Array, y: Array, h: float, rtol: float, atol: float) -> float:
    """Return Hairer's combination of two error estimates, h |e5|^2 / sqrt((|e5|^2 + 0.01 |e3|^2) n), as in SciPy."""
    scale = atol + np.maximum(np.abs(x), np.abs(y)) * rtol
    fifth = np.dot(FIFTH, K[: STAGES + 1]) / scale
    third = np.dot(THIRD, K[: STAGES + 1]) / scale
    a, b = np.dot(fifth, fifth), np.dot(third, third)
    least = a + 0.01 * b
    return h * a / math.sqrt(least * x.size) if least != 0.0 else 0.0


@jitable
def bend(place: StepPlace, y: Array, h: float) -> None:
    """Set the polynomial of a step to y from its stages, Hairer's CONTD8."""
    K, F = place.K, place.F
    way = y - place.x
    F[0] = way
    F[1] = h * K[0] - way
    F[2] = 2.0 * way - h * (K[STAGES] + K[0])
    F[3:] = h * np.dot(D, K)


@jitable
def is_at_limit(place: StepPlace, h: float) -> bool:
    """Return True if a step is at the stability limit of DOP853, by Hairer's test."""
    apart = np.dot(APART, place.K)
    size = h * math.sqrt(np.dot(apart, apart))
    change = place.K[STAGES] - place.K[STAGES - 1]
    return size > 0.0 and h * math.sqrt(np.dot(change, change)) > STABILITY_LIMIT * size


@jitable
def part(motion: Any, place: StepPlace, h: float) -> None:
    """Take a step of length h whatever its error is; y and F have its end and polynomial."""
    t = place.span[0]
    place.K[0] = place.f
    stages(motion, t, place.x, h, place.K, 1, STAGES + 1, place.y)
    end = place.y.copy()
    stages(motion, t, place.x, h, place.K, STAGES + 1, ALL_STAGES, place.y)
    place.y[:] = end
    bend(place, place.y, h)


@jitable
def step(motion: Any, rule: StepRule, place: StepPlace) -> bool:
    """Find the next step by its error and leave it open: its end in span[2] and y, the next length in span[3]."""
    t, least = place.span[0], 10.0 * abs(np.nextafter(place.span[0], np.inf) - place.span[0])
    size, rejected = min(max(place.span[1], least), rule.max_step), False
    place.K[0] = place.f
    place.counts[LOST] = 0
    while True:
        if size < least:
            return False
        end = min(t + size, rule.end)
        h = end - t
        stages(motion, t, place.x, h, place.K, 1, STAGES + 1, place.y)
        error = error_of(place.K, place.x, place.y, h, rule.rtol, rule.atol)
        if error < 1.0:
            break
        if not math.isfinite(error):
            place.counts[LOST] = 1
        factor = SAFETY * error**EXPONENT
        size, rejected = h * (factor if factor > MIN_FACTOR else MIN_FACTOR), True
    factor = MAX_FACTOR if error == 0.0 else min(MAX_FACTOR, SAFETY * error**EXPONENT)
    # After a rejection the next step is not longer, as in SciPy: the error estimate was just too optimistic.
    place.span[3] = h * (min(1.0, factor) if rejected else factor)
    place.span[2] = end
    before = place.y.copy()
    stages(motion, t, place.x, h, place.K, STAGES + 1, ALL_STAGES, place.y)
    place.y[:] = before
    bend(place, place.y, h)
    return True
