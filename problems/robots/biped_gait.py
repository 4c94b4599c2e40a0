"""A biped on point feet walks: one step of a periodic gait, mirrored from step to step; where it begins is free."""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns
from models import biped as model

SAME = {"left_hip": "right_hip", "left_knee": "right_knee"}


def build(step: float = 0.3, horizon: float = 0.5) -> ns.OCP:
    """Return the task: after one step [m] in this time [s] both legs have changed places."""
    robot = model.robot()
    system = robot.system(robot.contacts(friction=0.8), end_stops=False, scene=robot.scene())
    upright = {"base_z": (0.6, 0.8), "base_pitch": (-0.3, 0.3), "left_knee": (0.05, 2), "right_knee": (0.05, 2)}
    return ns.OCP(
        system, horizon=horizon, stage_cost=1e-3 * ca.sumsqr(system.u), bounds={**robot.bounds(), **upright},
        initial_constraints=[robot.q[0] == 0],
        terminal_constraints=ns.periodic(system, shift={"base_x": step}, mirror=SAME),
    )  # fmt: skip
