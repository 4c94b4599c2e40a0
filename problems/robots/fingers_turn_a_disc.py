"""Two fingers turn a disc on a bearing by half a turn: each is a driven ball that pushes or lets go."""

from __future__ import annotations

import casadi as ca
import numpy as np

import nosnoc_py as ns

RADIUS, TIP = 0.1, 0.02  # [m]


def build(turn: float = np.pi, horizon: float = 2.0) -> ns.OCP:
    """Return the task: the disc ends turned and at rest; fingers stay within .2 m of their sides."""
    q, v, u = ca.SX.sym("q", 5), ca.SX.sym("v", 5), ca.SX.sym("u", 4)
    plane = ns.Coordinates(q, v)
    disc = ns.Placed(ns.Sphere(RADIUS), [0, 0], q[4], coordinates=plane)
    contacts = []
    for name, k in (("left", 0), ("right", 2)):
        contacts += ns.contacts(
            ns.Placed(ns.Sphere(TIP), q[k : k + 2], coordinates=plane), disc, name=name, friction=0.8
        )
    inertia = 0.5 * 1.0 * RADIUS**2
    system = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.diag([0.1] * 4 + [inertia]), force=ca.vertcat(u, -0.002 * v[4]),
        contacts=contacts, names={"q": ["left_x", "left_y", "right_x", "right_y", "angle"]},
        scene=[ns.scene.Disc([0, 0], RADIUS), ns.scene.Disc(q[:2], TIP), ns.scene.Disc(q[2:4], TIP)],
    )  # fmt: skip
    sides = {"left_x": (-0.3, -0.02), "right_x": (0.02, 0.3), "left_y": (-0.1, 0.1), "right_y": (-0.1, 0.1)}
    return ns.OCP(
        system, horizon=horizon, x0={"left_x": -0.15, "right_x": 0.15}, stage_cost=ca.sumsqr(u),
        bounds={**sides, **dict.fromkeys(system.control_names, (-5, 5))},
        terminal_constraints=[q[4] == turn, v[4] == 0],
    )  # fmt: skip
