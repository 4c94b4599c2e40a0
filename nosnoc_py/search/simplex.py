"""Starts of problems without controls: the few numbers that are free, by simplices over exact simulations.

Nelder and Mead 1965, by SciPy: no derivative, so that a change of the sequence of events on the way does no harm. The
program of one sequence gets no further than to where an event would have to leave its place in the order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nosnoc_py.search.merit import Merit
from nosnoc_py.search.starts import Start, StartTask

# Simulations of one simplex, for each free number; more numbers than this are left to other kinds of start.
EACH, MOST = 40, 6
# So many random numbers, of which the best is where the next simplex starts.
SCREENED = 16
# The simplex has closed in, as a share of the way between the bounds.
CLOSE = 1e-3


def simplex(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """From where the problem says that solvers start, then from the best of some random numbers."""
    if task.rest.size or not 0 < task.freedom <= MOST:
        return
    from scipy.optimize import minimize  # not paid for by an import of the library

    merit, first = Merit(task), task.shares
    options = {"maxfev": EACH * task.freedom, "xatol": CLOSE, "fatol": np.inf}

    def start(y: np.ndarray) -> Start:
        return task.start(task.zero[None], y)

    def cost(y: np.ndarray) -> float:
        return merit(*merit.measured(start(y)))

    while True:
        bounds = [(0.0, 1.0)] * task.freedom
        yield start(minimize(cost, first, method="Nelder-Mead", bounds=bounds, options=options).x)
        tried = rng.random((SCREENED, task.freedom))
        first = tried[int(np.argmin([cost(y) for y in tried]))]
