"""Derivatives of a motion through its events: saltation matrix, its transpose, and transport between events.

A motion w' = F- meets a guard g(w, t) = 0, jumps to w+ = R(w-) and goes on by w' = F+. A neighbour dw- meets the guard
earlier or later. Seen at the fixed time of the event,

    dt* = -g_w dw- / (g_w F- + g_t),    dw+ = R_w dw- + (R_w F- - F+) dt*.

The matrix of dw+ is the saltation matrix. Its transpose takes a costate back over the event,

    lambda- = R_w' lambda+ + eta g_w',    eta = -lambda+'(R_w F- - F+) / (g_w F- + g_t),

the jump of a hybrid minimum principle. Parameters are components of w that do not move, a running cost is one that
grows and that nothing depends on.

References
----------
Aizerman and Gantmakher, On the stability of periodic motions, J. Appl. Math. Mech. 22 (1958).
Leine and Nijmeijer, Dynamics and Bifurcations of Non-Smooth Mechanical Systems (2004), Chapter 7.
Hairer, Lubich and Wanner, Geometric Numerical Integration (2006), Chapter VI.4: the derivative of a Runge-Kutta step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nosnoc_py.tableaus import gauss_legendre

Array = np.ndarray
# Order 12: steps of a simulation seldom have to be halved.
GAUSS = gauss_legendre(6)
# Accepted change of a transport matrix by halving, relative to its largest entry (at least 1).
TOLERANCE = 1e-11
# Changes below this are rounding unless halving reduces them at the order of the method.
NOISE_OF_DIFFERENCES = 1e-6
# Largest number of halvings: at the end of a slip in space the derivative grows like 1 / (time to the end).
MOST_HALVINGS = 40


class Saltation(NamedTuple):
    """Derivatives of the state and of the time of an event.

    Attributes
    ----------
    jump : (n_after, n)
        Derivative of the state after the event, at a fixed time, by the state before.
    delay : (n,)
        Derivative of the time of the event by the state before; one row each (k, n) of k events at one instant.
    """

    jump: Array
    delay: Array


def saltation(
    gradient: Array, before: Array, after: Array, reset: Array | None = None, *, approach: float | None = None
) -> Saltation:
    """Return derivatives of the state after an event, at a fixed time, and of the event time, by the state before.

    A costate is transported backwards by the transpose, `jump.T @ costate`. With after = 0 the jump is the derivative
    of the state at the event itself, not at a fixed time.

    Parameters
    ----------
    gradient : (n,)
        g_w.
    before, after : (n,), (n_after,)
        F- and F+, the rates of change right before and right after.
    reset : (n_after, n), optional
        R_w; default: the state is continuous.
    approach : float, optional
        g_w F- + g_t, if the guard depends on time or its rate differs from g_w F-.

    Examples
    --------
    A ball hits the ground at 4 m/s and leaves with half of it, g = 10 m/s^2. One that is 1 m higher hits it 0.25 s
    later. Its way afterwards, followed back to the first impact, begins 2 * 0.25 m below the ground, and faster by
    10 * 0.25 / 2 m/s, as it hits faster, and 10 * 0.25 m/s more, as it goes upwards.

    >>> import numpy as np
    >>> event = saltation(np.array([1.0, 0.0]), np.array([-4.0, -10.0]), np.array([2.0, -10.0]), np.diag([1.0, -0.5]))
    >>> event.delay
    array([0.25, 0.  ])
    >>> event.jump
    array([[-0.5 ,  0.  ],
           [ 3.75, -0.5 ]])

    The costate of a quantity that depends on the position only:

    >>> event.jump.T @ np.array([1.0, 0.0])
    array([-0.5,  0. ])
    """
    jump = np.eye(gradient.size) if reset is None else reset
    delay = -gradient / (gradient @ before if approach is None else approach)
    return Saltation(jump=jump + np.outer(jump @ before - after, delay), delay=delay)


def projection(rows: Array, columns: Array, share: float) -> Array:
    """Return the derivative (n, n) of a state that moves along columns (n, k) instantly until rows (m, n) of it are
    zero.

    This is the limit of a saltation for a motion that is fast across the rows. Singular values of rows @ columns below
    a fraction of the largest one count as zero.
    """
    return np.asarray(np.eye(len(columns)) - columns @ np.linalg.pinv(rows @ columns, rcond=share) @ rows)


def step_transport(slopes: Array, h: Array | float, a: Array, b: Array) -> Array:
    """Return derivatives (..., n, n) of Runge-Kutta steps w' = F(w) by their starts: I + h sum_i b_i K_i.

    The stages follow from K_i = F_w(w_i) (I + h sum_j a_ij K_j).

    Parameters
    ----------
    slopes : (..., s, n, n)
        F_w at the stages; of so many steps.
    h : (...) or float
    a : (s, s)
    b : (s,) or (..., s)
    """
    s, n = slopes.shape[-3:-1]
    length = np.asarray(h)[..., None, None]
    if a.diagonal().any() or np.triu(a).any():
        coupling = np.einsum("ij,...ikl->...ikjl", a, length[..., None] * slopes)
        matrix = np.eye(s * n) - coupling.reshape(*slopes.shape[:-3], s * n, s * n)
        try:
            stages = np.linalg.solve(matrix, slopes.reshape(*slopes.shape[:-3], s * n, n)).reshape(slopes.shape)
        except np.linalg.LinAlgError:  # of slopes that overflow: a motion that escapes in finite time
            return np.full_like(slopes[..., 0, :, :], np.nan)
    else:
        stages = np.zeros_like(slopes)
        for i in range(s):
            inner = np.einsum("j,...jkl->...kl", a[i, :i], stages[..., :i, :, :])
            stages[..., i, :, :] = slopes[..., i, :, :] @ (np.eye(n) + length * inner)
    return np.asarray(np.eye(n) + length * np.einsum("...j,...jkl->...kl", b, stages))


def transport(
    slope: Callable[[Array], Array],
    low: float,
    high: float,
    halvings: int = MOST_HALVINGS,
    last: float = np.inf,
    whole: Array | None = None,
) -> Array:
    """Return the matrix (n, n) that maps W at `low` to W at `high` by W' = slope(t) W, by adaptive halving.

    `slope` returns matrices (m, n, n) at times (m,).
    `last` is the change by the previous halving: if only the rounding of the slope changes, the result is accepted.
    `whole` is the matrix by one step, which the previous halving has computed.
    """
    middle = 0.5 * (low + high)
    if whole is None:
        (whole,) = _collocation(slope, np.array([low, high]))
    first, second = _collocation(slope, np.array([low, middle, high]))
    halves = second @ first
    change = np.abs(whole - halves).max(initial=0.0) / max(1.0, np.abs(halves).max(initial=0.0))
    # Not a number compares as false: there is nothing to gain then.
    if not halvings or not change > TOLERANCE or 0.1 * last < change < NOISE_OF_DIFFERENCES:
        return np.asarray(halves)
    later = transport(slope, middle, high, halvings - 1, change, second)
    return np.asarray(later @ transport(slope, low, middle, halvings - 1, change, first))


def _collocation(slope: Callable[[Array], Array], times: Array) -> Array:
    """Return the matrices (m, n, n) of steps of the Gauss-Legendre method between times (m + 1,)."""
    h = np.diff(times)
    slopes = slope(np.ravel(times[:-1, None] + h[:, None] * GAUSS.c))
    return step_transport(slopes.reshape(h.size, GAUSS.stages, *slopes.shape[1:]), h, GAUSS.a, GAUSS.b)
