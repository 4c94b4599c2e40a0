"""Support points of lenses in the part of Python that numba compiles; import it where it is needed.

A lens is the intersection of two ellipsoids. For every mu in [0, 1] the ellipsoid (1 - mu) q_A + mu q_B <= 1 contains
it, and the smallest of their supports is that of the lens (Lagrange duality). In coordinates in which both quadratic
forms are diagonal the optimality condition is one scalar equation for mu, solved by a bracketed root finder.
"""

from __future__ import annotations

import numpy as np

from nosnoc_py.compiled import jitable

# Limit of the iterations of the root: bisection, which takes over after 20 of them, reaches rounding before it.
ITERATIONS = 100


@jitable
def lens_support(lens: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return the furthest point of the intersection of two ellipsoids, (a, A, b, B) (24,) with parallel columns.

    In the coordinates y = a + A z the ellipsoids are q_A = |z|^2 <= 1 and q_B = sum_k (s_k (z_k - c_k))^2 <= 1. The
    support is the smallest over mu in [0, 1] of those of (1 - mu) q_A + mu q_B <= 1, which contain the lens. Either
    one ellipsoid alone decides, or q_A = q_B at the point, a root in mu.
    """
    scale, center, weights, z = np.empty(3), np.empty(3), np.empty(3), np.empty(3)
    _diagonal(lens, direction, scale, center, weights)
    excess_low = _difference(0.0, scale, center, weights, z)
    if excess_low > 0.0:  # of q_B over q_A = 1: the furthest point of A is not in B
        excess_high = _difference(1.0, scale, center, weights, z)
        if excess_high < 0.0:
            _root(excess_low, excess_high, scale, center, weights, z)
    point = np.empty(3)
    for i in range(3):
        point[i] = lens[i] + lens[3 + 3 * i] * z[0] + lens[4 + 3 * i] * z[1] + lens[5 + 3 * i] * z[2]
    return point


@jitable
def _diagonal(
    lens: np.ndarray, direction: np.ndarray, scale: np.ndarray, center: np.ndarray, weights: np.ndarray
) -> None:
    """Fill s_k = |A_k| / |B_k|, c = A^-1 (b - a) and w = A'd."""
    a, shift = lens[3:12], lens[12:15] - lens[0:3]
    for k in range(3):
        first = a[k] ** 2 + a[3 + k] ** 2 + a[6 + k] ** 2
        second = lens[15 + k] ** 2 + lens[18 + k] ** 2 + lens[21 + k] ** 2
        scale[k] = np.sqrt(first / second)
        weights[k] = a[k] * direction[0] + a[3 + k] * direction[1] + a[6 + k] * direction[2]
    determinant = 0.0
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3  # row k of A^-1 is the cross product of the other two columns
        x = a[3 + i] * a[6 + j] - a[6 + i] * a[3 + j]
        y = a[6 + i] * a[j] - a[i] * a[6 + j]
        w = a[i] * a[3 + j] - a[3 + i] * a[j]
        determinant = a[k] * x + a[3 + k] * y + a[6 + k] * w
        center[k] = (x * shift[0] + y * shift[1] + w * shift[2]) / determinant


@jitable
def _difference(mu: float, scale: np.ndarray, center: np.ndarray, weights: np.ndarray, z: np.ndarray) -> float:
    """Fill the support point z of (1 - mu) q_A + mu q_B <= 1 and return q_B - q_A there."""
    radius, square = 1.0, 0.0
    for k in range(3):
        s = scale[k] ** 2
        m = 1.0 - mu + mu * s
        # Completing the square: the mixed ellipsoid has another centre, and this squared radius.
        radius -= (1.0 - mu) * mu * s * center[k] ** 2 / m
        square += weights[k] ** 2 / m
    # Bounds against rounding: an empty mixture (negative radius), and a direction of zero weight.
    length = np.sqrt(max(radius, 0.0) / max(square, 1e-300))
    difference = 0.0
    for k in range(3):
        s = scale[k] ** 2
        z[k] = (mu * s * center[k] + length * weights[k]) / (1.0 - mu + mu * s)
        difference += s * (z[k] - center[k]) ** 2 - z[k] ** 2
    return difference


@jitable
def _root(
    excess_low: float, excess_high: float, scale: np.ndarray, center: np.ndarray, weights: np.ndarray, z: np.ndarray
) -> None:
    """Find the root by regula falsi with the weights of Anderson and Bjoerck, then by bisection.

    A copy of `motion.crossing.root`, because numba cannot call that; `tests/motion/test_compiled_roots.py` holds them
    together.
    """
    low, high, side, tolerance = 0.0, 1.0, 0, 1e-15
    for k in range(3):
        tolerance += 1e-15 * scale[k] * abs(center[k])
    for iteration in range(ITERATIONS):
        mu = (low * excess_high - high * excess_low) / (excess_high - excess_low)
        if iteration > 20 or not low < mu < high:
            mu = 0.5 * (low + high)
        excess = _difference(mu, scale, center, weights, z)
        if abs(excess) <= tolerance or high - low <= 4e-16 * high:
            break
        if excess > 0.0:
            # The end that stays for a second time gets less weight, so that the other end moves too.
            if side == 1:
                factor = 1.0 - excess / excess_low
                excess_high *= factor if factor > 0.0 else 0.5
            low, excess_low, side = mu, excess, 1
        else:
            if side == -1:
                factor = 1.0 - excess / excess_high
                excess_low *= factor if factor > 0.0 else 0.5
            high, excess_high, side = mu, excess, -1
