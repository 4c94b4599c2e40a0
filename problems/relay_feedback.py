"""Self-oscillations under relay feedback: `python -m problems.relay_feedback`.

A third-order plant without sliding ("lag"), one whose limit cycle contains sliding pieces ("sliding"), and a relay with
hysteresis as a Filippov system ("hysteresis"), each simulated over its limit cycle and compared with the cycle that
`models.relay_feedback` computes by matrix exponentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import nosnoc_py as ns
from problems.runner import program, simulated
from tests.references.relay import reference
from tests.references.switching import boundary_errors

METHOD = ns.FESD(finite_elements=3, rk_stages=3)
SOLVER = ns.Auto()
QUICK = {"steps": 40, "periods": 1.0}
TOLERANCE = 1e-6  # largest error of the final state for success


def simulate(
    example: str = "sliding",
    width: float = 0.5,
    lag: float = 0.02,
    periods: float = 1.5,
    steps: int = 80,
    *,
    method: ns.FESD = METHOD,
    solver: Any = SOLVER,
    callback: Any = None,
) -> ns.Trajectory:
    """Simulate an example ("lag", "sliding" or "hysteresis") from a point of its limit cycle on."""
    known = reference(example, width, lag)
    return ns.simulate(
        known.system,
        x0=known.state(0.0),
        duration=periods * known.period,
        steps=steps,
        method=method,
        solver=solver,
        callback=callback,
    )


def errors(trajectory: ns.Trajectory, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return errors of the state at the end, at the element boundaries, and of the event times [s] by kind."""
    known = reference(**{name: arguments[name] for name in ("example", "width", "lag") if name in arguments})
    exact = np.array([known.state(float(t)) for t in trajectory.t])
    error = np.abs(trajectory.x - exact).max(axis=1)
    events = known.events(float(trajectory.t[-1]))
    kinds = dict.fromkeys(kind for kind, _ in events)
    late = {name: boundary_errors(trajectory, [at for kind, at in events if kind == name]) for name in kinds}
    return {"period": known.period, "final_state": float(error[-1]), "largest": float(error.max()), **late}


PROGRAM = program(
    __name__,
    simulated(simulate, errors, lambda errors: errors["final_state"] < TOLERANCE),
    simulate,
    quick=QUICK,
    method=METHOD,
    solver=SOLVER,
    fixed=("control_stages",),
)
