"""Derivatives of guards, and of controls with respect to time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nosnoc_py.simulation.event_driven.guards import FORCE, GAP, SLIP_SPEED
from nosnoc_py.simulation.event_driven.mechanics import Regime
from nosnoc_py.simulation.event_driven.variations import Motion, Variations
from nosnoc_py.systems.controls import Control
from nosnoc_py.systems.kinematics import Kinematics

Array = np.ndarray
# Differences for the rate of a control: the step as a share of the duration, and how far two of them may disagree.
DIFFERENCE, ROUGH = 1e-4, 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class Slope:
    """How a guard changes.

    Attributes
    ----------
    w, u : (n_w,), (n_u,)
        Derivatives.
    size : float
        What its rate is large or small next to: 1 for gaps and speeds, of forces the largest one, or the smallest mass
        that they move times 1 m/s^2.
    loose : bool
        Whether the motion leaves its force open.
    """

    w: Array
    u: Array
    size: float = 1.0
    loose: bool = False


def slope_of(guard: int, regime: Regime, look: Kinematics, variations: Variations, motion: Motion, w: Array) -> Slope:
    """The derivative of one guard of a regime, of those that end phases."""
    frames = variations.frames
    kind, contact = divmod(guard, frames.count)
    part = slice(frames.count + frames.tangents[contact].start, frames.count + frames.tangents[contact].stop)
    gaps_w, rates_w = variations.geometry(w)
    none = np.zeros(motion.forces_u.shape[1])
    if kind == GAP:
        return Slope(w=gaps_w[contact], u=none)
    if kind == SLIP_SPEED:
        return Slope(w=regime.slip_direction(contact, look.rates) @ rates_w[part], u=none)
    shares = np.zeros(motion.forces.size)
    shares[contact] = 1.0
    if kind != FORCE:
        friction = motion.forces[part]
        shares[contact] = frames.friction[contact]
        shares[part] = -friction / max(float(np.linalg.norm(friction)), np.finfo(float).tiny)
    return Slope(
        w=shares @ motion.forces_w,
        u=shares @ motion.forces_u,
        size=max(regime.inertia(look), float(np.abs(motion.forces).max())),
        loose=bool(motion.loose[shares != 0.0].any()),
    )


def control_rate(control: Control, t: float) -> tuple[Array, bool]:
    """du/dt (n_u,) of a control that is a function of time, and whether two step lengths disagree about it."""
    step = DIFFERENCE * float(control.breaks[-1] - control.breaks[0])
    coarse, fine = _difference(control, t, step), _difference(control, t, 0.5 * step)
    return fine, bool(np.abs(coarse - fine).max() > ROUGH * (1.0 + np.abs(fine).max()))


def _difference(control: Control, t: float, step: float) -> Array:
    """Derivative of the polynomial through five values, all of them inside the interval of the control."""
    first, last = float(control.breaks[0]), float(control.breaks[-1])
    middle = min(max(t, first + 2.0 * step), last - 2.0 * step)
    times = middle + step * np.arange(-2, 3)
    away = (times - t) / step
    weights = np.linalg.solve(np.vander(away, increasing=True).T, np.eye(5)[1]) / step
    return np.asarray(weights @ np.array([control(s, np.zeros(0)) for s in times]))
