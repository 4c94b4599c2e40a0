"""The two balls: errors over the step (FESD-J, Fig. 6) and the motion (Fig. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullFormatter

import nosnoc_py as ns
from nosnoc_py.plotting.figures import dense_output
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

if TYPE_CHECKING:
    from problems.benchmarks.two_balls_order import Curve

MARKERS = "os^Dv"
TICKS = [0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0]  # of the step [ms]
TITLES = {"radau_iia": "Radau IIA", "gauss_legendre": "Gauss-Legendre"}


def orders(curves: Sequence[Curve], elements: int, path: Path) -> None:
    """Draw the errors over the step, one panel per family, with the slopes of the nominal orders; T = 1 s."""
    schemes = list(dict.fromkeys(curve.scheme for curve in curves))
    made = figure(4.8 * len(schemes) + 0.6, 5.2)
    panels = made.subplots(1, len(schemes), sharey=True, squeeze=False)[0]
    for axes, scheme in zip(panels, schemes, strict=True):
        for curve in (curve for curve in curves if curve.scheme == scheme):
            _draw_curve(axes, curve, 1e3 / (np.array(curve.steps) * elements))
        axes.plot([], [], color="black", lw=0.7, ls=(0, (4, 2)), label="nominal order")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(TITLES[scheme], fontsize=11)
        axes.set_xlabel(r"step $\bar{h} = T / (N_{\mathrm{sim}} N_{\mathrm{FE}})$ [ms]")
        axes.xaxis.set_major_locator(FixedLocator(TICKS))
        axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        tidy(axes)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, fontsize=8, frameon=False)
    panels[0].set_ylabel("largest error of the state at $T = 1$ s [m, m/s]")
    save(made, path)


def motion(trajectory: ns.Trajectory, path: Path) -> None:
    """Draw heights and velocities of both balls."""
    made = figure(6.4, 4.8)
    rows = made.subplots(2, 1, sharex=True)
    t, x = dense_output(trajectory)
    for k, colour in enumerate(COLOURS[:2]):
        rows[0].plot(t, x[:, k], color=colour, lw=1.4, label=f"ball {k + 1}")
        rows[1].plot(t, x[:, 2 + k], color=colour, lw=1.2, label=f"ball {k + 1}")
        for i in np.flatnonzero(np.diff(trajectory.t) == 0.0):
            rows[1].plot(trajectory.t[i : i + 2], trajectory.x[i : i + 2, 2 + k], color=colour, lw=0.9, ls=":")
    for axes, label in zip(rows, ("height $q$ [m]", "velocity $v$ [m/s]"), strict=True):
        for event in trajectory.impacts:
            axes.axvline(event.time, color=GREY, lw=0.6, zorder=0)
        axes.set_ylabel(label)
        tidy(axes, "y")
    rows[0].legend(loc="upper right", ncols=2, frameon=False, fontsize=9)
    rows[1].set(xlabel="$t$ [s]", xlim=(trajectory.t0, trajectory.t0 + trajectory.duration))
    made.align_ylabels(list(rows))
    save(made, path)


def _draw_curve(axes: Axes, curve: Curve, h: np.ndarray) -> None:
    errors = np.array(curve.errors)
    colour, style = COLOURS[(curve.rk_stages - 1) % len(COLOURS)], _style(curve)
    if not curve.switch_detection:
        colour = GREY
    axes.plot(h, errors, color=colour, ms=4.5, lw=1.3, marker=MARKERS[(curve.rk_stages - 1) % 5], **style)
    if curve.switch_detection and curve.clean.sum() > 1:
        _reference(axes, h[curve.clean], errors[curve.clean], curve.nominal)


def _style(curve: Curve) -> dict[str, Any]:
    fitted = "" if curve.order is None else f": order {curve.order:.2f}"
    if not curve.switch_detection:
        return {"label": f"$n_s = {curve.rk_stages}$, fixed steps", "ls": "--", "mfc": "white"}
    if curve.is_soft:
        return {"label": f"$n_s = {curve.rk_stages}$, soft spring{fitted}", "ls": "-", "mfc": "white"}
    return {"label": f"$n_s = {curve.rk_stages}${fitted}", "ls": "-"}


def _reference(axes: Axes, h: np.ndarray, errors: np.ndarray, order: int) -> None:
    """A dashed line of the nominal slope, through the middle of the clean points and a little above."""
    ends = np.array([h.min(), h.max()])
    level = np.exp(np.mean(np.log(errors) - order * np.log(h)))
    axes.plot(ends, 2.0 * level * ends**order, color="black", lw=0.7, ls=(0, (4, 2)), zorder=1)
