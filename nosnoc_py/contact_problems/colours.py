"""Sets of contacts that share no body: a sweep may treat all contacts of one set at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False, kw_only=True)
class Colouring:
    """Contacts in the order of their colours.

    Attributes
    ----------
    order : (m,) int
        Positions among the contacts that were given.
    parts : tuple of slices
        One for every colour, in that order.
    """

    order: np.ndarray
    parts: tuple[slice, ...]

    @cached_property
    def sorted(self) -> bool:
        """Whether the order is that of the contacts."""
        return bool((np.diff(self.order) > 0).all())


class Colours:
    """Colours sets of contacts; the last set is remembered, because few steps change it."""

    def __init__(self, dofs: np.ndarray, n_v: int, coupled: bool) -> None:
        """`dofs` (n_c, K) of all contacts; with `coupled` bodies every contact has a colour of its own."""
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
        taken: dict[int, int] = {}  # the colours at a body, as bits
        colours = np.empty(contacts.size, dtype=int)
        for k, contact in enumerate(contacts.tolist()):
            bodies = self._bodies[contact]
            used = 0
            for body in bodies:
                used |= taken.get(body, 0)
            free = ~used & (used + 1)  # the lowest bit that is not set
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
    """What every contact touches, where coordinates that are touched by the same contacts only count as one."""
    touched: dict[int, list[int]] = {}
    for contact, row in enumerate(dofs.tolist()):
        for dof in _real(row, n_v):
            touched.setdefault(dof, []).append(contact)
    labels: dict[tuple[int, ...], int] = {}
    body = {dof: labels.setdefault(tuple(contacts), len(labels)) for dof, contacts in touched.items()}
    return [tuple({body[dof] for dof in _real(row, n_v)}) for row in dofs.tolist()]


def _real(row: Iterable[int], n_v: int) -> Iterable[int]:
    return (dof for dof in row if dof < n_v)
