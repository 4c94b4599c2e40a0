"""What an exact motion costs and violates, and what both together are worth."""

from __future__ import annotations

import time

import numpy as np

from nosnoc_py.search.starts import SMOOTH, Start, StartTask
from nosnoc_py.simulation.certification.measures import objective, violations
from nosnoc_py.simulation.event_driven.run import event_driven_simulator
from nosnoc_py.systems.controls import control_of

# Weight of violations, in units of the largest objective so far, at least of this.
WEIGHT, LEAST = 10.0, 1e-3
# A motion whose simulation takes longer is worth nothing.
SECONDS = 2.0


class Merit:
    """The merit of starts of one problem: the smaller the better, infinite where the simulation fails."""

    def __init__(self, task: StartTask) -> None:
        self.task, self.weight = task, 0.0

    def measured(self, start: Start) -> tuple[float, float]:
        """The objective of a start, and its violations of bounds and constraints, in the user's units."""
        ocp = self.task.ocp.settled(start.horizon, start.p)
        control = control_of(start.control, ocp.system.n_u, start.horizon)
        simulator = event_driven_simulator(ocp.system, SMOOTH, start.x0, control, start.p)
        history = simulator.run(start.x0, control, start.p, deadline=time.monotonic() + SECONDS)
        if not history.status.success:
            return np.inf, np.inf
        cost = objective(ocp, [history], history.x)
        broken = sum(abs(violation.amount) for violation in violations(ocp, [history]))
        if not np.isfinite(cost + broken):
            return np.inf, np.inf
        # It rises with the costs that are seen: a first motion that does nothing costs next to nothing.
        self.weight = max(self.weight, WEIGHT * max(abs(cost), LEAST))
        return cost, broken

    def __call__(self, cost: float, broken: float) -> float:
        """The merit with the weight as it is now: compare what is weighted alike only."""
        return cost + self.weight * broken if np.isfinite(cost) else np.inf
