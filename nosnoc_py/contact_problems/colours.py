"""Colouring of contacts: contacts of one colour share no body, so that a sweep may treat them at once.

A Gauss-Seidel sweep solves one contact after another. Contacts without a common body do not influence each other, and
NumPy can solve all of them in one operation. The colouring is greedy, which is enough: the number of colours only
determines the number of vector operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False, kw_only=True)
class Colouring:
    """Order of contacts by colour.

    Attributes
    ----------
    order : (m,) int
        Positions of the sorted contacts among the given ones.
    parts : tuple of slices
        Slices of `order`, one for every colour.
    """

    order: np.ndarray
    parts: tuple[slice, ...]

    @cached_property
    def sorted(self) -> bool:
        """True if the order is that of the contacts."""
        return bool((np.diff(self.order) > 0).all())


class Colours:
    """Function contacts -> `Colouring`; the last result is cached, because few steps change the set of contacts."""

    def __init__(self, dofs: np.ndarray, n_v: int, coupled: bool) -> None:
        """Store the coordinates `dofs` (n_c, K) of all contacts; `coupled` gives every contact a colour of its own.

        Bodies are coupled if the mass matrix couples their coordinates.
        """
        self._bodies = None if coupled else _bodies(dofs, n_v)
        self._key, self._last = b"", Colouring(order=np.zeros(0, dtype=int), parts=())

    def __call__(self, contacts: np.ndarray) -> Colouring:
        """Colour the contacts (m,) greedily."""
        key = contacts.tobytes()
        if key != self._key:
            self._key, self._last = key, self._colour(contacts)
        return self._last

    def _colour(self, contacts: np.ndarray) -> Colouring:
        if self._bodies is None:
            return _colouring(np.arange(contacts.size))
        taken: dict[int, int] = {}  # colours used at a body, as bits
        colours = np.empty(contacts.size, dtype=int)
        for k, contact in enumerate(contacts.tolist()):
            bodies = self._bodies[contact]
            used = 0
            for body in bodies:
                used |= taken.get(body, 0)
            free = ~used & (used + 1)  # lowest bit that is not set
            for body in bodies:
                taken[body] = taken.get(body, 0) | free
            colours[k] = free.bit_length() - 1
        return _colouring(colours)


def _colouring(colours: np.ndarray) -> Colouring:
    order = np.argsort(colours, kind="stable")
    sizes = np.bincount(colours) if colours.size else np.zeros(0, dtype=int)
    ends = np.cumsum(sizes).tolist()
    return Colouring(order=order, parts=tuple(slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=False)))


def _bodies(dofs: np.ndarray, n_v: int) -> Sequence[tuple[int, ...]]:
    """Return the bodies of every contact: coordinates that belong to the same contacts count as one body."""
    touched: dict[int, list[int]] = {}
    for contact, row in enumerate(dofs.tolist()):
        for dof in _real(row, n_v):
            touched.setdefault(dof, []).append(contact)
    labels: dict[tuple[int, ...], int] = {}
    body = {dof: labels.setdefault(tuple(contacts), len(labels)) for dof, contacts in touched.items()}
    return [tuple({body[dof] for dof in _real(row, n_v)}) for row in dofs.tolist()]


def _real(row: Iterable[int], n_v: int) -> Iterable[int]:
    """Return the coordinates in a row without its padding, which is n_v."""
    return (dof for dof in row if dof < n_v)
