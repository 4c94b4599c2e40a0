"""Starts from a search without derivatives: a few control parameters, judged on exact simulations.

CMA-ES (Hansen and Ostermeier 2001), by the package cma: an objective that jumps with the sequence of events does not
mislead it, and it needs no motion that touches to find one that does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nosnoc_py.search.merit import Merit
from nosnoc_py.search.starts import Start, StartTask

# Knots of the control, one search after the other.
KNOTS = (3, 5, 2)
# The first steps, as a share of the way from bound to bound; generations of one search; what counts as better.
SPREAD, GENERATIONS, BETTER = 0.3, 30, 0.01
# Simulations one after the other, before other kinds of start have their turn.
TOGETHER = 4


def evolution(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """The best control of every generation that found a better one."""
    if min(KNOTS) * task.rest.size + task.freedom < 2:  # cma fails with one number where its steps reach the bounds
        return
    merit = Merit(task)
    while True:
        for knots in KNOTS:
            yield from _search(task, merit, rng, knots)


def _search(task: StartTask, merit: Merit, rng: np.random.Generator, knots: int) -> Iterator[Start | None]:
    from cma import CMAEvolutionStrategy

    way, size = task.upper - task.lower, knots * task.rest.size
    middle = np.tile((task.rest - task.lower) / np.where(way > 0.0, way, 1.0), knots)

    def start(y: np.ndarray) -> Start:
        return task.start(task.lower + way * y[:size].reshape(knots, -1), y[size:])

    options = {
        "bounds": [0.0, 1.0],
        "verbose": -9,
        "seed": np.nan,  # numbers come from our generator, and leave that of everybody else alone
        "randn": lambda *shape: rng.standard_normal(shape),
    }
    strategy = CMAEvolutionStrategy(np.append(middle, np.full(task.freedom, 0.5)), SPREAD, options)
    best = (np.inf, np.inf)
    for _ in range(GENERATIONS):
        found, measured = strategy.ask(), []
        for k, y in enumerate(found):
            measured.append(merit.measured(start(y)))
            if k % TOGETHER == TOGETHER - 1:
                yield None
        values, bar = [merit(*each) for each in measured], merit(*best)
        strategy.tell(found, values)
        least = int(np.argmin(values))
        if values[least] < (bar if np.isinf(bar) else bar - BETTER * abs(bar)):
            best = measured[least]
            yield start(found[least])
        if strategy.stop():
            return
