"""Unitree's A1 stands up: from a crouch on its feet to a stand at .3 m, at rest."""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns
from problems.robots.files import wheel_file

LEGS = ("FR", "FL", "RR", "RL")


def posture(thigh: float, calf: float) -> dict[str, float]:
    """Return joint angles of all legs [rad]."""
    return {f"{leg}_{part}_joint": angle for leg in LEGS for part, angle in (("thigh", thigh), ("calf", calf))}


def scene() -> tuple[ns.Robot, ns.CLS]:
    """Return the robot and its system: balls at the ends of the calves touch the ground."""
    robot = ns.Robot.from_urdf(wheel_file("example-robot-data", "a1_description/urdf/a1.urdf"), base="floating")
    ground, contacts = ns.HalfSpace([0, 0, 1]), []
    for leg in LEGS:
        foot = robot.shape(f"{leg}_foot", ns.Sphere(0.02))
        contacts += ns.contacts(foot, ground, name=leg, friction=0.7)
    return robot, robot.system(contacts, end_stops=False, scene=robot.scene())


def build(height: float = 0.3, horizon: float = 0.5) -> ns.OCP:
    """Return the task: the trunk ends level, at rest, at this height [m]."""
    robot, system = scene()
    near = {"base_z": 0.18, "base_qw": 1.0, **posture(1.1, -2.2)}
    x0 = ns.stand(system, near=near, bounds=robot.bounds()).x0
    q, v = robot.q, robot.v
    arrived = [q[0] == x0[0], q[1] == x0[1], q[2] == height]
    arrived += [ns.Constraint(ns.attitude_error(q[3:7], [1, 0, 0, 0]), equals=[0, 0, 0], name="level")]
    arrived += [ns.Constraint(v[:6], equals=[0] * 6, name="rest")]
    return ns.OCP(
        system, horizon=horizon, x0=x0, stage_cost=1e-3 * ca.sumsqr(system.u), bounds=robot.bounds(),
        terminal_constraints=arrived,
    )  # fmt: skip
