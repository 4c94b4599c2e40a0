"""A quadruped rears: from its stand to its front feet .15 m above the ground."""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns
from models import quadruped as model


def build(height: float = 0.15, horizon: float = 0.6) -> ns.OCP:
    """Return the task: both front feet end at this height [m], the trunk at rest."""
    robot = model.robot()
    system = robot.system(robot.contacts(friction=0.8), end_stops=False, scene=robot.scene("xz"))
    high = [ns.goals.clearance(robot, f"{leg}_foot", height) for leg in ("FL", "FR")]
    rest = ns.Constraint(robot.v[:6], equals=[0] * 6, name="rest")
    return ns.OCP(
        system, horizon=horizon, x0=model.start(), stage_cost=1e-3 * ca.sumsqr(system.u), bounds=robot.bounds(),
        terminal_constraints=[*high, rest],
    )  # fmt: skip
