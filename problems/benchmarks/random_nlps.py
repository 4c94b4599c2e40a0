"""Random smooth programs by two interior-point methods: `python -m problems.benchmarks.random_nlps`.

The library's own method beside IPOPT, with the same tolerances and starts, on programs of eight classes: convex,
nonconvex, dependent rows, ill-conditioned, many equations, fixed variables, degenerate, infeasible. An independent
check (`tests.references.random_nlps`) verifies every claimed solution.

Counted are what each solves, what ours solves of that, how often its objective is as good (at most IPOPT's and 1e-6 of
it), false claims, and the ratio of their times without building.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.mpcc.interior import InteriorPoint
from nosnoc_py.mpcc.ipopt import Ipopt, NLPResult
from nosnoc_py.progress import Progress
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.random_nlps import false_claim, made

OPTIONS = {"tol": 1e-8, "max_iter": 500}
AS_GOOD = 1e-6
QUICK = {"count": 64}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Results of both methods on one program.

    Parameters
    ----------
    seed : int
    kind : str
    status, ipopt_status : str
        IPOPT's names, for both.
    solved, ipopt_solved : bool
        Claimed, and verified by the check.
    false, ipopt_false : str
        Error of a claim; empty if there is none.
    objective, ipopt_objective : float
    seconds, ipopt_seconds : float
    iterations, ipopt_iterations : int
    """

    seed: int
    kind: str
    status: str
    ipopt_status: str
    solved: bool
    ipopt_solved: bool
    false: str
    ipopt_false: str
    objective: float
    ipopt_objective: float
    seconds: float
    ipopt_seconds: float
    iterations: int
    ipopt_iterations: int

    @property
    def as_good(self) -> bool:
        """True if both solve it, and our objective is at most IPOPT's."""
        limit = self.ipopt_objective + AS_GOOD * (1.0 + abs(self.ipopt_objective))
        return self.solved and self.ipopt_solved and self.objective <= limit


def experiment(*, count: int = 1000, first: int = 0, callback: Callable[[Any], Any] | None = None) -> Iterator[Row]:
    """Yield one row for every program.

    Parameters
    ----------
    count, first : int
        Programs, whose classes take turns, and the seed of the first one.
    """
    for seed in range(first, first + count):
        row = compared(made(seed))
        yield row
        if callback is not None:
            callback(f"{row.kind} {seed}: {row.status}, IPOPT {row.ipopt_status}")


def compared(problem: Any) -> Row:
    """Solve one program (a `RandomNLP`) by both methods and return the row."""
    objective = ca.Function("f", [problem.x], [problem.f])
    values: dict[str, Any] = {}
    for prefix, method in (("", InteriorPoint(problem, OPTIONS)), ("ipopt_", Ipopt(problem, OPTIONS))):
        started = time.perf_counter()
        result: NLPResult = method.solve(problem.start, np.zeros(0))
        seconds = time.perf_counter() - started
        false = false_claim(problem, result.x, result.lam_x, result.lam_g) if result.converged else ""
        values |= {
            f"{prefix}status": result.solver_status,
            f"{prefix}solved": result.converged and not false,
            f"{prefix}false": false,
            f"{prefix}objective": float(objective(result.x)),
            f"{prefix}seconds": seconds,
            f"{prefix}iterations": result.iterations,
        }
    return Row(seed=problem.seed, kind=problem.kind, **values)


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment and report; a false claim of ours is no success."""
    started = time.monotonic()
    rows = list(experiment(**settings.arguments, callback=progress))
    false = [vars(row) for row in rows if row.false]
    return tabled(
        {
            "status": (ns.Status.STOPPED if false else ns.Status.SOLVED).value,
            "iterations": sum(row.iterations for row in rows),
            "false": false,
            "summary": summary(rows),
            "rows": [vars(row) for row in rows],
            "wall_seconds": time.monotonic() - started,
        },
        not false,
        {
            "random smooth programs, ours compared with IPOPT": summary(rows),
            "solved by one of them only": [
                {name: getattr(row, name) for name in ("seed", "kind", "status", "ipopt_status")}
                for row in rows
                if row.solved != row.ipopt_solved
            ],
        },
    )


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one line for every class, and one for all."""
    kinds = dict.fromkeys(row.kind for row in rows)
    return [_line(kind, [row for row in rows if kind in (row.kind, "all")]) for kind in (*kinds, "all")]


def _line(kind: str, rows: Sequence[Row]) -> dict[str, Any]:
    both = [row for row in rows if row.solved and row.ipopt_solved]
    ratios = [np.log(row.ipopt_seconds / row.seconds) for row in both]
    return {
        "class": kind,
        "programs": len(rows),
        "ipopt": sum(row.ipopt_solved for row in rows),
        "ours": sum(row.solved for row in rows),
        "both": len(both),
        "as_good": sum(row.as_good for row in rows),
        "false": sum(bool(row.false) for row in rows),
        "ipopt_false": sum(bool(row.ipopt_false) for row in rows),
        "time_ratio": float(np.exp(np.mean(ratios))) if ratios else np.nan,
    }


PROGRAM = program(__name__, run, experiment, quick=QUICK)
