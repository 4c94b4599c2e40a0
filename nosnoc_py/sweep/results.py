"""The results of a sweep: rows with the values of the axes, read back from a folder, and summed up.

A folder has one file per finished run (`store`), an index of all runs with their axes, a copy of the configuration, and
a table for other programs. The table is derived: results are read from the single files, so a sweep can be read while
it runs.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from nosnoc_py.errors import OptionError, UnknownNameError, optional
from nosnoc_py.files import write_atomically
from nosnoc_py.solution import Trajectory
from nosnoc_py.solution import load as load_trajectory
from nosnoc_py.sweep.config import Configuration, load
from nosnoc_py.sweep.grid import REPEAT, SAMPLE, SweepRun
from nosnoc_py.sweep.store import FORMAT_VERSION, Store, library_version

if TYPE_CHECKING:
    import pandas as pd

# Files beside the results: all runs of the configuration, and the configuration itself.
INDEX, COPY = "sweep.json", "configuration.yaml"
WIDTH = 160  # of a message in the summary
SUMMED_UP = ("objective", "iterations", "wall_seconds")  # columns of the medians
# Numeric columns of every run that the summary leaves out.
NOT_MEASURED = ("complementarity", "complementarity_min", "infeasibility", "impacts", "attempts")


@dataclass(frozen=True, eq=False, kw_only=True)
class Results:
    """All finished runs of a sweep.

    Parameters
    ----------
    rows : tuple of dict
        In the order of the configuration: "key", the axes, columns of `execute`, measures, "attempts". Structured
        values of an axis are JSON text.
    axes : tuple of str
        Swept paths; they are columns. "sample" and "repeat" are axes, too.
    drawn : tuple of str
        Paths of random values; they are columns, too.
    configuration : Configuration
    total : int
        Number of runs, the unfinished included.
    folder : path

    Examples
    --------
    Results of two runs as `sweep.run` returns them; `rows` has more columns:

    >>> import pathlib
    >>> from nosnoc_py.sweep import Configuration, Results
    >>> rows = [{"key": str(N), "stages": N, "status": "solved", "success": True, "objective": 1 / N} for N in (5, 10)]
    >>> configuration = Configuration(problem={"build": "models:cart"})
    >>> where = {"configuration": configuration, "folder": pathlib.Path("out")}
    >>> results = Results(rows=tuple(rows), axes=("stages",), total=2, **where)
    >>> results.success, results.column("objective"), results.best["stages"]
    (True, [0.2, 0.1], 10)
    >>> print(results.summary().splitlines()[0])
    2 of 2 runs finished, 2 succeeded
    """

    rows: tuple[dict[str, Any], ...]
    axes: tuple[str, ...]
    configuration: Configuration
    total: int
    folder: Path
    drawn: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Results: {len(self)} of {self.total} runs, axes {', '.join(self.axes) or 'none'}, in {self.folder}"

    @property
    def success(self) -> bool:
        """True if all runs are finished and successful."""
        return len(self) == self.total and all(row["success"] for row in self.rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(columns(self.rows))

    def column(self, name: str) -> list[Any]:
        """Return the values of one column, None for runs without."""
        if name not in self.columns:
            raise UnknownNameError(name, self.columns, "column")
        return [row.get(name) for row in self.rows]

    @property
    def best(self) -> dict[str, Any] | None:
        """The successful row with the smallest objective."""
        # A simulation succeeds without an objective.
        good = [row for row in self.rows if row["success"] and row.get("objective") is not None]
        return min(good, key=lambda row: row["objective"], default=None)

    def trajectory(self, row: Mapping[str, Any]) -> Trajectory:
        """Return the trajectory or solution of a row.

        Raises
        ------
        OptionError
            If it was not kept.
        """
        path = Store(self.folder).file(row["key"], ".nc")
        if path is None:
            raise OptionError(
                f"run {row['key']}: has no trajectory; it failed, or the configuration says trajectories: false."
            )
        return load_trajectory(path)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one line per run."""
        pandas = optional("pandas", 'to_dataframe needs pandas: pip install "nosnoc_py[data]"')
        return pandas.DataFrame([dict(row) for row in self.rows], columns=list(self.columns))

    def summary(self) -> str:
        """Return a report of some lines: counts by status, the best run, medians over the values of every axis."""
        lines = [
            f"{len(self)} of {self.total} runs finished, {sum(bool(row['success']) for row in self.rows)} succeeded"
        ]
        counts = Counter(row["status"] for row in self.rows)
        lines += [f"  {count:>4}  {status}" for status, count in counts.most_common()]
        if self.best is not None:
            where = ", ".join(f"{axis} {self.best[axis]}" for axis in (*self.axes, *self.drawn))
            lines.append(f"best objective: {self.best['objective']:.8g}" + (f" ({where})" if where else ""))
        # A table with a line per sample or seed is as long as the results themselves.
        shown = [axis for axis in self.axes if axis not in (SAMPLE, REPEAT) or not self.scattered]
        for axis in shown:
            lines += self._medians(axis, grouped(self.rows, axis))
        if self.scattered and not shown:
            lines += self._medians("runs", [("all", list(self.rows))])
        failed = [row for row in self.rows if not row["success"] and row.get("message")]
        lines += [f"  {row['key']}: {row['status']}: {shorten(row['message'], WIDTH)}" for row in failed[:5]]
        return "\n".join(lines + ([f"  and {len(failed) - 5} more"] if len(failed) > 5 else []))

    @property
    def scattered(self) -> bool:
        """True if runs differ by random values or by seeds."""
        return bool(self.drawn) or REPEAT in self.axes

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the numeric columns that are neither axes nor said of every run."""
        known = {"key", *self.axes, *self.drawn, *SUMMED_UP, *NOT_MEASURED}
        return tuple(name for name in self.columns if name not in known and numbers_of(self.rows, name))

    def _medians(self, axis: str, groups: Iterable[tuple[Any, list[Mapping[str, Any]]]]) -> list[str]:
        """Return lines of a table: medians of the successful runs of groups, with quartiles if runs are random."""
        shown = [name for name in (*SUMMED_UP, *self.measures) if numbers_of(self.rows, name)]
        table = [[axis, "succeeded", *(f"median {name}" for name in shown)]]
        for value, rows in groups:
            good = [row for row in rows if row["success"]]
            middles = (numbers_of(good, name) for name in shown)
            cells = [self._middle(numbers) if numbers else "-" for numbers in middles]
            table.append([str(value), f"{len(good)} of {len(rows)}", *cells])
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        return ["  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)) for line in table]

    def _middle(self, numbers: list[float]) -> str:
        """Return the median, with quartiles if runs are random: they are robust against single failures."""
        text = f"{median(numbers):.5g}"
        if not self.scattered or len(numbers) < 2:
            return text
        low, _, high = quantiles(numbers, n=4, method="inclusive")
        return f"{text} ({low:.4g} to {high:.4g})"


def read(folder: str | Path) -> Results:
    """Read the folder of a sweep, finished or not.

    Parameters
    ----------
    folder : str or Path
        Output folder of `run`.

    Returns
    -------
    Results
        Of the runs that are finished.

    Raises
    ------
    OptionError
        If it is none, or a file in it is damaged or from another version.
    """
    folder = Path(folder)
    path = folder / INDEX
    try:
        index = json.loads(path.read_bytes())
        version, entries, axes = index["format_version"], index["runs"], tuple(index["axes"])
        drawn = tuple(index.get("drawn", ()))
    except FileNotFoundError:
        raise OptionError(f"{folder}: is not the output folder of a sweep (it has no {INDEX}).") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from None
    if version != FORMAT_VERSION:
        raise OptionError(f"{path}: from another version (format {version}; this is {FORMAT_VERSION}).")
    store = Store(folder)
    try:
        values = [
            {path: entry[part][path] for part, paths in (("axes", axes), ("drawn", drawn)) for path in paths}
            for entry in entries
        ]
        stored = [(own, store.row(str(entry["key"]))) for own, entry in zip(values, entries, strict=True)]
    except (KeyError, TypeError) as error:
        raise _damaged(path, error) from None
    rows = tuple(row_of(values, _checked(row, folder)) for values, row in stored if row is not None)
    known = {"rows": rows, "axes": axes, "drawn": drawn, "total": len(entries), "folder": folder}
    return Results(**known, configuration=load(folder / COPY))  # type: ignore[arg-type]


def _damaged(path: Path, error: Exception) -> OptionError:
    return OptionError(f"{path}: damaged ({error!r}); start the sweep again, its finished runs are kept.")


def _checked(row: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return the row if it has the columns of every run."""
    if not {"key", "status", "success"} <= set(row):
        raise OptionError(f"{folder}: has results that are not of a sweep, with the columns {', '.join(row)}.")
    return row


def write_index(folder: Path, runs: Sequence[SweepRun]) -> None:
    """Write which runs the configuration of this folder has, in their order."""
    index = {
        "format_version": FORMAT_VERSION,
        "version": library_version(),
        "axes": list(dict.fromkeys(path for run in runs for path in run.axes)),
        "drawn": list(dict.fromkeys(path for run in runs for path in run.drawn)),
        "runs": [{"key": run.key, "axes": run.axes, "drawn": run.drawn} for run in runs],
    }
    write_atomically(folder / INDEX, json.dumps(index, indent=1).encode())


def write_copy(folder: Path, configuration: Configuration) -> None:
    """Keep the configuration beside its results: as it was written, comments included, if it came from a file."""
    from ruamel.yaml import YAML

    if configuration.path is not None and configuration.path.is_file():
        content = configuration.path.read_bytes()
    else:
        stream = io.StringIO()
        YAML(pure=True).dump(configuration.model_dump(exclude_unset=True), stream)
        content = stream.getvalue().encode()
    write_atomically(folder / COPY, content)


def row_of(axes: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the values of the axes behind its key; they take precedence over its own columns."""
    # In front for the order of the columns, and last so that they win.
    identity = {"key": row["key"], **{path: label(value) for path, value in axes.items()}}
    return identity | dict(row) | identity


def grouped(rows: Iterable[Mapping[str, Any]], axis: str) -> list[tuple[Any, list[Mapping[str, Any]]]]:
    """Return each value of an axis with its rows; `true` and 1, equal in Python, are two values."""
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((isinstance(row[axis], bool), row[axis]), []).append(row)
    return [(value, rows) for (_, value), rows in groups.items()]


def label(value: Any) -> Any:
    """Return a value of an axis as a cell: structured ones as JSON text."""
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping | list) else value


def numbers_of(rows: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    """Return the numbers in a column."""
    values = (row.get(name) for row in rows)
    return [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]


def write_table(rows: Sequence[Mapping[str, Any]], folder: Path, kind: str) -> Path:
    """Write the rows as results.csv or results.parquet; a table is derived from the results, never read."""
    path = folder / f"results.{kind}"
    write_atomically(path, _csv(rows) if kind == "csv" else _parquet(rows))
    return path


def columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of all columns in the order of the fullest rows; "attempts" last."""
    # Rows of failed runs lack columns; the fullest row has them in their order.
    names = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    last = [name for name in names if name == "attempts"]
    return [name for name in names if name != "attempts"] + last


def check_table(kind: str) -> None:
    """Raise `OptionError` if tables of this kind cannot be written."""
    if kind == "parquet":
        optional("pyarrow.parquet", 'run.table: parquet needs pyarrow; pip install "nosnoc_py[data]", or choose csv.')


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, columns(rows), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: _column([row.get(name) for row in rows]) for name in columns(rows)})
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())


def _column(values: list[Any]) -> list[Any]:
    """Return a column of one type, for Parquet: mixed numbers become floats, everything else words."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) < 2:
        return values
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]
