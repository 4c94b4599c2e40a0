"""The figure of a closed loop: the plant and its plans, the controls, and when they came and from where."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from nosnoc_py.control.mpc_step import Source
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.plotting.sheets import COLOURS, GREY, finished, new_figure, tidy
from nosnoc_py.solution.closed_loop import ClosedLoop

# Panels of states that are drawn when none are named.
MOST = 8
# Height of the panel of latencies, of that of a state: its legend is the longest.
TALLER = 1.7
# Colours and markers of controls by their source, the same in all figures; those of laws are the others.
LOOKS = {
    Source.SOLVED: (COLOURS[2], "o"),
    Source.SEARCHED: (COLOURS[1], "s"),
    Source.TRACKED: (COLOURS[0], "D"),
    Source.SHIFTED: (COLOURS[3], "v"),
    Source.HELD: (COLOURS[6], "X"),
}
OTHER = (COLOURS[5], "o")
FEW_DECADES = 1e2  # ranges of latencies below this have more than powers of ten on their axis


def plot_loop(
    log: ClosedLoop,
    names: Sequence[str] | None = None,
    *,
    path: str | Path | None = None,
    title: str | None = None,
) -> Figure:
    """Draw a closed loop: states with the plans of every sample, controls, latencies and the sources of the controls.

    Thin vertical lines are impacts. The latency of the first sample, which builds functions and solvers, is a number
    above its panel.

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
    figure = new_figure(8.5, 0.9 + 1.3 * (len(states) + 1 + TALLER))
    heights = [*[1.0] * (len(states) + 1), TALLER]
    rows = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, name in zip(rows, states, strict=False):
        _state(axes, log, log.state_names.index(name), legend=name == states[0])
    _controls(rows[-2], log)
    _latencies(rows[-1], log)
    for axes in rows:
        for time in _impacts(log):
            axes.axvline(time, color=GREY, lw=0.6, alpha=0.7, zorder=0)
    rows[-1].set_xlabel("t [s]")
    rows[-1].set_xlim(log.t[0], log.t[-1])
    figure.align_ylabels(list(rows))
    words = title if log.success else f"{title} ({log.status})" if title else str(log.status)
    return finished(figure, words, path)


def _impacts(log: ClosedLoop) -> list[float]:
    return [event.time for event in log.events if event.kind == "impact"]


def _state(axes: Axes, log: ClosedLoop, i: int, legend: bool) -> None:
    planned = np.flatnonzero(np.isfinite(log.plan_t).any(axis=1))
    for k in planned:
        label = "plans" if k == planned[0] else None
        axes.plot(log.plan_t[k], log.plan_x[k, :, i], color=GREY, lw=0.5, label=label)
    t, x = (log.motion_t, log.motion_x) if log.motion_t.size > len(log.u) else (log.t, log.x)
    axes.plot(t, x[:, i], color=COLOURS[0], lw=1.2, label="plant")
    if not np.allclose(log.measured[:, i], log.x[:-1, i], atol=0.0):
        axes.plot(log.t[:-1], log.measured[:, i], ".", color=COLOURS[1], ms=3, label="measured")
    # Plans end far off where the loop never comes: the plant's own range, and a little more, is what is looked at.
    low, high = log.motion_x[:, i].min(), log.motion_x[:, i].max()
    room = 0.15 * ((high - low) or 1.0)
    axes.set_ylim(low - room, high + room)
    axes.set_ylabel(log.state_names[i], fontsize=8)
    tidy(axes, legend=legend)


def _controls(axes: Axes, log: ClosedLoop) -> None:
    for name, values, colour in zip(log.control_names, log.u.T, COLOURS, strict=False):
        axes.stairs(values, log.t, baseline=None, color=colour, lw=1.2, label=name)
    axes.set_ylabel("controls", fontsize=8)
    tidy(axes)


def _latencies(axes: Axes, log: ClosedLoop) -> None:
    milliseconds, sources, t = 1e3 * log.latency, np.array(log.sources), log.t[:-1]
    # One sample may be a thousand times slower than all others; alone it is drawn as they are.
    rest = np.arange(len(t)) >= min(1, len(t) - 1)
    for source, count in log.counts.items():
        colour, marker = LOOKS.get(source, OTHER)  # type: ignore[call-overload]
        which = rest & (sources == source)
        look = {"color": colour, "marker": marker, "ms": 3.5, "ls": "none", "label": f"{source}: {count}"}
        axes.semilogy(t[which], milliseconds[which], **look)
    late = log.late > 0
    ring = {"color": "black", "marker": "o", "ms": 8, "mfc": "none", "mew": 0.9, "ls": "none"}
    axes.semilogy(t[rest & late], milliseconds[rest & late], **ring, label=f"late: {log.misses} of {len(t)}")
    axes.axhline(1e3 * log.period, color="black", lw=0.8, label=f"period, {1e3 * log.period:.4g} ms")
    if np.isfinite(log.deadline) and log.deadline != log.period:
        deadline = f"deadline, {1e3 * log.deadline:.4g} ms"
        axes.axhline(1e3 * log.deadline, color="black", lw=0.8, ls="--", label=deadline)
    if impacts := _impacts(log):
        axes.plot([], [], color=GREY, lw=0.6, label=f"impacts: {len(impacts)}")
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.3, 1.3 * high)
    if high < FEW_DECADES * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if not rest[0]:
        amount = f"{log.latency[0]:.3g} s" if log.latency[0] >= 1.0 else f"{milliseconds[0]:.3g} ms"
        axes.set_title(f"first sample: {amount}", loc="left", fontsize=7, pad=2)
    axes.set_ylabel("latency [ms]", fontsize=8)
    tidy(axes)
