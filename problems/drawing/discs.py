"""The two discs: frames of the motion true to scale (FESD-J, Fig. 7) and everything over time (Fig. 8)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Circle

import nosnoc_py as ns
from models.two_discs_inelastic import PAPER
from nosnoc_py.plotting import plot
from nosnoc_py.plotting.figures import dense_output
from problems.drawing.style import COLOURS, figure, save

BLUE, RED = COLOURS[0], "#C8102E"
FRAMES = (3, 4)
NEWTONS_PER_METRE = 20.0  # length of the arrow of the thrust


def frames(solution: ns.Trajectory, target: Sequence[float], obstacle: float, path: Path) -> None:
    """Draw twelve frames at equal distances in time: discs, obstacle, paths so far, targets and thrust."""
    made = figure(9.6, 7.0)
    times = np.linspace(solution.t0, solution.t0 + solution.duration, FRAMES[0] * FRAMES[1])
    t, x = dense_output(solution)
    reach = _reach(x)
    for axes, time in zip(made.subplots(*FRAMES, sharex=True, sharey=True).flat, times, strict=True):
        axes.add_patch(Circle((0.0, 0.0), obstacle, color="black", zorder=2))
        _draw_frame(axes, solution, float(time), x[t <= time], target)
        axes.set(aspect="equal", xlim=reach[0], ylim=reach[1])
        axes.set_title(f"$t = {time:.2f}$ s", fontsize=9)
        axes.tick_params(labelsize=8)
    made.supxlabel("$x$ [m]", fontsize=10)
    made.supylabel("$y$ [m]", fontsize=10)
    made.legend(handles=_legend(), loc="outside upper center", ncols=6, frameon=False, fontsize=9)
    save(made, path)


def over_time(solution: ns.Solution, path: Path) -> None:
    """Draw positions, velocities with their jumps, thrust, contact force and impulses over time."""
    names: list[Any] = [("x_1", "y_1", "x_2", "y_2"), ("v_x_1", "v_y_1", "v_x_2", "v_y_2"), ("thrust_x", "thrust_y")]
    names += sorted((name for name in solution.series if name.lower().startswith("lambda_normal")), reverse=True)
    plot(solution, names, path=path)


def _draw_frame(axes: Axes, solution: ns.Trajectory, time: float, past: np.ndarray, target: Sequence[float]) -> None:
    state = solution(time)
    for disc, (colour, radius) in enumerate(zip((BLUE, RED), PAPER.radii, strict=True)):
        first = 2 * disc
        axes.plot(past[:, first], past[:, first + 1], color=colour, lw=0.9, zorder=3)
        goal = (target[first], target[first + 1])
        axes.add_patch(Circle(goal, radius, fill=False, edgecolor=colour, ls=(0, (2, 1.5)), lw=0.9, zorder=1))
        axes.add_patch(Circle((state[first], state[first + 1]), radius, fc=colour, ec="white", lw=0.8, zorder=4))
    if time < solution.t0 + solution.duration:
        thrust = solution.control(time) / NEWTONS_PER_METRE
        style = {"arrowstyle": "-|>", "mutation_scale": 8, "color": COLOURS[4], "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=state[:2] + thrust, xytext=state[:2], arrowprops=style, zorder=5)


def _reach(x: np.ndarray) -> tuple[tuple[float, float], tuple[float, float]]:
    """Limits of both axes: everything that is drawn, with a margin."""
    margin = max(PAPER.radii) + 0.15
    across, up = x[:, [0, 2]], x[:, [1, 3]]
    low, high = min(np.nanmin(up), -1.0) - margin, max(np.nanmax(up), 1.0) + margin
    return (float(np.nanmin(across)) - margin, float(np.nanmax(across)) + margin), (float(low), float(high))


def _legend() -> list[Any]:
    discs = [Line2D([], [], ls="", marker="o", ms=9, color=c, label=n) for c, n in ((BLUE, "disc 1"), (RED, "disc 2"))]
    dashed = {"ls": "", "marker": "o", "ms": 9, "mfc": "none", "mec": "#555555", "label": "target"}
    return [
        *discs,
        Line2D([], [], ls="", marker="o", ms=9, color="black", label="obstacle"),
        Line2D([], [], **dashed),
        Line2D([], [], color="#555555", lw=0.9, label="path so far"),
        Line2D([], [], color=COLOURS[4], lw=1.6, label=f"thrust ({NEWTONS_PER_METRE:g} N per m)"),
    ]
