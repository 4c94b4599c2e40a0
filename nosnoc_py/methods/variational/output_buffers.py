"""Output of the compiled loop: nodes of the trajectory and impacts, as rows of preallocated arrays.

Rows of numbers, since compiled code cannot append to lists of objects cheaply. The loop tests for room before a step,
never while writing, so that full buffers never cut a step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.flight import State
from nosnoc_py.methods.variational.scene import Contacts
from nosnoc_py.methods.variational.vectors import Matrix

# tr(R_last^T R) of a turn of 1 rad. Nodes must be less than half a turn apart to interpolate the rotation, and a body
# turns by less than 0.6 of half a turn in one flight.
COSINE_TRACE = 1.0 + 2.0 * math.cos(1.0)
# Data of an impact: lambda [N s], v-, v+ [m/s], energy gained, energy clipped [J].
ImpactRow = tuple[float, float, float, float, float]


class OutputBuffers(NamedTuple):
    """Preallocated output arrays of a chunk of steps.

    Attributes
    ----------
    nodes : (rows, 19 + planes)
        t, x, R, gamma, Pi and the gaps.
    events : (rows, 8)
        Time, plane, kind (0: impact, 1: contact that rests from here), lambda, v-, v+, gain, clipped.
    counts : (3,)
        Numbers of nodes, events, and impacts for which algorithm 5.1 has no lambda.
    last : (10,)
        Time and rotation of the last node, which may belong to the previous chunk.
    """

    nodes: np.ndarray
    events: np.ndarray
    counts: np.ndarray
    last: np.ndarray


@jitable
def write_row(output: OutputBuffers, t: float, state: State, contacts: Contacts) -> None:
    """Write a node into the next row without advancing, so that the next node overwrites it."""
    row = output.nodes[output.counts[0]]
    row[0] = t
    for i in range(3):
        row[1 + i] = state[1][i]
        row[13 + i] = state[2][i]
        row[16 + i] = state[4][i]
    for i in range(9):
        row[4 + i] = state[3][i]
    for k in range(contacts.left.shape[0]):
        # The true gap: the loop subtracts the slack, which is an artefact of its own.
        row[19 + k] = contacts.left[k] + contacts.slack[k]


@jitable
def write_node(output: OutputBuffers, t: float, state: State, contacts: Contacts) -> None:
    """Write a node and advance."""
    write_row(output, t, state, contacts)
    output.counts[0] += 1
    output.last[0] = t
    for i in range(9):
        output.last[1 + i] = state[3][i]


@jitable
def write_event(output: OutputBuffers, t: float, plane: int, kind: int, impact: ImpactRow) -> None:
    """Write an event and advance."""
    row = output.events[output.counts[1]]
    row[0], row[1], row[2] = t, plane, kind
    row[3], row[4], row[5], row[6], row[7] = impact
    output.counts[1] += 1


@jitable
def has_turned_far(last: np.ndarray, rotation: Matrix) -> bool:
    """True if the body has turned by more than 1 rad since the last node: tr(R_last^T R) = 1 + 2 cos(angle)."""
    trace = 0.0
    for i in range(9):
        trace += last[1 + i] * rotation[i]
    return trace < COSINE_TRACE
