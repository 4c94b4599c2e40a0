"""Common parts of figures: their look, axes of any size, titles, and writing to a file."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from nosnoc_py.errors import OptionError
from nosnoc_py.files import write_atomically
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.status import Verdict

# Okabe and Ito's colours, which differ for any colour vision; their yellow is left out, too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Dashes of several trajectories in one figure, and of lines that would hide each other.
DASHES = ("-", "--", ":", "-.")
GREY = "#8A8A8A"
DOTS_PER_INCH = 150
KINDS = (".png", ".pdf", ".svg")
LONG, POWER = 15, 5  # letters beside a panel that leave no room for the unit, and those that a power is worth
CONTRADICTING = (Verdict.REFUTED, Verdict.INACCURATE, Verdict.CONSTRAINT_BETWEEN_NODES)
COLUMN = 1.3  # inches of an entry of a legend
PLAIN = range(-2, 4)  # powers of ten of the largest number on an axis that is written as it is


def new_figure(width: float, height: float) -> Figure:
    """A figure of this size [inches] whose axes find their places."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes, legend: bool = True) -> None:
    """Give axes the look of all figures, and a legend beside them."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E4E4E4", lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    if legend:
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8, handlelength=1.6)


def scaled(axis: Axis, text: str, unit: str = "") -> str:
    """Return the label of an axis: its text and unit, with the power of ten of its numbers; in two lines if it is high.

    A power at the end of the axis, where matplotlib writes it, would overprint what is written there.
    """
    power = power_of(float(np.abs(axis.get_view_interval()).max()))
    formatter = ScalarFormatter(useOffset=False)
    if power:
        formatter.set_powerlimits((power, power))
        axis.get_offset_text().set_visible(False)
    else:
        formatter.set_scientific(False)
    axis.set_major_formatter(formatter)
    inside = " ".join(part for part in (f"$10^{{{power}}}$" if power else "", unit) if part)
    high = axis.axis_name == "y" and len(text) + (POWER if power else 0) >= LONG
    space = ("\n" if high else " ") if text else ""
    return f"{text}{space}[{inside}]" if inside else text


def power_of(largest: float) -> int:
    """The power of ten, a multiple of three, that numbers up to the largest are written with."""
    exponent = int(np.floor(np.log10(largest))) if 0.0 < largest < np.inf else 0
    return 0 if exponent in PLAIN else 3 * (exponent // 3)


def legend_below(figure: Figure, handles: Sequence[Any], size: int) -> None:
    """A legend below all axes, with letters of a size, in as many lines as it needs."""
    if handles:
        columns = int(np.clip(figure.get_figwidth() / COLUMN, 1, len(handles)))
        look = {"fontsize": size, "frameon": False, "handlelength": 1.4, "columnspacing": 1.2, "borderaxespad": 0.1}
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, **look)


def titled(title: str | None, trajectory: Trajectory) -> str | None:
    """The title, with the status of a motion that has failed, or the verdict of a certificate that contradicts it."""
    said = [] if trajectory.success else [str(trajectory.status)]
    certificate = getattr(trajectory, "certificate", None)
    if certificate is not None and certificate.verdict in CONTRADICTING:
        said.append(f"certificate: {certificate.verdict}")
    if not said:
        return title
    return f"{title} ({', '.join(said)})" if title else ", ".join(said)


def finished(figure: Figure, title: str | None, path: str | Path | None) -> Figure:
    """Write the title, and the file if there is a path for it.

    Raises
    ------
    OptionError
        For another kind of file than `.png`, `.pdf` and `.svg`, or a place that cannot be written.
    """
    if title:
        figure.suptitle(title)
    if path is not None:
        _write(figure, Path(path))
    return figure


def _write(figure: Figure, path: Path) -> None:
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise OptionError(f"{path.name or path}: expected a file {', '.join(KINDS[:-1])} or {KINDS[-1]}.")
    data = BytesIO()
    figure.savefig(data, dpi=DOTS_PER_INCH, format=kind[1:])
    write_file(path, data.getvalue())


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole, in a folder that is made; `OptionError` where nothing can be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise OptionError(f"{path}: nothing can be written there ({error.strerror}); give another path.") from None
