"""Free flight of a rigid body over one step: the discrete Euler-Lagrange equations on SE(3) in Hamiltonian form.

Tran and Leok, "Lie group variational collision integrators for a class of hybrid systems" (called LGVCI here), after
Lee, Leok, McClamroch 2007. The rotation increment F in SO(3) solves

    h S(Pi) = F J_d - J_d F^T,    J_d = tr(J) / 2 I - J,    Pi+ = F^T Pi,    R+ = R F,

with S(.) the cross product matrix. It is solved by Newton's method in Cayley's chart, on which F does not depend. If
h |Pi| is too large there is no solution near the identity; for J = j I this is h |Pi| > j, as the angle of F is
asin(h |Pi| / j). Translation is exact: x+ = x + h gamma / m + g h^2 / 2, gamma+ = gamma + m g h.
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
    solve3,
    times,
    transposed_times,
)

# Newton's method needs 3 or 4 iterations, more close to the largest h |Pi|, where two solutions meet.
MAX_ITERATIONS = 60
# Squared Newton step after which the next one would be below rounding (quadratic convergence).
STEP_TOLERANCE = 1e-18
# Body: mass, gravity, inertia and its inverse. Segment: position x and momentum gamma at its base, time since the base,
# rotation R and angular momentum Pi now. State: valid, x, gamma, R, Pi.
Body = tuple[float, Vector, Matrix, Matrix]
Segment = tuple[Vector, Vector, float, Matrix, Vector]
State = tuple[bool, Vector, Vector, Matrix, Vector]


@jitable
def cayley(f: Vector) -> Matrix:
    """Return F = ((1 - f . f) I + 2 S(f) + 2 f f^T) / (1 + f . f)."""
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
    """Return dG/df = S(p) + (p . f) I + f p^T - 2 J."""
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
    """Solve G(f) = p + p x f + (p . f) f - 2 J f = 0 for p = h Pi; return True if solved, F and tr((I - F) J_d)."""
    inertia = body[2]
    f = times(body[3], p)
    # Solution without the products of p and f, which are of second order in slow rotations.
    f = (0.5 * f[0], 0.5 * f[1], 0.5 * f[2])
    converged = False
    for _ in range(MAX_ITERATIONS):
        residual = plus(plus(plus(p, 1.0, cross(p, f)), dot(p, f), f), -2.0, times(inertia, f))
        jacobian = cayley_slope(inertia, p, f)
        det = determinant(jacobian)
        # det dG is -8 det J at f = 0 and negative on the whole branch near the identity; zero is the end of the branch.
        if not det < 0.0:
            break
        step = solve3(jacobian, det, residual)
        f = plus(f, -1.0, step)
        if dot(step, step) <= STEP_TOLERANCE:
            converged = True
            break
    return converged, cayley(f), 2.0 / (1.0 + dot(f, f)) * dot(f, times(inertia, f))


@jitable
def free_flight(body: Body, segment: Segment, s: float) -> State:
    """Return the state after s seconds of a segment: (solved, x, gamma, R, Pi).

    The translation is evaluated in closed form from the base of the segment, which equals the sum of the discrete
    steps; summing steps would accumulate rounding errors of the energy.
    """
    base, momentum, since, rotation, spin = segment
    tau = since + s
    x = plus(plus(base, tau / body[0], momentum), 0.5 * tau * tau, body[1])
    gamma = plus(momentum, body[0] * tau, body[1])
    converged, increment, _ = rotation_over(body, (s * spin[0], s * spin[1], s * spin[2]))
    if converged:
        # Products of rotations leave SO(3) by rounding, which would add up over 1e5 steps.
        rotation = orthonormal(product(rotation, increment))
        before, spin = dot(spin, spin), transposed_times(increment, spin)
        # F preserves |Pi|. Without the correction its rounding error accumulates when F is equal in all steps.
        correction = 0.5 * (before - dot(spin, spin)) / before if before > 0.0 else 0.0
        spin = plus(spin, correction, spin)
    return converged, x, gamma, rotation, spin


@jitable
def energy_of(body: Body, x: Vector, gamma: Vector, spin: Vector) -> float:
    """Return H = |gamma|^2 / 2m + Pi . J^-1 Pi / 2 - m g . x."""
    return 0.5 * (dot(gamma, gamma) / body[0] + dot(spin, times(body[3], spin))) - body[0] * dot(body[1], x)


@jitable
def discrete_energy(body: Body, x: Vector, gamma: Vector, spin: Vector, s: float) -> tuple[bool, float]:
    """Return the discrete energy E_d = -dL_d/dh of a flight of s seconds from (x, gamma, Pi), with True if it exists.

    L_d = m |dx|^2 / 2h + tr((I - F) J_d) / h - h (U0 + U1) / 2, hence E_d = |gamma|^2 / 2m + U0 - m |g|^2 s^2 / 8
    + tr((I - F) J_d) / s^2, where the last term tends to the rotational energy as s goes to zero.
    """
    potential = -body[0] * (dot(body[1], x) + 0.125 * s * s * dot(body[1], body[1]))
    translational = 0.5 * dot(gamma, gamma) / body[0] + potential
    # The last term of E_d is 0 / 0 at s = 0; its limit is used.
    if s < 1e-100:
        return True, translational + 0.5 * dot(spin, times(body[3], spin))
    converged, _, action = rotation_over(body, (s * spin[0], s * spin[1], s * spin[2]))
    return converged, translational + action / (s * s)
