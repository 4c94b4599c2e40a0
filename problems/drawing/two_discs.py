"""The two discs: motions true to scale with their controls, starts with three collisions, and costates over time.

Like Figs. 1, 4, 7 and 12 of the paper on the hybrid minimum principle.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Circle

import nosnoc_py as ns
from nosnoc_py.plotting.figures import dense_output
from problems.benchmarks.two_discs_costates import Costates
from problems.benchmarks.two_discs_history import History
from problems.benchmarks.two_discs_sequences import Excursion
from problems.drawing.style import COLOURS, GREY, figure, save, tidy
from problems.two_discs import HORIZON, RADII

DISCS = (COLOURS[0], COLOURS[1])
POINT = "#000000"
WIDTHS = (2.8, 1.2)  # of both components: in symmetric problems one lies on the other
TITLES = {"concentric": "5.1 concentric", "general": "5.2 general", "wall": "5.3 wall", "length": "5.4 length"}


def motions(histories: Sequence[History], path: Path) -> None:
    """Draw the motion of every problem, and the control that was found beside the exact one."""
    count = len(histories)
    made = figure(3.1 * max(count, 2), 6.6)
    axes = made.subplots(2, count, squeeze=False, gridspec_kw={"height_ratios": (1.25, 1.0)})
    for column, one in zip(axes.T, histories, strict=True):
        _motion(column[0], one.solution, one.exact.experiment.wall)
        column[0].set_title(f"{TITLES[one.experiment]}, $N = {one.steps}$", fontsize=9)
        control(column[1], one)
        tidy(column[1])
    axes[0, 0].set_ylabel("$y$ [m]")
    axes[1, 0].set_ylabel("$u$ [N]")
    made.legend(
        handles=[*_legend(), *_control_legend()], loc="outside lower center", ncols=4, frameon=False, fontsize=8
    )
    save(made, path)


def control(axes: Axes, one: History) -> None:
    """The control of an iteration, and the exact one dashed."""
    found, exact = one.solution, one.exact
    t = np.linspace(0.0, HORIZON, 2001)
    best = exact.control(t)
    for i in range(2):
        axes.stairs(found.u[:, i], found.u_grid, baseline=None, color=COLOURS[2 + i], lw=WIDTHS[i])
        axes.plot(t, best[:, i], color="black", lw=0.8, ls="--")
    for time in exact.times:
        axes.axvline(time, color=GREY, lw=0.6, ls=":")
    axes.set_xlabel("$t$ [s]")


def three_collisions(excursions: Sequence[Excursion], path: Path) -> None:
    """Draw the motions of the starts, of what Algorithm 1 finds, and of what HMP-MAS ends at."""
    made = figure(9.6, 2.3 * len(excursions) + 0.7)
    axes = made.subplots(len(excursions), 3, squeeze=False, sharex=True, sharey=True)
    for row, one in zip(axes, excursions, strict=True):
        wall = one.history.exact.experiment.wall
        best = one.history.exact.objective
        titles = (
            f"start $u = ({one.start[0]:g}, {one.start[1]:g})$ N",
            f"Algorithm 1: $J - J^*$ = {one.history.objective[-1] - best:.1e}",
            f"HMP-MAS, {one.prescribed.status.value}: $J - J^*$ = {one.prescribed.objective - best:.1e}",
        )
        for panel, motion, title in zip(row, (one.motion, one.history.solution, one.prescribed), titles, strict=True):
            _motion(panel, motion, wall)
            panel.set_title(title, fontsize=9)
        row[0].set_ylabel("$y$ [m]")
    made.legend(handles=_legend(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    save(made, path)


def costates(found: Sequence[Costates], path: Path) -> None:
    """Draw the costates of the minimum principle as lines, the multipliers of FESD-J as points."""
    made = figure(3.6 * max(len(found), 2), 6.0)
    axes = made.subplots(2, len(found), squeeze=False, sharex=True)
    for column, one in zip(axes.T, found, strict=True):
        half = len(one.names) // 2
        for panel, first in zip(column, (0, half), strict=True):
            for i in range(first, first + half):
                _costate(panel, one, i, COLOURS[i - first], WIDTHS[i % 2])
            tidy(panel)
        error = f"largest difference {one.difference.max():.1%}"
        column[0].set_title(f"{TITLES[one.experiment]}, FESD-J $N = {one.stages}$\n{error}", fontsize=9)
        column[1].set_xlabel("$t$ [s]")
    axes[0, 0].set_ylabel(r"$\lambda_q$ [m]")
    axes[1, 0].set_ylabel(r"$\lambda_v$ [m s]")
    texts = ("$x_1, v_{x,1}$", "$y_1, v_{y,1}$", "$x_2, v_{x,2}$", "$y_2, v_{y,2}$")
    handles = [Line2D([], [], color=COLOURS[i], lw=WIDTHS[i % 2], label=text) for i, text in enumerate(texts)]
    handles.append(Line2D([], [], ls="", marker="o", ms=3.5, color=GREY, label=r"$-\mu_j / b_j$ of FESD-J"))
    made.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    save(made, path)


def _costate(panel: Axes, one: Costates, i: int, colour: str, width: float) -> None:
    found = one.indirect_solution
    panel.plot(found.t, found.series[f"costate[{one.names[i]}]"].values, color=colour, lw=width)
    panel.plot(one.t, one.direct[:, i], "o", ms=2.6, mfc="white", mec=colour, mew=0.8)


def _motion(axes: Axes, motion: ns.Trajectory, wall: float | None) -> None:
    """Paths, discs at the start (full), at collisions (dashed) and at the end (outlined), collision points, goal."""
    x = dense_output(motion)[1]
    for disc, (colour, radius) in enumerate(zip(DISCS, RADII, strict=True)):
        columns = (2 * disc, 2 * disc + 1)
        axes.plot(x[:, columns[0]], x[:, columns[1]], color=colour, lw=1.1, zorder=3)
        axes.add_patch(Circle(x[0, columns], radius, fc=colour, alpha=0.45, ec=colour, zorder=2))
        axes.add_patch(Circle(x[-1, columns], radius, fill=False, ec=colour, lw=1.3, zorder=2))
    for event in motion.impacts:
        state = motion(event.time)
        axes.plot(*_contact_point(event.name, state), "o", color=POINT, ms=3.2, zorder=5)
        for disc in _involved(event.name):
            centre = state[[2 * disc, 2 * disc + 1]]
            axes.add_patch(Circle(centre, RADII[disc], fill=False, ec=DISCS[disc], ls=(0, (2, 1.5)), lw=0.9, zorder=2))
    axes.plot(0.0, 0.0, "+", color=POINT, ms=7, zorder=5)
    if wall is not None:
        axes.axhline(wall, color=GREY, lw=2.0)
    axes.set(aspect="equal", xlabel="$x$ [m]")
    tidy(axes)


def _involved(name: str) -> tuple[int, ...]:
    """Discs of a contact."""
    return (0, 1) if name == "discs" else (int(name[-1]) - 1,)


def _contact_point(name: str, state: Any) -> tuple[float, float]:
    """Where the discs, or a disc and the wall above it, touch."""
    if name == "discs":
        share = RADII[0] / sum(RADII)
        point = (1.0 - share) * state[:2] + share * state[2:4]
        return float(point[0]), float(point[1])
    (disc,) = _involved(name)
    return float(state[2 * disc]), float(state[2 * disc + 1]) + RADII[disc]


def _legend() -> list[Any]:
    shapes = {"ls": "", "marker": "o", "ms": 8}
    return [
        *(Line2D([], [], color=colour, label=f"disc {i + 1}") for i, colour in enumerate(DISCS)),
        Line2D([], [], **shapes, mfc=GREY, mec=GREY, alpha=0.6, label="at $t = 0$"),
        Line2D([], [], **shapes, mfc="none", mec=GREY, mew=1.3, label="at $t = T$"),
        Line2D([], [], color=GREY, ls=(0, (2, 1.5)), lw=0.9, label="at a collision"),
        Line2D([], [], ls="", marker="o", ms=3.2, color=POINT, label="point of collision"),
        Line2D([], [], ls="", marker="+", ms=7, color=POINT, label="goal of disc 2"),
    ]


def _control_legend() -> list[Any]:
    return [
        *(Line2D([], [], color=COLOURS[2 + i], lw=WIDTHS[i], label=f"$u_{axis}$") for i, axis in enumerate("xy")),
        Line2D([], [], color="black", lw=0.8, ls="--", label="exact"),
    ]
