"""All contacts of a body at once: impulses that may be taken back, within Coulomb's cones.

    M (w - w_free) = J^T p,   0 <= p_n  perpendicular  J_n w >= c,   |p_t| <= mu p_n,   p_t against J_t w in a slip

for the velocity w = (v, Omega) of the body, or a displacement. Many points of one body are redundant: p is not unique
and iterations point by point are slow (slender boxes need thousands of sweeps). So w is what is solved for, in six
dimensions whatever the number of points: the augmented Lagrangian p(w) = projection of p - (J w - c) / epsilon onto the
cones, with Newton's method for M (w - w_free) = J^T p(w), until J w = c at the points that carry.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.flight import Body
from nosnoc_py.methods.variational.friction import tangents
from nosnoc_py.methods.variational.vectors import Matrix, Vector, cross, dot, times, transposed_times

# epsilon, relative to the weight 1/m + chi . J^-1 chi of a point: at first, for good, and in a second attempt. A large
# one keeps Newton's method close to the solution without impulses, a small one needs few updates.
FIRST, SOFTNESS, SOFTER = 1.0, 1e-4, 1e-1
# Updates of the impulses, steps of Newton's method for each, halvings of such a step.
MOST_UPDATES, MOST_STEPS, MOST_HALVINGS = 40, 30, 12
# Violations and changes, relative to the velocities at hand, that are rounding.
ROUNDING = 1e-14
# Rounding errors of J w are divided by epsilon; a residual so much larger than the above need not become smaller.
NOISE = 1e3


class Points(NamedTuple):
    """Points of contact.

    Attributes
    ----------
    rows : (n, 3, 6)
        J, see `put_rows`.
    targets, friction, softness : (n,)
        c, mu and epsilon; the latter is changed.
    lagged : bool
        Whether the radii of friction are those of the last impulses.
    """

    rows: np.ndarray
    targets: np.ndarray
    friction: np.ndarray
    softness: np.ndarray
    lagged: bool


@jitable
def put_rows(rows: np.ndarray, plane: np.ndarray, rotation: Matrix, rho: Vector) -> None:
    """Write J (3, 6) of a point: its velocity along the normal and two tangents, from v (world) and Omega (body)."""
    normal = (plane[0], plane[1], plane[2])
    one, two = tangents(normal)
    for i, direction in enumerate((normal, one, two)):
        arm = cross(rho, transposed_times(rotation, direction))
        for j in range(3):
            rows[i, j], rows[i, 3 + j] = direction[j], arm[j]


@jitable
def momentum_of(body: Body, w: np.ndarray) -> np.ndarray:
    """M w = (m v, J Omega)"""
    turned = times(body[2], (w[3], w[4], w[5]))
    return np.array((body[0] * w[0], body[0] * w[1], body[0] * w[2], turned[0], turned[1], turned[2]))


@jitable
def velocity_of(body: Body, momentum: np.ndarray) -> np.ndarray:
    """M^-1 (gamma, Pi)"""
    omega = times(body[3], (momentum[3], momentum[4], momentum[5]))
    light = 1.0 / body[0]
    return np.array((light * momentum[0], light * momentum[1], light * momentum[2], omega[0], omega[1], omega[2]))


@jitable
def energy_norm(body: Body, w: np.ndarray) -> float:
    """sqrt(w . M w / m), a speed"""
    return math.sqrt(max(0.0, np.sum(w * momentum_of(body, w))) / body[0])


@jitable
def weight_of(body: Body, row: np.ndarray) -> float:
    """The velocity along a row of J that a unit impulse along it causes."""
    arm = (row[3], row[4], row[5])
    return (row[0] ** 2 + row[1] ** 2 + row[2] ** 2) / body[0] + dot(arm, times(body[3], arm))


@jitable
def together(rows: np.ndarray, impulses: np.ndarray) -> np.ndarray:
    """J^T p"""
    found = np.zeros(6)
    for i in range(rows.shape[0]):
        for r in range(3):
            for j in range(6):
                found[j] += rows[i, r, j] * impulses[i, r]
    return found


@jitable
def projected(points: Points, impulses: np.ndarray, w: np.ndarray, found: np.ndarray, slopes: np.ndarray) -> None:
    """Write p(w) (n, 3), and -epsilon dp/d(J w) (n, 3, 3).

    A copy of `contacts.cones.onto_disc` for one point, with its derivative, because numba cannot call that;
    `tests/contact_problems/test_compiled_copy.py` holds them together.
    """
    rows, targets, friction, softness, lagged = points
    for i in range(rows.shape[0]):
        z = np.zeros(3)
        for r in range(3):
            moved = -targets[i] if r == 0 else 0.0
            for j in range(6):
                moved += rows[i, r, j] * w[j]
            z[r] = impulses[i, r] - moved / softness[i]
        slopes[i] = 0.0
        found[i] = 0.0
        if z[0] <= 0.0:
            continue
        found[i, 0], slopes[i, 0, 0] = z[0], 1.0
        length, radius = math.hypot(z[1], z[2]), friction[i] * (impulses[i, 0] if lagged else z[0])
        if length <= radius:
            found[i, 1], found[i, 2], slopes[i, 1, 1], slopes[i, 2, 2] = z[1], z[2], 1.0, 1.0
            continue
        a, b, ratio = z[1] / length, z[2] / length, radius / length
        found[i, 1], found[i, 2] = radius * a, radius * b
        if not lagged:
            slopes[i, 1, 0], slopes[i, 2, 0] = friction[i] * a, friction[i] * b
        slopes[i, 1, 1], slopes[i, 2, 2] = ratio * b * b, ratio * a * a
        slopes[i, 1, 2] = slopes[i, 2, 1] = -ratio * a * b


@jitable
def matrix_of(body: Body, points: Points, slopes: np.ndarray) -> np.ndarray:
    """M - J^T dp/dw"""
    rows, softness = points.rows, points.softness
    found = np.zeros((6, 6))
    for i in range(3):
        found[i, i] = body[0]
        for j in range(3):
            found[3 + i, 3 + j] = body[2][3 * i + j]
    for k in range(rows.shape[0]):
        if slopes[k, 0, 0] == 0.0:
            continue
        for r in range(3):
            for j in range(6):
                slope = 0.0
                for q in range(3):
                    slope += slopes[k, r, q] * rows[k, q, j]
                slope /= softness[k]
                if slope != 0.0:
                    for i in range(6):
                        found[i, j] += rows[k, r, i] * slope
    return found


@jitable
def eliminated(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A^-1 b by elimination with pivots; both are changed."""
    n = b.size
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(A[i, k]) > abs(A[pivot, k]):
                pivot = i
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


@jitable
def balanced(
    body: Body, points: Points, impulses: np.ndarray, free: np.ndarray, w: np.ndarray, enough: float
) -> tuple[np.ndarray, np.ndarray]:
    """w with M (w - w_free) = J^T p(w), and p(w): damped Newton steps."""
    found, slopes = np.zeros(impulses.shape), np.zeros((impulses.shape[0], 3, 3))
    projected(points, impulses, w, found, slopes)
    residual = momentum_of(body, w - free) - together(points.rows, found)
    error = energy_norm(body, velocity_of(body, residual))
    for _ in range(MOST_STEPS):
        if error <= enough:
            break
        step = eliminated(matrix_of(body, points, slopes), residual.copy())
        factor = 1.0
        for k in range(MOST_HALVINGS):
            trial = w - factor * step
            projected(points, impulses, trial, found, slopes)
            residual = momentum_of(body, trial - free) - together(points.rows, found)
            fresh = energy_norm(body, velocity_of(body, residual))
            if fresh < (1.0 - 0.1 * factor) * error or fresh <= NOISE * enough or k == MOST_HALVINGS - 1:
                break
            factor *= 0.5
        w = trial
        if fresh > 0.5 * error and fresh <= NOISE * enough:
            break
        error = fresh
    return w, found


@jitable
def joint(
    body: Body, rows: np.ndarray, targets: np.ndarray, friction: np.ndarray, impulses: np.ndarray, free: np.ndarray
) -> np.ndarray:
    """Solve for the impulses (n, 3) of n points: J (n, 3, 6), c (n,), mu (n,); they start from what they hold.

    Without friction the problem is convex and always solved. With friction it need not have a solution, and Newton's
    method may miss one: then it is tried with a larger epsilon, with the radii mu p_n of the last update, which is
    convex again, and at last without friction.

    Returns
    -------
    w (6,), w_free with these impulses.
    """
    scale, softness = max(energy_norm(body, free), np.abs(targets).max()), np.empty(rows.shape[0])
    points = Points(rows, targets, friction, softness, False)
    if not (
        updated(body, points, SOFTNESS, impulses, free, scale)
        or updated(body, points, SOFTER, impulses, free, scale)
        or updated(body, Points(rows, targets, friction, softness, True), SOFTNESS, impulses, free, scale)
    ):
        updated(body, Points(rows, targets, 0.0 * friction, softness, False), SOFTNESS, impulses, free, scale)
    return free + velocity_of(body, together(rows, impulses))


@jitable
def updated(body: Body, points: Points, soft: float, impulses: np.ndarray, free: np.ndarray, scale: float) -> bool:
    """Improve the impulses until they do not change any more; return whether they do not. If they do, they are zero."""
    rows, softness = points.rows, points.softness
    for i in range(rows.shape[0]):
        softness[i] = FIRST * weight_of(body, rows[i, 0])
    w, smaller = free + velocity_of(body, together(rows, impulses)), FIRST
    for _ in range(MOST_UPDATES):
        w, fresh = balanced(body, points, impulses, free, w, ROUNDING * scale)
        change = 0.0
        for i in range(rows.shape[0]):
            for r in range(3):
                change = max(change, softness[i] * abs(fresh[i, r] - impulses[i, r]))
                impulses[i, r] = fresh[i, r]
        if change <= 10.0 * ROUNDING * scale and smaller <= soft:
            return True
        if smaller > soft:
            smaller *= 0.1
            softness *= 0.1
    impulses[:] = 0.0
    return False
