"""Pictures of many runs, from plain rows: maps over two axes, performance profiles, scatter by chance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, NullFormatter

from nosnoc_py.errors import OptionError, UnknownNameError
from nosnoc_py.plotting.figures import COLOURS, DASHES, GREY
from nosnoc_py.plotting.sheets import finished, new_figure, tidy
from nosnoc_py.solution.arrays import Array

Rows = Sequence[Mapping[str, Any]]

DECADES = 2.0  # values that span more are coloured by their logarithm
LONG = 13  # letters that fit below a cell
BEYOND = 1.15  # how far behind the largest ratio a profile goes on


def heat_map(
    rows: Rows,
    x: str,
    y: str,
    value: str,
    *,
    path: str | Path | None = None,
    title: str | None = None,
    unit: str = "",
) -> Figure:
    """Draw one number of runs over two of their settings.

    A cell is the geometric mean of its runs where all numbers of the map are positive, else the mean. Runs without a
    number (missing, None, NaN, infinite) have failed: a cell where all have is crossed out, and where only some have it
    says how many. A cell without runs stays empty.

    Parameters
    ----------
    rows : sequence of mappings
        One per run.
    x, y, value : str
        Keys of the rows.
    path
        Where to save a `.png`, `.pdf` or `.svg`; folders are made.
    unit
        Of the value.

    Raises
    ------
    OptionError
        Without rows; `UnknownNameError` for a key that no row has.

    Examples
    --------
    >>> from nosnoc_py import plotting
    >>> rows = [{"h": h, "solver": s, "seconds": h * k} for h in (1, 2) for k, s in enumerate(("auto", "homotopy"), 1)]
    >>> len(plotting.heat_map(rows, "h", "solver", "seconds").axes)  # the map and its colour bar
    2
    """
    columns, lines, runs_of_cell = table_of(rows, x, y, value)
    means, failed = _means(runs_of_cell)
    figure = new_figure(2.2 + 0.9 * len(columns), 1.5 + 0.5 * len(lines))
    axes = figure.subplots()
    shown = np.ma.masked_invalid(means)
    norm = _norm(means)
    drawn = axes.pcolormesh(np.arange(len(columns) + 1), np.arange(len(lines) + 1), shown, norm=norm, cmap="cividis")
    if np.isfinite(means).any():
        bar = figure.colorbar(drawn, ax=axes, pad=0.02)
        bar.set_label(f"{value} [{unit}]" if unit else value, fontsize=9)
        bar.ax.tick_params(labelsize=8)
    for i, j in np.ndindex(means.shape):
        runs = runs_of_cell.get((i, j), [])
        if runs and failed[i, j] == len(runs):
            axes.add_patch(Rectangle((j, i), 1.0, 1.0, fc="white", ec=GREY, hatch="xx", lw=0.0))
        if runs:
            dark = np.isfinite(means[i, j]) and norm(means[i, j]) < 0.55
            some = f"\n{failed[i, j]} of {len(runs)} failed" if 0 < failed[i, j] < len(runs) else ""
            text = f"{means[i, j]:.3g}{some}" if np.isfinite(means[i, j]) else "failed"
            look = {"color": "white" if dark else "black", "fontsize": 7 if some else 8}
            if text == "failed":
                look["bbox"] = {"fc": "white", "ec": "none", "pad": 1.0}  # type: ignore[assignment]
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", **look)
    names = [_label(key) for key in columns]
    turned: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    wide = max(map(len, names)) > LONG
    axes.set_xticks(np.arange(len(columns)) + 0.5, names, **(turned if wide else {}))
    axes.set_yticks(np.arange(len(lines)) + 0.5, [_label(key) for key in lines])
    axes.tick_params(length=0, labelsize=8)
    axes.set(xlabel=x, ylabel=y)
    axes.spines[:].set_visible(False)
    return finished(figure, title, path)


def table_of(rows: Rows, x: str, y: str, value: str) -> tuple[list[Any], list[Any], dict[tuple[int, int], list[float]]]:
    """Values of the columns and of the lines, in order, and the numbers of the runs by (line, column); NaN: failed."""
    _check_keys(rows, (x, y, value))
    columns, lines = _sorted(row.get(x) for row in rows), _sorted(row.get(y) for row in rows)
    numbers: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        place = lines.index(_key(row.get(y))), columns.index(_key(row.get(x)))
        numbers.setdefault(place, []).append(_number(row.get(value)))
    return columns, lines, numbers


def _means(numbers: Mapping[tuple[int, int], list[float]]) -> tuple[Array, npt.NDArray[np.int64]]:
    shape = tuple(int(n) + 1 for n in np.max(list(numbers), axis=0))
    means, failed = np.full(shape, np.nan), np.zeros(shape, dtype=int)
    every = np.concatenate([np.array(runs) for runs in numbers.values()])
    # Numbers of different orders of magnitude (times, errors) have no useful arithmetic mean.
    geometric = bool((every[np.isfinite(every)] > 0.0).all())
    for place, runs in numbers.items():
        good = np.array([run for run in runs if np.isfinite(run)])
        failed[place] = len(runs) - good.size
        if good.size:
            means[place] = np.exp(np.log(good).mean()) if geometric else good.mean()
    return means, failed


def _norm(means: Array) -> Normalize:
    good = means[np.isfinite(means)]
    if not good.size:
        return Normalize(0.0, 1.0)
    low, high = float(good.min()), float(good.max())
    if low > 0.0 and high > 10**DECADES * low:
        return LogNorm(low, high)
    return Normalize(low, high if high > low else low + (abs(low) or 1.0))


def performance_profile(
    rows: Rows,
    group: str,
    cost: str,
    instance: str | Sequence[str],
    *,
    path: str | Path | None = None,
    title: str | None = None,
) -> Figure:
    """Draw, for every group, the share of instances that it solves within a factor of the cheapest group's cost.

    The profile of Dolan and Moré: at 1 how often a group is the cheapest, at the right end how many instances it solves
    at all. Runs without a number have failed; several runs of a group on one instance count with their mean, and as
    failed if one of them has.

    Parameters
    ----------
    rows : sequence of mappings
        One per run.
    group : str
        Key by which runs are compared: a method, a solver.
    cost : str
        Key of a positive number: seconds, iterations.
    instance : str or sequence of str
        Key or keys that identify the problem.
    path
        Where to save a `.png`, `.pdf` or `.svg`; folders are made.

    Raises
    ------
    OptionError
        Without rows, or for a cost that is not positive; `UnknownNameError` for a key that no row has.

    Examples
    --------
    >>> from nosnoc_py import plotting
    >>> rows = [{"h": h, "solver": s, "seconds": h * k} for h in (1, 2) for k, s in enumerate(("auto", "homotopy"), 1)]
    >>> axes = plotting.performance_profile(rows, "solver", "seconds", "h").axes[0]
    >>> axes.get_ylabel()
    'share of instances'
    """
    profiles, instances = ratios_of(rows, group, cost, (instance,) if isinstance(instance, str) else tuple(instance))
    every = np.concatenate([np.zeros(0), *profiles.values()])
    finite = every[np.isfinite(every)]
    end = max(2.0, BEYOND * float(finite.max())) if finite.size else 2.0
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    for k, (name, ratios) in enumerate(profiles.items()):
        good = np.sort(ratios[np.isfinite(ratios)])
        # A step function from 1, where groups that are the cheapest start.
        steps = np.concatenate([[1.0], good, [end]])
        shares = np.concatenate([[0.0], np.arange(1, good.size + 1), [good.size]]) / max(instances, 1)
        style = {"color": COLOURS[k % len(COLOURS)], "ls": DASHES[k // len(COLOURS) % len(DASHES)]}
        solved = f"{_label(name)} ({good.size} of {instances})"
        axes.plot(steps, shares, drawstyle="steps-post", lw=1.8, label=solved, **style)
    axes.set(xscale="log" if end > 5.0 else "linear", xlim=(1.0, end), ylim=(-0.02, 1.03))
    if end > 5.0:
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if end < 500.0 else (1.0,)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"{cost}, in multiples of the cheapest {group}")
    axes.set_ylabel("share of instances")
    tidy(axes)
    return finished(figure, title, path)


def ratios_of(rows: Rows, group: str, cost: str, instance: Sequence[str]) -> tuple[dict[Any, Array], int]:
    """For every group its costs (instances,) over the least one, infinite where it failed; and how many instances."""
    _check_keys(rows, (group, cost, *instance))
    groups = _sorted(row.get(group) for row in rows)
    names = list(dict.fromkeys(tuple(_key(row.get(key)) for key in instance) for row in rows))
    runs: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        number = _number(row.get(cost))
        if number <= 0.0:
            raise OptionError(f"{cost}: expected positive numbers, given {number:g} in the row {dict(row)}.")
        place = groups.index(_key(row.get(group))), names.index(tuple(_key(row.get(key)) for key in instance))
        runs.setdefault(place, []).append(number)
    costs = np.full((len(groups), len(names)), np.inf)
    for place, numbers in runs.items():
        costs[place] = np.mean(numbers) if np.isfinite(numbers).all() else np.inf
    # An instance that no group solves counts for all of them as failed.
    least = costs.min(axis=0)
    ratios = np.where(np.isfinite(costs), costs / np.where(np.isfinite(least), least, 1.0), np.inf)
    return dict(zip(groups, ratios, strict=True)), len(names)


def error_bars(
    rows: Rows,
    x: str,
    value: str,
    group: str | None = None,
    *,
    path: str | Path | None = None,
    title: str | None = None,
) -> Figure:
    """Draw medians of runs over one of their settings, with bars from the lower to the upper quartile.

    Runs without a number have failed; they are left out, and a setting where some have says how many.

    Parameters
    ----------
    rows : sequence of mappings
        One per run.
    x, value : str
        Keys of the rows.
    group : str, optional
        Key of the curves.
    path
        Where to save a `.png`, `.pdf` or `.svg`; folders are made.

    Raises
    ------
    OptionError
        Without rows; `UnknownNameError` for a key that no row has.

    Examples
    --------
    >>> from nosnoc_py import plotting
    >>> rows = [{"h": h, "solver": s, "seconds": h * k} for h in (1, 2) for k, s in enumerate(("auto", "homotopy"), 1)]
    >>> plotting.error_bars(rows, "h", "seconds", "solver").axes[0].get_xlabel()
    'h'
    """
    _check_keys(rows, (x, value, *([] if group is None else [group])))
    settings = _sorted(row.get(x) for row in rows)
    numeric = all(isinstance(key, int | float) for key in settings)
    places = dict(zip(settings, settings if numeric else range(len(settings)), strict=True))
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    groups = [None] if group is None else _sorted(row.get(group) for row in rows)
    wide = max(places.values()) - min(places.values())
    for k, name in enumerate(groups):
        curve = [row for row in rows if group is None or _key(row.get(group)) == name]
        shift = 0.012 * wide * (k - 0.5 * (len(groups) - 1))  # bars of several curves beside each other
        points = []
        for key in settings:
            numbers = np.array([_number(row.get(value)) for row in curve if _key(row.get(x)) == key])
            good = numbers[np.isfinite(numbers)]
            if good.size:
                low, middle, high = np.quantile(good, [0.25, 0.5, 0.75])
                points.append((places[key] + shift, middle, middle - low, high - middle))
            if good.size < numbers.size and good.size:
                text = f"{numbers.size - good.size} of {numbers.size} failed"
                axes.annotate(
                    text, (places[key], high), (0, 6), textcoords="offset points", fontsize=7, ha="center", color=GREY
                )
        t, middle, low, high = np.array(points).reshape(-1, 4).T
        style: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "ls": DASHES[k // len(COLOURS) % len(DASHES)]}
        label = None if group is None else _label(name)
        axes.errorbar(t, middle, yerr=[low, high], marker="o", ms=4, capsize=3, lw=1.4, label=label, **style)
    if not numeric:
        axes.set_xticks(range(len(settings)), [_label(key) for key in settings])
    axes.margins(y=0.12)
    axes.set(xlabel=x, ylabel=f"{value}: median, quartiles")
    tidy(axes, legend=group is not None)
    return finished(figure, title, path)


def histogram(
    rows: Rows, value: str, group: str | None = None, *, path: str | Path | None = None, title: str | None = None
) -> Figure:
    """Draw how often one number of runs has which size.

    Parameters
    ----------
    rows : sequence of mappings
        One per run.
    value : str
        Key of the number; runs without one are counted in the label.
    group : str, optional
        Key of the histograms: one above the other, with the same bins.
    path
        Where to save a `.png`, `.pdf` or `.svg`; folders are made.

    Raises
    ------
    OptionError
        Without rows, or without a number; `UnknownNameError` for a key that no row has.

    Examples
    --------
    >>> from nosnoc_py import plotting
    >>> rows = [{"h": h, "solver": s, "seconds": h * k} for h in (1, 2) for k, s in enumerate(("auto", "homotopy"), 1)]
    >>> len(plotting.histogram(rows, "seconds", "solver").axes)  # one above the other
    2
    """
    _check_keys(rows, (value, *([] if group is None else [group])))
    groups = [None] if group is None else _sorted(row.get(group) for row in rows)
    columns = [
        np.array([_number(row.get(value)) for row in rows if group is None or _key(row.get(group)) == name])
        for name in groups
    ]
    every = np.concatenate(columns)
    if not np.isfinite(every).any():
        raise OptionError(f"{value}: no run has a number.")
    edges = np.histogram_bin_edges(every[np.isfinite(every)], bins="auto")
    figure = new_figure(6.4, 1.2 + 1.9 * len(groups))
    panels = np.atleast_1d(figure.subplots(len(groups), 1, sharex=True))
    for k, (axes, name, numbers) in enumerate(zip(panels, groups, columns, strict=True)):
        good = numbers[np.isfinite(numbers)]
        axes.hist(good, bins=edges, color=COLOURS[k % len(COLOURS)], ec="white", lw=0.6)
        if good.size:
            axes.axvline(float(np.median(good)), color="black", lw=1.0, ls="--")
        what = "" if group is None else f"{group} {_label(name)}: "
        failed = f", {numbers.size - good.size} failed" if good.size < numbers.size else ""
        axes.set_title(f"{what}{good.size} runs{failed}", fontsize=9, loc="left")
        axes.set_ylabel("runs")
        tidy(axes, legend=False)
    panels[-1].set_xlabel(f"{value} (dashed: median)")
    return finished(figure, title, path)


def _check_keys(rows: Rows, keys: Iterable[str]) -> None:
    if not rows:
        raise OptionError("there are no rows to draw.")
    legal = tuple(dict.fromkeys(key for row in rows for key in row))
    for key in keys:
        if key not in legal:
            raise UnknownNameError(key, legal, "column")


def _number(value: Any) -> float:
    """A finite number, or NaN for everything else: None, text, infinity, a flag."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return float("nan")
    return float(value) if np.isfinite(value) else float("nan")


def _key(value: Any) -> Any:
    """Return a key that equal settings share: plain numbers, else text (True is not 1, NaN is NaN)."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)) and not np.isnan(value):
        return float(value)
    return value if value is None else str(value)


def _sorted(values: Iterable[Any]) -> list[Any]:
    """Distinct values: numbers by size, everything else in the order of appearance."""
    distinct = list(dict.fromkeys(_key(value) for value in values))
    if all(isinstance(value, (int, float)) for value in distinct):
        return sorted(distinct)
    return distinct


def _label(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
