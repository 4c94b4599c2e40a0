"""Projection of measured states onto admissible ones: no penetration, in the set of a PDS, quaternions of length one.

Noise makes bodies overlap, and neither a simulation nor a plan may start from such a state (`systems.projection`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.projection import project, project_into_set
from nosnoc_py.systems.pss import PDS
from nosnoc_py.systems.quaternions import unit_states

Array = np.ndarray
# Gaps below -DEEP times the largest coordinate (at least 1 m) count as penetrated: 1000 times the rounding of such a
# position.
DEEP = 1e-13


def admissible(system: Described, x: Any, p: Any = None) -> Array:
    """Return the state (n_x,) with its position moved, in the metric of the masses, until no contact is penetrated.

    Velocities stay unchanged: approaching ones are handled by the impact law. States of an `ns.PDS` are moved into its
    set, in the metric of the system.

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
    if isinstance(system, PDS):
        return project_into_set(system, x, system.parameters(p), "x")
    if not isinstance(system, CLS) or not (system.contacts or system.bilateral):
        return x
    p = system.parameters(p)
    gaps = np.asarray(system.mechanics.gaps_at(x, p)).reshape(-1)
    if system.bilateral is None and not (gaps < -DEEP * max(1.0, float(np.abs(x[system.at_q]).max()))).any():
        return x
    return np.asarray(project(system, x, p, "x"))
