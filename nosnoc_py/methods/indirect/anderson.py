"""Anderson acceleration of a fixed-point iteration u <- target(u), as a pure function over a frozen memory.

With residuals f_k = target(u_k) - u_k and the differences dU, dF of the last iterates, the next one is

    u + beta f - (dU + beta dF) gamma,    gamma = argmin |f - dF gamma|,

which is a relaxed step, u + beta f, where nothing is remembered, and a secant method where a lot is.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

Array = np.ndarray

# Singular values of the scaled differences below this part of the largest are noise.
CUTOFF = 1e-10


@dataclass(frozen=True, eq=False, kw_only=True)
class Memory:
    """The last iterates and their residuals, flat, oldest first.

    Attributes
    ----------
    depth : int
        Most differences that are used; with 0 every step is a relaxed one.
    growth : float
        A residual that exceeds the last one by this factor ends the memory.
    delay : int
        Relaxed steps with one key before the first accelerated one: far from a fixed point, extrapolation easily leads
        to controls under which nothing collides any more.
    controls, residuals : tuple of (n,)
    key : hashable
        What the iterates have to have in common, such as the sequence of collisions.
    seen : int
        Iterates since the key was new.
    """

    depth: int = 5
    growth: float = 2.0
    delay: int = 60
    controls: tuple[Array, ...] = ()
    residuals: tuple[Array, ...] = ()
    key: Hashable = None
    seen: int = 0


def advance(
    memory: Memory, control: Array, target: Array, relaxation: float, key: Hashable = None
) -> tuple[Array, Memory]:
    """The next control, and what to remember.

    Parameters
    ----------
    memory : Memory
    control, target : ndarray of one shape
        An iterate and where the fixed-point map sends it.
    relaxation : float
        beta.
    key : hashable
        The memory is forgotten when it or the shape changes, and the delay begins again; a residual that grows ends the
        memory alone.
    """
    here, residual = control.ravel(), (target - control).ravel()
    if memory.residuals and (memory.residuals[-1].shape != residual.shape or memory.key != key):
        memory = replace(memory, controls=(), residuals=(), seen=0)
    if memory.residuals and np.linalg.norm(residual) > memory.growth * np.linalg.norm(memory.residuals[-1]):
        memory = replace(memory, controls=(), residuals=())
    kept = slice(-memory.depth - 1, None)
    controls, residuals = (*memory.controls, here)[kept], (*memory.residuals, residual)[kept]
    memory = replace(memory, controls=controls, residuals=residuals, key=key, seen=memory.seen + 1)
    step = relaxation * residual
    if len(controls) > 1 and memory.seen > memory.delay:
        moves, changes = np.diff(controls, axis=0).T, np.diff(residuals, axis=0).T
        step = step - (moves + relaxation * changes) @ _weights(changes, residual)
    return (here + step).reshape(control.shape), memory


def _weights(changes: Array, residual: Array) -> Array:
    """gamma: least squares with columns of length one, without directions that are only noise."""
    sizes = np.linalg.norm(changes, axis=0)
    sizes[sizes == 0.0] = 1.0
    return np.linalg.lstsq(changes / sizes, residual, rcond=CUTOFF)[0] / sizes
