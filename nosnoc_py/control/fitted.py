"""The search for a least-squares fit from one start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.control.predicted import Predictions

Array = np.ndarray
# A motion that cannot be simulated counts as one with residuals of this size, so that the search turns back.
LOST = 1e6
TOLERANCE, EVALUATIONS = 1e-10, 100


@dataclass(frozen=True, eq=False, kw_only=True)
class Optimum:
    """Where a start led to.

    Attributes
    ----------
    values, start : (k,)
    cost : float
        Sum of squared residuals.
    residuals, jacobian : (n,), (n, k)
    converged : bool
    """

    values: Array
    start: Array
    cost: float
    residuals: Array
    jacobian: Array
    converged: bool


def least_squares_from(made: Predictions, start: Array, segments: int = 1) -> list[Optimum]:
    """The optimum that a start leads to, in a list; empty where its motion cannot be simulated."""
    from scipy.optimize import least_squares  # not paid for by an import of the library

    lower, upper = made.bounds
    widths = upper - lower
    known: dict[bytes, Any] = {}

    def both(z: Array) -> tuple[Array, Array] | None:
        key = z.tobytes()
        if key not in known:
            known.clear()
            known[key] = made.residuals(lower + widths * z)
        return known[key]

    z = np.clip((start - lower) / widths, 1e-6, 1.0 - 1e-6)
    first = both(z)
    if first is None:
        return []
    size = first[0].size

    def residuals(z: Array) -> Array:
        found = both(z)
        return np.full(size, LOST) if found is None else found[0]

    def jacobian(z: Array) -> Array:
        found = both(z)
        return np.zeros((size, z.size)) if found is None else found[1] * widths

    done = least_squares(
        residuals, z, jacobian, (0.0, 1.0), xtol=TOLERANCE, ftol=TOLERANCE, gtol=TOLERANCE, max_nfev=EVALUATIONS
    )
    found = both(done.x)
    if found is None:
        return []
    r, J = found
    return [
        Optimum(
            values=lower + widths * done.x,
            start=start,
            cost=float(r @ r),
            residuals=r,
            jacobian=J,
            converged=done.status > 0,
        )
    ]
