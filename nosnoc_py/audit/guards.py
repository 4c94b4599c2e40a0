"""Functions that must not be negative on pieces of a motion: gaps, guards, switching functions on their side."""

from __future__ import annotations

import numpy as np

from nosnoc_py.audit.records import Measured
from nosnoc_py.solution.violation import Law
from nosnoc_py.tolerances import NOT_ZERO

Array = np.ndarray


def depths(
    law: Law,
    names: tuple[str, ...],
    t: Array,
    values: Array,
    *,
    watched: Array | None = None,
    sizes: Array | None = None,
) -> Measured:
    """Return how far functions fall below zero, by samples and by parabolas through three of them.

    Parameters
    ----------
    t : (m,)
        Start times of the pieces [s].
    values : (m, samples, n)
        At equidistant places of every piece.
    watched : (m, n), optional
        Mask of the values that count; by default all.
    sizes : (m, n) or (n,), optional
        Sizes that the depths are relative to; by default the largest value of every function.
    """
    amounts = np.maximum(-lowest(np.moveaxis(values, 1, -1)), 0.0)
    if watched is not None:
        amounts = np.where(watched, amounts, 0.0)
    sizes = np.abs(values).max(axis=(0, 1), initial=0.0) if sizes is None else sizes
    return Measured(law=law, t=t, subjects=names, amounts=amounts, shares=amounts / np.maximum(sizes, NOT_ZERO))


def catches(names: tuple[str, ...], t: Array, closed: Array, earlier: Array, rates: Array) -> Measured:
    """Return speeds (m, n) of contacts that were open `earlier` and are closed: a force caught them.

    A very short element can carry a finite impulse by a huge force and so avoid the law of restitution, with residuals
    of 1e-16. A contact that an impact leaves closed has no speed.
    """
    amounts = np.where(closed & ~earlier, np.abs(rates), 0.0)
    return Measured(law=Law.CATCH, t=t, subjects=names, amounts=amounts, shares=amounts, unit="m/s")


def lowest(values: Array) -> Array:
    """Return the minimum of equidistant samples (..., m) and of the parabolas through three of them."""
    left, here, right = values[..., :-2], values[..., 1:-1], values[..., 2:]
    # Vertex of the parabola through three equidistant samples: y_0 - (y_1 - y_-1)^2 / (8 (y_1 - 2 y_0 + y_-1)).
    bend = left - 2.0 * here + right
    # Only around a lowest sample: elsewhere the vertex lies outside of the three samples, or is a maximum.
    dip = (here < left) & (here < right)
    between = here - np.divide((right - left) ** 2, 8.0 * bend, out=np.zeros_like(bend), where=dip)
    return np.asarray(np.concatenate([values, between], axis=-1).min(axis=-1))
