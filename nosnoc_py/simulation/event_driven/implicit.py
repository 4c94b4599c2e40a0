"""Steps of Radau IIA while a slip in space starts: the only stiff part of the motion is the direction of that slip.

The Jacobian is that of the directions alone, J = U W with two columns for every contact that starts to slip, so that
Newton's systems (z I - J) x = b have the size of the slips and not of the state (Sherman, Morrison and Woodbury).
Stages, Newton's iterations, control of the step and dense output are SciPy's.

References
----------
Hairer and Wanner, Solving Ordinary Differential Equations II (1996), Section IV.8: Radau IIA and its implementation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.motion.crossing import NODES
from nosnoc_py.simulation.event_driven.dop853 import POWERS, STAGES
from nosnoc_py.simulation.event_driven.kernel import eliminate
from nosnoc_py.simulation.event_driven.steps import LOST, Array, StepPlace, StepRule, rate, turning

# Times of the stages, the error of the embedded method, and the dense output (Eqs. 8.17 to 8.20).
_ROOT = 6.0**0.5
C = np.array([(4.0 - _ROOT) / 10.0, (4.0 + _ROOT) / 10.0, 1.0])
E = np.array([-13.0 - 7.0 * _ROOT, -13.0 + 7.0 * _ROOT, -1.0]) / 3.0
P = np.array(
    [
        [13.0 / 3.0 + 7.0 * _ROOT / 3.0, -23.0 / 3.0 - 22.0 * _ROOT / 3.0, 10.0 / 3.0 + 5.0 * _ROOT],
        [13.0 / 3.0 - 7.0 * _ROOT / 3.0, -23.0 / 3.0 + 22.0 * _ROOT / 3.0, 10.0 / 3.0 - 5.0 * _ROOT],
        [1.0 / 3.0, -8.0 / 3.0, 10.0 / 3.0],
    ]
)
# The inverse of A is T L TI, with one real eigenvalue and a complex pair on the diagonal of L.
T = np.array(
    [
        [0.09443876248897524, -0.14125529502095421, 0.03002919410514742],
        [0.25021312296533332, 0.20412935229379994, -0.38294211275726192],
        [1.0, 1.0, 0.0],
    ]
)
TI = np.array(
    [
        [4.17871859155190428, 0.32768282076106237, 0.52337644549944951],
        [-4.17871859155190428, -0.32768282076106237, 0.47662355450055044],
        [0.50287263494578682, -2.57192694985560522, 0.59603920482822492],
    ]
)
_CUBE = 3.0 ** (1.0 / 3.0)
MU, MU_RE = 3.0 + 3.0 ** (2.0 / 3.0) - _CUBE, 3.0 + 0.5 * (_CUBE - 3.0 ** (2.0 / 3.0))
MU_IM = -0.5 * (3.0 ** (5.0 / 6.0) + 3.0 ** (7.0 / 6.0))
NEWTON, MIN_FACTOR, MAX_FACTOR = 6, 0.2, 10.0
# Columns of U: two for every contact that slips in space.
MOST_COLUMNS = 64
EPS = float(np.finfo(float).eps)


def weights_of(share: Any) -> Array:
    """Return the weights (7, ...) of the dense output at shares of a step: s, s^2, s^3, 0, ..."""
    share = np.asarray(share, dtype=float)
    return np.array([share, share**2, share**3, *[0.0 * share] * (POWERS - 3)])


WEIGHTS = np.ascontiguousarray(weights_of(NODES).T)


@jitable
def norm(values: Array, scale: Array) -> float:
    """Return the root of the mean square, in units of a scale."""
    total = 0.0
    for i in range(values.size):
        total += (values[i] / scale[i]) ** 2
    return math.sqrt(total / values.size)


@jitable
def inverse(matrix: Array) -> Array:
    """Return the inverse of a small matrix; NaN if it is singular."""
    n = matrix.shape[0]
    result = np.eye(n)
    if not eliminate(matrix, result, n, n):
        result[:] = np.nan
    return result


@jitable
def predict(h: float, error: float, h_last: float, error_last: float) -> float:
    """Return the factor of the next step by the last two (Gustafsson), see Hairer and Wanner."""
    multiplier = 1.0
    if error_last > 0.0 and h_last > 0.0 and error > 0.0:
        multiplier = h / h_last * (error_last / error) ** 0.25
    return min(1.0, multiplier) * (error**-0.25 if error > 0.0 else np.inf)


@jitable
def solved(z: float, left: Array, right: Array, small: Array, b: Array) -> Array:
    """Return (z I - U W)^-1 b for the inverse `small` of z I - W U."""
    return (b + np.dot(left, np.dot(small, np.dot(right, b)))) / z


@jitable
def solved_pair(
    re: float, im: float, left: Array, right: Array, small: Array, b: Array, c: Array
) -> tuple[Array, Array]:
    """Return real and imaginary part of ((re + i im) I - U W)^-1 (b + i c), by the real inverse (2 k, 2 k)."""
    k = right.shape[0]
    known = np.dot(small, np.concatenate((np.dot(right, b), np.dot(right, c))))
    x, y = b + np.dot(left, known[:k].copy()), c + np.dot(left, known[k:].copy())
    size = re * re + im * im
    return (re * x + im * y) / size, (re * y - im * x) / size


@jitable
def step(motion: Any, rule: StepRule, place: StepPlace) -> bool:
    """Find the next step and leave it open, see `explicit.step`; F is its polynomial, K[STAGES] the rate at its end."""
    t, x, f, n = place.span[0], place.x, place.f, place.x.size
    least = 10.0 * abs(np.nextafter(t, np.inf) - t)
    size, rejected = min(max(place.span[1], least), rule.max_step), False
    tolerance = max(10.0 * EPS / rule.rtol, min(0.03, rule.rtol**0.5))
    place.counts[LOST] = 0
    lefts, rights = np.zeros((n, MOST_COLUMNS)), np.zeros((MOST_COLUMNS, n))
    k = turning(motion, t, x, lefts, rights)
    left, right = np.ascontiguousarray(lefts[:, :k]), rights[:k].copy()
    inner = np.dot(right, left)
    h_last, error_last = place.last[0], place.last[1]
    Q = place.F[:3].copy()
    Z, F, rates = np.zeros((3, n)), np.zeros((3, n)), np.zeros(n)
    while True:
        if size < least:
            return False
        end = min(t + size, rule.end)
        h = end - t
        scale = rule.atol + np.abs(x) * rule.rtol
        Z[:] = 0.0
        if h_last > 0.0:  # the polynomial of the last step, continued
            for i in range(3):
                s = 1.0 + C[i] * h / h_last
                Z[i] = (s - 1.0) * Q[0] + (s * s - 1.0) * Q[1] + (s * s * s - 1.0) * Q[2]
        z, re, im = MU / h, MU_RE / h, MU_IM / h
        one = inverse(z * np.eye(k) - inner)
        pair = np.zeros((2 * k, 2 * k))
        for i in range(k):
            for j in range(k):
                pair[i, j] = pair[k + i, k + j] = (re if i == j else 0.0) - inner[i, j]
            pair[i, k + i], pair[k + i, i] = -im, im
        two = inverse(pair)
        W, converged, before, ratio, count = np.dot(TI, Z), False, 0.0, 0.0, 0
        for count in range(1, NEWTON + 1):
            for i in range(3):
                rate(motion, t + C[i] * h, x + Z[i], F[i])
            if not np.isfinite(F).all():
                place.counts[LOST] = 1
                break
            G = np.dot(TI, F)
            first = solved(z, left, right, one, G[0] - z * W[0])
            second, third = solved_pair(
                re, im, left, right, two, G[1] - (re * W[1] - im * W[2]), G[2] - (re * W[2] + im * W[1])
            )
            change = math.sqrt((norm(first, scale) ** 2 + norm(second, scale) ** 2 + norm(third, scale) ** 2) / 3.0)
            ratio = change / before if before > 0.0 else 0.0
            left_over = ratio ** (NEWTON - count + 1) / (1.0 - ratio) * change if ratio < 1.0 else np.inf
            if before > 0.0 and left_over > tolerance:
                break
            W[0] += first
            W[1] += second
            W[2] += third
            Z = np.dot(T, W)
            if change == 0.0 or (before > 0.0 and ratio / (1.0 - ratio) * change < tolerance):
                converged = True
                break
            before = change
        if not converged:
            size, rejected = 0.5 * h, True
            continue
        y = x + Z[2]
        ends = np.dot(E, Z) / h
        error = solved(z, left, right, one, f + ends)
        scale = rule.atol + np.maximum(np.abs(x), np.abs(y)) * rule.rtol
        share = norm(error, scale)
        if rejected and share > 1.0:
            rate(motion, t, x + error, rates)
            error = solved(z, left, right, one, rates + ends)
            share = norm(error, scale)
        safety = 0.9 * (2 * NEWTON + 1) / (2 * NEWTON + count)
        factor = safety * predict(h, share, h_last, error_last)
        if share <= 1.0:
            break
        size, rejected = h * (factor if factor > MIN_FACTOR else MIN_FACTOR), True
    place.span[2], place.span[3] = end, h * min(MAX_FACTOR, factor)
    place.last[0], place.last[1] = h, share
    place.y[:] = y
    place.F[:] = 0.0
    place.F[:3] = np.dot(P.T.copy(), Z)
    rate(motion, end, place.y, rates)
    place.K[STAGES] = rates
    return True
