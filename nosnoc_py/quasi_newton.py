"""Quasi-Newton approximations of a Hessian from steps and changes of the gradient."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# A step along which the gradient does not grow, relative to the lengths of both, teaches nothing.
FLAT_STEP = 1e-10


def bfgs(inverse: Array | None, step: Array, change: Array) -> Array | None:
    """Return the inverse Hessian (n, n) after a step that changed the gradient; the first has the size of that step.

    It is left alone where the curvature is not positive.

    References
    ----------
    Nocedal and Wright, Numerical Optimization (2006), Eqs. 6.17 and 6.20.
    """
    inner = float(step @ change)
    if inner <= FLAT_STEP * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return inverse
    eye = np.eye(step.size)
    before = inner / (change @ change) * eye if inverse is None else inverse
    turned = eye - np.outer(step, change) / inner
    return np.asarray(turned @ before @ turned.T + np.outer(step, step) / inner)
