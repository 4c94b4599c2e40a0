"""Certificates: the mismatch over the grid, claimed and true motion of the discs, defects of windows over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullFormatter

import nosnoc_py as ns
from models.two_discs_inelastic import PAPER
from nosnoc_py.plotting.figures import dense_output
from problems.disc_manipulation import OBSTACLE_RADIUS
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

if TYPE_CHECKING:
    from problems.benchmarks.referee_certificates import Certified

FLOOR = 1e-16  # where exact zeros are drawn
NEAR = 1e-5  # smallest distance that is drawn [m]
TRUE = (0, (3, 1.5))  # dashes of what the referee found
NAMES = ("disc 1", "disc 2")


def grids(rows: Sequence[Certified], path: Path) -> None:
    """Draw the error of the end state and the largest defect of a window over the number of control stages."""
    made = figure(5.6, 4.2)
    axes = made.subplots()
    stages = [row.control_stages for row in rows]
    curves = {
        "end state": [row.certificate.end_state_error for row in rows],
        "worst window": [row.largest_defect for row in rows],
        "median window": [row.median_defect for row in rows],
    }
    for colour, marker, (label, values) in zip(COLOURS, "os^", curves.items(), strict=False):
        axes.plot(stages, _finite(values), marker=marker, color=colour, label=label)
    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_locator(FixedLocator(stages))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%d"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("control stages")
    axes.set_ylabel("largest difference from the true motion [m, m/s]")
    tidy(axes)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, frameon=False, fontsize=9)
    save(made, path)


def discs(row: Certified, path: Path) -> None:
    """Draw the paths of the discs in the plane and their distances from the true motion over time."""
    made = figure(10.0, 5.2)
    plane, time = made.subplots(1, 2, width_ratios=(1.25, 1.0))
    claimed, true = row.solution, row.certificate.trajectory
    plane.add_patch(Circle((0.0, 0.0), OBSTACLE_RADIUS, color=GREY, alpha=0.35, lw=0.0))
    for disc, (name, radius) in enumerate(zip(NAMES, PAPER.radii, strict=True)):
        colour, columns = COLOURS[disc], slice(2 * disc, 2 * disc + 2)
        for motion, dashes, what in ((claimed, "-", "claimed"), (true, TRUE, "true")):
            places = dense_output(motion)[1][:, columns]
            plane.plot(*places.T, color=colour, ls=dashes, lw=1.4, label=f"{name}, {what}")
            end = motion.final_state[columns]
            plane.add_patch(Circle(tuple(end), radius, fill=False, ec=colour, ls=dashes, lw=0.9))
            hits = np.array([motion(event.time)[columns] for event in motion.impacts]).reshape(-1, 2)
            face = colour if what == "claimed" else "white"
            plane.plot(*hits.T, ls="", marker="o", ms=5, mfc=face, mec=colour, zorder=4)
    plane.set(aspect="equal", adjustable="datalim", xlabel="$x$ [m]", ylabel="$y$ [m]")
    plane.set_title("circles: discs at the end; dots: impacts, filled as claimed", fontsize=9)
    _distances(time, claimed, true)
    for axes in (plane, time):
        tidy(axes)
    plane.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False, fontsize=8)
    save(made, path)


def _distances(axes: Axes, claimed: ns.Trajectory, true: ns.Trajectory) -> None:
    """Distance of every disc from its true place, and the impacts of both motions."""
    t = np.linspace(0.0, min(claimed.duration, true.duration), 1201)
    away = np.asarray(claimed(t + claimed.t0)) - np.asarray(true(t + true.t0))
    for disc, name in enumerate(NAMES):
        distance = np.linalg.norm(away[:, 2 * disc : 2 * disc + 2], axis=1)
        axes.semilogy(t[1:], distance[1:], color=COLOURS[disc], lw=1.3, label=name)
    for motion, dashes, what in ((claimed, "-", "claimed"), (true, TRUE, "true")):
        for k, event in enumerate(motion.impacts):
            label = f"impact, {what}" if k == 0 else None
            axes.axvline(event.time, color="black", lw=0.9, ls=dashes, zorder=0, label=label)
    axes.set(xlabel="$t$ [s]", ylabel="distance of claimed from true place [m]", xlim=(0.0, t[-1]))
    axes.set_ylim(bottom=NEAR)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False, fontsize=8)


def windows(rows: Sequence[Certified], path: Path) -> None:
    """Draw the defects of the windows over time, one step per window, a panel for every horizon.

    Dashed lines are wrong on purpose.
    """
    horizons = sorted({row.solution.horizon for row in rows})
    made = figure(7.6, 0.8 + 3.0 * len(horizons))
    for axes, horizon in zip(made.subplots(len(horizons), 1, squeeze=False)[:, 0], horizons, strict=True):
        chosen = [row for row in rows if row.solution.horizon == horizon]
        for k, row in enumerate(chosen):
            _steps(axes, row, COLOURS[k % len(COLOURS)])
        tolerance = chosen[0].certificate.tolerance
        axes.axhline(tolerance, color=GREY, lw=0.8, ls=(0, (1, 2)), label="tolerance of the end state")
        axes.set(yscale="log", ylabel="defect of a window [m, m/s]", xlim=(0.0, horizon))
        tidy(axes)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False, fontsize=8)
    axes.set_xlabel("$t$ [s]")
    save(made, path)


def _steps(axes: Axes, row: Certified, colour: str) -> None:
    found = row.certificate.windows
    edges = [*(window.start for window in found), *(window.end for window in found[-1:])]
    defects = np.maximum(_finite([window.defect for window in found]), FLOOR)
    label = f"{row.label}, {row.wrong}" if row.wrong else row.label
    axes.stairs(defects, edges, baseline=None, label=label, color=colour, ls=TRUE if row.wrong else "-", lw=1.3)


def _finite(values: Sequence[float]) -> np.ndarray:
    """NaN, a gap in a curve, where a simulation did not get to the end."""
    return np.where(np.isfinite(values), values, np.nan)
