"""A hopper with a knee jumps from a crouch: `python -m problems.kneed_hopper`.

It pushes off and flies; at the end its body is higher and upright. `ns.solve(ocp)` without a method finds the same
motion by search. In flight only gravity changes the total momentum; this checks the states.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import casadi as ca

import nosnoc_py as ns
from models import kneed_hopper as model
from problems.balance import missed_momentum
from problems.runner import optimised, program

METHOD = ns.MultiPhase(sequence=ns.Sequence([{"foot": "stick"}, {}], times=[0.25]))


def build(height: float = 0.2, horizon: float = 0.5) -> ns.OCP:
    """Return the task: from rest in the crouch, the body this much higher [m] and upright after this time [s]."""
    system, x0 = model.build(), model.start()
    pitch = 2
    return ns.OCP(
        system,
        horizon=horizon,
        x0=x0,
        stage_cost=1e-3 * ca.sumsqr(system.u),
        bounds=model.robot().bounds(),
        terminal_constraints=[
            ns.Constraint(system.q[1], lower=x0[1] + height, name="high"),
            ns.Constraint(system.q[pitch], equals=0, name="upright"),
            ns.Constraint(system.v[pitch], equals=0, name="not turning"),
        ],
    )


def held_against(solution: ns.Solution, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the take-off time [s], and the error of the final momentum relative to a free fall [N s]."""
    return missed_momentum(model.build(), solution, vertical=1)


def film(path: str | Path) -> Path:
    """Write a film of the jump."""
    ocp = build()
    return Path(ns.animate(ocp.system, ns.solve(ocp, METHOD), path))


PROGRAM = program(__name__, optimised(build, held_against), build, quick={}, method=METHOD)
