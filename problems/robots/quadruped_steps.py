"""A quadruped steps forwards with all its feet: from its stand to the same stand .1 m further on, at rest."""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns
from models import quadruped as model


def build(way: float = 0.1, horizon: float = 0.6) -> ns.OCP:
    """Return the task: trunk and feet end this much further on [m]."""
    robot = model.robot()
    system = robot.system(robot.contacts(friction=0.8), end_stops=False, scene=robot.scene("xz"))
    x0 = model.start()
    trunk = [
        ns.Constraint(robot.q[:3], equals=[x0[0] + way, x0[1], x0[2]], name="trunk"),
        ns.goals.turned(robot, "trunk"),
    ]
    rest = ns.Constraint(robot.v[:6], equals=[0] * 6, name="rest")
    ahead = [
        ns.Constraint(robot.position(f"{leg}_foot")[0], lower=0.19 * x + way, name=f"{leg} ahead")
        for leg, (x, _) in model.LEGS.items()
    ]
    return ns.OCP(
        system, horizon=horizon, x0=x0, stage_cost=1e-3 * ca.sumsqr(system.u), bounds=robot.bounds(),
        terminal_constraints=[*trunk, rest, *ahead],
    )  # fmt: skip
