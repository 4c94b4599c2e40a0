"""What the agreement of a search is worth: `python -m problems.benchmarks.agreement`.

Problems are drawn by a seed (`random_ocps`) and solved by the plain call. The best of searches with other seeds is the
reference; `--set thorough=1` adds one with more patience. Counted is how often kinds of start agree where the objective
is within 1 % of the reference, and where it is not: the share of the latter is what agreement fails to see. Shares have
95 % confidence intervals (Clopper and Pearson). `--set kept=FILE.jsonl` keeps every row, and takes up where it stopped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.stats import binomtest

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.orders import check_names
from problems.benchmarks.random_ocps import FAMILIES, problem
from problems.runner import Report, picked, program, tabled
from problems.settings import Settings

NEAR = 1.01
# Objectives below this share of the energy of the full control are zero: their ratio says nothing.
NOTHING = 1e-9
Effort = Literal["quick", "normal", "thorough"]
# A search says so in its message where fewer kinds of start agree than its effort asks for.
ALONE = "the optimum may be local"


@dataclass(frozen=True, kw_only=True)
class Row:
    """Result of the plain call on one problem.

    Parameters
    ----------
    problem : str
    verdict, message : str
        The verdict of the certificate, or the status where there is none.
    objective, best : float
        The true objective, infinite without a motion that is confirmed; the least one that is known.
    seconds : float
        Processor time of all processes.
    near : float
        The ratio of objectives up to which they count as equal.
    sequence : str
        The modes of the motion.
    agreement : tuple of str
        Kinds of start that found the same optimum.
    """

    problem: str
    verdict: str
    objective: float
    best: float
    seconds: float
    near: float
    sequence: str = ""
    agreement: tuple[str, ...] = ()
    message: str = ""

    @property
    def ratio(self) -> float:
        """Ratio of the objective to the best known one."""
        return self.objective / self.best


def experiment(
    *,
    number: int = 20,
    first: int = 0,
    families: Sequence[str] = (),
    references: int = 2,
    thorough: int = 0,
    effort: Effort = "normal",
    kept: str = "",
) -> Iterator[Row]:
    """Yield a row for every problem.

    Parameters
    ----------
    number : int
        Number of problems, the families in turns.
    first : int
        Number of the first one.
    families : tuple of str
        Names, by default all.
    references, thorough : int
        Numbers of searches with other seeds whose best objective is the reference: of effort `normal`, and `thorough`.
    effort : str
        Effort of the plain call that is judged.
    kept : str
        A file of JSON lines: rows that are in it are not computed again, others are appended.
    """
    check_names(family=(families, FAMILIES))
    chosen, file = list(families or FAMILIES), Path(kept) if kept else None
    known = {row.problem: row for row in _kept(file)}
    efforts: list[tuple[int, Effort]] = [
        (seed, "normal" if seed <= references else "thorough") for seed in range(1, references + thorough + 1)
    ]
    for count in range(first, first + number):
        family, drawn = chosen[count % len(chosen)], count // len(chosen)
        name = f"{family} {drawn}"
        if name not in known:
            ocp = problem(family, drawn)
            plain = _plain(ocp, effort)
            others = (_objective(ns.solve(ocp, effort=each, seed=seed, progress=False)) for seed, each in efforts)
            best = max(min((plain["objective"], *others)), float(np.finfo(float).tiny))
            known[name] = Row(**plain, problem=name, best=best, near=NEAR + NOTHING * _full(ocp) / best)
            if file is not None:
                with file.open("a") as lines:
                    lines.write(json.dumps(vars(known[name])) + "\n")
        yield known[name]


def _kept(file: Path | None) -> list[Row]:
    """Return the rows of a file; none where there is no file yet."""
    lines = file.read_text().splitlines() if file is not None and file.exists() else []
    rows = [json.loads(line) for line in lines]
    return [Row(**{**row, "agreement": tuple(row["agreement"])}) for row in rows]


def _full(ocp: ns.OCP) -> float:
    """Return the energy of the largest control over the whole horizon."""
    return float(ocp.horizon) * float(np.square(np.maximum(*map(np.abs, ocp.u_bounds))).sum())


def _objective(found: ns.Solution) -> float:
    """Return the true objective of a solution; infinite without a confirmed motion."""
    return found.certificate.true_objective if found.success and found.certificate is not None else np.inf


def _plain(ocp: ns.OCP, effort: Effort) -> dict[str, Any]:
    """Return what the plain call found; an exception is counted as no motion."""
    before = _seconds()
    try:
        found = ns.solve(ocp, effort=effort, progress=False)
    except Exception as error:  # a benchmark continues, and counts it as a failure
        message = f"{type(error).__name__}: {error}"[:200]
        return {"verdict": "exception", "objective": np.inf, "seconds": _seconds() - before, "message": message}
    return {
        "verdict": (found.status if found.certificate is None else found.certificate.verdict).value,
        "objective": _objective(found),
        "seconds": _seconds() - before,
        "sequence": "" if found.sequence is None else _shortened(found.sequence),
        "agreement": tuple(found.agreement or ()),
        "message": found.message[:200],
    }


def _shortened(sequence: ns.Sequence) -> str:
    """Return a sequence in one line; a phase in which nothing touches is a dot."""
    return " > ".join(
        item if isinstance(item, str) else ", ".join(f"{name} {mode}" for name, mode in item.items()) or "."
        for item in sequence.items
    )


def _seconds() -> float:
    return sum(os.times()[:4])


def counts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return how many problems are within 1 % of the reference, by the agreement of kinds of start."""
    groups: dict[str, list[Row]] = {"agreed": [], "not agreed": [], "no motion": []}
    for row in rows:
        found = np.isfinite(row.objective)
        groups["no motion" if not found else "not agreed" if ALONE in row.message else "agreed"].append(row)
    return [
        {
            "kinds of start": name,
            "problems": len(group),
            **_share(sum(row.ratio <= row.near for row in group), len(group)),
        }
        for name, group in groups.items()
    ]


def _share(near: int, number: int) -> dict[str, Any]:
    """Return a number of problems, and the 95 % confidence interval of its share (Clopper and Pearson)."""
    interval = binomtest(near, number).proportion_ci() if number else (0.0, 1.0)
    low, high = (100 * float(bound) for bound in interval)
    return {"within 1 %": near, "95 % interval": f"{low:.1f} to {high:.1f} %"}


def run(settings: Settings, progress: Progress) -> Report:
    """Run the benchmark and report."""
    started = time.monotonic()
    rows = list(experiment(**settings.arguments))
    shown = ("problem", "objective", "best", "ratio", "verdict", "seconds", "agreement", "sequence")
    table = [picked(row, *shown) for row in rows]
    counted = counts(rows)
    results = {"rows": [vars(row) for row in rows], "counts": counted, "wall_seconds": time.monotonic() - started}
    return tabled(
        results,
        all(row.ratio <= row.near for row in rows),
        {"random problems": table, "agreement": counted},
        said=["true objectives; processor seconds of the plain call"],
    )


PROGRAM = program(__name__, run, experiment, quick={"number": 1, "first": 4, "references": 0, "effort": "quick"})
