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
from rich.console import Console

import nosnoc_py as ns
from models import relay_feedback
from models.relay_feedback import PLANTS, Hysteresis
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from problems.runner import Meter, Report, program, table
from problems.settings import Settings
from problems.switching_cases import boundary_errors

METHOD = ns.FESD(finite_elements=3, rk_stages=3)
SOLVER = ns.Auto()
QUICK = {"steps": 40, "periods": 1.0}
EXAMPLES = (*PLANTS, "hysteresis")
PHASE = 0.3  # of a half period between the cycle's first event and the start of the simulation
TOLERANCE = 1e-6  # of the state at the end, for success


@dataclass(frozen=True, eq=False, kw_only=True)
class Reference:
    """What is known of an example: system, cycle from the start on, period [s], events, thresholds."""

    system: ns.PSS
    state: Callable[[float], np.ndarray]
    period: float
    events: Callable[[float], tuple[tuple[str, float], ...]]
    levels: tuple[float, ...] = (0.0,)


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
        levels=(-constants.width, constants.width),
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


def errors(trajectory: ns.Trajectory, known: Reference) -> dict[str, Any]:
    """Errors of the state at the end, at the element boundaries, and of the times of the events [s] by their kind."""
    exact = np.array([known.state(float(t)) for t in trajectory.t])
    error = np.abs(trajectory.x - exact).max(axis=1)
    events = known.events(float(trajectory.t[-1]))
    kinds = dict.fromkeys(kind for kind, _ in events)
    late = {name: boundary_errors(trajectory, [at for kind, at in events if kind == name]) for name in kinds}
    return {"final_state": float(error[-1]), "largest": float(error.max()), **late}


def run(settings: Settings, progress: Progress) -> Report:
    """Simulate and compare."""
    arguments = settings.arguments
    known = reference(arguments["example"], arguments["width"], arguments["lag"])
    meter = Meter(progress)
    progress.expect(steps=arguments["steps"])
    trajectory = simulate(**arguments, method=settings.method, solver=settings.solver, callback=meter)
    found = errors(trajectory, known)
    name = f"relay_feedback_{arguments['example']}.png"
    return Report(
        results={**meter.results(trajectory), "period": known.period, "errors": found},
        success=trajectory.success and found["final_state"] < TOLERANCE,
        show=lambda console: _show(console, trajectory, known, found),
        figures={name: lambda path: _drawing().relay(trajectory, known, arguments["example"], path)},
    )


def _show(console: Console, trajectory: ns.Trajectory, known: Reference, found: Mapping[str, Any]) -> None:
    console.print(f"{trajectory.status}; exact period {known.period:.12f} s")
    rows = table("event", "number", "largest error [s]")
    for kind in (kind for kind in found if kind not in ("final_state", "largest")):
        rows.add_row(kind, str(len(found[kind])), f"{max(found[kind]):.1e}")
    console.print(rows)
    console.print(f"largest error of the state: {found['largest']:.1e}, at the end {found['final_state']:.1e}")


def _drawing() -> Any:
    from problems.drawing import filippov  # matplotlib is slow to import and not needed with --json

    return filippov


PROGRAM = program(__name__, run, simulate, quick=QUICK, method=METHOD, solver=SOLVER, fixed=("control_stages",))
