"""Starts by a derivative-free search (CMA-ES) over a few control parameters, evaluated on exact simulations.

CMA-ES (Hansen and Ostermeier 2001) samples a normal distribution and adapts its covariance to the ranks of the samples.
It tolerates objectives that jump where the sequence of events changes, and it finds contacts that the present motion
does not touch, of which a gradient knows nothing. The parameters are knots of a piecewise linear control and the free
numbers of the problem, all scaled to [0, 1]. Restarts use different numbers of knots.

The update is written here, after the tutorial (Hansen 2016, arXiv:1604.00772): the package cma brings scipy.stats and
matplotlib, whose imports take longer than all simulations of a small problem.
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
# Standard deviation along the longest axis at which a run has converged: a start need not be exact.
CONVERGED = 1e-3
# Simulations in one turn, so that other kinds of start are not kept waiting for a whole generation.
SIMULATIONS_PER_TURN = 4


class CovarianceAdaptation:
    """CMA-ES with positive weights: `ask` for samples, `tell` their values. Equations are those of Hansen (2016).

    Parameters
    ----------
    mean : (n,)
        First mean.
    deviation : float
        First standard deviation.
    rng : Generator
    """

    def __init__(self, mean: np.ndarray, deviation: float, rng: np.random.Generator) -> None:
        n = mean.size
        self.mean, self.deviation, self.rng = mean, deviation, rng
        self.samples = 4 + int(3.0 * np.log(n))  # (48)
        parents = self.samples // 2
        weights = np.log(0.5 * (self.samples + 1)) - np.log(np.arange(1, parents + 1))  # (49)
        self.weights = weights / weights.sum()
        effective = 1.0 / (self.weights**2).sum()  # (8)
        self.effective = effective
        self.path_rate = (effective + 2.0) / (n + effective + 5.0)  # (55)
        self.damping = 1.0 + 2.0 * max(0.0, np.sqrt((effective - 1.0) / (n + 1.0)) - 1.0) + self.path_rate
        self.rank_path_rate = (4.0 + effective / n) / (n + 4.0 + 2.0 * effective / n)  # (56)
        self.rank_one = 2.0 / ((n + 1.3) ** 2 + effective)  # (57)
        rank_mu = 2.0 * (effective - 2.0 + 1.0 / effective) / ((n + 2.0) ** 2 + effective)
        self.rank_mu = min(1.0 - self.rank_one, rank_mu)  # (58)
        self.length = np.sqrt(n) * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n**2))  # of a normal vector, on average
        self.path, self.rank_path, self.generation = np.zeros(n), np.zeros(n), 0
        self.covariance, self.axes, self.radii = np.eye(n), np.eye(n), np.ones(n)

    def ask(self) -> np.ndarray:
        """Return the samples of the next generation (samples, n)."""
        normal = self.rng.standard_normal((self.samples, self.mean.size))
        return self.mean + self.deviation * (normal * self.radii) @ self.axes.T  # (38) to (40)

    def tell(self, samples: np.ndarray, values: np.ndarray) -> None:
        """Adapt mean, deviation and covariance to the values of the samples, of which only the order counts."""
        n, self.generation = self.mean.size, self.generation + 1
        steps = (samples[np.argsort(values, kind="stable")[: self.weights.size]] - self.mean) / self.deviation
        step = self.weights @ steps  # (41)
        self.mean = self.mean + self.deviation * step  # (42)
        whitened = self.axes @ ((self.axes.T @ step) / self.radii)
        rate = self.path_rate
        self.path = (1.0 - rate) * self.path + np.sqrt(rate * (2.0 - rate) * self.effective) * whitened  # (43)
        size = float(np.linalg.norm(self.path))
        self.deviation *= np.exp(rate / self.damping * (size / self.length - 1.0))  # (44)
        # A long path means that the deviation is too small: the covariance does not grow meanwhile.
        usual = np.sqrt(1.0 - (1.0 - rate) ** (2 * self.generation)) * (1.4 + 2.0 / (n + 1.0)) * self.length
        stalled, rate = float(size >= usual), self.rank_path_rate
        step = (1.0 - stalled) * np.sqrt(rate * (2.0 - rate) * self.effective) * step
        self.rank_path = (1.0 - rate) * self.rank_path + step  # (45)
        kept = 1.0 - self.rank_one - self.rank_mu + stalled * self.rank_one * rate * (2.0 - rate)
        self.covariance = (
            kept * self.covariance
            + self.rank_one * np.outer(self.rank_path, self.rank_path)
            + self.rank_mu * (steps.T * self.weights) @ steps
        )  # (47)
        squares, self.axes = np.linalg.eigh(self.covariance)
        self.radii = np.sqrt(np.maximum(squares, np.finfo(float).tiny))

    @property
    def converged(self) -> bool:
        """True if the samples hardly differ."""
        return bool(self.deviation * self.radii.max() < CONVERGED)


def folded(y: np.ndarray) -> np.ndarray:
    """Return numbers reflected at 0 and 1 until they lie between: distances near a bound stay as they are.

    Examples
    --------
    >>> folded(np.array([-0.25, 0.5, 1.25, 2.5])).tolist()
    [0.25, 0.5, 0.75, 0.5]
    """
    return 1.0 - np.abs(np.mod(y, 2.0) - 1.0)


def evolution(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """Yield the best control of every generation that improves on the ones before."""
    if min(KNOTS) * task.rest.size + task.freedom < 2:  # of one number, other kinds cover the interval
        return
    merit = Merit(task)
    while True:
        for knots in KNOTS:
            yield from _run_cma(task, merit, rng, knots)


def _run_cma(task: StartTask, merit: Merit, rng: np.random.Generator, knots: int) -> Iterator[Start | None]:
    """Yield improvements of one run of CMA-ES, with None after every few simulations."""
    way, size = task.upper - task.lower, knots * task.rest.size
    middle = np.tile((task.rest - task.lower) / np.where(way > 0.0, way, 1.0), knots)

    def start(y: np.ndarray) -> Start:
        return task.start(task.lower + way * y[:size].reshape(knots, -1), y[size:])

    strategy = CovarianceAdaptation(np.append(middle, np.full(task.freedom, 0.5)), SPREAD, rng)
    best = (np.inf, np.inf)
    for _ in range(GENERATIONS):
        samples, costs = strategy.ask(), []
        for k, y in enumerate(samples):
            costs.append(merit.evaluate(start(folded(y))))
            if k % SIMULATIONS_PER_TURN == SIMULATIONS_PER_TURN - 1:
                yield None
        # The weight of violations grows with the objectives seen: the old best is weighted anew before it is compared.
        values, threshold = np.array([merit(*each) for each in costs]), merit(*best)
        strategy.tell(samples, values)
        least = int(np.argmin(values))
        if values[least] < (threshold if np.isinf(threshold) else threshold - BETTER * abs(threshold)):
            best = costs[least]
            yield start(folded(samples[least]))
        if strategy.converged:
            return
