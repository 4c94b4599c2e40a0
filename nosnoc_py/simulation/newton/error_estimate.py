"""Estimate of the discretisation error of finite elements by collocation with one more Runge-Kutta stage.

Within an element the motion is smooth, and the same equations with s + 1 stages have a solution of higher order. Its
distance at the end of the element estimates the error. Newton's method for it starts on the polynomial of the element.
As the convergence is quadratic, one iteration is enough for small errors; events are not located again. Errors above a
threshold are recomputed with more iterations, because there one step may exaggerate.

The estimate is local: the error that one element adds, not the accumulated error of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.contact_problems.linear_algebra import correction
from nosnoc_py.functions import buffered
from nosnoc_py.simulation.newton.collocation import element_function, stage_function
from nosnoc_py.simulation.newton.engine import Elements, Engine
from nosnoc_py.tableaus import lagrange_basis, tableau

# Elements per compiled call; more only needs memory.
CHUNK = 32
# Iterations for an error above the threshold, and the relative change of the error at which they end.
ITERATIONS, CONVERGED = 6, 0.1
# Stop recomputing after this many errors (largest first) that further iterations have confirmed.
CONFIRMATIONS = 3
# Errors below this (relative to 1 plus the largest state) are residuals of Newton's method and become zero.
NEWTON_ERROR = 1e-11
# A larger correction shows that the matrix is singular up to rounding.
LARGEST_CORRECTION = 1e8


@dataclass(frozen=True, eq=False, kw_only=True)
class SolvedPart:
    """Elements of Newton's method with their control (n_u,) and parameters (n_p,)."""

    elements: Elements
    u: np.ndarray
    p: np.ndarray


class ErrorEstimate:
    """Estimator of the errors of elements of one engine.

    Parameters
    ----------
    engine : Engine
    scheme : str
        Family of its tableau; the member with one more stage gives the estimate.
    """

    def __init__(self, engine: Engine, scheme: str) -> None:
        self._equations, self._coarse = engine.model.equations, engine.tableau
        self._fine = tableau(scheme, self._coarse.stages + 1)
        self._masks: Callable[[tuple[int, ...]], np.ndarray] = engine.model.masks
        self.n_x, self.n_y = engine.collocation.n_x, engine.collocation.n_y
        # From the stages of the finer scheme to the end of an element.
        weights = lagrange_basis(np.append(0.0, self._fine.c), np.ones(1))[0]
        self._first, self._end = float(weights[0]), np.kron(weights[1:], np.eye(self.n_x, self.n_x + self.n_y))
        self._element = element_function(self._equations, self._fine, stage_function(self._equations))
        self._guess, self._at = self._build()
        self._maps: dict[int, Callable[..., list[np.ndarray]]] = {}

    def __call__(self, parts: Sequence[SolvedPart], threshold: Any = np.inf) -> list[np.ndarray]:
        """Return errors (E, n_x) at the ends of the elements of each part, NaN where there is no estimate.

        Errors above `threshold` (n_x,) are recomputed by more iterations, those that exceed it most first.
        """
        known = np.concatenate([self._known(part) for part in parts])
        errors = np.concatenate([self._estimate_chunk(known[k : k + CHUNK]) for k in range(0, len(known), CHUNK)])
        confirmed = 0
        # Largest first, until CONFIRMATIONS in a row agree with their first iteration: then the smaller ones do as
        # well.
        for k in np.argsort(-np.nan_to_num(abs(errors) / threshold).max(axis=1)):
            if confirmed == CONFIRMATIONS or not (abs(errors[k]) > threshold).any():
                break
            first, errors[k] = errors[k].copy(), self._iterate(known[k])
            confirmed = confirmed + 1 if abs(errors[k] - first).max() <= CONVERGED * abs(first).max() else 0
        if len(parts) == 1:
            return [errors]
        return np.split(errors, np.cumsum([len(part.elements.h) for part in parts])[:-1])

    def _known(self, part: SolvedPart) -> np.ndarray:
        """Return the data of elements as rows (E, n), in the order that `_build` expects."""
        elements, count = part.elements, len(part.elements.h)
        rows = np.empty((count, self._size))
        at = 0
        for values in (
            elements.x_right,
            elements.x_left,
            elements.h,
            elements.x_stages,
            elements.y_stages,
            part.u,
            part.p,
        ):
            flat = values.reshape(count, -1) if values is not part.u and values is not part.p else values
            width = flat.shape[-1]
            rows[:, at : at + width] = flat
            at += width
        if all(modes is elements.modes[0] for modes in elements.modes):
            rows[:, at:] = self._masks(elements.modes[0])
        else:
            rows[:, at:] = [self._masks(modes) for modes in elements.modes]
        return rows

    def _build(self) -> tuple[ca.Function, ca.Function]:
        """Return functions for the guess of the finer stages, and for the rows and their Jacobian there."""
        e, c = self._equations, self._coarse.c
        n_x, n_y, n_s = self.n_x, self.n_y, c.size
        right, left, h = ca.SX.sym("right", n_x), ca.SX.sym("left", n_x), ca.SX.sym("h")
        x, y = ca.SX.sym("x", n_x, n_s), ca.SX.sym("y", n_y, n_s)
        data = (e.u, e.p, e.masks)
        known = ca.vertcat(right, left, h, ca.vec(x), ca.vec(y), *data)
        # The coarse polynomials at the finer nodes: a guess with the error that is to be measured.
        x_fine = ca.horzcat(left, x) @ ca.DM(lagrange_basis(np.append(0.0, c), self._fine.c)).T
        y_fine = y @ ca.DM(lagrange_basis(c, self._fine.c)).T
        z = ca.SX.sym("z", self._fine.stages * (n_x + n_y))
        self._size = int(known.numel())
        rows, inner, _ = self._element(z, left, h, *data)
        guess = ca.Function("guess", [known], [ca.vec(ca.vertcat(x_fine, y_fine))])
        return guess, ca.Function("at", [known, z], [ca.densify(rows), ca.densify(inner)])

    def _mapped(self, count: int) -> Callable[..., list[np.ndarray]]:
        """Return a function for guesses, residuals and Jacobians of `count` elements, built once."""
        if count not in self._maps:
            known = ca.SX.sym("known", self._size)
            guess = self._guess(known)
            function = ca.Function("estimate", [known], [guess, *self._at(known, guess)])
            self._maps[count] = buffered(function.map(count) if count > 1 else function)
        return self._maps[count]

    def _estimate_chunk(self, known: np.ndarray) -> np.ndarray:
        """Return the errors (m, n_x) of some elements after one Newton step."""
        guess, rows, inner = self._mapped(len(known))(known)
        size, errors = rows.shape[0], np.empty((len(known), self.n_x))
        for k, row in enumerate(known):
            corrected = guess[:, k] + _newton_step(inner[:, k * size : (k + 1) * size], rows[:, k])
            errors[k] = self._error(row, corrected)
        return errors

    def _iterate(self, known: np.ndarray) -> np.ndarray:
        """Return the error (n_x,) of one element with converged Newton iterations; NaN if they do not converge."""
        z, error = np.asarray(self._guess(known))[:, 0], np.full(self.n_x, np.nan)
        for _ in range(ITERATIONS):
            rows, inner = (np.asarray(value) for value in self._at(known, z))
            z = z + _newton_step(inner, rows[:, 0])
            last, error = error, self._error(known, z)
            # An error needs few digits; the comparison with NaN of the first iteration is False, as it should be.
            if abs(error - last).max() <= CONVERGED * abs(error).max():
                return error
        return np.full(self.n_x, np.nan)

    def _error(self, known: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Return the distance (n_x,) of the end of the finer solution from the end of the element."""
        right, left = known[: self.n_x], known[self.n_x : 2 * self.n_x]
        error = self._first * left + self._end @ z - right
        return np.where(abs(error) <= NEWTON_ERROR * (1.0 + abs(right).max(initial=0.0)), 0.0, error)


def _newton_step(jacobian: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """Return Newton's step; the shortest one if the Jacobian is singular (forces that are not unique).

    Faster than `correction`, which tests for singularity first.
    """
    from scipy.linalg import lapack  # imported late: it would slow down the import of the library

    step, info = lapack.dgesv(jacobian, -residual)[2:]
    if info == 0 and abs(step).max() < LARGEST_CORRECTION:
        return step
    return correction(jacobian, residual)
