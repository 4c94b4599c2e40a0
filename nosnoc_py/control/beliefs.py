"""Gaussian beliefs of a filter: unscented points, half of a belief beyond a threshold, update, merging.

All of them are functions of frozen values. `truncated` is the moment-matched half of a Gaussian: of a belief about a
state near an impact, one half has the impact before a measurement and the other one after it, and each half alone is
again close to a Gaussian.

References
----------
Julier and Uhlmann, Unscented filtering and nonlinear estimation, Proc. IEEE 92(3) (2004).
Simon and Simon, Constrained Kalman filtering via density function truncation, Int. J. Syst. Sci. 41(2) (2010).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

Array = np.ndarray
# Spread of unscented points: n + kappa = 3 reproduces the fourth moment of a Gaussian (Julier and Uhlmann); weights
# stay nonnegative, so that covariances do, too.
FOURTH_MOMENT = 3.0
# Standard deviations below this fraction of the unit of a component count as zero: directions that a closed contact or
# Standard deviations beyond a guard from which the moments of what is not beyond are those of their expansion.
FAR_TAIL = 1e4
# a plastic impact has fixed.
FIXED_DIRECTION = 1e-10


@dataclass(frozen=True, eq=False, kw_only=True)
class Belief:
    """Gaussian distribution of z, with a weight among several.

    Attributes
    ----------
    mean, covariance : (n,), (n, n)
    weight : float
        Probability.
    touched : bool
        True if a contact has happened since scattered parameters were last drawn.
    """

    mean: Array
    covariance: Array
    weight: float = 1.0
    touched: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class UnscentedPoints:
    """Points (k, n), the mean first, and weights (k,) with the mean and covariance of a belief."""

    points: Array
    weights: Array


def symmetric(matrix: Array) -> Array:
    """Return the symmetric part of a matrix."""
    return np.asarray(0.5 * (matrix + matrix.T))


def root_of(covariance: Array, units: Array) -> Array:
    """Return columns (n, r) with root @ root.T = covariance; directions without variance have none.

    Directions are compared in `units` (n,), as components differ in their units.
    """
    scaled = symmetric(covariance) / np.outer(units, units)
    values, vectors = np.linalg.eigh(scaled)
    kept = values > max(FIXED_DIRECTION**2, np.finfo(float).eps * float(values.max(initial=0.0)))
    return np.asarray(units[:, None] * vectors[:, kept] * np.sqrt(values[kept]))


def unscented(mean: Array, covariance: Array, units: Array) -> UnscentedPoints:
    """Return the points and weights of the unscented transform."""
    root = root_of(covariance, units)
    n = root.shape[1]
    spread = max(FOURTH_MOMENT, float(n))
    away = np.sqrt(spread) * root.T
    weights = np.full(2 * n + 1, 0.5 / spread)
    weights[0] = 1.0 - n / spread
    return UnscentedPoints(points=mean + np.vstack([np.zeros((1, mean.size)), away, -away]), weights=weights)


def moments(values: Array, weights: Array) -> tuple[Array, Array]:
    """Return mean (n,) and covariance (n, n) of values (k, n)."""
    mean = weights @ values
    away = values - mean
    return mean, (weights[:, None] * away).T @ away


def truncated(
    mean: Array, covariance: Array, direction: Array, value: float, side: float
) -> tuple[float, Array, Array]:
    """Return the logarithm of the probability that s has the sign of `side`, and the moments of z for these s.

    s = value + direction @ (z - mean) is normally distributed; a half of a Gaussian is not, but has these moments.
    """
    from scipy.special import erfcx, log_ndtr  # not paid for by an import of the library

    gain = side * covariance @ direction
    size = float(np.sqrt(max(0.0, direction @ covariance @ direction)))
    if not size > 0.0:
        return (0.0 if side * value >= 0.0 else -np.inf), mean, covariance
    a = side * value / size
    log_mass = float(log_ndtr(a))
    # Inverse Mills ratio phi(a) / Phi(a); far in the tail both underflow alone, and ratio + a cancels.
    ratio = float(np.sqrt(2.0 / np.pi) / erfcx(-a / np.sqrt(2.0)))
    shrink = 1.0 - 1.0 / a**2 if a < -FAR_TAIL else min(1.0, max(0.0, ratio * (ratio + a)))
    return log_mass, mean + gain * (ratio / size), symmetric(covariance - np.outer(gain, gain) * (shrink / size**2))


def corrected(
    belief: Belief,
    innovation: Array,
    cross: Array,
    innovation_covariance: Array,
    model: tuple[Array, Array] | None = None,
) -> tuple[float, Belief]:
    """Return the logarithm of the likelihood of an innovation (m,) and the corrected belief (Kalman 1960).

    `cross` (n, m) is the covariance of z with the measurement, `innovation_covariance` (m, m) with its noise. With
    `model`, the slopes H (m, n) of the measurement and its noise R (m, m), the covariance is that of Joseph's form,
    which stays positive semidefinite however much a measurement tells.
    """
    factor = np.linalg.cholesky(innovation_covariance)
    whitened, half = np.linalg.solve(factor, innovation), np.linalg.solve(factor, cross.T)
    log_likelihood = -0.5 * float(whitened @ whitened) - float(np.log(np.diag(factor)).sum())
    log_likelihood -= 0.5 * innovation.size * float(np.log(2.0 * np.pi))
    if model is None:
        # cross S^-1 cross' as a product of one factor with itself: what is subtracted is symmetric to rounding.
        covariance = symmetric(belief.covariance - half.T @ half)
    else:
        gain = np.linalg.solve(factor.T, half).T
        kept = np.eye(belief.mean.size) - gain @ model[0]
        covariance = symmetric(kept @ belief.covariance @ kept.T + gain @ model[1] @ gain.T)
    return log_likelihood, replace(belief, mean=belief.mean + half.T @ whitened, covariance=covariance)


def distance(first: Belief, second: Belief, units: Array) -> float:
    """Return how far two means are apart, in standard deviations of their sum."""
    apart = (first.mean - second.mean) / units
    values, vectors = np.linalg.eigh(symmetric(first.covariance + second.covariance) / np.outer(units, units))
    # A direction without variance has a distance of rounding only if both means agree in it.
    sizes = np.maximum(values, 0.0) + (1e3 * FIXED_DIRECTION) ** 2
    return float(np.sqrt(((vectors.T @ apart) ** 2 / sizes).sum()))


def merged(first: Belief, second: Belief) -> Belief:
    """Return one belief with the mean and covariance of two together."""
    weight = first.weight + second.weight
    share = first.weight / weight
    apart = first.mean - second.mean
    covariance = share * first.covariance + (1.0 - share) * second.covariance
    covariance = covariance + share * (1.0 - share) * np.outer(apart, apart)
    mean = share * first.mean + (1.0 - share) * second.mean
    return Belief(mean=mean, covariance=covariance, weight=weight, touched=first.touched or second.touched)


def mixture(means: Sequence[Array], covariances: Sequence[Array], weights: Array) -> tuple[Array, Array]:
    """Return mean and covariance of Gaussians together."""
    mean, between = moments(np.array(means), weights)
    return mean, symmetric(np.einsum("k,kij->ij", weights, np.array(covariances)) + between)
