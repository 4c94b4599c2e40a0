"""The hopper: its leg at many times over the holes (Section 6, Fig. 7), torques (Fig. 8) and contact over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Ellipse

import nosnoc_py as ns
from models.one_legged_hopper import joints
from nosnoc_py.plotting.figures import dense_output
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

POSITIONS = 60
GROUND = "#B8A98F"


def frames(solution: ns.Trajectory, holes: Sequence[tuple[float, float, float]], path: Path) -> None:
    """Draw the leg at equal distances in time, coloured by time, over holes (centre, half width, half height) [m]."""
    made = figure(2.4 + 2.4 * len(holes), 2.9)
    axes = made.subplots()
    _draw_ground(axes, holes)
    shades, span = colormaps["viridis"], Normalize(solution.t0, solution.t0 + solution.duration)
    for time in np.linspace(span.vmin or 0.0, span.vmax or 1.0, POSITIONS):
        leg = joints(solution(float(time)))
        axes.plot(*leg.T, color=shades(span(time)), lw=1.1, marker="o", ms=1.6, zorder=3)
        axes.plot(*leg[0], color=shades(span(time)), marker="o", ms=5.0, zorder=4)
    _, x = dense_output(solution)
    axes.plot(*joints(x)[:, 2].T, color=COLOURS[1], lw=0.7, zorder=2, label="path of the foot")
    axes.set(aspect="equal", xlabel="$x$ [m]", ylabel="$z$ [m]", ylim=(-0.12, 0.62))
    axes.legend(loc="upper left", fontsize=8, frameon=False)
    tidy(axes)
    colours = made.colorbar(_mappable(span), ax=axes, pad=0.01, aspect=14)
    colours.set_label("$t$ [s]", fontsize=9)
    save(made, path)


def torques(solution: ns.Trajectory, bound: float, path: Path) -> None:
    """Draw the torques as steps between their bounds [N m]."""
    made = figure(8.4, 2.9)
    axes = made.subplots()
    for name, colour in zip(("torque_hip", "torque_knee"), COLOURS, strict=False):
        axes.stairs(solution[name], solution.u_grid, baseline=None, color=colour, lw=1.3, label=name.replace("_", " "))
    for limit in (-bound, bound):
        axes.axhline(limit, color=GREY, lw=0.9, ls=(0, (4, 2)))
    axes.set(xlabel="$t$ [s]", ylabel="torque [N m]", ylim=(-1.1 * bound, 1.4 * bound))
    axes.legend(fontsize=8, frameon=False, ncols=2, loc="upper right")
    tidy(axes)
    save(made, path)


def contact(solution: ns.Trajectory, path: Path) -> None:
    """Draw the height of the foot, its contact force, and the impulses of its impacts."""
    made = figure(8.4, 4.8)
    height, force, impulse = made.subplots(3, 1, sharex=True)
    t, x = dense_output(solution)
    height.plot(t, joints(x)[:, 2, 1], color=COLOURS[0], lw=1.2)
    height.set_ylabel("foot $z$ [m]")
    for name, colour in (("lambda_normal[foot]", COLOURS[0]), ("lambda_tangent[foot]", COLOURS[1])):
        force.plot(solution.times(name), solution[name], color=colour, lw=1.0, label=name.split("[")[0][7:])
    force.set_ylabel("force [N]")
    force.legend(fontsize=8, frameon=False, ncols=2)
    for event in solution.impacts:
        impulse.vlines(event.time, 0.0, event.impulse or 0.0, color=COLOURS[0], lw=1.4)
        impulse.plot(event.time, event.impulse or 0.0, color=COLOURS[0], marker="o", ms=4.0)
    impulse.axhline(0.0, color=GREY, lw=0.8)
    impulse.set(xlabel="$t$ [s]", ylabel="impulse [N s]")
    for axes in (height, force, impulse):
        tidy(axes)
    save(made, path)


def _draw_ground(axes: Axes, holes: Sequence[tuple[float, float, float]]) -> None:
    """Ground below z = 0, and the regions that the foot has to stay out of."""
    axes.axhspan(-0.2, 0.0, color=GROUND, alpha=0.45, lw=0, zorder=0)
    axes.axhline(0.0, color="black", lw=0.8, zorder=1)
    for centre, width, depth in holes:
        axes.add_patch(Ellipse((centre, 0.0), 2 * width, 2 * depth, fc="white", ec=GREY, lw=0.9, zorder=1))


def _mappable(span: Normalize) -> object:
    from matplotlib.cm import ScalarMappable

    return ScalarMappable(span, colormaps["viridis"])
