"""Loop over steps of the Lie group variational collision integrator (LGVCI, Algorithms 5.1 and 5.2).

A step of length h consists of segments between impacts. Fly the segment to the end of the step. If a gap is closed
there (or at one of the `samples` equal parts), shorten the segment to the first root of a gap, apply the impact, and
continue with the rest of the step.

Algorithm 5.2: the momenta jump by v+ = -e v-, which conserves H for e = 1 to rounding but is not symplectic at an
impact. Algorithm 5.1: the impulse makes the discrete energies before and after equal (symplectic, H wanders); see
`segments`.

Invariants: after an impact the gap is zero only up to rounding, so its value is stored as `slack` and subtracted until
the gap has opened clearly. Times and translations are not summed over steps. A step that leads to more than
`max_impacts` impacts ends the loop with a code, or lets the body rest (`resting`). Compiled by numba, or interpreted if
the shape is a Python function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.collision import approach, gap_of
from nosnoc_py.methods.variational.flight import Segment, State, discrete_energy, energy_of, free_flight
from nosnoc_py.methods.variational.friction import impact_impulse
from nosnoc_py.methods.variational.output_buffers import (
    OutputBuffers,
    has_turned_far,
    write_event,
    write_node,
    write_row,
)
from nosnoc_py.methods.variational.resting import project_to_rest
from nosnoc_py.methods.variational.scene import (
    AT_REST,
    FINISHED,
    FULL,
    INSTANT,
    TOO_MANY_IMPACTS,
    ZENO,
    Contacts,
    Scene,
    quiet_of,
)
from nosnoc_py.methods.variational.segments import Pending, Trial, first_hit, gaps_open
from nosnoc_py.methods.variational.vectors import Matrix, Vector, cross, dot, plus, times, transposed_times

# Points within this relative height of the lowest one take part in an impact (ties up to rounding).
TIE_HEIGHT = 1e-12
# A gap [m] that has opened by more than this no longer needs the slack of its last impact.
CLEARLY_OPEN = 1e-9
NOT_PENDING: Pending = (False, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.0, 0.0)
# True for a resting body, and the position, rotation and energy to which it may be restored.
Anchor = tuple[bool, Vector, Matrix, float]
# Current segment, the rest of the step in which it began [s], and the number of whole steps since.
Progress = tuple[Segment, float, float]
# Code, the following segment, pending impulse, anchor.
Hit = tuple[int, Segment, Pending, Anchor]
# Code, plane of the last impact, time used, start of the last segment (-1 without an impact), it, its end, anchor.
Step = tuple[int, int, float, float, Segment, State, Anchor]


@jitable
def rests_on_any(at_rest: np.ndarray) -> bool:
    """True if the body rests on a plane."""
    rests = False
    for k in range(at_rest.shape[0]):
        rests = rests or at_rest[k] != 0.0
    return rests


@jitable
def rest_anchor(scene: Scene, contacts: Contacts, segment: Segment) -> Anchor:
    """Return the anchor of a segment: position, rotation and energy at its start if the body rests."""
    if not rests_on_any(contacts.at_rest):
        return False, segment[0], segment[3], 0.0
    _, x, gamma, rotation, spin = free_flight(scene.body, segment, 0.0)
    return True, x, rotation, energy_of(scene.body, x, gamma, spin)


@jitable
def complete_pending_impact(
    scene: Scene, contacts: Contacts, output: OutputBuffers, pending: Pending, trial: Trial
) -> Segment:
    """Complete the event of the last impact of algorithm 5.1, now that its impulse is known; return the segment."""
    solved, value, segment, _ = trial
    x, gamma, _, rotation, spin = segment
    velocity = dot(pending[1], gamma) / scene.body[0] + dot(pending[2], times(scene.body[3], spin))
    row = output.events[output.counts[1] - 1]
    row[3], row[5], row[6] = value, velocity, 0.5 * value * (row[4] + velocity)
    output.counts[2] += 0 if solved else 1
    write_node(output, row[0], (True, x, gamma, rotation, spin), contacts)
    return segment


@jitable
def end_accumulation(
    scene: Scene, contacts: Contacts, output: OutputBuffers, t: float, k: int, speed: float, rests: bool, state: State,
    anchor: Anchor,
) -> Hit:  # fmt: skip
    """Handle accumulating impacts: let the contact rest if the option allows it, else return the reason to stop.

    Impacts accumulate (Zeno) if they lose speed and those within a step approach with at most |g| h.
    """
    _, x, gamma, rotation, spin = state
    segment = (x, gamma, 0.0, rotation, spin)
    slow = scene.planes[k, 4] < 1.0 and -speed * scene.rule.h <= scene.rule.closed
    if not scene.rule.allows_rest or not (rests or slow):
        return (AT_REST if rests else ZENO if slow else TOO_MANY_IMPACTS), segment, NOT_PENDING, anchor
    contacts.at_rest[k], contacts.slack[k] = 1.0, 0.0
    write_event(output, t, k, 1, (0.0, speed, speed, 0.0, 0.0))
    return FINISHED, segment, NOT_PENDING, anchor if anchor[0] else rest_anchor(scene, contacts, segment)


@jitable
def apply_impact(
    scene: Scene, output: OutputBuffers, contacts: Contacts, t: float, k: int, rho: Vector, energy: float, state: State,
    anchor: Anchor,
) -> Hit:  # fmt: skip
    """Apply an impact: the momenta jump (5.2), or the jump becomes pending (5.1)."""
    _, x, gamma, rotation, spin = state
    plane = scene.planes[k]
    value, impulse, torque, before, after, gain, clipped = impact_impulse(plane, scene.body, rotation, rho, gamma, spin)
    write_event(output, t, k, 0, (value, before, after, gain, clipped))
    anchor = (anchor[0], anchor[1], anchor[2], anchor[3] + gain)
    if scene.rule.variational:
        normal = (plane[0], plane[1], plane[2])
        # The impulse of algorithm 5.1 depends on the length of the next segment, see `segments`.
        chi = cross(rho, transposed_times(rotation, normal))
        return FINISHED, (x, gamma, 0.0, rotation, spin), (True, normal, chi, value, energy), anchor
    gamma, spin = plus(gamma, 1.0, impulse), plus(spin, 1.0, torque)
    write_node(output, t, (True, x, gamma, rotation, spin), contacts)
    return FINISHED, (x, gamma, 0.0, rotation, spin), NOT_PENDING, anchor


@jitable
def resolve_contact(
    scene: Scene, contacts: Contacts, output: OutputBuffers, t: float, k: int, s: float, impacts: int, energy: float,
    state: State, anchor: Anchor,
) -> Hit:  # fmt: skip
    """Handle a closed gap of plane k: an impact, a touch without approach, or a resting contact."""
    _, x, gamma, rotation, spin = state
    plane = scene.planes[k]
    contacts.left[:] = contacts.ends
    # Store the rounding error of the gap at the impact, so that the gap starts at exactly zero.
    contacts.slack[k] = gap_of(plane, scene.shape, scene.support, x, rotation)
    contacts.left[k] = 0.0
    if t != output.last[0]:
        write_node(output, t, state, contacts)
    size = 1.0 + abs(plane[3]) + math.sqrt(dot(x, x))
    speed, rho = approach(plane, scene.body, (scene.shape, scene.support), TIE_HEIGHT * size, rotation, gamma, spin)
    # No approach, and none for a whole instant: the contact persists, which impacts cannot resolve.
    touches = speed >= -quiet_of(scene.body, gamma)
    rests = touches and s <= INSTANT * scene.rule.h
    if rests or impacts > scene.rule.max_impacts:
        return end_accumulation(scene, contacts, output, t, k, speed, rests, state, anchor)
    if touches:  # no approach: the velocity opens the gap again
        return FINISHED, (x, gamma, 0.0, rotation, spin), NOT_PENDING, anchor
    return apply_impact(scene, output, contacts, t, k, rho, energy, state, anchor)


@jitable
def advance_step(scene: Scene, contacts: Contacts, output: OutputBuffers, step: int, segment: Segment) -> Step:
    """Advance by one step with all of its impacts, or up to a failure."""
    rule, body = scene.rule, scene.body
    pending, energy, impacts = NOT_PENDING, 0.0, 0
    used, base_time, plane = 0.0, -1.0, -1
    state = (True, segment[0], segment[1], segment[3], segment[4])
    anchor = rest_anchor(scene, contacts, segment)
    while True:
        code, k, s, trial = first_hit(scene, contacts, segment, pending, rule.h - used)
        if code != FINISHED:
            break
        if pending[0]:
            segment = complete_pending_impact(scene, contacts, output, pending, trial)
        state = trial[3]
        used += s
        if k < 0:
            break
        # Algorithm 5.1 conserves the discrete energy of the first segment of the step.
        if rule.variational and not pending[0]:
            _, x, gamma, _, spin = free_flight(body, segment, 0.0)
            _, energy = discrete_energy(body, x, gamma, spin, s)
        plane, base_time, impacts = k, used, impacts + 1
        # Rounding must not move the time into the next step.
        t = min(step * rule.h + used, (step + 1) * rule.h)
        code, segment, pending, anchor = resolve_contact(
            scene, contacts, output, t, k, s, impacts, energy, state, anchor
        )
        if code != FINISHED:
            break
        if contacts.at_rest[k] != 0.0:
            impacts = 0
    return code, plane, used, base_time, segment, state, anchor


@jitable
def carry_gaps(slack: np.ndarray, at_rest: np.ndarray, left: np.ndarray, ends: np.ndarray) -> None:
    """Make the gaps at the end of a segment those at the start of the next one, and update the slack."""
    for k in range(ends.shape[0]):
        left[k] = ends[k]
        if ends[k] > CLEARLY_OPEN:
            left[k], slack[k] = ends[k] + slack[k], 0.0
        elif ends[k] < 0.0 and at_rest[k] == 0.0:  # negative by rounding: the body slides on the plane
            left[k], slack[k] = 0.0, ends[k] + slack[k]


@jitable
def restore_rest(scene: Scene, contacts: Contacts, state: State, anchor: Anchor) -> tuple[Segment, State]:
    """Project a resting body onto its planes; return the segment that begins there, and the state."""
    _, x, rotation, energy = anchor
    state = project_to_rest(scene, contacts.at_rest, contacts.ends, state, (x, rotation, energy))
    for k in range(scene.planes.shape[0]):  # `project_to_rest` returns gaps without slack
        contacts.ends[k] -= contacts.slack[k]
    return (state[1], state[2], 0.0, state[3], state[4]), state


@jitable
def run_steps(
    scene: Scene,
    contacts: Contacts,
    output: OutputBuffers,
    progress: Progress,
    start: int,
    stop: int,
    count: int,
    every: int,
) -> tuple[int, int, int, Progress]:
    """Run steps `start` to `stop` of `count`; fill `output` from its beginning and change `contacts` in place.

    The row after the last node holds the current state. A copy of the loop of `motion.loop.driven`, since numba cannot
    call that; limits and callbacks act between the calls.

    Returns
    -------
    code, steps done, plane of the last impact, progress
    """
    rule, body, shape, support, planes = scene
    slack, at_rest, left, ends = contacts
    counts, last = output.counts, output.last
    counts[:] = 0
    segment, rest, whole = progress
    step, last_plane, code, used = start, -1, FINISHED, 0.0
    # Room for one step with the maximum number of impacts has to remain in the buffers.
    reserve = 2 * (rule.max_impacts + 2) * (planes.shape[0] + 1)
    rows, events = output.nodes.shape[0] - reserve, output.events.shape[0] - reserve
    while step < stop:
        if counts[0] > rows or counts[1] > events:
            code = FULL
            break
        # Fast path: most steps have no contact. Passing the unpacked arrays avoids reference counting and halves the
        # time.
        state = free_flight(body, segment, rule.h)
        free = rule.samples == 1 and state[0] and not rests_on_any(at_rest)
        base, resting = -1.0, False
        if not (free and gaps_open(body, shape, support, planes, slack, ends, segment, state, rule.h)):
            code, plane, used, base, segment, state, anchor = advance_step(scene, contacts, output, step, segment)
            last_plane = plane if plane >= 0 else last_plane
            if code != FINISHED:
                break
            resting = anchor[0]
            if resting:
                segment, state = restore_rest(scene, contacts, state, anchor)
        step, used = step + 1, 0.0
        rest, whole = (0.0, 0.0) if resting else (rule.h - base, 0.0) if base >= 0.0 else (rest, whole + 1.0)
        # Computed from the count of whole steps: a sum over steps would accumulate rounding errors.
        segment = (segment[0], segment[1], rest + whole * rule.h, state[3], state[4])
        carry_gaps(slack, at_rest, left, ends)
        if step % every == 0 or step == count or has_turned_far(last, state[3]):
            write_node(output, step * rule.h, state, contacts)
    t = min(step * rule.h + used, (step + 1) * rule.h)
    write_row(output, t, free_flight(body, segment, 0.0), contacts)
    return code, step, last_plane, (segment, rest, whole)


def versioned(version: str) -> Callable[..., Any]:
    """Return `run_steps` wrapped for one version of its sources, so that numba's cache on disk depends on it."""

    def run_version(*arguments: Any) -> Any:
        _ = version
        return run_steps(*arguments)

    return run_version
