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

    norm = np.abs(jacobian).sum(axis=0).max()
    factors, pivots, info = lapack.dgetrf(jacobian)
    if info == 0 and lapack.dgecon(factors, norm)[0] > SINGULAR:
        return np.asarray(-lapack.dgetrs(factors, pivots, residual)[0])
    return np.asarray(-np.linalg.lstsq(jacobian, residual, rcond=1e-12)[0])
