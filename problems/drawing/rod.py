"""The falling rod: its positions at equal distances in time, and its velocities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import colormaps

import nosnoc_py as ns
from models import falling_rod
from nosnoc_py.plotting.figures import dense_output
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

POSITIONS = 25


def strobe(trajectory: ns.Trajectory, constants: falling_rod.Constants, path: Path) -> None:
    """Draw the rod at many times, the paths of its ends, and the velocities with their jumps."""
    made = figure(8.4, 4.2)
    left, right = made.subplots(1, 2)
    times = np.linspace(trajectory.t0, trajectory.t0 + trajectory.duration, POSITIONS)
    for place, shade in zip(
        falling_rod.ends(trajectory(times), constants), np.linspace(0.15, 0.95, POSITIONS), strict=True
    ):
        left.plot(place[:, 0], place[:, 1], color=colormaps["Blues"](shade), lw=1.6)
    t, x = dense_output(trajectory)
    for end, colour in enumerate(COLOURS[1:3]):
        path_of_end = falling_rod.ends(x, constants)[:, end]
        left.plot(
            path_of_end[:, 0], path_of_end[:, 1], color=colour, lw=0.8, label=f"{tuple(falling_rod.SIDES)[end]} end"
        )
    left.axhline(0.0, color="black", lw=1.0)
    left.set(aspect="equal", xlabel="$x$ [m]", ylabel="$y$ [m]")
    for k, (name, colour) in enumerate(zip(("$v_x$ [m/s]", "$v_y$ [m/s]", r"$\omega$ [rad/s]"), COLOURS, strict=False)):
        right.plot(t, x[:, 3 + k], color=colour, lw=1.3, label=name)
    for event in trajectory.events:
        right.axvline(event.time, color=GREY, lw=0.6, zorder=0)
    right.set_xlabel("$t$ [s]; lines: events")
    for axes in (left, right):
        axes.legend(fontsize=8, frameon=False)
        tidy(axes)
    save(made, path)
