"""The contact problem of a step: which impulses, of which size, at which velocities after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nosnoc_py.simulation.time_stepping.dynamics import Inertia


@dataclass(frozen=True, eq=False, kw_only=True)
class StepProblem:
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
    free : (n_q + 1,)
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
        """Velocity (n_q + 1,) with impulses (m, w)."""
        v = self.free.copy()
        np.add.at(v, self.reached, np.einsum("mwk,mw->mk", self.answers, impulses))
        return v


@dataclass(frozen=True, eq=False, kw_only=True)
class StepSolution:
    """Impulses (m, w), velocity (n_q + 1,), sweeps, and the residual of the contact law [m/s]."""

    impulses: np.ndarray
    velocity: np.ndarray
    sweeps: int
    residual: float


def problem_of(
    rows: np.ndarray, dofs: np.ndarray, inertia: Inertia, free: np.ndarray, least: np.ndarray, friction: np.ndarray
) -> StepProblem:
    """The problem of contacts with rows (m, w, K) over coordinates (m, K)."""
    n_q = free.size
    padded = np.append(free, 0.0)
    if inertia.diagonal is not None:
        inverse = np.append(1.0 / inertia.diagonal, 0.0)
        answers, reached = rows * inverse[dofs][:, None, :], dofs
        blocks = np.einsum("mwk,mxk->mwx", rows, answers)
    else:
        assert inertia.inverse is not None
        dense = np.zeros((*rows.shape[:2], n_q + 1))
        np.put_along_axis(dense, np.broadcast_to(dofs[:, None, :], rows.shape), rows, axis=2)
        answers = np.zeros_like(dense)
        answers[..., :n_q] = dense[..., :n_q] @ inertia.inverse.T
        reached = np.broadcast_to(np.arange(n_q + 1), (len(rows), n_q + 1))
        blocks = np.einsum("mwk,mxk->mwx", dense, answers)
    return StepProblem(
        rows=rows,
        dofs=dofs,
        answers=answers,
        reached=reached,
        blocks=blocks,
        least=least,
        friction=friction,
        free=padded,
    )
