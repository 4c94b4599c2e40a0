"""Accuracy of a plate that falls on 2 to 100 springs: `python -m problems.benchmarks.plate_on_springs`.

The experiment of ESS, Section 5.2, with the accuracy that the paper does not show. The same random starts (heights in 2
to 3 m, angles within .1 rad, at rest over the middle of the bed) on beds of more and more springs, against DOP853 with
events: by the better projection, and by the paper's, with bands as wide as a step is long. A fixed width, eps' of the
calibration (`problems.benchmarks.event_selected_hopper`), is tried, too, and runs by it that do not come to the end are
counted: there may be some where a spring is reached slowly, so that the step to it is long.

A plate that is dropped flat, without dampers, has to move like the spring hopper on any bed. The paper gives no
constants; those of `models.plate_on_springs` are: mass 1 kg, width 6 m (inertia 3 kg m^2), a bed of 1 m, springs of
400 N/m and dampers of 20 N s/m all together, length 1 m, 2 s. `event_selected_mujoco` measures times.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import plate_on_springs, spring_hopper
from nosnoc_py import compiled
from nosnoc_py.progress import Progress
from problems.benchmarks.event_selected_common import CHOSEN, results_of
from problems.figures import DOTS, Curve, Panel, chart
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.event_selected import off_guard
from tests.references.plate import Reference, reference

Array = NDArray[np.float64]

METHOD = ns.EventSelected(step=0.002)
LIMIT = 1e-8  # largest error of the better projection [m, rad, m/s, rad/s]
TIME_LIMIT = 1e-8  # largest error of its event times [s]
FLAT_SPRINGS, FLAT_DURATION = (2, 10, 100), 2.0
QUICK = {"contacts": (2, 10), "starts": 4}
NEAR, FAR = {**DOTS, "color": "C0"}, {**DOTS, "color": "C1"}


def simulate(
    x0: Array,
    constants: plate_on_springs.Constants = plate_on_springs.STANDARD,
    duration: float = plate_on_springs.DURATION,
    method: ns.EventSelected = METHOD,
    callback: Any = None,
) -> ns.Trajectory:
    """Simulate the plate, compiled where numba is installed."""
    system = plate_on_springs.build_numeric(constants, fast=compiled.available())
    return ns.simulate(system, x0=x0, duration=duration, method=method, callback=callback)


def flat_errors(
    contacts: Sequence[int] = FLAT_SPRINGS, duration: float = FLAT_DURATION, method: ns.EventSelected = METHOD
) -> dict[int, float]:
    """Return the largest difference of a plate dropped flat, without dampers, from the closed form of the hopper."""
    hopper = spring_hopper.STANDARD
    end = spring_hopper.exact([duration], hopper)[0]
    errors = {}
    for count in contacts:
        constants = plate_on_springs.Constants(contacts=count, damping=0.0)
        trajectory = simulate(plate_on_springs.start(hopper.height, 0.0), constants, duration, method)
        exact = np.array([0.0, end[0], 0.0, 0.0, end[1], 0.0])
        errors[count] = float(np.abs(trajectory.final_state - exact).max()) if trajectory.success else float("inf")
    return errors


def compared(x0: Array, constants: plate_on_springs.Constants, eps: float, method: ns.EventSelected) -> dict[str, Any]:
    """Compare a start with DOP853: largest errors of a component of the state at the end, and of the time of an event.

    Errors of Euler's projection are NaN where it does not come to the end, those of times infinite if events differ.
    """
    exact = reference(x0, constants, plate_on_springs.DURATION)
    better = simulate(x0, constants, method=method)
    euler = simulate(x0, constants, method=method.replace(projection="euler"))
    fixed = simulate(x0, constants, method=method.replace(projection="euler", eps=eps))
    return {
        "rk_newton": float(np.abs(better.final_state - exact.x).max()),
        "euler": float(np.abs(euler.final_state - exact.x).max()) if euler.success else np.nan,
        "event_times": _time_error(better, exact),
        "events": len(exact.events),
        "slowest": exact.slowest,
        "solved": better.success,
        "fixed": fixed.success,
    }


def right(start: Mapping[str, Any]) -> bool:
    """Return True if a start was solved within the limits, with all events; an error that is NaN is too large."""
    return bool(start["rk_newton"] < LIMIT and start["event_times"] < TIME_LIMIT and start["solved"])


def summary(contacts: int, starts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the largest and median errors on a bed, and what failed."""
    values = {name: [start[name] for start in starts] for name in starts[0]}
    kinds = ("rk_newton", "euler", "event_times")
    return {
        "contacts": contacts,
        **{f"{name}_max": float(np.nanmax(values[name])) for name in kinds},
        **{f"{name}_median": float(np.nanmedian(values[name])) for name in kinds},
        "events_min": min(values["events"]),
        "events_max": max(values["events"]),
        "slowest": min(values["slowest"]),
        "euler_failures": int(np.isnan(values["euler"]).sum()),
        "fixed_eps_failures": values["fixed"].count(False),
    }


def experiment(
    contacts: tuple[int, ...] = (2, 5, 10, 20, 50, 100),
    starts: int = 120,
    seed: int = 0,
    eps: float = 0.0039,
    *,
    method: ns.EventSelected = METHOD,
) -> dict[int, list[dict[str, Any]]]:
    """Return the results of all starts by bed; `eps` is the fixed width of the bands whose failures are counted [m]."""
    drawn = plate_on_springs.starts(starts, seed)
    beds = {count: plate_on_springs.Constants(contacts=count) for count in contacts}
    return {count: [compared(x0, bed, eps, method) for x0 in drawn] for count, bed in beds.items()}


def _time_error(trajectory: ns.Trajectory, exact: Reference) -> float:
    """Return the largest error of an event; simultaneous ones may come in any order."""
    detected = sorted((int(event.name.split("_")[1]) - 1, event.time) for event in trajectory.events)
    known = sorted((spring, t) for t, spring, _ in exact.events)
    if [spring for spring, _ in detected] != [spring for spring, _ in known]:
        return float("inf")
    return max((abs(a[1] - b[1]) for a, b in zip(detected, known, strict=True)), default=0.0)


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment; the printed and drawn trajectory is the first start on ten springs."""
    started = time.monotonic()
    arguments, method = settings.arguments, settings.method
    beds = experiment(**arguments, method=method)
    flat = flat_errors(method=method)
    shown = simulate(plate_on_springs.starts(1, arguments["seed"])[0], method=method)
    solved = all(right(start) for bed in beds.values() for start in bed)
    success = solved and shown.success and max(flat.values()) < LIMIT
    status = ns.Status.SOLVED if success else ns.Status.STEP_FAILED
    residual = off_guard(shown, plate_on_springs.build_numeric())
    rows = [summary(count, bed) for count, bed in beds.items()]
    results = {
        "status": status.value,
        "beds": rows,
        "largest_error": max(row["rk_newton_max"] for row in rows),
        "largest_euler_error": max(row["euler_max"] for row in rows),
        "flat_errors": {str(count): error for count, error in flat.items()},
        "constants": {**vars(plate_on_springs.STANDARD), "duration": plate_on_springs.DURATION},
    }
    line = ", ".join(f"{count} springs {error:.1e}" for count, error in flat.items())
    points = [
        Curve(count, max(start[name], 1e-16), style=style)
        for name, style in (("rk_newton", NEAR), ("euler", FAR))
        for count, bed in beds.items()
        for start in bed
    ]
    label = "error at the end [m, rad, m/s, rad/s]; orange: Euler's projection"
    panel = Panel(curves=points, x="springs", y=label, log="xy", levels=(LIMIT,))
    return tabled(
        {**results_of(shown, started, residual), **results},
        success,
        {f"errors over {arguments['starts']} starts, against DOP853": rows},
        {
            "plate_on_springs.png": lambda: ns.plot(shown, shown.state_names),
            "plate_on_springs_errors.png": lambda: chart([panel]),
        },
        [f"dropped flat, against the hopper: {line}"],
    )


PROGRAM = program(__name__, run, experiment, quick=QUICK, method=METHOD, fixed=CHOSEN)
