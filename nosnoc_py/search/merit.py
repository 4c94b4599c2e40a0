"""Merit of a start: objective of its exact simulation plus weighted constraint violations.

Used by the derivative-free kinds of start (`evolution`, `simplex`). The penalty weight follows the largest objective
seen so far, as nothing is known of the scale of the problem before the first simulation. Values of different times are
therefore not comparable: keep the pair (objective, violation) of `evaluate`, and weight it when it is compared.
"""

from __future__ import annotations

import numpy as np

from nosnoc_py.attempts.work import counted
from nosnoc_py.search.starts import Start, StartTask
from nosnoc_py.simulation.certification.measures import objective, violations
from nosnoc_py.simulation.event_driven.options import THROUGH_TOUCHES
from nosnoc_py.simulation.event_driven.run import event_driven_simulator
from nosnoc_py.systems.controls import control_of

# Penalty weight as a multiple of the largest objective so far; that objective counts as LEAST_OBJECTIVE at least, so
# that violations are not free in problems whose first motions cost nothing.
PENALTY_WEIGHT, LEAST_OBJECTIVE = 10.0, 1e-3
# Limit of work of one simulation; one that takes more counts as failed.
SIMULATION_WORK = 2.0


class Merit:
    """Merit function of the starts of one problem: smaller is better, infinite where the simulation fails.

    Parameters
    ----------
    task : StartTask
        Problem with bounds, free numbers and initial state.
    """

    def __init__(self, task: StartTask) -> None:
        self.task, self.weight = task, 0.0

    def evaluate(self, start: Start) -> tuple[float, float]:
        """Return the objective of a start and the sum of its violations of bounds and constraints (user's units)."""
        ocp = self.task.ocp.with_values(start.horizon, start.p)
        control = control_of(start.control, ocp.system.n_u, start.horizon)
        simulator = event_driven_simulator(ocp.system, THROUGH_TOUCHES, start.x0, control, start.p)
        with counted(SIMULATION_WORK):
            history = simulator.run(start.x0, control, start.p)
        if not history.status.success:
            return np.inf, np.inf
        cost = objective(ocp, [history], history.x)
        violation = sum(abs(each.amount) for each in violations(ocp, [history]))
        if not np.isfinite(cost + violation):
            return np.inf, np.inf
        # The weight rises with the objectives seen: the first motion often does nothing and costs almost nothing.
        self.weight = max(self.weight, PENALTY_WEIGHT * max(abs(cost), LEAST_OBJECTIVE))
        return cost, violation

    def __call__(self, cost: float, violation: float) -> float:
        """Return the merit with the present weight; only values of the same weight are comparable."""
        return cost + self.weight * violation if np.isfinite(cost) else np.inf
