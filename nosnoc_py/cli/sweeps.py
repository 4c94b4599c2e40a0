"""Sweeps on the command line: run one, and tell what is in the folder of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer

from nosnoc_py.cli.commands import FAILURE, INTERRUPTED, SUCCESS, say
from nosnoc_py.errors import NosnocError, OptionError
from nosnoc_py.progress import Progress
from nosnoc_py.sweep import config, grid, study
from nosnoc_py.sweep.config import Configuration
from nosnoc_py.sweep.grid import REPEAT, SAMPLE
from nosnoc_py.sweep.results import Results, grouped, numbers_of, read

Draw = Callable[[Path], Any]
MANY = 5000  # runs whose check takes seconds
HOW_TO_GO_ON = "the same command again goes on from there"


def work(
    path: Path, *, workers: int | None, output: Path | None, scheduler: str | None, retry: bool, json: bool, quiet: bool
) -> int:
    """Do the runs of a configuration that are not finished, and tell what all have given; return the exit code.

    Raises
    ------
    KeyboardInterrupt
        When interrupted, with what is kept and how to go on.
    """
    given = config.load(path).replace_run(workers=workers, output=None if output is None else str(output))
    if (count := grid.count(given)) > MANY and not quiet:
        typer.echo(f"nosnoc-py: {count} runs; all are checked before the first, which takes some time", err=True)
    try:
        with nullcontext() if json or quiet else Progress() as progress:
            results = study.run(given, scheduler=scheduler, retry=retry, callback=progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_kept(given)) from None
    tell(results, _drawn_if_possible(results), json=json, quiet=quiet)
    if len(results) < results.total:  # Ctrl-C came while progress was shown
        typer.echo(f"nosnoc-py: {_kept(given)}", err=True)
        return INTERRUPTED
    return SUCCESS if results.success else FAILURE


def show_folder(folder: Path, figures: Path | None, *, json: bool, **columns: str | None) -> None:
    """Tell and draw what is in the folder of a sweep, finished or not; columns as in `chosen`."""
    results = read(folder)
    drawn = _draw(chosen(results, **columns), figures or folder) if figures or not json else []
    tell(results, drawn, json=json)


def tell(results: Results, figures: Sequence[Path], *, json: bool = False, quiet: bool = False) -> None:
    """Write the summary and where the files are, or all of that as JSON."""
    table = results.folder / f"results.{results.configuration.run.table}"
    report = {
        "success": results.success,
        "total": results.total,
        "finished": len(results),
        "succeeded": sum(bool(row["success"]) for row in results.rows),
        "axes": results.axes,
        "folder": str(results.folder),
        "table": str(table),
        "figures": [str(path) for path in figures],
        "rows": results.rows,
    }
    files = [f"table: {table}"] * table.exists() + [f"figure: {path}" for path in figures]
    say(json, report, "\n".join([results.summary(), *files]), quiet=quiet)


def chosen(
    results: Results, x: str | None = None, y: str | None = None, value: str | None = None, group: str | None = None
) -> dict[str, Draw]:
    """Choose the pictures that a sweep can have, by the name of the file.

    Where runs differ by chance (random values, repeats), medians of `value` with quartiles over the first axis that
    varies, or over `x`, and its histogram. With two axes that vary, a heat map of `value` over the first two; with an
    axis of words (methods, solvers, relaxations) and at least two instances beside it, a performance profile over
    `value`, one curve per word. `x` and `y` choose the axes of the heat map, `group` the curves; what is asked for is
    drawn alone.

    Raises
    ------
    UnknownNameError
        If there is no such column.
    OptionError
        If what was asked for cannot be drawn.
    """
    asked = [name for name in (x, y, value, group) if name is not None]
    for name in asked:
        results.column(name)
    if value is not None:
        _check_numeric(results, value)
    chance = (SAMPLE, REPEAT) if results.scattered else ()
    axes = [axis for axis in results.axes if len(_values(results, axis)) > 1 and axis not in chance]
    pictures: dict[str, Draw] = {}
    if results.scattered and y is None:
        pictures |= _scatter(results, axes, x, value, group)
    if group is None or x or y:
        pictures |= _heat_map(results, axes, x, y, value)
    if group or not (x or y):
        pictures |= _profile(results, axes, value, group)
    if asked and not pictures:
        raise OptionError(
            "nothing to draw: a heat map needs two columns to vary over, --x and --y, a performance profile needs "
            f"--group and at least two values of another axis; here are the axes {', '.join(results.axes) or '(none)'}."
        )
    return pictures


def _check_numeric(results: Results, value: str) -> None:
    numeric = [name for name in results.columns if numbers_of(results.rows, name)]
    if value not in numeric:
        legal = ", ".join(numeric) or "of which there are none"
        raise OptionError(f"--value: expected a column of numbers, {legal}; given {value!r}.")


def _heat_map(
    results: Results, axes: Sequence[str], x: str | None, y: str | None, value: str | None
) -> dict[str, Draw]:
    x = x or next((axis for axis in axes if axis != y), None)
    y = y or next((axis for axis in axes if axis != x), None)
    value = value or _first_numeric(results, results.measures)
    if x is None or y is None or value is None:
        return {}
    return {"heat_map.png": _picture("heat_map", results, value, x, y, value)}


def _scatter(
    results: Results, axes: Sequence[str], x: str | None, value: str | None, group: str | None
) -> dict[str, Draw]:
    """Return pictures of the scatter of runs that differ by chance: over an axis that varies, and as a histogram."""
    value = value or _first_numeric(results, (*results.measures, "objective"))
    if value is None:
        return {}
    x = x or next((axis for axis in axes if axis != group), None)
    pictures = {"histogram.png": _picture("histogram", results, value, value, group or x)}
    if x is not None and x not in results.drawn:
        pictures["error_bars.png"] = _picture("error_bars", results, value, x, value, group)
    return pictures


def _profile(results: Results, axes: Sequence[str], value: str | None, group: str | None) -> dict[str, Draw]:
    group = group or next((axis for axis in axes if all(isinstance(v, str) for v in _values(results, axis))), None)
    cost = value or _first_numeric(results)
    instance = [axis for axis in results.axes if axis != group]
    if group is None or cost is None or len({tuple(row[axis] for axis in instance) for row in results.rows}) < 2:
        return {}
    return {"performance_profile.png": _picture("performance_profile", results, cost, group, cost, instance)}


def _picture(name: str, results: Results, column: str, *arguments: Any) -> Draw:
    """Return what draws a picture of `plotting` of rows in which a column has only what successful runs have said."""
    from nosnoc_py import plotting

    rows = [row if row["success"] else {**row, column: None} for row in results.rows]
    return lambda path: getattr(plotting, name)(rows, *arguments, path=path)


def _values(results: Results, axis: str) -> list[Any]:
    return [value for value, _ in grouped(results.rows, axis)]


def _first_numeric(results: Results, first: Iterable[str] = ()) -> str | None:
    """The first column of these, or else of the efforts, in which a successful run has a number."""
    good = [row for row in results.rows if row["success"]]
    names = (*first, "wall_seconds", "iterations")
    return next((name for name in names if numbers_of(good, name)), None)


def _draw(pictures: dict[str, Draw], folder: Path) -> list[Path]:
    if pictures:
        folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, draw in pictures.items():
        draw(folder / name)
        paths.append(folder / name)
    return paths


def _drawn_if_possible(results: Results) -> list[Path]:
    """The pictures beside the table; nobody asked for them, so that one which cannot be drawn is no failure."""
    try:
        return _draw(chosen(results), results.folder)
    except (NosnocError, OSError) as error:
        typer.echo(f"nosnoc-py: no figures: {error}", err=True)
        return []


def _kept(given: Configuration) -> str:
    """Return a sentence on the results that are on disk after an interruption."""
    try:
        results = read(given.output)
    except OptionError:  # before the first run
        return f"interrupted before the first run; {HOW_TO_GO_ON}."
    return (
        f"interrupted; {len(results)} of {results.total} runs are finished and kept in {results.folder}, "
        f"{HOW_TO_GO_ON}."
    )
