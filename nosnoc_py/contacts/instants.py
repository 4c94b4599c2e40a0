"""Impacts of a motion looked at afterwards, whoever computed them: energy, and other admissible outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nosnoc_py.contacts.law import energy_gain
from nosnoc_py.contacts.problem import impact_problem
from nosnoc_py.contacts.solver import ContactSolver
from nosnoc_py.systems.kinematics import times
from nosnoc_py.tolerances import ENERGY_SOLVED, IMPACT, TOUCHING_SOLVED

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS

Array = np.ndarray


def energy_shares(system: CLS, before: Array, after: Array, p: Array) -> Array:
    """Return the kinetic energy that jumps add, as shares of the energy they exchange.

    Parameters
    ----------
    before, after : (m, 2 n_q)
        Left and right limits.
    p : (n_p,)

    Returns
    -------
    (m,) array
        Zero where no velocity jumps by more than `IMPACT`: residuals of a program leave jumps of either sign.
    """
    at, n_q = system.kinematics(before, p=p), system.n_q
    old, new = before[:, n_q:], after[:, n_q:]
    impulses, jumps = times(at.mass, new - old), np.abs(new - old).max(axis=1, initial=0.0) > IMPACT
    gain, exchanged = energy_gain(impulses, old, new), energy_gain(np.abs(impulses), np.abs(old), np.abs(new))
    return np.asarray(np.divide(gain, exchanged, out=np.zeros_like(gain), where=jumps))


def gaining_contacts(system: CLS, before: Array, after: Array, p: Array) -> str:
    """Return the names of the closed contacts of the impact that raises the kinetic energy most, or "".

    It is for motions that a program computed: its residuals explain a share `ENERGY_SOLVED`.
    """
    shares = energy_shares(system, before, after, p)
    if not shares.max(initial=0.0) > ENERGY_SOLVED:
        return ""
    worst = int(np.argmax(shares))
    gaps, _, steepness = system.mechanics.touching(before[worst], p)
    closed = gaps <= TOUCHING_SOLVED * steepness
    return ", ".join(contact.name for contact, touches in zip(system.contacts, closed, strict=True) if touches)


def several_outcomes(system: CLS, before: Array, closed: Array, p: Array, rest_velocity: float) -> Array:
    """Return which impacts admit other velocities after them than those of one solution.

    Parameters
    ----------
    before : (m, 2 n_q)
        Left limits at the impacts.
    closed : (m, n_c) bool
    p : (n_p,)
    rest_velocity : float
        As the motion was computed.

    Returns
    -------
    (m,) array of bool
    """
    frames = system.mechanics.frames
    solver = ContactSolver(frames)
    found = []
    for x, contacts in zip(before, closed, strict=True):
        problem = impact_problem(frames, system.kinematics(x, p=p), np.flatnonzero(contacts).tolist(), rest_velocity)
        found.append(not solver.is_unique(problem))
    return np.array(found, dtype=bool)
