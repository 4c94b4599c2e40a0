"""Still pictures of motions: several moments over each other, or side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from matplotlib.figure import Figure

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import OptionError, check_type, unknown_name
from nosnoc_py.plotting.animation import LINE, SYSTEMS, stage
from nosnoc_py.plotting.bodies import check_motion, draw_body, draw_way, impact_places, mark
from nosnoc_py.plotting.film import check_size
from nosnoc_py.plotting.meshes import meshes_of
from nosnoc_py.plotting.painter import TITLE, Painter, legend_above, rows_of
from nosnoc_py.plotting.planar import PlanarMotion
from nosnoc_py.plotting.scenes import scene
from nosnoc_py.plotting.sheets import finished, new_figure, titled
from nosnoc_py.solution.arrays import Array
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.rigid_body import RigidBody

Arrangement = Literal["strobe", "panels"]

COUNT = {"strobe": 9, "panels": 6}  # moments, unless they are given
FAINT = 0.18  # opacity of the earliest moment
PANEL, SPACE, BESIDE = 2.6, 3.0, 0.55  # inches: greater side of a panel, of one for bodies in space, around a panel


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
    if isinstance(system, RigidBody):
        figure = (_space_strobe if arrangement == "strobe" else _space_panels)(system, trajectory, moments, size, title)
    else:
        motion = PlanarMotion(system, trajectory)
        figure = (_strobe if arrangement == "strobe" else _panels)(motion, moments, size, title)
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


def _strobe(motion: PlanarMotion, moments: Array, size: tuple[float, float] | None, title: str | None) -> Figure:
    figure, axes, painter = stage(motion, size, title)
    painter.draw_strobe(axes, moments, _opacities(len(moments)))
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    text = _times_text(moments, motion.trajectory.units.get("t", "s"))
    axes.annotate(text, (0.0, 1.0), xytext=(0, 4), fontsize=8, va="bottom", **place)
    return figure


def _panels(motion: PlanarMotion, moments: Array, size: tuple[float, float] | None, title: str | None) -> Figure:
    """Rows and columns of panels with the same scales."""
    view = motion.view
    wide, high = (PANEL, PANEL * view.ratio) if view.ratio < 1.0 else (PANEL / view.ratio, PANEL)
    columns = int(np.clip(round(np.sqrt(len(moments) * high / wide)), 1, len(moments)))
    # Wide pictures in three columns at least, upright ones in a row of six at most.
    columns = min(len(moments), max(columns, 3)) if high < 1.5 * wide else min(len(moments), 6)
    rows = -(-len(moments) // columns)
    handles = Painter(motion, view).handles()
    width = size[0] if size else columns * (wide + BESIDE)
    head = LINE * rows_of(handles, width) + 0.1 + (TITLE if title else 0.0)
    height = size[1] if size else rows * (high + BESIDE + 0.15) + head
    figure = new_figure(width, height, layout=None)
    share = head / height
    cell = 1.0 / columns, (1.0 - share) / rows
    across, up = (cell[0] * width - BESIDE) / width, (cell[1] * height - BESIDE - 0.15) / height
    # Equal scales in x and y: the view is widened to the shape of the panel.
    painter = Painter(motion, view.with_ratio(up * height / (across * width)))
    for k, t in enumerate(moments):
        row, column = divmod(k, columns)
        left, low = column * cell[0] + 0.8 * BESIDE / width, 1.0 - share - (row + 1) * cell[1] + 0.75 * BESIDE / height
        axes = figure.add_axes((left, low, across, up))
        painter.prepare(axes)
        axes.xaxis.label.set_visible(row == rows - 1)
        axes.yaxis.label.set_visible(column == 0)
        axes.set_title(f"t = {t:.3g} {motion.trajectory.units.get('t', 's')}", fontsize=8, pad=3)
        painter.draw(axes, float(t), flash=1e-12)
    legend_above(figure, handles, title)
    return figure


def _space_strobe(body: RigidBody, trajectory: Trajectory, moments: Array, size: Any, title: str | None) -> Figure:
    check_motion(trajectory)
    width, height = size or (6.4, 4.0)
    figure = new_figure(width, height, layout=None)
    axes = scene(figure.add_axes((0.0, 0.0, 1.0, 0.94), projection="3d"), body, [trajectory])
    meshes = meshes_of(body.shape, 16)
    draw_way(axes, trajectory.x[:, :3])
    mark(axes, impact_places(body, trajectory))
    for t, opacity in zip(moments, _opacities(len(moments)), strict=True):
        draw_body(axes, body, meshes, trajectory(float(t)), opacity=float(opacity))
    figure.text(0.03, 0.97, f"{_times_text(moments, 's')}; impacts: ×", fontsize=8, va="top")
    if title:
        figure.suptitle(title, fontsize=10, x=0.97, y=0.985, ha="right", va="top")
    return figure


def _space_panels(body: RigidBody, trajectory: Trajectory, moments: Array, size: Any, title: str | None) -> Figure:
    check_motion(trajectory)
    columns = min(3, len(moments))
    rows = -(-len(moments) // columns)
    width, height = size or (SPACE * columns, 0.8 * SPACE * rows + (TITLE if title else 0.0))
    figure = new_figure(width, height, layout=None)
    legend_above(figure, [], title)
    top = 1.0 - (TITLE / figure.get_figheight() if title else 0.0)
    high = top / rows
    meshes, places = meshes_of(body.shape, 16), impact_places(body, trajectory)
    for k, t in enumerate(moments):
        row, column = divmod(k, columns)
        box = (column / columns, top - (row + 1) * high, 1.0 / columns, 0.94 * high)
        axes = scene(figure.add_axes(box, projection="3d"), body, [trajectory])
        draw_body(axes, body, meshes, trajectory(float(t)))
        mark(axes, places[: sum(event.time <= t for event in trajectory.impacts)])
        figure.text((column + 0.05) / columns, top - (row + 0.04) * high, f"t = {t:.3g} s", fontsize=8, va="top")
    return figure
