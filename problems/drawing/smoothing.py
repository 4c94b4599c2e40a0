"""The price of smoothing: how far the found control really leads from its claim, and the time, over sigma."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from problems.drawing.style import COLOURS, figure, save, tidy

if TYPE_CHECKING:
    from problems.benchmarks.smoothing import Comparison, Row

MARKERS = "os^D"
EXACT = 1e-12  # what is exact shows at the lower edge


def costs(found: Sequence[Comparison], path: Path) -> None:
    """Draw a row of panels per task: error of the end state, largest violation, and time, over sigma."""
    from problems.benchmarks.smoothing import error_of

    quantities: tuple[tuple[str, Callable[[Row], float]], ...] = (
        ("error of the end state [SI units]", error_of),
        ("violation by the true motion", lambda row: row.violation),
        ("time [s]", lambda row: row.solution.wall_seconds),
    )
    made = figure(11.0, 3.4 * len(found) + 0.4)
    panels = made.subplots(len(found), len(quantities), squeeze=False)
    for row, one in zip(panels, found, strict=True):
        for axes, (label, quantity) in zip(row, quantities, strict=True):
            _panel(axes, one, quantity)
            axes.set(ylabel=label, xlabel=r"smoothing $\sigma$ that is left [-]")
        failed = [other.method for other in one.rows if not (other.steps or other.solution.success)]
        title = f"{one.task}; not solved: {', '.join(failed)}" if failed else one.task
        row[0].set_title(title, fontsize=10, loc="left")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    made.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    save(made, path)


def _panel(axes: Axes, one: Comparison, quantity: Callable[[Row], float]) -> None:
    from problems.benchmarks.smoothing import smoothed_rows

    for i, steps in enumerate(sorted({row.steps for row in one.rows if row.steps})):
        rows = smoothed_rows(one.rows, steps)
        values = [max(quantity(row), EXACT) for row in rows]
        sigmas = [row.sigma for row in rows]
        label = f"smoothed, {steps} steps per stage"
        axes.plot(sigmas, values, color=COLOURS[i], marker=MARKERS[i % 4], ms=5, lw=1.3, label=label)
    others = [row for row in one.rows if not row.steps]
    for row, dash in zip(others, ("-", "--", ":"), strict=True):
        value = quantity(row)
        if np.isfinite(value):
            axes.axhline(max(value, EXACT), color="black", lw=1.1, ls=dash, label=row.method)
    axes.set(xscale="log", yscale="log")
    axes.invert_xaxis()
    axes.yaxis.set_minor_formatter(NullFormatter())
    tidy(axes)
