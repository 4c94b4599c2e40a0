"""A planar humanoid rises from a chair: from sitting with both feet on the ground to standing, at rest.

Trunk, thighs and shanks of both sides together, and feet of two contacts; the seat carries the hips at the beginning.
"""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns
from models import urdf

SEAT = 0.45  # height of the hips on the chair [m]


def robot() -> ns.Robot:
    """Return the robot, whose base is the trunk; a positive pitch leans forwards."""
    parts = [
        urdf.link("trunk", 40.0, (0, 0, 0.3), (2.0, 2.0, 0.5), urdf.shape('<box size="0.2 0.3 0.6"/>', (0, 0, 0.3))),
        urdf.rod("thigh", 16.0, 0.45, 0.1),
        urdf.rod("shank", 8.0, 0.43, 0.08),
        urdf.link("foot", 2.0, (0.06, 0, -0.01), (0.002, 0.008, 0.008)),
        urdf.joint("hip", "trunk", "thigh", axis="0 1 0", ends=(-2.2, 0.4), effort=400),
        urdf.joint("knee", "thigh", "shank", (0, 0, -0.45), "0 1 0", ends=(0.05, 2.4), effort=400),
        urdf.joint("ankle", "shank", "foot", (0, 0, -0.43), "0 1 0", ends=(-0.8, 0.6), effort=250),
    ]
    return ns.Robot.from_urdf(urdf.robot("humanoid", parts), base="planar")


def build(horizon: float = 1.2) -> ns.OCP:
    """Return the task: the hips end at rest .85 m above the ground, the trunk upright."""
    body = robot()
    ground, seat = ns.HalfSpace([0, 0, 1]), ns.HalfSpace([0, 0, 1], offset=SEAT - 0.1)
    contacts = []
    for name, ahead in (("heel", -0.06), ("toe", 0.18)):
        contacts += ns.contacts(body.shape("foot", ns.Sphere(0.02), (ahead, 0, -0.03)), ground, name=name, friction=0.8)
    contacts += ns.contacts(body.shape("trunk", ns.Sphere(0.1)), seat, name="seat", friction=0.5)
    system = body.system(contacts, end_stops=False, scene=body.scene())
    near = {"base_z": SEAT, "hip": -1.6, "knee": 1.6}
    x0 = ns.stand(system, near=near, bounds=body.bounds()).x0
    q, v = body.q, body.v
    arrived = [q[1] == 0.85, q[2] == 0, *(v[k] == 0 for k in range(6))]
    return ns.OCP(
        system, horizon=horizon, x0=x0, stage_cost=1e-4 * ca.sumsqr(system.u), bounds=body.bounds(),
        terminal_constraints=arrived,
    )  # fmt: skip
