"""Gymnasium's walker takes a step: from a stand on both feet, its trunk .3 m ahead and at rest."""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns
from problems.robots.files import wheel_file

FEET = ("foot", "foot_left")


def build(way: float = 0.3, horizon: float = 0.8) -> ns.OCP:
    """Return the task: the trunk ends upright and at rest this far ahead [m]."""
    robot = ns.Robot.from_mjcf(wheel_file("gymnasium", "assets/walker2d_v5.xml"))
    contacts = robot.contacts(ns.HalfSpace([0, 0, 1]), FEET, friction=0.9)
    system = robot.system(contacts, end_stops=False, scene=robot.scene())
    near = {"rootz": 1.2, "thigh_joint": -0.3, "leg_joint": -0.5, "foot_joint": 0.2}
    near |= {"thigh_left_joint": -0.3, "leg_left_joint": -0.5, "foot_left_joint": 0.2}
    stance = ns.stand(system, near=near, bounds=robot.bounds())
    q, v, x0 = robot.q, robot.v, stance.x0
    arrived = [q[0] == x0[0] + way, q[1] == x0[1], q[2] == x0[2], *(v[k] == 0 for k in range(3))]
    return ns.OCP(
        system, horizon=horizon, x0=x0, stage_cost=1e-3 * ca.sumsqr(system.u), bounds=robot.bounds(),
        terminal_constraints=arrived,
    )  # fmt: skip
