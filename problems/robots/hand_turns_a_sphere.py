"""A hand of three fingers turns a sphere on a spherical bearing: each finger is a driven ball in space."""

from __future__ import annotations

import casadi as ca
import numpy as np

import nosnoc_py as ns

RADIUS, TIP, MASS = 0.1, 0.02, 0.5  # [m], [m], [kg]
AROUND = tuple((float(np.cos(a)), float(np.sin(a))) for a in (0.0, 2 * np.pi / 3, 4 * np.pi / 3))


def build(turn: float = 0.6, horizon: float = 1.0) -> ns.OCP:
    """Return the task: the sphere ends turned by this angle about the vertical [rad], at rest."""
    q, v, u = ca.SX.sym("q", 13), ca.SX.sym("v", 12), ca.SX.sym("u", 9)
    space = ns.Coordinates(q, v, quaternions=[q[9:13]])
    ball = ns.Placed(ns.Sphere(RADIUS), (0, 0, 0), q[9:13], coordinates=space)
    contacts, apart = [], 0.14
    for k in range(3):
        tip = ns.Placed(ns.Sphere(TIP), q[3 * k : 3 * k + 3], coordinates=space)
        contacts += ns.contacts(tip, ball, name=f"finger {k + 1}", friction=0.8)
    inertia = 0.4 * MASS * RADIUS**2
    fingers = [f"finger_{k}_{axis}" for k in (1, 2, 3) for axis in "xyz"]
    system = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.diag([0.1] * 9 + [inertia] * 3),
        force=ca.vertcat(u, -0.005 * v[9:]), contacts=contacts, quaternions=[q[9:13]],
        names={"q": [*fingers, "w", "x", "y", "z"]},
    )  # fmt: skip
    places = [c for x, y in AROUND for c in (apart * x, apart * y, 0.0)]
    near = {
        name: (place - 0.1, place + 0.1) for name, place in zip(fingers, places, strict=True)
    }  # each finger works on its own side
    goal = [float(np.cos(turn / 2)), 0, 0, float(np.sin(turn / 2))]
    turned = ns.Constraint(ns.attitude_error(q[9:13], goal), equals=[0, 0, 0], name="turned")
    return ns.OCP(
        system, horizon=horizon, x0=[*places, 1, 0, 0, 0, *[0] * 12], stage_cost=ca.sumsqr(u),
        bounds={**near, **dict.fromkeys(system.control_names, (-5, 5))},
        terminal_constraints=[turned, ns.Constraint(v[9:], equals=[0, 0, 0], name="rest")],
    )  # fmt: skip
