"""The two discs: convergence over iterations and grids, relaxations, the length, and all methods at once.

Like Figs. 2, 5, 8 (convergence), 3, 6, 9, 14 (grids), 10 (length), 11 (relaxation) and 13 (descent) of the paper on
the hybrid minimum principle.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from nosnoc_py.solution.solution import costate_name
from problems.benchmarks.two_discs_findings import series
from problems.benchmarks.two_discs_grids import GridError, fit
from problems.benchmarks.two_discs_history import FITTED, MSA, History
from problems.benchmarks.two_discs_rows import Row
from problems.drawing.style import COLOURS, GREY, figure, save, tidy
from problems.drawing.two_discs import TITLES, control

MEASURES = ("excess", "slope", "error")
LABELS = {
    "excess": "$|J - J^*|$ [m$^2$]",
    "slope": r"$\Vert H_u \Vert$ [m$^2$ N$^{-1}$ s$^{-1/2}$]",
    "error": r"$\Vert u - u^* \Vert$ [N]",
}
ERRORS = {
    "time": "error of collision times [s]",
    "control": r"$\Vert u - u^* \Vert$ [N]",
    "objective": "$|J - J^*|$ [m$^2$]",
}
MARKERS = "osD^vP"


def convergence(histories: Sequence[History], path: Path) -> None:
    """Draw cost, slope and error of the control over the iterations of Algorithm 1, with the fitted rate."""
    made = figure(3.1 * max(len(histories), 2), 6.4)
    axes = made.subplots(3, len(histories), squeeze=False, sharex=True, sharey="row")
    for column, one in zip(axes.T, histories, strict=True):
        for panel, name in zip(column, MEASURES, strict=True):
            values = getattr(one, name)
            panel.semilogy(values, color=COLOURS[0], lw=1.4)
            panel.annotate(
                f"{values[-1]:.3g}", (0.98, 0.93), xycoords="axes fraction", ha="right", va="top", fontsize=8
            )
            tidy(panel)
        _fitted(column[2], one, "black")
        column[2].annotate(
            f"rate {one.fit[0]:.4f}", (0.98, 0.8), xycoords="axes fraction", ha="right", va="top", fontsize=8
        )
        column[0].set_title(f"{TITLES[one.experiment]}, $N = {one.steps}$", fontsize=9)
        column[2].set_xlabel("iteration")
    for panel, name in zip(axes[:, 0], MEASURES, strict=True):
        panel.set_ylabel(LABELS[name])
    save(made, path)


def relaxation(histories: Sequence[History], path: Path) -> None:
    """Draw the error of the control over the iterations for several alpha, with the fitted rates."""
    made = figure(6.4, 4.0)
    axes = made.subplots()
    for colour, one in zip(COLOURS, histories, strict=False):
        lost = "" if one.solution.status.value != "collision lost" else ", collision lost"
        label = rf"$\alpha = {one.relaxation:g}$: rate {one.fit[0]:.4f}"
        if lost or one.relaxation > 0.01:
            label = rf"$\alpha = {one.relaxation:g}${lost or ': does not converge'}"
        axes.semilogy(one.error, color=colour, lw=1.4, label=label, marker="x" if lost else None, ms=6)
        if one.relaxation <= 0.01:
            _fitted(axes, one, "black")
    axes.set(xlabel="iteration", ylabel=LABELS["error"])
    axes.legend(fontsize=8, frameon=False)
    tidy(axes)
    save(made, path)


def _fitted(axes: Axes, one: History, colour: str) -> None:
    rate, start = one.fit
    k = np.arange(min(round(FITTED / one.relaxation), one.error.size))
    axes.semilogy(k, start * rate**k, color=colour, lw=0.8, ls="--")


def descent(histories: Sequence[History], descents: Sequence[History], path: Path) -> None:
    """Draw both over the iterations: Algorithm 1 full, gradient descent dashed."""
    made = figure(8.4, 3.8)
    panels = made.subplots(1, 2)
    colours = {one.experiment: COLOURS[i] for i, one in enumerate(descents)}
    for panel, name in zip(panels, ("error", "excess"), strict=True):
        for one in (*histories, *descents):
            if one.experiment in colours:
                dashes = "-" if one.method == MSA else "--"
                panel.semilogy(getattr(one, name), color=colours[one.experiment], lw=1.2, ls=dashes)
        panel.set(xlabel="iteration", ylabel=LABELS[name])
        tidy(panel)
    handles = [Line2D([], [], color=colour, label=TITLES[name]) for name, colour in colours.items()]
    handles += [Line2D([], [], color=GREY, label="Algorithm 1"), Line2D([], [], color=GREY, ls="--", label="gradient")]
    made.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    save(made, path)


def grids(errors: Sequence[GridError], path: Path) -> None:
    """Draw the errors over N with sigma / N, a row for every problem."""
    found = series(errors)
    problems = list(dict.fromkeys(experiment for experiment, _ in found))
    made = figure(9.6, 2.9 * len(problems) + 0.4)
    axes = made.subplots(len(problems), 3, squeeze=False, sharex=True)
    for (experiment, method), each in found.items():
        for panel, quantity in zip(axes[problems.index(experiment)], ERRORS, strict=True):
            _over_grids(panel, each, quantity, own=method == MSA)
            panel.set_ylabel(ERRORS[quantity])
            tidy(panel)
            panel.tick_params(which="both", labelsize=7)
    for row, problem in zip(axes, problems, strict=True):
        row[1].set_title(TITLES[problem], fontsize=9)
    for panel in axes[-1]:
        panel.set_xlabel("$N$")
    handles = [
        Line2D([], [], color=COLOURS[0], marker="o", ms=4, lw=0.8, label="Algorithm 1"),
        Line2D([], [], color="black", ls="--", lw=0.9, label=r"$\sigma / N$"),
        Line2D([], [], color=COLOURS[1], marker="s", ms=4, lw=0.8, label="gradient descent"),
    ]
    made.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    save(made, path)


def _over_grids(panel: Axes, errors: Sequence[GridError], quantity: str, *, own: bool) -> None:
    steps = np.array([error.steps for error in errors])
    values = [getattr(error, quantity) for error in errors]
    style = {"color": COLOURS[0], "marker": "o"} if own else {"color": COLOURS[1], "marker": "s"}
    panel.loglog(steps, values, ms=3.5, lw=0.8, **style)
    if own and steps.size > 1:
        sigma = fit(errors, quantity).sigma
        panel.loglog(steps, sigma / steps, color="black", ls="--", lw=0.9)
        panel.annotate(
            rf"$\sigma = {sigma:.3g}$", (0.98, 0.97), xycoords="axes fraction", ha="right", va="top", fontsize=8
        )


def length(one: History, path: Path) -> None:
    """Draw 5.4: the control, against which costate it stands, and the cost over the iterations."""
    made = figure(10.2, 3.4)
    panels = made.subplots(1, 3)
    control(panels[0], one)
    panels[0].set_ylabel("$u$ [N] (dashed: exact)")
    found = one.solution
    costate = np.column_stack([found.series[costate_name(name)].values for name in ("v_x_1", "v_y_1")])
    size = np.linalg.norm(costate, axis=1)
    for i, axis in enumerate("xy"):
        direction = -costate[:, i] / np.where(size > 0.0, size, np.nan)
        panels[1].plot(found.t, direction, color=COLOURS[2 + i], lw=1.4, label=rf"$-\lambda_{{v_{axis}}}/|\lambda_v|$")
    panels[1].plot(found.t, size, color=COLOURS[0], lw=1.2, label=r"$|\lambda_v|$ [m s]")
    panels[1].axhline(one.exact.experiment.epsilon, color=GREY, lw=0.8, ls=":", label=r"$m \epsilon$")
    panels[1].set_xlabel("$t$ [s]")
    panels[2].semilogy(one.excess, color=COLOURS[0], lw=1.4)
    panels[2].set(xlabel="iteration", ylabel=LABELS["excess"])
    panels[1].legend(fontsize=8, frameon=False)
    for panel in panels:
        tidy(panel)
    save(made, path)


def methods(rows: Sequence[Row], path: Path) -> None:
    """Draw what every method achieves: the cost of its control in an event-driven simulation, over the time it took."""
    problems = list(dict.fromkeys(row.experiment for row in rows))
    timed = [row for row in rows if np.isfinite(row.true_error) and np.isfinite(row.seconds)]
    names = list(dict.fromkeys(row.method for row in timed))
    made = figure(3.0 * max(len(problems), 2), 4.6)
    axes = made.subplots(1, len(problems), squeeze=False, sharey=True)[0]
    style = {name: (COLOURS[i % len(COLOURS)], MARKERS[i // len(COLOURS)]) for i, name in enumerate(names)}
    for panel, problem in zip(axes, problems, strict=True):
        for row in (row for row in timed if row.experiment == problem):
            colour, marker = style[row.method]
            filled = {"mfc": colour if row.status == "solved" else "none", "mec": colour}
            panel.loglog(max(row.seconds, 1e-3), max(abs(row.true_error), 1e-15), marker, ms=6, **filled)
        panel.set_title(TITLES[problem], fontsize=9)
        panel.set_xlabel("time of the processor [s]")
        tidy(panel)
    axes[0].set_ylabel("$|J - J^*|$ of the control, simulated [m$^2$]")
    handles = [Line2D([], [], ls="", marker=style[n][1], color=style[n][0], ms=6, label=n) for n in names]
    handles.append(Line2D([], [], ls="", marker="o", mfc="none", mec=GREY, ms=6, label="open: not solved"))
    made.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    save(made, path)
