"""Impacts of a motion looked at afterwards, whoever computed them: energy, and other admissible outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nosnoc_py.contact_problems.law import energy_gain
from nosnoc_py.contact_problems.problem import impact_problem
from nosnoc_py.contact_problems.solver import ContactSolver
from nosnoc_py.systems.kinematics import times
from nosnoc_py.tolerances import ENERGY, ENERGY_SOLVED, IMPACT, TOUCHING_SOLVED

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS
    from nosnoc_py.systems.kinematics import Kinematics

Array = np.ndarray
TINY = 1e-300


def energy_rise(here: Kinematics, change: Array, speed: Array | float) -> tuple[Array, Array]:
    """Return the kinetic energy that jumps of the velocity add beyond rounding, and which share of what is at work.

    It is that of the motion relative to what is touched, where that moves by itself: a wall that comes does work.

    The share is that of the energy which the mass that jumps, dv' M dv / |dv|^2, has at a speed: an error dw of the
    velocity after an impact from that speed is then dw / speed, and the rounding of a contact at rest is no gain.

    Parameters
    ----------
    here : Kinematics
        At the left limits of m jumps.
    change : (m, n_v)
        dv.
    speed : (m,) or float
        [m/s].

    Returns
    -------
    gains : (m,)
        [J].
    shares : (m,)
    """
    momentum, square = times(here.mass, change), np.sum(change**2, axis=1)
    exchanged = np.sum(momentum * change, axis=1)
    before = here.velocity - here.carried
    gain = energy_gain(momentum, before, before + change)
    over = np.maximum(gain - 0.5 * ENERGY * exchanged, 0.0)
    return over, over / np.maximum(exchanged, TINY) * square / np.square(speed)


def energy_shares(system: CLS, before: Array, after: Array, p: Array) -> Array:
    """Return the kinetic energy that jumps add, as shares (`energy_rise`) of the energy they exchange: |dv| max |v|.

    Parameters
    ----------
    before, after : (m, n_x)
        Left and right limits.
    p : (n_p,)

    Returns
    -------
    (m,) array
        Zero where no velocity jumps by more than `IMPACT`: residuals of a program leave jumps of either sign.
    """
    old, new = before[:, system.at_v], after[:, system.at_v]
    fastest, jumps = (np.abs(v).max(axis=1, initial=IMPACT) for v in (np.hstack([old, new]), new - old))
    _, shares = energy_rise(system.kinematics(before, p=p), new - old, np.sqrt(jumps * fastest))
    return np.where(jumps > IMPACT, shares, 0.0)


def gaining_contacts(system: CLS, before: Array, after: Array, p: Array) -> str:
    """Return the names of the closed contacts of the impact that raises the kinetic energy most, or "".

    It is for motions that a program computed: its residuals explain a share `ENERGY_SOLVED`.
    """
    shares = energy_shares(system, before, after, p)
    if not shares.max(initial=0.0) > ENERGY_SOLVED:
        return ""
    closed = closed_contacts(system, before[int(np.argmax(shares))], p)
    return ", ".join(contact.name for contact, touches in zip(system.contacts, closed, strict=True) if touches)


def closed_contacts(system: CLS, x: Array, p: Array) -> Array:
    """Return which contacts (n_c,) are closed at a state that a program computed."""
    gaps, _, steepness = system.mechanics.touching(x, p)
    return np.asarray(gaps <= TOUCHING_SOLVED * steepness)


def several_outcomes(
    system: CLS, before: Array, p: Array, rest_velocity: float, struck: Sequence[Array] | None = None
) -> Array:
    """Return which impacts admit other velocities after them than those of one solution.

    Parameters
    ----------
    before : (m, n_x)
        Left limits at the impacts.
    p : (n_p,)
    rest_velocity : float
        As the motion was computed.
    struck : m arrays of int, optional
        Contacts that take part although they are open: those that a step closes, where impacts lie between the nodes.

    Returns
    -------
    (m,) array of bool
    """
    frames = system.mechanics.frames_at(p)
    solver = ContactSolver(frames)
    found = []
    for k, x in enumerate(before):
        closed = closed_contacts(system, x, p)
        closed[[] if struck is None else struck[k]] = True
        problem = impact_problem(frames, system.kinematics(x, p=p), np.flatnonzero(closed).tolist(), rest_velocity)
        found.append(not solver.is_unique(problem))
    return np.array(found, dtype=bool)
