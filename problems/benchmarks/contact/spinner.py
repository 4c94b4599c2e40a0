"""A finger of two links turns an ellipse about its axis by pushing along its edge."""

import casadi as ca
import numpy as np

import nosnoc_py as ns
from problems.benchmarks.contact.posed import GRAVITY, Posed, ellipse, placed, rotation, symbols

HORIZON, TURN = 10.0, 6 * np.pi
AXIS, HALF = ca.DM([1.5, 1.0]), (0.3, 0.2)
CENTRE_2 = 0.22  # of the second link from the elbow [m]: the source overwrites its 1/2 by the cosine of an angle


def build() -> ns.OCP:
    """Return the problem: shoulder, elbow and ellipse; the goal is three turns of the ellipse in ten seconds."""
    q, v, u = symbols(3, 2)
    t = ca.SX.sym("t")
    first = ca.vertcat(ca.sin(q[0]), ca.cos(q[0]))
    second = ca.vertcat(ca.sin(q[0] + q[1]), ca.cos(q[0] + q[1]))
    tip, middles = first + second, (first / 2, first + CENTRE_2 * second)
    inertia = 0.125 * (HALF[0] ** 2 + HALF[1] ** 2)
    turning = 0.5 * 0.0839 * (v[0] ** 2 + (v[0] + v[1]) ** 2) + 0.5 * inertia * v[2] ** 2
    moving = sum(0.25 * ca.sumsqr(ca.jtimes(place, q, v)) for place in middles)
    height = sum(place[1] for place in middles)
    arm = ns.lagrangian(
        q=q, v=v, u=u, forces=ca.vertcat(u, -0.1 * v[2]), kinetic=turning + moving, potential=0.5 * GRAVITY * height
    )
    turned = rotation(q[2])
    seen = turned.T @ (tip - AXIS)
    outward = turned @ ca.vertcat(2 * seen[0] / HALF[0] ** 2, 2 * seen[1] / HALF[1] ** 2)
    outward /= ca.norm_2(outward)
    arm_of_tip = tip - AXIS
    slip = ca.jtimes(tip, q, v) - v[2] * ca.vertcat(-arm_of_tip[1], arm_of_tip[0])
    directions = [ca.gradient(ca.dot(way, slip), v) for way in (outward, ca.vertcat(-outward[1], outward[0]))]
    gap = (seen[0] / HALF[0]) ** 2 + (seen[1] / HALF[1]) ** 2 - 1
    contact = ns.Contact("tip", gap=gap, normal=directions[0], tangent=directions[1], friction=0.8)
    scene = [
        ns.scene.Polygon(placed(ellipse(HALF), AXIS, q[2]), label="ellipse"),
        ns.scene.Line([[0, 0], first, tip], label="finger"),
        ns.scene.Mark("tip", tip),
    ]
    system = ns.CLS(q=q, v=v, u=u, t=t, mass_matrix=arm.mass_matrix, force=arm.force, contacts=[contact], scene=scene)
    wanted = ca.vertcat(0.3, 1.5, TURN * t / HORIZON)
    return ns.OCP(
        system,
        horizon=HORIZON,
        x0=dict(zip(system.names["q"], (0.2, 1.5, 0.0), strict=True)),
        stage_cost=0.01 * ca.sumsqr(q - wanted) + 0.1 * ca.sumsqr(v) + 0.01 * ca.sumsqr(u),
        terminal_cost=10 * ca.sumsqr(q - ca.DM([0.3, 1.5, TURN])) + 0.1 * ca.sumsqr(v),
        bounds=ns.Bounds(u=(-10, 10)),
    )


PROBLEM = Posed(
    title="finger spinner",
    source="nosnoc (MATLAB), spinner_ocp.m",
    differs="the normal force also has a moment on the ellipse; without it the tip does not stay on the edge",
    build=build,
)
