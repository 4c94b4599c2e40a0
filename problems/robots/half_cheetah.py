"""Gymnasium's half-cheetah jumps: from a stand on both feet until its trunk is at rest .5 m further on."""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns
from problems.robots.files import wheel_file

FEET = ("bfoot", "ffoot")


def build(way: float = 0.5, horizon: float = 0.8) -> ns.OCP:
    """Return the task: the trunk ends at rest this far ahead [m], level, at the height at which it began."""
    robot = ns.Robot.from_mjcf(wheel_file("gymnasium", "assets/half_cheetah.xml"))
    contacts = robot.contacts(ns.HalfSpace([0, 0, 1]), FEET, friction=0.8)
    system = robot.system(contacts, end_stops=False, scene=robot.scene())
    stance = ns.stand(system, ["bfoot 1", "ffoot 1"], bounds=robot.bounds())
    q, v, trunk = robot.q, robot.v, stance.x0[:3]
    arrived = [q[0] == trunk[0] + way, q[1] == trunk[1], q[2] == trunk[2], *(v[k] == 0 for k in range(3))]
    return ns.OCP(
        system, horizon=horizon, x0=stance.x0, stage_cost=1e-3 * ca.sumsqr(system.u), bounds=robot.bounds(),
        terminal_constraints=arrived,
    )  # fmt: skip
