"""Figures of trajectories, phase portraits, and figures of the way to a solution.

Figures are built with matplotlib's objects, never with pyplot: no window, no display, no global state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import OptionError, UnknownNameError, check_type
from nosnoc_py.plotting.loops import plot_loop
from nosnoc_py.plotting.panels import Kind, Panel, acting, kind_of, panels_of, worth_drawing
from nosnoc_py.plotting.sheets import COLOURS, DASHES, GREY, finished, new_figure, scaled, tidy, titled
from nosnoc_py.solution.arrays import Array
from nosnoc_py.solution.closed_loop import ClosedLoop
from nosnoc_py.solution.solution import Solution
from nosnoc_py.solution.trajectory import Trajectory

Style = tuple[str, str, str]  # colour, dashes, label

# Numbers of a step that `plot_homotopy` draws.
LOGGED = ("complementarity", "infeasibility", "sigma", "slope")
FEW = 60  # samples of a series that have markers; more would be a thick line
HIDDEN = 0.01  # of the range of a panel: lines that are nearer than this lie on each other
APART = 0.035  # of the duration: labels of events, written at 40 degrees, overprint each other below this
CLOSE = 1e-12  # of the duration: times that are the same


@named_arguments
def plot(
    trajectory: Trajectory | ClosedLoop | Mapping[str, Trajectory] | Sequence[Trajectory],
    names: Sequence[str | Sequence[str]] | None = None,
    *,
    ax: Axes | Sequence[Axes] | None = None,
    path: str | Path | None = None,
    title: str | None = None,
) -> Figure:
    """Draw states, controls, contact forces and impulses over time, one panel per kind and unit.

    Parameters
    ----------
    trajectory
        A trajectory or a solution; or several in one figure, distinguished by their dashes and by labels: a mapping of
        labels, or a sequence. What all of them have is drawn, with the events of the first. Of the log of a closed loop
        its states with the plans of every sample, its controls and its latencies.
    names
        What to draw, everything when None. A sequence inside is one panel: `["u", ("x", "y")]`.
    ax
        Where to draw instead of in a new figure: axes for every panel, one for one panel.
    path
        Where to save a `.png`, `.pdf` or `.svg`; folders are made.
    title
        Title of the figure; the status of a motion that has failed, or a certificate that refutes it, is added.

    Raises
    ------
    UnknownNameError
        If a name is not one of the trajectory's quantities over time.
    OptionError
        For another kind of file, a place that cannot be written, or axes that are not as many as the panels.

    Examples
    --------
    Two motions in one figure, and one panel in axes of one's own:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> motions = {f"{k} per s": ns.simulate(ns.ODE(x=x, flow=-k * x), x0=[1.0], duration=1.0) for k in (1, 2)}
    >>> figure = ns.plot(motions)
    >>> axes = figure.axes[0]
    >>> ns.plot(motions["1 per s"], ["x_0"], ax=axes) is figure
    True
    """
    if isinstance(trajectory, ClosedLoop):
        return plot_loop(trajectory, None if names is None else [str(name) for name in names], path=path, title=title)
    every = _labelled(trajectory)
    first = next(iter(every.values()))
    panels = panels_of(first, names if len(every) == 1 or names is not None else _common(every))
    given = None if ax is None else [ax] if isinstance(ax, Axes) else list(ax)
    if given is not None and len(given) != len(panels):
        raise OptionError(
            f"ax: expected axes for {len(panels)} panels ({', '.join(panel.heading for panel in panels)}), given "
            f"{len(given)}; choose the panels by names=."
        )
    figure = new_figure(8.0, 1.1 + 1.6 * len(panels)) if given is None else given[0].figure
    rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0] if given is None else given
    for panel, axes in zip(panels, rows, strict=True):
        _draw_panel(axes, every, panel)
    start, end = min(one.t[0] for one in every.values()), max(one.t[-1] for one in every.values())
    # Lines at the very ends are not drawn onto the frame; a motion of one instant has a width, too.
    margin = 0.01 * ((end - start) or 1.0)
    for axes in rows if given is not None else rows[-1:]:
        axes.set_xlim(start - margin, end + margin)
        axes.set_xlabel(scaled(axes.xaxis, time_name(first), first.units.get("t", "s")))
    if given is not None:
        return figure
    _label_events(rows[0], first)
    figure.align_ylabels(list(rows))
    return finished(figure, titled(title, first), path)


def time_name(trajectory: Trajectory) -> str:
    """Return the name of a time axis; where time was frozen it says which of the two times it is."""
    if trajectory.numerical is not None:
        return "physical time t"
    frozen = trajectory.discretization is not None and trajectory.discretization.time_freezing
    return "numerical time" if frozen else "t"


def _labelled(given: Any) -> Mapping[str, Trajectory]:
    """Trajectories by their labels; one alone has none."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        given = {str(k + 1): one for k, one in enumerate(given)}
    every = given if isinstance(given, Mapping) else {"": given}
    for one in every.values():
        check_type(one, Trajectory, "trajectory")
    if not every:
        raise OptionError("there is nothing to draw: give a trajectory.")
    return every


def _common(every: Mapping[str, Trajectory]) -> list[str]:
    """Return the names that are worth drawing and common to all."""
    first, *others = every.values()
    return [name for name in worth_drawing(first) if all(name in other.names for other in others)]


@named_arguments
def plot_homotopy(solution: Solution, *, path: str | Path | None = None, title: str | None = None) -> Figure:
    """Draw residuals and the relaxation parameter sigma over the steps of a solver, on a logarithmic scale.

    Methods that descend also have the size of the objective's derivative (slope); if nothing of all this is positive,
    the objective is drawn.

    Parameters
    ----------
    solution : Solution
    path
        Where to save a `.png`, `.pdf` or `.svg`; folders are made.
    title
        Title of the figure; the status of a failed solution is added.

    Raises
    ------
    OptionError
        If the solution has no log.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
    >>> solution = ns.solve(ocp, ns.FESDJ(control_stages=2), ns.Homotopy())
    >>> ns.plot_homotopy(solution).axes[0].get_xlabel()
    'step'
    """
    check_type(solution, Solution, "solution")
    if not solution.log:
        raise OptionError(f"the solution has no log of steps to draw; its method ({solution.method}) keeps none.")
    figure = new_figure(7.0, 3.4)
    axes = figure.subplots()
    steps = [record.step for record in solution.log]
    drawn = []
    for name, colour, marker in zip(LOGGED, COLOURS, "os^D", strict=False):
        # A residual of exactly zero has no logarithm: leave a gap.
        values = np.array([getattr(record, name) or np.nan for record in solution.log], dtype=float)
        if np.isfinite(values).any():
            drawn.append(name)
            axes.semilogy(
                steps, values, "--" if name == "sigma" else "-", color=colour, marker=marker, ms=4, label=name
            )
    if not drawn:
        values = np.array([record.objective for record in solution.log], dtype=float)
        axes.plot(steps, values, color=COLOURS[0], marker="o", ms=4, label="objective")
    finish = [record.step for record in solution.log if record.label == "finish"]
    for step in finish:
        axes.axvspan(step - 0.5, step + 0.5, color=GREY, alpha=0.2, lw=0, label="finish" if step == finish[0] else None)
    axes.set(xlabel="step", ylabel=_logged(drawn))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    tidy(axes)
    return finished(figure, titled(title, solution), path)


def _logged(names: Sequence[str]) -> str:
    """Return the label of the axis of a log."""
    residual = ["residual"] if {"complementarity", "infeasibility"} & set(names) else []
    return ", ".join([*residual, *[name for name in names if name in ("sigma", "slope")]]) or "objective"


def dense_output(trajectory: Trajectory, points: int = 16) -> tuple[Array, Array]:
    """Return times (m,) and states (m, n_x) dense enough to draw; a row of NaN separates the sides of a jump.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> from nosnoc_py.plotting import dense_output
    >>> x = ca.SX.sym("x")
    >>> motion = ns.simulate(ns.ODE(x=x, flow=-1), x0=[2.0], duration=1.0)
    >>> t, states = dense_output(motion)
    >>> bool(len(t) > len(motion.t)), states.shape == (len(t), 1)
    (True, True)
    """
    left = np.flatnonzero(np.diff(trajectory.t) > 0.0)
    if not left.size:
        return trajectory.t, trajectory.x
    t = np.linspace(trajectory.t[left], trajectory.t[left + 1], points, axis=1)
    x = trajectory(t.ravel(), "+").reshape(*t.shape, -1)
    # An interval ends with the limit from the left, whatever happens at its end.
    x[:, -1] = trajectory(t[:, -1], "-")
    # A repeated time between two intervals leaves a gap in the indices of their left nodes
    jumps = (np.flatnonzero(np.diff(left) > 1) + 1) * points
    times = np.insert(t.ravel(), jumps, t[jumps // points, 0])
    return times, np.insert(x.reshape(t.size, -1), jumps, np.nan, axis=0)


def _draw_panel(axes: Axes, every: Mapping[str, Trajectory], panel: Panel) -> None:
    first = next(iter(every.values()))
    for time in {event.time for event in first.events}:
        axes.axvline(time, color=GREY, lw=0.6, alpha=0.6, zorder=0)
    for k, name in enumerate(panel.names):
        for j, (label, trajectory) in enumerate(every.items()):
            # A line that lies on an earlier one is dashed, so that both are seen.
            covered = len(every) == 1 and any(_coincide(trajectory, name, other) for other in panel.names[:k])
            dashes = DASHES[(k // len(COLOURS) + j + covered) % len(DASHES)]
            style = (COLOURS[k % len(COLOURS)], dashes, f"{name}, {label}" if label else name)
            _DRAW[kind_of(trajectory, name)](axes, trajectory, name, style)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_ylabel(scaled(axes.yaxis, panel.heading, panel.unit), fontsize=9)
    tidy(axes, legend=len(panel.names) * len(every) > 1)


def _coincide(trajectory: Trajectory, name: str, other: str) -> bool:
    """True if a line would hide the other one where it does not differ: on most samples, within a line's width."""
    (t, values), (times, others) = ((trajectory.times(one), trajectory[one]) for one in (name, other))
    if len(t) != len(times) or len(t) == 0 or not np.array_equal(t, times):
        return False
    size = max(float(np.ptp(values)), float(np.ptp(others)), float(np.finfo(float).tiny))
    return bool(np.mean(np.abs(values - others) <= HIDDEN * size) > 0.5)


def _draw_state(axes: Axes, trajectory: Trajectory, name: str, style: Style) -> None:
    column = trajectory.state_names.index(name)
    t, x = dense_output(trajectory)
    axes.plot(t, x[:, column], color=style[0], ls=style[1], lw=1.5, label=style[2])
    jumps = np.flatnonzero(np.diff(trajectory.t) == 0.0)
    for i in jumps:
        both = slice(i, i + 2)
        axes.plot(trajectory.t[both], trajectory.x[both, column], color=style[0], ls=":", lw=0.9)


def _draw_control(axes: Axes, trajectory: Trajectory, name: str, style: Style) -> None:
    column, grid = trajectory.control_names.index(name), trajectory.u_grid
    if (look := trajectory.control_interpolant) is None:
        axes.stairs(trajectory[name], grid, baseline=None, color=style[0], ls=style[1], lw=1.5, label=style[2])
        return
    # A control with dense output may jump where the state does, and between its stages.
    ends = np.unique(np.concatenate([grid, [event.time for event in trajectory.events]]))
    ends = ends[(ends >= grid[0]) & (ends <= grid[-1])]
    t = np.linspace(ends[:-1], ends[1:], 8, axis=1)
    u = np.asarray(look(t.ravel(), "+"))[:, column].reshape(t.shape)
    u[:, -1] = np.asarray(look(t[:, -1], "-"))[:, column]
    axes.plot(t.ravel(), u.ravel(), color=style[0], ls=style[1], lw=1.5, label=style[2])


def _draw_series(axes: Axes, trajectory: Trajectory, name: str, style: Style) -> None:
    events = [event.time for event in trajectory.events]
    t, values = broken(trajectory.times(name), trajectory[name], events, float(trajectory.t[-1]))
    marker = {"marker": ".", "ms": 3.5} if len(t) <= FEW else {}
    axes.plot(t, values, color=style[0], ls=style[1], lw=1.2, label=style[2], **marker)


def broken(t: Array, values: Array, events: Sequence[float], end: float) -> tuple[Array, Array]:
    """Return times and values of a series, with NaN where it jumps.

    That is between two samples of one time. Events with a single sample belong to what is before them, as the stages of
    a finite element do that reach its right end; unless the series stops before the end of the motion, because its
    samples are those at left ends.
    """
    close = CLOSE * float(np.ptp(t)) if t.size else 0.0
    twice = np.diff(t) <= close
    ends = np.array([time for time in sorted(events) if not np.any(np.abs(t[1:][twice] - time) <= close)])
    before = t.size > 0 and t[-1] < end - close
    passed = np.searchsorted(ends, t + close, "right") if before else np.searchsorted(ends, t - close)
    breaks = np.flatnonzero(twice | (np.diff(passed) > 0)) + 1
    return np.insert(t, breaks, np.nan), np.insert(values, breaks, np.nan)


def _draw_impulse(axes: Axes, trajectory: Trajectory, name: str, style: Style) -> None:
    acts = acting(trajectory, name)
    t, values = trajectory.times(name)[acts], trajectory[name][acts]
    axes.axhline(0.0, color=GREY, lw=0.8)
    axes.vlines(t, 0.0, values, color=style[0], ls=style[1], lw=1.5)
    face = style[0] if style[1] == "-" else "white"
    axes.plot(t, values, color=style[0], ls="none", marker="o", ms=4.5, mfc=face, label=style[2])


_DRAW: dict[Kind, Callable[[Axes, Trajectory, str, Style], None]] = {
    "state": _draw_state,
    "control": _draw_control,
    "force": _draw_series,
    "multiplier": _draw_series,
    "series": _draw_series,
    "impulse": _draw_impulse,
}


def _label_events(axes: Axes, trajectory: Trajectory) -> None:
    """Write what happens above the first panel; events that would overprint the one before stay unlabelled."""
    at: dict[float, list[str]] = {}
    for event in trajectory.events:
        at.setdefault(event.time, []).append(f"{event.kind.replace('_', ' ')} {event.name}")
    last = -np.inf
    for time, labels in sorted(at.items()):
        if time - last > APART * trajectory.duration:
            place = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
            text = ", ".join(dict.fromkeys(labels))
            axes.annotate(text, (time, 1.0), xytext=(0, 3), **place, rotation=40, fontsize=7, color="#555555")
            last = time


# Marker and colour of every kind of event; kinds differ by their form, too.
EVENTS: dict[str, tuple[str, str]] = {
    "impact": ("x", COLOURS[1]),
    "contact": ("v", COLOURS[2]),
    "release": ("^", COLOURS[2]),
    "slip": (">", COLOURS[3]),
    "stick": ("s", COLOURS[3]),
    "reversal": ("D", COLOURS[3]),
    "switch": ("o", COLOURS[4]),
    "enter_sliding": ("<", COLOURS[5]),
    "leave_sliding": ("P", COLOURS[5]),
}


@named_arguments
def plot_phase(
    trajectory: Trajectory, x: str, y: str, *, path: str | Path | None = None, title: str | None = None
) -> Figure:
    """Draw one state over another, jumps dotted, with a mark at the state before and after every event.

    Parameters
    ----------
    trajectory
        A trajectory or a solution.
    x, y
        Names of states.
    path
        Where to save a `.png`, `.pdf` or `.svg`; folders are made.

    Raises
    ------
    UnknownNameError
        If a name is not one of a state.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q, restitution=0.5)])
    >>> figure = ns.plot_phase(ns.simulate(ball, x0=[1.0, 0.0], duration=0.6), "q_0", "v_0")
    >>> figure.axes[0].get_xlabel()
    'q_0'
    """
    check_type(trajectory, Trajectory, "trajectory")
    for name in (x, y):
        if name not in trajectory.state_names:
            raise UnknownNameError(name, trajectory.state_names, "state")
    columns = [trajectory.state_names.index(name) for name in (x, y)]
    figure = new_figure(5.6, 4.2)
    axes = figure.subplots()
    axes.plot(*dense_output(trajectory)[1][:, columns].T, color=COLOURS[0], lw=1.4)
    for i in np.flatnonzero(np.diff(trajectory.t) == 0.0):
        axes.plot(*trajectory.x[i : i + 2, columns].T, color=COLOURS[0], ls=":", lw=0.9)
    _mark_events(axes, trajectory, columns)
    for place, marker, label in ((0, "o", "start"), (-1, "*", "end")):
        look = {"mfc": "white" if place == 0 else "black", "mec": "black", "ms": 6 if place == 0 else 9}
        axes.plot(*trajectory.x[place, columns], marker, label=label, zorder=4, **look)
    axes.set_xlabel(scaled(axes.xaxis, x, trajectory.units.get(x, "")))
    axes.set_ylabel(scaled(axes.yaxis, y, trajectory.units.get(y, "")))
    axes.grid(axis="x", color="#E4E4E4", lw=0.6)
    tidy(axes)
    return finished(figure, titled(title, trajectory), path)


def _mark_events(axes: Axes, trajectory: Trajectory, columns: list[int]) -> None:
    for kind, (marker, colour) in EVENTS.items():
        times = [event.time for event in trajectory.events if event.kind == kind]
        if times:
            before, after = trajectory(times, "-")[:, columns], trajectory(times, "+")[:, columns]
            # Without a jump one mark, with one the states on both sides.
            places = before if np.allclose(before, after) else np.vstack([before, after])
            look = {"mfc": "none", "mec": colour, "mew": 1.3, "ms": 6, "zorder": 5}
            axes.plot(*places.T, marker, label=kind.replace("_", " "), **look)
