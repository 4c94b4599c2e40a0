"""Contact problem of a body with all of its contact points: unilateral impulses with Coulomb friction.

    M (w - w_free) = J^T p,   0 <= p_n  perpendicular  J_n w >= c,   |p_t| <= mu p_n,   p_t against J_t w in a slip

for the velocity w = (v, Omega) of the body, or a displacement. Many points of one rigid body are redundant: p is not
unique, and iterations over points (projected Gauss-Seidel) are slow, with thousands of sweeps for slender boxes. So the
unknown is w, of dimension six for any number of points. Augmented Lagrangian (Alart and Curnier 1991): p(w) is the
projection of p - (J w - c) / epsilon onto the cones; a semismooth Newton method solves M (w - w_free) = J^T p(w), and
the multipliers p are updated until J w = c at the active points.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nosnoc_py.compiled import faster, jitable
from nosnoc_py.methods.variational.flight import Body
from nosnoc_py.methods.variational.friction import tangents
from nosnoc_py.methods.variational.vectors import Matrix, Vector, cross, dot, times, transposed_times

# epsilon relative to the inverse effective mass 1/m + chi . J^-1 chi of a point: at first, finally, and in a second
# attempt. A large epsilon keeps Newton's method close to the solution without impulses; a small one needs few updates.
FIRST_SOFTNESS, SOFTNESS, SECOND_SOFTNESS = 1.0, 1e-4, 1e-1
# Limits: updates of the impulses, Newton steps per update, halvings of a step.
MAX_UPDATES, MAX_NEWTON_STEPS, MAX_HALVINGS = 40, 30, 12
# Violations and changes below this, relative to the velocities, are rounding.
ROUNDING_OF_VELOCITIES = 1e-14
# Rounding errors of J w are divided by epsilon, so residuals up to this factor above the tolerance are accepted.
NOISE_OF_RESIDUALS = 1e3


class Points(NamedTuple):
    """Contact points with their targets and friction.

    Attributes
    ----------
    rows : (n, 3, 6)
        Jacobians J, see `write_jacobian`.
    targets, friction, softness : (n,)
        c, mu and epsilon; epsilon is changed in place.
    lagged : bool
        True if the radii mu p_n are those of the last impulses, which makes the problem convex.
    """

    rows: np.ndarray
    targets: np.ndarray
    friction: np.ndarray
    softness: np.ndarray
    lagged: bool


@jitable
def write_jacobian(rows: np.ndarray, plane: np.ndarray, rotation: Matrix, rho: Vector) -> None:
    """Write J (3, 6) of a point: velocities along normal and tangents from v (world frame) and Omega (body frame)."""
    normal = (plane[0], plane[1], plane[2])
    first, second = tangents(normal)
    for i, direction in enumerate((normal, first, second)):
        arm = cross(rho, transposed_times(rotation, direction))
        for j in range(3):
            rows[i, j], rows[i, 3 + j] = direction[j], arm[j]


@jitable
def momentum_of(body: Body, w: np.ndarray) -> np.ndarray:
    """Return the momentum M w = (m v, J Omega)."""
    turned = times(body[2], (w[3], w[4], w[5]))
    return np.array((body[0] * w[0], body[0] * w[1], body[0] * w[2], turned[0], turned[1], turned[2]))


@jitable
def velocity_of(body: Body, momentum: np.ndarray) -> np.ndarray:
    """Return the velocity M^-1 (gamma, Pi)."""
    omega = times(body[3], (momentum[3], momentum[4], momentum[5]))
    inverse_mass = 1.0 / body[0]
    return np.array(
        (
            inverse_mass * momentum[0],
            inverse_mass * momentum[1],
            inverse_mass * momentum[2],
            omega[0],
            omega[1],
            omega[2],
        )
    )


@jitable
def energy_norm(body: Body, w: np.ndarray) -> float:
    """Return sqrt(w . M w / m), a speed [m/s]."""
    return math.sqrt(max(0.0, np.sum(w * momentum_of(body, w))) / body[0])


@jitable
def weight_of(body: Body, row: np.ndarray) -> float:
    """Return the inverse effective mass along a row of J."""
    arm = (row[3], row[4], row[5])
    return (row[0] ** 2 + row[1] ** 2 + row[2] ** 2) / body[0] + dot(arm, times(body[3], arm))


def _velocities_by_loops(rows: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return J w (n, 3)."""
    velocities = np.zeros(rows.shape[:2])
    for i in range(rows.shape[0]):
        for r in range(3):
            for j in range(6):
                velocities[i, r] += rows[i, r, j] * w[j]
    return velocities


def _impulse_by_loops(rows: np.ndarray, impulses: np.ndarray) -> np.ndarray:
    """Return J^T p (6,)."""
    total = np.zeros(6)
    for i in range(rows.shape[0]):
        for r in range(3):
            for j in range(6):
                total[j] += rows[i, r, j] * impulses[i, r]
    return total


def _velocities_by_arrays(rows: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray(rows @ w)


def _impulse_by_arrays(rows: np.ndarray, impulses: np.ndarray) -> np.ndarray:
    return np.asarray(impulses.reshape(-1) @ rows.reshape(-1, 6))


contact_velocities = faster(_velocities_by_loops, _velocities_by_arrays)
generalised_impulse = faster(_impulse_by_loops, _impulse_by_arrays)


@jitable
def project_onto_cones(
    points: Points, impulses: np.ndarray, w: np.ndarray, result: np.ndarray, slopes: np.ndarray
) -> None:
    """Write p(w) (n, 3) to `result`, and -epsilon dp/d(J w) (n, 3, 3) to `slopes`.

    A copy of `contact_problems.cones.onto_disc` for one point with its derivative, since numba cannot call that;
    `tests/contact_problems/test_compiled_copy.py` compares them.
    """
    rows, targets, friction, softness, lagged = points
    moved = contact_velocities(rows, w)
    slopes[:] = 0.0
    result[:] = 0.0
    for i in range(rows.shape[0]):
        moved[i, 0] -= targets[i]
        z = (
            impulses[i, 0] - moved[i, 0] / softness[i],
            impulses[i, 1] - moved[i, 1] / softness[i],
            impulses[i, 2] - moved[i, 2] / softness[i],
        )
        # Outside of the cone on the side of separation: no impulse.
        if z[0] <= 0.0:
            continue
        result[i, 0], slopes[i, 0, 0] = z[0], 1.0
        length, radius = math.hypot(z[1], z[2]), friction[i] * (impulses[i, 0] if lagged else z[0])
        # Inside of the disc: sticking.
        if length <= radius:
            result[i, 1], result[i, 2], slopes[i, 1, 1], slopes[i, 2, 2] = z[1], z[2], 1.0, 1.0
            continue
        # On the edge of the disc: sliding; the derivative is the projection onto the tangent of the disc.
        a, b, ratio = z[1] / length, z[2] / length, radius / length
        result[i, 1], result[i, 2] = radius * a, radius * b
        if not lagged:
            slopes[i, 1, 0], slopes[i, 2, 0] = friction[i] * a, friction[i] * b
        slopes[i, 1, 1], slopes[i, 2, 2] = ratio * b * b, ratio * a * a
        slopes[i, 1, 2] = slopes[i, 2, 1] = -ratio * a * b


def _matrix_by_loops(body: Body, points: Points, slopes: np.ndarray) -> np.ndarray:
    """Return the Newton matrix M - J^T dp/dw (6, 6)."""
    rows, softness = points.rows, points.softness
    matrix = np.zeros((6, 6))
    for i in range(3):
        matrix[i, i] = body[0]
        for j in range(3):
            matrix[3 + i, 3 + j] = body[2][3 * i + j]
    for k in range(rows.shape[0]):
        # A point without an impulse adds nothing.
        if slopes[k, 0, 0] == 0.0:
            continue
        for r in range(3):
            for j in range(6):
                slope = 0.0
                for q in range(3):
                    slope += slopes[k, r, q] * rows[k, q, j]
                # `slopes` is -epsilon dp/d(J w), so that -J' dp/dw is added with a plus.
                slope /= softness[k]
                if slope != 0.0:
                    for i in range(6):
                        matrix[i, j] += rows[k, r, i] * slope
    return matrix


def _matrix_by_arrays(body: Body, points: Points, slopes: np.ndarray) -> np.ndarray:
    by_w = slopes @ points.rows / points.softness[:, None, None]
    matrix = np.asarray(points.rows.reshape(-1, 6).T @ by_w.reshape(-1, 6))
    matrix[:3, :3] += body[0] * np.eye(3)
    matrix[3:, 3:] += np.reshape(body[2], (3, 3))
    return matrix


def _solved_by_loops(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return A^-1 b by Gaussian elimination with partial pivoting; changes both arguments."""
    n = b.size
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(A[i, k]) > abs(A[pivot, k]):
                pivot = i
        # A singular matrix gives no step: the updates do not converge then, and the next attempt follows.
        if A[pivot, k] == 0.0:
            return np.zeros(n)
        if pivot != k:
            for j in range(n):
                A[k, j], A[pivot, j] = A[pivot, j], A[k, j]
            b[k], b[pivot] = b[pivot], b[k]
        for i in range(k + 1, n):
            factor = A[i, k] / A[k, k]
            for j in range(k, n):
                A[i, j] -= factor * A[k, j]
            b[i] -= factor * b[k]
    for k in range(n - 1, -1, -1):
        for j in range(k + 1, n):
            b[k] -= A[k, j] * b[j]
        b[k] /= A[k, k]
    return b


def _solved_by_arrays(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(np.linalg.solve(A, b))
    except np.linalg.LinAlgError:
        return np.zeros(b.size)


matrix_of = faster(_matrix_by_loops, _matrix_by_arrays)
gaussian_solve = faster(_solved_by_loops, _solved_by_arrays)


@jitable
def solve_balance(
    body: Body, points: Points, impulses: np.ndarray, free: np.ndarray, w: np.ndarray, enough: float
) -> tuple[np.ndarray, np.ndarray]:
    """Solve M (w - w_free) = J^T p(w) by damped Newton steps; return w and p(w)."""
    projection, slopes = np.zeros(impulses.shape), np.zeros((impulses.shape[0], 3, 3))
    project_onto_cones(points, impulses, w, projection, slopes)
    residual = momentum_of(body, w - free) - generalised_impulse(points.rows, projection)
    error = energy_norm(body, velocity_of(body, residual))
    for _ in range(MAX_NEWTON_STEPS):
        if error <= enough:
            break
        # A copy: elimination overwrites the right side, and the residual is tested below.
        step = gaussian_solve(matrix_of(body, points, slopes), residual.copy())
        factor = 1.0
        for k in range(MAX_HALVINGS):
            trial = w - factor * step
            project_onto_cones(points, impulses, trial, projection, slopes)
            residual = momentum_of(body, trial - free) - generalised_impulse(points.rows, projection)
            trial_error = energy_norm(body, velocity_of(body, residual))
            # The last halving is accepted in any case: kinks of the projection may need a step that does not descend.
            if (
                trial_error < (1.0 - 0.1 * factor) * error
                or trial_error <= NOISE_OF_RESIDUALS * enough
                or k == MAX_HALVINGS - 1
            ):
                break
            factor *= 0.5
        w = trial
        # The error no longer halves near rounding, or no step descends a little above it: further steps only repeat it.
        noise = 10.0 * NOISE_OF_RESIDUALS if k == MAX_HALVINGS - 1 else NOISE_OF_RESIDUALS
        if trial_error > 0.5 * error and trial_error <= noise * enough:
            break
        error = trial_error
    return w, projection


@jitable
def solve_contacts(
    body: Body, rows: np.ndarray, targets: np.ndarray, friction: np.ndarray, impulses: np.ndarray, free: np.ndarray
) -> np.ndarray:
    """Solve for the impulses (n, 3) of n points, in place and started from their values; J (n, 3, 6), c (n,), mu (n,).

    Without friction the problem is convex and always solvable. With friction it may have no solution, and Newton's
    method may miss one. The attempts are: small epsilon, larger epsilon, fixed friction radii of the last update
    (convex), and no friction.

    Returns
    -------
    w (6,), the velocity with these impulses.
    """
    # Targets count, too: a body at rest inside a plane has no free velocity.
    scale, softness = max(energy_norm(body, free), np.abs(targets).max()), np.empty(rows.shape[0])
    points = Points(rows, targets, friction, softness, False)
    if not (
        update_impulses(body, points, SOFTNESS, impulses, free, scale)
        or update_impulses(body, points, SECOND_SOFTNESS, impulses, free, scale)
        or update_impulses(body, Points(rows, targets, friction, softness, True), SOFTNESS, impulses, free, scale)
    ):
        update_impulses(body, Points(rows, targets, 0.0 * friction, softness, False), SOFTNESS, impulses, free, scale)
    return free + velocity_of(body, generalised_impulse(rows, impulses))


@jitable
def update_impulses(
    body: Body, points: Points, soft: float, impulses: np.ndarray, free: np.ndarray, scale: float
) -> bool:
    """Update the impulses until they converge; return True if they do, else reset them to zero."""
    rows, softness = points.rows, points.softness
    for i in range(rows.shape[0]):
        # Start soft and sharpen by factors of ten, a continuation that keeps Newton's method in its basin.
        softness[i] = FIRST_SOFTNESS * weight_of(body, rows[i, 0])
    w, scale_of_softness = free + velocity_of(body, generalised_impulse(rows, impulses)), FIRST_SOFTNESS
    for _ in range(MAX_UPDATES):
        w, projection = solve_balance(body, points, impulses, free, w, ROUNDING_OF_VELOCITIES * scale)
        change = 0.0
        for i in range(rows.shape[0]):
            for r in range(3):
                # epsilon times a change of p is the change of J w: the test is in velocities, like the tolerance.
                change = max(change, softness[i] * abs(projection[i, r] - impulses[i, r]))
                impulses[i, r] = projection[i, r]
        if change <= 10.0 * ROUNDING_OF_VELOCITIES * scale and scale_of_softness <= soft:
            return True
        # Sharpened in each update, also if Newton's method has not converged: the multipliers approach in parallel.
        if scale_of_softness > soft:
            scale_of_softness *= 0.1
            softness *= 0.1
    # The next attempt must not start from impulses that diverged.
    impulses[:] = 0.0
    return False
