"""Starts from where contacts can be: sequences of contacts between both ends, with states that touch what they should.

A simulation from rest says nothing of how a leg gets somewhere. Here the sequence is proposed: what touches at the
beginning, what touches at the goal, and flights, supports or pushes in between; the states of its phases are those
nearest to the straight way at which the contacts of the phase are closed (Posa, Cantu, Tedrake 2014 start without any
such knowledge; Winkler et al. 2018 give the number of steps).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nosnoc_py.motion.record import MotionRecord
from nosnoc_py.search.starts import StartTask
from nosnoc_py.sequences.refinement import free_start
from nosnoc_py.solution import RungeKuttaInterpolant, Trajectory
from nosnoc_py.solution.sequence import IMPACT, Sequence
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.quaternions import unit_states

Array = np.ndarray
Closed = frozenset[str]
# Flights of a proposal at most, and contacts that may all be closed at once.
FLIGHTS, FEW = 3, 4
# A contact is closed at an end where its gap is below this share of the lengths there; a goal that is only liked by a
# cost is missed by more.
TOUCHING = np.array([1e-5, 1e-3])


@dataclass(frozen=True, eq=False, kw_only=True)
class Proposal:
    """A sequence with a motion drawn for it, which obeys no law."""

    sequence: Sequence
    motion: Trajectory


def stances(task: StartTask, rng: np.random.Generator) -> Iterator[Proposal | None]:
    """Proposals from simple to long ones."""
    system, ocp = task.ocp.system, task.ocp
    if not isinstance(system, CLS) or not system.contacts or ocp.x0 is None or task.goal is None:
        return
    if len(task.goal) != len(task.x0):
        return
    first, last = task.x0, free_start(ocp, task.goal, closed=())
    gaps = np.array([system.kinematics(x[None], 0.0, ocp.p).gaps[0] for x in (first, last)])
    size = max(1.0, float(np.abs(np.concatenate([first, last])).max()))
    names = [contact.name for contact in system.contacts]
    shut = gaps[:, : len(names)] <= (size * TOUCHING)[:, None]
    start, goal = (frozenset(np.array(names)[row].tolist()) for row in shut)
    last = free_start(ocp, last, closed=tuple(goal))
    yield None
    for sets in between(start, goal, names):
        yield proposed(task, sets, first, last)


def between(first: Closed, last: Closed, names: list[str]) -> Iterator[list[Closed]]:
    """What is closed in the phases of a motion that begins and ends with these contacts closed."""
    flight: Closed = frozenset()
    told: set[tuple[Closed, ...]] = set()

    def new(*sets: Closed) -> Iterator[list[Closed]]:
        phases = tuple(one for k, one in enumerate(sets) if k == 0 or one != sets[k - 1])
        if phases not in told:
            told.add(phases)
            yield list(phases)

    both = first | last
    every = frozenset(names)
    yield from new(first, last)
    if len(names) <= FEW:
        yield from new(first, every, last or every)
    if first and last:
        yield from new(first, flight, last)
    for name in sorted(both) if len(both) > 1 else []:
        # One foot after the other, one finger after the other.
        yield from new(first, both - {name}, last)
        yield from new(first, first - {name}, last - {name}, last)
    for name in (name for name in names if name not in both):
        yield from new(first, both | {name}, last)
        yield from new(first, first | {name}, first, last)
    for count in range(2, FLIGHTS + 1):
        if both:
            yield from new(first, *[flight, last or first] * count)


def proposed(task: StartTask, sets: list[Closed], first: Array, last: Array) -> Proposal:
    """States at both ends of every phase, the straight way moved to where its contacts are closed, joined by lines."""
    ocp, count = task.ocp, len(sets)
    edges = np.linspace(0.0, float(ocp.horizon), count + 1)
    t, x = [0.0], [first]
    for k in range(1, count):
        way = first + (last - first) * k / count
        # At the end of a phase what closes there touches, and what opens still does.
        x.append(free_start(ocp, way, closed=tuple(sorted(sets[k - 1] | sets[k]))))
        t.append(float(edges[k]))
    times, states = np.array([*t, float(edges[-1])]), np.array([*x, last])
    if not ocp.system.autonomous:
        states[:, -1] = first[-1] + times
    grid = np.linspace(0.0, times[-1], 8 * count + 1)
    drawn = np.column_stack([np.interp(grid, times, column) for column in states.T])
    drawn = np.array([unit_states(row, ocp.system.unit_parts) for row in drawn])
    made = MotionRecord(t=grid, x=drawn, interpolant=RungeKuttaInterpolant.linear(grid, drawn))
    control = grid[[0, -1]], np.atleast_2d(task.rest)
    motion = made.trajectory(ocp.system, np.asarray(ocp.p), control, Status.SOLVED, [])
    return Proposal(sequence=_sequence(task, sets, edges[1:-1]), motion=motion)


def _sequence(task: StartTask, sets: list[Closed], times: Array) -> Sequence:
    """Contacts with friction stick; what closes has an impact."""
    words = {c.name: "closed" if c.tangent is None else "stick" for c in task.ocp.system.contacts}
    items: list[object] = []
    for k, closed in enumerate(sets):
        new = sorted(closed - sets[k - 1]) if k else []
        items += [IMPACT + ", ".join(new)] if new else []
        items.append({name: words[name] for name in sorted(closed)})
    return Sequence(items, times)
