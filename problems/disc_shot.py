"""A driven disc goes around a post and knocks another disc to a goal: `python -m problems.disc_shot`.

Only disc 1 has a thrust, and both slow down by drag. Disc 2 has to be at the goal and almost at rest when the time is
over. The post stands in the straight way. When, where and how often to touch is left to `ns.solve(ocp)`, which finds
one impact without a guess. The larger task of the FESD-J paper, in which both discs swap places, is in
`problems.disc_manipulation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import two_discs_inelastic
from problems.runner import optimised, program

POST, POST_RADIUS = (-0.6, -0.1), 0.2
START = (-1.8, -0.2, 0.9, 0.3)  # centres of both discs [m]
GOAL = (1.5, 1.2)
CONSTANTS = two_discs_inelastic.Constants(restitution=0.5)


def build(horizon: float = 2.5) -> ns.OCP:
    """Return the task: the least square of the thrust [N] that brings disc 2 to the goal in this time [s]."""
    post = ns.scene.Disc(POST, POST_RADIUS, label="post", colour="black")
    goal = ns.scene.Disc(GOAL, 0.06, label="goal", colour="green")
    system = two_discs_inelastic.build("smooth", CONSTANTS, scenery=[post, goal])
    away = ca.norm_2(system.q[:2] - ca.DM(POST))
    return ns.OCP(
        system,
        horizon=horizon,
        x0=[*START, 0, 0, 0, 0],
        stage_cost=0.1 * ca.sumsqr(system.u),
        bounds=ns.Bounds(u=(-20, 20)),
        path_constraints=[ns.Constraint(away, POST_RADIUS + CONSTANTS.radii[0], name="post")],
        terminal_constraints=[
            ns.Constraint(system.q[2:], equals=GOAL, name="goal"),
            ns.Constraint(system.v[2:], lower=-0.05, upper=0.05, name="almost at rest"),
        ],
    )


def held_against(solution: ns.Solution, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the motion has to satisfy, from the numbers of the solution alone."""
    off = np.hypot(solution["x_1"] - POST[0], solution["y_1"] - POST[1]) - POST_RADIUS - CONSTANTS.radii[0]
    return {"goal missed by [m]": float(np.hypot(*(solution.final_state[2:4] - GOAL))), "post [m]": float(off.min())}


def film(path: str | Path) -> Path:
    """Write a film of the motion."""
    ocp = build()
    return Path(ns.animate(ocp.system, ns.solve(ocp), path, frames_per_second=20, dots_per_inch=70))


def frames(solution: ns.Solution, arguments: Mapping[str, Any]) -> Any:
    """Return pictures of the motion."""
    times = np.linspace(0.0, solution.duration, 6)
    return ns.snapshots(build(**arguments).system, solution, times, arrangement="panels")


FIGURES = {"disc_shot.png": lambda solution, _: ns.plot(solution), "disc_shot_frames.png": frames}
PROGRAM = program(
    __name__, optimised(build, held_against, figures=FIGURES), build, quick={"effort": "quick"}, method=ns.Search()
)
