"""Tumbling bodies: snapshots, energies and their errors, the divergence of neighbouring motions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

import nosnoc_py as ns
from models import bouncing_bodies
from nosnoc_py.plotting.bodies import animate_body, draw_body, impact_places, mark
from nosnoc_py.plotting.meshes import meshes_of
from nosnoc_py.plotting.scenes import View, scene
from nosnoc_py.systems.rigid_body import Plane
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

Array = NDArray[np.float64]
Motion = tuple[Any, ns.Trajectory]  # a body and what it does

CELL = (4.6, 3.0)  # inches of a picture
ASIDE = View(elevation=12.0, azimuth=-45.0, zoom=0.95)  # across the way that the bodies take
ALONG = View(elevation=10.0, azimuth=-90.0, zoom=0.95)  # along the level lines of the tilted plane
TILTED = 1e-3  # sine of an angle that is worth a line
FOOT = 0.3  # inches below the pictures, of the legend
CENTRED = {"ha": "center", "va": "top"}
LEGEND = (
    Line2D([], [], color="black", lw=0.8, label="path of the centre of mass"),
    Line2D(
        [],
        [],
        ls="none",
        marker="x",
        ms=4,
        mew=1.2,
        color=COLOURS[1],
        label="impact (with its time where no body is drawn)",
    ),
)
SPACING = {"impact": 0.55, "flight": 0.75}  # of neighbouring snapshots at least, in diameters of the body
NAMES = {"total": "total", "both": "translational + potential", "rotational": "rotational"}


def film(motion: Motion, path: Path) -> None:
    """Write a GIF in real time."""
    animate_body(*motion, path, frames_per_second=15, size=(4.8, 3.0), dots_per_inch=90)


def snapshots(motions: Mapping[str, Motion], path: Path) -> None:
    """Draw bodies at some moments, impacts among them (Fig. 4)."""
    rows, columns = (len(motions) + 1) // 2, min(2, len(motions))
    made = figure(CELL[0] * columns, CELL[1] * rows + FOOT)
    made.set_layout_engine("none")  # axes in space draw beyond their frame
    foot = FOOT / (CELL[1] * rows + FOOT)
    for k, (case, motion) in enumerate(motions.items()):
        row, column = divmod(k, columns)
        high = (1.0 - foot) / rows
        box = (column / columns, 1.0 - (row + 1) * high, 1.0 / columns, high)
        axes = made.add_axes(box, projection="3d")
        _snapshots(axes, *motion)
        middle = (0.5 + column) / columns
        made.text(middle, 1.0 - (row + 0.03) * high, f"{case}: {bouncing_bodies.NAMES[case]}", fontsize=9, **CENTRED)
    made.legend(handles=LEGEND, loc="lower center", ncols=len(LEGEND), frameon=False, fontsize=7)
    save(made, path)


def _snapshots(axes: Any, body: Any, trajectory: ns.Trajectory) -> None:
    tilted = bool(_tilt(body.planes[0], body.gravity) > TILTED)
    scene(axes, body, [trajectory], ALONG if tilted else ASIDE)
    if tilted:
        _draw_horizontal(axes, body, trajectory)
    meshes = meshes_of(body.shape, 24)
    axes.plot(*trajectory.x[:, :3].T, color="black", lw=0.8, alpha=0.7, zorder=2, clip_on=False)
    places, moments = impact_places(body, trajectory), moments_of(body, trajectory)
    mark(axes, places)
    for event, place in zip(trajectory.impacts, places, strict=True):
        if event.time not in moments:
            text = f"\n{event.time:.2f} s"  # a line below the cross
            axes.text(*place, text, fontsize=6, color=COLOURS[1], ha="center", va="top", zorder=5, clip_on=False)
    for t in moments:
        x = trajectory(t)
        draw_body(axes, body, meshes, x)
        top = max((mesh.points @ x[9:12]).max() for mesh in meshes) + x[2]
        axes.text(x[0], x[1], top + 0.8, f"{t:.2f} s", fontsize=7, ha="center", zorder=5, clip_on=False)


def _tilt(plane: Plane, gravity: Array) -> float:
    """Sine of the angle between a plane and the horizontal."""
    return float(np.linalg.norm(np.cross(plane.normal, gravity)) / np.linalg.norm(gravity))


def _draw_horizontal(axes: Any, body: Any, trajectory: ns.Trajectory) -> None:
    """Draw a horizontal line from where the plane is highest below the motion, beside which its tilt can be seen."""
    plane, down = body.planes[0], body.gravity / np.linalg.norm(body.gravity)
    fall = down - (down @ plane.normal) * plane.normal
    level = fall - (fall @ down) * down
    level /= np.linalg.norm(level)
    places = trajectory.x[:, :3]
    feet = places - np.outer(places @ plane.normal - plane.offset, plane.normal)
    top = feet[np.argmin(feet @ level)]
    ends = np.array([top, top + np.ptp(feet @ level) * level])
    axes.plot(*ends.T, color=GREY, lw=1.0, ls="--", zorder=1, clip_on=False)
    axes.text(*ends[1], " horizontal", fontsize=7, color="#555555", va="center", zorder=5, clip_on=False)


def moments_of(body: Any, trajectory: ns.Trajectory) -> list[float]:
    """Return times [s] of the start, of impacts and of the middles between them, whose pictures do not overlap."""
    impacts = [event.time for event in trajectory.impacts]
    ends = [trajectory.t0, *impacts, trajectory.t0 + trajectory.duration]
    middles = [0.5 * (a + b) for a, b in pairwise(ends)]
    points = np.vstack([mesh.points for mesh in meshes_of(body.shape, 4)])
    diameter = np.linalg.norm(points[:, None] - points, axis=-1).max()
    chosen = [ends[0]]
    for t in [*impacts, *middles]:
        least = SPACING["impact" if t in impacts else "flight"] * diameter
        apart = np.linalg.norm(trajectory(chosen)[:, :2] - trajectory(t)[:2], axis=1)
        if apart.min() > least:
            chosen.append(t)
    return sorted(chosen)


def energies(motions: Mapping[str, Motion], path: Path) -> None:
    """Draw what becomes of the energy, one panel per motion (Fig. 5)."""
    rows = (len(motions) + 1) // 2
    made = figure(9.0 if len(motions) > 1 else 6.5, 2.7 * rows + 0.3)
    panels = made.subplots(rows, min(2, len(motions)), squeeze=False).ravel()
    for axes, (case, (body, trajectory)) in zip(panels, motions.items(), strict=True):
        _energy_panel(axes, body, trajectory)
        axes.set_title(f"{case}: {bouncing_bodies.NAMES[case]}", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    made.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    save(made, path)


def _energy_panel(axes: Axes, body: Any, trajectory: ns.Trajectory) -> None:
    parts = body.energies(trajectory.x)
    curves = {"total": parts.sum(axis=1), "both": parts[:, 0] + parts[:, 1], "rotational": parts[:, 2]}
    for (key, values), dashes in zip(curves.items(), ("-", "--", "-."), strict=True):
        axes.plot(trajectory.t, values, color=COLOURS[list(curves).index(key)], ls=dashes, lw=1.4, label=NAMES[key])
    axes.set(xlabel="$t$ [s]", ylabel="energy [J]", xlim=(trajectory.t[0], trajectory.t[-1]))
    tidy(axes)


def energy_errors(motions: Mapping[str, Motion], path: Path, *, lines: Sequence[str] = ()) -> None:
    """Draw |E(t) - E(0)|, one panel per motion (Fig. 6); `lines` are motions whose impacts are marked."""
    rows = (len(motions) + 1) // 2
    made = figure(9.0 if len(motions) > 1 else 6.5, 2.5 * rows + 0.2)
    panels = made.subplots(rows, min(2, len(motions)), squeeze=False).ravel()
    for axes, (case, (body, trajectory)) in zip(panels, motions.items(), strict=True):
        total = bouncing_bodies.energy(body, trajectory.x)
        axes.plot(trajectory.t, np.abs(total - total[0]), color=COLOURS[0], lw=0.7)
        for time in {event.time for event in trajectory.impacts if case in lines}:
            axes.axvline(time, color=COLOURS[1], lw=0.8, ls="--", alpha=0.8, zorder=0)
        axes.set(
            xlabel="$t$ [s]", ylabel="$|E(t) - E(0)|$ [J]", xlim=(trajectory.t[0], trajectory.t[-1]), ylim=(0, None)
        )
        axes.set_title(f"{case}: {len(trajectory.impacts)} impacts", fontsize=9)
        axes.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
        tidy(axes)
    if lines:
        shown = "impact" if set(lines) == set(motions) else f"impact (drawn for {' and '.join(lines)})"
        line = Line2D([], [], color=COLOURS[1], lw=0.8, ls="--", label=shown)
        made.legend(handles=[line], loc="outside lower center", frameon=False, fontsize=8)
    save(made, path)


def divergence(
    body: Any, trajectories: Mapping[str, ns.Trajectory], t: Array, errors: Mapping[str, Array], path: Path
) -> None:
    """Draw heights of the centre of mass, and distances from the first motion (Figs. 7, 8)."""
    made = figure(8.0, 5.6)
    high, low = made.subplots(2, 1, sharex=True)
    looks = dict(zip(trajectories, (("black", "-"), (COLOURS[0], "--"), (COLOURS[1], ":")), strict=True))
    for name, trajectory in trajectories.items():
        colour, dashes = looks[name]
        high.plot(trajectory.t, bouncing_bodies.height(body, trajectory), color=colour, ls=dashes, lw=1.4, label=name)
    for name, values in errors.items():
        low.semilogy(t, values, color=looks[name][0], ls=looks[name][1], lw=1.3, label=name)
    low.axhline(1e-2, color=GREY, lw=0.8)
    low.annotate("visible", (t[0], 1e-2), xytext=(4, 3), textcoords="offset points", fontsize=7, color="#555555")
    first = next(iter(trajectories.values()))
    for number, event in enumerate(first.impacts, start=1):
        for axes in (high, low):
            axes.axvline(event.time, color=GREY, lw=0.6, alpha=0.6, zorder=0)
        if number == 8:
            high.annotate(
                "8th impact", (event.time, 1.02), xycoords=high.get_xaxis_transform(), fontsize=7, ha="center"
            )
    high.plot([], [], color=GREY, lw=0.6, alpha=0.6, label="impact of the original")
    high.set(ylabel="height of the centre [m]", xlim=(t[0], t[-1]))
    low.set(xlabel="$t$ [s]", ylabel="$|x_{per} - x| + |R_{per} - R|$ [m, 1]")
    high.legend(loc="upper right", bbox_to_anchor=(1.0, 1.24), ncols=4, frameon=False, fontsize=8)
    for axes in (high, low):
        tidy(axes)
    save(made, path)


def algorithms(body: Any, trajectories: Mapping[str, ns.Trajectory], path: Path) -> None:
    """Draw E(t) - E(0) of the two algorithms, each on its own scale."""
    made = figure(8.0, 4.2)
    panels = made.subplots(len(trajectories), 1, sharex=True)
    for axes, colour, (name, trajectory) in zip(panels, COLOURS, trajectories.items(), strict=False):
        total = bouncing_bodies.energy(body, trajectory.x)
        axes.plot(trajectory.t, total - total[0], color=colour, lw=0.8)
        axes.set_ylabel("$E(t) - E(0)$ [J]")
        axes.set_title(f"algorithm {name}: {len(trajectory.impacts)} impacts", fontsize=9)
        axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 2))
        axes.set_xlim(trajectory.t[0], trajectory.t[-1])
        tidy(axes)
    panels[-1].set_xlabel("$t$ [s]")
    save(made, path)
