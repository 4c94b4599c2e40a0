"""The quasi-Newton update of all descents, and the longest step of one over switching times and states."""

from __future__ import annotations

import numpy as np

Array = np.ndarray

# BFGS learns nothing from a step along which the gradient does not grow.
FLAT = 1e-10
# A step may use up this part of what is left of a phase.
BOLDNESS = 0.9


def bfgs(inverse: Array | None, step: Array, change: Array) -> Array | None:
    """The inverse Hessian (n, n) after a step that changed the gradient; the first has the size of that step.

    It is left alone where the curvature is not positive.

    References
    ----------
    Nocedal and Wright, Numerical Optimization (2006), Eqs. 6.17 and 6.20.
    """
    inner = float(step @ change)
    if inner <= FLAT * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return inverse
    eye = np.eye(step.size)
    before = inner / (change @ change) * eye if inverse is None else inverse
    turned = eye - np.outer(step, change) / inner
    return np.asarray(turned @ before @ turned.T + np.outer(step, step) / inner)


def longest(times: Array, way: Array, horizon: float, shortest: float) -> float:
    """How far one may go until a phase has lost most of what it has beyond the shortest duration."""
    durations = np.diff([0.0, *times, horizon])
    rates = np.diff([0.0, *way[: times.size], 0.0])
    falling = rates < 0
    left = BOLDNESS * np.maximum(durations[falling] - shortest, 0.0)
    return float(np.min(left / -rates[falling], initial=np.inf))
