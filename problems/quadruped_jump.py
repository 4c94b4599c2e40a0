"""A quadruped with twelve drives jumps from its stand: `python -m problems.quadruped_jump`.

Four feet push off at once, each held by friction. In the air the trunk becomes level; its attitude is a unit
quaternion. In flight only gravity changes the total momentum; this checks the states.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import quadruped as model
from problems.balance import missed_momentum
from problems.runner import optimised, program

FEET = {f"{leg}_foot": "stick" for leg in model.LEGS}
METHOD = ns.MultiPhase(sequence=ns.Sequence([FEET, {}], times=[0.25]), intervals=8)


def build(height: float = 0.1, horizon: float = 0.4) -> ns.OCP:
    """Return the task: the trunk this much higher [m] than in the stand, level and not turning, after this time [s]."""
    system, x0 = model.build(), model.start()
    return ns.OCP(
        system,
        horizon=horizon,
        x0=x0,
        stage_cost=1e-3 * ca.sumsqr(system.u),
        bounds=model.robot().bounds(),
        terminal_constraints=[
            ns.Constraint(system.q[2], lower=x0[2] + height, name="high"),
            ns.Constraint(ns.attitude_error(system.q[3:7], [1, 0, 0, 0]), equals=np.zeros(3), name="level"),
            ns.Constraint(system.v[3:6], equals=np.zeros(3), name="not turning"),
        ],
    )


def held_against(solution: ns.Solution, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the take-off time [s], and the error of the final momentum relative to a free fall [N s]."""
    return missed_momentum(model.build(), solution, vertical=2)


def film(path: str | Path) -> Path:
    """Write a film of the jump, seen from a corner."""
    return Path(ns.animate(model.build(view="oblique"), ns.solve(build(), METHOD), path))


PROGRAM = program(__name__, optimised(build, held_against), build, quick={}, method=METHOD)
