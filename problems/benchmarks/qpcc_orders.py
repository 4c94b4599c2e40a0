"""Searches over orders of contacts in random QPCCs: `python -m problems.benchmarks.qpcc_orders`.

Convex quadratic programs with complementarity constraints, drawn by seeds (`tests.references.random_qpccs`), are solved

* by "search", branch and bound as in `ns.MPC`, with a limit of programs,
* by "enumeration" of all orders, each a quadratic program of DAQP, where pairs are few,
* by "relaxation", Scholtes' homotopy with IPOPT from zero, as NOSBENCH runs it (`problems.benchmarks.nosbench`).

The best known value is the lowest one of all, and of a search with fifty times as many programs and without a gap. A
line has processor times of solving alone: what is built once for many solves (a factorisation, derivatives) is not
counted. Without a C compiler the search runs in Python.

Problems that a search does not finish, and relaxations that end elsewhere, are results: the exit code is 0 unless a
search returns a point that violates the problem, or something worse than its own bound says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.qpcc import QPCC, QPCCOutcome
from nosnoc_py.mpcc.qpcc.program import GAP, NODES
from nosnoc_py.mpcc.strategy import Solvers
from nosnoc_py.progress import Progress
from problems.benchmarks.nosbench import BASE
from problems.benchmarks.orders import check_names
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.random_qpccs import Problem, enumerated, random_problem

LONGER = 50  # programs of the search for the best known value, over those of the search
MOST_ENUMERATED = 10  # pairs
SAME = GAP  # relative difference of objectives that are the same: a search stops there
VIOLATION = 1e-6  # of an answer of a search, in the units of random rows


@dataclass(frozen=True, kw_only=True)
class Row:
    """One problem, solved in one way.

    Parameters
    ----------
    pairs, seed : int
    means : str
    seconds : float
        Processor time.
    objective : float
        Infinite without a solution.
    best : float
        Lowest objective known of the problem.
    proved : bool
        Nothing better exists, up to the gap.
    right : bool
        False for a point that violates the problem, and for a bound above the best known value.
    programs : int
        Quadratic programs, or iterations of IPOPT.
    """

    pairs: int
    seed: int
    means: str
    seconds: float
    objective: float
    best: float
    proved: bool = False
    right: bool = True
    programs: int = 0

    @property
    def at_best(self) -> bool:
        """True if nothing better is known."""
        return not _above(self.objective, self.best)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of one way to solve a problem: processor time, objective, bound, violation, programs."""

    seconds: float
    objective: float
    bound: float = -np.inf
    proved: bool = False
    violation: float = 0.0
    programs: int = 0


def searched(problem: Problem, nodes: int, gap: float = GAP) -> Outcome:
    """Return the outcome of branch and bound."""
    factorised = QPCC.of(problem.P, problem.A, problem.pairs)
    began = time.process_time()
    answer = factorised.solve(problem.c, problem.lower, problem.upper, nodes=nodes, gap=gap)
    seconds = time.process_time() - began
    return Outcome(
        seconds=seconds, objective=answer.objective, bound=answer.bound, programs=answer.nodes,
        proved=answer.outcome is QPCCOutcome.SOLVED, violation=problem.violation(answer.z) if answer.found else 0.0,
    )  # fmt: skip


def all_orders(problem: Problem, nodes: int) -> Outcome | None:
    """Return the outcome of enumeration, or None for too many pairs."""
    if len(problem.pairs) > MOST_ENUMERATED:
        return None
    began = time.process_time()
    best = enumerated(problem)
    return Outcome(
        seconds=time.process_time() - began, objective=best, bound=best, proved=True, programs=2 ** len(problem.pairs)
    )


def relaxed(problem: Problem, nodes: int, solver: ns.Homotopy = BASE) -> Outcome:
    """Return the outcome of a homotopy from zero."""
    z = ca.SX.sym("z", problem.P.shape[0])
    rows = ca.DM(problem.A) @ z
    sides = [rows[column.tolist()] - ca.DM(problem.lower[column]) for column in problem.pairs.T]
    others = np.setdiff1d(np.arange(problem.A.shape[0]), problem.pairs).tolist()
    mpcc = MPCC.of_pairs(
        w=z, G=sides[0], H=sides[1], objective=0.5 * ca.bilin(ca.DM(problem.P), z, z) + ca.dot(ca.DM(problem.c), z),
        g=rows[others], lbg=problem.lower[others], ubg=problem.upper[others],
    )  # fmt: skip
    solvers = Solvers(mpcc)
    state: Any = None
    for _ in range(2):  # the first run builds functions and solvers
        began = time.process_time()
        state = solver.run(mpcc, mpcc.w0, mpcc.p0, solvers=solvers)
        seconds = time.process_time() - began
    found = state.status is ns.Status.SOLVED
    return Outcome(
        seconds=seconds, objective=state.values.objective if found else np.inf,
        programs=sum(record.iterations for record in state.records),
    )  # fmt: skip


MEANS: dict[str, Callable[[Problem, int], Outcome | None]] = {
    "search": searched,
    "enumeration": all_orders,
    "relaxation": relaxed,
}


def experiment(
    *,
    pairs: Sequence[int] = (5, 10, 15, 20, 25),
    means: Sequence[str] = ("search", "enumeration", "relaxation"),
    problems: int = 50,
    relaxations: int = 20,
    unknowns: int = 5,
    nodes: int = NODES,
    callback: Callable[[Any], Any] | None = None,
) -> Iterator[Row]:
    """Yield the rows of all problems.

    Parameters
    ----------
    pairs : tuple of int
    means : tuple of str
    problems : int
        For each number of pairs.
    relaxations : int
        Those that are relaxed, too: it takes long.
    unknowns : int
        More unknowns than pairs: what is free in an order.
    nodes : int
        Limit of the programs of a search.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    check_names(means=(means, MEANS))
    for count in pairs:
        for seed in range(problems):
            problem = random_problem(np.random.default_rng([count, seed]), count + unknowns, count)
            results = {
                name: outcome
                for name in means
                if (name != "relaxation" or seed < relaxations) and (outcome := MEANS[name](problem, nodes)) is not None
            }
            # Relaxed problems are slightly infeasible: they say nothing about the best value.
            exact = [outcome.objective for name, outcome in results.items() if name != "relaxation"]
            best = min([searched(problem, LONGER * nodes, 0.0).objective, *exact])
            for name, outcome in results.items():
                wrong = outcome.violation > VIOLATION or _above(outcome.bound, best)
                yield Row(
                    pairs=count, seed=seed, means=name, seconds=outcome.seconds, objective=outcome.objective, best=best,
                    proved=outcome.proved, right=not wrong, programs=outcome.programs,
                )  # fmt: skip
        if callback is not None:
            callback(f"{count} pairs: {problems} problems")


def _above(value: float, best: float) -> bool:
    return value > best + SAME * max(1.0, abs(best))


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one line for each number of pairs and means: times [ms], shares of problems."""
    lines = []
    for pairs, means in dict.fromkeys((row.pairs, row.means) for row in rows):
        of = [row for row in rows if (row.pairs, row.means) == (pairs, means)]
        middle, high = np.percentile([1e3 * row.seconds for row in of], (50, 99))
        losses = [row.objective - row.best for row in of if np.isfinite(row.objective)]
        lines.append(
            {
                "pairs": pairs, "means": means, "problems": len(of), "p50": float(middle), "p99": float(high),
                "programs_p50": float(np.median([row.programs for row in of])), "solved": len(losses) / len(of),
                "at_best": float(np.mean([row.at_best for row in of])),
                "proved": float(np.mean([row.proved for row in of])), "worst_loss": max([0.0, *losses]),
            }
        )  # fmt: skip
    return lines


def run(settings: Settings, progress: Progress) -> Report:
    """Solve everything and report."""
    started = time.monotonic()
    rows = list(experiment(**settings.arguments, callback=progress))
    lines = summary(rows)
    wrong = [row for row in rows if not row.right]
    return tabled(
        {"summary": lines, "rows": [vars(row) for row in rows], "wall_seconds": time.monotonic() - started},
        not wrong,
        {"processor time [ms]; shares of problems": lines},
        said=[f"{row.pairs} pairs, seed {row.seed}, {row.means}: violated, or better than its bound" for row in wrong],
    )


PROGRAM = program(__name__, run, experiment, quick={"pairs": (3, 5), "problems": 3, "relaxations": 1})
