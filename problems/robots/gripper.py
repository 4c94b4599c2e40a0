"""Two driven fingers lift a disc by .2 m: where they touch it and how they hold it is not said."""

from __future__ import annotations

import casadi as ca
import numpy as np

import nosnoc_py as ns

RADIUS, TIP = 0.05, 0.02  # [m]


def build(height: float = 0.2, horizon: float = 1.0, unit: float = 1.0) -> ns.OCP:
    """Return the task: the disc ends this much higher [m], at rest; lengths of the problem are in `unit` metres."""
    q, v, u = ca.SX.sym("q", 7), ca.SX.sym("v", 7), ca.SX.sym("u", 4)
    mass, radius, g, finger = 0.2, RADIUS / unit, 9.81 / unit, 0.1
    plane = ns.Coordinates(q, v)
    disc = ns.Placed(ns.Sphere(radius), q[4:6], q[6], coordinates=plane)
    tips = [ns.Placed(ns.Sphere(TIP / unit), q[k : k + 2], coordinates=plane) for k in (0, 2)]
    contacts = [
        *ns.contacts(tips[0], disc, name="left", friction=0.8),
        *ns.contacts(tips[1], disc, name="right", friction=0.8),
        *ns.contacts(disc, ns.HalfSpace((0, 1)), name="floor", friction=0.5),
    ]
    drawn = [ns.scene.Ground(0), ns.scene.Disc(q[4:6], radius)]
    system = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.diag([finger] * 4 + [mass, mass, 0.5 * mass * radius**2]),
        force=ca.vertcat(u[0], u[1] - finger * g, u[2], u[3] - finger * g, 0, -mass * g, 0), contacts=contacts,
        scene=[*drawn, *(ns.scene.Disc(q[k : k + 2], TIP / unit) for k in (0, 2))],
        names={"q": ["left_x", "left_y", "right_x", "right_y", "x", "y", "angle"]},
    )  # fmt: skip
    hold = ca.DM([0, finger * g, 0, finger * g])
    above = dict.fromkeys(("left_y", "right_y"), (TIP / unit, np.inf))  # the floor, which fingers do not touch
    return ns.OCP(
        system, horizon=horizon, x0=[-0.1 / unit, radius, 0.1 / unit, radius, 0, radius, 0, *[0] * 7],
        stage_cost=1e-2 * unit**2 * ca.sumsqr(u - hold),
        bounds={**above, **dict.fromkeys(system.control_names, (-10 / unit, 10 / unit))},
        terminal_constraints=[q[5] == radius + height / unit, v[4] == 0, v[5] == 0],
    )  # fmt: skip
