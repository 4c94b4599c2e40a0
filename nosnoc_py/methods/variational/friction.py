"""The impulse of an impact: Newton's restitution in the normal direction, Coulomb's friction in the plane."""

from __future__ import annotations

import math

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.flight import Body
from nosnoc_py.methods.variational.vectors import (
    Matrix,
    Vector,
    cross,
    determinant,
    dot,
    plus,
    solved,
    times,
    transposed_times,
)

# lambda, impulse in the world, torque in the body, normal velocity before and after, energy gained, energy clipped.
Strike = tuple[float, Vector, Vector, float, float, float, float]

BISECTIONS = 60


@jitable
def struck(plane: np.ndarray, body: Body, rotation: Matrix, rho: Vector, gamma: Vector, spin: Vector) -> Strike:
    """The impulse of an impact: v+ = -e v- in the normal direction, Coulomb's law in the plane.

    Restitution is Newton's, with which friction may create kinetic energy; tangential impulses are then made smaller
    until it does not.
    """
    normal, restitution = (plane[0], plane[1], plane[2]), plane[4]
    one, two = tangents(normal)
    first = cross(rho, transposed_times(rotation, one))
    second = cross(rho, transposed_times(rotation, two))
    chi = cross(rho, transposed_times(rotation, normal))
    omega, inverse = times(body[3], spin), body[3]
    u = (
        dot(one, gamma) / body[0] + dot(first, omega),
        dot(two, gamma) / body[0] + dot(second, omega),
        dot(normal, gamma) / body[0] + dot(chi, omega),
    )
    a, b, c = times(inverse, first), times(inverse, second), times(inverse, chi)
    light = 1.0 / body[0]
    weights = (
        light + dot(first, a),
        dot(first, b),
        dot(first, c),
        dot(first, b),
        light + dot(second, b),
        dot(second, c),
        dot(first, c),
        dot(second, c),
        light + dot(chi, c),
    )
    p = coulomb(weights, u, restitution, plane[5])
    p, clipped = without_gain(weights, u, restitution, p)
    slip = plus(u, 1.0, times(weights, p))
    after = (slip[0], slip[1], -restitution * u[2])  # not by differences: without losses the energy is kept exactly
    gain = 0.5 * (dot(p, u) + dot(p, after))
    impulse = plus(plus((p[0] * one[0], p[0] * one[1], p[0] * one[2]), p[1], two), p[2], normal)
    torque = plus(plus((p[0] * first[0], p[0] * first[1], p[0] * first[2]), p[1], second), p[2], chi)
    return p[2], impulse, torque, u[2], after[2], gain, clipped


@jitable
def tangents(normal: Vector) -> tuple[Vector, Vector]:
    """Two unit vectors that make a right-handed frame with the normal."""
    other = (1.0, 0.0, 0.0) if abs(normal[0]) < 0.8 else (0.0, 1.0, 0.0)
    one = plus(other, -dot(other, normal), normal)
    length = math.sqrt(dot(one, one))
    one = (one[0] / length, one[1] / length, one[2] / length)
    return one, cross(normal, one)


@jitable
def coulomb(weights: Matrix, u: Vector, restitution: float, friction: float) -> Vector:
    """Impulse (two tangents, normal) with u_n+ = -e u_n-, u+ = u + W p, that sticks or slides against u_t+.

    A copy of the contact problem of `contact_problems/` for one contact, because numba cannot call that;
    `tests/contact_problems/test_compiled_copy.py` holds them together. Of several directions of slip it takes the one
    nearest to u_t-. Where friction couples so strongly that there is none, the impulse along u_t-, or one without
    friction.
    """
    frictionless = (0.0, 0.0, -(1.0 + restitution) * u[2] / weights[8])
    if friction == 0.0:
        return frictionless
    stick = solved(weights, determinant(weights), (-u[0], -u[1], -(1.0 + restitution) * u[2]))
    if math.hypot(stick[0], stick[1]) <= friction * stick[2]:
        return stick
    found, angle = slip_direction(weights, u, restitution, friction)
    p = _sliding(weights, u, restitution, friction, angle)
    return p if found or p[2] > 0.0 else frictionless


@jitable
def slip_direction(weights: Matrix, u: Vector, restitution: float, friction: float) -> tuple[bool, float]:
    """Angle of a slip u_t+ against which its friction acts, and whether there is one; else that of u_t-.

    For p slides towards (c, s) = (cos, sin), the slip across it, times W_nn - mu (W_nx c + W_ny s), is
    A c + B s + C c^2 + D c s + E s^2, a quartic in tan(angle / 2): all its roots are found, and none is missed.
    """
    start, nearest, chosen = math.atan2(u[1], u[0]), math.inf, 0.0
    value = -(1.0 + restitution) * u[2]
    A, B = u[1] * weights[8] + value * weights[5], -u[0] * weights[8] - value * weights[2]
    C = -friction * (u[1] * weights[6] + value * weights[3])
    D = friction * (u[0] * weights[6] - u[1] * weights[7] + value * (weights[0] - weights[4]))
    E = friction * (u[0] * weights[7] + value * weights[1])
    for side in (1.0, -1.0):  # the right half of the circle, and the left one turned by pi
        a, b = side * A, side * B
        tangents_of_half = roots_between(
            np.array((a + C, 2.0 * (b + D), 4.0 * E - 2.0 * C, 2.0 * (b - D), C - a)), -1.0, 1.0
        )
        for half in tangents_of_half:
            angle = 2.0 * math.atan(half) + (0.0 if side > 0.0 else math.pi)
            p = _sliding(weights, u, restitution, friction, angle)
            slip = plus(u, 1.0, times(weights, p))
            away = -math.cos(angle - start)
            if p[2] > 0.0 and math.cos(angle) * slip[0] + math.sin(angle) * slip[1] >= 0.0 and away < nearest:
                nearest, chosen = away, angle
    return nearest < math.inf, chosen if nearest < math.inf else start


@jitable
def roots_between(coefficients: np.ndarray, low: float, high: float) -> np.ndarray:
    """Real roots in [low, high] of a polynomial, constant term first: roots of its derivatives part them.

    A double root counts where the polynomial vanishes there but for rounding.
    """
    found = np.zeros(0)
    for order in range(coefficients.size - 2, -1, -1):
        derived = coefficients
        for _ in range(order):
            derived = derived[1:] * np.arange(1, derived.size)
        parts = np.concatenate((np.array((low,)), found, np.array((high,))))
        values = np.array([polynomial(derived, part) for part in parts])
        values[np.abs(values) <= 1e-15 * np.abs(derived).sum()] = 0.0
        inside = [
            bisected(derived, parts[k], parts[k + 1], values[k])
            for k in range(parts.size - 1)
            if values[k] * values[k + 1] < 0.0
        ]
        found = np.sort(np.concatenate((parts[values == 0.0], np.array(inside, dtype=np.float64))))
    return found


@jitable
def polynomial(coefficients: np.ndarray, x: float) -> float:
    """Its value, constant term first."""
    value = 0.0
    for k in range(coefficients.size - 1, -1, -1):
        value = value * x + coefficients[k]
    return value


@jitable
def bisected(coefficients: np.ndarray, low: float, high: float, f_low: float) -> float:
    """The root of a polynomial between two signs.

    A copy of `motion.crossing.root`, because numba cannot call that; `tests/motion/test_compiled_roots.py` holds them
    together.
    """
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        f_middle = polynomial(coefficients, middle)
        if f_low * f_middle <= 0.0:
            high = middle
        else:
            low, f_low = middle, f_middle
    return 0.5 * (low + high)


@jitable
def _sliding(weights: Matrix, u: Vector, restitution: float, friction: float, angle: float) -> Vector:
    """The impulse that slides towards an angle; zero where it would need to pull."""
    c, s = math.cos(angle), math.sin(angle)
    weight = weights[8] - friction * (weights[6] * c + weights[7] * s)
    value = -(1.0 + restitution) * u[2] / weight if weight > 0.0 else 0.0
    return (-friction * value * c, -friction * value * s, value)


@jitable
def without_gain(weights: Matrix, u: Vector, restitution: float, p: Vector) -> tuple[Vector, float]:
    """Scale tangential impulses down until p . (u- + u+) / 2 <= 0; return the impulse and the energy cut off.

    The normal one follows so that u_n+ = -e u_n-. Without tangential impulses the gain is -(1 - e^2) u_n^2 / 2 W_nn, so
    there is a scale in [0, 1], and the impulse stays in Coulomb's cone. The bisection is a copy of
    `motion.crossing.root` that ends on the side without gain, because numba cannot call that;
    `tests/motion/test_compiled_roots.py` holds them together.
    """
    gain = dot(p, u) + 0.5 * dot(p, times(weights, p))
    if gain <= 1e-13 * 0.5 * u[2] * u[2] / weights[8] and p[2] > 0.0:
        return p, 0.0
    low, high = 0.0, 1.0
    coupling = weights[6] * p[0] + weights[7] * p[1]
    scaled = p
    for _ in range(BISECTIONS):
        scale = 0.5 * (low + high)
        scaled = _scaled(weights, u, restitution, p, coupling, scale)
        if dot(scaled, u) + 0.5 * dot(scaled, times(weights, scaled)) <= 0.0:
            low = scale
        else:
            high = scale
    scaled = _scaled(weights, u, restitution, p, coupling, low)
    return scaled, max(gain, 0.0)


@jitable
def _scaled(weights: Matrix, u: Vector, restitution: float, p: Vector, coupling: float, scale: float) -> Vector:
    value = -((1.0 + restitution) * u[2] + scale * coupling) / weights[8]
    return (scale * p[0], scale * p[1], value)
