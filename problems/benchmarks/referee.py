"""The event-driven referee put to the test: `python -m problems.benchmarks.referee`.

Three tables. The referee against motions in closed form: states, times of events, time per simulated second. FESD-J
against the referee with more and more steps: the differences vanish with the order of the Runge-Kutta method.
Certificates of solutions of optimal control problems: the three boxes, the discs on finer and finer grids, and
solutions that are wrong on purpose, which have to be refuted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from problems.benchmarks.referee_agreement import METHOD, Agreement, Convergence, agreement, convergence
from problems.benchmarks.referee_certificates import Certified, boxes, discs, slides
from problems.runner import Report, program, table
from problems.settings import Settings
from tests.references.referee_motions import COMPARISONS, NAMES, closed_form, comparison

REFEREE = ns.EventDriven()
PARTS = ("closed_forms", "fesdj", "certificates")
TASKS = ("slide", "boxes", "discs")
QUICK = {
    "cases": ("slip_to_stick_2d", "bounce_slip_3d", "corner_landing_2d", "bouncing_ball", "three_boxes"),
    "comparisons": ("slope_curve_3d",),
    "tasks": ("slide",),
}
SHOWN = 40  # characters of what is wrong, in a table


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """All that was found: one row of a table each."""

    agreements: tuple[Agreement, ...] = ()
    convergences: tuple[Convergence, ...] = ()
    certificates: tuple[Certified, ...] = ()

    @property
    def rows(self) -> tuple[Agreement | Convergence | Certified, ...]:
        """Of all tables."""
        return (*self.agreements, *self.convergences, *self.certificates)

    @property
    def success(self) -> bool:
        """Whether all of it is as it should be."""
        return all(row.success for row in self.rows)

    @property
    def grids(self) -> tuple[Certified, ...]:
        """The discs on all grids, the coarsest first."""
        return tuple(row for row in self.certificates if row.label.startswith("discs") and not row.wrong)


def experiment(
    parts: tuple[str, ...] = PARTS,
    cases: tuple[str, ...] = (),
    comparisons: tuple[str, ...] = tuple(COMPARISONS),
    tasks: tuple[str, ...] = TASKS,
    control_stages: tuple[int, ...] = (25, 50, 100),
    tolerance: float = 1e-9,
    repeats: int = 2,
    time_limit: float = 120.0,
    *,
    method: ns.FESDJ = METHOD,
    referee: ns.EventDriven = REFEREE,
    callback: Any = None,
) -> Findings:
    """Do everything, or the parts that are asked for.

    Parameters
    ----------
    parts : tuple of str
        "closed_forms", "fesdj" and "certificates".
    cases : tuple of str
        Motions in closed form, by default all.
    comparisons : tuple of str
        Motions that FESD-J simulates, too.
    tasks : tuple of str
        Optimal control problems: "slide", "boxes", "discs".
    control_stages : tuple of int
        Grids of the discs.
    tolerance : float
        Of the errors against closed forms [m, m/s, s].
    repeats : int
        Simulations; the times are those of the fastest.
    time_limit : float
        Seconds for every optimal control problem.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    for names, known, what in ((parts, PARTS, "part"), (tasks, TASKS, "task")):
        for name in names:
            if name not in known:
                raise OptionError(unknown_name(name, known, what))
    motions = [closed_form(name) for name in cases or NAMES]
    compared = {name: comparison(name) for name in comparisons}
    limits = {"time_limit": time_limit, "callback": callback}
    certify: Mapping[str, Callable[[], Iterator[Certified]]] = {
        "slide": lambda: slides(**limits),
        "boxes": lambda: boxes(**limits),
        "discs": lambda: discs(control_stages, **limits),
    }
    agreements = (agreement(case, referee, tolerance=tolerance, repeats=repeats) for case in motions)
    convergences = (convergence(name, each, method, referee, repeats=repeats) for name, each in compared.items())
    certificates = (row for task in tasks for row in certify[task]())
    return Findings(
        agreements=tuple(agreements) if "closed_forms" in parts else (),
        convergences=tuple(convergences) if "fesdj" in parts else (),
        certificates=tuple(certificates) if "certificates" in parts else (),
    )


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment and report."""
    started = time.monotonic()
    found = experiment(**settings.arguments, method=settings.method, referee=settings.solver, callback=progress)
    figures: dict[str, Callable[[Path], Any]] = {}
    if found.grids:
        figures["referee_grids.png"] = lambda path: _drawing().grids(found.grids, path)
        figures["referee_discs.png"] = lambda path: _drawing().discs(found.grids[0], path)
    if found.certificates:
        figures["referee_windows.png"] = lambda path: _drawing().windows(found.certificates, path)
    return Report(
        results={**results(found), "wall_seconds": time.monotonic() - started},
        success=found.success,
        show=lambda console: _show(console, found),
        figures=figures,
    )


def results(found: Findings) -> dict[str, Any]:
    """What `--json` prints; several problems have neither one objective nor one final state."""
    solved = [row.solution for row in found.certificates if not row.wrong]
    return {
        "status": (ns.Status.SOLVED if found.success else ns.Status.STEP_FAILED).value,
        "objective": None,
        "complementarity": max((solution.complementarity for solution in solved), default=None),
        "infeasibility": max((solution.infeasibility for solution in solved), default=None),
        "iterations": sum(solution.iterations for solution in solved),
        "events": None,
        "final_state": None,
        "closed_forms": [{**vars(row), "success": row.success} for row in found.agreements],
        "fesdj": [
            {**vars(row), "order": row.order, "ratio": row.ratio, "success": row.success} for row in found.convergences
        ],
        "certificates": [row.to_dict() for row in found.certificates],
    }


def _show(console: Console, found: Findings) -> None:
    if found.agreements:
        _show_agreements(console, found.agreements)
    if found.convergences:
        _show_convergences(console, found.convergences)
    if found.certificates:
        _show_certificates(console, found)


def _show_agreements(console: Console, rows: Sequence[Agreement]) -> None:
    columns = ("status", "state", "event [s]", "missing", "also", "ms/s", "what is wrong")
    made = table("motion", *columns, title="the referee against closed forms: largest errors, milliseconds per second")
    for row in rows:
        counts = (str(len(row.missing)), str(len(row.extra)))
        wrong = "; ".join([*(f"no {e}" for e in row.missing), *(f"also {e}" for e in row.extra), row.message])
        text = escape(wrong.strip("; ")[:SHOWN])
        numbers = (_number(row.error), _number(row.event_error), *counts, f"{row.milliseconds:.0f}")
        made.add_row(row.case, row.status, *numbers, text)
    console.print(made)
    right = sum(row.success for row in rows)
    console.print(f"{right} of {len(rows)} motions are right, within {rows[0].tolerance:g}; worst {_worst(rows)}")


def _worst(rows: Sequence[Agreement]) -> str:
    """The largest errors of all, and the median time."""
    states, events = ([getattr(row, name) for row in rows] for name in ("error", "event_error"))
    known = [value for value in events if np.isfinite(value)]
    event = f", of an event {max(known):.1e} s" if known else ""
    milliseconds = np.median([row.milliseconds for row in rows])
    return f"error of a state {np.max(states):.1e}{event}; median {milliseconds:.0f} ms per simulated second"


def _show_convergences(console: Console, rows: Sequence[Convergence]) -> None:
    columns = ("order", "found", "steps", "differences", "events", "FESD-J [s]", "referee [s]", "ratio")
    made = table("motion", *columns, title="FESD-J against the referee: differences of the states at the end, times")
    for row in rows:
        order = "rounding" if row.order is None else f"{row.order:.2f}"
        times = (", ".join(f"{second:.2f}" for second in row.seconds), f"{row.referee_seconds:.2f}", f"{row.ratio:.1f}")
        steps, differences = ", ".join(map(str, row.steps)), ", ".join(_number(value) for value in row.differences)
        events = "same" if row.events_agree else "differ"
        made.add_row(row.case, str(row.nominal), order, steps, differences, events, *times)
    console.print(made)
    console.print("ratio: of the times of FESD-J with the most steps and of the referee")


def _show_certificates(console: Console, found: Findings) -> None:
    columns = ("objective", "true", "end state", "worst", "median", "verdict", "solve [s]", "referee [s]")
    made = table("solution", *columns, title="certificates: errors of the end state, and of the windows")
    for row in found.certificates:
        c, label = row.certificate, f"  {row.wrong}" if row.wrong else row.label
        errors = (c.end_state_error, row.largest_defect, row.median_defect)
        times = ("" if row.wrong else f"{row.seconds:.1f}", f"{c.seconds:.2f}")
        made.add_row(
            escape(label), f"{c.objective:.6g}", f"{c.true_objective:.6g}", *map(_number, errors), _said(row), *times
        )
    console.print(made)
    for row in found.certificates:
        if row.wrong:
            console.print(f"{row.label}, {row.wrong}: {row.certificate.reason}", markup=False)
    coarsest = found.grids[:1]
    for row in (*(row for row in found.certificates if not row.wrong and row not in found.grids), *coarsest):
        console.print(f"\n{row.label}\n{row.certificate}", markup=False)


def _said(row: Certified) -> str:
    """The verdict in a word, and the status of a solution that is none."""
    verdict = row.certificate.verdict.value.split(", ")[-1]
    return verdict if row.solution.success else f"{verdict} ({row.solution.status})"


def _number(value: float) -> str:
    return f"{value:.1e}" if np.isfinite(value) else "-"


def _drawing() -> Any:
    from problems.drawing import referee  # matplotlib is slow to import and not needed with --json

    return referee


PROGRAM = program(__name__, run, experiment, quick=QUICK, method=METHOD, solver=REFEREE, fixed=("control_stages",))
