"""Bounded nonlinear least squares from several starts, optionally with multiple shooting as a first phase.

Each start is minimised to a coarse tolerance (`scipy.optimize.least_squares`, trust-region reflective) only to separate
local optima; the best one is then solved to full accuracy. If no start reaches residuals of the size of the noise, a
long motion is fitted in pieces with free initial states (Bock 1983), whose gaps are closed by a continuation in
`GAP_SCALES`; the result is the next start for the whole motion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nosnoc_py.control.predicted import Predictions, ShootingPieces
from nosnoc_py.processes import in_order

Array = np.ndarray
# Residual (in standard deviations) of a motion that cannot be simulated: large, so that the trust region shrinks.
LOST_RESIDUAL = 1e6
# If no start fits the data: number of starts repeated with multiple shooting, and number of pieces.
PIECED_STARTS, PIECES = 3, 5
# Stop after this number of starts with residuals of the size of the noise: no other can be much better.
ENOUGH_FITS = 2
# Coarse phase (tolerance, evaluations) to separate local optima, then full accuracy for the best of them.
COARSE_TOLERANCE, COARSE_EVALUATIONS = 1e-4, 25
TOLERANCE, EVALUATIONS = 1e-10, 100
# Scales of the gap residuals relative to `x_nominal`: a continuation from loose to closed pieces.
GAP_SCALES = (1.0, 0.1, 0.01, 1e-3)


@dataclass(frozen=True, eq=False, kw_only=True)
class Optimum:
    """Local optimum of a least-squares fit.

    Attributes
    ----------
    values, start : (k,)
        Free values at the optimum and at the start of the search.
    cost : float
        Sum of squared residuals.
    residuals, jacobian : (n,), (n, k)
        Residuals over the standard deviation of the noise and their derivatives by the free values.
    converged : bool
    """

    values: Array
    start: Array
    cost: float
    residuals: Array
    jacobian: Array
    converged: bool


def search(
    predictions: Predictions, starts: Sequence[Array], segments: int, fits: float, workers: int = 1
) -> list[Optimum]:
    """Return the local optima reached from the starts, the best one first; empty if no motion can be simulated.

    Processes search from several starts at a time, and what comes after enough fits is dropped: their number does not
    change the optima. A sum of squares up to `fits` counts as noise. Only the best optimum is solved to full accuracy.
    """
    optima: list[Optimum] = []

    def reached(pieces: int, start: Array) -> Optimum | None:
        """Return the optimum of a search from a start."""
        begin = start if pieces == 1 else _start_from_pieces(predictions, start, pieces)
        return _optimum_from(predictions, begin, start, COARSE_TOLERANCE, COARSE_EVALUATIONS)

    def search_from(starts: Sequence[Array], pieces: int) -> None:
        """Search until enough starts have reached residuals of the size of the noise."""
        for optimum in in_order(partial(reached, pieces), starts, workers):
            optima.extend([] if optimum is None else [optimum])
            if sum(each.cost <= fits for each in optima) >= ENOUGH_FITS:
                return

    search_from(starts, segments)
    # Free errors of the control already let the motion follow the data.
    long = len(predictions.runs) == 1 and predictions.runs[0].times.size >= 4 * PIECES and predictions.stages is None
    if segments == 1 and fits > 0.0 and long and not any(optimum.cost <= fits for optimum in optima):
        # No start of the whole motion explains the data. Pieces start at measured states, so they begin closer to them.
        search_from(starts[:PIECED_STARTS], PIECES)
    optima.sort(key=lambda optimum: optimum.cost)
    if (
        optima
        and (best := _optimum_from(predictions, optima[0].values, optima[0].start, TOLERANCE, EVALUATIONS)) is not None
    ):
        optima[0] = best
    return optima


def _optimum_from(
    predictions: Predictions, begin: Array, start: Array, tolerance: float, evaluations: int
) -> Optimum | None:
    lower, upper = predictions.bounds
    minimum = _bounded_least_squares(
        predictions.only, predictions.residuals, begin, lower, upper, tolerance, evaluations
    )
    evaluation = None if minimum is None else predictions.residuals(minimum[0])
    if minimum is None or evaluation is None:
        return None
    r, jacobian = evaluation
    return Optimum(
        values=minimum[0], start=start, cost=float(r @ r), residuals=r, jacobian=jacobian, converged=minimum[1]
    )


def _start_from_pieces(predictions: Predictions, start: Array, segments: int) -> Array:
    """Return the free values fitted by multiple shooting, with gaps between pieces closed by continuation."""
    pieces = ShootingPieces.of(predictions, start, segments)
    z = pieces.first
    # Loose gaps first: pieces follow the data, then the gaps are closed.
    for share in GAP_SCALES:
        with_jacobian = _with_memory(partial(pieces.residuals, share=share))
        minimum = _bounded_least_squares(
            partial(_residuals_only, with_jacobian),
            with_jacobian,
            z,
            *pieces.bounds,
            COARSE_TOLERANCE,
            COARSE_EVALUATIONS,
        )
        if minimum is None:
            break
        z = minimum[0]
    return np.clip(z[: start.size], *predictions.bounds)


def _with_memory(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """Return the function with a memory of its last point: a step needs one simulation for residuals and Jacobian."""
    last: list[tuple[Array, Any]] = []

    def remembering(z: Array) -> Any:
        if not last or not np.array_equal(last[0][0], z):
            last[:] = [(z.copy(), function(z))]
        return last[0][1]

    return remembering


def _residuals_only(with_jacobian: Callable[[Array], tuple[Array, Array] | None], z: Array) -> Array | None:
    pair = with_jacobian(z)
    return None if pair is None else pair[0]


def _bounded_least_squares(
    residuals_at: Callable[[Array], Array | None],
    with_jacobian: Callable[[Array], tuple[Array, Array] | None],
    start: Array,
    lower: Array,
    upper: Array,
    tolerance: float,
    evaluations: int,
) -> tuple[Array, bool] | None:
    """Minimise in units of the ranges; return the values and True if converged, or None if the start has no motion."""
    from scipy.optimize import least_squares  # not paid for by an import of the library

    finite = np.isfinite(lower) & np.isfinite(upper)
    base = np.where(finite, lower, 0.0)
    widths = np.where(finite, upper - base, 1.0)
    z = (start - base) / widths
    z = np.where(finite, np.clip(z, 1e-6, 1.0 - 1e-6), z)
    # least_squares needs a start strictly inside the bounds.
    first = residuals_at(base + widths * z)
    if first is None:
        return None

    def residuals(z: Array) -> Array:
        value = residuals_at(base + widths * z)
        return np.full(first.size, LOST_RESIDUAL) if value is None or value.size != first.size else value

    def jacobian(z: Array) -> Array:
        # Zero Jacobian where the simulation fails: the residual there is LOST_RESIDUAL, so the step is rejected.
        value = with_jacobian(base + widths * z)
        return np.zeros((first.size, z.size)) if value is None else value[1] * widths

    limits = np.where(finite, 0.0, -np.inf), np.where(finite, 1.0, np.inf)
    # A velocity measured close to an impact is an outlier while the predicted impact is on its other side. The coarse
    # phase therefore uses a robust loss.
    loss = "soft_l1" if tolerance == COARSE_TOLERANCE else "linear"
    solution = least_squares(
        residuals, z, jacobian, limits, xtol=tolerance, ftol=tolerance, gtol=tolerance, max_nfev=evaluations, loss=loss
    )
    return base + widths * solution.x, bool(solution.status > 0)
