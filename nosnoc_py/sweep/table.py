"""The table of a sweep: one line per run, as CSV or Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nosnoc_py.errors import optional
from nosnoc_py.files import write_atomically


def write_table(rows: Sequence[Mapping[str, Any]], folder: Path, kind: str) -> Path:
    """Write the rows as results.csv or results.parquet; a table is derived from the results, never read."""
    path = folder / f"results.{kind}"
    write_atomically(path, _csv(rows) if kind == "csv" else _parquet(rows))
    return path


def columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of all columns in the order of the fullest rows; "attempts" last."""
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
    """Parquet has one type per column: whole numbers beside others become floats, everything else words."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) < 2:
        return values
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]
