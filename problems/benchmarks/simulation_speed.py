"""How fast simulations are: `python -m problems.benchmarks.simulation_speed`.

Three questions, each a part of its own (`--set part=steps`, `work`, `agreement` or `all`):

- steps: what a step costs by the active-set Newton method and as an MPCC by a homotopy, at equal scheme and step, and
  whether both find the same;
- work: whole simulations against DOP853 with events, at equal error;
- agreement: whether Newton's method and the MPCC agree on every simulation of the library. By default on those that
  take little time; `--set part=agreement cases=every` for all of them, which takes minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from problems.benchmarks.simulation_agreement import AGREE, AGREED, DIFFER, Agreement, compare
from problems.benchmarks.simulation_cases import AGREEMENT, SPEED
from problems.benchmarks.simulation_timing import (
    HOMOTOPY,
    NEWTON,
    SOLVERS,
    TIGHT,
    Fallback,
    Row,
    geometric_mean,
    measure,
)
from problems.benchmarks.simulation_work import Run, examples, ladder, largest_ratio, mean_ratio, ratios
from problems.runner import Meter, Report, program, table
from problems.settings import Settings

PARTS = ("steps", "work", "agreement")
AIM, LIMIT = 50.0, 5.0  # of the speedup of a step, and of the time over that of DOP853
EVERY = "every"
# What agrees or not in a few seconds all together.
SHORT = (
    "oscillator",
    "relay, hysteresis",
    "crossing, stewart",
    "sliding on a curve, step",
    "leaving, stewart",
    "ride along the edge",
    "turbo car",
    "pushed point",
    "particle",
    "landing_slip_2d",
    "stick_to_slip_2d",
    "corner_bounce_2d",
    "stack_caught_2d",
)
QUICK = {
    "repeats": 1,
    "speed_steps": 12,
    "tolerances": (1e-4, 1e-8),
    "stages": (3, 6),
    "steps": (4, 16),
    "elements": (2,),
    "cases": ("crossing, stewart", "landing_slip_2d"),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """Rows of the three parts; empty where a part was not asked for."""

    rows: tuple[Row, ...] = ()
    runs: tuple[tuple[Run, ...], ...] = ()
    agreements: tuple[Agreement, ...] = ()

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
        """Whether every step was solved and both methods agree; times and fallbacks are told, and decide nothing."""
        solved = not any(row.broken for row in self.rows)
        return solved and not any(row.verdict == DIFFER for row in self.agreements)


def experiment(
    part: str = "all",
    cases: tuple[str, ...] = (),
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
    part : {"all", "steps", "work", "agreement"}
    cases : tuple of str
        Of the agreement: names, or "every"; short ones by default.
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
    chosen = _chosen(cases)
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
    if "agreement" in asked:
        found["agreements"] = tuple(compare(name, AGREEMENT[name](), progress) for name in chosen)
    return Findings(**found)


def _chosen(cases: Sequence[str]) -> tuple[str, ...]:
    if EVERY in cases:
        return tuple(AGREEMENT)
    # names contain commas, where a command line parts them
    names = tuple(cases) if all(name in AGREEMENT for name in cases) else (", ".join(cases),)
    for name in names:
        if name not in AGREEMENT:
            raise OptionError(unknown_name(name, AGREEMENT, "case"))
    return names or SHORT


def run(settings: Settings, progress: Progress) -> Report:
    """Measure, and simulate the oscillator once more for the numbers that all problems give."""
    meter = Meter(progress)
    case = SPEED["oscillator"]()
    trajectory = ns.simulate(
        case.system, x0=case.x0, duration=case.duration, steps=case.steps, method=case.method, callback=meter
    )
    found = experiment(**settings.arguments, progress=progress)
    success = trajectory.success and found.success
    return Report(
        results={**meter.results(trajectory), **_results(found, success)},
        success=success,
        show=lambda console: _show(console, found),
        figures=_figures(found),
    )


def _figures(found: Findings) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if found.rows:
        made["simulation_speed.png"] = lambda path: _drawing().speedups(found.rows, AIM, path)
    if found.runs:
        made["simulation_work.png"] = lambda path: _drawing().work_precision(found.runs, path)
    return made


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
        "agreement": [row.to_dict() for row in found.agreements],
        "largest_difference": max((row.difference for row in found.agreements if row.verdict == AGREE), default=None),
    }


def _show(console: Console, found: Findings) -> None:
    if found.rows:
        _show_steps(console, found)
    for runs in found.runs:
        _show_work(console, runs)
    if found.agreements:
        _show_agreement(console, found.agreements)


def _show_steps(console: Console, found: Findings) -> None:
    columns = ("steps", "events", "Newton", "homotopy", "tight", "relaxed", "speedup", "tight", "relaxed")
    more = ("differ", "error", "fell back", "failed")
    made = table(
        "case",
        *columns,
        *more,
        title="a step [ms of the processor] by active-set Newton and by homotopies, and the ratios",
    )
    for row in found.rows:
        times = [f"{row.milliseconds[name]:.3g}" for name in SOLVERS]
        numbers = (max(row.differences[name] for name in (HOMOTOPY, TIGHT)), row.errors[NEWTON])
        counts = (str(len(row.fallbacks)), str(len(row.failures)))
        speedups = (f"{ratio:.0f}x" for ratio in (row.speedup, row.speedup_tight, row.speedup_relaxed))
        made.add_row(
            row.case, str(row.steps), str(row.events), *times, *speedups, *(f"{n:.1e}" for n in numbers), *counts
        )
    console.print(made)
    slow = [row.case for row in found.rows if row.speedup < AIM]
    console.print(f"geometric mean {found.speedup:.0f}x; below {AIM:g}x: {', '.join(slow) or 'none'}")
    console.print("tight: as the library asks of a step; relaxed: without an active-set finish, less exact")
    console.print(f"{len(found.fallbacks)} steps were not solved by Newton's method alone")
    _list(console, "", found.fallbacks)
    _list(console, "homotopy: ", [entry for row in found.rows for entry in row.failures])


def _show_work(console: Console, runs: Sequence[Run]) -> None:
    title = f"{runs[0].example}: milliseconds per simulated second, at an error that is not larger"
    made = table("DOP853, tolerance", "error", "time [ms/s]", "FESD", "error", "time [ms/s]", "ratio", title=title)
    for other, mine in ratios(runs):
        left = (f"{other.setting:.0e}", f"{other.error:.1e}", f"{other.milliseconds:.3g}")
        if mine is None:
            made.add_row(*left, "none", "-", "-", "-")
            continue
        setting = f"{mine.rk_stages} stages, {mine.setting:g} x {mine.elements} elements"
        ratio = f"{mine.milliseconds / other.milliseconds:.2f}"
        made.add_row(*left, setting, f"{mine.error:.1e}", f"{mine.milliseconds:.3g}", ratio)
    console.print(made)
    mean, largest = mean_ratio(runs), largest_ratio(runs)
    if mean is not None and largest is not None:
        console.print(f"geometric mean {mean:.2f}, largest {largest:.2f} (limit {LIMIT:g})")


def _show_agreement(console: Console, rows: Sequence[Agreement]) -> None:
    columns = ("steps", "difference", "in step", "error", "of MPCC", "fallbacks", "MPCC failed", "verdict")
    made = table("case", *columns, title="states at the step ends: active-set Newton against the MPCC")
    for row in rows:
        numbers = (f"{row.difference:.1e}", str(row.worst_step), *(f"{error:.1e}" for error in row.errors))
        made.add_row(row.case, str(row.steps), *numbers, str(len(row.fallbacks)), str(len(row.failures)), row.verdict)
    console.print(made)
    console.print(f"{sum(row.verdict == AGREE for row in rows)} of {len(rows)} agree, within {AGREED:g}")
    for row in rows:
        if row.open:
            console.print(f"{row.case}: {row.open}", markup=False)
        _list(console, "", row.fallbacks)
        _list(console, "MPCC: ", row.failures)


def _list(console: Console, who: str, entries: Sequence[Fallback]) -> None:
    for entry in entries:
        console.print(
            f"{who}{entry.case}, step {entry.step} at {entry.time:.6g} s, {entry.seconds:.3g} s: {entry.reason}",
            markup=False,
        )


def _drawing() -> Any:
    from problems.drawing import simulation  # matplotlib is slow to import and not needed with --json

    return simulation


PROGRAM = program(__name__, run, experiment, quick=QUICK)
