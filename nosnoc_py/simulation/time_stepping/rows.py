"""Gaps and contact directions of many contacts at one configuration, as rows with few entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.systems.cls import CLS, Contact

Entries = list[tuple[int, int, Any]]


class ContactRows(NamedTuple):
    """Normals and weighted tangents as rows over the few coordinates that each contact depends on.

    Attributes
    ----------
    dofs : (n_c, K) int
        Coordinates of every contact; where it has fewer than K, n_v stands for none. Contacts that move by themselves
        have their rates there: velocities are padded by a 1 that no impulse changes.
    places : (e,) int
        Positions of the entries in the flat array of rows (n_c, width, K), normals first.
    width : int
        Rows of a contact: the normal, and as many tangents as the contact with most of them has.
    values : (e,) SX
        Entries, as expressions of x and p.
    """

    dofs: np.ndarray
    places: np.ndarray
    width: int
    values: ca.SX


def rows_of(system: CLS) -> ContactRows:
    """Return the rows of all contacts of a system."""
    frames = system.mechanics.frames
    width = 1 + max((frames.width(c) for c in range(frames.count)), default=0)
    index = {symbol.element_hash(): k for k, symbol in enumerate(system.q.nonzeros())}
    entries = [_entries(system, contact, index) for contact in system.contacts]
    dofs, places = _places([[entry[:2] for entry in each] for each in entries], width, system.n_v)
    return ContactRows(dofs, places, width, ca.vertcat(ca.SX(0, 1), *[e[2] for each in entries for e in each]))


def _entries(system: CLS, contact: Contact, index: dict[int, int]) -> Entries:
    """Return the entries (row, coordinate, expression) of a contact that are not structurally zero."""
    if contact.normal is None and system.moves_by_v:  # gradients by a few coordinates: there may be many contacts
        symbols = [s for s in ca.symvar(contact.gap) if s.element_hash() in index]
        slopes = ca.gradient(contact.gap, ca.vertcat(*symbols)).elements()
        entries = [(0, index[s.element_hash()], slope) for s, slope in zip(symbols, slopes, strict=True)]
    else:
        entries = _column(system.normal(contact), 0, 1.0)
    if contact.frictional:
        for k, weight in enumerate(ca.vertsplit(contact.cone[1])):
            entries += _column(contact.tangent[:, k], 1 + k, weight)
            if not contact.surface_velocity[k].is_zero():
                # Rate of a tangent relative to a moving surface: t' v - v_s, with the padded velocity 1.
                entries.append((1 + k, system.n_v, -weight * contact.surface_velocity[k]))
    if ca.depends_on(contact.gap, system.y):
        # A gap that depends on y changes without velocity: this rate also belongs to the padded velocity.
        entries.append((0, system.n_v, ca.jtimes(contact.gap, system.y, system.y_rate)))
    return entries


def _column(vector: ca.SX, row: int, weight: Any) -> Entries:
    """Return the entries of a sparse vector as a row."""
    sparse = ca.sparsify(vector)
    return [(row, dof, weight * value) for dof, value in zip(sparse.sparsity().row(), sparse.nonzeros(), strict=True)]


def _places(entries: Sequence[Sequence[tuple[int, int]]], width: int, n_v: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates of each contact, and the positions of its entries in the flat array of rows."""
    owned = [sorted({dof for _, dof in each}) for each in entries]
    most = max((len(dofs) for dofs in owned), default=0)
    # Unused places point to the padded velocity, where their entries are zero.
    table = np.full((len(owned), most), n_v, dtype=np.int64)
    places = []
    for c, (dofs, each) in enumerate(zip(owned, entries, strict=True)):
        table[c, : len(dofs)] = dofs
        column = {dof: k for k, dof in enumerate(dofs)}
        places += [(c * width + row) * most + column[dof] for row, dof in each]
    return table, np.array(places, dtype=np.int64)
