"""How fast simulations are: `python -m problems.benchmarks.simulation_speed`.

Two questions, each a part of its own (`--set part=steps`, `work` or `all`):

- steps: what a step costs by the active-set Newton method and as an MPCC by a homotopy, at equal scheme and step, and
  whether both find the same;
- work: whole simulations against DOP853 with events, at equal error.

That both find the same on every simulation of the library is a test (`tests/problems/test_simulation_speed.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from problems.benchmarks.simulation_timing import Row, geometric_mean, measure
from problems.benchmarks.simulation_work import Run, examples, front, ladder, largest_ratio, mean_ratio, ratios
from problems.figures import DOTS, Curve, Panel, chart
from problems.runner import Meter, Report, program, tabled
from problems.settings import Settings
from tests.references.simulation_steps import HOMOTOPY, NEWTON, SOLVERS, TIGHT, Fallback
from tests.references.simulations import SPEED

PARTS = ("steps", "work")
AIM, LIMIT = 50.0, 5.0  # of the speedup of a step, and of the time over that of DOP853
QUICK = {
    "repeats": 1,
    "speed_steps": 12,
    "tolerances": (1e-4, 1e-8),
    "stages": (3, 6),
    "steps": (4, 16),
    "elements": (2,),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """Rows of both parts; empty where a part was not asked for."""

    rows: tuple[Row, ...] = ()
    runs: tuple[tuple[Run, ...], ...] = ()

    @property
    def fallbacks(self) -> list[Fallback]:
        """Steps of the benchmark that Newton's method did not do alone."""
        return [entry for row in self.rows for entry in row.fallbacks]

    @property
    def speedup(self) -> float | None:
        """Geometric mean over the cases."""
        return geometric_mean([row.speedup for row in self.rows]) if self.rows else None

    @property
    def success(self) -> bool:
        """Whether every step was solved; times and fallbacks are told, and decide nothing."""
        return not any(row.broken for row in self.rows)


def experiment(
    part: str = "all",
    repeats: int = 3,
    speed_steps: int = 1000,
    tolerances: tuple[float, ...] = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12),
    stages: tuple[int, ...] = (2, 3, 4, 6),
    steps: tuple[int, ...] = (1, 2, 4, 6, 8, 12, 16, 38, 104),
    elements: tuple[int, ...] = (2, 5),
    *,
    progress: Progress,
) -> Findings:
    """Everything that was asked for.

    Parameters
    ----------
    part : {"all", "steps", "work"}
    repeats : int
        Turns of which the best one counts.
    speed_steps : int
        At most so many steps of every case are measured.
    tolerances : tuple of float
        Of DOP853.
    stages, steps, elements : tuple of int
        Runge-Kutta stages, steps, and finite elements per step of the simulations that DOP853 is compared with.
    """
    if part not in (*PARTS, "all"):
        raise OptionError(unknown_name(part, (*PARTS, "all"), "part"))
    asked = PARTS if part == "all" else (part,)
    found: dict[str, Any] = {}
    if "steps" in asked:
        found["rows"] = tuple(measure(build().shortened(speed_steps), repeats, progress) for build in SPEED.values())
    if "work" in asked:
        # its runs are short: many turns cost little
        turns = 3 * repeats
        found["runs"] = tuple(
            tuple(ladder(example, tolerances, stages, steps, elements, turns, progress)) for example in examples()
        )
    return Findings(**found)


def run(settings: Settings, progress: Progress) -> Report:
    """Measure, and simulate the oscillator once more for the numbers that all problems give."""
    meter = Meter(progress)
    case = SPEED["oscillator"]()
    trajectory = ns.simulate(
        case.system, x0=case.x0, duration=case.duration, steps=case.steps, method=case.method, callback=meter
    )
    found = experiment(**settings.arguments, progress=progress)
    success = trajectory.success and found.success
    told = _results(found, success)
    entries = [*found.fallbacks, *(e for row in found.rows for e in row.failures)]
    said = [f"{e.case}, step {e.step} at {e.time:.6g} s, {e.seconds:.3g} s: {e.reason}" for e in entries]
    if found.speedup is not None:
        slow = ", ".join(row.case for row in found.rows if row.speedup < AIM)
        said.insert(0, f"geometric mean {found.speedup:.0f}x; below {AIM:g}x: {slow or 'none'}")
    return tabled(
        {**meter.results(trajectory), **told},
        success,
        {
            "a step [ms of the processor], and how many times faster than homotopies": [
                _cost(row) for row in found.rows
            ],
            **{f"{runs[0].example}, at equal error": _work(runs) for runs in found.runs},
        },
        _figures(found),
        [*said, f"largest ratios to DOP853 (limit {LIMIT:g}): {told['largest_ratios_to_dop853']}"],
    )


def _cost(row: Row) -> dict[str, Any]:
    speedups = {"speedup": row.speedup, "tight": row.speedup_tight, "relaxed": row.speedup_relaxed}
    counts = {"fell back": len(row.fallbacks), "failed": len(row.failures)}
    differ = max(row.differences[name] for name in (HOMOTOPY, TIGHT))
    times = {f"{name} [ms]": row.milliseconds[name] for name in SOLVERS}
    return {
        "case": row.case,
        "steps": row.steps,
        **times,
        **speedups,
        "differ": differ,
        "error": row.errors[NEWTON],
        **counts,
    }


def _work(runs: Sequence[Run]) -> list[dict[str, Any]]:
    rows = []
    for other, mine in ratios(runs):
        setting = None if mine is None else f"{mine.rk_stages} stages, {mine.setting:g} x {mine.elements} elements"
        rows.append(
            {
                "DOP853, tolerance": other.setting,
                "error": other.error,
                "ms/s": other.milliseconds,
                "FESD": setting,
                "its error": None if mine is None else mine.error,
                "its ms/s": None if mine is None else mine.milliseconds,
            }
        )
    return rows


def _figures(found: Findings) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if found.rows:
        at = np.arange(len(found.rows))
        names = ("speedup", "speedup_tight", "speedup_relaxed")
        curves = [Curve(at, [getattr(row, name) for row in found.rows], name, DOTS) for name in names]
        label = ", ".join(f"{i} {row.case}" for i, row in enumerate(found.rows))
        panel = Panel(curves=curves, x=label, y="time of a step over that of Newton", log="y", levels=(AIM,))
        made["simulation_speed.png"] = lambda: chart([panel])
    if found.runs:
        made["simulation_work.png"] = lambda: chart([_precision(runs) for runs in found.runs], 2)
    return made


def _precision(runs: Sequence[Run]) -> Panel:
    """The error at the end over the time per simulated second."""
    curves = []
    for stages in sorted({run.rk_stages for run in runs}):
        best = front([run for run in runs if run.rk_stages == stages])
        label = f"FESD, {stages} stages" if stages else "DOP853 with events"
        points = ([run.milliseconds for run in best], [max(run.error, 1e-16) for run in best])
        curves.append(Curve(*points, label, {"marker": "o"}))
    return Panel(curves=curves, title=runs[0].example, x="ms per simulated second", y="error", log="xy")


def _results(found: Findings, success: bool) -> dict[str, Any]:
    return {
        "status": (ns.Status.SOLVED if success else ns.Status.STEP_FAILED).value,
        "speedup_geometric_mean": found.speedup,
        "speedups": {row.case: row.speedup for row in found.rows},
        "fallback_steps": len(found.fallbacks),
        "rows": [row.to_dict() for row in found.rows],
        "ratios_to_dop853": {runs[0].example: mean_ratio(runs) for runs in found.runs},
        "largest_ratios_to_dop853": {runs[0].example: largest_ratio(runs) for runs in found.runs},
        "runs": [vars(run) for runs in found.runs for run in runs],
    }


PROGRAM = program(__name__, run, experiment, quick=QUICK)
