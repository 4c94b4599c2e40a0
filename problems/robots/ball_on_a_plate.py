"""A ball rolls on a plate that tilts and lifts: from one end to the other, and stops there."""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns

RADIUS = 0.05  # [m]
PLATE = ns.ConvexPolygon([[-0.3, -0.01], [0.3, -0.01], [0.3, 0.01], [-0.3, 0.01]])


def build(horizon: float = 1.5) -> ns.OCP:
    """Return the task: the ball ends at rest .3 m further on, the plate level."""
    q, v, u = ca.SX.sym("q", 5), ca.SX.sym("v", 5), ca.SX.sym("u", 2)
    tilt, height, ball, g = q[0], q[1], q[2:4], 9.81
    plane = ns.Coordinates(q, v)
    plate = ns.Placed(PLATE, ca.vertcat(0, height), tilt, coordinates=plane)
    body = ns.Placed(ns.Sphere(RADIUS), ball, q[4], coordinates=plane)
    inertia = 0.4 * 0.3 * RADIUS**2
    system = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.diag([0.05, 1.0, 0.3, 0.3, inertia]),
        force=ca.vertcat(u[0], u[1] - g, 0, -0.3 * g, 0), contacts=ns.contacts(body, plate, name="plate", friction=0.5),
        names={"q": ["tilt", "height", "ball_x", "ball_y", "angle"], "u": ["torque", "lift"]},
    )  # fmt: skip
    top = RADIUS + 0.01
    return ns.OCP(
        system, horizon=horizon, x0={"ball_x": -0.15, "ball_y": top},
        stage_cost=ca.sumsqr(u - ca.vertcat(0, 1.3 * g)) + ca.sumsqr(tilt),
        bounds={"torque": (-5, 5), "lift": (0, 40), "tilt": (-0.4, 0.4), "height": (-0.1, 0.1)},
        terminal_constraints=[ball[0] == 0.15, tilt == 0, height == 0, *(v[k] == 0 for k in range(4))],
    )  # fmt: skip
