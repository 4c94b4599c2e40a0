"""Phase portraits: one quantity over another, with the events by kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nosnoc_py.errors import UnknownNameError, check_type
from nosnoc_py.plotting.figures import COLOURS, dense_output
from nosnoc_py.plotting.sheets import finished, new_figure, scaled, tidy, titled
from nosnoc_py.solution.trajectory import Trajectory

Array = npt.NDArray[np.float64]

# Marker and colour of every kind of event: told apart by their form, too.
EVENTS: dict[str, tuple[str, str]] = {
    "impact": ("x", COLOURS[1]),
    "contact": ("v", COLOURS[2]),
    "release": ("^", COLOURS[2]),
    "slip": (">", COLOURS[3]),
    "stick": ("s", COLOURS[3]),
    "reversal": ("D", COLOURS[3]),
    "switch": ("o", COLOURS[4]),
    "enter_sliding": ("<", COLOURS[5]),
    "leave_sliding": ("P", COLOURS[5]),
}


def plot_phase(
    trajectory: Trajectory, x: str, y: str, *, path: str | Path | None = None, title: str | None = None
) -> Figure:
    """Draw one state over another, jumps dotted, with a mark at the state before and after every event.

    Parameters
    ----------
    trajectory
        A trajectory or a solution.
    x, y
        Names of states.
    path
        Where to save a `.png`, `.pdf` or `.svg`; folders are made.

    Raises
    ------
    UnknownNameError
        If a name is not one of a state.
    """
    check_type(trajectory, Trajectory, "trajectory")
    for name in (x, y):
        if name not in trajectory.state_names:
            raise UnknownNameError(name, trajectory.state_names, "state")
    columns = [trajectory.state_names.index(name) for name in (x, y)]
    figure = new_figure(5.6, 4.2)
    axes = figure.subplots()
    axes.plot(*dense_output(trajectory)[1][:, columns].T, color=COLOURS[0], lw=1.4)
    for i in np.flatnonzero(np.diff(trajectory.t) == 0.0):
        axes.plot(*trajectory.x[i : i + 2, columns].T, color=COLOURS[0], ls=":", lw=0.9)
    _mark_events(axes, trajectory, columns)
    for place, marker, label in ((0, "o", "start"), (-1, "*", "end")):
        look = {"mfc": "white" if place == 0 else "black", "mec": "black", "ms": 6 if place == 0 else 9}
        axes.plot(*trajectory.x[place, columns], marker, label=label, zorder=4, **look)
    axes.set_xlabel(scaled(axes.xaxis, x, trajectory.units.get(x, "")))
    axes.set_ylabel(scaled(axes.yaxis, y, trajectory.units.get(y, "")))
    axes.grid(axis="x", color="#E4E4E4", lw=0.6)
    tidy(axes)
    return finished(figure, titled(title, trajectory), path)


def _mark_events(axes: Axes, trajectory: Trajectory, columns: list[int]) -> None:
    for kind, (marker, colour) in EVENTS.items():
        times = [event.time for event in trajectory.events if event.kind == kind]
        if times:
            before, after = trajectory(times, "-")[:, columns], trajectory(times, "+")[:, columns]
            places = before if np.allclose(before, after) else np.vstack([before, after])
            look = {"mfc": "none", "mec": colour, "mew": 1.3, "ms": 6, "zorder": 5}
            axes.plot(*places.T, marker, label=kind.replace("_", " "), **look)
