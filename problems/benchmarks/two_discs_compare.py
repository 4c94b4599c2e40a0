"""Ways to the optimal control of two discs, compared: `python -m problems.benchmarks.two_discs_compare`.

On the four problems of `problems.two_discs`, from the constant controls of the paper on the hybrid minimum principle.
Parts (`--set part=...`, by default all):

- compare: the minimum principle with and without refinement, HMP-MAS, forms of direct shooting and FESD-J beside the
  exact optimum; with the cost of every control in an independent event-driven simulation. Of reinforcement learning
  (Section 6.3) the row quotes the paper's number; nothing of it is run.
- grids: errors over the number of steps, for Algorithm 1 and for gradient descent.
- rates: convergence over the iterations, for several relaxations, and beside gradient descent.
- sequences: starts with one collision too many.
- costates: the costate beside the multipliers of FESD-J.
- timing: an iteration of Algorithm 1 beside a plain roll-out with NumPy.

Everything takes some four minutes of one core, with `--quick` a few seconds. The exit code is 0 if the refined solution
of problem 5.2 is found; what fails elsewhere is a status in its row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from problems.benchmarks import two_discs_costates as costates
from problems.benchmarks import two_discs_history as history
from problems.benchmarks import two_discs_rows as rows
from problems.benchmarks import two_discs_sequences as sequences
from problems.benchmarks import two_discs_tables as tables
from problems.benchmarks import two_discs_timing as timing
from problems.benchmarks.two_discs_findings import Findings
from problems.benchmarks.two_discs_grids import CONVERGED, DESCENDED, over_grids
from problems.runner import Report, program
from problems.settings import Settings
from problems.two_discs import EXPERIMENTS
from tests.references.two_discs import optimum

PARTS = ("compare", "grids", "rates", "sequences", "costates", "timing")
PROBLEMS = tuple(EXPERIMENTS)
ENERGY = ("concentric", "general", "wall")  # with the cost epsilon |u|^2
RELAXED = "general"  # the problem on which relaxations are compared
QUICK = {
    "problems": ("general",),
    "methods": (rows.ALGORITHM_1, rows.REFINED, "HMP moving grid", "HMP-MAS", "shooting in phases"),
    "grids": (60, 120),
    "descent_grids": (60,),
    "iterations": 800,
    "descent_iterations": 200,
    "relaxations": (0.01, 0.018),
    "starts": 1,
    "steps": 120,
    "repeats": 2,
}


def experiment(
    part: str = "all",
    problems: tuple[str, ...] = PROBLEMS,
    methods: tuple[str, ...] = tuple(rows.CONTENDERS),
    grids: tuple[int, ...] = tuple(range(60, 1201, 60)),
    descent_grids: tuple[int, ...] = (60, 120, 240, 480, 960),
    grid_iterations: int = 6000,
    iterations: int = 2000,
    descent_iterations: int = 3000,
    relaxations: tuple[float, ...] = (0.01, 0.005, 0.001, 0.015, 0.018),
    starts: int = len(sequences.STARTS),
    steps: int = 480,
    repeats: int = 5,
    time_limit: float = 20.0,
    *,
    progress: Progress,
) -> Findings:
    """Do what was asked for.

    Parameters
    ----------
    part : {"all", "compare", "grids", "rates", "sequences", "costates", "timing"}
    problems : tuple of str
        Names in `problems.two_discs.EXPERIMENTS`.
    methods : tuple of str
        Names in `problems.benchmarks.two_discs_rows.CONTENDERS`, for the table of methods.
    grids, descent_grids : tuple of int
        N of Algorithm 1 and of gradient descent.
    grid_iterations : int
        Most iterations of Algorithm 1 over the grids; it stops where |H_u| is small.
    iterations, descent_iterations : int
        Of Algorithm 1 (without a tolerance) and of gradient descent.
    relaxations : tuple of float
        alpha; with those below 0.01 there are 5 / alpha iterations where these are more.
    starts : int
        How many starts with three collisions.
    steps : int
        N of the parts rates and sequences.
    repeats : int
        Turns of the benchmark of which the best counts.
    time_limit : float
        Seconds for every method in the table.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    named = (((part,), (*PARTS, "all"), "part"), (problems, PROBLEMS, "problem"), (methods, rows.CONTENDERS, "method"))
    for names, known, what in named:
        for name in names:
            if name not in known:
                raise OptionError(unknown_name(name, known, what))
    asked = PARTS if part == "all" else (part,)
    energy = [name for name in problems if name in ENERGY]
    found: dict[str, Any] = {}
    if "compare" in asked:
        found["rows"] = _compared(problems, methods, time_limit, progress)
    if "grids" in asked:
        progress.describe("errors over the number of steps")
        errors = [e for name in energy for e in over_grids(CONVERGED, name, grids, grid_iterations)]
        descent = [e for p in energy for e in over_grids(DESCENDED, p, descent_grids, descent_iterations)]
        found["errors"] = (*errors, *descent)
    if "rates" in asked:
        progress.describe("convergence over the iterations")
        found["histories"] = tuple(history.successive_approximation(p, steps, iterations=iterations) for p in problems)
        found["descents"] = tuple(history.gradient_descent(p, steps, iterations=descent_iterations) for p in energy)
        found["relaxations"] = tuple(_relaxed(alpha, steps, iterations) for alpha in relaxations)
    if "sequences" in asked:
        progress.describe("starts with three collisions")
        found["excursions"] = tuple(sequences.excursion(u, steps, iterations) for u in sequences.STARTS[:starts])
    if "costates" in asked:
        progress.describe("costates and multipliers")
        found["costates"] = tuple(costates.compare(name) for name in energy)
    if "timing" in asked:
        progress.describe("benchmark")
        found["timing"] = timing.measure(repeats=repeats)
    return Findings(**found)


def _compared(problems: Sequence[str], methods: Sequence[str], limit: float, progress: Progress) -> tuple[Any, ...]:
    """A row for every problem and method."""
    made: list[rows.Row] = []
    for problem in problems:
        exact = optimum(problem)
        made += rows.given_rows(problem, exact)
        for name in methods:
            progress.describe(f"{problem}: {name}")
            made.append(rows.row_of(problem, name, exact, limit))
    return tuple(made)


def _relaxed(alpha: float, steps: int, iterations: int) -> history.History:
    enough = max(iterations, int(np.ceil(history.FITTED / alpha))) if alpha < 0.01 else iterations
    return history.successive_approximation(RELAXED, steps, relaxation=alpha, iterations=enough)


def run(settings: Settings, progress: Progress) -> Report:
    """Compare, and refine the solution of 5.2 for the numbers that all problems give."""
    started = time.monotonic()
    refined = rows.CONTENDERS[rows.REFINED].solve("general")
    found = experiment(**settings.arguments, progress=progress)
    return Report(
        results={**refined.to_dict(), **found.to_dict(), "wall_seconds": time.monotonic() - started},
        success=refined.success,
        show=lambda console: tables.show(console, found),
        figures=_figures(found),
    )


def _figures(found: Findings) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if found.rows:
        made["two_discs_methods.png"] = lambda path: _curves().methods(found.rows, path)
    if found.histories:
        made["two_discs_motions.png"] = lambda path: _motions().motions(found.histories, path)
        made["two_discs_convergence.png"] = lambda path: _curves().convergence(found.histories, path)
        made["two_discs_relaxation.png"] = lambda path: _curves().relaxation(found.relaxations, path)
    if found.descents:
        made["two_discs_descent.png"] = lambda path: _curves().descent(found.histories, found.descents, path)
    for one in found.histories:
        if one.exact.experiment.cost == "length":
            made["two_discs_length.png"] = lambda path, one=one: _curves().length(one, path)
    if found.errors:
        made["two_discs_grids.png"] = lambda path: _curves().grids(found.errors, path)
    if found.excursions:
        made["two_discs_sequences.png"] = lambda path: _motions().three_collisions(found.excursions, path)
    if found.costates:
        made["two_discs_costates.png"] = lambda path: _motions().costates(found.costates, path)
    return made


def _motions() -> Any:
    from problems.drawing import two_discs  # matplotlib is slow to import and not needed with --json

    return two_discs


def _curves() -> Any:
    from problems.drawing import two_discs_curves

    return two_discs_curves


PROGRAM = program(__name__, run, experiment, quick=QUICK)
