"""Pictures of many runs, from plain rows: maps over two axes, performance profiles, scatter by chance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, NullFormatter

from nosnoc_py.errors import OptionError, UnknownNameError
from nosnoc_py.plotting.sheets import COLOURS, DASHES, GREY, finished, new_figure, tidy
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
    (lines, columns), cells = _cells(rows, value, y, x)
    every = np.concatenate([*cells.values()])
    # Numbers of different orders of magnitude (times, errors) have no useful arithmetic mean.
    geometric = bool((every[np.isfinite(every)] > 0.0).all())
    places = dict(sorted(((lines.index(line), columns.index(name)), runs) for (line, name), runs in cells.items()))
    means = np.full((len(lines), len(columns)), np.nan)
    for place, runs in places.items():
        if (good := runs[np.isfinite(runs)]).size:
            means[place] = np.exp(np.log(good).mean()) if geometric else good.mean()
    figure = new_figure(2.2 + 0.9 * len(columns), 1.5 + 0.5 * len(lines))
    axes, norm = figure.subplots(), _norm(means)
    drawn = axes.pcolormesh(np.ma.masked_invalid(means), norm=norm, cmap="cividis")
    if np.isfinite(means).any():
        bar = figure.colorbar(drawn, ax=axes, pad=0.02)
        bar.set_label(f"{value} [{unit}]" if unit else value, fontsize=9)
        bar.ax.tick_params(labelsize=8)
    for (i, j), runs in places.items():
        failed = int((~np.isfinite(runs)).sum())
        middle: dict[str, Any] = {"x": j + 0.5, "y": i + 0.5, "ha": "center", "va": "center"}
        if failed == len(runs):
            axes.add_patch(Rectangle((j, i), 1.0, 1.0, fc="white", ec=GREY, hatch="xx", lw=0.0))
            axes.text(s="failed", fontsize=8, bbox={"fc": "white", "ec": "none", "pad": 1.0}, **middle)
            continue
        text = f"{means[i, j]:.3g}" + (f"\n{failed} of {len(runs)} failed" if failed else "")
        colour = "white" if norm(means[i, j]) < 0.55 else "black"
        axes.text(s=text, color=colour, fontsize=7 if failed else 8, **middle)
    names = [_label(key) for key in columns]
    turned: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    wide = max(map(len, names)) > LONG
    axes.set_xticks(np.arange(len(columns)) + 0.5, names, **(turned if wide else {}))
    axes.set_yticks(np.arange(len(lines)) + 0.5, [_label(key) for key in lines])
    axes.tick_params(length=0, labelsize=8)
    axes.set(xlabel=x, ylabel=y)
    axes.spines[:].set_visible(False)
    return finished(figure, title, path)


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
        solved = f"{_label(name)} ({good.size} of {instances})"
        axes.plot(steps, shares, drawstyle="steps-post", lw=1.8, label=solved, **_style(k))
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
    (groups, *_), cells = _cells(rows, cost, group, *instance)
    for row in rows:
        if (number := _number(row.get(cost))) <= 0.0:
            raise OptionError(f"{cost}: expected positive numbers, given {number:g} in the row {dict(row)}.")
    names = list(dict.fromkeys(key[1:] for key in cells))
    costs = np.array([[np.mean(cells.get((one, *name), np.inf)) for name in names] for one in groups])
    costs[np.isnan(costs)] = np.inf
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
    (settings, *others), cells = _cells(rows, value, x, *([] if group is None else [group]))
    groups = list(product(*others))
    numeric = all(isinstance(key, int | float) for key in settings)
    places = dict(zip(settings, settings if numeric else range(len(settings)), strict=True))
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    wide = max(places.values()) - min(places.values())
    for k, name in enumerate(groups):
        shift = 0.012 * wide * (k - 0.5 * (len(groups) - 1))  # bars of several curves beside each other
        points = []
        for key in settings:
            numbers = cells.get((key, *name), np.zeros(0))
            good = numbers[np.isfinite(numbers)]
            if good.size:
                low, middle, high = np.quantile(good, [0.25, 0.5, 0.75])
                points.append((places[key] + shift, middle, middle - low, high - middle))
            if 0 < good.size < numbers.size:
                look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "ha": "center", "color": GREY}
                text = f"{numbers.size - good.size} of {numbers.size} failed"
                axes.annotate(text, (places[key], high), (0, 6), **look)
        t, middle, low, high = np.array(points).reshape(-1, 4).T
        label = _label(*name) if name else None
        axes.errorbar(t, middle, yerr=[low, high], marker="o", ms=4, capsize=3, lw=1.4, label=label, **_style(k))
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
    others, cells = _cells(rows, value, *([] if group is None else [group]))
    groups = list(product(*others))
    every = np.concatenate([*cells.values()])
    if not np.isfinite(every).any():
        raise OptionError(f"{value}: no run has a number.")
    edges = np.histogram_bin_edges(every[np.isfinite(every)], bins="auto")
    figure = new_figure(6.4, 1.2 + 1.9 * len(groups))
    panels = np.atleast_1d(figure.subplots(len(groups), 1, sharex=True))
    for k, (axes, name) in enumerate(zip(panels, groups, strict=True)):
        numbers = cells[name]
        good = numbers[np.isfinite(numbers)]
        axes.hist(good, bins=edges, color=COLOURS[k % len(COLOURS)], ec="white", lw=0.6)
        if good.size:
            axes.axvline(float(np.median(good)), color="black", lw=1.0, ls="--")
        what = f"{group} {_label(*name)}: " if name else ""
        failed = f", {numbers.size - good.size} failed" if good.size < numbers.size else ""
        axes.set_title(f"{what}{good.size} runs{failed}", fontsize=9, loc="left")
        axes.set_ylabel("runs")
        tidy(axes, legend=False)
    panels[-1].set_xlabel(f"{value} (dashed: median)")
    return finished(figure, title, path)


def _cells(rows: Rows, value: str, *keys: str) -> tuple[list[list[Any]], dict[tuple[Any, ...], Array]]:
    """Return the distinct settings of every key, and the numbers of the runs by their settings; NaN: failed."""
    if not rows:
        raise OptionError("there are no rows to draw.")
    legal = tuple(dict.fromkeys(key for row in rows for key in row))
    for key in (*keys, value):
        if key not in legal:
            raise UnknownNameError(key, legal, "column")
    numbers: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        numbers.setdefault(tuple(_key(row.get(key)) for key in keys), []).append(_number(row.get(value)))
    settings = [_sorted(row.get(key) for row in rows) for key in keys]
    return settings, {place: np.array(runs) for place, runs in numbers.items()}


def _style(k: int) -> dict[str, Any]:
    """Colour and dashes of the curve k."""
    return {"color": COLOURS[k % len(COLOURS)], "ls": DASHES[k // len(COLOURS) % len(DASHES)]}


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
