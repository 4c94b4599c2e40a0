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

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from nosnoc_py.tableaus import gauss_legendre

Array = np.ndarray
# Order 12: steps of a simulation seldom have to be halved.
GAUSS, COARSE, ROUGH = gauss_legendre(6), gauss_legendre(5), gauss_legendre(4)
# Most parts of an interval on average, and more.
MOST_PARTS, MORE_PARTS = 32, 1000
# Most intervals that are evaluated together, and most entries of their systems of equations.
MOST_IN_BATCH, MOST_ENTRIES = 64, 2_000_000
# Accepted error of the transport matrix of an interval, relative to its largest entry (at least 1).
TOLERANCE = 1e-12
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
    """Return derivatives (..., n, n + k) of Runge-Kutta steps w' = F(w, d) by their starts, and by data d.

    They are (I, 0) + h sum_i b_i K_i with stages K_i = F_w(w_i) ((I, 0) + h sum_j a_ij K_j) + (0, F_d(w_i)).

    Parameters
    ----------
    slopes : (..., s, n, n + k)
        (F_w, F_d) at the stages; of so many steps.
    h : (...) or float
    a : (s, s)
    b : (s,) or (..., s)
    """
    s, n, columns = slopes.shape[-3:]
    length = np.asarray(h)[..., None, None]
    by_w = slopes[..., :n]
    if a.diagonal().any() or np.triu(a).any():
        coupling = np.einsum("ij,...ikl->...ikjl", a, length[..., None] * by_w)
        matrix = np.eye(s * n) - coupling.reshape(*slopes.shape[:-3], s * n, s * n)
        try:
            stages = np.linalg.solve(matrix, slopes.reshape(*slopes.shape[:-3], s * n, columns)).reshape(slopes.shape)
        except np.linalg.LinAlgError:  # of slopes that overflow: a motion that escapes in finite time
            return np.full_like(slopes[..., 0, :, :], np.nan)
    else:
        stages = slopes.copy()
        for i in range(s):
            inner = np.einsum("j,...jkl->...kl", a[i, :i], stages[..., :i, :, :])
            stages[..., i, :, :] += by_w[..., i, :, :] @ (length * inner)
    return np.asarray(np.eye(n, columns) + length * np.einsum("...j,...jkl->...kl", b, stages))


def transport(slope: Callable[[Array], Array], low: float, high: float) -> Array:
    """Return the matrix (n, n) that maps W at `low` to W at `high` by W' = slope(t) W.

    `slope` returns matrices (m, n, n) at times (m,). See `transports`.
    """

    n = np.shape(slope(np.array([low])))[-1]

    def at(number: Array, times: Array) -> Array:
        return slope(times.ravel()).reshape(*times.shape, n, n)

    return np.asarray(transports(at, np.array([low]), np.array([high]), n)[0][0])


def transports(slope: Callable[[Array, Array], Array], low: Array, high: Array, n: int) -> tuple[Array, bool]:
    """Return the matrices (m, n, n + k) of many intervals [low, high] (m,) of W' = A(t) W + B(t) d with constant data.

    The last k columns belong to the data d, such as parameters. An interval is halved until the methods of orders 12
    and 10 agree: their difference is of order 11, and its power 13/11 estimates the error, of order 13. Intervals are
    evaluated together, as calls cost more than numbers.

    Parameters
    ----------
    slope : function (i,), (i, s) -> (i, s, n, n + k)
        Matrices (A, B) at times in intervals of these numbers.
    low, high : (m,)
    n : int

    Returns
    -------
    matrices : (m, n, n + k)
    resolved : bool
        False if there were too many intervals: of slopes that are noise there is no end.
    """
    most = MOST_PARTS * low.size + MORE_PARTS
    number, last, halvings = np.arange(low.size), np.full(low.size, np.inf), 0
    parts, resolved = list[tuple[int, float, Array]](), True
    while number.size:
        results = [_compared(slope, number[one], low[one], (high - low)[one]) for one in _batches(number.size, n)]
        matrices, change = (np.concatenate(each) for each in zip(*results, strict=True))
        noise = (0.1 * last < change) & (change < NOISE_OF_DIFFERENCES)
        # Not a number compares as false: there is nothing to gain then.
        again = (change ** ((GAUSS.order + 1) / (COARSE.order + 1)) > TOLERANCE) & ~noise & (halvings < MOST_HALVINGS)
        most -= number.size
        resolved = most > 0 or not again.any()
        again &= most > 0
        parts += zip(number[~again].tolist(), low[~again].tolist(), matrices[~again], strict=True)
        middle = 0.5 * (low[again] + high[again])
        low, high = np.concatenate([low[again], middle]), np.concatenate([middle, high[again]])
        number, last, halvings = np.tile(number[again], 2), np.tile(change[again], 2), halvings + 1
    return _joined(parts), resolved


def rough_transports(slope: Callable[[Array, Array], Array], low: Array, high: Array, n: int) -> Array:
    """Return the matrices of `transports` by one step of order 8 each, without control of the error."""
    parts = []
    for one in _batches(low.size, n):
        h = (high - low)[one]
        slopes = slope(np.arange(low.size)[one], low[one][:, None] + h[:, None] * ROUGH.c)
        parts.append(step_transport(slopes, h, ROUGH.a, ROUGH.b))
    return np.concatenate(parts)


def _batches(count: int, n: int) -> Iterator[slice]:
    """Yield slices that cover `count` intervals: powers of two, as every size is a function of its own."""
    most, first = min(MOST_IN_BATCH, max(1, MOST_ENTRIES // (GAUSS.stages * max(n, 1)) ** 2)), 0
    while first < count:
        size = 1 << (min(count - first, most).bit_length() - 1)
        yield slice(first, first + size)
        first += size


def _compared(slope: Callable[[Array, Array], Array], number: Array, low: Array, h: Array) -> tuple[Array, Array]:
    """Return the matrices (i, n, n + k) of one step each, and their relative changes (i,) by the coarser method."""
    slopes = slope(number, low[:, None] + h[:, None] * np.concatenate([GAUSS.c, COARSE.c]))
    fine = step_transport(slopes[:, : GAUSS.stages], h, GAUSS.a, GAUSS.b)
    coarse = step_transport(slopes[:, GAUSS.stages :], h, COARSE.a, COARSE.b)
    if number.size > 1 and not np.isfinite(fine).all():  # one that overflows takes the others of its batch along
        each = [_compared(slope, number[[i]], low[[i]], h[[i]]) for i in range(number.size)]
        return np.concatenate([one for one, _ in each]), np.concatenate([one for _, one in each])
    most = np.abs(fine).max(axis=(1, 2), initial=1.0)
    return fine, np.abs(fine - coarse).max(axis=(1, 2), initial=0.0) / most


def _joined(parts: list[tuple[int, float, Array]]) -> Array:
    """Return the matrix of each interval from those of its parts, by number and start."""
    matrices: list[Array] = []
    numbers: list[int] = []
    for number, _, matrix in sorted(parts, key=lambda part: part[:2]):
        if numbers and numbers[-1] == number:
            matrices[-1] = composed(matrix, matrices[-1])
        else:
            matrices.append(matrix)
            numbers.append(number)
    return np.array(matrices)


def composed(later: Array, earlier: Array) -> Array:
    """Return the composition (n, n + k) of two matrices (n, n + k) of states and of data that do not move."""
    n = len(later)
    matrix = later[:, :n] @ earlier
    matrix[:, n:] += later[:, n:]
    return np.asarray(matrix)
