"""Directions and step lengths of a descent over switching times and states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray

# BFGS learns nothing from a step along which the gradient does not grow.
FLAT = 1e-10
# A step may use up this part of what is left of a phase.
BOLDNESS = 0.9


@dataclass(frozen=True, eq=False, kw_only=True)
class Curvature:
    """The inverse of the Hessian, as BFGS knows it."""

    inverse: Array


def direction(curvature: Curvature | None, gradient: Array) -> Array:
    """The quasi-Newton direction, or steepest descent."""
    return -gradient if curvature is None else -curvature.inverse @ gradient


def remembered(curvature: Curvature | None, step: Array, change: Array) -> Curvature | None:
    """The inverse Hessian after a step that changed the gradient (BFGS); the first has the size of that step."""
    inner = float(step @ change)
    if inner <= FLAT * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return curvature
    eye = np.eye(step.size)
    inverse = inner / (change @ change) * eye if curvature is None else curvature.inverse
    turned = eye - np.outer(step, change) / inner
    return Curvature(inverse=turned @ inverse @ turned.T + np.outer(step, step) / inner)


def longest(times: Array, way: Array, horizon: float, shortest: float) -> float:
    """How far one may go until a phase has lost most of what it has beyond the shortest duration."""
    durations = np.diff([0.0, *times, horizon])
    rates = np.diff([0.0, *way[: times.size], 0.0])
    falling = rates < 0
    left = BOLDNESS * np.maximum(durations[falling] - shortest, 0.0)
    return float(np.min(left / -rates[falling], initial=np.inf))
