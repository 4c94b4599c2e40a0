"""Still pictures of motions: several moments over each other, or side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from matplotlib.figure import Figure

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import OptionError, check_type, unknown_name
from nosnoc_py.plotting.animation import LINE, SYSTEMS, AnyPainter, line_above, stage
from nosnoc_py.plotting.bodies import BodyPainter
from nosnoc_py.plotting.film import check_size
from nosnoc_py.plotting.painter import TITLE, Painter, legend_above, rows_of
from nosnoc_py.plotting.planar import PlanarMotion
from nosnoc_py.plotting.sheets import finished, new_figure, titled
from nosnoc_py.solution.arrays import Array
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.rigid_body import RigidBody

Arrangement = Literal["strobe", "panels"]

COUNT = {"strobe": 9, "panels": 6}  # moments, unless they are given
FAINT = 0.18  # opacity of the earliest moment
PANEL, BESIDE = 2.6, 0.55  # inches: greater side of a panel, around a panel


@named_arguments
def snapshots(
    system: Described,
    trajectory: Trajectory,
    times: Sequence[float] | Array | None = None,
    *,
    arrangement: Arrangement = "strobe",
    path: str | Path | None = None,
    title: str | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draw a system at several moments, with the places of all events.

    Parameters
    ----------
    system, trajectory
        As in `animate`.
    times : sequence of float, optional
        Moments [s]; by default equally spaced over the motion.
    arrangement : {"strobe", "panels"}
        All moments over each other, early ones pale, or each in a panel of its own.
    path
        Where to save a `.png`, `.pdf` or `.svg`; folders are made.
    size
        Width and height in inches.

    Raises
    ------
    OptionError
        As `animate`, and for times outside of the motion.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> shapes = [ns.scene.Disc(ca.vertcat(0, q + 0.1), 0.1), ns.scene.Ground(height=0)]
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q)], scene=shapes)
    >>> figure = ns.snapshots(ball, ns.simulate(ball, x0=[1.0, 0.0], duration=0.6), times=[0.0, 0.3, 0.6])
    >>> len(figure.axes)
    1
    """
    check_type(system, SYSTEMS, "system")
    check_type(trajectory, Trajectory, "trajectory")
    if arrangement not in get_args(Arrangement):
        raise OptionError(unknown_name(str(arrangement), get_args(Arrangement), "arrangement"))
    if size is not None:
        check_size(size)
    moments, title = _moments(trajectory, times, COUNT[arrangement]), titled(title, trajectory)
    painter: AnyPainter
    if isinstance(system, RigidBody):
        painter = BodyPainter(system, trajectory)
    else:
        painter = Painter(PlanarMotion(system, trajectory))
    figure = (_strobe if arrangement == "strobe" else _panels)(painter, moments, size, title)
    return finished(figure, None, path)


def _moments(trajectory: Trajectory, times: Sequence[float] | Array | None, count: int) -> Array:
    start, end = trajectory.t0, trajectory.t0 + trajectory.duration
    if times is None:
        if not end > start:
            raise OptionError(
                f"the motion has no duration (t = {start:g} s): give times=[{start:g}] for a still picture."
            )
        return np.linspace(start, end, count)
    try:
        moments = np.atleast_1d(np.asarray(times, dtype=float))
    except (TypeError, ValueError):
        moments = np.zeros(0)
    # Times that a user computed may miss the ends by round-off.
    slack = 1e-9 * max(1.0, abs(end))
    if moments.ndim != 1 or not moments.size or not ((moments >= start - slack) & (moments <= end + slack)).all():
        raise OptionError(f"times: expected one or more from {start:g} to {end:g} s, given {times!r}.")
    return np.sort(np.clip(moments, start, end))


def _opacities(count: int) -> Array:
    return np.linspace(FAINT, 1.0, count) if count > 1 else np.ones(1)


def _times_text(moments: Array, unit: str) -> str:
    """Return the text on the times of a picture that shows several."""
    if len(moments) < 4:
        return f"t = {', '.join(f'{t:.3g}' for t in moments)} {unit}"
    if np.allclose(np.diff(moments), moments[1] - moments[0]):
        return f"t = {moments[0]:.3g}, {moments[1]:.3g}, ..., {moments[-1]:.3g} {unit}, the later the darker"
    return f"t = {moments[0]:.3g} ... {moments[-1]:.3g} {unit}, {len(moments)} moments, the later the darker"


def _strobe(painter: AnyPainter, moments: Array, size: tuple[float, float] | None, title: str | None) -> Figure:
    figure, axes, painter = stage(painter, size, title)
    painter.draw_strobe(axes, moments, _opacities(len(moments)))
    line_above(axes, "left").set_text(_times_text(moments, painter.trajectory.units.get("t", "s")))
    return figure


def _panels(painter: AnyPainter, moments: Array, size: tuple[float, float] | None, title: str | None) -> Figure:
    """Rows and columns of panels with the same scales."""
    ratio = painter.ratio
    wide, high = (PANEL, PANEL * ratio) if ratio < 1.0 else (PANEL / ratio, PANEL)
    columns = int(np.clip(round(np.sqrt(len(moments) * high / wide)), 1, len(moments)))
    # Wide pictures in three columns at least, upright ones in a row of six at most.
    columns = min(len(moments), max(columns, 3)) if high < 1.5 * wide else min(len(moments), 6)
    rows = -(-len(moments) // columns)
    handles, beside = painter.handles(), BESIDE if any(painter.margins) else 0.0
    width = size[0] if size else columns * (wide + beside)
    head = LINE * rows_of(handles, width) + 0.1 + (TITLE if title else 0.0)
    height = size[1] if size else rows * (high + beside + 0.15) + head
    figure = new_figure(width, height, layout=None)
    share = head / height
    cell = 1.0 / columns, (1.0 - share) / rows
    across, up = (cell[0] * width - beside) / width, (cell[1] * height - beside - 0.15) / height
    # Equal scales in x and y: the view is widened to the shape of the panel.
    painter = painter.fitted(up * height / (across * width))
    for k, t in enumerate(moments):
        row, column = divmod(k, columns)
        left, low = column * cell[0] + 0.8 * beside / width, 1.0 - share - (row + 1) * cell[1] + 0.75 * beside / height
        axes = painter.axes(figure, (left, low, across, up))
        axes.xaxis.label.set_visible(row == rows - 1)
        axes.yaxis.label.set_visible(column == 0)
        axes.set_title(f"t = {t:.3g} {painter.trajectory.units.get('t', 's')}", fontsize=8, pad=3)
        painter.draw(axes, float(t), flash=1e-12)
    legend_above(figure, handles, title)
    return figure
