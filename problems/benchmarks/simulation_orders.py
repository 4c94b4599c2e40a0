"""Orders of all simulators: `python -m problems.benchmarks.simulation_orders`.

The error of the state at the end over the number of steps, for finite elements with Radau IIA and Gauss-Legendre, the
same with fixed steps, time-stepping, and, as a line, event-driven simulation: on the two balls with a spring (impacts)
and on the oscillator that turns around at a circle (a switch). The spring is softer than in the paper, so that methods
of first order show theirs on these grids, too.

`--set part=two_balls` counts instead the steps of the two balls with the stiff spring of the paper that fail or fall
back to an MPCC, over schemes and step lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from problems.benchmarks.simulation_curves import FAMILIES, Curve, Panel, by_elements, circle, panel_of, two_balls
from problems.runner import Meter, Report, program, table
from problems.settings import Settings

PARTS = ("all", "orders", "two_balls")
SOFT = 100.0  # [N/m]
# Schemes and stages for which no step of the two balls may fail, from 100 steps on. Radau IIA with one stage is not
# among them: on the stiff spring some of its long steps have no solution.
RELIABLE = (
    *(("radau_iia", stages) for stages in (2, 3, 4)),
    *(("gauss_legendre", stages) for stages in (1, 2, 3, 4)),
)
QUICK = {
    "stages": (2, 3),
    "contact_steps": (100, 141, 200, 283),
    "switch_steps": (27, 38, 49),
    "fixed_steps": (27,),
    "counted_steps": (100,),
}


@dataclass(frozen=True, kw_only=True)
class Count:
    """Steps of the two balls that failed, or fell back to an MPCC, in a simulation of so many steps."""

    scheme: str
    rk_stages: int
    steps: int
    failed: int
    fallbacks: int
    error: float


def counts(steps: Sequence[int], progress: Progress) -> Iterator[Count]:
    """The experiment of the two balls, scheme by scheme."""
    example = two_balls()
    for scheme, stages in RELIABLE:
        for count in steps:
            progress.describe(f"{FAMILIES[scheme]} {stages}, {count} steps")
            trajectory, fallbacks = by_elements(example, count, scheme=scheme, rk_stages=stages)
            failed = int(not trajectory.success)
            error = example.error(trajectory)
            yield Count(scheme=scheme, rk_stages=stages, steps=count, failed=failed, fallbacks=fallbacks, error=error)


def experiment(
    part: str = "all",
    stages: tuple[int, ...] = (1, 2, 3),
    contact_steps: tuple[int, ...] = (50, 71, 100, 141, 200, 283, 400, 566, 800, 1131),
    switch_steps: tuple[int, ...] = (27, 38, 49, 71, 104, 159, 236),
    fixed_steps: tuple[int, ...] = (27, 49, 104),
    counted_steps: tuple[int, ...] = (100, 200, 400, 800),
    *,
    progress: Progress,
) -> tuple[tuple[Panel, ...], tuple[Count, ...]]:
    """Both panels, and the counts of the two balls.

    Parameters
    ----------
    part : {"all", "orders", "two_balls"}
    stages : tuple of int
        Of the finite elements that find events.
    contact_steps, switch_steps : tuple of int
        Numbers of steps of the two balls and of the oscillator.
    fixed_steps : tuple of int
        Those with fixed steps, which are MPCCs: of the oscillator, and four times as many of the two balls.
    counted_steps : tuple of int
        Of the two balls, whose failed steps are counted.
    """
    if part not in PARTS:
        raise OptionError(unknown_name(part, PARTS, "part"))
    panels: tuple[Panel, ...] = ()
    if part != "two_balls":
        longer = [4 * count for count in fixed_steps]
        contact = panel_of(two_balls(SOFT), stages, contact_steps, longer, progress)
        panels = (contact, panel_of(circle(), stages, switch_steps, fixed_steps, progress))
    found = () if part == "orders" else tuple(counts(counted_steps, progress))
    return panels, found


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment, and simulate the two balls once more for the numbers that all problems give."""
    meter = Meter(progress)
    trajectory, _ = by_elements(two_balls(), 200, meter, rk_stages=3)
    panels, found = experiment(**settings.arguments, progress=progress)
    success = trajectory.success and not any(count.failed or count.fallbacks for count in found)
    success = success and not any(curve.failures for panel in panels for curve in panel.curves if _must_converge(curve))
    return Report(
        results={**meter.results(trajectory), **_results(panels, found, success)},
        success=success,
        show=lambda console: _show(console, panels, found),
        figures={"simulation_orders.png": lambda path: _drawing().orders(panels, path)} if panels else {},
    )


def _must_converge(curve: Curve) -> bool:
    return curve.kind == "time-stepping" or (curve.kind == "elements" and curve.nominal > 1)


def _results(panels: Sequence[Panel], found: Sequence[Count], success: bool) -> dict[str, Any]:
    return {
        "status": (ns.Status.SOLVED if success else ns.Status.STEP_FAILED).value,
        "orders": {panel.title: {curve.label: curve.order for curve in panel.curves} for panel in panels},
        "event_driven_errors": {panel.title: panel.rounding for panel in panels},
        "curves": {panel.title: [curve.to_dict() for curve in panel.curves] for panel in panels},
        "failed_steps": sum(count.failed for count in found),
        "fallback_steps": sum(count.fallbacks for count in found),
        "counted_steps": sum(count.steps for count in found),
        "counts": [vars(count) for count in found],
    }


def _show(console: Console, panels: Sequence[Panel], found: Sequence[Count]) -> None:
    for panel in panels:
        _show_panel(console, panel)
    if found:
        _show_counts(console, found)


def _show_panel(console: Console, panel: Panel) -> None:
    made = table("method", "order", "fitted", "fallbacks", "errors, from few to many steps", title=panel.title)
    for curve in panel.curves:
        order = "-" if curve.order is None else f"{curve.order:.2f}"
        errors = " ".join("failed" if np.isnan(error) else f"{error:.0e}" for error in curve.errors)
        fallbacks = "-" if curve.kind != "elements" else str(sum(curve.fallbacks))
        made.add_row(curve.label, str(curve.nominal or "none"), order, fallbacks, errors)
    console.print(made)
    console.print(f"event-driven: {panel.rounding:.1e}")


def _show_counts(console: Console, found: Sequence[Count]) -> None:
    made = table("two balls", "steps", "failed", "fallbacks", "error [m, m/s]")
    for count in found:
        row = (str(count.steps), str(count.failed), str(count.fallbacks), f"{count.error:.1e}")
        made.add_row(f"{FAMILIES[count.scheme]} {count.rk_stages}", *row)
    console.print(made)
    total = (sum(count.steps for count in found), sum(count.failed for count in found))
    console.print(f"of {total[0]} steps {total[1]} failed, {sum(count.fallbacks for count in found)} fell back")


def _drawing() -> Any:
    from problems.drawing import simulation  # matplotlib is slow to import and not needed with --json

    return simulation


PROGRAM = program(__name__, run, experiment, quick=QUICK)
