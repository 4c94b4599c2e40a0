"""Segments of a step from one impact to the next; they end at the first root of a gap.

In algorithm 5.1 (LGVCI) the impulse lambda at the start of a segment makes the discrete energies before and after the
impact equal. It depends on the length of the segment, which is unknown until the next impact is located. So lambda is
`pending` and is solved for in every trial length.
"""

from __future__ import annotations

import math

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.collision import Shape, Support, gap_of
from nosnoc_py.methods.variational.flight import Body, Segment, State, discrete_energy, free_flight
from nosnoc_py.methods.variational.scene import (
    FINISHED,
    INSTANT,
    NOT_FINITE,
    ROTATION,
    ROUNDING_OF_GAPS,
    Contacts,
    Scene,
    quiet_of,
)
from nosnoc_py.methods.variational.vectors import Matrix, Vector, dot, plus, times

# Pending impulse: True if there is one, normal, chi, lambda of algorithm 5.2, discrete energy to conserve.
Pending = tuple[bool, Vector, Vector, float, float]
# Flight of a trial length: True if lambda is solved, lambda, the segment with it, the state at its end.
Trial = tuple[bool, float, Segment, State]


@jitable
def trial(body: Body, segment: Segment, pending: Pending, s: float) -> Trial:
    """Fly s seconds of a segment, with its pending impulse."""
    if not pending[0]:
        return True, 0.0, segment, free_flight(body, segment, s)
    solved, value = impulse_for(body, segment, pending, s)
    base, momentum, since, rotation, spin = segment
    hit_segment = (base, plus(momentum, value, pending[1]), since, rotation, plus(spin, value, pending[2]))
    return solved, value, hit_segment, free_flight(body, hit_segment, s)


@jitable
def impulse_for(body: Body, segment: Segment, pending: Pending, s: float) -> tuple[bool, float]:
    """Solve E_d(gamma + lambda n, Pi + lambda chi; s) = E_d before for lambda by secants, from that of algorithm 5.2.

    If there is no solution (the impact is so slow that the difference of discrete energies of two lengths exceeds its
    energy), return False and the impulse of algorithm 5.2.
    """
    base, momentum, _, _, spin = segment
    _, normal, chi, start, energy = pending
    last, value = 0.0, start
    error_last = 0.0
    for k in range(30):
        gamma, turned = plus(momentum, value, normal), plus(spin, value, chi)
        exists, level = discrete_energy(body, base, gamma, turned, s)
        if not exists:
            return False, start
        error = level - energy
        velocity = dot(normal, gamma) / body[0] + dot(chi, times(body[3], turned))
        # dE_d/dlambda is the normal velocity to leading order; secants afterwards.
        slope = velocity if k == 0 else (error - error_last) / (value - last)
        step = -error / slope if slope != 0.0 else math.inf
        scale = abs(value) + abs(start)
        # Differences of energies lose digits: a step that no longer helps, and is small, is the end.
        stalled = k > 4 and abs(error) >= abs(error_last) and abs(step) <= 1e-13 * scale
        # A root at which the body still approaches is that of the motion before the impact.
        if error == 0.0 or abs(step) <= 4e-16 * scale or stalled:
            return velocity > 0.0, value if velocity > 0.0 else start
        # A step to another branch: the equation has no root near the impulse of algorithm 5.2.
        if not abs(step) <= 2.0 * abs(start):
            return False, start
        last, error_last, value = value, error, value + step
    return False, start


@jitable
def gap_after(
    plane: np.ndarray,
    body: Body,
    shape: Shape,
    support: Support,
    slack: float,
    segment: Segment,
    rotation: Matrix,
    s: float,
) -> float:
    """Return the gap of a plane after s seconds of a segment, minus its slack.

    The displacement since the base is added last, because right after an impact all other terms cancel.
    """
    normal, tau = (plane[0], plane[1], plane[2]), segment[2] + s
    start = gap_of(plane, shape, support, segment[0], rotation) - slack
    return start + tau * (dot(normal, segment[1]) / body[0] + 0.5 * tau * dot(normal, body[1]))


@jitable
def gaps_open(
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
    """Fill `ends` with the gaps at the end of a segment; return True if all are open."""
    opened = True
    for k in range(planes.shape[0]):
        ends[k] = gap_after(planes[k], body, shape, support, slack[k], segment, state[3], s)
        opened = opened and ends[k] > 0.0
    return opened


@jitable
def update_gaps(scene: Scene, contacts: Contacts, flight: Trial, s: float) -> bool:
    """Fill `ends` with the gaps at the end of a flight; return True if all are open."""
    _, body, shape, support, planes = scene
    return gaps_open(body, shape, support, planes, contacts.slack, contacts.ends, flight[2], flight[3], s)


@jitable
def gap_at(scene: Scene, k: int, slack: float, segment: Segment, pending: Pending, s: float) -> float:
    """Return the gap of plane k after s seconds of a segment with its pending impulse."""
    _, _, hit_segment, state = trial(scene.body, segment, pending, s)
    plane = scene.planes[k]
    return gap_after(plane, scene.body, scene.shape, scene.support, slack, hit_segment, state[3], s)


@jitable
def open_interval(
    scene: Scene, k: int, slack: float, segment: Segment, pending: Pending, low: float, high: float, gap_high: float
) -> tuple[float, float, float, float]:
    """Return a part of [low, high] with an open gap at its left end, by halving towards `low`, and both gaps.

    For a gap that is zero at `low`, right after an impact; the left gap is -1 if it never opens.
    """
    origin = low
    while True:
        middle = origin + 0.5 * (high - origin)
        # The interval has shrunk to rounding without an open gap: the body never left the plane.
        if middle <= origin + 1e-18 or high - origin < 1e-16 * high:
            return origin, -1.0, origin, gap_high
        gap_middle = gap_at(scene, k, slack, segment, pending, middle)
        if gap_middle > 0.0:
            return middle, gap_middle, high, gap_high
        high, gap_high = middle, gap_middle


@jitable
def locate_impact(
    scene: Scene, contacts: Contacts, k: int, segment: Segment, pending: Pending, low: float, high: float
) -> float:
    """Return a root of the gap in [low, high], closed at the right end, to rounding.

    If the gap never opens, return the left end. Regula falsi (Illinois variant), with a bisection if three steps do not
    halve the interval. A copy of `motion.crossing.root`, since numba cannot call that;
    `tests/motion/test_compiled_roots.py` compares them.
    """
    slack, gap_low, gap_high = contacts.slack[k], contacts.left[k], contacts.ends[k]
    if gap_low <= 0.0:
        low, gap_low, high, gap_high = open_interval(scene, k, slack, segment, pending, low, high, gap_high)
        if gap_low < 0.0:
            return low
    weight_low, weight_high, width, side = gap_low, gap_high, high - low, 0
    for iteration in range(200):
        # Spacing of floating-point numbers at the right end.
        nearest = 2.3e-16 * high
        if gap_high == 0.0 or high - low <= nearest:
            break
        # Illinois: the weight of an end that does not move is halved, which restores superlinear convergence.
        middle = high - weight_high * (high - low) / (weight_high - weight_low)
        if iteration % 3 == 2:
            if high - low > 0.5 * width:
                middle = 0.5 * (low + high)
            width = high - low
        # Rounding must not put the trial onto an end, where it would change nothing.
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
    # Of the last two neighbours the one with the smaller gap.
    return high if -gap_high < gap_low else low


@jitable
def is_hit(scene: Scene, contacts: Contacts, k: int, flight: Trial, length: float) -> bool:
    """True if the gap of plane k is closed at the end of a flight.

    A body that touches the plane and moves along it up to rounding slides, which is not a hit.
    """
    end = contacts.ends[k]
    if contacts.at_rest[k] != 0.0 or end > 0.0:
        return False
    x, gamma = flight[3][1], flight[3][2]
    size = 1.0 + abs(scene.planes[k, 3]) + math.sqrt(dot(x, x))
    # Tolerance for sliding: quiet normal velocity over the flight, plus rounding of the gap.
    slides = quiet_of(scene.body, gamma) * length + ROUNDING_OF_GAPS * size
    return contacts.left[k] > slides or end < -slides


@jitable
def first_plane_hit(
    scene: Scene, contacts: Contacts, segment: Segment, pending: Pending, low: float, high: float, flight: Trial
) -> tuple[int, float, Trial]:
    """Return the plane hit first in [low, high] (-1 without a hit), the time, and the flight that ends there."""
    plane, count = -1, scene.planes.shape[0]
    for _ in range(count):  # shortening the flight may reveal an earlier hit, at most once per plane
        right, first_plane = high, -1
        for k in range(count):
            if k == plane or not is_hit(scene, contacts, k, flight, right - low):
                continue
            root = locate_impact(scene, contacts, k, segment, pending, low, right)
            if plane >= 0 and root <= low:
                continue  # a plane that was just left and is closed by rounding
            if first_plane < 0 or root < high:
                high, first_plane = root, k
        if first_plane < 0:
            break
        plane = first_plane
        flight = trial(scene.body, segment, pending, high)
        update_gaps(scene, contacts, flight, high)
        if high <= low:
            break
    return plane, high, flight


@jitable
def first_hit(
    scene: Scene, contacts: Contacts, segment: Segment, pending: Pending, length: float
) -> tuple[int, int, float, Trial]:
    """Return code, plane (-1 without a hit), length of the segment and its flight; `left` are the gaps at its start."""
    samples, before, end, plane = scene.rule.samples, 0.0, length, -1
    flight = trial(scene.body, segment, pending, length)
    if length <= INSTANT * scene.rule.h:  # impact at the end of a step: the next step handles the rest
        contacts.ends[:] = contacts.left
        return FINISHED, plane, end, flight
    for i in range(samples):
        if samples > 1:
            end = length if i == samples - 1 else length * (i + 1) / samples
            flight = trial(scene.body, segment, pending, end)
        # Before the gaps, because a flight without a solution has no end state.
        if not flight[3][0]:
            return ROTATION, plane, end, flight
        if not update_gaps(scene, contacts, flight, end):
            # NaN compares False and counts as not open, so that it is found here.
            if np.isnan(contacts.ends).any():
                return NOT_FINITE, plane, end, flight
            plane, end, flight = first_plane_hit(scene, contacts, segment, pending, before, end, flight)
        if plane >= 0:
            break
        # The end of this part is the start of the next one.
        contacts.left[:] = contacts.ends
        before = end
    return FINISHED, plane, end, flight
