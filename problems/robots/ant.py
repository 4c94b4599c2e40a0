"""Gymnasium's ant jumps: from a stand on four feet its trunk reaches a height, level."""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns
from problems.robots.files import wheel_file

LEGS = ("body4", "body7", "body10", "body13")


def build(height: float = 0.25, horizon: float = 0.5) -> ns.OCP:
    """Return the task: the trunk ends this much higher [m], level."""
    robot = ns.Robot.from_mjcf(wheel_file("gymnasium", "assets/ant.xml"))
    contacts = [c for c in robot.contacts(ns.HalfSpace([0, 0, 1]), LEGS, friction=0.9) if c.name.endswith("1")]
    system = robot.system(contacts, end_stops=False, scene=robot.scene())
    near = {"root_z": 0.5, "root_qw": 1.0}
    near |= {"ankle_1": 0.8, "ankle_2": -0.8, "ankle_3": -0.8, "ankle_4": 0.8}
    x0 = ns.stand(system, near=near, bounds=robot.bounds()).x0
    q = robot.q
    arrived = [q[2] == x0[2] + height, q[0] == x0[0], q[1] == x0[1]]
    arrived += [ns.Constraint(ns.attitude_error(q[3:7], [1, 0, 0, 0]), equals=[0, 0, 0], name="level")]
    return ns.OCP(
        system, horizon=horizon, x0=x0, stage_cost=1e-3 * ca.sumsqr(system.u), bounds=robot.bounds(),
        terminal_constraints=arrived,
    )  # fmt: skip
