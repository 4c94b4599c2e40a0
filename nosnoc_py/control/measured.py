"""Measured states: noise makes bodies overlap and quaternions longer, which no simulation or plan may start from."""

from __future__ import annotations

from typing import Any

import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.quaternions import unit_states

Array = np.ndarray
# Gaps below this count as penetrated [m]; Newton's method for the nearest position takes a few rounds.
DEEP, ROUNDS = 1e-13, 30


def unit_parts(system: Described) -> tuple[slice, ...]:
    """Where the quaternions of a system are, if it has some."""
    return tuple(getattr(system, "unit_parts", ()))


def admissible(system: Described, x: Any, p: Any = None) -> Array:
    """The state (n_x,), its position moved in the metric of the masses until no contact is penetrated.

    Velocities stay: those that approach are the business of the impact law.

    Raises
    ------
    ModelError
        For another number of states, one that is not finite, or a position that Newton's method does not free.

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
    x = unit_states(x, unit_parts(system))
    if not isinstance(system, CLS) or not system.contacts:
        return x
    p = system.parameters(p)
    for _ in range(ROUNDS):
        gaps = np.asarray(system.mechanics.gaps_at(x, p)).reshape(-1)
        deep = np.flatnonzero(gaps < -DEEP).tolist()
        if not deep:
            return x
        look = system.mechanics.at(x, np.zeros(system.n_u), p)
        pushed = look.response[:, deep] @ np.linalg.lstsq(look.delassus[np.ix_(deep, deep)], gaps[deep], rcond=1e-12)[0]
        x[system.at_q] -= system.mechanics.moved(x, p, pushed)
        x = unit_states(x, system.unit_parts)
    names = ", ".join(system.contacts[i].name for i in deep)
    raise ModelError(f"x: contacts {names} are penetrated, and no position nearby is free of all of them.")
