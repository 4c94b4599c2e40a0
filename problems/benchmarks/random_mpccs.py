"""Random MPCCs, compared with enumeration of their branches: `python -m problems.benchmarks.random_mpccs`.

Programs with affine constraints and pairs and a linear or convex quadratic objective, in seven classes: plain,
degenerate, redundant, biactive, unbounded, infeasible, badly scaled. Linear programs on all branches determine which
are feasible and which unbounded, and the slope at the point that a solver returns (`tests.references.mpcc_branches`).

A claim is false when
- "solved" stands at a point with residuals, in an infeasible or in an unbounded program, or beside an S or a B that a
  branch with descent contradicts;
- "infeasible" is said of a program that has a feasible point;
- "unbounded" is said of a program that has no ray.
All other results are honest; those that are failures are counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.orders import check_names
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.mpcc_branches import KINDS, RandomMPCC, Truth, false_claim, made, residuals, truth

SOLVERS: Mapping[str, Any] = {"auto": ns.Auto(), "active_set": ns.ActiveSet(), "homotopy": ns.Homotopy()}
QUICK = {"count": 63}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Result of one solver on one program, and of enumeration.

    Parameters
    ----------
    seed : int
    kind, solver : str
    status, stationarity : str
        The claims.
    feasible : bool or None
        The program has a feasible point; None where it is too close to tell.
    unbounded : bool
        True if some branch is unbounded.
    false : str
        Error of the claims; empty if there is none.
    objective, size : float
        At the point returned; the largest of its entries.
    infeasibility, complementarity : float
        Residuals of this point, evaluated independently.
    seconds : float
    iterations : int
    """

    seed: int
    kind: str
    solver: str
    status: str
    stationarity: str
    feasible: bool | None
    unbounded: bool
    false: str
    objective: float
    size: float
    infeasibility: float
    complementarity: float
    seconds: float
    iterations: int

    @property
    def failed(self) -> bool:
        """True if the program is neither solved nor classified correctly."""
        named = "infeasible" if self.feasible is False else "unbounded" if self.unbounded else "solved"
        return self.status != named and self.feasible is not None


def experiment(
    count: int = 1000,
    first: int = 0,
    kinds: tuple[str, ...] = tuple(KINDS),
    solvers: tuple[str, ...] = tuple(SOLVERS),
    time_limit: float = 10.0,
    in_turns: bool = False,
    *,
    callback: Callable[[Any], Any] | None = None,
) -> Iterator[Row]:
    """Yield the rows of the programs of consecutive seeds, solved by every solver.

    Parameters
    ----------
    count, first : int
        Number of seeds, and the first of them; classes take turns.
    kinds : tuple of str
        Classes; seeds of others are left out.
    solvers : tuple of str
        "auto", "active_set", "homotopy".
    time_limit : float
        Seconds for every solve.
    in_turns : bool
        Every program by one of the solvers only, which take turns.

    Raises
    ------
    OptionError
        For a class or a solver that does not exist.
    """
    check_names(**{"class": (kinds, KINDS)}, solver=(solvers, SOLVERS))
    for seed in range(first, first + count):
        program = made(seed)
        if program.kind in kinds:
            known = truth(program)
            chosen = (solvers[seed % len(solvers)],) if in_turns else solvers
            yield from (solved(program, known, name, time_limit, callback) for name in chosen)


def solved(
    program: RandomMPCC, known: Truth, solver: str, time_limit: float, callback: Callable[[Any], Any] | None = None
) -> Row:
    """Solve one program and compare every claim with enumeration."""
    started = time.process_time()
    result = ns.solve_mpcc(program.mpcc, SOLVERS[solver], time_limit=time_limit, callback=callback)
    seconds = time.process_time() - started
    infeasibility, complementarity = residuals(program, result.w)
    return Row(
        seed=program.seed,
        kind=program.kind,
        solver=solver,
        status=result.status.value,
        stationarity=result.stationarity.value,
        feasible=known.feasible,
        unbounded=known.unbounded,
        false=false_claim(program, known, result),
        objective=result.objective,
        size=float(np.abs(result.w).max()),
        infeasibility=infeasibility,
        complementarity=complementarity,
        seconds=seconds,
        iterations=result.iterations,
    )


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment and report."""
    started = time.monotonic()
    rows = list(experiment(**settings.arguments, callback=progress))
    false = [row for row in rows if row.false]
    solved = [row for row in rows if row.status == "solved"]
    odd = [row for row in rows if row.false or row.failed]
    return tabled(
        {
            "status": (ns.Status.STOPPED if false else ns.Status.SOLVED).value,
            "complementarity": max((row.complementarity for row in solved), default=np.nan),
            "infeasibility": max((row.infeasibility for row in solved), default=np.nan),
            "iterations": sum(row.iterations for row in rows),
            "false": [vars(row) for row in false],
            "summary": summary(rows),
            "rows": [vars(row) for row in rows],
            "wall_seconds": time.monotonic() - started,
        },
        not false,
        {"random MPCCs against enumeration of their branches": summary(rows), "false or failed": list(map(vars, odd))},
    )


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one row for every class and solver, and one for every solver.

    For infeasible and unbounded programs the row has the number that is classified so; "failed" are feasible and
    bounded programs without a solution.
    """
    solvers, kinds = dict.fromkeys(row.solver for row in rows), dict.fromkeys(row.kind for row in rows)
    return [
        _line(kind, solver, [row for row in rows if row.solver == solver and kind in (row.kind, "all")])
        for kind in (*kinds, "all")
        for solver in solvers
    ]


def _line(kind: str, solver: str, rows: Sequence[Row]) -> dict[str, Any]:
    def false(word: str) -> int:
        return sum(bool(row.false) and row.status == word for row in rows)

    solved = Counter(row.stationarity for row in rows if row.status == "solved")
    seconds = [row.seconds for row in rows] or [np.nan]
    return {
        "class": kind,
        "solver": solver,
        "programs": len(rows),
        "solved": solved.total(),
        "s": solved["S"],
        "b": solved["B"],
        "false_solved": false("solved"),
        "infeasible": sum(row.feasible is False for row in rows),
        "infeasible_named": sum(row.feasible is False and row.status == "infeasible" for row in rows),
        "false_infeasible": false("infeasible"),
        "unbounded": sum(row.unbounded for row in rows),
        "unbounded_named": sum(row.unbounded and row.status == "unbounded" for row in rows),
        "false_unbounded": false("unbounded"),
        "failed": sum(row.failed and row.feasible is True and not row.unbounded for row in rows),
        "median_seconds": float(np.median(seconds)),
        "longest_seconds": float(np.max(seconds)),
    }


PROGRAM = program(__name__, run, experiment, quick=QUICK)
