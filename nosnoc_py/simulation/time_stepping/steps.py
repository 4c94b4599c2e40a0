"""Several steps in one call, with what is recorded of them: compiled by numba, or interpreted one by one.

The compilation goes on beside the work, as that of the loop of event-driven simulation: see `compiled.beside`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from nosnoc_py import contact_problems, motion
from nosnoc_py.compiled import jitable, versioned_beside
from nosnoc_py.contact_problems.colours import Bodies
from nosnoc_py.contact_problems.cones import corners_of
from nosnoc_py.contact_problems.projected import Projected
from nosnoc_py.motion.tape import no_tape
from nosnoc_py.simulation import time_stepping
from nosnoc_py.simulation.time_stepping.dynamics import ModelSizes, StepModel
from nosnoc_py.simulation.time_stepping.scheme import SteppingRule, StepResult, step

Array = np.ndarray
RUNNING, FULL, LOST, GAIN = range(4)
"""Why steps end: all are done; no room for another one; numbers are not finite; an impact would gain energy."""
RESIDUAL, PUSH, FASTEST, WORK, PENETRATION = range(5)
"""Columns of `LeapRows.measures`."""
TAKEN, CONTACTS, CHANGES, REFUSED = range(4)
"""Entries of `LeapRows.counts`."""
LEAP = 100
"""Most steps in a call."""


class LeapPlace(NamedTuple):
    """Where a simulation is; changed in place.

    Attributes
    ----------
    x : (n_x,)
    last : (n_c, w)
        Impulses of the last step.
    begun : (1,) bool
        Whether a step has been taken.
    loaded, touching, slipping : (n_c,) bool
        Contacts with an impulse in the last step, those that are closed, and those that slip.
    """

    x: Array
    last: Array
    begun: Array
    loaded: Array
    touching: Array
    slipping: Array


class LeapRows(NamedTuple):
    """What is recorded of k steps; contacts of all steps follow each other.

    Attributes
    ----------
    x : (k, n_x)
        States at the ends.
    ends : (k,) int
        Numbers of contacts until the ends.
    sweeps : (k,) int
    impacts : (k,) bool
        Whether a contact is hit.
    measures : (k, 5)
        Residual, push and work of a `StepResult`, its penetration, and the fastest approach.
    contacts, impulses, approach, after : (m,), (m, w), (m,), (m, w)
        As those of `StepResult`.
    marks : (m,) bool
        Contacts that have been open and are hit.
    changes : (n, 6) int
        Changes of modes: step, contact, closed before and now, slipping before and now.
    counts : (4,) int
        Numbers of steps, contacts and changes; of contacts with those of a step that gains energy.
    """

    x: Array
    ends: Array
    sweeps: Array
    impacts: Array
    measures: Array
    contacts: Array
    impulses: Array
    approach: Array
    after: Array
    marks: Array
    changes: Array
    counts: Array


def rows_of(steps: int, contacts: int, n_x: int, width: int) -> LeapRows:
    """Return room for some steps and contacts."""
    return LeapRows(
        x=np.zeros((steps, n_x)),
        ends=np.zeros(steps, dtype=np.int64),
        sweeps=np.zeros(steps, dtype=np.int64),
        impacts=np.zeros(steps, dtype=bool),
        measures=np.zeros((steps, 5)),
        contacts=np.zeros(contacts, dtype=np.int64),
        impulses=np.zeros((contacts, width)),
        approach=np.zeros(contacts),
        after=np.zeros((contacts, width)),
        marks=np.zeros(contacts, dtype=bool),
        changes=np.zeros((contacts, 6), dtype=np.int64),
        counts=np.zeros(4, dtype=np.int64),
    )


def place_of(x: Array, count: int, width: int) -> LeapPlace:
    """Return the start of a simulation with some contacts."""
    none = [np.zeros(count, dtype=bool) for _ in range(3)]
    return LeapPlace(np.array(x, dtype=float), np.zeros((count, width)), np.zeros(1, dtype=bool), *none)


@jitable
def leap(model: StepModel, scheme: SteppingRule, place: LeapPlace, rows: LeapRows, u: Array) -> int:
    """Take a step for every control (k, n_u), and record them; return why they end.

    The contacts of a step that gains energy follow those of the steps that are recorded.
    """
    rows.counts[:] = 0
    for k in range(u.shape[0]):
        result = step(model, scheme, place.last, place.begun[0], place.x, u[k])
        if not result.known:
            return LOST
        first, changes = rows.counts[CONTACTS], rows.counts[CHANGES]
        end = first + result.contacts.size
        if end > rows.contacts.size:
            return FULL
        rows.contacts[first:end], rows.approach[first:end] = result.contacts, result.approach
        rows.impulses[first:end], rows.after[first:end] = result.impulses, result.after
        if result.gain > 0.0:
            rows.counts[REFUSED] = end
            return GAIN
        loaded = result.impulses[:, 0] > 0.0
        touching, slipping, now = _modes(model, scheme, place, result, loaded)
        both = place.loaded & now & place.touching
        # Slip starts or ends only between two steps with a force: a step without force has no information about it.
        slides = model.has_friction & both & (slipping != place.slipping)
        changed = np.flatnonzero((touching != place.touching) | slides)
        if changes + changed.size > rows.changes.shape[0]:
            return FULL
        for c in changed:
            rows.changes[changes, 0], rows.changes[changes, 1] = k, c
            rows.changes[changes, 2], rows.changes[changes, 3] = place.touching[c], touching[c]
            rows.changes[changes, 4], rows.changes[changes, 5] = place.slipping[c], slipping[c]
            changes += 1
        # A contact that has been touching is no impact, however fast rounding or other contacts move it.
        hit = result.approach < -scheme.impact_velocity
        rows.marks[first:end] = loaded & hit & ~place.touching[result.contacts]
        rows.impacts[k], rows.sweeps[k], rows.ends[k] = hit.any(), result.sweeps, end
        rows.measures[k, RESIDUAL], rows.measures[k, PUSH] = result.residual, result.push
        rows.measures[k, FASTEST] = np.abs(result.approach).max() if end > first else 0.0
        rows.measures[k, WORK], rows.measures[k, PENETRATION] = result.work, result.penetration
        rows.x[k] = model.state
        rows.counts[TAKEN], rows.counts[CONTACTS], rows.counts[CHANGES] = k + 1, end, changes
        place.x[:], place.begun[0], place.last[:] = model.state, True, 0.0
        place.last[result.contacts] = result.impulses
        place.loaded[:], place.touching[:], place.slipping[:] = now, touching, slipping
    return RUNNING


@jitable
def _modes(
    model: StepModel, scheme: SteppingRule, place: LeapPlace, result: StepResult, loaded: Array
) -> tuple[Array, Array, Array]:
    """Return which contacts are closed after a step, which of them slip, and which have an impulse in it.

    A contact closes by two steps in a row with an impulse and opens by two without one: a single step is a bounce or
    rounding.
    """
    now, slips = np.zeros_like(place.loaded), np.zeros_like(place.loaded)
    now[result.contacts] = loaded
    slips[result.contacts] = np.sqrt((result.after[:, 1:] ** 2).sum(axis=1)) > scheme.rest_velocity
    touching = (place.touching | (now & place.loaded)) & (now | place.loaded)
    return touching, np.where(now, slips, place.slipping), now


def versioned(version: str) -> Any:
    """Return `leap` wrapped for one version of its sources, so that numba's cache on disk depends on it."""

    def leap_version(model: StepModel, scheme: SteppingRule, place: LeapPlace, rows: LeapRows, u: Array) -> int:
        _ = version
        return leap(model, scheme, place, rows, u)

    leap_version.__qualname__ = f"leap_{version[:16]}"
    return leap_version


@functools.cache
def compiled_leap() -> Any:
    """Return the compiled `leap`, None to use the interpreted one."""
    modules = (contact_problems, motion, time_stepping)
    return versioned_beside(versioned, modules, run_once, f"{__name__}:compiled_leap")


def run_once(made: Any) -> None:
    """Call `leap` with arguments of all its types, which compiles it or reads it from the disk."""
    numbers, vector, matrix = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, 0))
    model = StepModel(
        sizes=ModelSizes(0, 0, 0, 0, 0, 1, False, True, True, 0),
        before=no_tape(),
        after=no_tape(),
        argument=vector,
        out=vector,
        argument_after=vector,
        state=vector,
        dofs=np.zeros((0, 0), dtype=np.int64),
        places=numbers,
        colours=Bodies(np.zeros((0, 0), dtype=np.int64), 0),
        inverse=matrix,
        friction=vector,
        sticking=vector,
        restitution=vector,
        has_friction=np.zeros(0, dtype=bool),
    )
    scheme = SteppingRule(1.0, 0.5, False, 0.0, 0.0, Projected(0.0, 1, True, corners_of(None)))
    made(model, scheme, place_of(vector, 0, 1), rows_of(1, 0, 0, 1), matrix)
