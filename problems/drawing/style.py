"""What all figures of the problems share; built without pyplot, so nothing needs a display."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nosnoc_py.plotting.figures import COLOURS, GREY

__all__ = ["COLOURS", "GREY", "figure", "save", "tidy"]

DOTS_PER_INCH = 150


def figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def tidy(axes: Axes, grid: str = "both") -> None:
    """Remove the frame, draw a faint grid behind the curves."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#E4E4E4", lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)


def save(made: Figure, path: Path) -> None:
    """Write a PNG."""
    made.savefig(path, dpi=DOTS_PER_INCH, format="png")
