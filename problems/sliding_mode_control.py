"""Optimal control along a sliding mode: `python -m problems.sliding_mode_control`.

The ride along the edge of a current of `models.sliding_mode`, whose optimum slides: the control there does not move
the point across the edge, it chooses its speed along it. The cost is compared with the optimum in continuous time,
from which that of N constant controls differs by O(1 / N^2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console

import nosnoc_py as ns
from models import sliding_mode
from models.sliding_mode import Constants, Optimum
from nosnoc_py.progress import Progress
from problems.runner import Report, program
from problems.settings import Settings
from problems.switching_cases import boundary_errors

METHOD = ns.FESD(control_stages=20, finite_elements=2, rk_stages=2)
# With 20 or 40 control stages Auto stops at an arrival exactly on the control grid (cost + .002): an arrival a little
# earlier needs another layout of the elements, which is no small change where step equilibration is imposed.
SOLVERS = {"homotopy": ns.Homotopy(), "auto": ns.Auto(), "active_set": ns.ActiveSet()}
QUICK = {"control_stages": 10}
STANDARD = sliding_mode.STANDARD


def build(
    start: float = STANDARD.start,
    goal: float = STANDARD.goal,
    horizon: float = STANDARD.horizon,
    weight: float = STANDARD.weight,
) -> ns.OCP:
    """The task as an optimal control problem; arguments as in `sliding_mode.Constants`."""
    return sliding_mode.problem(Constants(start=start, goal=goal, horizon=horizon, weight=weight))


def compare(solution: ns.Solution, best: Optimum) -> dict[str, float]:
    """Excess of the cost, error of the arrival at the edge [s], largest |x| after it."""
    arrived = solution.t > best.arrival + best.constants.horizon / len(solution.u)
    return {
        "excess": solution.objective - best.cost,
        "arrival": boundary_errors(solution, [best.arrival])[0],
        "off_the_edge": float(np.abs(solution.x[arrived, 0]).max()),
    }


def run(settings: Settings, progress: Progress) -> Report:
    """Solve the task and compare with the optimum."""
    constants = Constants(**settings.arguments)
    best = sliding_mode.optimum(constants)
    solution = ns.solve(sliding_mode.problem(constants), settings.method, settings.solver, callback=progress)
    found = compare(solution, best)
    return Report(
        results={**solution.to_dict(), "optimum": best.cost, "arrival": best.arrival, "errors": found},
        success=solution.success,
        show=lambda console: _show(console, solution, best, found),
        figures={"sliding_mode_control.png": lambda path: _drawing().ride(solution, best, path)},
    )


def _show(console: Console, solution: ns.Solution, best: Optimum, found: Mapping[str, float]) -> None:
    console.print(solution.summary())
    console.print(
        f"cost {solution.objective:.9f}; the optimum in continuous time is {best.cost:.9f} ({found['excess']:+.1e})"
    )
    console.print(f"arrival at the edge: {best.arrival:.9f} s, {found['arrival']:.1e} s from an element boundary")
    console.print(f"largest distance from the edge after it: {found['off_the_edge']:.1e}")


def _drawing() -> Any:
    from problems.drawing import filippov  # matplotlib is slow to import and not needed with --json

    return filippov


PROGRAM = program(__name__, run, build, quick=QUICK, method=METHOD, solver=SOLVERS["homotopy"], solvers=SOLVERS)
