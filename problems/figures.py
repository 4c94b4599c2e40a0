"""Figures as data: panels with curves. They are built without pyplot, so no display is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DASHED: dict[str, Any] = {"color": "black", "lw": 1.0, "ls": "--"}
DOTS: dict[str, Any] = {"ls": "", "marker": "o", "ms": 4}


@dataclass(frozen=True, eq=False)
class Curve:
    """Values over others; `style` are options of matplotlib's `plot`, `steps` whether x are the edges of steps."""

    x: Any
    y: Any
    label: str = ""
    style: Mapping[str, Any] = field(default_factory=dict)
    steps: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Panel:
    """Axes with curves.

    Parameters
    ----------
    curves : sequence of Curve
    title, x, y : str
        Title and labels.
    log : {"", "x", "y", "xy"}
        Which axes are logarithmic.
    levels, times : sequence of float
        Horizontal and vertical lines.
    equal : bool
        True if both axes have the same scale.
    """

    curves: Sequence[Curve]
    title: str = ""
    x: str = "$t$ [s]"
    y: str = ""
    log: str = ""
    levels: Sequence[float] = ()
    times: Sequence[float] = ()
    equal: bool = False


def chart(panels: Sequence[Panel], columns: int = 1) -> Any:
    """Return a figure with the panels in rows of so many columns."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(6.4 if columns == 1 else 4.4 * columns, 1.0 + 2.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for place, panel in zip(axes, panels, strict=False):
        _draw(place, panel)
    for place in axes[len(panels) :]:
        place.set_visible(False)
    return figure


def _draw(axes: Any, panel: Panel) -> None:
    from nosnoc_py.plotting.sheets import COLOURS, GREY

    for i, curve in enumerate(panel.curves):
        style = {"color": COLOURS[i % len(COLOURS)], "lw": 1.4, "label": curve.label or None, **curve.style}
        if curve.steps:
            axes.stairs(curve.y, curve.x, baseline=None, **style)
        else:
            axes.plot(curve.x, curve.y, **style)
    for level in panel.levels:
        axes.axhline(level, color=GREY, lw=0.8, ls=":")
    for time in panel.times:
        axes.axvline(time, color=GREY, lw=0.6, zorder=0)
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    axes.set(**{f"{axis}scale": "log" for axis in panel.log}, **({"aspect": "equal"} if panel.equal else {}))
    axes.grid(color="#E4E4E4", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if any(curve.label for curve in panel.curves):
        axes.legend(fontsize=8, frameon=False)
