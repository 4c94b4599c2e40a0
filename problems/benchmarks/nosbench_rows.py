"""One row of the benchmark, and the CSV file that holds them: appended line by line, so that a run can be resumed."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from nosnoc_py.errors import OptionError

Key = tuple[str, str, str, float, str]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one solver did on one problem; None where it did not come that far.

    Attributes
    ----------
    problem, solver, variant : str
        `variant` is empty for the problem as given, else it names the random draw.
    variables, constraints, pairs : int
    status : str
        The solver's own word, or "error", "crashed", "killed".
    solved : bool
        By the benchmark's own residuals, whatever the solver says.
    claimed, false_success : bool
        The solver says success; it says so and the residuals disagree.
    objective, penalty, complementarity, complementarity_min, infeasibility : float
        Recomputed by the benchmark from the functions in the file.
    stationarity, b_stationary
        What the solver certifies.
    lpec_value, certified, gradient
        Slope along the best direction of the benchmark's own LPEC, whether it is zero up to the tolerance, and
        |grad f|_inf: where it is zero, every feasible point is stationary.
    iterations, nlps : int
        Iterations of IPOPT, and lines of the solver's log.
    wall_seconds : float
        Building and solving; reading the file and judging are apart.
    time_limit, fingerprint
        What a row has to agree in to be taken over from an earlier run: seconds, and a hash of the solver's options,
        the version of the library, the file, and the seed.
    message : str
        Text of the error.
    """

    problem: str
    solver: str
    variant: str = ""
    variables: int | None = None
    constraints: int | None = None
    pairs: int | None = None
    status: str = "error"
    solved: bool = False
    claimed: bool = False
    false_success: bool = False
    objective: float | None = None
    penalty: float | None = None
    complementarity: float | None = None
    complementarity_min: float | None = None
    infeasibility: float | None = None
    stationarity: str = ""
    b_stationary: bool | None = None
    lpec_value: float | None = None
    certified: bool = False
    gradient: float | None = None
    iterations: int | None = None
    nlps: int | None = None
    wall_seconds: float | None = None
    time_limit: float
    fingerprint: str
    message: str = ""

    @property
    def key(self) -> Key:
        """What makes two rows the same piece of work."""
        return (self.problem, self.solver, self.variant, self.time_limit, self.fingerprint)

    @property
    def failed(self) -> bool:
        """The solver did not come to an answer of its own."""
        return self.status in ("error", "crashed", "killed")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


COLUMNS = tuple(field.name for field in fields(Row))
_KINDS = {field.name: str(field.type) for field in fields(Row)}


def read(path: Path) -> list[Row]:
    """Read the rows of an earlier run; a missing file has none, and a last line without its end does not count.

    Raises
    ------
    OptionError
        If the file is something else.
    """
    if not path.exists():
        return []
    lines = _whole(path.read_text(encoding="utf-8"))
    table = list(csv.reader(io.StringIO(lines)))
    if table and tuple(table[0]) != COLUMNS:
        raise OptionError(
            f"{path}: expected the columns of this benchmark, given {','.join(table[0])[:80]!r}; name another file."
        )
    try:
        return [_parse(cells) for cells in table[1:]]
    except ValueError as error:
        raise OptionError(f"{path}: a line cannot be read ({error}); repair it or name another file.") from None


class Store:
    """Appends rows to a CSV file, each as soon as it is there; without a path it forgets them."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        text = _whole(path.read_text(encoding="utf-8")) if path.exists() else ""
        text = text or _text([COLUMNS])
        temporary = path.with_name(path.name + ".new")
        temporary.write_text(text, encoding="utf-8", newline="")
        os.replace(temporary, path)

    def append(self, row: Row) -> None:
        """Write one line and hand it to the disk."""
        if self.path is None:
            return
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(_text([[_cell(getattr(row, name)) for name in COLUMNS]]))
            file.flush()
            os.fsync(file.fileno())


def _whole(text: str) -> str:
    """Without the half line that an interrupted run may have left at the end."""
    return text[: text.rfind("\n") + 1]


def _text(table: Iterable[Iterable[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    return out.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return " ".join(value.split())  # a row is one line
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _parse(cells: list[str]) -> Row:
    if len(cells) != len(COLUMNS):
        raise ValueError(f"{len(cells)} of {len(COLUMNS)} columns in the line of {cells[:2]}")
    return Row(**{name: _value(text, _KINDS[name]) for name, text in zip(COLUMNS, cells, strict=True)})


def _value(text: str, kind: str) -> Any:
    if kind == "str":
        return text
    if not text:
        return None
    if kind.startswith("bool"):
        return {"true": True, "false": False}[text] if text in ("true", "false") else _refuse(text)
    return int(text) if kind.startswith("int") else float(text)


def _refuse(text: str) -> bool:
    raise ValueError(f"expected true or false, given {text!r}")
