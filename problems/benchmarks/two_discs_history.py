"""What happens over the iterations: Algorithm 1 and gradient descent on the two discs, and how fast they converge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from problems.two_discs import EXPERIMENTS, HORIZON, build
from tests.references.two_discs import Optimum, optimum, semi_norm

Array = NDArray[np.float64]

MSA, DESCENT = "Algorithm 1", "gradient descent"
NEVER = 1e-12  # tolerance with which all iterations are made
# Iterations with which a rate is fitted, times the relaxation: the errors fall by exp(-5), before the plateau.
FITTED = 5.0


@dataclass(frozen=True, eq=False, kw_only=True)
class History:
    """An iteration and how far from the optimum every iterate was.

    Parameters
    ----------
    experiment, method : str
    steps : int
        N.
    relaxation : float
        alpha.
    objective, slope, error : (K,)
        J, |H_u| and the L2 semi-norm of u - u_opt [N].
    collisions : (K,)
        How many there were.
    exact : Optimum
    solution : Solution
    """

    experiment: str
    method: str
    steps: int
    relaxation: float
    objective: Array
    slope: Array
    error: Array
    collisions: NDArray[np.int64]
    exact: Optimum
    solution: ns.Solution

    @property
    def excess(self) -> Array:
        """|J - J_opt| (K,)."""
        return np.abs(self.objective - self.exact.objective)

    @property
    def fit(self) -> tuple[float, float]:
        """(sigma, mu): the error is nearly mu sigma^k in the first 5 / alpha iterations."""
        return self._fitted(self.error)

    def _fitted(self, values: Array) -> tuple[float, float]:
        count = min(round(FITTED / self.relaxation), values.size)
        slope, start = np.polyfit(np.arange(count), np.log(values[:count]), 1)
        return float(np.exp(slope)), float(np.exp(start))

    @property
    def sizes(self) -> dict[str, float] | None:
        """Smallest and largest |u| until the first collision, and the largest after the last one [N]."""
        times = [event.time for event in self.solution.impacts]
        if not times or not self.solution.u.size:
            return None
        t = (np.arange(self.steps) + 0.5) * HORIZON / self.steps
        size = np.hypot(*self.solution.control(t).T)
        before, after = size[t < times[0]], size[t > times[-1]]
        return {
            "least_before": float(before.min()),
            "most_before": float(before.max()),
            "most_after": float(after.max(initial=0.0)),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return how it ended and how fast it was."""
        times = [event.time for event in self.solution.impacts]
        return {
            "experiment": self.experiment,
            "method": self.method,
            "steps": self.steps,
            "relaxation": self.relaxation,
            "status": self.solution.status.value,
            "iterations": self.error.size,
            "rate": self.fit[0] if self.error.size > 1 else None,
            "slope_rate": self._fitted(self.slope)[0] if self.error.size > 1 else None,
            "objective": float(self.objective[-1]) if self.error.size else None,
            "first_objective": float(self.objective[0]) if self.error.size else None,
            "largest_rise": float(np.diff(self.objective).max(initial=0.0)),
            "last_change": float(np.abs(np.diff(self.objective[-2:])).max(initial=0.0)),
            "control_sizes": self.sizes,
            "slope": float(self.slope[-1]) if self.error.size else None,
            "control_error": float(self.error[-1]) if self.error.size else None,
            "collision_times": times,
        }


def successive_approximation(
    experiment: str,
    steps: int = 480,
    relaxation: float = 0.01,
    iterations: int = 2000,
    start: Any = None,
    tolerance: float = NEVER,
) -> History:
    """Algorithm 1 from the paper's start or another constant control; by default all iterations are made."""
    method = ns.MinimumPrinciple(steps=steps, relaxation=relaxation, max_iterations=iterations, tolerance=tolerance)
    return _followed(experiment, MSA, method, steps, relaxation, start)


def gradient_descent(experiment: str, steps: int = 480, relaxation: float = 0.01, iterations: int = 3000) -> History:
    """Gradient descent on the discretised problem with the rate alpha N / (2 epsilon) (Section 6.2)."""
    method = ns.DirectShooting(
        form="single",
        scheme="euler",
        descent="gradient",
        steps=steps,
        relaxation=relaxation,
        max_iterations=iterations,
        tolerance=NEVER,
    )
    return _followed(experiment, DESCENT, method, steps, relaxation, None)


def _followed(experiment: str, label: str, method: Any, steps: int, relaxation: float, start: Any) -> History:
    exact = optimum(experiment)
    t = np.arange(steps) * HORIZON / steps
    best = exact.control(t)
    errors: list[float] = []

    def note(state: Any) -> None:
        control = state.control if label == DESCENT else state.sweep.control
        errors.append(semi_norm(control - best, t, exact.times))

    guess = np.array(EXPERIMENTS[experiment].control if start is None else start, dtype=float)
    found = method.solve(build(experiment), guess=guess, callback=note)
    records = found.log[: len(errors)]
    return History(
        experiment=experiment,
        method=label,
        steps=steps,
        relaxation=relaxation,
        objective=np.array([record.objective for record in records]),
        slope=np.array([np.nan if record.slope is None else record.slope for record in records]),
        error=np.array(errors),
        collisions=np.array([len(record.collisions) for record in records], dtype=np.int64),
        exact=exact,
        solution=found,
    )
