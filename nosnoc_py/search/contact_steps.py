"""Mode sequences of motions on a grid of times, whose contacts are closed and slip in whole steps.

Motions of this kind obey no law of rigid contacts: those with springs in place of contacts, and those that are drawn.
Events cannot be located on them, so that steps are what is known: single ones are left out where there are many.
"""

from __future__ import annotations

from collections.abc import Sequence as Listing
from itertools import groupby, pairwise

import numpy as np

from nosnoc_py.search.stances import Proposal
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.equations import Mode
from nosnoc_py.sequences.plan import sequence_from_modes
from nosnoc_py.solution import Trajectory

Array = np.ndarray
# Phases of fewer steps are left out: the time of an event is not known better.
SHORT = 2


def contact_modes(
    laws: ContactLaws, closed: Array, slips: Array, rates: Array, soft: Listing[Listing[str]]
) -> list[Mode]:
    """Return the modes of all contacts in every step.

    Parameters
    ----------
    laws : ContactLaws
    closed, slips : (steps, n_c) bool
        Of the rigid contacts.
    rates : (steps, n_c + n_t)
        Their gap rates and slips, whose signs are directions.
    soft : steps lists of modes
        Of the compliant contacts.
    """
    columns = [
        [
            laws.slip_word(c, rates[k], slips=slips[k, c]) if closed[k, c] else laws.default(laws.names[c])
            for k in range(len(closed))
        ]
        for c in range(closed.shape[1])
    ]
    hard = list(zip(*columns, strict=True)) if columns else [()] * len(closed)
    return [(*mode, *more) for mode, more in zip(hard, soft, strict=True)]


def proposal_of(
    laws: ContactLaws, motion: Trajectory, grid: Array, words: list[Mode], short: int = SHORT, bounces: Listing = ()
) -> Proposal:
    """Return a motion with the sequence of its steps.

    Parameters
    ----------
    laws : ContactLaws
    motion : Trajectory
    grid : (steps + 1,)
        Ends of the steps [s].
    words : list of Mode
        Modes in every step.
    short : int
        Phases of fewer steps are left out.
    bounces : sequence of (float, str)
        Impacts [s] after which the contact is open again, in the order of their times.
    """
    phases = long_phases(words, short)
    times = [float(t) for t in grid[np.cumsum([0, *(count for _, count in phases)])[:-1]]]
    modes, impacts = [mode for mode, _ in phases], [dict[str, str]()]
    for before, after in pairwise(modes):
        # Compliant contacts, which come last, have no impacts.
        changed = zip(laws.frames.names, before, after, strict=False)
        impacts.append({name: is_ for name, was, is_ in changed if was == laws.default(name) != is_})
    for time, name in bounces:
        k = int(np.searchsorted(times, time, "right")) - 1
        if time > times[k]:
            k += 1
            times.insert(k, time)
            modes.insert(k, modes[k - 1])
            impacts.insert(k, {})
        # An impact before the first phase would be that of the initial state.
        impacts[k] |= {name: laws.mode_names(name)[1]} if k else {}
    return Proposal(sequence=sequence_from_modes(modes, impacts, laws, times[1:]), motion=motion)


def lasting(condition: Array) -> Array:
    """Return a condition (steps,) of which single steps are removed: the majority of three."""
    padded = np.concatenate([condition[:1], condition, condition[-1:]]).astype(int)
    return np.asarray(padded[:-2] + padded[1:-1] + padded[2:] >= 2)


def long_phases(words: list[Mode], short: int = SHORT) -> list[tuple[Mode, int]]:
    """Return the modes of phases with their numbers of steps; short ones become part of the neighbour most alike."""
    phases = [(mode, len(list(group))) for mode, group in groupby(words)]
    while len(phases) > 1 and min(count for _, count in phases) < short:
        k = min(range(len(phases)), key=lambda k: phases[k][1])
        mode, count = phases.pop(k)
        near = [i for i in (k - 1, k) if 0 <= i < len(phases)]
        most = max(near, key=lambda i: sum(a == b for a, b in zip(phases[i][0], mode, strict=True)))
        phases[most] = phases[most][0], phases[most][1] + count
        # Both neighbours may now be of one mode.
        merged = groupby(phases, key=lambda phase: phase[0])
        phases = [(mode, sum(count for _, count in group)) for mode, group in merged]
    return phases
