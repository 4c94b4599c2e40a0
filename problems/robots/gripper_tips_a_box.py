"""Two driven fingers turn a box about a corner: it lies on the floor, and stands on its other side at the end."""

from __future__ import annotations

import casadi as ca
import numpy as np

import nosnoc_py as ns

WIDE, HIGH, TIP = 0.16, 0.08, 0.015  # [m]


def build(horizon: float = 1.5) -> ns.OCP:
    """Return the task: a quarter of a turn, at rest."""
    q, v, u = ca.SX.sym("q", 7), ca.SX.sym("v", 7), ca.SX.sym("u", 4)
    mass, g, finger = 0.3, 9.81, 0.1
    plane = ns.Coordinates(q, v)
    corners = 0.5 * np.array([[-WIDE, -HIGH], [WIDE, -HIGH], [WIDE, HIGH], [-WIDE, HIGH]])
    box = ns.Placed(ns.ConvexPolygon(corners), q[4:6], q[6], coordinates=plane)
    contacts = ns.contacts(box, ns.HalfSpace((0, 1)), name="floor", friction=0.6)
    for name, k in (("left", 0), ("right", 2)):
        tip = ns.Placed(ns.Sphere(TIP), q[k : k + 2], coordinates=plane)
        contacts += ns.contacts(tip, box, name=name, friction=0.8)
    system = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.diag([finger] * 4 + [mass, mass, mass * (WIDE**2 + HIGH**2) / 12]),
        force=ca.vertcat(u[0], u[1] - finger * g, u[2], u[3] - finger * g, 0, -mass * g, 0), contacts=contacts,
        names={"q": ["left_x", "left_y", "right_x", "right_y", "x", "y", "angle"]},
        scene=[
            ns.scene.Ground(0), ns.scene.Rectangle(q[4:6], (WIDE, HIGH), angle=q[6]), ns.scene.Disc(q[:2], TIP),
            ns.scene.Disc(q[2:4], TIP),
        ],
    )  # fmt: skip
    hold = ca.DM([0, finger * g, 0, finger * g])
    above = dict.fromkeys(("left_y", "right_y"), (TIP, 0.4))
    stands = [q[6] == np.pi / 2, q[5] == WIDE / 2, *(v[k] == 0 for k in (4, 5, 6))]
    return ns.OCP(
        system, horizon=horizon, x0=[-0.15, 0.05, 0.15, 0.05, 0, HIGH / 2, 0, *[0] * 7],
        stage_cost=1e-2 * ca.sumsqr(u - hold),
        bounds={**above, **dict.fromkeys(system.control_names, (-10, 10))}, terminal_constraints=stands,
    )  # fmt: skip
