"""A biped on point feet climbs a stair of .1 m: from rest on both feet to rest, its trunk higher and further on."""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns
from models import biped as model

FEET = ("left_foot", "right_foot")


def build(height: float = 0.1, way: float = 0.4, horizon: float = 1.2) -> ns.OCP:
    """Return the task: the trunk ends this much higher and further on [m], at rest."""
    robot = model.robot()
    stair = ns.Placed(ns.Box([1.0, 1.0, height]), (0.75, 0, height / 2))
    contacts = robot.contacts(friction=0.8)
    for name in FEET:
        foot = robot.shape(name, ns.Sphere(model.FOOT))
        contacts += ns.contacts(foot, stair, name=f"{name} on the stair", friction=0.8)
    drawn = [*robot.scene(), ns.scene.Polygon([[0.25, 0], [1.25, 0], [1.25, height], [0.25, height]], colour="grey")]
    system = robot.system(contacts, end_stops=False, scene=drawn)
    x0 = model.start(-0.1, 0.1, 0.74)
    q, v = robot.q, robot.v
    arrived = [q[0] == way, q[1] == x0[1] + height, q[2] == 0, *(v[k] == 0 for k in range(3))]
    return ns.OCP(
        system, horizon=horizon, x0=x0, stage_cost=1e-3 * ca.sumsqr(system.u), bounds=robot.bounds(),
        terminal_constraints=arrived,
    )  # fmt: skip
