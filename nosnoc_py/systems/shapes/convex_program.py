"""Furthest points of an intersection of ellipsoids and half-spaces: a primal-dual interior-point method.

The problem is to maximise d'y subject to convex functions g(y) <= 0, in three variables. Phase I (`interior`) maximises
the depth of a point and thus finds one strictly inside. Phase II starts at a centred point (damped Newton steps on the
logarithmic barrier) and follows the central path by primal-dual Newton steps. All iterates stay strictly inside.

References
----------
Boyd and Vandenberghe, Convex Optimization (2004), Chapter 11: barrier, Phase I and primal-dual methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

# A bound only: the gap falls by about CENTERING per iteration, so that far fewer are needed.
ITERATIONS = 100
PRECISION = 1e-14  # of the duality gap, relative to the size
# Reduction of the barrier parameter per iteration.
CENTERING = 0.1
# Share of the trace that is added to the matrix: above rounding, below an effect on the accuracy.
REGULARISATION = 1e-14


@dataclass(frozen=True, eq=False, kw_only=True)
class Constraints:
    """Ellipsoids |F (y - c)| <= 1 and half-spaces n.y + b <= 0.

    Attributes
    ----------
    centers : (n_e, 3)
    forms : (n_e, 3, 3)
        F, the inverse of the matrix that makes the ellipsoid of the unit ball.
    normals : (n_h, 3)
        Of length one.
    offsets : (n_h,)
    """

    centers: np.ndarray
    forms: np.ndarray
    normals: np.ndarray
    offsets: np.ndarray

    @cached_property
    def radii(self) -> np.ndarray:
        """Smallest semi-axis of every ellipsoid (n_e,)."""
        return np.array([1 / np.linalg.norm(form, 2) for form in self.forms])

    def values(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return functions that are negative inside (roughly distances [m]), and their gradients."""
        z = np.einsum("eij,ej->ei", self.forms, y - self.centers)
        # Scaled so that gradients on the surface are at most one long: comparable with the values of
        # half-spaces.
        scale = self.radii / 2
        curved = scale * ((z**2).sum(axis=1) - 1)
        gradients = 2 * scale[:, None] * np.einsum("eij,ei->ej", self.forms, z)
        flat = self.normals @ y + self.offsets
        return np.concatenate([curved, flat]), np.concatenate([gradients, self.normals])

    def hessian(self, weights: np.ndarray) -> np.ndarray:
        """Return second derivatives (3, 3) of a weighted sum of the functions."""
        curved = weights[: len(self.centers)] * self.radii
        return np.einsum("e,eji,ejk->ik", curved, self.forms, self.forms)


_Functions = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def furthest(constraints: Constraints, direction: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Return the point (3,) that is furthest in a unit direction, from a point strictly inside."""
    return _maximise(constraints, direction, inside, slack=0.0)


def interior(constraints: Constraints, start: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the deepest point (3,) and its depth [m], negative where there is nothing in common: Phase I."""
    values, _ = constraints.values(start)
    # Above all values at the start, so that the start is strictly inside for the level.
    level = float(values.max() + np.abs(values).max() + constraints.radii.sum()) + 1e-9
    result = _maximise(constraints, np.array([0.0, 0.0, 0.0, -1.0]), np.append(start, level), slack=1.0)
    return result[:3], -float(constraints.values(result[:3])[0].max())


def _maximise(constraints: Constraints, objective: np.ndarray, start: np.ndarray, slack: float) -> np.ndarray:
    """Maximise a linear function of y, or of y and a level the functions have to stay below (slack 1).

    Without the centred start, a weight may vanish early and leave nothing that holds the point.
    """

    def functions(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = constraints.values(at[:3])
        if not slack:
            return values, gradients
        return values - at[3], np.column_stack([gradients, np.full(len(values), -1.0)])

    size = float(np.abs(functions(start)[0]).max())
    y = _centered(constraints, functions, objective, start, size)
    values, gradients = functions(y)
    # On the central path weights times -g are equal; `size` is the barrier parameter of the centred start.
    weights = size / -values
    for _ in range(ITERATIONS):
        gap = float(weights @ -values)
        residual = np.abs(objective - gradients.T @ weights).max()
        if gap <= PRECISION * size and residual <= 100 * PRECISION:
            break
        target = CENTERING * gap / len(values)
        force = objective - gradients.T @ (target / -values)
        # Newton's step of the optimality conditions after elimination of the weights.
        step = np.linalg.solve(_matrix(constraints, weights, weights / -values, gradients), force)
        change = (target + weights * (gradients @ step)) / -values - weights
        # Fraction to the boundary: weights stay positive.
        length = _feasible(functions, y, step, min(1.0, 0.99 / max(1e-300, float((-change / weights).max()))))
        y, weights = y + length * step, weights + length * change
        values, gradients = functions(y)
    return y


def _centered(
    constraints: Constraints, functions: _Functions, objective: np.ndarray, start: np.ndarray, size: float
) -> np.ndarray:
    """Minimise -objective.y / size - sum log(-g) by damped Newton steps, which converge from everywhere inside."""
    y = start
    for _ in range(ITERATIONS):
        values, gradients = functions(y)
        weights = 1 / -values
        force = objective / size - gradients.T @ weights
        step = np.linalg.solve(_matrix(constraints, weights, weights**2, gradients), force)
        decrement = max(0.0, float(force @ step)) ** 0.5
        if decrement < 1e-6:
            break
        # The barrier is self-concordant: steps of 1 / (1 + decrement) always decrease it, and full steps converge
        # close to its minimum.
        y = y + _feasible(functions, y, step, 1 / (1 + decrement) if decrement > 0.25 else 1.0) * step
    return y


def _matrix(constraints: Constraints, weights: np.ndarray, ratios: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    matrix = (gradients.T * ratios) @ gradients
    matrix[:3, :3] += constraints.hessian(weights)
    # Where a whole face is optimal nothing holds the point on it: the step along it is made small, not unbounded.
    return matrix + REGULARISATION * np.trace(matrix) * np.eye(len(matrix))


def _feasible(functions: _Functions, y: np.ndarray, step: np.ndarray, length: float) -> float:
    """Shorten a step until no function gets 100 times nearer to zero."""
    limit = 0.01 * functions(y)[0]
    while length > 1e-12 and (functions(y + length * step)[0] > limit).any():
        length *= 0.7
    return length
