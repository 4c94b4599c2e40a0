"""A box is thrown so that it lies flat on the ground at the end: only the throw is free, a quarter turn."""

from __future__ import annotations

import casadi as ca
import numpy as np

import nosnoc_py as ns

SIDES = (0.3, 0.2)  # [m]
BOX = ns.ConvexPolygon([[-0.15, -0.1], [0.15, -0.1], [0.15, 0.1], [-0.15, 0.1]])


def build(horizon: float = 1.0) -> ns.OCP:
    """Return the task: from 1 m above the ground with the least energy, to a place 1 m away after a quarter turn."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    mass, g = 1.0, 9.81
    inertia = mass * (SIDES[0] ** 2 + SIDES[1] ** 2) / 12
    plane = ns.Coordinates(q, v)
    box = ns.Placed(BOX, q[:2], q[2], coordinates=plane)
    system = ns.CLS(
        q=q, v=v, mass_matrix=ca.diag([mass, mass, inertia]), force=[0, -mass * g, 0],
        contacts=ns.contacts(box, ns.HalfSpace((0, 1)), name="ground", friction=0.5),
        names={"q": ["x", "y", "angle"], "v": ["v_x", "v_y", "spin"]},
    )  # fmt: skip
    held = [ns.Constraint(q, equals=[0, 1, 0], name="hand")]
    lies = [ns.Constraint(q, equals=[1, SIDES[0] / 2, -np.pi / 2], name="lies"), ns.Constraint(v, equals=[0, 0, 0])]
    first = system.x_initial[3:]
    return ns.OCP(
        system, horizon=horizon, initial_constraints=held, terminal_constraints=lies,
        terminal_cost=0.5 * mass * ca.sumsqr(first[:2]) + 0.5 * inertia * first[2] ** 2,
        bounds={"v_x": (-5, 5), "v_y": (-5, 5), "spin": (-15, 15)},
    )  # fmt: skip
