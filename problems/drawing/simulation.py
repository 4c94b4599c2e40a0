"""How fast simulations are, what they cost for their precision, and the orders of all methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from problems.benchmarks.simulation_work import front
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

if TYPE_CHECKING:
    from problems.benchmarks.simulation_curves import Curve, Panel
    from problems.benchmarks.simulation_timing import Row
    from problems.benchmarks.simulation_work import Run

MARKERS = "os^Dv"


def speedups(rows: Sequence[Row], aim: float, path: Path) -> None:
    """Draw how many times faster a step of Newton's method is than one of the homotopies, case by case."""
    made = figure(6.4, 0.42 * len(rows) + 1.6)
    axes = made.subplots()
    at = np.arange(len(rows))[::-1]
    names = ("speedup", "speedup_tight", "speedup_relaxed")
    fast, tight, relaxed = ([getattr(row, name) for row in rows] for name in names)
    axes.axvline(aim, color=GREY, lw=0.9, ls=(0, (4, 2)), zorder=1)
    axes.plot(fast, at, "o", color=COLOURS[0], ms=6.5, label="ns.Homotopy()")
    axes.plot(tight, at, "D", color=COLOURS[1], ms=6.0, mfc="none", mew=1.4, label="to exact residuals")
    axes.plot(relaxed, at, "s", color=COLOURS[2], ms=6.0, mfc="none", mew=1.4, label="without finish")
    for row, y, value in zip(rows, at, fast, strict=True):
        said = f"{row.milliseconds['newton']:.2f} against {row.milliseconds['homotopy']:.0f} ms"
        place = (max(value, row.speedup_tight, row.speedup_relaxed), y)
        axes.annotate(said, place, (9, 0), textcoords="offset points", va="center", fontsize=8, color="#555555")
    axes.set_xscale("log")
    low, high = min(aim, *fast, *tight), max(*fast, *tight, *relaxed)
    axes.set_xlim(low / 1.3, high * 2.6)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_yticks(at, [row.case for row in rows])
    ticks = [tick for tick in (20, 30, 50, 100, 200, 300, 500, 1000) if low / 1.3 <= tick <= high * 2.6]
    axes.set_xticks(ticks, [f"{tick}" for tick in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("time per step of the MPCC over that of active-set Newton [-]")
    tidy(axes, "x")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=9)
    save(made, path)


def work_precision(examples: Sequence[Sequence[Run]], path: Path) -> None:
    """Draw the error at the end over the time per simulated second, a panel per example."""
    made = figure(4.7 * len(examples), 4.4)
    panels = made.subplots(1, len(examples), squeeze=False)[0]
    for axes, runs in zip(panels, examples, strict=True):
        for i, stages in enumerate(sorted({run.rk_stages for run in runs})):
            found = front([run for run in runs if run.rk_stages == stages])
            errors = np.maximum([run.error for run in found], 1e-16)  # what is exact shows at the lower edge
            label = f"FESD, $n_s = {stages}$" if stages else "DOP853 with events"
            colour, dash = (COLOURS[i - 1], "-") if stages else ("black", "--")
            times = [run.milliseconds for run in found]
            fill = colour if stages else "white"
            axes.plot(times, errors, color=colour, ls=dash, mfc=fill, marker=MARKERS[i % 5], ms=5, lw=1.3, label=label)
        axes.set(xscale="log", yscale="log", title=runs[0].example)
        axes.set_xlabel("time per simulated second [ms/s]")
        axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        tidy(axes)
        axes.legend(frameon=False, fontsize=8.5)
    panels[0].set_ylabel("largest error of the state at the end [SI units]")
    save(made, path)


def orders(panels: Sequence[Panel], path: Path) -> None:
    """Draw the errors of all methods over the number of steps, a panel per example."""
    made = figure(5.6 * len(panels), 6.4)
    for axes, panel in zip(made.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for curve in panel.curves:
            _curve(axes, curve)
        said = f"event-driven: {panel.rounding:.0e}"
        axes.axhline(max(panel.rounding, 1e-16), color="black", lw=1.0, ls=":", label=said)
        axes.set(xscale="log", yscale="log", title=panel.title, xlabel="number of steps [-]")
        axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylabel(f"largest error of the state at the end [{panel.units}]")
        tidy(axes)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False, fontsize=8)
    save(made, path)


def _curve(axes: Axes, curve: Curve) -> None:
    """Radau IIA full, Gauss open, a colour for every number of stages."""
    fitted = "" if curve.order is None else f": order {curve.order:.2f}"
    steps, errors = np.array(curve.steps), np.array(curve.errors)
    full = curve.scheme in ("radau_iia", "moreau_jean")
    if curve.kind == "elements":
        colour, marker, dash = COLOURS[curve.rk_stages - 1], MARKERS[curve.rk_stages - 1], "-" if full else "--"
    else:
        colour, dash = (GREY, ":") if curve.kind == "fixed" else (COLOURS[4], "-.")
        marker = "x" if full else "+"
    label, fill = f"{curve.label}{fitted}", colour if full else "white"
    axes.plot(steps, errors, color=colour, marker=marker, ls=dash, mfc=fill, lw=1.3, ms=5, label=label)
