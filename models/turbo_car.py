"""A car with a turbo: above a speed v_bar its acceleration is multiplied by a gain.

x = (position, velocity): s' = v, v' = u below v_bar and v' = gain u above it. The velocity is a function of the
integral of u alone: with the effort

    S(v) = v up to v_bar,  v_bar + (v - v_bar) / gain beyond it,    S' = u on both sides of the threshold,

so that a piecewise constant control makes S piecewise linear, and every motion here is exact. Since v grows with S, and
the bounds on u and v bound S at every time from above, the fastest drives from rest to rest follow these bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Arrow, Disc, Ground, PlanarShape, Polygon

Array = NDArray[np.float64]
LENGTH = 0.12  # length of the drawn car relative to the distance that it needs to reach its top speed without turbo


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of the car.

    Parameters
    ----------
    acceleration : float
        Largest |u| [m/s^2].
    gain : float
        Factor of the acceleration with turbo, at least 1.
    threshold : float
        v_bar, the speed above which it does [m/s].
    limit : float
        Largest speed, above the threshold [m/s].

    Raises
    ------
    ModelError
        If one of them is out of its range.
    """

    acceleration: float = 5.0
    gain: float = 3.0
    threshold: float = 10.0
    limit: float = 25.0

    def __post_init__(self) -> None:
        if not (self.acceleration > 0.0 and self.gain >= 1.0 and 0.0 < self.threshold < self.limit):
            raise ModelError(f"a turbo car needs acceleration > 0, gain >= 1 and 0 < threshold < limit; given {self}.")


STANDARD = Constants()


def build(constants: Constants = STANDARD) -> ns.PSS:
    """Return the car as a Filippov system.

    Returns
    -------
    ns.PSS
        States position [m], velocity [m/s]; control acceleration [m/s^2]; switching function "turbo", v / v_bar - 1.
    """
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    turbo = ns.Modes(
        "turbo",
        flows=[ca.vertcat(x[1], u), ca.vertcat(x[1], constants.gain * u)],
        functions=x[1] / constants.threshold - 1.0,  # scaled to order one, so that its multipliers are, too
        signs=[[-1], [1]],
    )
    return ns.PSS(
        x=x,
        u=u,
        modes=turbo,
        names={"x": ["position", "velocity"], "u": ["acceleration"]},
        units={"position": "m", "velocity": "m/s", "acceleration": "m/s^2"},
        nominal={"x": [constants.limit**2 / constants.acceleration, constants.limit], "u": constants.acceleration},
        scene=car(x, u, x[1] > constants.threshold, LENGTH * constants.limit**2 / constants.acceleration),
    )


def car(x: ca.SX, u: ca.SX, turbo: Any, length: float) -> list[PlanarShape]:
    """Return the drawing of a car at the position x[0], enlarged, with a flame while the turbo works."""
    back, axle, wheel = x[0] - 0.5 * length, 0.1 * length, 0.1 * length
    body = [[0.0, 0.1], [1.0, 0.1], [1.0, 0.3], [0.75, 0.35], [0.6, 0.55], [0.25, 0.55], [0.1, 0.3], [0.0, 0.3]]
    flame = [[0.0, 0.28], [-0.6 * turbo, 0.2], [0.0, 0.12]]
    return [
        Polygon([ca.vertcat(back + length * a, length * b) for a, b in body], label="car"),
        *(Disc([back + share * length, axle], wheel, -x[0] / wheel, colour="grey") for share in (0.22, 0.78)),
        Polygon([ca.vertcat(back + length * a, length * b) for a, b in flame], label="turbo", colour="orange"),
        Arrow([x[0], 0.8 * length], [u[0], 0], unit="m/s²", label="control"),
        Ground(),
    ]


def effort(velocity: ArrayLike, constants: Constants = STANDARD) -> Array:
    """Return S(v) [m/s] of velocities (n,)."""
    v = np.asarray(velocity, dtype=float)
    return np.asarray(v - (1.0 - 1.0 / constants.gain) * np.maximum(v - constants.threshold, 0.0))


def velocity_of(total: ArrayLike, constants: Constants = STANDARD) -> Array:
    """Return the velocity [m/s] at efforts S (n,), the inverse of `effort`."""
    s = np.asarray(total, dtype=float)
    return np.asarray(s + (constants.gain - 1.0) * np.maximum(s - constants.threshold, 0.0))


def _travel(total: ArrayLike, constants: Constants) -> Array:
    """Return the integral of v dS from 0 to S (n,) [m^2/s^2]: the distance at u, times u."""
    s = np.asarray(total, dtype=float)
    return np.asarray(s**2 / 2.0 + (constants.gain - 1.0) / 2.0 * np.maximum(s - constants.threshold, 0.0) ** 2)


def motion(
    control: ArrayLike, duration: float, *, start: ArrayLike = (0.0, 0.0), constants: Constants = STANDARD
) -> tuple[Array, Array]:
    """Return the states at the ends of the control stages, and the times at which the velocity passes the threshold.

    Parameters
    ----------
    control : (N,)
        Accelerations in N equal parts of the duration [m/s^2].
    duration : float
        Duration of the drive [s].
    start : (2,)
        Position and velocity.

    Returns
    -------
    states : (N + 1, 2)
    crossings : (n,)
        Times of the crossings [s].
    """
    u, (position, velocity) = np.asarray(control, dtype=float), np.asarray(start, dtype=float)
    h = duration / u.size
    s = float(effort(velocity, constants)) + np.concatenate([[0.0], np.cumsum(h * u)])
    positions = position + np.concatenate([[0.0], np.cumsum(_distances(s, h, constants))])
    above = s - constants.threshold
    k = np.flatnonzero(above[:-1] * above[1:] < 0.0)
    return np.stack([positions, velocity_of(s, constants)], axis=1), h * (k - above[k] / np.diff(s)[k])


def _distances(s: Array, h: float, constants: Constants) -> Array:
    """Return the distances in stages of length h [s] between efforts s (N + 1,): the mean of v over S, times h."""
    change = np.diff(s)
    level = np.abs(change) < 1e-9 * constants.limit
    mean = np.diff(_travel(s, constants)) / np.where(level, 1.0, change)
    return np.asarray(h * np.where(level, velocity_of(0.5 * (s[1:] + s[:-1]), constants), mean))


def fastest_time(distance: float, constants: Constants = STANDARD) -> float:
    """Return the time [s] of the fastest drive over a distance [m] from rest to rest, over all controls.

    Accelerate, turbo, ride at the limit if it is reached, brake with the turbo, brake: with the effort S_max of the
    limit and the distance D of speeding up to it, T = 2 S_max / u + (distance - 2 D) / v_max, or without a ride
    T = 2 S / u with S the effort at half of the distance.
    """
    _check_distance(distance)
    top = float(effort(constants.limit, constants))
    reached = float(_travel(top, constants)) / constants.acceleration
    if distance >= 2.0 * reached:
        return 2.0 * top / constants.acceleration + (distance - 2.0 * reached) / constants.limit
    half, bar, gain = 0.5 * distance * constants.acceleration, constants.threshold, constants.gain
    if half <= bar**2 / 2.0:
        peak = np.sqrt(2.0 * half)
    else:  # v^2 = v_bar^2 + 2 gain (half - v_bar^2 / 2)
        peak = float(effort(np.sqrt(bar**2 + 2.0 * gain * (half - bar**2 / 2.0)), constants))
    return 2.0 * float(peak) / constants.acceleration


def fastest_stages(distance: float, stages: int, constants: Constants = STANDARD) -> tuple[float, Array]:
    """Return time [s] and control (N,) of the fastest drive with N equally long stages of constant control.

    S at the end of stage k is at most min(k u h, S_max, (N - k) u h), all of them at once: the distance of that drive
    grows with h, and the only root is the optimum.
    """
    _check_distance(distance)
    k = np.arange(stages + 1)
    top = float(effort(constants.limit, constants))

    def efforts(time: float) -> Array:
        return np.minimum(np.minimum(k, stages - k) * constants.acceleration * time / stages, top)

    def missing(time: float) -> float:
        return float(_distances(efforts(time), time / stages, constants).sum()) - distance

    best = fastest_time(distance, constants)
    slow = 2.0 * best
    while missing(slow) < 0.0:
        slow *= 2.0
    time = float(brentq(missing, 0.5 * best, slow, xtol=1e-14, rtol=1e-14))
    return time, np.diff(efforts(time)) * stages / time


def _check_distance(distance: float) -> None:
    if not 0.0 < distance < np.inf:
        raise ModelError(f"a drive needs a positive distance, given {distance!r}.")
