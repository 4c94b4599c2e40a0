"""Projection of measured states onto admissible ones: no penetration, quaternions of unit length.

Noise makes bodies overlap, and neither a simulation nor a plan may start from such a state. The projection is a
Gauss-Newton iteration for the nearest position in the metric of the mass matrix:
delta q = M^-1 J_n^T (J_n M^-1 J_n^T)^-1 gap for the penetrated contacts, repeated since gaps are nonlinear.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.quaternions import unit_states

Array = np.ndarray
# Gaps below -DEEP times the largest coordinate (at least 1 m) count as penetrated: 1000 times the rounding of such a
# position. ROUNDS limits the iterations.
DEEP, ROUNDS = 1e-13, 30


def admissible(system: Described, x: Any, p: Any = None) -> Array:
    """Return the state (n_x,) with its position moved, in the metric of the masses, until no contact is penetrated.

    Velocities stay unchanged: approaching ones are handled by the impact law.

    Parameters
    ----------
    system : CLS, PSS, ...
    x : (n_x,)
        Measured state.
    p : (n_p,), optional
        Parameters; default those of the system.

    Raises
    ------
    ModelError
        For a wrong number of states, NaN or inf, or a position without an admissible one nearby.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> from nosnoc_py.control.measured import admissible
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q)])
    >>> admissible(ball, [-0.01, -0.2])
    array([ 0. , -0.2])
    """
    x = np.array(x, dtype=float).reshape(-1)
    if x.size != len(system.state_names) or not np.isfinite(x).all():
        raise ModelError(f"x: expected {len(system.state_names)} finite numbers, given {x.tolist()}.")
    x = unit_states(x, system.unit_parts)
    if not isinstance(system, CLS) or not system.contacts:
        return x
    p = system.parameters(p)
    # The set of penetrated contacts is evaluated anew in each round: moving out of one may move into another.
    for _ in range(ROUNDS):
        gaps = np.asarray(system.mechanics.gaps_at(x, p)).reshape(-1)
        penetrated = np.flatnonzero(gaps < -DEEP * max(1.0, float(np.abs(x[system.at_q]).max()))).tolist()
        if not penetrated:
            return x
        contact_terms = system.mechanics.at(x, np.zeros(system.n_u), p)
        # Least squares, as rows of parallel contacts (a plate on several springs) are linearly dependent.
        shift = (
            contact_terms.response[:, penetrated]
            @ np.linalg.lstsq(contact_terms.delassus[np.ix_(penetrated, penetrated)], gaps[penetrated], rcond=1e-12)[0]
        )
        x[system.at_q] -= system.mechanics.moved(x, p, shift)
        x = unit_states(x, system.unit_parts)
    names = ", ".join(system.contacts[i].name for i in penetrated)
    raise ModelError(f"x: contacts {names} are penetrated, and no position nearby is free of all of them.")
