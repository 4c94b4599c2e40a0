"""Contact problems by rows: every contact with the few coordinates that it depends on, for many contacts at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False, kw_only=True)
class RowProblem:
    """0 <= f_n, r_n >= c, f_n (r_n - c) = 0, and f_t in a section of the cone that dissipates most at r_t; r = J v.

    The velocity is v = v_free + A^-1 J' f; arrays of velocities have one entry more than there are coordinates, where
    rows that are shorter than others write zeros.

    Attributes
    ----------
    rows, dofs : (m, w, K), (m, K)
        J, contact by contact: the normal first.
    answers, reached : (m, w, K'), (m, K')
        A^-1 J' in the same form, and the coordinates that it changes.
    blocks : (m, w, w)
        Of J A^-1 J', one for every contact.
    least : (m,)
        c [m/s].
    friction : (m,)
    free : (n_v + 1,)
        v_free.
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
        """J v (m, w)."""
        return np.einsum("mwk,mk->mw", self.rows, v[self.dofs])

    def velocity(self, impulses: np.ndarray) -> np.ndarray:
        """Velocity (n_v + 1,) with impulses (m, w)."""
        v = self.free.copy()
        np.add.at(v, self.reached, np.einsum("mwk,mw->mk", self.answers, impulses))
        return v


@dataclass(frozen=True, eq=False, kw_only=True)
class RowSolution:
    """Impulses (m, w), velocity (n_v + 1,), sweeps, and the residual of the contact law [m/s]."""

    impulses: np.ndarray
    velocity: np.ndarray
    sweeps: int
    residual: float
