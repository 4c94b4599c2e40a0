"""The three boxes: frames of the motion (FESD-J, Fig. 9) and everything over time (Fig. 10)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

import nosnoc_py as ns
from models.three_boxes import BOXES, PAPER
from nosnoc_py.plotting import plot
from problems.drawing.style import COLOURS, GREY, figure, save

FILLS = (COLOURS[0], "#C8102E", "#E69F00")  # left blue, middle red, right orange, as in the paper
FRAMES = (5, 2)
NEWTONS_PER_METRE = 10.0  # length of the arrow of the force


def frames(solution: ns.Trajectory, target: Sequence[float], path: Path) -> None:
    """Draw ten frames at equal distances in time: boxes, shaded reference boxes, and the force."""
    made = figure(9.6, 6.2)
    times = np.linspace(solution.t0, solution.t0 + solution.duration, FRAMES[0] * FRAMES[1])
    reach = _reach(solution, target)
    for axes, time in zip(made.subplots(*FRAMES, sharex=True, sharey=True).flat, times, strict=True):
        _draw_frame(axes, solution, float(time), target)
        axes.set(aspect="equal", xlim=reach, ylim=(-0.3, 1.5 * PAPER.side_length))
        axes.set_title(f"$t = {time:.2f}$ s", fontsize=9)
        axes.tick_params(labelsize=8)
    made.supxlabel("$x$ [m]", fontsize=10)
    made.supylabel("$y$ [m]", fontsize=10)
    made.legend(handles=_legend(), loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    save(made, path)


def over_time(solution: ns.Trajectory, path: Path) -> None:
    """Draw positions, velocities, the force, contact and friction forces, and impulses; the heights never change."""
    horizontal = [("x_1", "x_2", "x_3"), ("v_x_1", "v_x_2", "v_x_3")]
    plot(solution, [*horizontal, "force", *_contact_panels(solution)], path=path)


def _contact_panels(solution: ns.Trajectory) -> list[Any]:
    """One panel for every kind of force and impulse, with all contacts that have it."""
    kinds = ("lambda_normal", "lambda_tangent", "Lambda_normal", "Lambda_tangent")
    panels = [tuple(name for name in solution.series if name.startswith(kind)) for kind in kinds]
    return [panel for panel in panels if panel]


def _draw_frame(axes: Axes, solution: ns.Trajectory, time: float, target: Sequence[float]) -> None:
    state, side = solution(time), PAPER.side_length
    axes.axhline(0.0, color=GREY, lw=0.8, zorder=1)
    for k, colour in enumerate(FILLS):
        corner = (target[2 * k] - 0.5 * side, target[2 * k + 1] - 0.5 * side)
        axes.add_patch(Rectangle(corner, side, side, fc=colour, ec=colour, alpha=0.2, ls=(0, (2, 1.5)), zorder=2))
        corner = (state[2 * k] - 0.5 * side, state[2 * k + 1] - 0.5 * side)
        axes.add_patch(Rectangle(corner, side, side, fc=colour, ec="white", lw=0.8, zorder=3))
    if time < solution.t0 + solution.duration:
        tip = (state[2] + solution.control(time)[0] / NEWTONS_PER_METRE, state[3])
        style = {"arrowstyle": "-|>", "mutation_scale": 8, "color": "black", "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=tip, xytext=state[2:4], arrowprops=style, zorder=4)


def _reach(solution: ns.Trajectory, target: Sequence[float]) -> tuple[float, float]:
    """Limits of the horizontal axis: everything that is drawn, with a margin."""
    across = np.concatenate([solution.x[:, [0, 2, 4]].ravel(), np.array(target)[[0, 2, 4]]])
    margin = 0.5 * PAPER.side_length + 0.4
    return float(across.min()) - margin, float(across.max()) + margin


def _legend() -> list[Any]:
    boxes = [Rectangle((0, 0), 1, 1, fc=colour, label=f"{name} box") for colour, name in zip(FILLS, BOXES, strict=True)]
    shaded = Rectangle(
        (0, 0), 1, 1, fc=GREY, alpha=0.3, label=f"reference; arrow: force ({NEWTONS_PER_METRE:g} N per m)"
    )
    return [*boxes, shaded]
