"""Segments of a step, from one impact to the next: their ends are the first roots of the gaps.

In algorithm 5.1 the impulse lambda at the start of a segment is such that the discrete energies before and behind it
are equal. It depends on the length of the segment, which is not known before the next impact is: lambda is `pending`,
and is solved for in every trial of a length.
"""

from __future__ import annotations

import math

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.simulation.variational.collision import Shape, Support, gap_of
from nosnoc_py.simulation.variational.flight import Body, Segment, State, discrete_energy, flown
from nosnoc_py.simulation.variational.vectors import Matrix, Vector, dot, plus, times

FINISHED, FULL, ZENO, ROTATION, NOT_FINITE = 0, 1, 2, 3, 4
# A pending impulse: is there one, normal, chi, lambda of algorithm 5.2, discrete energy to keep.
Pending = tuple[bool, Vector, Vector, float, float]
# h, length at which a resting contact counts as closed, map, algorithm, samples, impacts in a step, parts, settle.
Rule = tuple[float, float, bool, bool, int, int, int, bool]
Trial = tuple[bool, float, Segment, State]


@jitable
def trial(body: Body, exponential: bool, parts: int, segment: Segment, pending: Pending, s: float) -> Trial:
    """Fly s seconds of a segment: lambda's equation solved, lambda, the segment with it, and the state."""
    if not pending[0]:
        return True, 0.0, segment, flown(body, exponential, parts, segment, s)
    solved, value = impulse_for(body, exponential, segment, pending, s)
    base, momentum, since, rotation, spin = segment
    struck_segment = (base, plus(momentum, value, pending[1]), since, rotation, plus(spin, value, pending[2]))
    return solved, value, struck_segment, flown(body, exponential, parts, struck_segment, s)


@jitable
def impulse_for(body: Body, exponential: bool, segment: Segment, pending: Pending, s: float) -> tuple[bool, float]:
    """lambda with E_d(gamma + lambda n, Pi + lambda chi; s) = E_d before, by secants from that of algorithm 5.2.

    Where there is none (the impact is so slow that the difference between the discrete energies of two lengths exceeds
    its energy), that of algorithm 5.2.
    """
    base, momentum, _, _, spin = segment
    _, normal, chi, start, energy = pending
    last, value = 0.0, start
    error_last, scale = 0.0, 0.0
    for k in range(30):
        gamma, turned = plus(momentum, value, normal), plus(spin, value, chi)
        found, level = discrete_energy(body, exponential, base, gamma, turned, s)
        if not found:
            return False, start
        error = level - energy
        velocity = dot(normal, gamma) / body[0] + dot(chi, times(body[3], turned))
        slope = velocity if k == 0 else (error - error_last) / (value - last)
        scale = abs(value) + abs(start)
        if error == 0.0:
            return velocity > 0.0, value if velocity > 0.0 else start
        step = -error / slope if slope != 0.0 else math.inf
        if not abs(step) <= 2.0 * abs(start):
            return False, start
        if abs(step) <= 4e-16 * scale:
            return velocity > 0.0, value if velocity > 0.0 else start
        if k > 4 and abs(error) >= abs(error_last) and abs(step) <= 1e-13 * scale:
            return velocity > 0.0, value if velocity > 0.0 else start
        last, error_last, value = value, error, value + step
    return False, start


@jitable
def measured(
    plane: np.ndarray,
    body: Body,
    shape: Shape,
    support: Support,
    segment: Segment,
    rotation: Matrix,
    slack: float,
    s: float,
) -> float:
    """The gap after s seconds of a segment, less the rounding error that it had at its last impact.

    The way since the base is added last: right after an impact everything else cancels.
    """
    normal, tau = (plane[0], plane[1], plane[2]), segment[2] + s
    start = gap_of(plane, shape, support, segment[0], rotation) - slack
    return start + tau * (dot(normal, segment[1]) / body[0] + 0.5 * tau * dot(normal, body[1]))


@jitable
def gap_at(
    plane: np.ndarray,
    body: Body,
    shape: Shape,
    support: Support,
    exponential: bool,
    parts: int,
    segment: Segment,
    pending: Pending,
    slack: float,
    s: float,
) -> float:
    """The gap after s seconds of a segment."""
    _, _, struck_segment, state = trial(body, exponential, parts, segment, pending, s)
    return measured(plane, body, shape, support, struck_segment, state[3], slack, s)


@jitable
def located(
    plane: np.ndarray,
    body: Body,
    shape: Shape,
    support: Support,
    exponential: bool,
    parts: int,
    segment: Segment,
    pending: Pending,
    slack: float,
    low: float,
    gap_low: float,
    high: float,
    gap_high: float,
) -> float:
    """A root of the gap in [low, high], where it is closed at the right end, to rounding of the step length.

    Right after an impact the gap is zero at the left end: the interval is halved towards it until the gap is open. If
    it never is, the left end is returned: something else touches already. Then regula falsi (Illinois), bisecting
    where that does not halve the interval in three steps.
    """
    origin = low
    while gap_low <= 0.0:
        middle = origin + 0.5 * (high - origin)
        if middle <= origin + 1e-18 or high - origin < 1e-16 * high:
            return origin
        gap_middle = gap_at(plane, body, shape, support, exponential, parts, segment, pending, slack, middle)
        if gap_middle > 0.0:
            low, gap_low = middle, gap_middle
        else:
            high, gap_high = middle, gap_middle
    weight_low, weight_high, width, side = gap_low, gap_high, high - low, 0
    for k in range(200):
        nearest = 2.3e-16 * high
        if gap_high == 0.0 or high - low <= nearest:
            break
        middle = high - weight_high * (high - low) / (weight_high - weight_low)
        if k % 3 == 2:
            if high - low > 0.5 * width:
                middle = 0.5 * (low + high)
            width = high - low
        middle = min(max(middle, low + 0.5 * nearest), high - 0.5 * nearest)
        if middle <= low or middle >= high:
            break
        gap_middle = gap_at(plane, body, shape, support, exponential, parts, segment, pending, slack, middle)
        if gap_middle > 0.0:
            weight_high *= 0.5 if side < 0 else 1.0
            low, gap_low, weight_low, side = middle, gap_middle, gap_middle, -1
        else:
            weight_low *= 0.5 if side > 0 else 1.0
            high, gap_high, weight_high, side = middle, gap_middle, gap_middle, 1
    return high if -gap_high < gap_low else low


@jitable
def first_hit(
    rule: Rule,
    body: Body,
    shape: Shape,
    support: Support,
    planes: np.ndarray,
    segment: Segment,
    pending: Pending,
    length: float,
    parts: int,
    slack: np.ndarray,
    settled: np.ndarray,
    left: np.ndarray,
    ends: np.ndarray,
) -> tuple[int, int, float, Trial]:
    """Code, plane (-1 without a hit), length of the segment and its end; `left` are the gaps at its start."""
    count, exponential, samples = planes.shape[0], rule[2], rule[4]
    before, where = 0.0, length
    if length <= 1e-15 * rule[0]:  # an impact at the end of a step: what else happens is up to the next one
        for k in range(count):
            ends[k] = left[k]
        return FINISHED, -1, where, trial(body, exponential, parts, segment, pending, where)
    for i in range(samples):
        where = length if i == samples - 1 else length * (i + 1) / samples
        found = trial(body, exponential, parts, segment, pending, where)
        if not found[3][0]:
            return ROTATION, -1, where, found
        for k in range(count):
            ends[k] = measured(planes[k], body, shape, support, found[2], found[3][3], slack[k], where)
            if math.isnan(ends[k]):
                return NOT_FINITE, -1, where, found
        hit = -1
        for _ in range(count):  # once more for every plane that another one was ahead of
            right, earlier = where, -1
            for k in range(count):
                if settled[k] == 0.0 and ends[k] <= 0.0 and k != hit:
                    root = located(
                        planes[k], body, shape, support, exponential, parts, segment, pending, slack[k], before,
                        left[k], right, ends[k],
                    )  # fmt: skip
                    if hit >= 0 and root <= before:
                        continue  # a plane that was just left, closed by rounding
                    if earlier < 0 or root < where:
                        where, earlier = root, k
            if earlier < 0:
                break
            hit = earlier
            found = trial(body, exponential, parts, segment, pending, where)
            for k in range(count):
                ends[k] = measured(planes[k], body, shape, support, found[2], found[3][3], slack[k], where)
            if where <= before:
                break
        if hit >= 0:
            return FINISHED, hit, where, found
        for k in range(count):
            left[k] = ends[k]
        before = where
    return FINISHED, -1, where, found
