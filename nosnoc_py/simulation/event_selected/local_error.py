"""How wrong the steps of a simulation are, by the embedded scheme: one product of the slopes that are there anyway."""

from __future__ import annotations

import numpy as np

from nosnoc_py.discretization.butcher import ButcherTableau
from nosnoc_py.simulation.event_selected.record import Record
from nosnoc_py.simulation.event_selected.tableaus import error_weights
from nosnoc_py.solution import Series

Array = np.ndarray

# The estimate is of order h^5. The proposed step is a little shorter, but no extrapolation from where all is lost.
ORDER, SAFETY, SHORTEST = 5, 0.7, 0.1


def local_error(record: Record, tableau: ButcherTableau, nominal: Array) -> Series | None:
    """Estimates |h sum (b_i - bhat_i) k_i| / (nominal + |x|), the largest component, at the ends of segments.

    There is none of steps of Euler's, and None of a scheme without an embedded one.

    Parameters
    ----------
    nominal : (n_x,)
        Sizes of the states.
    """
    weights = error_weights(tableau)
    chosen = np.flatnonzero(~record.euler)
    if weights is None or not chosen.size:
        return None
    errors = record.h[chosen, None] * np.abs(np.tensordot(record.slopes[chosen], weights, axes=(1, 0)))
    size = nominal + np.maximum(np.abs(record.x[chosen]), np.abs(record.x[chosen + 1]))
    values = np.nan_to_num((errors / size).max(axis=1), nan=np.inf, posinf=np.inf)
    return Series(record.t[chosen + 1], np.minimum(values, np.finfo(float).max))


def too_long(errors: Series, record: Record, tolerance: float) -> str:
    """Which step is wrong by more than the tolerance, and a length of steps [s] that would do; empty if none is."""
    worst = int(np.argmax(errors.values))
    largest = float(errors.values[worst])
    if largest <= tolerance:
        return ""
    length = float(record.h[~record.euler][worst])
    proposed = length * max(SAFETY * (tolerance / largest) ** (1 / ORDER), SHORTEST)
    return (
        f"the local error of the step before t = {errors.t[worst]:.9g} is estimated as {largest:.3g} (tolerance = "
        f"{tolerance:g}), with a length of {length:.3g} s; try steps of {proposed:.2g} s"
    )
