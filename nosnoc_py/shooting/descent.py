"""Descent over controls: BFGS, projected on bounds, for an objective that is smooth in pieces and may be infinite."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nosnoc_py.indirect.switching_descent import bfgs
from nosnoc_py.shooting.rollouts import Rollout, Rollouts

# A step has to achieve this part of what the gradient promises.
ARMIJO = 1e-4
HALVINGS = 20
# A search ends where this many iterations gained less than that part of the objective.
PATIENCE, GAIN = 8, 1e-5


def descend(
    rollouts: Rollouts,
    u: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    iterations: int,
    report: Callable[[Rollout], bool],
) -> tuple[np.ndarray, Rollout]:
    """BFGS with projection on bounds (n_u,) from a control u (N, n_u); `report` sees every iterate and may end it."""
    low, high = (np.broadcast_to(bound, u.shape).reshape(-1) for bound in bounds)
    here = rollouts(u)
    if here.w is None:
        return u, here
    gradient = rollouts.gradient(here)
    inverse: np.ndarray | None = None
    past = [here.objective]
    for _ in range(iterations):
        flat = u.reshape(-1)
        stuck = ((flat <= low) & (gradient > 0)) | ((flat >= high) & (gradient < 0))
        direction = _direction(inverse, gradient, stuck)
        if direction is None:
            inverse, direction = None, _direction(None, gradient, stuck)
        found = None if direction is None else _line_search(rollouts, u, here, gradient, direction, (low, high))
        if found is None and inverse is None:
            break
        if found is None:
            inverse = None
            continue
        new, there = found
        slope = rollouts.gradient(there)
        inverse = bfgs(inverse, (new - u).reshape(-1), slope - gradient)
        u, here, gradient = new, there, slope
        past.append(here.objective)
        slow = len(past) > PATIENCE and past[-1 - PATIENCE] - past[-1] < GAIN * abs(past[-1])
        if report(here) or slow:
            break
    return u, here


def _direction(inverse: np.ndarray | None, gradient: np.ndarray, stuck: np.ndarray) -> np.ndarray | None:
    """Minus the inverse Hessian times the gradient, over what is free; None where that does not descend."""
    free = np.where(stuck, 0.0, gradient)
    size = float(np.abs(free).max(initial=0.0))
    if size == 0.0 or not np.isfinite(size):
        return None
    direction = -free / size if inverse is None else np.where(stuck, 0.0, -inverse @ free)
    return direction if direction @ gradient < 0 else None


def _line_search(
    rollouts: Rollouts,
    u: np.ndarray,
    here: Rollout,
    gradient: np.ndarray,
    direction: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, Rollout] | None:
    """The first of ever shorter steps that descends enough; a simulation that fails is no descent."""
    size = 1.0
    for _ in range(HALVINGS):
        new = np.clip(u.reshape(-1) + size * direction, *bounds)
        there = rollouts(new.reshape(u.shape))
        if there.objective < here.objective + ARMIJO * min(0.0, gradient @ (new - u.reshape(-1))):
            return new.reshape(u.shape), there
        size *= 0.5
    return None
