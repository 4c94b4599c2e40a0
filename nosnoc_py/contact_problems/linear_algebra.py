"""Newton steps for regular and singular Jacobians.

Redundant contacts (a table with four legs) have forces that are not unique, so that the Jacobian of a contact problem
is singular and the shortest correction is taken.
"""

from __future__ import annotations

import numpy as np

# Reciprocal condition number below which a Jacobian is singular: the rounding error of sums of some hundred products.
SINGULAR = 1e-13


def correction(jacobian: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """Return Newton's step for one or several columns of residuals; the shortest one if the Jacobian is singular."""
    if residual.size == 0:
        return residual
    if not (np.isfinite(jacobian).all() and np.isfinite(residual).all()):
        return np.full(residual.shape, np.nan)
    from scipy.linalg import lapack  # not paid for by an import of the library

    factored = _factors(jacobian)
    if factored is not None:
        return np.asarray(-lapack.dgetrs(*factored, residual)[0])
    try:
        return np.asarray(-np.linalg.lstsq(jacobian, residual, rcond=1e-12)[0])
    except np.linalg.LinAlgError:  # the SVD does not converge for entries of very different sizes
        return np.full(residual.shape, np.nan)


def is_regular(jacobian: np.ndarray) -> bool:
    """Return True if a Jacobian is finite and regular."""
    return bool(np.isfinite(jacobian).all()) and (jacobian.size == 0 or _factors(jacobian) is not None)


def _factors(jacobian: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the LU factors and pivots of a finite matrix, or None if it is singular."""
    from scipy.linalg import lapack  # not paid for by an import of the library

    factors, pivots, info = lapack.dgetrf(jacobian)
    if info != 0 or not lapack.dgecon(factors, np.abs(jacobian).sum(axis=0).max())[0] > SINGULAR:
        return None
    return factors, pivots
