"""The figure of a closed loop: the plant and its plans, the controls, and when they came and from where."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.plotting.sheets import COLOURS, GREY, finished, new_figure, tidy
from nosnoc_py.solution.closed_loop import ClosedLoop

# Panels of states that are drawn when none are named.
MOST = 8


def plot_loop(
    log: ClosedLoop,
    names: Sequence[str] | None = None,
    *,
    path: str | Path | None = None,
    title: str | None = None,
) -> Figure:
    """Draw a closed loop: states with the plans of every sample, controls, latencies and the sources of the controls.

    Parameters
    ----------
    log : ClosedLoop
    names : sequence of str, optional
        States to draw; default all, at most eight.
    path, title
        As for `ns.plot`.

    Raises
    ------
    UnknownNameError, OptionError
        For a name that is no state, a log without samples, or another kind of file.
    """
    if not len(log.u):
        raise OptionError(f"plot: this log has no samples: {log.message or log.status}.")
    states = list(log.state_names[:MOST] if names is None else names)
    for name in states:
        if name not in log.state_names:
            raise OptionError(f"plot: {unknown_name(name, log.state_names)}")
    figure = new_figure(8.5, 0.9 + 1.3 * (len(states) + 2))
    rows = figure.subplots(len(states) + 2, 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(rows, states, strict=False):
        _state(axes, log, log.state_names.index(name))
    _controls(rows[-2], log)
    _latencies(rows[-1], log)
    rows[-1].set_xlabel("t [s]")
    rows[-1].set_xlim(log.t[0], log.t[-1])
    figure.align_ylabels(list(rows))
    words = title if log.success else f"{title} ({log.status})" if title else str(log.status)
    return finished(figure, words, path)


def _state(axes: Axes, log: ClosedLoop, i: int) -> None:
    for k in range(len(log.u)):
        axes.plot(log.plan_t[k], log.plan_x[k, :, i], color=GREY, lw=0.5, label="plans" if k == 0 else None)
    t, x = (log.motion_t, log.motion_x) if log.motion_t.size > len(log.u) else (log.t, log.x)
    axes.plot(t, x[:, i], color=COLOURS[0], lw=1.2, label="plant")
    if not np.allclose(log.measured[:, i], log.x[:-1, i], atol=0.0):
        axes.plot(log.t[:-1], log.measured[:, i], ".", color=COLOURS[1], ms=3, label="measured")
    # Plans end far off where the loop never comes: the plant's own range, and a little more, is what is looked at.
    low, high = log.motion_x[:, i].min(), log.motion_x[:, i].max()
    room = 0.15 * ((high - low) or 1.0)
    axes.set_ylim(low - room, high + room)
    axes.set_ylabel(log.state_names[i], fontsize=8)
    tidy(axes, legend=i == 0)


def _controls(axes: Axes, log: ClosedLoop) -> None:
    for name, values, colour in zip(log.control_names, log.u.T, COLOURS, strict=False):
        axes.stairs(values, log.t, baseline=None, color=colour, lw=1.2, label=name)
    axes.set_ylabel("controls", fontsize=8)
    tidy(axes)


def _latencies(axes: Axes, log: ClosedLoop) -> None:
    sources = np.array(log.sources)
    for source, colour in zip(log.counts, (COLOURS[2], *COLOURS[1:2], *COLOURS[3:]), strict=False):
        which = sources == source
        axes.semilogy(log.t[:-1][which], 1e3 * log.latency[which], "o", color=colour, ms=3, label=source)
    axes.axhline(1e3 * log.period, color="black", lw=0.8, label="period")
    if np.isfinite(log.deadline) and log.deadline != log.period:
        axes.axhline(1e3 * log.deadline, color="black", lw=0.8, ls="--", label="deadline")
    axes.set_ylabel("latency [ms]", fontsize=8)
    tidy(axes)
