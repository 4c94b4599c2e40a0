"""A mass on a massless spring that hops in one dimension: the calibration of ESS (Section 5.1).

m z'' = -m g in flight (z > L_0) and m z'' = -m g + k (L_0 - z) in stance. The touchdown guard is h = L_0 - z, which
rises when the mass comes down; its negative is the guard of the lift-off. (The paper has the other signs, and writes z'
for z''.) Nothing is lost: from rest the motion repeats itself, and all of it is known in closed form. With s from the
touchdown on, w = sqrt(k / m), a = m g / k and the speed u at touchdown,

    z = L_0 - a + a cos(w s) - (u / w) sin(w s),   until w s = 2 pi - 2 atan2(u / w, a).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns
from nosnoc_py import compiled
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.event_selected import EventSelectedSystem, Guard
from nosnoc_py.systems.scene import Disc, Ground, Mark, Spring

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Mass [kg], stiffness [N/m], rest length [m], gravity [m/s^2], height of the start, at rest [m].

    Raises
    ------
    ModelError
        Unless all are positive and the start is above the rest length.
    """

    mass: float = 1.0
    stiffness: float = 400.0
    length: float = 1.0
    gravity: float = 9.81
    height: float = 2.0

    def __post_init__(self) -> None:
        positive = all(value > 0.0 for value in (self.mass, self.stiffness, self.length, self.gravity))
        if not positive or not self.height > self.length:
            raise ModelError(f"the hopper needs positive constants and a start above its rest length; given {self}.")

    @property
    def start(self) -> tuple[float, float]:
        """Height [m] and velocity [m/s] at t = 0."""
        return self.height, 0.0

    @property
    def fall(self) -> float:
        """Time to the first touchdown [s]."""
        return float(np.sqrt(2.0 * (self.height - self.length) / self.gravity))

    @property
    def frequency(self) -> float:
        """Angular frequency of the mass on the spring [rad/s]."""
        return float(np.sqrt(self.stiffness / self.mass))

    @property
    def sag(self) -> float:
        """Compression by the weight [m]."""
        return self.mass * self.gravity / self.stiffness

    @property
    def stance(self) -> float:
        """Time from touchdown to lift-off [s]."""
        amplitude = self.gravity * self.fall / self.frequency
        return float(2.0 * (np.pi - np.arctan2(amplitude, self.sag)) / self.frequency)

    @property
    def period(self) -> float:
        """Time from apex to apex [s]."""
        return 2.0 * self.fall + self.stance


STANDARD = Constants()


def build(constants: Constants = STANDARD) -> ns.EventSelectedSystem:
    """Return the hopper in CasADi, with states z, v_z, the guard "foot" and the parameter "stiffness"."""
    x, mode, k = ca.SX.sym("x", 2), ca.SX.sym("mode"), ca.SX.sym("stiffness")
    touchdown = constants.length - x[0]
    flow = ca.vertcat(x[1], mode * k * touchdown / constants.mass - constants.gravity)
    return EventSelectedSystem(
        x=x,
        mode=mode,
        p=k,
        flow=flow,
        guards=[Guard.contact("foot", touchdown)],
        names={"x": ["z", "v_z"], "p": ["stiffness"]},
        units={"z": "m", "v_z": "m/s", "stiffness": "N/m"},
        p_default=[constants.stiffness],
        scene=[
            Disc([0, x[0] + 0.1 * constants.length], 0.1 * constants.length, label="mass"),
            Spring([0, ca.fmax(x[0] - constants.length, 0)], [0, x[0]], width=0.1 * constants.length),
            Ground(),
            Mark("foot", [0, 0]),
        ],
    )


def build_numeric(constants: Constants = STANDARD, fast: bool = False) -> ns.EventSelectedSystem:
    """Return the hopper in NumPy or, with `fast`, compiled by numba; all constants are parameters."""
    return EventSelectedSystem(
        x=2,
        p=4,
        guards=["foot"],
        back="negative",
        names={"x": ["z", "v_z"], "p": ["mass", "stiffness", "length", "gravity"]},
        units={"z": "m", "v_z": "m/s", "stiffness": "N/m", "mass": "kg", "length": "m", "gravity": "m/s^2"},
        p_default=[constants.mass, constants.stiffness, constants.length, constants.gravity],
        **_numeric(fast),
    )


@lru_cache(maxsize=2)  # so that all systems share the compiled functions
def _numeric(fast: bool) -> dict[str, Any]:
    functions: dict[str, Any] = {"flow": _flow, "functions": _functions, "jacobian": _jacobian}
    return {name: compiled.compiled(function) for name, function in functions.items()} if fast else {**functions}


def exact(t: ArrayLike, constants: Constants = STANDARD) -> Array:
    """Return the states (n, 2), height and velocity, at times (n,) >= 0 from the start at rest."""
    times = np.atleast_1d(np.asarray(t, dtype=float))
    c, w = constants, constants.frequency
    speed = c.gravity * c.fall
    phase = np.mod(times, c.period)
    s = np.where(phase <= c.fall, phase, phase - c.period)  # in flight: time from the nearest apex
    flight = np.column_stack([c.height - 0.5 * c.gravity * s**2, -c.gravity * s])
    angle = w * (phase - c.fall)
    stance = np.column_stack(
        [
            c.length - c.sag + c.sag * np.cos(angle) - speed / w * np.sin(angle),
            -c.sag * w * np.sin(angle) - speed * np.cos(angle),
        ]
    )
    on_ground = (phase > c.fall) & (phase < c.fall + c.stance)
    return np.where(on_ground[:, None], stance, flight)


def crossing_times(until: float, constants: Constants = STANDARD) -> list[tuple[str, float]]:
    """Return kind ("contact", "release") and time [s] of all events up to a time, in their order."""
    periods = range(int(until / constants.period) + 1)
    touchdown = [("contact", k * constants.period + constants.fall) for k in periods]
    lift_off = [("release", time + constants.stance) for _, time in touchdown]
    return [(kind, t) for kind, t in sorted(touchdown + lift_off, key=lambda event: event[1]) if t <= until]


def _flow(x: Array, mode: Array, p: Array) -> Array:
    rates = np.empty(2)
    rates[0] = x[1]
    rates[1] = mode[0] * p[1] * (p[2] - x[0]) / p[0] - p[3]
    return rates


def _functions(x: Array, p: Array) -> Array:
    values = np.empty(1)
    values[0] = p[2] - x[0]
    return values


def _jacobian(x: Array, p: Array) -> Array:
    jacobian = np.zeros((1, 2))
    jacobian[0, 0] = -1.0
    return jacobian
