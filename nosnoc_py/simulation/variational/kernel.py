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
from nosnoc_py.simulation.variational.collision import Shape, Support, approach, gap_of
from nosnoc_py.simulation.variational.flight import (
    Body,
    Segment,
    State,
    discrete_energy,
    energy_of,
    flown,
    parts_of,
)
from nosnoc_py.simulation.variational.friction import struck
from nosnoc_py.simulation.variational.resting import REST, rested
from nosnoc_py.simulation.variational.segments import FINISHED, FULL, ROTATION, ZENO, Pending, Rule, first_hit
from nosnoc_py.simulation.variational.vectors import cross, dot, plus, times, transposed_times

# Points of a body that are as low as the lowest one, but for rounding, take part in an impact.
TIE = 1e-12
# A gap that was seen open by so much starts to be measured anew, without the rounding error at its last impact.
OPEN = 1e-9


@jitable
def put_node(nodes: np.ndarray, rows: int, t: float, state: State, planes: np.ndarray, gaps: np.ndarray) -> int:
    """Write t, x, R, gamma, Pi and the gaps into the next row."""
    row = nodes[rows]
    row[0] = t
    for i in range(3):
        row[1 + i] = state[1][i]
        row[13 + i] = state[2][i]
        row[16 + i] = state[4][i]
    for i in range(9):
        row[4 + i] = state[3][i]
    for k in range(planes.shape[0]):
        row[19 + k] = gaps[k]
    return rows + 1


@jitable
def put_event(
    events: np.ndarray, count: int, t: float, plane: int, kind: int, strike: tuple[float, float, float, float, float]
) -> int:
    """Write time, plane, kind (0 an impact, 1 a contact that rests from here), lambda, v-, v+, gain, clipped."""
    row = events[count]
    row[0], row[1], row[2] = t, plane, kind
    row[3], row[4], row[5], row[6], row[7] = strike
    return count + 1


@jitable
def run_steps(
    rule: Rule,
    body: Body,
    shape: Shape,
    support: Support,
    planes: np.ndarray,
    memory: np.ndarray,
    work: np.ndarray,
    start: int,
    stop: int,
    every: int,
    nodes: np.ndarray,
    events: np.ndarray,
) -> tuple[int, int, int, int, int, int]:
    """Steps `start` to `stop`; buffers are filled with nodes (19 + planes columns) and events (8 columns).

    `memory` (21,) holds the base of the segment (3), its momentum (3), the rest of the step in which it began, R (9),
    Pi (3), the time of the last node, and the number of whole steps since; `work` (4, planes) what is known of every
    plane: slack, settled, gap at the left end, a workspace. Both are changed.

    Returns
    -------
    code, steps done, rows of nodes, of events, plane of the last impact, impacts whose lambda 5.1 could not find
    """
    h, _, exponential, variational, _, most, finest, settle = rule
    slack, settled, left, ends = work[0], work[1], work[2], work[3]
    segment: Segment = (
        (memory[0], memory[1], memory[2]),
        (memory[3], memory[4], memory[5]),
        memory[6] + memory[20] * h,
        (
            memory[7], memory[8], memory[9], memory[10], memory[11], memory[12], memory[13], memory[14], memory[15],
        ),
        (memory[16], memory[17], memory[18]),
    )  # fmt: skip
    rest, whole, written, used = memory[6], memory[20], memory[19], 0.0
    rows, happened, missed, where, code = 0, 0, 0, -1, FINISHED
    none: Pending = (False, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.0, 0.0)
    step, reserve = start, 2 * (most + 2) * (planes.shape[0] + 1)
    while step < stop and code == FINISHED:
        if rows + reserve > nodes.shape[0] or happened + reserve > events.shape[0]:
            code = FULL
            break
        impacts, pending, energy = 0, none, 0.0
        resting = False
        for j in range(planes.shape[0]):
            resting = resting or settled[j] != 0.0
        anchor = (segment[0], segment[3], 0.0)
        if resting:
            _, x, gamma, rotation, spin = flown(body, exponential, 1, segment, 0.0)
            anchor = (x, rotation, energy_of(body, x, gamma, spin))
        while True:
            parts = parts_of(body, exponential, finest, segment[4], h - used)
            if parts == 0:
                code = ROTATION
                break
            code, k, s, found = first_hit(
                rule, body, shape, support, planes, segment, pending, h - used, parts, slack, settled, left, ends
            )
            if code != FINISHED:
                break
            if pending[0]:  # now that the length of its segment is known, the last impact is, too
                solved, value, fresh, _ = found
                velocity = dot(pending[1], fresh[1]) / body[0] + dot(pending[2], times(body[3], fresh[4]))
                row = events[happened - 1]
                row[3], row[5], row[6] = value, velocity, 0.5 * value * (row[4] + velocity)
                missed += 0 if solved else 1
                rows = put_node(nodes, rows, written, (True, fresh[0], fresh[1], fresh[3], fresh[4]), planes, left)
                segment = fresh
            state = found[3]
            if k < 0:
                break
            used += s
            t = step * h + used
            where = k
            for j in range(planes.shape[0]):
                left[j] = ends[j]
            if t != written:
                rows = put_node(nodes, rows, t, state, planes, left)
                written = t
            # algorithm 5.1 keeps the discrete energy of the first segment of the step through all of it
            if variational and not pending[0]:
                _, x, gamma, _, spin = flown(body, exponential, 1, segment, 0.0)
                _, energy = discrete_energy(body, exponential, x, gamma, spin, s)
            pending, rest, whole = none, h - used, -1.0  # the base of the next segment is here
            _, x, gamma, rotation, spin = state
            size = 1.0 + abs(planes[k, 3]) + math.sqrt(dot(x, x))
            speed, rho = approach(planes[k], body, shape, support, TIE * size, rotation, gamma, spin)
            quiet = REST * (1.0 + math.sqrt(dot(gamma, gamma)) / body[0])
            impacts += 1
            slack[k] = gap_of(planes[k], shape, support, x, rotation)
            left[k] = 0.0
            if impacts > most or (speed >= -quiet and s <= 1e-15 * h):
                segment = (x, gamma, 0.0, rotation, spin)
                if not settle:
                    code = ZENO
                    break
                settled[k], slack[k], impacts = 1.0, 0.0, 0
                happened = put_event(events, happened, t, k, 1, (0.0, speed, speed, 0.0, 0.0))
                if not resting:
                    resting, anchor = True, (x, rotation, energy_of(body, x, gamma, spin))
                continue
            if speed >= -quiet:  # a touch: the exact velocity opens the gap again
                segment = (x, gamma, 0.0, rotation, spin)
                continue
            value, impulse, torque, before, after, gain, clipped = struck(
                planes[k], planes[k, 4], body, rotation, rho, gamma, spin
            )
            happened = put_event(events, happened, t, k, 0, (value, before, after, gain, clipped))
            anchor = (anchor[0], anchor[1], anchor[2] + gain)
            if variational:
                normal = (planes[k, 0], planes[k, 1], planes[k, 2])
                chi = cross(rho, transposed_times(rotation, normal))
                pending = (True, normal, chi, value, energy)
                segment = (x, gamma, 0.0, rotation, spin)
            else:
                gamma, spin = plus(gamma, 1.0, impulse), plus(spin, 1.0, torque)
                segment = (x, gamma, 0.0, rotation, spin)
                rows = put_node(nodes, rows, t, (True, x, gamma, rotation, spin), planes, left)
        if code != FINISHED:
            break
        step += 1
        if resting:
            state = rested(rule, body, shape, support, planes, settled, ends, state, anchor)
            rest, whole = 0.0, 0.0
            segment = (state[1], state[2], 0.0, state[3], state[4])
        else:
            whole += 1.0
            # not summed up over the steps, where its rounding errors would
            segment = (segment[0], segment[1], rest + whole * h, state[3], state[4])
        used = 0.0
        for j in range(planes.shape[0]):
            left[j] = ends[j]
            if ends[j] > OPEN:
                left[j], slack[j] = ends[j] + slack[j], 0.0
        if step % every == 0 or step == stop:
            rows = put_node(nodes, rows, step * h, state, planes, left)
            written = step * h
    base, momentum, _, rotation, spin = segment
    if code != FINISHED and code != FULL and step * h + used > written:
        written = step * h + used
        rows = put_node(nodes, rows, written, flown(body, exponential, 1, segment, 0.0), planes, left)
    for i in range(3):
        memory[i], memory[3 + i], memory[16 + i] = base[i], momentum[i], spin[i]
    for i in range(9):
        memory[7 + i] = rotation[i]
    memory[6], memory[19], memory[20] = rest, written, whole
    return code, step, rows, happened, where, missed


def versioned(version: str) -> Callable[..., Any]:
    """`run_steps`, as another function for every version of its sources."""

    def run_version(*arguments: Any) -> Any:
        _ = version
        return run_steps(*arguments)

    return run_version
