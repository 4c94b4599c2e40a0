"""Free flight over one step: the discrete equations of a rigid body, F in SO(3) with h S(Pi) = F J_d - J_d F^T.

J_d = tr(J) / 2 I - J. It is solved in Cayley's chart; F does not depend on the chart. Where h |Pi| is too large it has
no solution near the identity; for J = j I that is h |Pi| > j, because the angle of F is asin(h |Pi| / j).
"""

from __future__ import annotations

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
def rotation_over(body: Body, p: Vector) -> tuple[bool, Matrix, float]:
    """Solve G(f) = p + p x f + (p . f) f - 2 J f = 0 for p = h Pi; return found, F and tr((I - F) J_d)."""
    inertia = body[2]
    f = times(body[3], p)
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
def flown(body: Body, segment: Segment, s: float) -> State:
    """The state after s seconds of a segment: found, x, gamma, R, Pi.

    The translation is that of its base in closed form, which is what the discrete equations add up to: without it
    rounding errors of the energy would add up over the steps.
    """
    base, momentum, since, rotation, spin = segment
    tau = since + s
    x = plus(plus(base, tau / body[0], momentum), 0.5 * tau * tau, body[1])
    gamma = plus(momentum, body[0] * tau, body[1])
    found, turn, _ = rotation_over(body, (s * spin[0], s * spin[1], s * spin[2]))
    if found:
        rotation = orthonormal(product(rotation, turn))
        before, spin = dot(spin, spin), transposed_times(turn, spin)
        # F keeps |Pi|; where it is the same in every step, its rounding error would add up
        correction = 0.5 * (before - dot(spin, spin)) / before if before > 0.0 else 0.0
        spin = plus(spin, correction, spin)
    return found, x, gamma, rotation, spin


@jitable
def energy_of(body: Body, x: Vector, gamma: Vector, spin: Vector) -> float:
    """H = |gamma|^2 / 2m + Pi . J^-1 Pi / 2 - m g . x"""
    return 0.5 * (dot(gamma, gamma) / body[0] + dot(spin, times(body[3], spin))) - body[0] * dot(body[1], x)


@jitable
def discrete_energy(body: Body, x: Vector, gamma: Vector, spin: Vector, s: float) -> tuple[bool, float]:
    """E_d = -dL_d/dh of a flight of s seconds from (x, gamma, Pi), and whether there is one.

    L_d = m |dx|^2 / 2h + tr((I - F) J_d) / h - h (U0 + U1) / 2, hence E_d = |gamma|^2 / 2m + U0 - m |g|^2 s^2 / 8
    + tr((I - F) J_d) / s^2, where the last term tends to the rotational energy as s goes to zero.
    """
    potential = -body[0] * (dot(body[1], x) + 0.125 * s * s * dot(body[1], body[1]))
    translational = 0.5 * dot(gamma, gamma) / body[0] + potential
    if s < 1e-100:
        return True, translational + 0.5 * dot(spin, times(body[3], spin))
    found, _, action = rotation_over(body, (s * spin[0], s * spin[1], s * spin[2]))
    return found, translational + action / (s * s)
