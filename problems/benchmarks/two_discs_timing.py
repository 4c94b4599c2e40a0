"""What an iteration of Algorithm 1 costs, beside one plain roll-out of the same dynamics with NumPy.

Seconds of the processor, of this thread; both take turns and the best turn of each counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from nosnoc_py.methods.indirect.problem import hybrid_problem
from nosnoc_py.methods.indirect.successive_approximation import UniformGrid
from problems.two_discs import EXPERIMENTS, HORIZON, build
from tests.references.two_discs import REACH

Array = NDArray[np.float64]

EXPERIMENT = "general"
AGAIN = 20  # in one turn, whose mean counts
LIMIT = 1.5  # of the ratio


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Milliseconds of one iteration and of one roll-out.

    Parameters
    ----------
    steps : int
        N.
    iteration, rollout : float
        Milliseconds.
    difference : float
        Of the final states of both, at most.
    """

    steps: int
    iteration: float
    rollout: float
    difference: float

    @property
    def ratio(self) -> float:
        """Iteration over roll-out."""
        return self.iteration / self.rollout


def plain_rollout(x: Array, u: Array, step: float) -> Array:
    """The state at T by forward Euler under u (N, 2), with the collision of equal discs predicted (Eqs. 17, 18)."""
    zero = np.zeros(2)
    last = len(u) - 1
    for n, control in enumerate(u):
        apart, away = x[2:4] - x[:2], x[6:] - x[4:6]
        c, b = apart @ apart - REACH**2, apart @ away
        x_dot = np.concatenate((x[4:], control, zero))
        if b < 0.0:
            a = away @ away
            inside = b * b - a * c
            if inside >= 0.0 and (s := c / (-b + sqrt(inside))) <= step:
                x = x + s * x_dot
                normal = (x[2:4] - x[:2]) / REACH
                impulse = ((x[6:] - x[4:6]) @ normal) * normal
                x = x + np.concatenate((zero, zero, impulse, -impulse))
                x = x + (step - s) * np.concatenate((x[4:], u[min(n + 1, last)], zero))
                continue
        x = x + step * x_dot
    return x


def measure(steps: int = 480, repeats: int = 5) -> Timing:
    """Both on problem 5.2, under the paper's start."""
    problem = hybrid_problem(build(EXPERIMENT), "The benchmark")
    grid, step = UniformGrid(problem, steps, 0.05), HORIZON / steps
    control = np.tile(np.array(EXPERIMENTS[EXPERIMENT].control), (steps, 1))

    def iterate() -> None:
        sweep = grid.sweep(control)
        np.linalg.norm(0.99 * sweep.control + 0.01 * sweep.target)

    def roll_out() -> Array:
        return plain_rollout(problem.x0, control, step)

    difference = float(np.abs(roll_out() - grid.forward(control).x[-1]).max())
    iterate()
    best = [np.inf, np.inf]
    for _ in range(repeats):
        best = [min(before, _seconds(what)) for before, what in zip(best, (iterate, roll_out), strict=True)]
    return Timing(steps=steps, iteration=1e3 * best[0], rollout=1e3 * best[1], difference=difference)


def _seconds(what: Callable[[], object]) -> float:
    """Mean over some calls."""
    started = time.thread_time()
    for _ in range(AGAIN):
        what()
    return (time.thread_time() - started) / AGAIN
