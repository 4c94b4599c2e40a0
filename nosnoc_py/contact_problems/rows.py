"""Contact problems by rows: every contact with the few coordinates on which it depends, for many contacts.

The Delassus matrix is never formed: sweeps need only products of one contact with its own coordinates, so that memory
and time are linear in the number of contacts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False, kw_only=True)
class RowProblem:
    """Contact problem 0 <= f_n perp r_n - c >= 0 with Coulomb's law for f_t and r_t, r = J v, v = v_free + A^-1 J'f.

    Velocity arrays have one entry more than there are coordinates: the target of the padding of short rows.

    Attributes
    ----------
    rows, dofs : (m, w, K), (m, K)
        Entries of J contact by contact, the normal first, and their coordinates.
    answers, reached : (m, w, K'), (m, K')
        Entries of A^-1 J' (velocity per unit impulse), and their coordinates.
    blocks : (m, w, w)
        Diagonal blocks of J A^-1 J'.
    least : (m,)
        Smallest normal rates c [m/s].
    friction : (m,)
        Coefficients mu.
    free : (n_v + 1,)
        Velocity v_free without impulses.
    """

    rows: np.ndarray
    dofs: np.ndarray
    answers: np.ndarray
    reached: np.ndarray
    blocks: np.ndarray
    least: np.ndarray
    friction: np.ndarray
    free: np.ndarray

    def rates(self, v: np.ndarray) -> np.ndarray:
        """Return the rates J v (m, w)."""
        return np.einsum("mwk,mk->mw", self.rows, v[self.dofs])

    def velocity(self, impulses: np.ndarray) -> np.ndarray:
        """Return the velocity (n_v + 1,) with impulses (m, w)."""
        v = self.free.copy()
        np.add.at(v, self.reached, np.einsum("mwk,mw->mk", self.answers, impulses))
        return v


@dataclass(frozen=True, eq=False, kw_only=True)
class RowSolution:
    """Solution of a `RowProblem`: impulses (m, w), velocity (n_v + 1,), sweeps, residual of the contact law [m/s]."""

    impulses: np.ndarray
    velocity: np.ndarray
    sweeps: int
    residual: float
