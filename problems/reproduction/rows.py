"""Rows of the report, one for every entry of a paper: value, comparison and remark."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nosnoc_py.sweep.tasks import FAILED
from problems.reproduction.plan import Run, absent
from problems.reproduction.records import Entry, Results, value_of
from problems.reproduction.verdicts import Verdict, judge

Kept = Mapping[str, Any]  # the row of a task


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """Row of the report.

    Parameters
    ----------
    paper : str
    entry : Entry
    verdict : Verdict
    ours : number or str, optional
    remark : str
    """

    paper: str
    entry: Entry
    verdict: Verdict
    ours: float | str | None = None
    remark: str = ""

    @property
    def difference(self) -> float | None:
        """Difference ours - paper, if both are numbers."""
        numbers = (self.ours, self.entry.paper)
        if any(isinstance(value, str | None) for value in numbers):
            return None
        return float(self.ours) - float(self.entry.paper)  # type: ignore[arg-type]

    @property
    def explained(self) -> bool:
        """True if nothing is wrong, or the reason is known."""
        return self.verdict is not Verdict.DIFFERS or bool(self.entry.why)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as data for JSON."""
        return {
            "paper": self.paper,
            "where": self.entry.where,
            "what": self.entry.what,
            "published": self.entry.paper,
            "ours": self.ours,
            "unit": self.entry.unit,
            "difference": self.difference,
            "verdict": self.verdict.value,
            "remark": self.remark,
        }


def rows_of(planned: Sequence[Run], kept: Mapping[str, Kept], quick: bool = False) -> tuple[Row, ...]:
    """Return a row for every entry of the papers of the runs, whatever the state of the runs.

    Parameters
    ----------
    planned : sequence of Run
    kept : mapping
        Rows of the tasks that have ended, by key.
    quick : bool
    """
    papers = {run.paper.name: run.paper for run in planned}
    by_name = {(run.paper.name, run.experiment.name): run for run in planned}
    return tuple(
        row_of(paper.name, entry, by_name.get((paper.name, entry.experiment or "")), kept, quick)
        for paper in papers.values()
        for entry in paper.entries
    )


def row_of(paper: str, entry: Entry, run: Run | None, kept: Mapping[str, Kept], quick: bool) -> Row:
    """Return the row of one entry."""
    verdict, ours, note = _assess(entry, run, kept, quick)
    parts = (note, entry.remark, entry.why if verdict is Verdict.DIFFERS else "")
    return Row(paper=paper, entry=entry, verdict=verdict, ours=ours, remark=" ".join(part for part in parts if part))


def _assess(entry: Entry, run: Run | None, kept: Mapping[str, Kept], quick: bool) -> tuple[Verdict, Any, str]:
    """Return verdict, value, and an automatic remark."""
    if entry.out_of_scope or run is None:
        return Verdict.OUT_OF_SCOPE, None, _sentence(entry.out_of_scope)
    if missing := (*run.missing, *absent(entry.needs)):
        return Verdict.ABSENT, None, f'Needs {", ".join(missing)}: `pip install "nosnoc_py[bench]"`.'
    if quick and not entry.quick:
        return Verdict.FULL_ONLY, None, "Not meaningful in the smaller version."
    if run.key not in kept:
        return Verdict.NOT_RUN, None, "The run has not ended."
    return _read(entry, run, kept[run.key])


def _read(entry: Entry, run: Run, row: Kept) -> tuple[Verdict, Any, str]:
    if row.get("status") in FAILED:
        return Verdict.FAILED, None, _sentence(ending(row))
    results = row["results"]
    if not row["success"] and not run.experiment.may_fail:
        return Verdict.FAILED, None, f"The problem ended with the status {results.get('status')!r}."
    try:
        value = value_of(entry, results)
        verdict = judge(entry.agreement, entry.paper, value)
    except (KeyError, IndexError, TypeError, ValueError, StopIteration, ZeroDivisionError) as error:
        return Verdict.FAILED, None, f"The results have no such number ({type(error).__name__}: {error})."
    note = ""
    if verdict is Verdict.DIFFERS and entry.erratum is not None:
        verdict, note = _erratum(entry, results)
    if isinstance(value, tuple | list):
        return verdict, str(value[1]), note
    finite = isinstance(value, float | int) and math.isfinite(value)
    if not finite and not isinstance(value, str):  # if the reason is known, it counts as a difference
        return (Verdict.DIFFERS if entry.why else verdict), None, "No number was found."
    return verdict, value, note


def _erratum(entry: Entry, results: Results) -> tuple[Verdict, str]:
    """Return the verdict on a number that differs, by the results about the paper's own data."""
    try:
        shown, note = entry.erratum(results) if callable(entry.erratum) else (False, "")
    except (KeyError, IndexError, TypeError, ValueError, StopIteration) as error:
        return Verdict.DIFFERS, f"The erratum is not shown ({type(error).__name__}: {error})."
    return (Verdict.ERRATUM if shown else Verdict.DIFFERS), _sentence(note)


def ending(row: Kept) -> str:
    """Return how a task without a result ended, in one line: the last line of a traceback, without local folders."""
    first, *more = str(row.get("message", "")).split("\n")
    last = [line.strip() for line in more if line.strip()][-1:]
    text = f"{row['status']}: {' '.join([first.removesuffix('Traceback (most recent call last):').strip(), *last])}"
    return re.sub(r"(?<![\w.])/(?:[\w.@+-]+/)+", "", text)


def _sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""


def counts(rows: Iterable[Row]) -> dict[Verdict, int]:
    """Return how many rows have which verdict; all verdicts that occur, in their own order."""
    numbers = Counter(row.verdict for row in rows)
    return {verdict: numbers[verdict] for verdict in Verdict if numbers[verdict]}


def complete(rows: Iterable[Row]) -> bool:
    """Return True if everything was run, nothing failed, and every difference is explained."""
    return all(row.explained and row.verdict not in (Verdict.FAILED, Verdict.NOT_RUN) for row in rows)
