"""Time of simulation steps: `python -m problems.benchmarks.simulation_speed`.

Steps are solved by the active-set Newton method and as MPCCs by a homotopy, with equal scheme and step, and the results
are compared. A test compares them on every simulation of the library (`tests/problems/test_simulation_speed.py`);
`simulation_cost` measures whole simulations by default.

All times are processor seconds of this thread, so that other work on the machine does not count. Simulators are
built and have stepped before anything is measured; then all methods take turns with the whole motion, Newton's method
several times in each, and the best turn of each method counts. The clock is read twice per turn: a reading may take as
long as a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.orders import geometric_mean
from problems.runner import Meter, Report, program, tabled
from problems.settings import Settings
from tests.references.simulation_steps import (
    HOMOTOPY,
    MPCC,
    NEWTON,
    RELAXED,
    SOLVERS,
    TIGHT,
    chain,
    distance,
    error_of,
    simulator_of,
)
from tests.references.simulations import SPEED, Case

AIM = 50.0  # target for the speedup of a step
AGAIN = 5  # simulations by Newton's method per turn, whose mean counts
SPEEDUPS = {"speedup": HOMOTOPY, "speedup_tight": TIGHT, "speedup_relaxed": RELAXED}
QUICK = {"repeats": 1, "speed_steps": 12}


def measure(case: Case, repeats: int, progress: Progress) -> dict[str, Any]:
    """Simulate a case by all solvers in turns; return milliseconds per step, errors and differences by solver.

    "fallbacks" are steps that Newton's method left to an MPCC, "broken" those that were not solved then, either, and
    "failures" those of the homotopies, which then continue from Newton's states.
    """
    progress.describe(case.name)
    simulators = {name: simulator_of(case, name) for name in SOLVERS}
    reference = chain(case, simulators[NEWTON]).x
    for name in MPCC:
        chain(case.shortened(1), simulators[name])
    turns, seconds = [], []
    for _ in range(repeats):
        turns.append({name: chain(case, simulator, reference) for name, simulator in simulators.items()})
        again = float(np.mean([chain(case, simulators[NEWTON]).seconds for _ in range(AGAIN)]))
        seconds.append([again if name == NEWTON else turns[-1][name].seconds for name in SOLVERS])
    milliseconds = dict(zip(SOLVERS, (1e3 * np.min(seconds, axis=0) / case.steps).tolist(), strict=True))
    first = turns[0]
    return {
        "case": case.name,
        "steps": case.steps,
        "milliseconds": milliseconds,
        **{name: milliseconds[solver] / milliseconds[NEWTON] for name, solver in SPEEDUPS.items()},
        "differences": {name: distance(first[name].x, reference) for name in MPCC},
        "error": error_of(case, first[NEWTON].x),
        "fallbacks": [asdict(step) for step in first[NEWTON].fallbacks],
        "broken": [asdict(step) for step in first[NEWTON].failures],
        "failures": [asdict(step) for name in MPCC for step in first[name].failures],
    }


def experiment(repeats: int = 3, speed_steps: int = 1000, *, progress: Progress) -> list[dict[str, Any]]:
    """Measure the steps of all cases.

    Parameters
    ----------
    repeats : int
        Turns of which the best one counts.
    speed_steps : int
        At most so many steps of every case are measured.
    """
    return [measure(build().shortened(speed_steps), repeats, progress) for build in SPEED.values()]


def run(settings: Settings, progress: Progress) -> Report:
    """Measure, and simulate the oscillator once more; times and fallbacks are printed, but do not matter."""
    meter, case = Meter(progress), SPEED["oscillator"]()
    trajectory = ns.simulate(
        case.system, x0=case.x0, duration=case.duration, steps=case.steps, method=case.method, callback=meter
    )
    rows = experiment(**settings.arguments, progress=progress)
    success = trajectory.success and not any(row["broken"] for row in rows)
    mean = geometric_mean([row["speedup"] for row in rows])
    slow = ", ".join(row["case"] for row in rows if row["speedup"] < AIM)
    results = {
        "status": (ns.Status.SOLVED if success else ns.Status.STEP_FAILED).value,
        "speedup_geometric_mean": mean,
        "speedups": {row["case"]: row["speedup"] for row in rows},
        "fallback_steps": sum(len(row["fallbacks"]) for row in rows),
        "rows": rows,
    }
    return tabled(
        {**meter.results(trajectory), **results},
        success,
        {"processor time of a step [ms], and speedup over homotopies": [_cost(row) for row in rows]},
        said=[f"geometric mean {mean:.0f}x; below {AIM:g}x: {slow or 'none'}", *_reasons(rows)],
    )


def _cost(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "case": row["case"],
        "steps": row["steps"],
        **{f"{name} [ms]": value for name, value in row["milliseconds"].items()},
        **{name: row[name] for name in SPEEDUPS},
        "differ": max(row["differences"][name] for name in (HOMOTOPY, TIGHT)),
        "error": row["error"],
        "fell back": len(row["fallbacks"]),
        "failed": len(row["failures"]),
    }


def _reasons(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    steps = [step for name in ("fallbacks", "failures") for row in rows for step in row[name]]
    return ["{case}, step {step} at {time:.6g} s, {seconds:.3g} s: {reason}".format(**step) for step in steps]


PROGRAM = program(__name__, run, experiment, quick=QUICK)
