"""Still pictures of motions: several moments over each other, or side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from matplotlib.figure import Figure

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import OptionError, check_type, unknown_name
from nosnoc_py.plotting.animation import SYSTEMS, AnyPainter, stage
from nosnoc_py.plotting.bodies import BodyPainter
from nosnoc_py.plotting.film import check_size
from nosnoc_py.plotting.painter import Painter
from nosnoc_py.plotting.planar import PlanarMotion
from nosnoc_py.plotting.sheets import finished, titled
from nosnoc_py.solution.arrays import Array
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.rigid_body import RigidBody

Arrangement = Literal["strobe", "panels"]

COUNT = {"strobe": 9, "panels": 6}  # moments, unless they are given
FAINT = 0.18  # opacity of the earliest moment
PANEL = 2.6  # inches: width of a panel


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
    figure, (axes,) = stage(painter, size, title)
    painter.draw_strobe(axes, moments, _opacities(len(moments)))
    axes.set_title(_times_text(moments, painter.trajectory.units.get("t", "s")), loc="left", fontsize=8)
    return figure


def _panels(painter: AnyPainter, moments: Array, size: tuple[float, float] | None, title: str | None) -> Figure:
    """Rows and columns of panels with the same scales."""
    count, ratio = len(moments), painter.ratio
    columns = int(np.clip(round(np.sqrt(count * ratio)), 1, count))
    # Wide pictures in three columns at least, upright ones in a row of six at most.
    columns = min(count, max(columns, 3)) if ratio < 1.5 else min(count, 6)
    figure, grid = stage(painter, size, title, shape=(-(-count // columns), columns), picture=PANEL)
    for k, (axes, t) in enumerate(zip(grid, moments, strict=False)):
        axes.xaxis.label.set_visible(k + columns >= count)
        axes.yaxis.label.set_visible(k % columns == 0)
        axes.set_title(f"t = {t:.3g} {painter.trajectory.units.get('t', 's')}", loc="left", fontsize=8)
        painter.draw(axes, float(t), flash=1e-12)
    for axes in grid[count:]:
        axes.remove()
    return figure
