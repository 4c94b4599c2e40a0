"""Cost of a contact, compared with MuJoCo (pip install "nosnoc_py[bench]").

Fig. 5 of ESS: the same random starts of the plate on beds of 2 to 100 springs, at equal step. The marginal cost of a
contact is the derivative of the median time over the number of contacts, per 1000 steps; the fitted slope is printed,
the derivative is drawn. All times are those of the processor, on one core, in one process, the programs in turn, after
a first call of each that does not count. `loop` is the compiled loop alone, without the trajectory with its dense
output and its events as objects, which MuJoCo does not make either. The error of a program is that of the state at the
end, against DOP853 of its own way to compress a spring (`tests.references.plate`). Bands are as wide as a step is long.

The ratio depends on the duration of contacts: MuJoCo solves for the forces of closed contacts at every step; here the
cost is due to crossings. With the standard damping the plate lands and stays; `--set damping=2` makes
it bounce, and `damping=0` too, which is what tendons always do, as their dampers have two sides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import mujoco_springs as mujoco_models
from models import plate_on_springs
from models.plate_on_springs import Constants
from nosnoc_py.methods.event_selected.functions import fields_of
from nosnoc_py.methods.event_selected.run import EventSelectedRun, initial_mode
from nosnoc_py.progress import Progress
from problems.benchmarks.event_selected_common import CHOSEN, median_seconds, results_of
from problems.figures import Curve, Panel, chart
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.plate import Geometry, linear, normal, reference, vertical

Array = NDArray[np.float64]
Call = Callable[[Array], Array]  # start (6,) -> state at the end (6,)

METHOD = ns.EventSelected(step=0.002)
LOOP, EULER_LOOP, COMPILED = "RK-Newton, loop", "Euler, loop", "RK-Newton, compiled"
NUMPY, EULER_NUMPY = "RK-Newton, NumPy", "Euler, NumPy"
CONTACTS, TENDONS = "MuJoCo, contacts", "MuJoCo, tendons"
SLOW = (NUMPY, EULER_NUMPY)
QUICK = {"contacts": (2, 20, 50), "starts": 3, "numpy_starts": 1, "error_starts": 2}


def programs(constants: Constants, duration: float, method: ns.EventSelected = METHOD) -> dict[str, Call]:
    """Return the programs that are compared, by name, on one bed."""
    euler = method.replace(projection="euler")
    slow, fast = (plate_on_springs.build_numeric(constants, fast=fast) for fast in (False, True))
    steps = round(duration / method.step)
    contacts = mujoco_models.plate(constants, method.step, "contacts")
    tendons = mujoco_models.plate(mujoco_models.without_dampers(constants), method.step, "tendons")

    def whole(system: ns.EventSelectedSystem, chosen: ns.EventSelected) -> Call:
        return lambda x0: ns.simulate(system, x0=x0, duration=duration, method=chosen).final_state

    return {
        LOOP: _loop(fast, duration, method),
        EULER_LOOP: _loop(fast, duration, euler),
        COMPILED: whole(fast, method),
        NUMPY: whole(slow, method),
        EULER_NUMPY: whole(slow, euler),
        CONTACTS: lambda x0: mujoco_models.final_state(contacts, x0, steps),
        TENDONS: lambda x0: mujoco_models.final_state(tendons, x0, steps),
    }


def _loop(system: ns.EventSelectedSystem, duration: float, method: ns.EventSelected) -> Call:
    """Return the compiled loop alone."""
    fields, p = fields_of(system, True), np.array(system.p_default)  # a copy: the kernels need writable arrays

    def call(x0: Array) -> Array:
        walk = EventSelectedRun(system, fields, method, p, method.step, None, np.inf)
        walk.go(x0, initial_mode(system, fields, method, x0, p), duration)
        return np.asarray(walk.end.x)

    return call


def law_of(name: str, constants: Constants) -> tuple[Geometry, Constants, bool]:
    """Return how a program compresses springs, its constants, and True if its dampers pull."""
    if name == CONTACTS:
        return normal, constants, False
    if name == TENDONS:
        return linear, mujoco_models.without_dampers(constants), True
    return vertical, constants, True


def experiment(
    contacts: tuple[int, ...] = (2, 10, 20, 40, 60, 80, 100),
    starts: int = 120,
    numpy_starts: int = 24,
    error_starts: int = 12,
    damping: float = plate_on_springs.STANDARD.damping,
    duration: float = plate_on_springs.DURATION,
    seed: int = 0,
    *,
    method: ns.EventSelected = METHOD,
) -> dict[str, dict[str, Any]]:
    """Measure all programs; those in plain NumPy on the first `numpy_starts` only, errors on `error_starts`.

    Times and errors are medians over the starts. The marginal cost of a contact [us per contact and 1000 steps] is the
    fitted slope of the times; "derivative" has the ratios between neighbouring beds.
    """
    drawn, steps = plate_on_springs.starts(starts, seed), round(duration / method.step)
    beds = {count: replace(plate_on_springs.STANDARD, contacts=count, damping=damping) for count in contacts}
    calls = {count: programs(constants, duration, method) for count, constants in beds.items()}
    seconds = {count: median_seconds(each, drawn, SLOW, numpy_starts) for count, each in calls.items()}
    errors = {c: errors_of(each, beds[c], duration, drawn[:error_starts]) for c, each in calls.items()}
    rows = {}
    for name in calls[contacts[0]]:
        spent = np.array([seconds[count][name] for count in contacts])
        rows[name] = {
            "marginal_microseconds": float(np.polyfit(contacts, spent, 1)[0] * 1e9 / steps),
            "derivative": np.diff(spent) / np.diff(contacts) * 1e9 / steps,
            "milliseconds": {str(count): 1e3 * seconds[count][name] for count in contacts},
            "errors": {str(count): errors[count][name] for count in contacts},
        }
    return rows


def errors_of(calls: Mapping[str, Call], constants: Constants, duration: float, starts: Array) -> dict[str, float]:
    """Return the median error of the state at the end of every program; those with the same law share the reference."""
    errors: dict[str, list[float]] = {name: [] for name in calls}
    for x0 in starts:
        exact: dict[Geometry, Array] = {}
        for name, call in calls.items():
            geometry, chosen, pulls = law_of(name, constants)
            if geometry not in exact:
                tolerance = 1e-12 if geometry is vertical else 1e-9
                exact[geometry] = reference(x0, chosen, duration, geometry=geometry, pulls=pulls, tolerance=tolerance).x
            errors[name].append(float(np.abs(call(x0) - exact[geometry]).max()))
    return {name: float(np.median(values)) for name, values in errors.items()}


def run(settings: Settings, progress: Progress) -> Report:
    """Measure, and report."""
    mujoco_models.engine()  # raises at once if MuJoCo is missing
    started = time.monotonic()
    arguments = settings.arguments
    rows = experiment(**arguments, method=settings.method)
    constants = replace(plate_on_springs.STANDARD, damping=arguments["damping"])
    shown = ns.simulate(
        plate_on_springs.build_numeric(constants, fast=True),
        x0=plate_on_springs.starts(1, arguments["seed"])[0],
        duration=arguments["duration"],
        method=settings.method,
    )
    ratios = {name: marginal_of(rows, CONTACTS) / marginal_of(rows, name) for name in rows}
    results = {"rows": rows, "ratio_to_mujoco_contacts": ratios}
    steps = round(arguments["duration"] / settings.method.step)
    title = f"processor time [ms] of {arguments['duration']:g} s in {steps} steps, median over starts"
    return tabled(
        {**results_of(shown, started), **results, "constants": {**vars(constants)}},
        shown.success,
        {
            f"{title}, by contacts": [{"program": name, **row["milliseconds"]} for name, row in rows.items()],
            "marginal cost per contact and 1000 steps [us], and errors": [
                {
                    "program": name,
                    "marginal": row["marginal_microseconds"],
                    "of MuJoCo's contacts": 1.0 / ratios[name],
                    "error, fewest": next(iter(row["errors"].values())),
                    "error, most contacts": [*row["errors"].values()][-1],
                }
                for name, row in rows.items()
            ],
        },
        {"event_selected_mujoco.png": lambda: _costs(rows, np.array(arguments["contacts"]))},
        [str(constants)],
    )


def marginal_of(rows: Mapping[str, Mapping[str, Any]], name: str) -> float:
    """Return the marginal cost of a program."""
    return float(rows[name]["marginal_microseconds"])


def _costs(rows: Mapping[str, Mapping[str, Any]], contacts: Array) -> Any:
    """Draw times and, as in Fig. 5, marginal costs over the number of contacts; decreasing times are noise."""
    middles = 0.5 * (contacts[1:] + contacts[:-1])
    rises = {name: np.where(row["derivative"] > 0.0, row["derivative"], np.nan) for name, row in rows.items()}
    times = [Curve(contacts, [*row["milliseconds"].values()], name) for name, row in rows.items()]
    marginal = [Curve(middles, values, name) for name, values in rises.items()]
    label = "marginal cost [µs / (contact × 1000 steps)]"
    return chart(
        [
            Panel(curves=times, x="contacts", y="processor time [ms]", log="y"),
            Panel(curves=marginal, x="contacts", y=label, log="y"),
        ],
        2,
    )


PROGRAM = program(__name__, run, experiment, quick=QUICK, method=METHOD, fixed=CHOSEN)
