"""Self-oscillations under relay feedback: `python -m problems.relay_feedback`.

A third-order plant without sliding ("lag"), one whose limit cycle contains sliding pieces ("sliding"), and a relay with
hysteresis as a Filippov system ("hysteresis"), each simulated over its limit cycle and compared with the cycle that
`models.relay_feedback` computes by matrix exponentials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import relay_feedback
from models.relay_feedback import PLANTS, Hysteresis
from nosnoc_py.errors import OptionError, unknown_name
from problems.runner import program, simulated
from problems.switching_cases import boundary_errors

METHOD = ns.FESD(finite_elements=3, rk_stages=3)
SOLVER = ns.Auto()
QUICK = {"steps": 40, "periods": 1.0}
EXAMPLES = (*PLANTS, "hysteresis")
PHASE = 0.3  # of a half period between the cycle's first event and the start of the simulation
TOLERANCE = 1e-6  # of the state at the end, for success


@dataclass(frozen=True, eq=False, kw_only=True)
class Reference:
    """What is known of an example: system, cycle from the start on, period [s], events."""

    system: ns.PSS
    state: Callable[[float], np.ndarray]
    period: float
    events: Callable[[float], tuple[tuple[str, float], ...]]


def reference(example: str, width: float = 0.5, lag: float = 0.02) -> Reference:
    """The exact cycle of an example; width and lag [s] are those of the hysteresis."""
    if example not in EXAMPLES:
        raise OptionError(unknown_name(example, EXAMPLES, "example"))
    return _hysteresis(Hysteresis(width=width, lag=lag)) if example == "hysteresis" else _plant(example)


def _plant(name: str) -> Reference:
    cycle = relay_feedback.limit_cycle(PLANTS[name])
    delay = PHASE * 0.5 * cycle.period
    return Reference(
        system=relay_feedback.build(PLANTS[name]),
        state=lambda t: cycle(t + delay),
        period=cycle.period,
        events=lambda until: tuple((kind, at - delay) for kind, at in cycle.switch_times(until + delay) if at > delay),
    )


def _hysteresis(constants: Hysteresis) -> Reference:
    start, period = constants.cycle()
    delay = PHASE * 0.5 * period

    def state(t: float) -> np.ndarray:
        halves, s = divmod(t + delay, 0.5 * period)
        return np.asarray((-1.0) ** halves * constants.after(start, 1.0, s))

    def events(until: float) -> tuple[tuple[str, float], ...]:
        times = 0.5 * period * np.arange(1, int(2.0 * until / period) + 2) - delay
        return tuple(("switch", float(at)) for at in times if at < until)

    return Reference(
        system=relay_feedback.build_hysteresis(constants),
        state=state,
        period=period,
        events=events,
    )


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
    """Errors of the state at the end, at the element boundaries, and of the times of the events [s] by their kind."""
    known = reference(**{name: arguments[name] for name in ("example", "width", "lag") if name in arguments})
    exact = np.array([known.state(float(t)) for t in trajectory.t])
    error = np.abs(trajectory.x - exact).max(axis=1)
    events = known.events(float(trajectory.t[-1]))
    kinds = dict.fromkeys(kind for kind, _ in events)
    late = {name: boundary_errors(trajectory, [at for kind, at in events if kind == name]) for name in kinds}
    return {"period": known.period, "final_state": float(error[-1]), "largest": float(error.max()), **late}


PROGRAM = program(
    __name__,
    simulated(simulate, errors, lambda found: found["final_state"] < TOLERANCE),
    simulate,
    quick=QUICK,
    method=METHOD,
    solver=SOLVER,
    fixed=("control_stages",),
)
