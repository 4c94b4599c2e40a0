"""Solving problems without a guess: `python -m problems.benchmarks.cold_start`.

Every problem is solved by the search of `ns.solve(ocp)`, and on request (`--set methods=...`) to finite elements
from the default start, to many random starts of them, and to a plain relaxation (Scholtes) by IPOPT, each with the same
limit of time. The objective of an independent simulation of the control
counts. `--set without=KIND` leaves a kind of start out, `--set variants=N` adds problems that are drawn by a seed:
other numbers, the mirror, contacts in another order, millimetres and grams.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from nosnoc_py.search.portfolio import KINDS
from problems.benchmarks.cold_start_problems import SUITE, Problem
from problems.benchmarks.cold_start_variants import Variant, draw
from problems.benchmarks.orders import check_names
from problems.runner import Report, program, tabled
from problems.settings import Settings

SEARCH = "search"
NEAR = 1.05  # largest true objective that counts as solved, as a multiple of the best known one
SAME = 1.01  # the same limit for the same problem written in another way
STAGES = 20
Solve = Callable[[ns.OCP, float], ns.Solution]


def _elements(ocp: ns.OCP) -> Any:
    return (ns.FESDJ if isinstance(ocp.system, ns.CLS) else ns.FESD)(control_stages=STAGES)


COMPARED: Mapping[str, Solve] = {
    "finite elements": lambda ocp, limit: ns.solve(ocp, _elements(ocp), time_limit=limit),
    "random starts": lambda ocp, limit: ns.solve(ocp, ns.ElementSearch(control_stages=STAGES), time_limit=limit),
    "relaxation": lambda ocp, limit: ns.solve(ocp, _elements(ocp), ns.Homotopy(), time_limit=limit),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Result of a method on a problem.

    Parameters
    ----------
    problem, method : str
    seed : int
    status, verdict, message : str
    objective, best : float
        The true objective, infinite without a motion that is confirmed; the least one that is known.
    seconds : float
        Processor time of all processes.
    start, sequence : str
        The kind of start that won, and the modes of its motion; empty where there are none.
    agreement : tuple of str
        Kinds of start that found the same optimum.
    near : float
        The ratio of objectives up to which the problem counts as solved.
    """

    problem: str
    method: str
    seed: int
    status: str
    verdict: str
    objective: float
    best: float
    seconds: float
    start: str = ""
    sequence: str = ""
    agreement: tuple[str, ...] = ()
    message: str = ""
    near: float = NEAR

    @property
    def ratio(self) -> float:
        """Ratio of the objective to the best known one."""
        return self.objective / self.best

    @property
    def solved(self) -> bool:
        """True if the solution is confirmed and near the best known one."""
        return self.status == "solved" and self.ratio <= self.near


def measured(name: str, ocp: ns.OCP, best: float, method: str, seed: int, solve: Callable[[], ns.Solution]) -> Row:
    """Solve and return the row; an exception is a row, too."""
    before = _seconds()
    common: dict[str, Any] = {"problem": name, "method": method, "seed": seed, "best": best}
    try:
        solution = solve()
    except Exception as error:  # a benchmark continues, and counts it as a failure
        message = f"{type(error).__name__}: {error}"[:200]
        seconds = _seconds() - before
        return Row(**common, status="exception", verdict="", objective=np.inf, seconds=seconds, message=message)
    certificate = solution.certificate
    return Row(
        **common,
        status=solution.status.value,
        verdict="" if certificate is None else certificate.verdict.value,
        objective=certificate.true_objective if certificate is not None and solution.success else np.inf,
        seconds=_seconds() - before,
        start=_winner(solution),
        sequence="" if solution.sequence is None else shortened(solution.sequence),
        agreement=tuple(solution.agreement or ()),
        message=solution.message[:200],
    )


def shortened(sequence: ns.Sequence) -> str:
    """Return a sequence in one line; a phase in which nothing touches is a dot."""
    return " > ".join(
        item if isinstance(item, str) else ", ".join(f"{name} {mode}" for name, mode in item.items()) or "."
        for item in sequence.items
    )


def experiment(
    *,
    problems: Sequence[str] = (),
    methods: Sequence[str] = (SEARCH,),
    seeds: int = 1,
    time_limit: float = 60.0,
    without: str = "",
    variants: int = 0,
) -> Iterator[Row]:
    """Yield all rows.

    Parameters
    ----------
    problems : tuple of str
        Names, by default all.
    methods : tuple of str
    seeds : int
        Number of seeds of the search: 0, 1, ...; variants are drawn by each of them.
    time_limit : float
        Seconds for every problem and method.
    without : str
        A kind of start to leave out, "each" for every one of them in turns.
    variants : int
        Number of variants that are drawn.

    Raises
    ------
    OptionError
        For an unknown problem, method or kind of start.
    """
    check_names(problem=(problems, SUITE), method=(methods, (SEARCH, *COMPARED)))
    if without not in ("", "each", *KINDS):
        raise OptionError(unknown_name(without, ("each", *KINDS), "kind of start"))
    chosen = {name: SUITE[name] for name in problems or SUITE}
    left_out = KINDS if without == "each" else (without,)
    for name, problem in chosen.items():
        yield from _compared(name, problem, methods, time_limit)
        for seed in range(seeds if SEARCH in methods else 0):
            for kind in left_out:
                search = _without(kind, seed)
                title = f"{SEARCH} without {kind}" if kind else SEARCH
                yield _searched(name, problem.ocp(), problem.best, search, time_limit, title)
    for seed in range(seeds if variants else 0):
        for variant in draw(chosen, variants, seed):
            yield _of_variant(variant, chosen[variant.problem], seed, time_limit)


def _compared(name: str, problem: Problem, methods: Sequence[str], time_limit: float) -> Iterator[Row]:
    for method in methods:
        if method != SEARCH:
            ocp = problem.ocp()
            yield measured(name, ocp, problem.best, method, 0, partial(COMPARED[method], ocp, time_limit))


def _without(kind: str, seed: int) -> ns.Search:
    return ns.Search(seed=seed, starts=tuple(each for each in KINDS if each != kind))


def _searched(name: str, ocp: ns.OCP, best: float, search: ns.Search, limit: float, title: str) -> Row:
    return measured(name, ocp, best, title, search.seed, lambda: search.solve(ocp, time_limit=limit))


def _of_variant(variant: Variant, problem: Problem, seed: int, time_limit: float) -> Row:
    """Return the best objective of a variant: in closed form, or by a thorough search."""
    name, best = f"{variant.problem}, {variant.change}", problem.best
    if not variant.same and problem.closed is not None:
        best = problem.closed(**{**problem.numbers, **variant.numbers})
    elif not variant.same:
        known = ns.Search(effort="thorough", seed=seed + 1).solve(variant.ocp)
        # Without a confirmed reference nothing counts as near it.
        best = known.certificate.true_objective if known.status is ns.Status.SOLVED and known.certificate else np.nan
    row = _searched(name, variant.ocp, best, ns.Search(seed=seed), time_limit, SEARCH)
    return Row(**{**vars(row), "near": SAME if variant.same else NEAR})


def _seconds() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _winner(solution: ns.Solution) -> str:
    """Return the kind of the first start that led to the sequence of the solution."""
    starts = solution.candidates or ()
    return next((c.start for c in starts if c.sequence is not None and c.sequence == solution.sequence), "")


def run(settings: Settings, progress: Progress) -> Report:
    """Run the benchmark and report."""
    started = time.monotonic()
    rows = list(experiment(**settings.arguments))
    table = [
        {
            "problem": row.problem,
            "method": row.method,
            "seed": row.seed,
            "start": row.start,
            "sequence": row.sequence,
            "objective": row.objective,
            "best known": row.best,
            "ratio": row.ratio,
            "verdict": row.verdict or row.status,
            "seconds": row.seconds,
            "agreement": ", ".join(row.agreement),
        }
        for row in rows
    ]
    results = {"rows": [{**vars(r), "solved": r.solved} for r in rows], "wall_seconds": time.monotonic() - started}
    missed = [
        {"problem": r.problem, "method": r.method, "status": r.status, "message": r.message}
        for r in rows
        if not r.solved
    ]
    counts = summary(rows)
    return tabled(
        {**results, "summary": counts},
        all(row.solved for row in rows if row.method.startswith(SEARCH)),
        {"problems without a guess": table, "solved": counts, "others": missed},
        said=["ratios of true objectives to the best known ones; processor seconds"],
    )


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return for every method how much it solves, and its time."""
    groups = {method: [row for row in rows if row.method == method] for method in dict.fromkeys(r.method for r in rows)}
    return [
        {
            "method": method,
            "solved": f"{sum(row.solved for row in group)} of {len(group)}",
            "median seconds": median(row.seconds for row in group),
            "longest": max(row.seconds for row in group),
        }
        for method, group in groups.items()
    ]


PROGRAM = program(__name__, run, experiment, quick={"problems": ("catch",), "time_limit": 10.0})
