"""A planar arm of two links pushes a puck with dry friction on a table: `python -m problems.two_link_push`.

The order of contacts is prescribed: the tip reaches the puck, and pushes it to its target. `ns.solve(ocp)` without
a method finds the same motion by search. From rest to rest all work of the motors goes into friction and into the
impact of the tip: this balance checks the solution.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import two_link_pusher as model
from problems.balance import balance
from problems.runner import optimised, program

PUSHED = ns.Sequence(
    [{"puck_x (friction)": "stick"}, {"tip": "closed", "puck_x (friction)": "slip+"}, {"puck_x (friction)": "stick"}],
    times=[0.3, 0.9],
)
METHOD = ns.MultiPhase(sequence=PUSHED)


def build(way: float = 0.15, horizon: float = 1.0) -> ns.OCP:
    """Return the task: push the puck this far [m] in this time [s], and come to rest; least squares of the torques."""
    system = model.build()
    rates = [rate for name, rate in zip(system.names["v"], system.v.elements(), strict=True) if "clamp" not in name]
    return ns.OCP(
        system,
        horizon=horizon,
        x0=model.start(),
        stage_cost=ca.sumsqr(system.u),
        bounds=model.robot().bounds(["shoulder", "elbow"]),
        terminal_constraints=[
            ns.Constraint(system.q[2], equals=way, name="there"),
            ns.Constraint(ca.vertcat(*rates), equals=np.zeros(len(rates)), name="at rest"),
        ],
    )


def held_against(solution: ns.Solution, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the energy balance of the motors [J]."""
    return balance(model.build(), solution, {"puck_x": model.RUBS})


def film(path: str | Path) -> Path:
    """Write a film of the push, seen from above."""
    ocp = build()
    return Path(ns.animate(ocp.system, ns.solve(ocp, METHOD), path))


PROGRAM = program(__name__, optimised(build, held_against), build, quick={}, method=METHOD)
