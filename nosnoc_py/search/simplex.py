"""Starts of problems without controls: Nelder-Mead over the few free numbers, with exact simulations.

The free numbers are initial states, parameters and the horizon. The simplex method (Nelder and Mead 1965, by SciPy)
uses no derivatives, so that it passes through changes of the event sequence; the multi-phase program of one sequence
can only reach the boundary where two events coincide. Restarts begin at the best of some random points.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nosnoc_py.search.merit import Merit
from nosnoc_py.search.starts import Start, StartTask

# Simulations of one run per free number, and the largest number of them: the simplex method is slow in more dimensions.
SIMULATIONS_PER_NUMBER, MOST_NUMBERS = 20, 6
# Number of random points of which the best is the start of the next run.
SCREENED = 16
# A run ends at this size of the simplex, as a fraction of the distance between the bounds; a start need not be exact.
SMALL_SIMPLEX = 1e-3


def simplex(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """Yield local minima: first from the initial values of the problem, then from the best of some random points."""
    if task.rest.size or not 0 < task.freedom <= MOST_NUMBERS:
        return
    from scipy.optimize import minimize  # not paid for by an import of the library

    merit, first = Merit(task), task.shares
    options = {"maxfev": SIMULATIONS_PER_NUMBER * task.freedom, "xatol": SMALL_SIMPLEX, "fatol": np.inf}

    def start(y: np.ndarray) -> Start:
        return task.start(task.zero[None], y)

    def cost(y: np.ndarray) -> float:
        return merit(*merit.evaluate(start(y)))

    while True:
        bounds = [(0.0, 1.0)] * task.freedom
        yield start(minimize(cost, first, method="Nelder-Mead", bounds=bounds, options=options).x)
        samples = rng.random((SCREENED, task.freedom))
        first = samples[int(np.argmin([cost(y) for y in samples]))]
