"""Starts by a derivative-free search (CMA-ES) over a few control parameters, evaluated on exact simulations.

CMA-ES (Hansen and Ostermeier 2001, package cma) samples a normal distribution and adapts its covariance to the ranks of
the samples. It tolerates objectives that jump where the sequence of events changes, and it finds contacts that the
present motion does not touch, of which a gradient knows nothing. The parameters are knots of a piecewise linear control
and the free numbers of the problem, all scaled to [0, 1]. Restarts use different numbers of knots.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nosnoc_py.search.merit import Merit
from nosnoc_py.search.starts import Start, StartTask

# Numbers of knots of the control in successive runs: few, as CMA-ES needs generations in proportion to the dimension.
KNOTS = (3, 5, 2)
# First standard deviation as a fraction of the distance between bounds; generations of one run; relative improvement of
# the merit for which a new start is worth the solution of a multi-phase program.
SPREAD, GENERATIONS, BETTER = 0.3, 30, 0.01
# Simulations in one turn, so that other kinds of start are not kept waiting for a whole generation.
SIMULATIONS_PER_TURN = 4


def evolution(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """Yield the best control of every generation that improves on the ones before."""
    if min(KNOTS) * task.rest.size + task.freedom < 2:  # cma fails with one number where its steps reach the bounds
        return
    merit = Merit(task)
    while True:
        for knots in KNOTS:
            yield from _run_cma(task, merit, rng, knots)


def _run_cma(task: StartTask, merit: Merit, rng: np.random.Generator, knots: int) -> Iterator[Start | None]:
    """Yield improvements of one run of CMA-ES, with None after every few simulations."""
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
        samples, costs = strategy.ask(), []
        for k, y in enumerate(samples):
            costs.append(merit.evaluate(start(y)))
            if k % SIMULATIONS_PER_TURN == SIMULATIONS_PER_TURN - 1:
                yield None
        # The weight of violations grows with the objectives seen: the old best is weighted anew before it is compared.
        values, threshold = [merit(*each) for each in costs], merit(*best)
        strategy.tell(samples, values)
        least = int(np.argmin(values))
        if values[least] < (threshold if np.isinf(threshold) else threshold - BETTER * abs(threshold)):
            best = costs[least]
            yield start(samples[least])
        if strategy.stop():
            return
