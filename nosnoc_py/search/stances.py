"""Starts from contact sequences between the initial state and the goal, for systems with legs, feet or fingers.

A simulation from rest does not show how a leg moves a body to its goal. Here the contact sequence is enumerated instead
of simulated: the contacts that are closed at the initial state, those at the goal, and flights, supports or pushes in
between, from short sequences to long ones. States at the ends of phases are the nearest ones to the straight line
between both ends at which the contacts of the phase are closed; lines join them. Such a `Proposal` satisfies no
dynamics; it is only the start of the multi-phase program of its sequence. (Posa, Cantu and Tedrake 2014 start without a
sequence; Winkler et al. 2018 prescribe the number of steps.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.motion.record import MotionRecord
from nosnoc_py.search.starts import StartTask
from nosnoc_py.sequences.refinement import free_start
from nosnoc_py.solution import RungeKuttaInterpolant, Trajectory
from nosnoc_py.solution.sequence import IMPACT, Sequence
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS, Contact
from nosnoc_py.systems.quaternions import unit_states
from nosnoc_py.tolerances import NOT_ZERO

Array = np.ndarray
Closed = frozenset[str]
# Largest number of flights of a sequence, and of contacts for which a phase with all of them closed is tried.
MOST_FLIGHTS, FEW_CONTACTS = 3, 4
# A contact counts as closed at the initial state, and at the goal, if its gap is below this fraction of its typical
# change; a goal that is only the minimum of a terminal cost is less accurate.
TOUCHING_GAPS = np.array([1e-5, 1e-3])


@dataclass(frozen=True, eq=False, kw_only=True)
class Proposal:
    """Mode sequence with states for it that satisfy no dynamics.

    Attributes
    ----------
    sequence : Sequence
        With its times.
    motion : Trajectory
        Straight lines between states at which the contacts of the phases are closed.
    """

    sequence: Sequence
    motion: Trajectory


def stances(task: StartTask, rng: np.random.Generator) -> Iterator[Proposal | None]:
    """Yield proposals, from simple sequences to long ones."""
    ends = closed_at_ends(task)
    if ends is None:
        return
    start, goal, names = ends
    last = free_start(task.ocp, free_start(task.ocp, task.goal, closed=()), closed=tuple(goal))
    yield None
    for sets in contact_sets(start, goal, names):
        yield propose(task, sets, task.x0, last)


def closed_at_ends(task: StartTask) -> tuple[Closed, Closed, list[str]] | None:
    """Return the contacts that are closed at x0, those at the goal, and all that can carry; None without a goal."""
    system, ocp = task.ocp.system, task.ocp
    if not system.contacts or ocp.x0 is None or task.goal is None or len(task.goal) != len(task.x0):
        return None
    ways = task.sizes[system.at_v] * float(ocp.horizon)
    ends = [system.kinematics(x[None], 0.0, ocp.p) for x in (task.x0, free_start(ocp, task.goal, closed=()))]
    supports = [k for k, contact in enumerate(system.contacts) if not is_end_stop(system, contact)]
    names = [system.contacts[k].name for k in supports]
    # Gaps relative to their typical changes, which may have a unit of the user.
    shares = [
        at.gaps[0, supports] / np.maximum(np.abs(at.jacobian[0, supports] * ways).max(axis=1), NOT_ZERO) for at in ends
    ]
    shut = np.array(shares) <= TOUCHING_GAPS[:, None]
    start, goal = (frozenset(np.array(names)[row].tolist()) for row in shut)
    return start, goal, names


def is_end_stop(system: CLS, contact: Contact) -> bool:
    """True if a contact limits one coordinate, beside contacts with friction: the end of a joint carries no one."""
    alone = contact.tangent is None and ca.jacobian(contact.gap, system.q).nnz() == 1
    return alone and any(other.frictional for other in system.contacts)


def contact_sets(first: Closed, last: Closed, names: list[str]) -> Iterator[list[Closed]]:
    """Yield the sets of closed contacts in the phases of motions that begin and end with the given sets.

    Parameters
    ----------
    first, last : frozenset of str
        Contacts that are closed in the first and in the last phase.
    names : list of str
        All contacts.

    Examples
    --------
    >>> foot = frozenset(["foot"])
    >>> [[sorted(closed) for closed in sets] for sets in contact_sets(foot, foot, ["foot"])][:2]
    [[['foot']], [['foot'], [], ['foot']]]
    """
    flight: Closed = frozenset()
    seen: set[tuple[Closed, ...]] = set()

    def new(*sets: Closed) -> Iterator[list[Closed]]:
        phases = tuple(one for k, one in enumerate(sets) if k == 0 or one != sets[k - 1])
        if phases not in seen:
            seen.add(phases)
            yield list(phases)

    both = first | last
    every = frozenset(names)
    yield from new(first, last)
    if len(names) <= FEW_CONTACTS:
        yield from new(first, every, last or every)
        yield from new(first, every, last)
    if first and last:
        yield from new(first, flight, last)
    for name in sorted(both) if len(both) > 1 else []:
        # One foot after the other, one finger after the other.
        yield from new(first, both - {name}, last)
        yield from new(first, first - {name}, last - {name}, last)
    for name in (name for name in names if name not in both):
        yield from new(first, both | {name}, last)
        yield from new(first, first | {name}, first, last)
    for count in range(2, MOST_FLIGHTS + 1):
        if both:
            yield from new(first, *[flight, last or first] * count)


def propose(task: StartTask, sets: list[Closed], first: Array, last: Array) -> Proposal:
    """Return the proposal for sets of closed contacts: states at the ends of its phases, joined by straight lines."""
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
    motion = drawn_motion(task, grid, drawn, (grid[[0, -1]], np.atleast_2d(task.rest)), np.asarray(ocp.p))
    return Proposal(sequence=sequence_of(task, sets, edges[1:-1]), motion=motion)


def drawn_motion(task: StartTask, grid: Array, states: Array, control: tuple[Array, Array], p: Array) -> Trajectory:
    """Return the straight lines between states (n, n_x) at the times of a grid, which obey no law, as a motion."""
    record = MotionRecord(t=grid, x=states, interpolant=RungeKuttaInterpolant.linear(grid, states))
    return record.trajectory(task.ocp.system, p, control, Status.SOLVED, [])


def sequence_of(task: StartTask, sets: list[Closed], times: Array) -> Sequence:
    """Return the sequence of sets of closed contacts; those with friction stick, and closing ones have an impact."""
    words = {c.name: "stick" if c.frictional else "closed" for c in task.ocp.system.contacts}
    items: list[object] = []
    for k, closed in enumerate(sets):
        new = sorted(closed - sets[k - 1]) if k else []
        items += [IMPACT + ", ".join(new)] if new else []
        items.append({name: words[name] for name in sorted(closed)})
    return Sequence(items, times)
