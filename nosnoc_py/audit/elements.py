"""Finite elements as samples: the rates of collocation polynomials at their stages, and listed forces by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nosnoc_py.audit.records import MotionSamples
from nosnoc_py.tableaus import lagrange_derivative

if TYPE_CHECKING:
    from nosnoc_py.solution.records import Series
    from nosnoc_py.systems.kinematics import ContactFrames

Array = np.ndarray
# Elements shorter than this share of the motion have no derivatives.
SHORT = 1e-9
# Residuals of a solved program are at most of this size, whatever it says itself.
SOLVED = 1e-8


def slopes_of(c: Array, x_left: Array, x_stages: Array) -> Array:
    """Derivatives (E, n_s, n_x) of the polynomials through left ends and stages by the share of their element."""
    inner = c != 0.0
    values = np.concatenate([x_left[:, None], x_stages[:, inner]], axis=1)
    slopes = np.einsum("jk,ekx->ejx", lagrange_derivative(np.append(0.0, c[inner])), values)
    return np.asarray(slopes if not inner.all() else slopes[:, 1:])


def noise_of(c: Array, h: Array, x: Array, infeasibility: float) -> Array:
    """Errors (E,) of the rates in elements of lengths h that rounding and the residual of the solver explain."""
    gain = float(np.abs(lagrange_derivative(np.append(0.0, c[c != 0.0]))).sum(axis=1).max())
    size = float(np.abs(x).max(initial=0.0, where=np.isfinite(x)))
    errors = (min(infeasibility, SOLVED) if infeasibility >= 0.0 else 0.0) + np.finfo(float).eps * (1.0 + size)
    return np.asarray(gain * errors / np.maximum(h, 1e-300))


def element_samples(
    *,
    c: Array,
    t: Array,
    h: Array,
    x: Array,
    x_left: Array,
    rates: Array,
    u: Array,
    forces: Array | None,
    keep: Array,
    infeasibility: float,
) -> MotionSamples:
    """Stages of elements as samples.

    Parameters
    ----------
    c : (n_s,)
    t, keep : (E, n_s)
        Times [s], and which stages have rates.
    h : (E,)
        [s].
    x, rates, u : (E, n_s, ...)
    x_left : (E, n_x)
    forces : (E n_s, n_c + n_tt) or None
    infeasibility : float
        Of the solution.
    """
    rows = np.flatnonzero(keep.reshape(-1))
    noise = np.repeat(noise_of(c, h, x, infeasibility), c.size)
    flat = [values.reshape(t.size, -1)[rows] for values in (x, rates, u)]
    return MotionSamples(
        t=t.reshape(-1)[rows],
        x=flat[0],
        rates=flat[1],
        u=flat[2],
        forces=None if forces is None else forces[rows],
        x_left=np.repeat(x_left, c.size, axis=0)[rows],
        noise=noise[rows],
    )


def columns_of(series: Mapping[str, Series], names: Sequence[str], count: int) -> Array | None:
    """Values (count, names) that a solution lists under names; None unless it lists all of them, so many times each."""
    if not all(name in series and len(series[name].values) == count for name in names):
        return None
    return np.array([series[name].values for name in names], dtype=float).reshape(len(names), count).T


def listed(frames: ContactFrames, series: Mapping[str, Series], kind: str, count: int) -> Array | None:
    """Forces ("lambda") or impulses ("Lambda") (count, n_c + n_tt) that a solution lists; None unless it lists all."""
    names = [f"{kind}_normal[{name}]" for name in frames.names]
    for c, name in enumerate(frames.names):
        labels = ("",) if frames.width(c) == 1 else tuple(f"[{k}]" for k in range(frames.width(c)))
        names += [f"{kind}_tangent[{name}]{label}" for label in labels]
    found = columns_of(series, names, count)
    return None if found is None else found / np.append(np.ones(frames.count), frames.weights)
