"""What the agreement of a search is worth: `python -m problems.benchmarks.agreement`.

Problems are drawn by a seed (`random_ocps`) and solved by the plain call. The best of searches with other seeds is the
reference; `--set reference=thorough` gives these more patience. Counted is how often kinds of start agree where the
objective is within 1 % of the reference, and where it is not: the share of the latter is what agreement fails to see.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.cold_start import Row, measured
from problems.benchmarks.orders import check_names
from problems.benchmarks.random_ocps import FAMILIES, problem
from problems.runner import Report, program, tabled
from problems.settings import Settings

NEAR = 1.01
# A search says so in its message where fewer kinds of start agree than its effort asks for.
ALONE = "the optimum may be local"


def experiment(
    *,
    number: int = 20,
    first: int = 0,
    families: Sequence[str] = (),
    references: int = 2,
    reference: Literal["quick", "normal", "thorough"] = "normal",
    effort: Literal["quick", "normal", "thorough"] = "normal",
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
    references : int
        Number of searches with other seeds whose best objective is the reference.
    reference, effort : str
        Effort of these searches, and of the plain call that is judged.
    """
    check_names(family=(families, FAMILIES))
    chosen = list(families or FAMILIES)
    for count in range(first, first + number):
        family, drawn = chosen[count % len(chosen)], count // len(chosen)
        ocp, name = problem(family, drawn), f"{family} {drawn}"
        plain = partial(ns.solve, ocp, effort=effort, progress=False)
        row = measured(name, ocp, np.nan, "plain", 0, plain)
        others = (_objective(ocp, reference, seed) for seed in range(1, references + 1))
        yield replace(row, best=min((row.objective, *others)), near=NEAR)


def _objective(ocp: ns.OCP, effort: Literal["quick", "normal", "thorough"], seed: int) -> float:
    """Return the true objective of a search; infinite without a confirmed motion."""
    found = ns.solve(ocp, effort=effort, seed=seed, progress=False)
    return found.certificate.true_objective if found.success and found.certificate is not None else np.inf


def counts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return how many problems are within 1 % of the reference, by the agreement of kinds of start."""
    groups: dict[str, list[Row]] = {"agreed": [], "not agreed": [], "no motion": []}
    for row in rows:
        found = np.isfinite(row.objective)
        groups["no motion" if not found else "not agreed" if ALONE in row.message else "agreed"].append(row)
    return [
        {"kinds of start": name, "problems": len(group), "within 1 %": sum(row.ratio <= NEAR for row in group)}
        for name, group in groups.items()
    ]


def run(settings: Settings, progress: Progress) -> Report:
    """Run the benchmark and report."""
    started = time.monotonic()
    rows = list(experiment(**settings.arguments))
    table = [
        {
            "problem": row.problem,
            "objective": row.objective,
            "reference": row.best,
            "ratio": row.ratio,
            "verdict": row.verdict or row.status,
            "seconds": row.seconds,
            "agreement": ", ".join(row.agreement),
            "sequence": row.sequence,
        }
        for row in rows
    ]
    counted = counts(rows)
    results = {"rows": [vars(row) for row in rows], "counts": counted, "wall_seconds": time.monotonic() - started}
    return tabled(
        results,
        all(row.objective <= NEAR * row.best for row in rows),
        {"random problems": table, "agreement": counted},
        said=["true objectives; processor seconds of the plain call"],
    )


PROGRAM = program(__name__, run, experiment, quick={"number": 1, "first": 4, "references": 0, "effort": "quick"})
