"""Segments of a step, from one impact to the next: their ends are the first roots of the gaps.

In algorithm 5.1 the impulse lambda at the start of a segment is such that the discrete energies before and behind it
are equal. It depends on the length of the segment, which is not known before the next impact is: lambda is `pending`,
and is solved for in every trial of a length.
"""

from __future__ import annotations

import math

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.collision import Shape, Support, gap_of
from nosnoc_py.methods.variational.flight import Body, Segment, State, discrete_energy, flown
from nosnoc_py.methods.variational.scene import (
    FINISHED,
    INSTANT,
    NOT_FINITE,
    ROTATION,
    ROUNDING,
    Contacts,
    Scene,
    quiet_of,
)
from nosnoc_py.methods.variational.vectors import Matrix, Vector, dot, plus, times

# A pending impulse: is there one, normal, chi, lambda of algorithm 5.2, discrete energy to keep.
Pending = tuple[bool, Vector, Vector, float, float]
# lambda's equation solved, lambda, the segment with it, the state at its end.
Trial = tuple[bool, float, Segment, State]


@jitable
def trial(body: Body, segment: Segment, pending: Pending, s: float) -> Trial:
    """Fly s seconds of a segment."""
    if not pending[0]:
        return True, 0.0, segment, flown(body, segment, s)
    solved, value = impulse_for(body, segment, pending, s)
    base, momentum, since, rotation, spin = segment
    struck_segment = (base, plus(momentum, value, pending[1]), since, rotation, plus(spin, value, pending[2]))
    return solved, value, struck_segment, flown(body, struck_segment, s)


@jitable
def impulse_for(body: Body, segment: Segment, pending: Pending, s: float) -> tuple[bool, float]:
    """lambda with E_d(gamma + lambda n, Pi + lambda chi; s) = E_d before, by secants from that of algorithm 5.2.

    Where there is none (the impact is so slow that the difference between the discrete energies of two lengths exceeds
    its energy), that of algorithm 5.2.
    """
    base, momentum, _, _, spin = segment
    _, normal, chi, start, energy = pending
    last, value = 0.0, start
    error_last = 0.0
    for k in range(30):
        gamma, turned = plus(momentum, value, normal), plus(spin, value, chi)
        found, level = discrete_energy(body, base, gamma, turned, s)
        if not found:
            return False, start
        error = level - energy
        velocity = dot(normal, gamma) / body[0] + dot(chi, times(body[3], turned))
        slope = velocity if k == 0 else (error - error_last) / (value - last)
        step = -error / slope if slope != 0.0 else math.inf
        scale = abs(value) + abs(start)
        stalled = k > 4 and abs(error) >= abs(error_last) and abs(step) <= 1e-13 * scale
        if error == 0.0 or abs(step) <= 4e-16 * scale or stalled:
            return velocity > 0.0, value if velocity > 0.0 else start
        if not abs(step) <= 2.0 * abs(start):
            return False, start
        last, error_last, value = value, error, value + step
    return False, start


@jitable
def measured(
    plane: np.ndarray,
    body: Body,
    shape: Shape,
    support: Support,
    slack: float,
    segment: Segment,
    rotation: Matrix,
    s: float,
) -> float:
    """The gap of a plane after s seconds of a segment, less its slack.

    The way since the base is added last: right after an impact everything else cancels.
    """
    normal, tau = (plane[0], plane[1], plane[2]), segment[2] + s
    start = gap_of(plane, shape, support, segment[0], rotation) - slack
    return start + tau * (dot(normal, segment[1]) / body[0] + 0.5 * tau * dot(normal, body[1]))


@jitable
def opens(
    body: Body,
    shape: Shape,
    support: Support,
    planes: np.ndarray,
    slack: np.ndarray,
    ends: np.ndarray,
    segment: Segment,
    state: State,
    s: float,
) -> bool:
    """Fill `ends` with the gaps at the end of a segment; whether all of them are open."""
    opened = True
    for k in range(planes.shape[0]):
        ends[k] = measured(planes[k], body, shape, support, slack[k], segment, state[3], s)
        opened = opened and ends[k] > 0.0
    return opened


@jitable
def measure(scene: Scene, contacts: Contacts, found: Trial, s: float) -> bool:
    """Fill `ends` with the gaps at the end of a trial; whether all of them are open."""
    _, body, shape, support, planes = scene
    return opens(body, shape, support, planes, contacts.slack, contacts.ends, found[2], found[3], s)


@jitable
def gap_at(scene: Scene, k: int, slack: float, segment: Segment, pending: Pending, s: float) -> float:
    """The gap of plane k after s seconds of a segment."""
    _, _, struck_segment, state = trial(scene.body, segment, pending, s)
    plane = scene.planes[k]
    return measured(plane, scene.body, scene.shape, scene.support, slack, struck_segment, state[3], s)


@jitable
def opening(
    scene: Scene, k: int, slack: float, segment: Segment, pending: Pending, low: float, high: float, gap_high: float
) -> tuple[float, float, float, float]:
    """A part of [low, high] with an open gap at its left end, found by halving towards `low`, and both gaps.

    For a gap that is zero there, right after an impact; -1 for the gap at the left end if it never opens.
    """
    origin = low
    while True:
        middle = origin + 0.5 * (high - origin)
        if middle <= origin + 1e-18 or high - origin < 1e-16 * high:
            return origin, -1.0, origin, gap_high
        gap_middle = gap_at(scene, k, slack, segment, pending, middle)
        if gap_middle > 0.0:
            return middle, gap_middle, high, gap_high
        high, gap_high = middle, gap_middle


@jitable
def located(
    scene: Scene, contacts: Contacts, k: int, segment: Segment, pending: Pending, low: float, high: float
) -> float:
    """A root of the gap in [low, high], where it is closed at the right end, to rounding of the step length.

    If it never opens, the left end: something touches already. Regula falsi (Illinois), bisecting where that does not
    halve the interval in three steps. A copy of `motion.crossing.root`, because numba cannot call that;
    `tests/motion/test_compiled_roots.py` holds them together.
    """
    slack, gap_low, gap_high = contacts.slack[k], contacts.left[k], contacts.ends[k]
    if gap_low <= 0.0:
        low, gap_low, high, gap_high = opening(scene, k, slack, segment, pending, low, high, gap_high)
        if gap_low < 0.0:
            return low
    weight_low, weight_high, width, side = gap_low, gap_high, high - low, 0
    for iteration in range(200):
        nearest = 2.3e-16 * high
        if gap_high == 0.0 or high - low <= nearest:
            break
        middle = high - weight_high * (high - low) / (weight_high - weight_low)
        if iteration % 3 == 2:
            if high - low > 0.5 * width:
                middle = 0.5 * (low + high)
            width = high - low
        middle = min(max(middle, low + 0.5 * nearest), high - 0.5 * nearest)
        if middle <= low or middle >= high:
            break
        gap_middle = gap_at(scene, k, slack, segment, pending, middle)
        if gap_middle > 0.0:
            weight_high *= 0.5 if side < 0 else 1.0
            low, gap_low, weight_low, side = middle, gap_middle, gap_middle, -1
        else:
            weight_low *= 0.5 if side > 0 else 1.0
            high, gap_high, weight_high, side = middle, gap_middle, gap_middle, 1
    return high if -gap_high < gap_low else low


@jitable
def closes(scene: Scene, contacts: Contacts, k: int, found: Trial, length: float) -> bool:
    """Whether the gap of plane k is closed at the end of a trial.

    A body that touches, and moves along the plane but for rounding, slides: that closes nothing.
    """
    end = contacts.ends[k]
    if contacts.settled[k] != 0.0 or end > 0.0:
        return False
    x, gamma = found[3][1], found[3][2]
    size = 1.0 + abs(scene.planes[k, 3]) + math.sqrt(dot(x, x))
    slides = quiet_of(scene.body, gamma) * length + ROUNDING * size
    return contacts.left[k] > slides or end < -slides


@jitable
def first_of(
    scene: Scene, contacts: Contacts, segment: Segment, pending: Pending, low: float, high: float, found: Trial
) -> tuple[int, float, Trial]:
    """The plane that is hit first in [low, high] (-1 without a hit), when, and the trial that ends there."""
    hit, count = -1, scene.planes.shape[0]
    for _ in range(count):  # once more for every plane that another one was ahead of
        right, earlier = high, -1
        for k in range(count):
            if k == hit or not closes(scene, contacts, k, found, right - low):
                continue
            root = located(scene, contacts, k, segment, pending, low, right)
            if hit >= 0 and root <= low:
                continue  # a plane that was just left, closed by rounding
            if earlier < 0 or root < high:
                high, earlier = root, k
        if earlier < 0:
            break
        hit = earlier
        found = trial(scene.body, segment, pending, high)
        measure(scene, contacts, found, high)
        if high <= low:
            break
    return hit, high, found


@jitable
def first_hit(
    scene: Scene, contacts: Contacts, segment: Segment, pending: Pending, length: float
) -> tuple[int, int, float, Trial]:
    """Code, plane (-1 without a hit), length of the segment and its end; `left` are the gaps at its start."""
    samples, before, where, hit = scene.rule.samples, 0.0, length, -1
    found = trial(scene.body, segment, pending, length)
    if length <= INSTANT * scene.rule.h:  # an impact at the end of a step: what else happens is up to the next one
        contacts.ends[:] = contacts.left
        return FINISHED, hit, where, found
    for i in range(samples):
        if samples > 1:
            where = length if i == samples - 1 else length * (i + 1) / samples
            found = trial(scene.body, segment, pending, where)
        if not found[3][0]:
            return ROTATION, hit, where, found
        if not measure(scene, contacts, found, where):
            if np.isnan(contacts.ends).any():
                return NOT_FINITE, hit, where, found
            hit, where, found = first_of(scene, contacts, segment, pending, before, where, found)
        if hit >= 0:
            break
        contacts.left[:] = contacts.ends
        before = where
    return FINISHED, hit, where, found
