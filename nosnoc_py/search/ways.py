"""Smooth trajectories of a contact system between two states, for computed torque and as initial guesses.

Coordinates follow cubic polynomials (positions and velocities at both ends), first-order states straight lines. Unit
quaternions follow exp of a cubic rotation vector relative to the start, which turns the short way round.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nosnoc_py.rotations import attitude_error, exp, product, quaternion_of, right_jacobian, right_jacobian_inverse
from nosnoc_py.systems.cls import CLS

Array = np.ndarray
# Step of the central difference for accelerations where q' = N(q) v, as a fraction of the duration.
DIFFERENCE = 1e-4


class Waypoint(NamedTuple):
    """Point of a trajectory: coordinates q, velocities v, accelerations a and first-order states y at one time."""

    q: Array
    v: Array
    a: Array
    y: Array


def waypoint(system: CLS, start: Array, end: Array, t: float, T: float) -> Waypoint:
    """Return the point at time t [s] of the cubic trajectory of duration T [s] between two states (n_x,).

    Cubic polynomials interpolate positions and velocities of both ends; first-order states follow straight lines. For
    unit quaternions the rotation vector relative to the start is the polynomial.
    """
    y = start[system.at_y] + t / T * (end[system.at_y] - start[system.at_y])
    if system.moves_by_v:
        q0, v0, q1, v1 = (x[part] for x in (start, end) for part in (system.at_q, system.at_v))
        return Waypoint(*_cubic(q0, v0, q1, v1, t, T), y)
    q, v = _with_rotations(system, start, end, t, T)
    step = DIFFERENCE * T
    (_, later), (_, earlier) = (_with_rotations(system, start, end, t + sign * step, T) for sign in (1, -1))
    return Waypoint(q, v, (later - earlier) / (2 * step), y)


def _cubic(q0: Array, v0: Array, q1: Array, v1: Array, t: float, T: float) -> tuple[Array, Array, Array]:
    """Return position, velocity and acceleration at t of the Hermite cubic on [0, T]."""
    r, d = t / T, q1 - q0
    c2, c3 = 3.0 * d - (2.0 * v0 + v1) * T, -2.0 * d + (v0 + v1) * T
    q = q0 + v0 * t + c2 * r**2 + c3 * r**3
    return q, v0 + (2.0 * c2 * r + 3.0 * c3 * r**2) / T, (2.0 * c2 + 6.0 * c3 * r) / T**2


def _with_rotations(system: CLS, start: Array, end: Array, t: float, T: float) -> tuple[Array, Array]:
    """Return coordinates and velocities at t for a system with q' = N(q) v."""
    p, mechanics = system.p_or_zeros, system.mechanics
    ends = [(x[system.at_q], mechanics.moved(x, p, x[system.at_v])) for x in (start, end)]
    (q0, rate0), (q1, rate1) = ends
    q, rate, _ = _cubic(q0, rate0, q1, rate1, t, T)
    for part in system.unit_parts:
        q[part], rate[part] = _rotation_at((q0[part], rate0[part]), (q1[part], rate1[part]), t, T)
    x = np.concatenate([q, np.zeros(system.n_v), start[system.at_y]])
    return q, velocity_of(system, x, rate, p)


def velocity_of(system: CLS, x: Array, rate: Array, p: Array) -> Array:
    """Return the velocities v (n_v,) at a state (n_x,) of which q' = N(q) v is the rate (n_q,)."""
    # N(q) has full column rank: v is the least-squares solution.
    along = system.mechanics.moved(x, p, np.eye(system.n_v))
    return np.asarray(np.linalg.lstsq(along, rate, rcond=None)[0])


def _rotation_at(first: tuple[Array, Array], last: tuple[Array, Array], t: float, T: float) -> tuple[Array, Array]:
    """Return the unit quaternion at t and its rate, from quaternion and rate at both ends."""
    q0, q1 = first[0], last[0]
    angle = attitude_error(q1, q0)
    w0, w1 = (2.0 * _imaginary(q, rate) for q, rate in (first, last))
    # Angular velocities become rates of the rotation vector by the inverse of the right Jacobian of SO(3), and back.
    turn, speed, _ = _cubic(np.zeros(3), w0, angle, right_jacobian_inverse(angle) @ w1, t, T)
    q = product(q0, quaternion_of(exp(turn)))
    return q, product(q, np.append(0.0, 0.5 * right_jacobian(turn) @ speed))


def _imaginary(quaternion: Array, rate: Array) -> Array:
    """Return the imaginary part of conj(q) q': half of the angular velocity in the body frame."""
    return np.asarray(product(quaternion * [1, -1, -1, -1], rate)[1:])
