"""Colouring of contacts: contacts of one colour share no body, so that a sweep may treat them at once.

A Gauss-Seidel sweep solves one contact after another. Contacts without a common body do not influence each other, and
NumPy can solve all of them in one operation. The colouring is greedy, which is enough: the number of colours only
determines the number of vector operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from nosnoc_py.compiled import compiled_as, jitable


class Colouring(NamedTuple):
    """Order of contacts by colour.

    Attributes
    ----------
    order : (m,) int
        Positions of the sorted contacts among the given ones.
    ends : (n + 1,) int
        First contact of every colour in this order, and their number.
    """

    order: np.ndarray
    ends: np.ndarray


class Bodies(NamedTuple):
    """Bodies of every contact.

    Attributes
    ----------
    table : (n_c, B) int
        -1 for none.
    size : int
        Number of bodies; 0 if the mass matrix couples them, so that every contact needs a colour of its own.
    """

    table: np.ndarray
    size: int


@jitable
def one_by_one(count: int) -> Colouring:
    """Return a colour for every contact."""
    return Colouring(np.arange(count), np.arange(count + 1))


@jitable
def colouring_of(bodies: Bodies, contacts: np.ndarray) -> Colouring:
    """Colour the contacts (m,) greedily."""
    if bodies.size == 0:
        return one_by_one(contacts.size)
    degrees, width = np.zeros(bodies.size, dtype=np.int64), bodies.table.shape[1]
    for contact in contacts:
        for body in bodies.table[contact]:
            if body >= 0:
                degrees[body] += 1
    # A contact avoids the colours of all others at its bodies.
    taken = np.zeros((bodies.size, 1 + width * degrees.max()), dtype=np.bool_)
    colours, most = np.zeros(contacts.size, dtype=np.int64), 0
    for k in range(contacts.size):
        own, free = bodies.table[contacts[k]], False
        while not free:
            free = True
            for body in own:
                free = free and not (body >= 0 and taken[body, colours[k]])
            colours[k] += not free
        for body in own:
            if body >= 0:
                taken[body, colours[k]] = True
        most = max(most, colours[k] + 1)
    ends = np.zeros(most + 1, dtype=np.int64)
    for colour in colours:
        ends[colour + 1] += 1
    return Colouring(np.argsort(colours, kind="mergesort"), np.cumsum(ends))


class Colours:
    """Function contacts -> `Colouring`; the last result is cached, because few steps change the set of contacts."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies, self._key, self._last = bodies, b"", one_by_one(0)

    def __call__(self, contacts: np.ndarray) -> Colouring:
        """Colour the contacts (m,)."""
        key = contacts.tobytes()
        if key != self._key:
            self._key, self._last = key, colouring_of(self.bodies, contacts)
        return self._last


@compiled_as(colouring_of)
def coloured(colours: Colours, contacts: np.ndarray) -> Colouring:
    """Colour the contacts (m,); kernels have the bodies in place of the cache."""
    return colours(contacts)


def bodies_of(dofs: np.ndarray, n_v: int, coupled: bool) -> Bodies:
    """Return the bodies of contacts with coordinates (n_c, K): those that belong to the same contacts are one body.

    Bodies are coupled if the mass matrix couples their coordinates.
    """
    if coupled:
        return Bodies(np.zeros((0, 0), dtype=np.int64), 0)
    touched: dict[int, list[int]] = {}
    for contact, row in enumerate(dofs.tolist()):
        for dof in _real(row, n_v):
            touched.setdefault(dof, []).append(contact)
    labels: dict[tuple[int, ...], int] = {}
    body = {dof: labels.setdefault(tuple(contacts), len(labels)) for dof, contacts in touched.items()}
    own = [sorted({body[dof] for dof in _real(row, n_v)}) for row in dofs.tolist()]
    table = np.full((len(own), max(map(len, own), default=0)), -1, dtype=np.int64)
    for row, bodies in zip(table, own, strict=True):
        row[: len(bodies)] = bodies
    return Bodies(table, max(1, len(labels)))


def _real(row: Iterable[int], n_v: int) -> Iterable[int]:
    """Return the coordinates in a row without its padding, which is n_v."""
    return (dof for dof in row if dof < n_v)
