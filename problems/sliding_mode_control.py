"""Optimal control along a sliding mode: `python -m problems.sliding_mode_control`.

The ride along the edge of a current of `models.sliding_mode`, whose optimum slides: the control there does not move
the point across the edge, but determines its speed along it. The cost is compared with the optimum in continuous time,
from which that of N constant controls differs by O(1 / N^2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import sliding_mode
from models.sliding_mode import Constants, Optimum
from problems.runner import optimised, program
from tests.references.switching import boundary_errors

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
    """Return the optimal control problem; arguments as in `sliding_mode.Constants`."""
    return sliding_mode.problem(Constants(start=start, goal=goal, horizon=horizon, weight=weight))


def compare(solution: ns.Solution, best: Optimum) -> dict[str, float]:
    """Return the excess of the cost, the error of the arrival at the edge [s], and the largest |x| after it."""
    arrived = solution.t > best.arrival + best.constants.horizon / len(solution.u)
    return {
        "excess": solution.objective - best.cost,
        "arrival": boundary_errors(solution, [best.arrival])[0],
        "off_the_edge": float(np.abs(solution.x[arrived, 0]).max()),
    }


def held_against(solution: ns.Solution, arguments: Mapping[str, Any]) -> dict[str, float]:
    """Return the optimum in continuous time, and the distance of the solution from it."""
    best = sliding_mode.optimum(Constants(**arguments))
    return {"optimum": best.cost, "arrival_of_the_optimum": best.arrival, **compare(solution, best)}


PROGRAM = program(
    __name__,
    optimised(build, held_against),
    build,
    quick=QUICK,
    method=METHOD,
    solver=SOLVERS["homotopy"],
    solvers=SOLVERS,
)
