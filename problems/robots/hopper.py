"""Gymnasium's hopper hops: from the posture of the file to .3 m further on, at the same height and upright."""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns
from problems.robots.files import wheel_file


def build(way: float = 0.3, horizon: float = 0.8) -> ns.OCP:
    """Return the task: the trunk ends this far ahead [m]; joints have their ends as contacts."""
    robot = ns.Robot.from_mjcf(wheel_file("gymnasium", "assets/hopper.xml"))
    system = robot.system(robot.contacts(ns.HalfSpace([0, 0, 1]), ["foot"], friction=0.9), scene=robot.scene())
    return ns.OCP(
        system, horizon=horizon, x0={"rootz": 1.25}, stage_cost=1e-2 * ca.sumsqr(system.u), bounds=robot.bounds(),
        terminal_constraints=[robot.q[0] == way, robot.q[1] == 1.25, robot.q[2] == 0],
    )  # fmt: skip
