"""Three affine guards, crossed one after the other: a test for the order of event-selected integration.

Table 1 of ESS, with the signs that its figure needs. The planes x = 0, y = 0 and z = 0 are the guards; z falls, so the
guards rise through zero as h = (x, y, -z). With the mode bits b_x, b_y, b_z:

    b_x b_y   x'        y'          b_z   z'
    0   0     1 - y     1 + x       0     -z - 1
    1   0     1 - 2 y   2 + x / 2   1     3 z - 1
    0   1     1 + y     1 - x
    1   1     1 + 10 x  1 + y

From the start of the paper the crossings come in the order y, z, x. Without y the plane (x, y) turns around (-1, 1)
against the clock; between the crossings of y and x it turns around (1, -1) with the clock, and after both x and y grow
by themselves: every piece has a closed form. Liveness holds within .1 of the guards, but not in the whole space.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns
from nosnoc_py import compiled
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.event_selected import EventSelectedSystem, Guard

Array = NDArray[np.float64]

START = (-0.4, -0.15, 0.3)
DURATION = 0.5
GUARDS = ("x", "y", "z")


def build() -> ns.EventSelectedSystem:
    """Return the system in CasADi, with states x, y, z and a guard of the same name for each."""
    state, mode = ca.SX.sym("state", 3), ca.SX.sym("mode", 3)
    x, y, z = ca.vertsplit(state)
    b_x, b_y, b_z = ca.vertsplit(mode)
    flow = ca.vertcat(
        (1 - b_y) * (1 - (1 + b_x) * y) + b_y * (1 + (1 - b_x) * y + 10 * b_x * x),
        (1 - b_y) * (1 + b_x + (1 - b_x / 2) * x) + b_y * (1 - (1 - b_x) * x + b_x * y),
        (1 - b_z) * (-z - 1) + b_z * (3 * z - 1),
    )
    guards = [Guard(name, function) for name, function in zip(GUARDS, (x, y, -z), strict=True)]
    return EventSelectedSystem(x=state, mode=mode, flow=flow, guards=guards, names={"x": list(GUARDS)})


def build_numeric(fast: bool = False) -> ns.EventSelectedSystem:
    """Return the system in NumPy or, with `fast`, in functions that numba compiles."""
    return EventSelectedSystem(x=3, guards=GUARDS, names={"x": list(GUARDS)}, **_numeric(fast))


@lru_cache(maxsize=2)  # so that all systems share the compiled functions
def _numeric(fast: bool) -> dict[str, Any]:
    functions: dict[str, Any] = {
        "flow": _flow,
        "functions": _functions,
        "jacobian": _jacobian,
        "flow_jacobian": _flow_jacobian,
    }
    return {name: compiled.compiled(function) for name, function in functions.items()} if fast else {**functions}


def crossing_times() -> dict[str, float]:
    """Return the times of the crossings from `START` by guard, in their order [s]."""
    x, y, z = START
    radius = np.hypot(x + 1.0, y - 1.0)  # rotation around (-1, 1), from an angle below it
    t_y = np.arccos(1.0 / radius) - np.arctan2(x + 1.0, 1.0 - y)
    t_z = np.log(1.0 + z)
    at_y = _turn_left(t_y)
    radius = np.hypot(1.0 - at_y[0], at_y[1] + 1.0)  # rotation around (1, -1)
    t_x = t_y + np.arctan2(1.0 - at_y[0], at_y[1] + 1.0) - np.arcsin(1.0 / radius)
    return {"y": float(t_y), "z": float(t_z), "x": float(t_x)}


def exact(t: ArrayLike) -> Array:
    """Return the states (n, 3) at times (n,) from `START`, in closed form.

    Raises
    ------
    ModelError
        For times outside of [0, .5], where the closed form is known.
    """
    times = np.atleast_1d(np.asarray(t, dtype=float))
    if times.size and not (times.min() >= 0.0 and times.max() <= DURATION * (1.0 + 1e-12)):
        raise ModelError(f"the closed form is for 0 <= t <= {DURATION}; given {times.min()} to {times.max()}.")
    crossing = crossing_times()
    plane = np.where((times < crossing["y"])[:, None], _turn_left(times), _turn_right(times, crossing["y"]))
    late = np.maximum(times - crossing["x"], 0.0)[:, None]
    at_x = _turn_right(np.array([crossing["x"]]), crossing["y"])[0]
    grown = np.hstack([np.expm1(10.0 * late) / 10.0, (at_x[1] + 1.0) * np.exp(late) - 1.0])
    plane = np.where(late > 0.0, grown, plane)
    early, after = (START[2] + 1.0) * np.exp(-times) - 1.0, -np.expm1(3.0 * (times - crossing["z"])) / 3.0
    return np.column_stack([plane, np.where(times < crossing["z"], early, after)])


def _turn_left(t: ArrayLike) -> Array:
    """Return (x, y) before any crossing: x' = 1 - y, y' = 1 + x."""
    a, b = START[0] + 1.0, START[1] - 1.0
    cosine, sine = np.cos(t), np.sin(t)
    return np.stack([a * cosine - b * sine - 1.0, b * cosine + a * sine + 1.0], axis=-1)


def _turn_right(t: Array, since: float) -> Array:
    """Return (x, y) after the crossing of y at `since`: x' = 1 + y, y' = 1 - x."""
    start = _turn_left(since)
    a, b = start[0] - 1.0, 1.0  # y = 0 there
    cosine, sine = np.cos(t - since), np.sin(t - since)
    return np.stack([a * cosine + b * sine + 1.0, b * cosine - a * sine - 1.0], axis=-1)


def _flow(x: Array, mode: Array) -> Array:
    rates = np.empty(3)
    if mode[1] == 0:
        rates[0] = 1.0 - (1.0 + mode[0]) * x[1]
        rates[1] = 2.0 + 0.5 * x[0] if mode[0] else 1.0 + x[0]
    elif mode[0] == 0:
        rates[0], rates[1] = 1.0 + x[1], 1.0 - x[0]
    else:
        rates[0], rates[1] = 1.0 + 10.0 * x[0], 1.0 + x[1]
    rates[2] = 3.0 * x[2] - 1.0 if mode[2] else -x[2] - 1.0
    return rates


def _flow_jacobian(x: Array, mode: Array) -> Array:
    jacobian = np.zeros((3, 3))
    if mode[1] == 0:
        jacobian[0, 1] = -(1.0 + mode[0])
        jacobian[1, 0] = 0.5 if mode[0] else 1.0
    elif mode[0] == 0:
        jacobian[0, 1], jacobian[1, 0] = 1.0, -1.0
    else:
        jacobian[0, 0], jacobian[1, 1] = 10.0, 1.0
    jacobian[2, 2] = 3.0 if mode[2] else -1.0
    return jacobian


def _functions(x: Array) -> Array:
    values = np.empty(3)
    values[0], values[1], values[2] = x[0], x[1], -x[2]
    return values


def _jacobian(x: Array) -> Array:
    jacobian = np.zeros((3, 3))
    jacobian[0, 0], jacobian[1, 1], jacobian[2, 2] = 1.0, 1.0, -1.0
    return jacobian
