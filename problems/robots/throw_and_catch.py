"""One hand throws a ball, another one .8 m away catches it: both are driven plates with small ranges."""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns

APART, RADIUS = 0.8, 0.05  # [m]
PALM = ns.ConvexPolygon([[-0.08, -0.02], [0.08, -0.02], [0.08, 0.02], [-0.08, 0.02]])


def build(horizon: float = 1.2) -> ns.OCP:
    """Return the task: the ball begins at rest on the left hand, and ends at rest with the right one below it."""
    q, v, u = ca.SX.sym("q", 6), ca.SX.sym("v", 6), ca.SX.sym("u", 4)
    left, right, ball, g = q[:2], q[2:4], q[4:], 9.81
    plane = ns.Coordinates(q, v)
    contacts = []
    body = ns.Placed(ns.Sphere(RADIUS), ball, coordinates=plane)
    for name, hand in (("left", left), ("right", right)):
        palm = ns.Placed(PALM, hand, coordinates=plane)
        contacts += ns.contacts(body, palm, name=name, friction=0.6)
    masses = [0.5] * 4 + [0.2] * 2
    system = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.diag(masses),
        force=ca.vertcat(u[0], u[1] - 0.5 * g, u[2], u[3] - 0.5 * g, 0, -0.2 * g), contacts=contacts,
        names={"q": ["left_x", "left_y", "right_x", "right_y", "ball_x", "ball_y"]},
    )  # fmt: skip
    hold = ca.DM([0, 0.5 * g, 0, 0.5 * g])
    ranges = {"left_x": (-0.15, 0.15), "right_x": (APART - 0.15, APART + 0.15)}
    ranges |= {"left_y": (-0.3, 0.3), "right_y": (-0.3, 0.3)}
    top = RADIUS + 0.02
    return ns.OCP(
        system, horizon=horizon, x0={"right_x": APART, "ball_y": top}, stage_cost=1e-2 * ca.sumsqr(u - hold),
        bounds={**ranges, **dict.fromkeys(system.control_names, (-40, 40))},
        terminal_constraints=[ball[0] == right[0], ball[1] == right[1] + top, *(v[k] == 0 for k in range(2, 6))],
    )  # fmt: skip
