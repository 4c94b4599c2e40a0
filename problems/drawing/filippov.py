"""Figures of the Filippov systems: how surfaces are met, integration orders, limit cycles, sliding, walls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullFormatter

import nosnoc_py as ns
from models import pushed_point, switching_cases
from models import stick_slip as stick_slip_model
from nosnoc_py.plotting.figures import dense_output
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

if TYPE_CHECKING:
    from models.sliding_mode import Optimum
    from problems.benchmarks.oscillator_order import Curve
    from problems.relay_feedback import Reference
    from problems.switching_cases import Row

TITLES = {"radau_iia": "Radau IIA", "gauss_legendre": "Gauss-Legendre"}
SURFACE: dict[str, Any] = {"color": "black", "lw": 0.8, "ls": (0, (4, 2)), "zorder": 1}


def cases(rows: Sequence[Row], path: Path) -> None:
    """Draw c(x(t)) of every case, once, over its closed form."""
    shown = list({row.case: row for row in rows if row.trajectory.success}.values())
    columns = min(3, max(1, len(shown)))
    made = figure(3.2 * columns, 2.5 * -(-len(shown) // columns) + 0.3)
    panels = made.subplots(-(-len(shown) // columns), columns, squeeze=False).ravel()
    for axes, row in zip(panels, shown, strict=False):
        _draw_case(axes, row)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    if shown:
        made.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    save(made, path)


def _draw_case(axes: Axes, row: Row) -> None:
    case = switching_cases.BY_NAME[row.case]
    t, x = dense_output(row.trajectory)
    axes.axhline(0.0, **SURFACE)
    axes.plot(t, case.distance(x), color=COLOURS[0], lw=2.0, label="FESD")
    axes.plot(t, case.distance(switching_cases.exact(case, t)), color=COLOURS[1], lw=1.2, ls=":", label="closed form")
    if not case.unique:
        for side in (-1, 1):
            for departure in (0.0, 0.5, 1.0):
                axes.plot(t, switching_cases.repulsive(t, departure, side)[:, 0], color=GREY, lw=0.8, zorder=0)
        axes.text(0.05, 0.9, "grey: other solutions", transform=axes.transAxes, fontsize=8, color="#555555")
    at = list(case.event_times)
    found = [float(row.trajectory.t[np.abs(row.trajectory.t - time).argmin()]) for time in at]
    axes.plot(found, case.distance(row.trajectory(found)) if at else [], "o", color="black", ms=4, label="switch found")
    axes.set_title(row.case, fontsize=10)
    axes.set_xlabel("$t$ [s]", fontsize=9)
    axes.set_ylabel("switching function $c$", fontsize=9)
    tidy(axes)


def orders(curves: Sequence[Curve], elements: int, path: Path) -> None:
    """Draw the errors over the step, one panel per family, with the slopes of the nominal orders."""
    schemes = list(dict.fromkeys(curve.scheme for curve in curves))
    made = figure(4.6 * len(schemes) + 0.4, 5.0)
    panels = made.subplots(1, len(schemes), sharey=True, squeeze=False)[0]
    for axes, scheme in zip(panels, schemes, strict=True):
        for curve in (curve for curve in curves if curve.scheme == scheme):
            _draw_curve(axes, curve, 1e3 * np.pi / 2 / (np.array(curve.steps) * elements))
        axes.plot([], [], color="black", lw=0.7, ls=(0, (4, 2)), label="nominal order")
        if any(curve.representation == "step" for curve in curves):
            axes.plot([], [], "o", color="black", mfc="none", ms=8, label="by step functions")
        axes.set(xscale="log", yscale="log", title=TITLES[scheme])
        axes.set_xlabel(r"step $T / (N_{\mathrm{sim}} N_{\mathrm{FE}})$ [ms]")
        axes.xaxis.set_major_locator(FixedLocator([2.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0]))
        axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        tidy(axes)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize=8, frameon=False)
    panels[0].set_ylabel(r"largest error of the state at $T = \pi/2$ s")
    save(made, path)


def _draw_curve(axes: Axes, curve: Curve, h: np.ndarray) -> None:
    errors, clean = np.array(curve.errors), curve.clean
    colour = COLOURS[(curve.rk_stages - 1) % len(COLOURS)] if curve.switch_detection else GREY
    # Stewart's and step functions give the same errors: rings around dots let both be seen
    ring = curve.representation == "step"
    style: dict[str, Any] = {"marker": "o", "ms": 8 if ring else 4, "mfc": "none" if ring else colour}
    axes.plot(
        h,
        errors,
        color=colour,
        lw=0 if ring else 1.3,
        label=None if ring else curve.label.split(", stewart")[0],
        **style,
    )
    if clean.any() and not ring:
        last = np.flatnonzero(clean)[-1]
        axes.plot(
            h, 0.6 * errors[last] * (h / h[last]) ** curve.nominal, color="black", lw=0.7, ls=(0, (4, 2)), zorder=0
        )


def oscillator(trajectory: ns.Trajectory, path: Path) -> None:
    """Draw the motion in the plane, with the circle where it turns around."""
    made = figure(5.2, 4.9)
    axes = made.subplots()
    t, x = dense_output(trajectory)
    angle = np.linspace(0.0, 2.0 * np.pi, 200)
    axes.plot(np.cos(angle), np.sin(angle), **SURFACE, label="unit circle: switch")
    for colour, name, part in (
        (COLOURS[0], "inside, clockwise", t <= 1.0),
        (COLOURS[1], "outside, anticlockwise", t >= 1.0),
    ):
        axes.plot(x[part, 0], x[part, 1], color=colour, lw=1.6, label=name)
    axes.plot(*trajectory.x[0], "o", color="black", ms=5)
    axes.annotate("start", trajectory.x[0], xytext=(6, 6), textcoords="offset points", fontsize=9)
    axes.set(xlabel="$x_1$", ylabel="$x_2$", aspect="equal")
    tidy(axes)
    made.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    save(made, path)


def stick_slip(trajectory: ns.Trajectory, constants: stick_slip_model.Constants, path: Path) -> None:
    """Draw the limit cycle in the phase plane: stick on the line of the belt's speed, slip below it."""
    made = figure(6.0, 4.4)
    axes = made.subplots()
    _, x = dense_output(trajectory)
    sticks = np.abs(x[:, 1] - constants.belt) < 1e-6 * constants.belt
    axes.axhline(constants.belt, **SURFACE, label="speed of the belt")
    for colour, name, part in ((COLOURS[0], "stick", sticks), (COLOURS[1], "slip", ~sticks)):
        axes.plot(*_gaps_where(x, part).T, color=colour, lw=2.2, label=name)
    one = stick_slip_model.exact(np.linspace(0.0, constants.period, 400), constants.break_away, constants)
    axes.plot(*one.T, color="black", lw=0.9, ls=":", label="closed form")
    axes.plot(*trajectory.x[0], "o", color="black", ms=5)
    axes.annotate("start", trajectory.x[0], xytext=(4, -12), textcoords="offset points", fontsize=9)
    axes.set(xlabel="position $x$ [m]", ylabel="velocity $x'$ [m/s]")
    tidy(axes)
    made.legend(loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    save(made, path)


def _gaps_where(x: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Rows of x, NaN where the condition does not hold: a line with gaps."""
    return np.where(part[:, None], x, np.nan)


def relay(trajectory: ns.Trajectory, known: Reference, example: str, path: Path) -> None:
    """Draw what the relay sees over time, its thresholds (dashed), and the exact events."""
    made = figure(6.6, 3.8)
    axes = made.subplots()
    t, x = dense_output(trajectory)
    exact = np.array([known.state(float(at)) for at in t])
    for level in known.levels:
        axes.axhline(level, **SURFACE)
    axes.plot(t, x[:, 0], color=COLOURS[0], lw=2.0, label="$y$, FESD")
    axes.plot(t, exact[:, 0], color="black", lw=1.0, ls=":", label="exact")
    if example == "hysteresis":
        axes.plot(t, x[:, 1], color=COLOURS[1], lw=1.3, label="position $w$ of the relay")
    styles = {"switch": ("o", "switch"), "enter_sliding": ("^", "slide begins"), "leave_sliding": ("v", "slide ends")}
    events = known.events(trajectory.t0 + trajectory.duration)
    for kind, (marker, label) in styles.items():
        at = [time for name, time in events if name == kind]
        if at:
            axes.plot(at, trajectory(at)[:, 0], marker, color="black", ms=5, label=label)
    axes.set(xlabel="$t$ [s]", ylabel="output $y$, relay $w$" if example == "hysteresis" else "output $y$")
    tidy(axes)
    made.legend(loc="outside lower center", ncols=5, fontsize=9, frameon=False)
    save(made, path)


def ride(solution: ns.Solution, best: Optimum, path: Path) -> None:
    """Draw the path to the edge and along it, and the control, with the optimum in continuous time."""
    made = figure(6.0, 5.4)
    rows = made.subplots(2, 1, sharex=True)
    t, x = dense_output(solution)
    rows[0].axhline(0.0, **SURFACE)
    rows[0].plot(t, x[:, 0], color=COLOURS[0], lw=2.0, label="FESD")
    rows[0].plot(t, best.state(t)[:, 0], color="black", lw=1.1, ls=":", label="optimum in continuous time")
    rows[0].set_ylabel("distance $x$ from the edge")
    rows[1].stairs(solution.u[:, 0], solution.u_grid, baseline=None, color=COLOURS[0], lw=2.0)
    rows[1].plot(t, best.control(t), color="black", lw=1.1, ls=":")
    rows[1].set(xlabel="$t$ [s]", ylabel="control $u$")
    for axes in rows:
        axes.axvline(best.arrival, color=GREY, lw=0.8, zorder=0)
        tidy(axes)
    rows[0].annotate("sliding from here on", (best.arrival, 0.6), xytext=(6, 0), textcoords="offset points", fontsize=9)
    made.legend(*rows[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    made.align_ylabels(list(rows))
    save(made, path)


def pushed(trajectory: ns.Trajectory, metric: np.ndarray, path: Path) -> None:
    """Draw the way of the point in the plane, with its events."""
    made = figure(6.0, 4.8)
    axes = made.subplots()
    t, x = dense_output(trajectory)
    wall, top = pushed_point.WALL, 1.15 * float(x[:, 1].max()) + 0.1
    axes.fill_between([-0.15, wall + 0.12], -0.12, 0.0, color="#D0D0D0", lw=0, label="floor and wall")
    axes.fill_between([wall, wall + 0.12], 0.0, top, color="#D0D0D0", lw=0)
    axes.plot(x[:, 0], x[:, 1], color=COLOURS[0], lw=2.2, label="FESD", clip_on=False)
    axes.plot(*pushed_point.exact(t, metric)[:, :2].T, color="black", lw=1.0, ls=":", label="closed form")
    events = pushed_point.events(trajectory.t0 + trajectory.duration, metric)
    # a ring around a dot shows both where the point meets the wall and leaves the floor in the corner
    marks: dict[str, dict[str, Any]] = {"contact": {"marker": "o", "color": COLOURS[1], "ms": 12, "mfc": "none"}}
    marks["release"] = {"marker": "s", "color": COLOURS[2], "ms": 5}
    for kind, style in marks.items():
        at = [time for found, _, time in events if found == kind]
        where = pushed_point.exact(at, metric) if at else np.empty((0, 3))
        axes.plot(where[:, 0], where[:, 1], ls="", label=kind, zorder=3, **style)
    axes.set(xlabel="$x$ [m]", ylabel="$y$ [m]", aspect="equal", xlim=(-0.15, wall + 0.12), ylim=(-0.12, top))
    tidy(axes)
    made.legend(loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    save(made, path)
