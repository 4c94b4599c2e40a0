"""Free flight over one step: the discrete equations of a rigid body, F in SO(3) with h S(Pi) = F J_d - J_d F^T.

J_d = tr(J) / 2 I - J. Both maps, Cayley's and the exponential, are charts in which the same equation is solved, so they
give the same F but for rounding. Where h |Pi| is too large it has no solution near the identity; for J = j I that is
h |Pi| > j, because the angle of F is asin(h |Pi| / j).
"""

from __future__ import annotations

import math

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.vectors import (
    Matrix,
    Vector,
    cross,
    determinant,
    dot,
    orthonormal,
    plus,
    product,
    solved,
    times,
    transposed_times,
)

# Newton's method takes 3 or 4 iterations; close to the largest h |Pi|, where two solutions meet, it gets slow.
MOST_ITERATIONS = 60
# A squared step of Newton's method after which the next one would be rounding.
SETTLED = 1e-18
# A body: mass, gravity, inertia and its inverse. A segment: position and momentum at its base, time since then,
# rotation and angular momentum.
Body = tuple[float, Vector, Matrix, Matrix]
Segment = tuple[Vector, Vector, float, Matrix, Vector]
State = tuple[bool, Vector, Vector, Matrix, Vector]


@jitable
def cayley(f: Vector) -> Matrix:
    """F = ((1 - f . f) I + 2 S(f) + 2 f f^T) / (1 + f . f)"""
    scale = 2.0 / (1.0 + dot(f, f))
    a, b, c = scale * f[0], scale * f[1], scale * f[2]
    return (
        1.0 - b * f[1] - c * f[2],
        a * f[1] - c,
        a * f[2] + b,
        a * f[1] + c,
        1.0 - a * f[0] - c * f[2],
        b * f[2] - a,
        a * f[2] - b,
        b * f[2] + a,
        1.0 - a * f[0] - b * f[1],
    )


@jitable
def cayley_slope(inertia: Matrix, p: Vector, f: Vector) -> Matrix:
    """dG = S(p) + (p . f) I + f p^T - 2 J"""
    pf = dot(p, f)
    return (
        pf + f[0] * p[0] - 2.0 * inertia[0],
        -p[2] + f[0] * p[1] - 2.0 * inertia[1],
        p[1] + f[0] * p[2] - 2.0 * inertia[2],
        p[2] + f[1] * p[0] - 2.0 * inertia[3],
        pf + f[1] * p[1] - 2.0 * inertia[4],
        -p[0] + f[1] * p[2] - 2.0 * inertia[5],
        -p[1] + f[2] * p[0] - 2.0 * inertia[6],
        p[0] + f[2] * p[1] - 2.0 * inertia[7],
        pf + f[2] * p[2] - 2.0 * inertia[8],
    )


@jitable
def cayley_rotation(inertia: Matrix, inverse: Matrix, p: Vector) -> tuple[bool, Matrix, float]:
    """Solve G(f) = p + p x f + (p . f) f - 2 J f = 0 for p = h Pi; return found, F and tr((I - F) J_d)."""
    f = times(inverse, p)
    f = (0.5 * f[0], 0.5 * f[1], 0.5 * f[2])
    found = False
    for _ in range(MOST_ITERATIONS):
        residual = plus(plus(plus(p, 1.0, cross(p, f)), dot(p, f), f), -2.0, times(inertia, f))
        slope = cayley_slope(inertia, p, f)
        det = determinant(slope)
        # it is negative from f = 0 (where it is -8 det J) to the end of the branch
        if not det < 0.0:
            break
        step = solved(slope, det, residual)
        f = plus(f, -1.0, step)
        if dot(step, step) <= SETTLED:
            found = True
            break
    return found, cayley(f), 2.0 / (1.0 + dot(f, f)) * dot(f, times(inertia, f))


@jitable
def series_of(square: float) -> tuple[float, float, float, float]:
    """sin(w)/w, (1 - cos(w))/w^2 and their derivatives by w^2."""
    if square < 1e-2:
        sine = 1.0 - square / 6.0 * (1.0 - square / 20.0 * (1.0 - square / 42.0 * (1.0 - square / 72.0)))
        versine = 0.5 - square / 24.0 * (1.0 - square / 30.0 * (1.0 - square / 56.0 * (1.0 - square / 90.0)))
        d_sine = -1.0 / 6.0 + square / 60.0 - square**2 / 1680.0 + square**3 / 90720.0
        d_versine = -1.0 / 24.0 + square / 360.0 - square**2 / 13440.0 + square**3 / 907200.0
        return sine, versine, d_sine, d_versine
    angle = math.sqrt(square)
    sine = math.sin(angle) / angle
    half = math.sin(0.5 * angle)
    versine = 2.0 * half * half / square
    return sine, versine, (math.cos(angle) - sine) / (2.0 * square), (0.5 * sine - versine) / square


@jitable
def exponential_slope(inertia: Matrix, w: Vector, turned: Vector, swept: Vector) -> Matrix:
    """Derivative of a(|w|^2) J w + b(|w|^2) w x J w by w, given turned = J w and swept = w x J w."""
    sine, versine, d_sine, d_versine = series_of(dot(w, w))
    # d swept = (S(w) J - S(J w)) dw, column by column
    one = cross(w, (inertia[0], inertia[3], inertia[6]))
    two = cross(w, (inertia[1], inertia[4], inertia[7]))
    three = cross(w, (inertia[2], inertia[5], inertia[8]))
    along = plus((0.0, 0.0, 0.0), 2.0 * d_sine, turned)
    along = plus(along, 2.0 * d_versine, swept)
    return (
        sine * inertia[0] + versine * one[0] + along[0] * w[0],
        sine * inertia[1] + versine * (two[0] + turned[2]) + along[0] * w[1],
        sine * inertia[2] + versine * (three[0] - turned[1]) + along[0] * w[2],
        sine * inertia[3] + versine * (one[1] - turned[2]) + along[1] * w[0],
        sine * inertia[4] + versine * two[1] + along[1] * w[1],
        sine * inertia[5] + versine * (three[1] + turned[0]) + along[1] * w[2],
        sine * inertia[6] + versine * (one[2] + turned[1]) + along[2] * w[0],
        sine * inertia[7] + versine * (two[2] - turned[0]) + along[2] * w[1],
        sine * inertia[8] + versine * three[2] + along[2] * w[2],
    )


@jitable
def exponential(w: Vector) -> Matrix:
    """exp(S(w)) = I + a S(w) + b S(w)^2"""
    sine, versine, _, _ = series_of(dot(w, w))
    a, b, c = versine * w[0], versine * w[1], versine * w[2]
    return (
        1.0 - b * w[1] - c * w[2],
        a * w[1] - sine * w[2],
        a * w[2] + sine * w[1],
        a * w[1] + sine * w[2],
        1.0 - a * w[0] - c * w[2],
        b * w[2] - sine * w[0],
        a * w[2] - sine * w[1],
        b * w[2] + sine * w[0],
        1.0 - a * w[0] - b * w[1],
    )


@jitable
def exponential_rotation(inertia: Matrix, inverse: Matrix, p: Vector) -> tuple[bool, Matrix, float]:
    """Solve a J w + b w x J w = p for F = exp(S(w)), with a and b of `series_of`; return found, F, tr((I - F) J_d)."""
    w = times(inverse, p)
    found = False
    for _ in range(MOST_ITERATIONS):
        sine, versine, _, _ = series_of(dot(w, w))
        turned = times(inertia, w)
        swept = cross(w, turned)
        residual = plus(plus((-p[0], -p[1], -p[2]), sine, turned), versine, swept)
        slope = exponential_slope(inertia, w, turned, swept)
        det = determinant(slope)
        if not det > 0.0:
            break
        step = solved(slope, det, residual)
        w = plus(w, -1.0, step)
        if dot(step, step) <= SETTLED:
            found = True
            break
    return found, exponential(w), series_of(dot(w, w))[1] * dot(w, times(inertia, w))


@jitable
def rotation_over(body: Body, exponential: bool, p: Vector) -> tuple[bool, Matrix, float]:
    """F for p = h Pi, in the chosen chart: found, F, tr((I - F) J_d)."""
    if exponential:
        return exponential_rotation(body[2], body[3], p)
    return cayley_rotation(body[2], body[3], p)


@jitable
def flown(body: Body, exponential: bool, segment: Segment, s: float) -> State:
    """The state after s seconds of a segment: found, x, gamma, R, Pi.

    The translation is that of its base in closed form, which is what the discrete equations add up to: without it
    rounding errors of the energy would add up over the steps.
    """
    base, momentum, since, rotation, spin = segment
    tau = since + s
    x = plus(plus(base, tau / body[0], momentum), 0.5 * tau * tau, body[1])
    gamma = plus(momentum, body[0] * tau, body[1])
    found, turn, _ = rotation_over(body, exponential, (s * spin[0], s * spin[1], s * spin[2]))
    if found:
        rotation = orthonormal(product(rotation, turn))
        before, spin = dot(spin, spin), transposed_times(turn, spin)
        # F keeps |Pi|; where it is the same in every step, its rounding error would add up
        correction = 0.5 * (before - dot(spin, spin)) / before if before > 0.0 else 0.0
        spin = plus(spin, correction, spin)
    return found, x, gamma, rotation, spin


@jitable
def parts_of(body: Body, exponential: bool, most: int, spin: Vector, s: float) -> int:
    """The smallest power of two (up to `most`) of equal parts in which s seconds can be flown, 0 if there is none.

    More than one part is flown with a margin: at the very end of the branch rounding decides whether the next one is.
    """
    parts = 1
    while parts <= most:
        part = s if parts == 1 else 1.01 * s / parts
        if rotation_over(body, exponential, (part * spin[0], part * spin[1], part * spin[2]))[0]:
            return parts
        parts *= 2
    return 0


@jitable
def energy_of(body: Body, x: Vector, gamma: Vector, spin: Vector) -> float:
    """H = |gamma|^2 / 2m + Pi . J^-1 Pi / 2 - m g . x"""
    return 0.5 * (dot(gamma, gamma) / body[0] + dot(spin, times(body[3], spin))) - body[0] * dot(body[1], x)


@jitable
def discrete_energy(
    body: Body, exponential: bool, x: Vector, gamma: Vector, spin: Vector, s: float
) -> tuple[bool, float]:
    """E_d = -dL_d/dh of a flight of s seconds from (x, gamma, Pi), and whether there is one.

    L_d = m |dx|^2 / 2h + tr((I - F) J_d) / h - h (U0 + U1) / 2, hence E_d = |gamma|^2 / 2m + U0 - m |g|^2 s^2 / 8
    + tr((I - F) J_d) / s^2, where the last term tends to the rotational energy as s goes to zero.
    """
    potential = -body[0] * (dot(body[1], x) + 0.125 * s * s * dot(body[1], body[1]))
    translational = 0.5 * dot(gamma, gamma) / body[0] + potential
    if s < 1e-100:
        return True, translational + 0.5 * dot(spin, times(body[3], spin))
    found, _, action = rotation_over(body, exponential, (s * spin[0], s * spin[1], s * spin[2]))
    return found, translational + action / (s * s)
