"""Order of event-selected integration on three affine guards: `python -m problems.benchmarks.event_selected_order`.

The experiment of ESS, Section 4 and Fig. 3: the RMS error over the motion against the exact one, over the width eps of
the bands at the guards. Near a guard one step ends on it: the paper's projection, a step of Euler's, makes an error of
order eps^2; a Runge-Kutta step whose length Newton's method corrects once or twice makes almost none. The other error,
of the steps of dopri5 between the guards, is at rounding.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

import nosnoc_py as ns
from models import affine_guards
from nosnoc_py.progress import Progress
from problems.benchmarks.event_selected_common import off_guard, results_of, rms_error
from problems.runner import Report, program, table
from problems.settings import Settings

METHOD = ns.EventSelected(step=1e-3)
# What stands on the paths to a guard, by the name of the curve.
PROJECTIONS: Mapping[str, Mapping[str, Any]] = {
    "euler": {"projection": "euler"},
    "one correction": {"corrections": 1},
    "two corrections": {"corrections": 2},
}
EPS = (0.1, *(first / 10**k for k in range(2, 6) for first in (5.62, 3.16, 1.78, 1.0)))  # four per decade
PRINTED = 0.01  # eps of the trajectory whose events and final state are told
FLOOR = 1e-12  # of errors: below, rounding decides
QUICK = {"eps": (0.01, 0.00562, 0.00316, 0.00178, 0.001)}


@dataclass(frozen=True, eq=False, kw_only=True)
class Curve:
    """Errors of one projection.

    Parameters
    ----------
    name : str
        Key of `PROJECTIONS`.
    eps : (runs,)
        Widths of the bands.
    errors : (runs,)
        RMS errors over the motion.
    event_errors : (runs,)
        Largest errors of the times of the crossings [s].
    statuses : (runs,)
    fitted : (2,)
        Smallest and largest eps that count for the order.
    """

    name: str
    eps: tuple[float, ...]
    errors: tuple[float, ...]
    event_errors: tuple[float, ...]
    statuses: tuple[ns.Status, ...]
    fitted: tuple[float, float]

    @property
    def counts(self) -> np.ndarray:
        """Which runs (runs,) the order is fitted to."""
        low, high = self.fitted
        eps, errors = np.array(self.eps), np.array(self.errors)
        return (eps >= low * (1 - 1e-9)) & (eps <= high * (1 + 1e-9)) & (errors > FLOOR)

    @property
    def order(self) -> float | None:
        """Slope of the errors over eps; None with fewer than three of them above rounding."""
        if self.counts.sum() < 3:
            return None
        eps, errors = np.array(self.eps)[self.counts], np.array(self.errors)[self.counts]
        return float(np.polyfit(np.log(eps), np.log(errors), 1)[0])


def simulate(eps: float, projection: str, method: ns.EventSelected = METHOD) -> ns.Trajectory:
    """Simulate from the start of the paper with bands of this width, by a projection of `PROJECTIONS`."""
    method = method.replace(eps=eps, **PROJECTIONS[projection])
    system = affine_guards.build_numeric()
    return ns.simulate(system, x0=affine_guards.START, duration=affine_guards.DURATION, method=method)


def experiment(
    eps: tuple[float, ...] = EPS,
    fitted: tuple[float, float] = (1e-4, 0.01),
    *,
    method: ns.EventSelected = METHOD,
) -> list[Curve]:
    """The curves of all projections; the order is fitted to the runs with `fitted[0] <= eps <= fitted[1]`."""
    exact = affine_guards.crossing_times()
    curves = []
    for name in PROJECTIONS:
        runs = [simulate(value, name, method) for value in eps]
        curves.append(
            Curve(
                name=name,
                eps=tuple(eps),
                errors=tuple(rms_error(run, affine_guards.exact) for run in runs),
                event_errors=tuple(event_error(run, exact) for run in runs),
                statuses=tuple(run.status for run in runs),
                fitted=(fitted[0], fitted[1]),
            )
        )
    return curves


def event_error(trajectory: ns.Trajectory, exact: Mapping[str, float]) -> float:
    """Largest error of the times of the crossings [s]; infinite unless they are those, in that order."""
    if [event.name for event in trajectory.events] != list(exact):
        return float("inf")
    return max(abs(event.time - exact[event.name]) for event in trajectory.events)


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment, and simulate once more for what is printed."""
    started = time.monotonic()
    method = settings.method
    curves = experiment(**settings.arguments, method=method)
    best = simulate(PRINTED, "two corrections", method)
    exact = affine_guards.exact([affine_guards.DURATION])[0]
    found = {
        "final_state_error": float(np.abs(best.final_state - exact).max()),
        "event_time_error": event_error(best, affine_guards.crossing_times()),
        "rms": {curve.name: dict(zip(map(str, curve.eps), curve.errors, strict=True)) for curve in curves},
        "rms_at": {name: rms_error(simulate(PRINTED, name, method), affine_guards.exact) for name in PROJECTIONS},
        "event_errors": {c.name: dict(zip(map(str, c.eps), c.event_errors, strict=True)) for c in curves},
        "orders": {curve.name: curve.order for curve in curves},
    }
    success = best.success and all(status.success for curve in curves for status in curve.statuses)
    status = ns.Status.SOLVED if success else ns.Status.STEP_FAILED
    residual = off_guard(best, affine_guards.build_numeric())
    return Report(
        results={**results_of(best, started, residual), **found, "status": status.value},
        success=success,
        show=lambda console: _show(console, curves, best, found),
        figures={"event_selected_order.png": lambda path: _drawing().orders(curves, path)},
    )


def _show(console: Console, curves: Sequence[Curve], best: ns.Trajectory, found: Mapping[str, Any]) -> None:
    rows = table("eps", *(c.name for c in curves), title="RMS error over the motion, by the width of the bands")
    for i, eps in enumerate(curves[0].eps):
        rows.add_row(f"{eps:g}", *(f"{curve.errors[i]:.2e}" for curve in curves))
    rows.add_row("order", *("rounding" if curve.order is None else f"{curve.order:.2f}" for curve in curves))
    console.print(rows)
    exact = affine_guards.crossing_times()
    events = table("guard", "t [s]", "error [s]", title=f"crossings, two corrections, eps = {PRINTED:g}")
    for event in best.events:
        events.add_row(event.name, f"{event.time:.15f}", f"{abs(event.time - exact[event.name]):.1e}")
    console.print(events)
    at = ", ".join(f"{name} {value:.2e}" for name, value in found["rms_at"].items())
    console.print(f"RMS error at eps = {PRINTED:g}: {at}")
    console.print(f"{best.status}, largest error of the final state {found['final_state_error']:.1e}")


def _drawing() -> Any:
    from problems.drawing import event_selected  # matplotlib is slow to import and not needed with --json

    return event_selected


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick=QUICK,
    method=METHOD,
    fixed=("eps", "projection", "corrections", "initial_mode", "sensitivities"),
)
