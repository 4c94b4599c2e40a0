"""Anderson acceleration of a fixed-point iteration u <- target(u) (Anderson 1965; Walker and Ni 2011).

With residuals f_k = target(u_k) - u_k and the differences dU, dF of the last iterates, the next one is

    u + beta f - (dU + beta dF) gamma,    gamma = argmin |f - dF gamma|,

where beta is the relaxation. Without stored differences this is the relaxed step u + beta f; with n differences in n
dimensions it is a secant method. `advance` is a pure function: the iterates are held in a frozen `AndersonMemory`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

Array = np.ndarray

# Singular values of the normalised differences below this fraction of the largest are rounding.
CUTOFF = 1e-10


@dataclass(frozen=True, eq=False, kw_only=True)
class AndersonMemory:
    """Last iterates and residuals of a fixed-point iteration, flattened, the oldest first.

    Attributes
    ----------
    depth : int
        Maximal number of differences; 0 gives relaxed steps only.
    growth : float
        The history is discarded if the residual grows by more than this factor.
    delay : int
        Number of relaxed steps with one key before the first accelerated one. Far from the fixed point extrapolation
        may lead to controls without any collision.
    controls, residuals : tuple of (n,)
    key : hashable
        Structure common to all stored iterates, for instance the sequence of collisions.
    seen : int
        Number of iterates since the key changed.
    """

    depth: int = 5
    growth: float = 2.0
    delay: int = 60
    controls: tuple[Array, ...] = ()
    residuals: tuple[Array, ...] = ()
    key: Hashable = None
    seen: int = 0


def advance(
    memory: AndersonMemory, control: Array, target: Array, relaxation: float, key: Hashable = None
) -> tuple[Array, AndersonMemory]:
    """Return the next control and the updated memory.

    Parameters
    ----------
    memory : AndersonMemory
    control, target : ndarray of one shape
        Iterate and its image under the fixed-point map.
    relaxation : float
        beta in (0, 1].
    key : hashable
        If it or the shape changes, history and delay start again. A growing residual discards only the history.
    """
    current, residual = control.ravel(), (target - control).ravel()
    if memory.residuals and (memory.residuals[-1].shape != residual.shape or memory.key != key):
        memory = replace(memory, controls=(), residuals=(), seen=0)
    # A growing residual means that the secants point elsewhere; `seen` stays, as the sequence has not changed.
    if memory.residuals and np.linalg.norm(residual) > memory.growth * np.linalg.norm(memory.residuals[-1]):
        memory = replace(memory, controls=(), residuals=())
    window = slice(-memory.depth - 1, None)
    controls, residuals = (*memory.controls, current)[window], (*memory.residuals, residual)[window]
    memory = replace(memory, controls=controls, residuals=residuals, key=key, seen=memory.seen + 1)
    step = relaxation * residual
    # The differences belong to a smooth map only while the sequence of collisions stays the same.
    if len(controls) > 1 and memory.seen > memory.delay:
        control_changes, residual_changes = np.diff(controls, axis=0).T, np.diff(residuals, axis=0).T
        step = step - (control_changes + relaxation * residual_changes) @ _mixing_coefficients(
            residual_changes, residual
        )
    return (current + step).reshape(control.shape), memory


def _mixing_coefficients(residual_changes: Array, residual: Array) -> Array:
    """Return gamma by least squares with normalised columns, ignoring directions at the level of rounding."""
    lengths = np.linalg.norm(residual_changes, axis=0)
    # An iterate that repeats has a zero column, which least squares leaves out.
    lengths[lengths == 0.0] = 1.0
    return np.linalg.lstsq(residual_changes / lengths, residual, rcond=CUTOFF)[0] / lengths
