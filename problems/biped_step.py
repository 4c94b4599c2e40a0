"""A biped on point feet takes a step, from rest to rest: `python -m problems.biped_step`.

It leans forward on both feet, swings the left leg past the right one, and lands on both feet. It cannot balance on one
point foot, so the motion is unstable, as its certificate says. A real biped would need feedback that tracks it. The
guess consists of three keyframes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import casadi as ca

import nosnoc_py as ns
from models import biped as model
from problems.balance import balance
from problems.runner import optimised, program

BOTH = {"left_foot": "stick", "right_foot": "stick"}
HORIZON, STEP = 1.0, 0.3  # [s], [m] that the trunk moves; the foot twice as much
METHOD = ns.MultiPhase(sequence=ns.Sequence([BOTH, {"right_foot": "stick"}, BOTH], times=[0.3, 0.8]))


def build(step: float = STEP, horizon: float = HORIZON) -> ns.OCP:
    """Return the task: the trunk moves this far [m], the left foot twice as far, in this time [s]."""
    system, biped = model.build(), model.robot()
    x0, end = model.start(), model.start(step / 2, -step / 2, hips=step)
    foot = ca.substitute(biped.position("left_foot")[0], biped.q, system.q)
    # With both feet on the ground these seven rows determine the state: the joints follow from trunk and feet.
    arrived = ca.vertcat(system.q[:3], system.v[:3], foot)
    return ns.OCP(
        system,
        horizon=horizon,
        x0=x0,
        stage_cost=1e-3 * ca.sumsqr(system.u),
        bounds=biped.bounds(),
        terminal_constraints=[ns.Constraint(arrived, equals=[*end[:3], 0, 0, 0, 1.5 * step], name="step")],
    )


def guess() -> dict[float, dict[str, float]]:
    """Return keyframes: both ends, and the left leg drawn up between them."""
    first, last = model.start(), model.start(STEP / 2, -STEP / 2, hips=STEP)
    middle = 0.5 * (first + last)
    middle[3:7] = [*model.legs(0, 0, 0.62)[:2], *model.legs(0, 0, 0.72)[2:]]
    names = (*model.build().names["q"], *model.build().names["v"])
    frames = {0.0: first, 0.55 * HORIZON: middle, HORIZON: last}
    return {time: dict(zip(names, map(float, x), strict=True)) for time, x in frames.items()}


def held_against(solution: ns.Solution, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the energy balance of the motors [J]. The feet are balls that roll, so the trunk ends slightly higher."""
    return balance(model.build(), solution)


def film(path: str | Path) -> Path:
    """Write a film of the step."""
    ocp = build()
    return Path(ns.animate(ocp.system, ns.solve(ocp, METHOD, guess=guess()), path))


PROGRAM = program(__name__, optimised(build, held_against, guess), build, quick={}, method=METHOD)
