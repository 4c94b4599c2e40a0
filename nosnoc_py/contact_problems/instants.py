"""Checks of the impacts of a computed motion: energy, and uniqueness of the outcome.

They use only states before and after the impacts, so that they apply to the motions of all simulators and programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nosnoc_py.contact_problems.law import energy_gain
from nosnoc_py.contact_problems.problem import impact_problem
from nosnoc_py.contact_problems.solver import ContactSolver
from nosnoc_py.systems.kinematics import times
from nosnoc_py.tolerances import ENERGY, ENERGY_SOLVED, IMPACT, NOT_ZERO, TOUCHING_SOLVED

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS
    from nosnoc_py.systems.kinematics import Kinematics

Array = np.ndarray


def energy_rise(here: Kinematics, change: Array, speed: Array | float) -> tuple[Array, Array]:
    """Return the kinetic energy gained in jumps of the velocity, absolute and relative.

    Velocities are relative to the surfaces that are touched: a moving wall does work, which is no gain.

    The relative gain refers to the energy that the jumping mass, dv'M dv / |dv|^2, has at a given speed. An error dw of
    the velocity after an impact then appears as dw / speed, and rounding errors of a contact at rest are no gain.

    Parameters
    ----------
    here : Kinematics
        At the left limits of m jumps.
    change : (m, n_v)
        Jumps dv.
    speed : (m,) or float
        Speed of comparison [m/s].

    Returns
    -------
    gains : (m,)
        Energy gained beyond rounding errors [J].
    shares : (m,)
        Relative gains.
    """
    momentum, square = times(here.mass, change), np.sum(change**2, axis=1)
    exchanged = np.sum(momentum * change, axis=1)
    before = here.velocity - here.carried
    gain = energy_gain(momentum, before, before + change)
    over = np.maximum(gain - 0.5 * ENERGY * exchanged, 0.0)  # without what rounding errors explain
    return over, over / np.maximum(exchanged, NOT_ZERO) * square / np.square(speed)


def energy_shares(system: CLS, before: Array, after: Array, p: Array) -> Array:
    """Return the relative gains of kinetic energy (`energy_rise`) in jumps, at the speed sqrt(|dv| max |v|).

    Parameters
    ----------
    before, after : (m, n_x)
        Left and right limits of the state.
    p : (n_p,)

    Returns
    -------
    (m,) array
        Zero if no velocity jumps by more than `IMPACT`: residuals of a program leave small jumps of either sign.
    """
    old, new = before[:, system.at_v], after[:, system.at_v]
    fastest, jumps = (np.abs(v).max(axis=1, initial=IMPACT) for v in (np.hstack([old, new]), new - old))
    _, shares = energy_rise(system.kinematics(before, p=p), new - old, np.sqrt(jumps * fastest))
    return np.where(jumps > IMPACT, shares, 0.0)


def gaining_contacts(system: CLS, before: Array, after: Array, p: Array) -> str:
    """Return the names of the closed contacts of the impact with the largest gain of kinetic energy, or "".

    It is for motions computed by a program, whose residuals explain a relative gain of `ENERGY_SOLVED`.
    """
    shares = energy_shares(system, before, after, p)
    if not shares.max(initial=0.0) > ENERGY_SOLVED:
        return ""
    closed = closed_contacts(system, before[int(np.argmax(shares))], p)
    return ", ".join(contact.name for contact, touches in zip(system.contacts, closed, strict=True) if touches)


def closed_contacts(system: CLS, x: Array, p: Array) -> Array:
    """Return the mask (n_c,) of the contacts that are closed at a state computed by a program."""
    gaps, _, steepness = system.mechanics.touching(x, p)
    return np.asarray(gaps <= TOUCHING_SOLVED * steepness)


def several_outcomes(
    system: CLS, before: Array, p: Array, rest_velocity: float, closing: Sequence[Array] | None = None
) -> Array:
    """Return which impacts have several admissible velocities after the impact.

    Parameters
    ----------
    before : (m, n_x)
        Left limits at the impacts.
    p : (n_p,)
    rest_velocity : float
        Rest velocity with which the motion was computed [m/s].
    closing : m arrays of int, optional
        Open contacts that take part as well: those that a time step closes, if impacts lie between the nodes.

    Returns
    -------
    (m,) array of bool
    """
    frames = system.mechanics.frames_at(p)
    solver = ContactSolver(frames)
    several = []
    for k, x in enumerate(before):
        closed = closed_contacts(system, x, p)
        closed[[] if closing is None else closing[k]] = True
        problem = impact_problem(frames, system.kinematics(x, p=p), np.flatnonzero(closed).tolist(), rest_velocity)
        several.append(not solver.is_unique(problem))
    return np.array(several, dtype=bool)
