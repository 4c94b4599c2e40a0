"""Costates of a discretised problem: what the multipliers of its Runge-Kutta equations say about lambda(t)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nosnoc_py.discretization.runge_kutta import representation_of
from nosnoc_py.roles import Role
from nosnoc_py.solution import Series
from nosnoc_py.solution.solution import costate_name

if TYPE_CHECKING:
    from nosnoc_py.transcription.transcription import Transcription

# Elements shorter than this, relative to their equal share, only distribute a jump of the costate.
NO_LENGTH = 1e-6


def costates(problem: Transcription, multipliers: np.ndarray, h: np.ndarray) -> dict[str, Series]:
    """lambda(t) at the Runge-Kutta stages, with the sign of the Hamiltonian lambda'f + L.

    The rows of stage j are S_j - h f(X_j) = 0, S the increments of the element, and the Lagrangian has mu' times them:
    what multiplies h f(X_j) is -mu_j, where the Hamiltonian has b_j lambda(t_j). With derivatives V_j as unknowns the
    rows are V_j - f(X_j) = 0, and h is missing. So lambda(t_j) = -mu_j / b_j, or -mu_j / (b_j h), to the order that
    stages have by themselves (measured on smooth problems: n_s for Radau IIA, n_s + 1 for Gauss-Legendre), which is
    less than that of the scheme at its nodes. Elements without a length say nothing and are left out.

    Parameters
    ----------
    multipliers : (n_g,)
        Of the constraints of the program.
    h : (E,)
        Lengths of the elements [s].
    """
    names, tableau = problem.dcs.x_names, problem.tableau
    rows = [block.rows for block in problem.mpcc.constraints.blocks(role=Role.DYNAMICS)]
    b, c, representation = tableau.b, tableau.c, representation_of(problem.fesd, tableau)
    mu = np.array([multipliers[row] for row in rows]).reshape(h.size, c.size, len(names))
    kept = h > NO_LENGTH * h.sum() / h.size
    weights = b[None, :, None] * (1.0 if representation == "integral" else h[kept][:, None, None])
    values = (-mu[kept] / weights).reshape(-1, len(names))
    t = ((np.cumsum(h) - h)[:, None] + h[:, None] * c)[kept].ravel()
    return {costate_name(name): Series(t, values[:, i], Role.COSTATE_ESTIMATE) for i, name in enumerate(names)}
