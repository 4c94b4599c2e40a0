"""Impulse of an impact: Newton's restitution in the normal direction, Coulomb's friction in the tangential plane.

First try sticking, then sliding. The slip direction after the impact is a root of a quartic in tan(angle / 2), of which
all roots are found, so no solution is missed. With Newton's restitution friction may create kinetic energy (Kane and
Levinson 1985; Stronge 1990); tangential impulses are then scaled down.
"""

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
    solve3,
    times,
    transposed_times,
)

# lambda, impulse (world frame), torque (body frame), normal velocity before and after, energy gained, energy clipped.
ImpactImpulse = tuple[float, Vector, Vector, float, float, float, float]

BISECTIONS = 60  # to rounding for intervals of length one


@jitable
def impact_impulse(
    plane: np.ndarray, body: Body, rotation: Matrix, rho: Vector, gamma: Vector, spin: Vector
) -> ImpactImpulse:
    """Return the impulse of an impact: v_n+ = -e v_n-, and Coulomb's law in the plane.

    With Newton's restitution friction may create kinetic energy; tangential impulses are then scaled down until it
    does not.
    """
    normal, restitution = (plane[0], plane[1], plane[2]), plane[4]
    tangent_1, tangent_2 = tangents(normal)
    first = cross(rho, transposed_times(rotation, tangent_1))
    second = cross(rho, transposed_times(rotation, tangent_2))
    chi = cross(rho, transposed_times(rotation, normal))
    omega, inverse = times(body[3], spin), body[3]
    u = (
        dot(tangent_1, gamma) / body[0] + dot(first, omega),
        dot(tangent_2, gamma) / body[0] + dot(second, omega),
        dot(normal, gamma) / body[0] + dot(chi, omega),
    )
    a, b, c = times(inverse, first), times(inverse, second), times(inverse, chi)
    inverse_mass = 1.0 / body[0]
    weights = (
        inverse_mass + dot(first, a),
        dot(first, b),
        dot(first, c),
        dot(first, b),
        inverse_mass + dot(second, b),
        dot(second, c),
        dot(first, c),
        dot(second, c),
        inverse_mass + dot(chi, c),
    )
    p = coulomb(weights, u, restitution, plane[5])
    p, clipped = limit_energy_gain(weights, u, restitution, p)
    slip = plus(u, 1.0, times(weights, p))
    after = (
        slip[0],
        slip[1],
        -restitution * u[2],
    )  # exact, not by differences: without losses the energy is conserved to rounding
    # Work of an impulse: its product with the mean of the velocities before and after.
    gain = 0.5 * (dot(p, u) + dot(p, after))
    impulse = plus(plus((p[0] * tangent_1[0], p[0] * tangent_1[1], p[0] * tangent_1[2]), p[1], tangent_2), p[2], normal)
    torque = plus(plus((p[0] * first[0], p[0] * first[1], p[0] * first[2]), p[1], second), p[2], chi)
    return p[2], impulse, torque, u[2], after[2], gain, clipped


@jitable
def tangents(normal: Vector) -> tuple[Vector, Vector]:
    """Return two unit vectors that form a right-handed frame with the normal."""
    # With the limit 0.8 the part of this axis across the normal has at least the length 0.6: no cancellation.
    other = (1.0, 0.0, 0.0) if abs(normal[0]) < 0.8 else (0.0, 1.0, 0.0)
    first = plus(other, -dot(other, normal), normal)
    length = math.sqrt(dot(first, first))
    first = (first[0] / length, first[1] / length, first[2] / length)
    return first, cross(normal, first)


@jitable
def coulomb(weights: Matrix, u: Vector, restitution: float, friction: float) -> Vector:
    """Return the impulse (two tangents, normal) with u_n+ = -e u_n-, u+ = u + W p, that sticks or slides against u_t+.

    A copy of the contact problem of `contact_problems/` for one contact, since numba cannot call that;
    `tests/contact_problems/test_compiled_copy.py` compares them. Of several slip directions the one nearest to u_t- is
    taken. If strong coupling leaves no direction, the impulse acts along u_t-, or without friction.
    """
    frictionless = (0.0, 0.0, -(1.0 + restitution) * u[2] / weights[8])
    if friction == 0.0:
        return frictionless
    # Impulse that stops tangential motion; admissible inside of the cone.
    stick = solve3(weights, determinant(weights), (-u[0], -u[1], -(1.0 + restitution) * u[2]))
    # A negative normal impulse fails here, too: the cone is empty for it.
    if math.hypot(stick[0], stick[1]) <= friction * stick[2]:
        return stick
    has_slip, angle = slip_direction(weights, u, restitution, friction)
    p = _sliding_impulse(weights, u, restitution, friction, angle)
    # Without a consistent direction friction along u_t- is kept only if the contact pushes with it.
    return p if has_slip or p[2] > 0.0 else frictionless


@jitable
def slip_direction(weights: Matrix, u: Vector, restitution: float, friction: float) -> tuple[bool, float]:
    """Return True and the angle of a slip u_t+ that friction opposes; else False and the angle of u_t-.

    If the impulse opposes the direction (c, s) = (cos, sin), the slip across this direction, times
    W_nn - mu (W_nx c + W_ny s), is A c + B s + C c^2 + D c s + E s^2: a quartic in tan(angle / 2), all roots of which
    are computed.
    """
    start, nearest, chosen = math.atan2(u[1], u[0]), math.inf, 0.0
    value = -(1.0 + restitution) * u[2]
    A, B = u[1] * weights[8] + value * weights[5], -u[0] * weights[8] - value * weights[2]
    C = -friction * (u[1] * weights[6] + value * weights[3])
    D = friction * (u[0] * weights[6] - u[1] * weights[7] + value * (weights[0] - weights[4]))
    E = friction * (u[0] * weights[7] + value * weights[1])
    for side in (1.0, -1.0):  # right half of the circle, and the left half turned by pi
        a, b = side * A, side * B
        tangents_of_half = roots_between(
            np.array((a + C, 2.0 * (b + D), 4.0 * E - 2.0 * C, 2.0 * (b - D), C - a)), -1.0, 1.0
        )
        for half in tangents_of_half:
            angle = 2.0 * math.atan(half) + (0.0 if side > 0.0 else math.pi)
            p = _sliding_impulse(weights, u, restitution, friction, angle)
            slip = plus(u, 1.0, times(weights, p))
            # Grows with the difference of the angles, without a case for a full turn.
            distance = -math.cos(angle - start)
            # Accept a root if the impulse pushes and the slip after the impact has the direction of the angle.
            if p[2] > 0.0 and math.cos(angle) * slip[0] + math.sin(angle) * slip[1] >= 0.0 and distance < nearest:
                nearest, chosen = distance, angle
    return nearest < math.inf, chosen if nearest < math.inf else start


@jitable
def roots_between(coefficients: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the real roots in [low, high] of a polynomial (constant term first), separated by those of derivatives.

    A double root counts if the polynomial vanishes there up to rounding.
    """
    roots = np.zeros(0)
    # Between two neighbouring roots of its derivative a polynomial is monotone and has at most one root.
    for order in range(coefficients.size - 2, -1, -1):
        derived = coefficients
        for _ in range(order):
            derived = derived[1:] * np.arange(1, derived.size)
        limits = np.concatenate((np.array((low,)), roots, np.array((high,))))
        values = np.array([polynomial(derived, part) for part in limits])
        # For |x| <= 1 Horner's rule has errors of this size; smaller values have no sign.
        values[np.abs(values) <= 1e-15 * np.abs(derived).sum()] = 0.0
        inside = [
            bisect_root(derived, limits[k], limits[k + 1], values[k])
            for k in range(limits.size - 1)
            if values[k] * values[k + 1] < 0.0
        ]
        roots = np.sort(np.concatenate((limits[values == 0.0], np.array(inside, dtype=np.float64))))
    return roots


@jitable
def polynomial(coefficients: np.ndarray, x: float) -> float:
    """Return the value of a polynomial (constant term first) by Horner's rule."""
    value = 0.0
    for k in range(coefficients.size - 1, -1, -1):
        value = value * x + coefficients[k]
    return value


@jitable
def bisect_root(coefficients: np.ndarray, low: float, high: float, f_low: float) -> float:
    """Return the root of a polynomial between two signs by bisection.

    A copy of `motion.crossing.root`, since numba cannot call that; `tests/motion/test_compiled_roots.py` compares them.
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
def _sliding_impulse(weights: Matrix, u: Vector, restitution: float, friction: float, angle: float) -> Vector:
    """Return the impulse for sliding in the direction of an angle; zero if it would have to pull."""
    c, s = math.cos(angle), math.sin(angle)
    # A weight that is not positive means that friction jams the contact (Painleve): no sliding impulse.
    weight = weights[8] - friction * (weights[6] * c + weights[7] * s)
    value = -(1.0 + restitution) * u[2] / weight if weight > 0.0 else 0.0
    return (-friction * value * c, -friction * value * s, value)


@jitable
def limit_energy_gain(weights: Matrix, u: Vector, restitution: float, p: Vector) -> tuple[Vector, float]:
    """Scale tangential impulses down until p . (u- + u+) / 2 <= 0; return the impulse and the energy removed.

    The normal impulse follows from u_n+ = -e u_n-. Without tangential impulses the gain is -(1 - e^2) u_n^2 / 2 W_nn,
    so a scale in [0, 1] exists, and the impulse stays in Coulomb's cone. The bisection is a copy of
    `motion.crossing.root` that ends on the side without gain; `tests/motion/test_compiled_roots.py` compares them.
    """
    gain = dot(p, u) + 0.5 * dot(p, times(weights, p))
    # No gain up to rounding: keep the impulse of Coulomb's law.
    if gain <= 1e-13 * 0.5 * u[2] * u[2] / weights[8] and p[2] > 0.0:
        return p, 0.0
    low, high = 0.0, 1.0
    coupling = weights[6] * p[0] + weights[7] * p[1]
    scaled = p
    for _ in range(BISECTIONS):
        scale = 0.5 * (low + high)
        scaled = _scaled_impulse(weights, u, restitution, p, coupling, scale)
        if dot(scaled, u) + 0.5 * dot(scaled, times(weights, scaled)) <= 0.0:
            low = scale
        else:
            high = scale
    # The lower end has no gain; the middle of the interval may have one.
    scaled = _scaled_impulse(weights, u, restitution, p, coupling, low)
    return scaled, max(gain, 0.0)


@jitable
def _scaled_impulse(weights: Matrix, u: Vector, restitution: float, p: Vector, coupling: float, scale: float) -> Vector:
    value = -((1.0 + restitution) * u[2] + scale * coupling) / weights[8]
    return (scale * p[0], scale * p[1], value)
