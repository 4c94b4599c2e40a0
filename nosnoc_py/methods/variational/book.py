"""What the loop writes down: nodes of the trajectory and impacts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.flight import State
from nosnoc_py.methods.variational.scene import Contacts
from nosnoc_py.methods.variational.vectors import Matrix

# Two nodes may not be half a turn apart. A body turns by less than 0.6 of that in one flight.
FAR = 1.0 + 2.0 * math.cos(1.0)
# Energy, impulse and so on of an impact: lambda, v-, v+, gain, clipped.
Strike = tuple[float, float, float, float, float]


class Book(NamedTuple):
    """Buffers.

    Attributes
    ----------
    nodes : (rows, 19 + planes)
        t, x, R, gamma, Pi and the gaps.
    events : (rows, 8)
        Time, plane, kind (0 an impact, 1 a contact that rests from here), lambda, v-, v+, gain, clipped.
    counts : (3,)
        Nodes, events, and impacts whose lambda algorithm 5.1 could not find.
    last : (10,)
        Time and rotation of the last node, which may be in the buffer before.
    """

    nodes: np.ndarray
    events: np.ndarray
    counts: np.ndarray
    last: np.ndarray


@jitable
def put_row(book: Book, t: float, state: State, contacts: Contacts) -> None:
    """Write a node into the next row, where another one may overwrite it."""
    row = book.nodes[book.counts[0]]
    row[0] = t
    for i in range(3):
        row[1 + i] = state[1][i]
        row[13 + i] = state[2][i]
        row[16 + i] = state[4][i]
    for i in range(9):
        row[4 + i] = state[3][i]
    for k in range(contacts.left.shape[0]):
        row[19 + k] = contacts.left[k] + contacts.slack[k]


@jitable
def put_node(book: Book, t: float, state: State, contacts: Contacts) -> None:
    """Write a node."""
    put_row(book, t, state, contacts)
    book.counts[0] += 1
    book.last[0] = t
    for i in range(9):
        book.last[1 + i] = state[3][i]


@jitable
def put_event(book: Book, t: float, plane: int, kind: int, strike: Strike) -> None:
    """Write an event."""
    row = book.events[book.counts[1]]
    row[0], row[1], row[2] = t, plane, kind
    row[3], row[4], row[5], row[6], row[7] = strike
    book.counts[1] += 1


@jitable
def turned_far(last: np.ndarray, rotation: Matrix) -> bool:
    """Whether the body has turned by more than 1 rad since the last node: tr(R_last^T R) = 1 + 2 cos(angle)."""
    trace = 0.0
    for i in range(9):
        trace += last[1 + i] * rotation[i]
    return trace < FAR
