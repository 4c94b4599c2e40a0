"""Order of event-selected integration on three affine guards: `python -m problems.benchmarks.event_selected_order`.

The experiment of ESS, Section 4 and Fig. 3: the RMS error over the motion against the exact one, over the width eps of
the bands at the guards. Near a guard one step ends on it: the paper's projection, a step of Euler's, makes an error of
order eps^2; a Runge-Kutta step whose length Newton's method corrects once or twice makes almost none. The other error,
of the steps of dopri5 between the guards, is at rounding.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import affine_guards
from nosnoc_py.progress import Progress
from problems.benchmarks.event_selected_common import results_of
from problems.benchmarks.orders import Convergence
from problems.figures import Curve, Panel, chart
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.event_selected import off_guard, rms_error

METHOD = ns.EventSelected(step=1e-3)
# Options of the projections, by the name of the curve.
PROJECTIONS: Mapping[str, Mapping[str, Any]] = {
    "euler": {"projection": "euler"},
    "one correction": {"corrections": 1},
    "two corrections": {"corrections": 2},
}
EPS = (0.1, *(first / 10**k for k in range(2, 6) for first in (5.62, 3.16, 1.78, 1.0)))  # four per decade
PRINTED = 0.01  # eps of the trajectory whose events and final state are printed
FLOOR = 1e-12  # smallest error of the fit: below, rounding decides
QUICK = {"eps": (0.01, 0.00562, 0.00316, 0.00178, 0.001)}


def order_of(eps: Sequence[float], errors: Sequence[float], fitted: tuple[float, float]) -> float | None:
    """Return the slope of the errors over eps in a range; None with fewer than three of them above rounding."""
    low, high = fitted[0] * (1 - 1e-9), fitted[1] * (1 + 1e-9)
    pairs = [(1.0 / width, error) for width, error in zip(eps, errors, strict=True) if low <= width <= high]
    steps, chosen = zip(*pairs, strict=True) if pairs else ((), ())
    return Convergence(label="", nominal=0, steps=steps, errors=chosen, clean=(FLOOR, np.inf)).order


def simulate(eps: float, projection: str, method: ns.EventSelected = METHOD) -> ns.Trajectory:
    """Simulate from the start of the paper with bands of this width, by a projection of `PROJECTIONS`."""
    method = method.replace(eps=eps, **PROJECTIONS[projection])
    system = affine_guards.build_numeric()
    return ns.simulate(system, x0=affine_guards.START, duration=affine_guards.DURATION, method=method)


def experiment(
    eps: tuple[float, ...] = EPS, fitted: tuple[float, float] = (1e-4, 0.01), *, method: ns.EventSelected = METHOD
) -> list[dict[str, Any]]:
    """Return RMS errors over the motion and largest errors of the crossings [s] of all projections over eps.

    The order is fitted to the runs with `fitted[0] <= eps <= fitted[1]` whose errors are above rounding.
    """
    exact, curves = affine_guards.crossing_times(), []
    for name in PROJECTIONS:
        runs = [simulate(value, name, method) for value in eps]
        errors = [rms_error(run, affine_guards.exact) for run in runs]
        curves.append(
            {
                "name": name,
                "errors": errors,
                "event_errors": [event_error(run, exact) for run in runs],
                "order": order_of(eps, errors, fitted),
                "success": all(run.success for run in runs),
            }
        )
    return curves


def event_error(trajectory: ns.Trajectory, exact: Mapping[str, float]) -> float:
    """Return the largest error of the crossing times [s]; infinite unless all crossings occur in the right order."""
    if [event.name for event in trajectory.events] != list(exact):
        return float("inf")
    return max(abs(event.time - exact[event.name]) for event in trajectory.events)


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment, and simulate once more for the printed values."""
    started = time.monotonic()
    method, eps = settings.method, settings.arguments["eps"]
    curves = experiment(**settings.arguments, method=method)
    best = simulate(PRINTED, "two corrections", method)
    exact = affine_guards.exact([affine_guards.DURATION])[0]
    results = {
        "final_state_error": float(np.abs(best.final_state - exact).max()),
        "event_time_error": event_error(best, affine_guards.crossing_times()),
        "rms": {one["name"]: dict(zip(map(str, eps), one["errors"], strict=True)) for one in curves},
        "rms_at": {name: rms_error(simulate(PRINTED, name, method), affine_guards.exact) for name in PROJECTIONS},
        "event_errors": {one["name"]: dict(zip(map(str, eps), one["event_errors"], strict=True)) for one in curves},
        "orders": {one["name"]: one["order"] for one in curves},
    }
    success = best.success and all(one["success"] for one in curves)
    residual = off_guard(best, affine_guards.build_numeric())
    status = (ns.Status.SOLVED if success else ns.Status.STEP_FAILED).value
    drawn = [
        Curve(1.0 / np.array(eps), one["errors"], f"{one['name']}, order {one['order'] or np.nan:.2f}", {"marker": "o"})
        for one in curves
    ]
    panel = Panel(curves=drawn, x=r"$1 / \varepsilon$", y="RMS error over the motion", log="xy")
    return tabled(
        {**results_of(best, started, residual), **results, "status": status},
        success,
        {
            "RMS error over the motion, by the width of the bands": [
                {"eps": width, **{one["name"]: one["errors"][i] for one in curves}} for i, width in enumerate(eps)
            ],
            f"crossings, two corrections, eps = {PRINTED:g}": [event.to_dict() for event in best.events],
        },
        {"event_selected_order.png": lambda: chart([panel])},
        [f"orders: {results['orders']}; RMS error at eps = {PRINTED:g}: {results['rms_at']}"],
    )


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick=QUICK,
    method=METHOD,
    fixed=("eps", "projection", "corrections", "initial_mode", "sensitivities"),
)
