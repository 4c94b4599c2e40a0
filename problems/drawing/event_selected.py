"""Event-selected systems: Figs. 3, 4 and 5 of ESS with ours, and the plate on its springs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

import nosnoc_py as ns
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

if TYPE_CHECKING:
    from models.plate_on_springs import Constants
    from problems.benchmarks.event_selected_hopper import Calibration
    from problems.benchmarks.event_selected_mujoco import Row
    from problems.benchmarks.event_selected_order import Curve
    from problems.benchmarks.plate_on_springs import Bed

MARKERS = "os^Dv<>"
DASHES = ("-", "--", ":", "-.")


def orders(curves: Sequence[Curve], path: Path) -> None:
    """Draw RMS errors over 1 / eps, as in Fig. 3, with the interval of the fit and the fitted line."""
    made = figure(6.4, 5.0)
    axes = made.subplots()
    fitted = curves[0].fitted
    axes.axvspan(1.0 / fitted[1], 1.0 / fitted[0], color="#E8E8E8", zorder=0, label="interval of the fit")
    for i, curve in enumerate(curves):
        eps, errors = np.array(curve.eps), np.array(curve.errors)
        order = "at rounding" if curve.order is None else f"order {curve.order:.2f}"
        label = f"{_title(curve.name)} ({order})"
        axes.loglog(1.0 / eps, errors, marker=MARKERS[i], ms=4, color=COLOURS[i], lw=1.2, label=label)
        if curve.order is not None:
            logs = np.log(eps[curve.counts]), np.log(errors[curve.counts])
            line = np.exp(np.polyval(np.polyfit(*logs, 1), logs[0]))
            axes.loglog(1.0 / eps[curve.counts], line, color="black", lw=0.8, ls=(0, (4, 2)))
    axes.plot([], [], color="black", lw=0.8, ls=(0, (4, 2)), label="fitted")
    axes.set_xlabel(r"$1 / \varepsilon$ [1, coordinates without a unit]")
    axes.set_ylabel("RMS error over the motion [1]")
    tidy(axes)
    made.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    save(made, path)


def hopper(found: Calibration, path: Path) -> None:
    """Draw height and velocity and, below, how far every program is off, as in Fig. 4."""
    made = figure(9.6, 5.6)
    panels = made.subplots(2, 2, sharex=True)
    for column, quantity in enumerate(("height $z$ [m]", "velocity $v_z$ [m/s]")):
        above, below = panels[:, column]
        above.plot(found.t, found.exact[:, column], color=GREY, lw=4.0, alpha=0.5, label="closed form")
        for i, name in enumerate(found.states):
            style = {"color": COLOURS[i], "lw": 1.2, "ls": DASHES[i]}
            above.plot(found.t, found.states[name][:, column], label=name, **style)
            off = np.abs(found.errors(name)[:, column])
            below.semilogy(found.t, np.maximum(off, 1e-17), label=name, **style)
        above.set_ylabel(quantity)
        below.set_ylabel(f"error of {quantity}")
        below.set_xlabel("$t$ [s]")
        below.set_ylim(1e-17, 1.0)
        for event in found.best.events:
            for axes in (above, below):
                axes.axvline(event.time, color=GREY, lw=0.6, zorder=0)
    for axes in panels.flat:
        tidy(axes)
    panels[0, 0].axhline(1.0, color=GREY, lw=0.6, ls=":")
    panels[0, 0].plot([], [], color=GREY, lw=0.6, label="touchdown, lift-off")
    panels[0, 0].plot([], [], color=GREY, lw=0.6, ls=":", label="rest length")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    made.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    save(made, path)


def plate(trajectory: ns.Trajectory, constants: Constants, path: Path, frames: int = 5) -> None:
    """Draw snapshots of the plate and its springs, and below which springs are in stance over time."""
    made = figure(10.0, 6.2)
    top, bottom = made.subfigures(2, 1, height_ratios=(1.0, 1.1))
    panels = top.subplots(1, frames, sharey=True)
    first = trajectory.events[0].time
    last = min(trajectory.t[-1], 2.2 * first)
    for axes, t in zip(panels, np.linspace(0.6 * first, last, frames), strict=True):
        _draw_plate(axes, trajectory(t), constants)
        axes.set_title(f"$t$ = {t:.2f} s", fontsize=9)
        axes.set_xlabel("$x$ [m]")
    panels[0].set_ylabel("$z$ [m]")
    pairs = (("plate", "black", 3.0), ("spring in flight", GREY, 0.8), ("in stance", COLOURS[1], 0.8))
    lines = [Line2D([], [], color=colour, lw=width, label=label) for label, colour, width in pairs]
    top.legend(handles=lines, loc="outside upper center", ncols=len(lines), fontsize=8, frameon=False)
    left, right = bottom.subplots(1, 2)
    for spring in range(constants.contacts):
        series = trajectory.series[f"mode[spring_{spring + 1}]"]
        on = np.where(series.values > 0.5, spring + 1.0, np.nan)
        left.plot(series.t, on, color=COLOURS[0], lw=2.5, solid_capstyle="butt")
    left.set_ylabel("springs in stance, by number")
    left.set_ylim(0.0, constants.contacts + 1.0)
    t = np.linspace(trajectory.t0, trajectory.t[-1], 600)
    right.plot(t, np.rad2deg(trajectory(t)[:, 2]), color=COLOURS[1], lw=1.4)
    right.set_ylabel(r"angle $\theta$ [deg]")
    for axes in (left, right):
        axes.set_xlabel("$t$ [s]")
        axes.set_xlim(trajectory.t0, trajectory.t[-1])
        tidy(axes)
    save(made, path)


def _draw_plate(axes: Axes, x: np.ndarray, constants: Constants) -> None:
    half = 0.7 * constants.bed  # what lies above the bed; the plate is longer
    along = np.array([-half, half])
    tangent = np.tan(x[2])
    axes.plot(along, x[1] + tangent * (along - x[0]), color="black", lw=3.0)
    tops = np.minimum(x[1] + tangent * (constants.positions - x[0]), constants.length)
    for position, height in zip(constants.positions, tops, strict=True):
        pressed = height < constants.length
        turns = np.linspace(0.0, height, 15)
        sway = 0.025 * np.where(np.arange(15) % 2, 1.0, -1.0) * (np.arange(15) % 14 > 0)
        axes.plot(position + sway, turns, color=COLOURS[1] if pressed else GREY, lw=0.8)
    axes.set_ylim(0.0, 2.2)
    axes.set_xlim(-half, half)
    tidy(axes)


def plate_errors(beds: Sequence[Bed], limit: float, path: Path) -> None:
    """Draw the errors of the state at the end over the number of springs, every start a point."""
    made = figure(6.4, 4.4)
    axes = made.subplots()
    places = np.arange(len(beds))
    draws = np.random.default_rng(0)
    kinds = (("RK-Newton", "errors", -0.12), ("Euler's projection", "euler_errors", 0.12))
    for i, (label, field, shift) in enumerate(kinds):
        for place, bed in zip(places, beds, strict=True):
            values = np.maximum(getattr(bed, field), 1e-16)
            across = place + shift + draws.uniform(-0.07, 0.07, values.size)
            axes.semilogy(across, values, ls="", marker=MARKERS[i], ms=2.5, alpha=0.6, color=COLOURS[i])
        axes.plot([], [], ls="", marker=MARKERS[i], ms=4, color=COLOURS[i], label=label)
    axes.axhline(limit, color=GREY, lw=0.9, ls="--", label="limit of RK-Newton")
    axes.set_xlim(-0.5, len(beds) - 0.5)
    axes.set_xticks(places, [str(bed.contacts) for bed in beds])
    axes.set_xlabel(
        "number of springs\n(every start a point; shifted sideways at random, so that they can be told apart)"
    )
    axes.set_ylabel("largest error at the end [m, rad, m/s, rad/s]")
    tidy(axes)
    made.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    save(made, path)


def costs(rows: Sequence[Row], path: Path) -> None:
    """Draw times and, as in Fig. 5, marginal costs over the number of contacts, and errors over costs."""
    made = figure(12.0, 4.6)
    times, marginal, errors = made.subplots(1, 3)
    for i, row in enumerate(rows):
        style = {"color": COLOURS[i], "marker": MARKERS[i], "ms": 4, "lw": 1.2, "label": row.name}
        style["ls"] = "--" if row.name.startswith("MuJoCo") else "-"
        contacts = np.array(row.contacts)
        times.semilogy(contacts, 1e3 * row.seconds, **style)
        rises = np.where(row.derivative > 0.0, row.derivative, np.nan)  # what falls is noise of the clock
        marginal.plot(0.5 * (contacts[1:] + contacts[:-1]), rises, **style)
        errors.loglog([max(row.marginal, 0.1)], [np.median(row.errors)], **{**style, "ms": 7, "ls": ""})
    marginal.set_yscale("log")
    marginal.set_xlabel("number of contacts")
    marginal.set_ylabel("marginal cost [µs / (contact × 1000 steps)]")
    times.set_xlabel("number of contacts")
    times.set_ylabel("processor time of a simulation, median [ms]")
    errors.set_xlabel("fitted slope [µs / (contact × 1000 steps)]")
    errors.set_ylabel("median error at the end [m, rad, m/s, rad/s]")
    errors.set_xlim(1.0, 2000.0)
    for axes in (times, marginal, errors):
        tidy(axes)
    handles, labels = times.get_legend_handles_labels()
    made.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    save(made, path)


def _title(name: str) -> str:
    return "Euler's projection" if name == "euler" else f"RK-Newton, {name}"
