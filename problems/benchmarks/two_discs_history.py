"""Algorithm 1 and gradient descent on the two discs over their iterations, with one collision too many, and over N.

The error depends on where in a step the discs collide, and is a saw-tooth in N. So two values of N do not give the
order: sigma / N is fitted to many of them (hybrid minimum principle, Figs. 3, 6, 9, 14), or to those N for which the
exact collision is in the middle of a step, so that nothing is left of the saw-tooth (`of_one_phase`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from problems.two_discs import EXPERIMENTS, HORIZON, build
from tests.references.two_discs import Optimum, optimum, semi_norm

Array = NDArray[np.float64]

MSA, DESCENT = "Algorithm 1", "gradient descent"
NEVER = 1e-12  # tolerance with which all iterations are done
# Iterations with which a rate is fitted, times the relaxation: the errors fall by exp(-5), before the plateau.
FITTED = 5.0
MIDDLE = 0.02  # tolerance relative to a step, for grids of one phase
QUANTITIES = ("time", "control", "objective")
STARTS = ((4.0, 4.5), (4.0, 6.0), (4.0, 3.0))  # constant controls [N] with three collisions on 5.3


@dataclass(frozen=True, eq=False, kw_only=True)
class History:
    """Iterations, and the distance of every iterate from the optimum.

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
        Number of collisions.
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
        """Return |J - J_opt| (K,)."""
        return np.abs(self.objective - self.exact.objective)

    @property
    def fit(self) -> tuple[float, float]:
        """Fit (sigma, mu): the error is nearly mu sigma^k in the first 5 / alpha iterations."""
        return self._fitted(self.error)

    def _fitted(self, values: Array) -> tuple[float, float]:
        count = min(round(FITTED / self.relaxation), values.size)
        slope, start = np.polyfit(np.arange(count), np.log(values[:count]), 1)
        return float(np.exp(slope)), float(np.exp(start))

    @property
    def sizes(self) -> dict[str, float] | None:
        """Return the smallest |u| until the first collision, and the largest after the last one [N]."""
        times = [event.time for event in self.solution.impacts]
        if not times or not self.solution.u.size:
            return None
        t = (np.arange(self.steps) + 0.5) * HORIZON / self.steps
        size = np.hypot(*self.solution.control(t).T)
        after = size[t > times[-1]]
        return {"least_before": float(size[t < times[0]].min()), "most_after": float(after.max(initial=0.0))}

    @property
    def shed_at(self) -> int | None:
        """First iteration from which on the sequence is as long as the optimal one; None if there is none."""
        wrong = np.flatnonzero(self.collisions != len(self.exact.contacts))
        last = int(wrong[-1]) + 1 if wrong.size else 0
        return last if last < self.collisions.size else None

    def to_dict(self) -> dict[str, Any]:
        """Return how it ended and the rates."""
        some = bool(self.error.size)
        rates = (self.fit[0], self._fitted(self.slope)[0]) if self.error.size > 1 else (None, None)
        return {
            "experiment": self.experiment,
            "method": self.method,
            "steps": self.steps,
            "relaxation": self.relaxation,
            "status": self.solution.status.value,
            "iterations": self.error.size,
            "rate": rates[0],
            "slope_rate": rates[1],
            "objective": float(self.objective[-1]) if some else None,
            "first_objective": float(self.objective[0]) if some else None,
            "largest_rise": float(np.diff(self.objective).max(initial=0.0)),
            "last_change": float(np.abs(np.diff(self.objective[-2:])).max(initial=0.0)),
            "control_sizes": self.sizes,
            "slope": float(self.slope[-1]) if some else None,
            "control_error": float(self.error[-1]) if some else None,
        }


def successive_approximation(
    experiment: str,
    steps: int = 480,
    relaxation: float = 0.01,
    iterations: int = 2000,
    start: Any = None,
    tolerance: float = NEVER,
) -> History:
    """Run Algorithm 1 from the paper's start or another constant control; by default all iterations are done."""
    method = ns.MinimumPrinciple(steps=steps, relaxation=relaxation, max_iterations=iterations, tolerance=tolerance)
    return _followed(experiment, MSA, method, start)


def gradient_descent(experiment: str, steps: int = 480, relaxation: float = 0.01, iterations: int = 3000) -> History:
    """Run gradient descent on the discretised problem with the rate alpha N / (2 epsilon) (Section 6.2)."""
    chosen: dict[str, Any] = {
        "form": "single",
        "scheme": "euler",
        "descent": "gradient",
        "steps": steps,
        "relaxation": relaxation,
    }
    method = ns.DirectShooting(**chosen, max_iterations=iterations, tolerance=NEVER)
    return _followed(experiment, DESCENT, method, None)


def _followed(experiment: str, label: str, method: Any, start: Any) -> History:
    exact, steps = optimum(experiment), method.steps
    t = np.arange(steps) * HORIZON / steps
    best = exact.control(t)
    errors: list[float] = []

    def note(state: Any) -> None:
        control = state.control if label == DESCENT else state.sweep.control
        errors.append(semi_norm(control - best, t, exact.times))

    guess = np.array(EXPERIMENTS[experiment].control if start is None else start, dtype=float)
    solution = method.solve(build(experiment), guess=guess, callback=note)
    records = solution.log[: len(errors)]
    return History(
        experiment=experiment,
        method=label,
        steps=steps,
        relaxation=method.relaxation,
        objective=np.array([record.objective for record in records]),
        slope=np.array([np.nan if record.slope is None else record.slope for record in records]),
        error=np.array(errors),
        collisions=np.array([len(record.collisions) for record in records], dtype=np.int64),
        exact=exact,
        solution=solution,
    )


# --- over N ---

CONVERGED: Callable[..., History] = partial(successive_approximation, tolerance=1e-7)  # errors have three digits
DESCENDED: Callable[..., History] = gradient_descent


def of_one_phase(experiment: str, grids: Sequence[int]) -> tuple[int, ...]:
    """Return the next N from each of some for which the first collision is in the middle of a step (to 2 %)."""
    time = optimum(experiment).times[0] / HORIZON
    return tuple(next(n for n in itertools.count(first) if abs(n * time % 1.0 - 0.5) < MIDDLE) for first in grids)


def over_grids(
    make: Callable[..., History], experiment: str, grids: Sequence[int], iterations: int
) -> list[dict[str, Any]]:
    """Return the errors of `CONVERGED` or `DESCENDED` with every N = "steps".

    Errors are those of a collision [s] (NaN for another sequence), of u (semi-norm) [N], and |J - J_opt|.
    """
    return [_error_of(make(experiment, steps=steps, iterations=iterations)) for steps in grids]


def _error_of(history: History) -> dict[str, Any]:
    solution, exact = history.solution, history.exact
    times = np.array([event.time for event in solution.impacts])
    same = names(solution) == exact.contacts
    return {
        "experiment": history.experiment,
        "method": history.method,
        "status": solution.status.value,
        "steps": history.steps,
        "iterations": history.error.size,
        "slope": float(history.slope[-1]),
        "time": float(np.abs(times - exact.times).max()) if same else np.nan,
        "control": float(history.error[-1]),
        "objective": float(history.excess[-1]),
    }


def fit(errors: Sequence[Mapping[str, Any]], quantity: str) -> dict[str, float]:
    """Fit error = sigma / N to one of the `QUANTITIES` of the same problem and method over all N.

    The order is by least squares of the logarithms, the spread the largest |error N / sigma - 1|.
    """
    values = np.array([error[quantity] for error in errors], dtype=float)
    steps = np.array([error["steps"] for error in errors], dtype=float)
    known = np.isfinite(values)
    values, steps = values[known], steps[known]
    sigma = float(np.sum(values / steps) / np.sum(1.0 / steps**2))
    order = -float(np.polyfit(np.log(steps), np.log(values), 1)[0]) if values.size > 1 else np.nan
    return {"sigma": sigma, "order": order, "spread": float(np.abs(values * steps / sigma - 1.0).max())}


# --- one collision too many ---


@dataclass(frozen=True, eq=False, kw_only=True)
class Excursion:
    """A start with three collisions on 5.3: Algorithm 1 loses one, HMP-MAS cannot (Section 6.1, Fig. 12).

    `motion` is that under the constant control `start` [N], `prescribed` HMP-MAS with its sequence.
    """

    start: tuple[float, float]
    motion: ns.Trajectory
    history: History
    prescribed: ns.Solution

    def to_dict(self) -> dict[str, Any]:
        """Return the results of both methods."""
        best, other = self.history.exact.objective, self.prescribed
        return {
            "start": self.start,
            "start_collisions": names(self.motion),
            "minimum_principle": {
                **self.history.to_dict(),
                "collisions": names(self.history.solution),
                "excess": float(self.history.excess[-1]),
                "iterations_with_other_sequence": self.history.shed_at,
            },
            "hmp_mas": {
                "status": other.status.value,
                "excess": other.objective - best,
                "collisions": names(other),
                "iterations": other.iterations,
            },
        }


def names(motion: ns.Trajectory) -> tuple[str, ...]:
    """Return the sequence of the collisions."""
    return tuple(event.name for event in motion.impacts)


def excursion(start: tuple[float, float], steps: int, iterations: int) -> Excursion:
    """Run both methods from one start."""
    ocp = build("wall")
    return Excursion(
        start=start,
        motion=ns.simulate(ocp.system, x0=ocp.x0, duration=HORIZON, u=np.array(start), method=ns.EventDriven()),
        history=successive_approximation("wall", steps=steps, iterations=iterations, start=start),
        prescribed=ns.AutonomousSwitching().solve(ocp, guess=np.array(start)),
    )
