"""The error of discretisation of finite elements, estimated by collocation with one Runge-Kutta stage more.

In the modes of an element the motion is smooth, and the same equations with s + 1 stages have a solution of higher
order. Newton's method for it begins on the polynomial of the element, whose distance it squares: one iteration is
enough, and nothing is located again. Where that says much, it goes on until it stands still.
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

# So many elements are looked at in one call.
CHUNK = 32
# Iterations where one iteration says much, and their last change relative to the estimate.
ITERATIONS, STILL = 6, 0.1
# So many errors in a row that iterations do not change are enough.
ENOUGH = 3
# What Newton's method leaves, relative to 1 and the largest state, is no error of discretisation.
LEFT_OVER = 1e-11
# So large are only corrections by a matrix that is singular but for rounding.
FAR = 1e8


@dataclass(frozen=True, eq=False, kw_only=True)
class SolvedPart:
    """Elements that Newton's method found, with the controls and parameters that they are under."""

    elements: Elements
    u: np.ndarray
    p: np.ndarray


class ErrorEstimate:
    """Estimates the errors of elements of one engine.

    Parameters
    ----------
    engine : Engine
    scheme : str
        The family of its tableau, of which the next member judges.
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

    def __call__(self, parts: Sequence[SolvedPart], sharp: Any = np.inf) -> list[np.ndarray]:
        """Errors (E, n_x) at the ends of the elements of every part, NaN where there is no estimate.

        Where an error exceeds `sharp` (n_x,), Newton's method is iterated, the worst in these units first, until that
        changes nothing any more.
        """
        known = np.concatenate([self._known(part) for part in parts])
        errors = np.concatenate([self._chunk(known[k : k + CHUNK]) for k in range(0, len(known), CHUNK)])
        confirmed = 0
        for k in np.argsort(-np.nan_to_num(abs(errors) / sharp).max(axis=1)):
            if confirmed == ENOUGH or not (abs(errors[k]) > sharp).any():
                break
            first, errors[k] = errors[k].copy(), self._iterated(known[k])
            confirmed = confirmed + 1 if abs(errors[k] - first).max() <= STILL * abs(first).max() else 0
        if len(parts) == 1:
            return [errors]
        return np.split(errors, np.cumsum([len(part.elements.h) for part in parts])[:-1])

    def _known(self, part: SolvedPart) -> np.ndarray:
        """What is known of elements, in the order that `_build` reads (E, n)."""
        found, count = part.elements, len(part.elements.h)
        rows = np.empty((count, self._size))
        at = 0
        for values in (found.x_right, found.x_left, found.h, found.x_stages, found.y_stages, part.u, part.p):
            flat = values.reshape(count, -1) if values is not part.u and values is not part.p else values
            width = flat.shape[-1]
            rows[:, at : at + width] = flat
            at += width
        if all(modes is found.modes[0] for modes in found.modes):
            rows[:, at:] = self._masks(found.modes[0])
        else:
            rows[:, at:] = [self._masks(modes) for modes in found.modes]
        return rows

    def _build(self) -> tuple[ca.Function, ca.Function]:
        """A guess of the finer stages from what is known of an element, and the equations there."""
        e, c = self._equations, self._coarse.c
        n_x, n_y, n_s = self.n_x, self.n_y, c.size
        right, left, h = ca.SX.sym("right", n_x), ca.SX.sym("left", n_x), ca.SX.sym("h")
        x, y = ca.SX.sym("x", n_x, n_s), ca.SX.sym("y", n_y, n_s)
        data = (e.u, e.p, e.masks)
        known = ca.vertcat(right, left, h, ca.vec(x), ca.vec(y), *data)
        x_fine = ca.horzcat(left, x) @ ca.DM(lagrange_basis(np.append(0.0, c), self._fine.c)).T
        y_fine = y @ ca.DM(lagrange_basis(c, self._fine.c)).T
        z = ca.SX.sym("z", self._fine.stages * (n_x + n_y))
        self._size = int(known.numel())
        rows, inner, _ = self._element(z, left, h, *data)
        guess = ca.Function("guess", [known], [ca.vec(ca.vertcat(x_fine, y_fine))])
        return guess, ca.Function("at", [known, z], [ca.densify(rows), ca.densify(inner)])

    def _mapped(self, count: int) -> Callable[..., list[np.ndarray]]:
        """Guesses, residuals and their Jacobians of so many elements."""
        if count not in self._maps:
            known = ca.SX.sym("known", self._size)
            guess = self._guess(known)
            function = ca.Function("estimate", [known], [guess, *self._at(known, guess)])
            self._maps[count] = buffered(function.map(count) if count > 1 else function)
        return self._maps[count]

    def _chunk(self, known: np.ndarray) -> np.ndarray:
        """Errors of some elements by one correction of their polynomials."""
        guess, rows, inner = self._mapped(len(known))(known)
        size, errors = rows.shape[0], np.empty((len(known), self.n_x))
        for k, row in enumerate(known):
            corrected = guess[:, k] + _corrected(inner[:, k * size : (k + 1) * size], rows[:, k])
            errors[k] = self._error(row, corrected)
        return errors

    def _iterated(self, known: np.ndarray) -> np.ndarray:
        """The error of one element, by Newton's method until it stands still; NaN where it does not."""
        z, error = np.asarray(self._guess(known))[:, 0], np.full(self.n_x, np.nan)
        for _ in range(ITERATIONS):
            rows, inner = (np.asarray(value) for value in self._at(known, z))
            z = z + _corrected(inner, rows[:, 0])
            last, error = error, self._error(known, z)
            if abs(error - last).max() <= STILL * abs(error).max():
                return error
        return np.full(self.n_x, np.nan)

    def _error(self, known: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The distance (n_x,) of the finer end of an element from its own."""
        right, left = known[: self.n_x], known[self.n_x : 2 * self.n_x]
        error = self._first * left + self._end @ z - right
        return np.where(abs(error) <= LEFT_OVER * (1.0 + abs(right).max(initial=0.0)), 0.0, error)


def _corrected(jacobian: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """Newton's step, the shortest one where forces are not unique; unlike `correction` it asks only then whether."""
    from scipy.linalg import lapack  # not paid for by an import of the library

    found, info = lapack.dgesv(jacobian, -residual)[2:]
    if info == 0 and abs(found).max() < FAR:
        return found
    return correction(jacobian, residual)
