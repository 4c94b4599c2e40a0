"""Starts with one collision too many on 5.3: the minimum principle loses it, HMP-MAS cannot (Section 6.1, Fig. 12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import nosnoc_py as ns
from problems.benchmarks.two_discs_history import History, successive_approximation
from problems.two_discs import HORIZON, build

EXPERIMENT = "wall"
STARTS = ((4.0, 4.5), (4.0, 6.0), (4.0, 3.0))  # constant controls [N] with three collisions


@dataclass(frozen=True, eq=False, kw_only=True)
class Excursion:
    """What becomes of a start.

    Parameters
    ----------
    start : two floats
        Constant control [N].
    motion : Trajectory
        Under that control, event by event.
    history : History
        Of Algorithm 1.
    prescribed : Solution
        By HMP-MAS with the sequence of the start.
    """

    start: tuple[float, float]
    motion: ns.Trajectory
    history: History
    prescribed: ns.Solution

    @property
    def shed_at(self) -> int | None:
        """The first iteration from which on the sequence is as long as the optimal one; None if it never is."""
        wrong = np.flatnonzero(self.history.collisions != len(self.history.exact.contacts))
        last = int(wrong[-1]) + 1 if wrong.size else 0
        return last if last < self.history.collisions.size else None

    def to_dict(self) -> dict[str, Any]:
        """Return what both methods end at."""
        best = self.history.exact.objective
        return {
            "start": self.start,
            "start_collisions": names(self.motion),
            "minimum_principle": {
                **self.history.to_dict(),
                "collisions": names(self.history.solution),
                "excess": float(self.history.excess[-1]),
                "iterations_with_other_sequence": self.shed_at,
            },
            "hmp_mas": {
                "status": self.prescribed.status.value,
                "message": self.prescribed.message,
                "objective": self.prescribed.objective,
                "excess": self.prescribed.objective - best,
                "collisions": names(self.prescribed),
                "iterations": self.prescribed.iterations,
            },
        }


def names(motion: ns.Trajectory) -> tuple[str, ...]:
    """The sequence of the collisions."""
    return tuple(event.name for event in motion.impacts)


def excursion(start: tuple[float, float], steps: int, iterations: int) -> Excursion:
    """Both methods from one start."""
    ocp = build(EXPERIMENT)
    motion = ns.simulate(ocp.system, x0=ocp.x0, duration=HORIZON, u=np.array(start), method=ns.EventDriven())
    return Excursion(
        start=start,
        motion=motion,
        history=successive_approximation(EXPERIMENT, steps=steps, iterations=iterations, start=start),
        prescribed=ns.AutonomousSwitching().solve(ocp, guess=np.array(start)),
    )
