"""The search for a least-squares fit: from one start, and in pieces of the motion that are driven together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from nosnoc_py.control.predicted import Predictions, ShootingPieces

Array = np.ndarray
# A motion that cannot be simulated counts as one with residuals of this size, so that the search turns back.
LOST = 1e6
# Where no start leads to a fit, so many are tried once more in so many pieces.
TRIED, PIECES = 3, 5
# So many starts that end at residuals like the noise are enough: no other can end much lower.
AGREED = 2
# A first search from every start only has to tell optima from each other; the best of them is then finished.
ROUGH, ROUGHLY = 1e-4, 25
TOLERANCE, EVALUATIONS = 1e-10, 100
# Pieces of a motion are held together by residuals of their gaps over these shares of `x_nominal`, one by one.
GAPS = (1.0, 0.1, 0.01, 1e-3)


@dataclass(frozen=True, eq=False, kw_only=True)
class Optimum:
    """Where a start led to.

    Attributes
    ----------
    values, start : (k,)
    cost : float
        Sum of squared residuals.
    residuals, jacobian : (n,), (n, k)
    converged : bool
    """

    values: Array
    start: Array
    cost: float
    residuals: Array
    jacobian: Array
    converged: bool


def search(made: Predictions, starts: Sequence[Array], segments: int, fits: float) -> list[Optimum]:
    """The optima that starts lead to, the best first and finished; empty where no motion can be simulated.

    A sum of squares up to `fits` is that of the noise.
    """
    found: list[Optimum] = []

    def tried(start: Array, pieces: int) -> bool:
        """Whether enough starts end at residuals like the noise."""
        begin = start if pieces == 1 else _pieced(made, start, pieces)
        rough = _least(made, begin, start, ROUGH, ROUGHLY)
        found.extend([] if rough is None else [rough])
        return sum(optimum.cost <= fits for optimum in found) >= AGREED

    for start in starts:
        if tried(start, segments):
            break
    long = len(made.runs) == 1 and made.runs[0].times.size >= 4 * PIECES
    if segments == 1 and fits > 0.0 and long and not any(optimum.cost <= fits for optimum in found):
        # No start of the whole motion explains the data: in pieces it is nearer to them from the beginning.
        for start in starts[:TRIED]:
            if tried(start, PIECES):
                break
    found.sort(key=lambda optimum: optimum.cost)
    if found and (best := _least(made, found[0].values, found[0].start, TOLERANCE, EVALUATIONS)) is not None:
        found[0] = best
    return found


def _least(made: Predictions, begin: Array, start: Array, tolerance: float, evaluations: int) -> Optimum | None:
    lower, upper = made.bounds
    done = _minimised(made.only, made.residuals, begin, lower, upper, tolerance, evaluations)
    found = None if done is None else made.residuals(done[0])
    if done is None or found is None:
        return None
    r, jacobian = found
    return Optimum(values=done[0], start=start, cost=float(r @ r), residuals=r, jacobian=jacobian, converged=done[1])


def _pieced(made: Predictions, start: Array, segments: int) -> Array:
    """The free values of a motion in pieces with states of their own, whose gaps are closed step by step."""
    pieces = ShootingPieces.of(made, start, segments)
    z = pieces.first
    for share in GAPS:
        both = partial(pieces.residuals, share=share)
        done = _minimised(partial(_first, both), both, z, *pieces.bounds, ROUGH, ROUGHLY)
        if done is None:
            break
        z = done[0]
    return np.clip(z[: start.size], *made.bounds)


def _first(both: Callable[[Array], tuple[Array, Array] | None], z: Array) -> Array | None:
    pair = both(z)
    return None if pair is None else pair[0]


def _minimised(
    alone: Callable[[Array], Array | None],
    both: Callable[[Array], tuple[Array, Array] | None],
    start: Array,
    lower: Array,
    upper: Array,
    tolerance: float,
    evaluations: int,
) -> tuple[Array, bool] | None:
    """`scipy.optimize.least_squares` in widths of ranges: the end and whether it converged; None without a motion."""
    from scipy.optimize import least_squares  # not paid for by an import of the library

    finite = np.isfinite(lower) & np.isfinite(upper)
    base = np.where(finite, lower, 0.0)
    widths = np.where(finite, upper - base, 1.0)
    z = (start - base) / widths
    z = np.where(finite, np.clip(z, 1e-6, 1.0 - 1e-6), z)
    first = alone(base + widths * z)
    if first is None:
        return None

    def residuals(z: Array) -> Array:
        found = alone(base + widths * z)
        return np.full(first.size, LOST) if found is None or found.size != first.size else found

    def jacobian(z: Array) -> Array:
        found = both(base + widths * z)
        return np.zeros((first.size, z.size)) if found is None else found[1] * widths

    limits = np.where(finite, 0.0, -np.inf), np.where(finite, 1.0, np.inf)
    # A velocity measured just beside an impact that the motion has on its other side is an outlier until the rest fits.
    loss = "soft_l1" if tolerance == ROUGH else "linear"
    done = least_squares(
        residuals, z, jacobian, limits, xtol=tolerance, ftol=tolerance, gtol=tolerance, max_nfev=evaluations, loss=loss
    )
    return base + widths * done.x, bool(done.status > 0)
