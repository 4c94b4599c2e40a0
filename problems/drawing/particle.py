"""The particle in numerical and in physical time: states, control, speed of time (Figs. 3 and 5 of time-freezing)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

import nosnoc_py as ns
from models import particle
from nosnoc_py.plotting.figures import dense_output
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

Array = NDArray[np.float64]

STATES = (("$q_1$ [m]", "$q_2$ [m]"), ("$v_1$ [m/s]", "$v_2$ [m/s]"))
STANDS_STILL = 1e-7  # an element over which the clock advances less is frozen [s]
FROZEN = "#F6D9C6"
TIMES = (r"$\tau$ [s]: numerical time; shaded: frozen", "$t$ [s]: physical time")


def both_times(found: ns.Trajectory, constants: particle.Constants, path: Path) -> None:
    """Draw Examples 3 and 4: the motion, the forces, the speed of time; dashed, the closed form."""
    axes = _panels(found)
    tau, y = dense_output(found)
    exact = particle.exact(tau, constants)
    for column, (times, exact_times) in enumerate(((tau, tau), (y[:, -1], exact[:, -1]))):
        for row, reference in enumerate((exact[:, :2], exact[:, 2:4])):
            axes[row, column].plot(exact_times, reference, color="black", lw=0.7, ls="--")
        for i, force in enumerate(particle.control(y[:, -1], constants).T):
            axes[2, column].plot(times, force, color=COLOURS[i], lw=1.4, label=f"$u_{i + 1}$ [N]")
    _rate(axes[3, 0], found)
    axes[3, 0].plot(tau, particle.speed_of_time(tau, constants), color="black", lw=0.7, ls="--", zorder=3)
    _recovered_force(axes[3, 1], found, constants)
    _finish(axes, path)


def optimal(solution: ns.Solution, other: ns.Solution, path: Path) -> None:
    """Draw Example 5, and the control of another method on the same problem."""
    numerical = solution.numerical
    assert numerical is not None
    axes = _panels(numerical)
    for column, trajectory in enumerate((numerical, solution)):
        u, edges = trajectory.u[:, 0], trajectory.u_grid
        axes[2, column].stairs(u, edges, color=COLOURS[0], lw=1.4, baseline=None, label="$u_1$ [N]")
    label = f"FESD-J, $J = {other.objective:.7g}$"
    axes[2, 1].stairs(other.u[:, 0], other.u_grid, color="black", lw=0.8, ls="--", baseline=None, label=label)
    _rate(axes[3, 0], numerical)
    axes[3, 0].stairs(
        numerical["speed_of_time"], numerical.u_grid, color=COLOURS[1], lw=1.4, baseline=None, label="$s$"
    )
    axes[3, 0].axhline(1.0, color=GREY, lw=0.6)
    for i, kind in enumerate(("normal", "tangent")):
        series = solution.series[f"lambda_{kind}[ground]"]
        axes[3, 1].plot(series.t, series.values, ".", ms=3, color=COLOURS[i], label=rf"$\lambda_{kind[0]}$ [N]")
    axes[0, 1].set_title(f"$J = {solution.objective:.7g}$", fontsize=9)
    _finish(axes, path)


def _panels(numerical: ns.Trajectory) -> Any:
    """Panels (4, 2) with the motion in both times, frozen intervals shaded."""
    made = figure(9.0, 8.0)
    made.set_layout_engine("constrained", w_pad=0.12)
    axes = made.subplots(4, 2, sharex="col")
    tau, y = dense_output(numerical)
    for column, times in enumerate((tau, y[:, -1])):
        for row, labels in enumerate(STATES):
            for i, label in enumerate(labels):
                axes[row, column].plot(times, y[:, 2 * row + i], color=COLOURS[i], lw=1.4, label=label)
        axes[3, column].set_xlabel(TIMES[column])
    for panel in axes[:, 0]:
        _shade(panel, numerical)
    return axes


def _shade(panel: Axes, numerical: ns.Trajectory) -> None:
    clock = numerical.x[:, -1]
    for k in np.flatnonzero(np.diff(clock) < STANDS_STILL):
        panel.axvspan(numerical.t[k], numerical.t[k + 1], color=FROZEN, lw=0.0, zorder=0)


def _rate(panel: Axes, numerical: ns.Trajectory) -> None:
    """dt/dtau, the mean of every finite element."""
    rate = np.diff(numerical.x[:, -1]) / np.diff(numerical.t)
    panel.stairs(rate, numerical.t, color=COLOURS[0], lw=1.4, baseline=None, label=r"$\mathrm{d}t/\mathrm{d}\tau$")


def _recovered_force(panel: Axes, found: ns.Trajectory, constants: particle.Constants) -> None:
    """lambda_n = a_n beta / (1 - beta) where the clock runs, at the Runge-Kutta stages."""
    series = found.series["beta[ground]"]
    runs = series.values < 1.0 - STANDS_STILL
    t, beta = found(series.t)[runs, -1], series.values[runs]
    panel.plot(
        t, constants.auxiliary * beta / (1.0 - beta), ".", ms=3, color=COLOURS[0], label=r"$\lambda_\mathrm{n}$ [N]"
    )
    panel.plot(t, particle.normal_force(t, constants), color="black", lw=0.7, ls="--", label="closed form")


def _finish(axes: Any, path: Path) -> None:
    for panel in axes.flat:
        panel.legend(fontsize=8, frameon=False)
        tidy(panel)
    save(axes[0, 0].figure, path)
