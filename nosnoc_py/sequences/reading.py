"""The sequence of modes of a motion, whatever method made it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.sequences.plan import written
from nosnoc_py.solution import Event, Trajectory
from nosnoc_py.solution.sequence import Sequence

Array = np.ndarray
# Events closer than this share of the duration are one.
TOGETHER = 1e-6
# Where inside of a phase its mode is looked at.
PROBES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, eq=False, kw_only=True)
class Stretch:
    """A piece of a motion between events.

    Attributes
    ----------
    begin : float
        [s], from the start of the motion.
    events : list of Event
        Those where it begins.
    states : (m, n_x)
        Inside of it.
    after : (n_x,)
        Where it begins, after all jumps.
    """

    begin: float
    events: list[Event]
    states: Array
    after: Array


def read(laws: Any, motion: Trajectory, p: Array) -> Sequence:
    """The modes between the events of a motion; events that change nothing are left out.

    Events tell what closes, opens, sticks; the states tell the rest: a solution whose contacts are closed only to the
    error of its discretisation is read like an exact motion. Events closer than `TOGETHER` (relative) are one; between
    them no phase is long enough to count.
    """
    stretches = stretches_of(motion, laws.kinks(motion, p))
    modes = laws.modes_of(stretches, p)
    impacts = [
        laws.struck_at([event.name for event in s.events if event.kind == "impact"], s.after, p) for s in stretches
    ]
    kept = [k for k, mode in enumerate(modes) if k == 0 or mode != modes[k - 1] or impacts[k]]
    times = [stretches[k].begin for k in kept[1:]]
    return written([modes[k] for k in kept], [impacts[k] for k in kept], laws, times)


def stretches_of(motion: Trajectory, more: Iterable[Event] = ()) -> list[Stretch]:
    """A motion in pieces between its events, and some more."""
    t0, duration = motion.t0, motion.duration
    close = TOGETHER * duration
    groups: list[list[Event]] = []
    for event in sorted([*motion.events, *more], key=lambda event: event.time):
        if groups and event.time - groups[-1][-1].time <= close:
            groups[-1].append(event)
        elif event.time - t0 <= close or t0 + duration - event.time > close:
            groups.append([event])
    if not groups or groups[0][0].time - t0 > close:
        groups.insert(0, [])
    begins = [t0, *[group[0].time for group in groups[1:]]]
    lasts = [group[-1].time if group else t0 for group in groups]
    found = []
    for group, begin, last, end in zip(groups, begins, lasts, [*begins[1:], t0 + duration], strict=True):
        states = np.array([motion(last + share * (end - last)) for share in PROBES])
        after = np.array(motion(last, side="+"))
        found.append(Stretch(begin=0.5 * (begin + last) - t0, events=group, states=states, after=after))
    return found


def toggled(stretches: list[Stretch], name: str, on: tuple[str, ...], off: tuple[str, ...]) -> list[bool | None]:
    """Whether something is on in every stretch, by the events that turn it on and off; None where none tells.

    What the first of them turns off was on before it.
    """
    found: list[bool | None] = []
    state: bool | None = None
    for stretch in stretches:
        for event in stretch.events:
            if event.name == name and event.kind in (*on, *off):
                now = event.kind in on
                if state is None:
                    found = [not now if told is None else told for told in found]
                state = now
        found.append(state)
    return found
