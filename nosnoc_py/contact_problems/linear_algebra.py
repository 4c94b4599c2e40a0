"""Newton's step, also where the Jacobian is singular: redundant contacts share their forces in many ways."""

from __future__ import annotations

import numpy as np

# Below this reciprocal condition number a Jacobian is singular and the shortest correction is taken.
SINGULAR = 1e-15


def correction(jacobian: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """Newton's step for one or several columns of residuals; the shortest one where forces are not unique."""
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
    except np.linalg.LinAlgError:  # singular values that do not converge, of entries of very different sizes
        return np.full(residual.shape, np.nan)


def is_regular(jacobian: np.ndarray) -> bool:
    """Whether a Jacobian determines its correction."""
    return bool(np.isfinite(jacobian).all()) and (jacobian.size == 0 or _factors(jacobian) is not None)


def _factors(jacobian: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The LU factors and pivots of a finite matrix, or None where it is singular."""
    from scipy.linalg import lapack  # not paid for by an import of the library

    factors, pivots, info = lapack.dgetrf(jacobian)
    if info != 0 or not lapack.dgecon(factors, np.abs(jacobian).sum(axis=0).max())[0] > SINGULAR:
        return None
    return factors, pivots
