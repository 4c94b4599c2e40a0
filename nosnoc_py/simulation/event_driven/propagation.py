"""Along one phase: the state between the samples of a step, and the matrix that carries variations to its end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nosnoc_py.motion.crossing import NODES as SAMPLES
from nosnoc_py.simulation.event_driven.phase import Flow, Phase, Step
from nosnoc_py.solution.interpolant import lagrange_basis

Array = np.ndarray
# Two events that are closer than this [s] are one: a change of the data may exchange them.
SIMULTANEOUS = 1e-6
# An event that is closer than this [s] to a time that is fixed may fall on its other side.
FIXED = 1e-9
# Speeds, and rates of guards, below this have no direction.
SLOW = 1e-6
# Gauss-Legendre with six stages, order 12: the steps of the simulation are seldom halved.
STAGES = 6
# A transition matrix may change by this when its interval is halved, relative to its largest entry and to 1.
TOLERANCE = 1e-11
# Changes below this are rounding if halving does not make them smaller by far, as the order of the method lets expect.
NOISE = 1e-6
# So often an interval is halved at most: a slip in space that ends has a derivative like 1 / (time to the end).
MOST_HALVINGS = 40
# Weights of the barycentric formula for Chebyshev's extrema.
BARYCENTRIC = np.array([0.5, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -0.5])


def state_at(phase: Phase, t: float) -> Array:
    """State (n_x,) of a phase at a time in it."""
    inside = next((step for step in phase.steps if t <= step.t[-1]), None)
    return phase.x if inside is None else between(inside, t)


def between(step: Step, t: float) -> Array:
    """The polynomial of degree 7 through the samples of a step, at t: the state (n_x,)."""
    away = (t - step.t[0]) / (step.t[-1] - step.t[0]) - SAMPLES
    if (hit := np.flatnonzero(away == 0.0)).size:
        return np.asarray(step.x[hit[0]])
    shares = BARYCENTRIC / away
    return np.asarray(shares @ step.x / shares.sum())


def imminent(phase: Phase, flow: Flow, horizon: float) -> list[int]:
    """Guards that cross zero within `horizon` [s] of the end of a phase, as far as their rates can tell."""
    back = max(phase.t - SIMULTANEOUS, float(phase.steps[0].t[0])) if phase.steps else phase.t
    if not back < phase.t:
        return []
    old = flow.sample(phase.regime, back, state_at(phase, back)).guards
    new = flow.sample(phase.regime, phase.t, phase.x).guards
    watched = np.flatnonzero(np.isfinite(old) & np.isfinite(new))
    ahead = new[watched] + horizon * (new[watched] - old[watched]) / (phase.t - back)
    return [int(i) for i in watched[ahead <= 0.0]]


def transition(
    slope: Callable[[float], Array], low: float, high: float, halvings: int = MOST_HALVINGS, last: float = np.inf
) -> Array:
    """Matrix (n, n) that takes W' = slope(t) W from `low` to `high`; the interval is halved until nothing changes.

    `last` is what the last halving changed: where the rounding of the slope is all that changes, this is enough.
    """
    middle = 0.5 * (low + high)
    whole = _collocation(slope, low, high)
    halves = _collocation(slope, middle, high) @ _collocation(slope, low, middle)
    change = np.abs(whole - halves).max(initial=0.0) / max(1.0, np.abs(halves).max(initial=0.0))
    # Not a number compares as false: there is nothing to gain then.
    if not halvings or not change > TOLERANCE or 0.1 * last < change < NOISE:
        return np.asarray(halves)
    later = transition(slope, middle, high, halvings - 1, change)
    return np.asarray(later @ transition(slope, low, middle, halvings - 1, change))


def _collocation(slope: Callable[[float], Array], low: float, high: float) -> Array:
    """One step of the Gauss-Legendre method: K_i = A_i (I + h sum_j a_ij K_j)."""
    h = high - low
    slopes = np.array([slope(low + h * c) for c in NODES])
    n = slopes.shape[1]
    coupling = np.einsum("ij,ikl->ikjl", h * MATRIX, slopes).reshape(STAGES * n, STAGES * n)
    try:
        stages = np.linalg.solve(np.eye(STAGES * n) - coupling, slopes.reshape(STAGES * n, n)).reshape(STAGES, n, n)
    except np.linalg.LinAlgError:  # of slopes that overflow: a motion that escapes in finite time
        return np.full((n, n), np.nan)
    return np.asarray(np.eye(n) + h * np.tensordot(WEIGHTS, stages, axes=1))


_nodes, _weights = np.polynomial.legendre.leggauss(STAGES)
# Nodes, weights and matrix of the collocation method on [0, 1]: a_ij is the integral of the j-th Lagrange polynomial up
# to the i-th node, for which the quadrature itself is exact.
NODES, WEIGHTS = 0.5 * (_nodes + 1.0), 0.5 * _weights
MATRIX = NODES[:, None] * np.einsum("k,ikj->ij", WEIGHTS, lagrange_basis(NODES, np.outer(NODES, NODES)))
