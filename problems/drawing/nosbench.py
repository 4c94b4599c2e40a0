"""The benchmark of MPCC solvers: performance profiles, and the ratios of time problem by problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from problems.benchmarks.nosbench_report import Ratio, geometric_mean
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

VERDICTS = {"same": "same objective", "better": "better objective", "worse": "worse objective"}


def profile(ratios: Mapping[str, np.ndarray], path: Path) -> None:
    """Draw the fraction of problems that each solver solves within a factor of the best time, over that factor."""
    made = figure(6.4, 4.2)
    axes = made.subplots()
    finite = np.concatenate([values[np.isfinite(values)] for values in ratios.values()])
    right = max(1.0, np.log2(finite.max(initial=1.0))) * 1.05
    for k, (solver, values) in enumerate(ratios.items()):
        solved = values[np.isfinite(values)]
        x = np.concatenate([[0.0], np.log2(solved), [right]])
        y = np.concatenate([[0.0], np.arange(1, solved.size + 1), [solved.size]]) / values.size
        label = f"{solver}: {solved.size} of {values.size} solved"
        axes.plot(x, y, drawstyle="steps-post", color=COLOURS[k % len(COLOURS)], lw=1.8, label=label)
    axes.set_xlim(-0.01 * right, right)
    axes.set_ylim(0.0, 1.03)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{2.0**value:g}"))
    axes.set_xlabel(r"factor $\tau$ of the best time (log$_2$ axis)")
    axes.set_ylabel(r"fraction of problems solved within $\tau$")
    tidy(axes)
    axes.legend(loc="lower right", fontsize=9, frameon=False)
    save(made, path)


def ratios(found: Sequence[Ratio], reference: str, solver: str, path: Path) -> None:
    """Draw one bar per problem that both solve; colours tell whose objective is better."""
    made = figure(7.2, 1.4 + 0.2 * len(found))
    axes = made.subplots()
    colours = dict(zip(VERDICTS, (GREY, COLOURS[0], COLOURS[1]), strict=True))
    values = np.array([item.ratio for item in found])
    axes.barh(range(len(found)), np.log2(values), color=[colours[item.objective] for item in found], height=0.7)
    mean = geometric_mean(values.tolist())
    axes.axvline(0.0, color="black", lw=0.8)
    axes.axvline(np.log2(mean), color="black", lw=0.9, ls=(0, (4, 2)))
    axes.set_yticks(range(len(found)), [item.problem for item in found], fontsize=7)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{2.0**value:g}"))
    axes.set_xlabel(f"time of {reference} / time of {solver} (log$_2$ axis; right of 1: {solver} is faster)")
    handles = [
        Line2D([], [], color=colours[key], lw=6, label=f"{label} of {solver}") for key, label in VERDICTS.items()
    ]
    handles.append(Line2D([], [], color="black", lw=0.9, ls=(0, (4, 2)), label=f"geometric mean {mean:.2f}"))
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, fontsize=8, frameon=False)
    tidy(axes, "x")
    axes.tick_params(axis="y", labelsize=7)
    save(made, path)
