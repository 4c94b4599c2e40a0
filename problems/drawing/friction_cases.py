"""The closed forms of friction: the error of every case."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from problems.drawing.style import COLOURS, figure, save, tidy

if TYPE_CHECKING:
    from problems.benchmarks.friction_cases import Row

FLOOR = 1e-17  # where exact zeros are drawn
MARKERS = "o^sDvP"


def errors(rows: Sequence[Row], path: Path) -> None:
    """Draw the errors of the states at the end (filled) and of the event times (empty), one line per case."""
    names = list(dict.fromkeys(row.case for row in rows))
    variants = list(dict.fromkeys((row.cone, row.impulse_form) for row in rows))
    made = figure(7.4, 1.6 + 0.17 * len(names))
    axes = made.subplots()
    for k, variant in enumerate(variants):
        chosen = [row for row in rows if (row.cone, row.impulse_form) == variant]
        places = np.array([names.index(row.case) for row in chosen]) + 0.25 * (k - 0.5 * (len(variants) - 1))
        style = {"ls": "", "marker": MARKERS[k % len(MARKERS)], "ms": 4, "color": COLOURS[k % len(COLOURS)]}
        label = f"{variant[0]}, {variant[1]}"
        axes.plot(_drawn([row.error for row in chosen]), places, **style, label=f"{label}: state at T")
        axes.plot(
            _drawn([row.event_error for row in chosen]), places, **style, mfc="none", label=f"{label}: events [s]"
        )
        for row, place in zip(chosen, places, strict=True):
            if not row.success:
                axes.annotate(_verdict(row), (1.0, place), xycoords=("axes fraction", "data"), fontsize=6, va="center")
    axes.set_xscale("log")
    axes.axvline(rows[0].tolerance, color="black", lw=0.8, ls=(0, (4, 2)))
    axes.set_yticks(range(len(names)), names, fontsize=6)
    axes.set_ylim(len(names) - 0.3, -0.7)
    axes.set_xlabel("error [m, m/s, s]; dashed: the tolerance; left edge: zero")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, fontsize=7, frameon=False)
    tidy(axes)
    axes.tick_params(axis="y", labelsize=6)
    save(made, path)


def _verdict(row: Row) -> str:
    return "no event" if row.status == "solved" and row.missing else row.status


def _drawn(values: Sequence[float]) -> np.ndarray:
    return np.maximum(np.array(values), FLOOR)
