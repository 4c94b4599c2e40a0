"""The cars with turbo, and the cart with a pole: what they do over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

import nosnoc_py as ns
from models import cart_pole_friction, hysteresis_car, turbo_car
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

POINTS = 801


def turbo(solution: ns.Solution, arguments: Mapping[str, Any], path: Path) -> None:
    """Draw the speed with its threshold and limit, the fastest drive of all controls behind it, and the control."""
    constants = turbo_car.Constants(**{key: value for key, value in arguments.items() if key != "distance"})
    made = figure(6.4, 4.8)
    top, bottom = made.subplots(2, sharex=True, height_ratios=(3, 2))
    t = np.linspace(0.0, solution.duration, POINTS)
    best = turbo_car.fastest_time(arguments["distance"], constants)
    s = np.linspace(0.0, best, POINTS)
    efforts = np.minimum(np.minimum(s, best - s) * constants.acceleration, turbo_car.effort(constants.limit, constants))
    top.plot(s, turbo_car.velocity_of(efforts, constants), color=GREY, lw=3, alpha=0.5, label="fastest of all")
    top.plot(t, solution(t)[:, 1], color=COLOURS[0], lw=1.4, label=f"{len(solution.u)} control stages")
    _level(top, constants.threshold, "turbo")
    _level(top, constants.limit, "limit")
    top.set_ylabel("$v$ [m/s]")
    top.legend(fontsize=8, frameon=False, loc="lower center")
    _stairs(bottom, solution.u_grid, solution.u[:, 0])
    bottom.set(xlabel="$t$ [s]", ylabel="$u$ [m/s$^2$]")
    for axes in (top, bottom):
        for event in solution.events:
            axes.axvline(event.time, color=GREY, lw=0.6, zorder=0)
        tidy(axes)
    save(made, path)


def hysteresis(solution: ns.Solution, motion: hysteresis_car.Drive, path: Path) -> None:
    """Draw speed and turbo in physical and in numerical time, and the loop that they make."""
    tau = np.linspace(0.0, solution.duration, 4 * POINTS)
    x = solution(tau)
    made = figure(9.6, 4.8)
    grid = made.add_gridspec(2, 2)
    _physical(made.add_subplot(grid[0, 0]), solution, x, motion)
    _numerical(made.add_subplot(grid[1, 0]), tau, x)
    _loop(made.add_subplot(grid[:, 1]), x)
    save(made, path)


def _physical(axes: Axes, solution: ns.Solution, x: np.ndarray, motion: hysteresis_car.Drive) -> None:
    axes.plot(x[:, 3], x[:, 1], color=COLOURS[0], lw=1.4, label="$v$ [m/s]")
    axes.plot(motion.t, motion.x[:, 1], "o", color="black", ms=3, mfc="none", label="automaton")
    _stairs(axes, solution(solution.u_grid)[:, 3], solution.u[:, 0], "$u$ [m/s$^2$]")
    for speed in (hysteresis_car.STANDARD.off, hysteresis_car.STANDARD.on):
        axes.axhline(speed, color=GREY, lw=0.8, ls=":")
    axes.set_xlabel("physical time $t$ [s]")
    axes.legend(fontsize=8, frameon=False, loc="upper right", ncols=1)
    tidy(axes)


def _numerical(axes: Axes, tau: np.ndarray, x: np.ndarray) -> None:
    axes.plot(tau, x[:, 1] / 10.0, color=COLOURS[0], lw=1.4, label="$v$ [10 m/s]")
    axes.plot(tau, x[:, 2], color=COLOURS[1], lw=1.4, label="$w$")
    axes.plot(tau, x[:, 3] / 10.0, color="black", lw=1.0, ls="--", label="clock [10 s]")
    axes.set_xlabel(r"numerical time $\tau$")
    axes.legend(fontsize=8, frameon=False)
    tidy(axes)


def _loop(axes: Axes, x: np.ndarray) -> None:
    """The plane of speed and w, with the line that separates its regions."""
    off, on = hysteresis_car.STANDARD.off, hysteresis_car.STANDARD.on
    axes.plot([on, off], [0.0, 1.0], color=GREY, lw=0.8, ls=":")
    axes.plot(x[:, 1], x[:, 2], color=COLOURS[0], lw=1.6)
    for k in np.flatnonzero(np.diff(x[:, 2] > 0.5)):
        axes.annotate(
            "", xy=x[k + 1, 1:3], xytext=x[k, 1:3], arrowprops={"arrowstyle": "-|>", "color": COLOURS[0], "lw": 1.6}
        )
    axes.set(xlabel="$v$ [m/s]", ylabel="turbo $w$", ylim=(-0.15, 1.15))
    tidy(axes)


def _stairs(axes: Axes, grid: np.ndarray, values: np.ndarray, label: str = "") -> None:
    axes.stairs(values, grid, color=COLOURS[1], lw=1.4, baseline=None, label=label)


def _level(axes: Axes, value: float, name: str) -> None:
    axes.axhline(value, color=GREY, lw=0.8, ls=":")
    axes.text(0.0, value, name, fontsize=8, color=GREY, va="bottom")


def cart_pole(
    solution: ns.Solution, motion: cart_pole_friction.Motion, sticks: Sequence[tuple[float, float]], path: Path
) -> None:
    """Draw angle, velocity and force over time; stick is shaded, the independent motion dotted on top."""
    made = figure(6.4, 5.6)
    rows = made.subplots(3, sharex=True)
    t = np.linspace(0.0, solution.duration, POINTS)
    for axes, k, label in ((rows[0], 1, r"$\varphi$ [rad]"), (rows[1], 2, "$v$ [m/s]")):
        axes.plot(t, solution(t)[:, k], color=COLOURS[0], lw=1.4, label="finite elements")
        axes.plot(motion.t, motion.x[:, k], ":", color="black", lw=1.4, label="phase by phase")
        axes.set_ylabel(label)
    rows[0].axhline(np.pi, color=GREY, lw=0.8, ls=":")
    rows[0].legend(fontsize=8, frameon=False, loc="upper left")
    _stairs(rows[2], solution.u_grid, solution.u[:, 0])
    rows[2].set(xlabel="$t$ [s]; shaded: the cart sticks", ylabel="$u$ [N]")
    for axes in rows:
        for begin, end in sticks:
            axes.axvspan(begin, end, color=GREY, alpha=0.2, lw=0, zorder=0)
        tidy(axes)
    save(made, path)


def cart_pole_frames(solution: ns.Solution, path: Path, length: float = 0.5) -> None:
    """Draw the cart and its pole at equal distances in time, early ones faint."""
    made = figure(6.4, 3.4)
    axes = made.subplots()
    axes.axhline(0.0, color=GREY, lw=0.8, zorder=0)
    times = np.linspace(0.0, solution.duration, 21)
    t = np.linspace(0.0, solution.duration, POINTS)
    s, phi = solution(t)[:, 0], solution(t)[:, 1]
    axes.plot(s + length * np.sin(phi), -length * np.cos(phi), color=COLOURS[1], lw=0.8, alpha=0.6)
    for k, time in enumerate(times):
        s, phi = solution(float(time))[:2]
        shade = 0.15 + 0.85 * k / (len(times) - 1)
        axes.add_patch(Rectangle((s - 0.08, -0.04), 0.16, 0.08, fc="none", ec=COLOURS[0], alpha=shade))
        tip = (s + length * np.sin(phi), -length * np.cos(phi))
        axes.plot([s, tip[0]], [0.0, tip[1]], color=COLOURS[0], lw=1.2, alpha=shade)
        axes.plot(*tip, "o", color=COLOURS[1], ms=4, alpha=shade)
    axes.set(aspect="equal", xlabel="$s$ [m]", ylabel="height [m]")
    tidy(axes)
    save(made, path)
