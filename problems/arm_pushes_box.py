"""An arm of seven joints pushes a box over a table with its closed gripper: `python -m problems.arm_pushes_box`.

The order of contacts is prescribed: the gripper reaches the box, pushes it, and leaves it. `ns.solve(ocp)` without a
method finds such a motion by search, in a minute and a half. The motors compensate
the weight of the arm; the controls are the remaining torques, whose work goes into friction and the impact.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import gripper_arm as model
from problems.balance import balance
from problems.runner import optimised, program

STILL = {"box_x (friction)": "stick", "box_y (friction)": "stick"}
PUSHED = ns.Sequence(
    [STILL, {**STILL, "tips": "closed", "box_x (friction)": "slip+"}, STILL],
    times=[0.2, 0.9],
)
METHOD = ns.MultiPhase(sequence=PUSHED, intervals=16, shortest=0)  # the second touch may vanish
WAY, HORIZON = 0.1, 1.0  # [m], [s]


def build(way: float = WAY, horizon: float = HORIZON) -> ns.OCP:
    """Return the task: push the box this far [m] in this time [s], and come to rest; least squares of the torques."""
    system = model.build()
    moving = len(model.ARM) + 1  # the arm, and the box along x
    return ns.OCP(
        system,
        horizon=horizon,
        x0=model.start(),
        stage_cost=0.01 * ca.sumsqr(system.u),
        bounds=model.robot().bounds(model.ARM),
        terminal_constraints=[
            ns.Constraint(system.q[moving - 1], equals=0.5 + way, name="there"),
            ns.Constraint(system.v[:moving], equals=np.zeros(moving), name="at rest"),
        ],
    )


def guess() -> dict[float, dict[str, float]]:
    """Return keyframes: the gripper at its start, at the box, and at the target of the box."""
    names = (*model.ARM, "box_x", "box_y")
    frames = {0.0: model.start(), 0.2: model.start(gap=0.0), 0.9: model.start(0.5 + WAY, 0.0)}
    return {time: dict(zip(names, map(float, x), strict=False)) for time, x in frames.items()}


def held_against(solution: ns.Solution, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the energy balance of the motors [J]."""
    return balance(model.build(), solution, {"box_x": model.RUBS, "box_y": model.RUBS})


def film(path: str | Path) -> Path:
    """Write a film of the push, seen from a corner."""
    return Path(ns.animate(model.build("oblique"), ns.solve(build(), METHOD, guess=guess()), path))


PROGRAM = program(__name__, optimised(build, held_against, guess), build, quick={"way": 0.05}, method=METHOD)
