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
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Bed:
    """Results on a bed.

    Parameters
    ----------
    contacts : int
    errors, euler_errors : (starts,)
        Largest error of a component of the state at the end, by the better projection and by Euler's; NaN where that
        does not come to the end.
    time_errors : (starts,)
        Largest error of the time of an event [s]; infinite if the events differ.
    events : (starts,)
        Numbers of events.
    slowest : float
        Smallest speed of a crossing [m/s].
    statuses : tuple of Status
        Statuses of the better projection.
    failures : int
        Starts at which Euler's projection with a fixed width of the bands does not come to the end.
    """

    contacts: int
    errors: Array
    euler_errors: Array
    time_errors: Array
    events: Array
    slowest: float
    statuses: tuple[ns.Status, ...]
    failures: int

    @property
    def success(self) -> bool:
        """True if all starts were solved within the limits, with all events; a NaN time error counts as a failure."""
        exact = bool(self.errors.max() < LIMIT) and bool(self.time_errors.max() < TIME_LIMIT)
        return exact and all(status.success for status in self.statuses)

    def to_dict(self) -> dict[str, Any]:
        """Return the largest and median errors."""
        kinds = {"rk_newton": self.errors, "euler": self.euler_errors, "event_times": self.time_errors}
        largest = {f"{name}_max": float(np.nanmax(values)) for name, values in kinds.items()}
        median = {f"{name}_median": float(np.nanmedian(values)) for name, values in kinds.items()}
        counts = {"events_min": int(self.events.min()), "events_max": int(self.events.max())}
        failures = {"euler_failures": int(np.isnan(self.euler_errors).sum()), "fixed_eps_failures": self.failures}
        more = {"slowest": self.slowest, **failures}
        return {"contacts": self.contacts, **largest, **median, **counts, **more}


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


def bed(contacts: int, starts: Array, eps: float, method: ns.EventSelected = METHOD) -> Bed:
    """Compare all starts (starts, 6) with DOP853 on a bed of so many springs."""
    constants = plate_on_springs.Constants(contacts=contacts)
    errors, euler_errors, time_errors, events, slowest, statuses = [], [], [], [], [], []
    failures = 0
    for x0 in starts:
        exact = reference(x0, constants, plate_on_springs.DURATION)
        better = simulate(x0, constants, method=method)
        euler = simulate(x0, constants, method=method.replace(projection="euler"))
        failures += not simulate(x0, constants, method=method.replace(projection="euler", eps=eps)).success
        errors.append(np.abs(better.final_state - exact.x).max())
        euler_errors.append(np.abs(euler.final_state - exact.x).max() if euler.success else np.nan)
        time_errors.append(_time_error(better, exact))
        events.append(len(exact.events))
        slowest.append(exact.slowest)
        statuses.append(better.status)
    return Bed(
        contacts=contacts,
        errors=np.array(errors),
        euler_errors=np.array(euler_errors),
        time_errors=np.array(time_errors),
        events=np.array(events),
        slowest=float(min(slowest)),
        statuses=tuple(statuses),
        failures=failures,
    )


def experiment(
    contacts: tuple[int, ...] = (2, 5, 10, 20, 50, 100),
    starts: int = 120,
    seed: int = 0,
    eps: float = 0.0039,
    *,
    method: ns.EventSelected = METHOD,
) -> list[Bed]:
    """Return the results on all beds; `eps` is the fixed width of the bands whose failures are counted [m]."""
    drawn = plate_on_springs.starts(starts, seed)
    return [bed(count, drawn, eps, method) for count in contacts]


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
    success = all(bed.success for bed in beds) and shown.success and max(flat.values()) < LIMIT
    status = ns.Status.SOLVED if success else ns.Status.STEP_FAILED
    residual = off_guard(shown, plate_on_springs.build_numeric())
    results = {
        "status": status.value,
        "beds": [bed.to_dict() for bed in beds],
        "largest_error": max(float(bed.errors.max()) for bed in beds),
        "largest_euler_error": max(float(np.nanmax(bed.euler_errors)) for bed in beds),
        "flat_errors": {str(count): error for count, error in flat.items()},
        "constants": {**vars(plate_on_springs.STANDARD), "duration": plate_on_springs.DURATION},
    }
    line = ", ".join(f"{count} springs {error:.1e}" for count, error in flat.items())
    points = [
        Curve(np.full(values.size, bed.contacts), np.maximum(values, 1e-16), label if bed is beds[0] else "", style)
        for label, name, style in (("RK-Newton", "errors", NEAR), ("Euler's projection", "euler_errors", FAR))
        for bed in beds
        for values in (getattr(bed, name),)
    ]
    panel = Panel(curves=points, x="springs", y="error at the end [m, rad, m/s, rad/s]", log="xy", levels=(LIMIT,))
    return tabled(
        {**results_of(shown, started, residual), **results},
        success,
        {f"errors over {len(beds[0].errors)} starts, against DOP853": [bed.to_dict() for bed in beds]},
        {
            "plate_on_springs.png": lambda: ns.plot(shown, shown.state_names),
            "plate_on_springs_errors.png": lambda: chart([panel]),
        },
        [f"dropped flat, against the hopper: {line}"],
    )


PROGRAM = program(__name__, run, experiment, quick=QUICK, method=METHOD, fixed=CHOSEN)
