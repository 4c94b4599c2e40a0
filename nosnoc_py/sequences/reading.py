"""Mode sequence of a motion, whatever method computed it.

A motion is cut at its events. In every segment the events decide the mode where they say something (a contact that
closed stays closed until it is released), and samples of the state decide the rest. Events have priority because a
numerical solution satisfies gap = 0 only to its discretisation error, so that its states alone are ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.sequences.plan import sequence_from_modes
from nosnoc_py.solution import Event, Trajectory
from nosnoc_py.solution.sequence import Sequence

Array = np.ndarray
# Events closer than this fraction of the duration are simultaneous: a phase between them would be too short to matter.
TOGETHER = 1e-6
# Places inside a segment, as fractions of its length, at which states are sampled; the middle one decides sides.
PROBES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, eq=False, kw_only=True)
class MotionSegment:
    """Segment of a motion between two events.

    Attributes
    ----------
    begin : float
        Time since the start of the motion [s].
    events : list of Event
        Events at its begin.
    states : (m, n_x)
        Samples inside the segment.
    after : (n_x,)
        State at its begin, after all jumps.
    """

    begin: float
    events: list[Event]
    states: Array
    after: Array


def read_sequence(laws: Any, motion: Trajectory, p: Array) -> Sequence:
    """Return the mode sequence of a motion; events that change no mode are left out.

    Parameters
    ----------
    laws : ModeLaws
        System in its modes.
    motion : Trajectory
    p : (n_p,)
        Parameters.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> from nosnoc_py.sequences.contact_laws import ContactLaws
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q, restitution=0.5)])
    >>> motion = ns.simulate(ball, x0=[1, 0], duration=0.6)
    >>> read_sequence(ContactLaws(ball), motion, np.zeros(0)).items
    ({}, 'impact ground', {})
    """
    segments = segments_of(motion, laws.kinks(motion, p))
    modes = laws.modes_of(segments, p)
    impacts = [
        laws.impact_modes([event.name for event in s.events if event.kind == "impact"], s.after, p) for s in segments
    ]
    # An impact separates phases of the same mode as well.
    first = [k for k, mode in enumerate(modes) if k == 0 or mode != modes[k - 1] or impacts[k]]
    times = [segments[k].begin for k in first[1:]]
    return sequence_from_modes([modes[k] for k in first], [impacts[k] for k in first], laws, times)


def segments_of(motion: Trajectory, more: Iterable[Event] = ()) -> list[MotionSegment]:
    """Return the segments of a motion between its events, and between further ones."""
    t0, duration = motion.t0, motion.duration
    close = TOGETHER * duration
    groups: list[list[Event]] = []
    for event in sorted([*motion.events, *more], key=lambda event: event.time):
        # Compared with the last event of the group: impacts that accumulate are one group, however many.
        if groups and event.time - groups[-1][-1].time <= close:
            groups[-1].append(event)
        # Events at the end begin no phase.
        elif event.time - t0 <= close or t0 + duration - event.time > close:
            groups.append([event])
    if not groups or groups[0][0].time - t0 > close:
        groups.insert(0, [])
    begins = [t0, *[group[0].time for group in groups[1:]]]
    lasts = [group[-1].time if group else t0 for group in groups]
    segments = []
    for group, begin, last, end in zip(groups, begins, lasts, [*begins[1:], t0 + duration], strict=True):
        states = np.array([motion(last + share * (end - last)) for share in PROBES])
        after = np.array(motion(last, side="+"))
        # Simultaneous events of a group span a short time: their middle is the boundary of both segments.
        segments.append(MotionSegment(begin=0.5 * (begin + last) - t0, events=group, states=states, after=after))
    return segments


def active_in_segments(
    segments: list[MotionSegment], name: str, on: tuple[str, ...], off: tuple[str, ...]
) -> list[bool | None]:
    """Return for every segment if a condition is active, by the events that begin and end it; None if unknown.

    The first such event also decides the segments before it: a condition that it ends was active until then.
    """
    active: list[bool | None] = []
    state: bool | None = None
    for segment in segments:
        for event in segment.events:
            if event.name == name and event.kind in (*on, *off):
                now = event.kind in on
                if state is None:
                    active = [not now if known is None else known for known in active]
                state = now
        active.append(state)
    return active
