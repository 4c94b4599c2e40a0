"""Errors over the number of steps N: Algorithm 1 is of first order, gradient descent is not (Figs. 3, 6, 9, 14).

How the error depends on where in a step the discs collide is a saw-tooth in N, so the order is not to be had from two
values of N: sigma / N is fitted to many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from problems.benchmarks.two_discs_history import History, gradient_descent, successive_approximation

Array = NDArray[np.float64]

QUANTITIES = ("time", "control", "objective")
TOLERANCE = 1e-7  # of |H_u| of Algorithm 1: the errors have three digits at least
Make = Callable[..., History]
CONVERGED: Make = partial(successive_approximation, tolerance=TOLERANCE)
DESCENDED: Make = gradient_descent


@dataclass(frozen=True, kw_only=True)
class GridError:
    """Errors with N steps.

    Parameters
    ----------
    experiment, method, status : str
    steps : int
        N.
    iterations : int
    slope : float
        |H_u| at the end.
    time, control, objective : float
        Largest error of the time of a collision [s] (NaN for another sequence), L2 semi-norm of u - u_opt [N], and
        |J - J_opt|.
    """

    experiment: str
    method: str
    status: str
    steps: int
    iterations: int
    slope: float
    time: float
    control: float
    objective: float


def error_of(history: History) -> GridError:
    """The errors of the last iterate."""
    found, exact = history.solution, history.exact
    times = np.array([event.time for event in found.impacts])
    same = tuple(event.name for event in found.impacts) == exact.contacts
    return GridError(
        experiment=history.experiment,
        method=history.method,
        status=found.status.value,
        steps=history.steps,
        iterations=history.error.size,
        slope=float(history.slope[-1]),
        time=float(np.abs(times - exact.times).max()) if same else np.nan,
        control=float(history.error[-1]),
        objective=float(history.excess[-1]),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Fit:
    """error = sigma / N, and how good that is.

    Parameters
    ----------
    sigma : float
        Of least squares.
    order : float
        Of error = c / N^order, by least squares of the logarithms.
    spread : float
        Largest |error N / sigma - 1|.
    """

    sigma: float
    order: float
    spread: float


def fit(errors: Sequence[GridError], quantity: str) -> Fit:
    """Fit one of the `QUANTITIES` of the same problem and method over all N."""
    values = np.array([getattr(error, quantity) for error in errors], dtype=float)
    steps = np.array([error.steps for error in errors], dtype=float)
    known = np.isfinite(values)
    values, steps = values[known], steps[known]
    sigma = float(np.sum(values / steps) / np.sum(1.0 / steps**2))
    order = -float(np.polyfit(np.log(steps), np.log(values), 1)[0]) if values.size > 1 else np.nan
    return Fit(sigma=sigma, order=order, spread=float(np.abs(values * steps / sigma - 1.0).max()))


def over_grids(make: Make, experiment: str, grids: Sequence[int], iterations: int) -> list[GridError]:
    """Errors of `CONVERGED` or `DESCENDED` with every N."""
    return [error_of(make(experiment, steps=steps, iterations=iterations)) for steps in grids]
