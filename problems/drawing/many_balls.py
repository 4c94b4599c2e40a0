"""The balls in their box at some moments, and what the steps cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.collections import EllipseCollection
from numpy.typing import NDArray

import nosnoc_py as ns
from models.many_balls import Constants, places_of
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

if TYPE_CHECKING:
    from problems.benchmarks.many_balls import Costs

Array = NDArray[np.float64]

MOMENTS = (0.0, 0.1, 0.2, 1.0)  # in units of the duration
FLOOR = 1e-12  # where a penetration of zero is drawn


def snapshots(trajectory: ns.Trajectory, constants: Constants, path: Path) -> None:
    """Draw the balls at four times; in space, seen along z."""
    made = figure(3.0 * len(MOMENTS), 3.5)
    axes = made.subplots(1, len(MOMENTS), sharey=True)
    colours = [COLOURS[ball % 6] for ball in range(constants.balls)]
    for panel, moment in zip(axes, MOMENTS, strict=True):
        node = round(moment * (len(trajectory.t) - 1))
        places, diameters = places_of(trajectory.x[node], constants), np.full(constants.balls, 2.0 * constants.radius)
        panel.add_collection(
            EllipseCollection(
                diameters,
                diameters,
                np.zeros(constants.balls),
                units="xy",
                offsets=places[:, :2],
                offset_transform=panel.transData,
                facecolors=colours,
                edgecolors="white",
                linewidths=0.4,
                alpha=0.85,
            )
        )
        panel.set(xlim=(0.0, constants.side), ylim=(0.0, constants.side), aspect="equal", xlabel="$x$ [m]")
        panel.set_title(f"$t = {trajectory.t[node]:.3g}$ s", fontsize=9)
        panel.tick_params(labelsize=8)
    axes[0].set_ylabel("$y$ [m]")
    save(made, path)


def costs(found: Costs, t: Array, depths: Array, path: Path) -> None:
    """Draw the time per step over the active contacts; contacts, sweeps and penetration over time."""
    made = figure(10.0, 4.2)
    panels = made.subplot_mosaic("ab;ac;ad", width_ratios=(1.2, 1.0))
    cloud, milliseconds = panels["a"], 1e3 * found.seconds
    cloud.scatter(found.contacts, milliseconds, s=4, color=COLOURS[5], lw=0.0, alpha=0.5, label="step")
    numbers = np.unique(found.contacts)
    groups = [group for group in np.array_split(numbers, min(20, max(1, numbers.size))) if group.size]
    middles, medians = [], []
    for group in groups:
        inside = (found.contacts >= group[0]) & (found.contacts <= group[-1])
        middles.append(found.contacts[inside].mean())
        medians.append(np.median(milliseconds[inside]))
    cloud.plot(middles, medians, "o-", ms=3, color=COLOURS[0], lw=1.3, label="median")
    cloud.set(yscale="log", xlabel="active contacts", ylabel="time per step [ms]")
    cloud.legend(frameon=False, fontsize=8)
    panels["b"].plot(found.t, found.contacts, color=COLOURS[0], lw=0.9)
    panels["b"].set_ylabel("contacts")
    panels["c"].plot(found.t, found.sweeps, color=COLOURS[1], lw=0.7)
    panels["c"].set_ylabel("sweeps")
    panels["d"].semilogy(t, np.maximum(100.0 * depths, FLOOR), color=COLOURS[2], lw=0.9, label="deepest")
    panels["d"].axhline(2.0, color=GREY, lw=0.8, ls="--", label="2 %")
    panels["d"].set_ylabel("penetration\n[% of $r$]")
    panels["d"].set_xlabel("$t$ [s]")
    panels["d"].legend(frameon=False, fontsize=7, loc="center right")
    for name, panel in panels.items():
        tidy(panel)
        panel.yaxis.label.set_size(9)
        if name in "bcd":
            panel.set_xlim(t[0], t[-1])
    for name in "bc":
        panels[name].tick_params(labelbottom=False)
    save(made, path)
