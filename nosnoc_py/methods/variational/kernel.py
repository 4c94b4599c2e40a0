"""The loop over steps: flights, roots of the gaps, impacts; compiled, or interpreted for shapes that are a function.

A step of length h consists of segments between impacts. Each segment is flown from its start to the end of the step; if
a gap is closed there (or at one of the equal parts of it that `samples` asks for), its root is the end of the segment.

Algorithm 5.2: at an impact the momenta jump by v+ = -e v-, with which H is kept for e = 1. Algorithm 5.1: see
`segments`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.book import Book, put_event, put_node, put_row, turned_far
from nosnoc_py.methods.variational.collision import approach, gap_of
from nosnoc_py.methods.variational.flight import Segment, State, discrete_energy, energy_of, flown
from nosnoc_py.methods.variational.friction import struck
from nosnoc_py.methods.variational.resting import rested
from nosnoc_py.methods.variational.scene import (
    CROWDED,
    FINISHED,
    FULL,
    INSTANT,
    RESTS,
    ZENO,
    Contacts,
    Scene,
    quiet_of,
)
from nosnoc_py.methods.variational.segments import Pending, Trial, first_hit, opens
from nosnoc_py.methods.variational.vectors import Matrix, Vector, cross, dot, plus, times, transposed_times

# Points of a body that are as low as the lowest one, but for rounding, take part in an impact.
TIE = 1e-12
# A gap that was seen open by so much starts to be measured anew, without the rounding error at its last impact.
OPEN = 1e-9
NOTHING: Pending = (False, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.0, 0.0)
# Position, rotation and energy to which a body that rests may be put back.
Anchor = tuple[bool, Vector, Matrix, float]
# The segment that goes on, the rest of the step in which it began, and the whole steps since.
Standing = tuple[Segment, float, float]
# Code, the segment from here, what is pending, and the anchor.
Hit = tuple[int, Segment, Pending, Anchor]
# Code, plane of the last impact, time used, when the last segment began (-1 without an impact), it, its end, anchor.
Step = tuple[int, int, float, float, Segment, State, Anchor]


@jitable
def rests_on(settled: np.ndarray) -> bool:
    """Whether there is a plane on which the body rests."""
    resting = False
    for k in range(settled.shape[0]):
        resting = resting or settled[k] != 0.0
    return resting


@jitable
def anchored(scene: Scene, contacts: Contacts, segment: Segment) -> Anchor:
    """Whether a body rests, and where and with what energy it does at the start of a segment."""
    if not rests_on(contacts.settled):
        return False, segment[0], segment[3], 0.0
    _, x, gamma, rotation, spin = flown(scene.body, segment, 0.0)
    return True, x, rotation, energy_of(scene.body, x, gamma, spin)


@jitable
def fixed(scene: Scene, contacts: Contacts, book: Book, pending: Pending, found: Trial) -> Segment:
    """Write down the last impact of algorithm 5.1, now that the length of its segment is known."""
    solved, value, segment, _ = found
    x, gamma, _, rotation, spin = segment
    velocity = dot(pending[1], gamma) / scene.body[0] + dot(pending[2], times(scene.body[3], spin))
    row = book.events[book.counts[1] - 1]
    row[3], row[5], row[6] = value, velocity, 0.5 * value * (row[4] + velocity)
    book.counts[2] += 0 if solved else 1
    put_node(book, row[0], (True, x, gamma, rotation, spin), contacts)
    return segment


@jitable
def settles(
    scene: Scene, contacts: Contacts, book: Book, t: float, k: int, speed: float, rests: bool, state: State,
    anchor: Anchor,
) -> Hit:  # fmt: skip
    """A contact where impacts have no end: it rests from here if the option says so, and if it is slow.

    Impacts accumulate when those that follow within a step approach with no more than |g| h, and lose speed.
    """
    _, x, gamma, rotation, spin = state
    segment = (x, gamma, 0.0, rotation, spin)
    slow = scene.planes[k, 4] < 1.0 and -speed * scene.rule.h <= scene.rule.closed
    if not scene.rule.settle or not (rests or slow):
        return (RESTS if rests else ZENO if slow else CROWDED), segment, NOTHING, anchor
    contacts.settled[k], contacts.slack[k] = 1.0, 0.0
    put_event(book, t, k, 1, (0.0, speed, speed, 0.0, 0.0))
    return FINISHED, segment, NOTHING, anchor if anchor[0] else anchored(scene, contacts, segment)


@jitable
def strikes(
    scene: Scene, book: Book, contacts: Contacts, t: float, k: int, rho: Vector, energy: float, state: State,
    anchor: Anchor,
) -> Hit:  # fmt: skip
    """An impact: the momenta jump, or their jump is pending."""
    _, x, gamma, rotation, spin = state
    plane = scene.planes[k]
    value, impulse, torque, before, after, gain, clipped = struck(plane, scene.body, rotation, rho, gamma, spin)
    put_event(book, t, k, 0, (value, before, after, gain, clipped))
    anchor = (anchor[0], anchor[1], anchor[2], anchor[3] + gain)
    if scene.rule.variational:
        normal = (plane[0], plane[1], plane[2])
        chi = cross(rho, transposed_times(rotation, normal))
        return FINISHED, (x, gamma, 0.0, rotation, spin), (True, normal, chi, value, energy), anchor
    gamma, spin = plus(gamma, 1.0, impulse), plus(spin, 1.0, torque)
    put_node(book, t, (True, x, gamma, rotation, spin), contacts)
    return FINISHED, (x, gamma, 0.0, rotation, spin), NOTHING, anchor


@jitable
def hits(
    scene: Scene, contacts: Contacts, book: Book, t: float, k: int, s: float, impacts: int, energy: float,
    state: State, anchor: Anchor,
) -> Hit:  # fmt: skip
    """Plane k is met: an impact, a touch, or a contact that rests."""
    _, x, gamma, rotation, spin = state
    plane = scene.planes[k]
    contacts.left[:] = contacts.ends
    contacts.slack[k] = gap_of(plane, scene.shape, scene.support, x, rotation)
    contacts.left[k] = 0.0
    if t != book.last[0]:
        put_node(book, t, state, contacts)
    size = 1.0 + abs(plane[3]) + math.sqrt(dot(x, x))
    speed, rho = approach(plane, scene.body, (scene.shape, scene.support), TIE * size, rotation, gamma, spin)
    touches = speed >= -quiet_of(scene.body, gamma)
    rests = touches and s <= INSTANT * scene.rule.h
    if rests or impacts > scene.rule.most:
        return settles(scene, contacts, book, t, k, speed, rests, state, anchor)
    if touches:  # the exact velocity opens the gap again
        return FINISHED, (x, gamma, 0.0, rotation, spin), NOTHING, anchor
    return strikes(scene, book, contacts, t, k, rho, energy, state, anchor)


@jitable
def stepped(scene: Scene, contacts: Contacts, book: Book, step: int, segment: Segment) -> Step:
    """One step: flights and impacts until it is over, or as far as it goes."""
    rule, body = scene.rule, scene.body
    pending, energy, impacts = NOTHING, 0.0, 0
    used, base, where = 0.0, -1.0, -1
    state = (True, segment[0], segment[1], segment[3], segment[4])
    anchor = anchored(scene, contacts, segment)
    while True:
        code, k, s, found = first_hit(scene, contacts, segment, pending, rule.h - used)
        if code != FINISHED:
            break
        if pending[0]:
            segment = fixed(scene, contacts, book, pending, found)
        state = found[3]
        used += s
        if k < 0:
            break
        # algorithm 5.1 keeps the discrete energy of the first segment of the step through all of it
        if rule.variational and not pending[0]:
            _, x, gamma, _, spin = flown(body, segment, 0.0)
            _, energy = discrete_energy(body, x, gamma, spin, s)
        where, base, impacts = k, used, impacts + 1
        # its rounding error must not reach into the next step
        t = min(step * rule.h + used, (step + 1) * rule.h)
        code, segment, pending, anchor = hits(scene, contacts, book, t, k, s, impacts, energy, state, anchor)
        if code != FINISHED:
            break
        if contacts.settled[k] != 0.0:
            impacts = 0
    return code, where, used, base, segment, state, anchor


@jitable
def renewed(slack: np.ndarray, settled: np.ndarray, left: np.ndarray, ends: np.ndarray) -> None:
    """Let the gaps at the end of a segment be those at the start of the next one."""
    for k in range(ends.shape[0]):
        left[k] = ends[k]
        if ends[k] > OPEN:
            left[k], slack[k] = ends[k] + slack[k], 0.0
        elif ends[k] < 0.0 and settled[k] == 0.0:  # by rounding: it slides
            left[k], slack[k] = 0.0, ends[k] + slack[k]


@jitable
def put_back(scene: Scene, contacts: Contacts, state: State, anchor: Anchor) -> tuple[Segment, State]:
    """The state of a body that rests, and the segment that begins there."""
    _, x, rotation, energy = anchor
    state = rested(scene, contacts.settled, contacts.ends, state, (x, rotation, energy))
    for k in range(scene.planes.shape[0]):  # these are gaps without slack
        contacts.ends[k] -= contacts.slack[k]
    return (state[1], state[2], 0.0, state[3], state[4]), state


@jitable
def run_steps(
    scene: Scene, contacts: Contacts, book: Book, standing: Standing, start: int, stop: int, count: int, every: int
) -> tuple[int, int, int, Standing]:
    """Steps `start` to `stop` of `count`; the book is filled from its start, `contacts` are changed.

    Behind the nodes there is one more row: where the motion stands. A copy of the loop of `motion.loop.driven`, because
    numba cannot call that; limits and callbacks have their turn between the calls.

    Returns
    -------
    code, steps done, plane of the last impact, where the motion stands
    """
    rule, body, shape, support, planes = scene
    slack, settled, left, ends = contacts
    counts, last = book.counts, book.last
    counts[:] = 0
    segment, rest, whole = standing
    step, where, code, used = start, -1, FINISHED, 0.0
    reserve = 2 * (rule.most + 2) * (planes.shape[0] + 1)
    rows, events = book.nodes.shape[0] - reserve, book.events.shape[0] - reserve
    while step < stop:
        if counts[0] > rows or counts[1] > events:
            code = FULL
            break
        # most steps are free; not to count references to the arrays of the scene in them makes them twice as fast
        state = flown(body, segment, rule.h)
        free = rule.samples == 1 and state[0] and not rests_on(settled)
        base, resting = -1.0, False
        if not (free and opens(body, shape, support, planes, slack, ends, segment, state, rule.h)):
            code, plane, used, base, segment, state, anchor = stepped(scene, contacts, book, step, segment)
            where = plane if plane >= 0 else where
            if code != FINISHED:
                break
            resting = anchor[0]
            if resting:
                segment, state = put_back(scene, contacts, state, anchor)
        step, used = step + 1, 0.0
        rest, whole = (0.0, 0.0) if resting else (rule.h - base, 0.0) if base >= 0.0 else (rest, whole + 1.0)
        # not summed up over the steps, where its rounding errors would
        segment = (segment[0], segment[1], rest + whole * rule.h, state[3], state[4])
        renewed(slack, settled, left, ends)
        if step % every == 0 or step == count or turned_far(last, state[3]):
            put_node(book, step * rule.h, state, contacts)
    t = min(step * rule.h + used, (step + 1) * rule.h)
    put_row(book, t, flown(body, segment, 0.0), contacts)
    return code, step, where, (segment, rest, whole)


def versioned(version: str) -> Callable[..., Any]:
    """`run_steps`, as another function for every version of its sources."""

    def run_version(*arguments: Any) -> Any:
        _ = version
        return run_steps(*arguments)

    return run_version
