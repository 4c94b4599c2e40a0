"""A gripper with parallel jaws picks a box that stands beside a wall, lifts it and holds it."""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns

SIDE, TIP, GAP = 0.06, 0.01, 0.03  # of the box, radius of the finger tips, way between box and wall [m]


def build(height: float = 0.1, horizon: float = 1.2) -> ns.OCP:
    """Return the task: the box ends between the jaws, upright and at rest; for the last quarter it is this high [m]."""
    q, v, u = ca.SX.sym("q", 6), ca.SX.sym("v", 6), ca.SX.sym("u", 3)
    palm, width, at, g = q[:2], q[2], q[3:5], 9.81
    plane = ns.Coordinates(q, v)
    half = SIDE / 2
    box = ns.Placed(
        ns.ConvexPolygon([[-half, -half], [half, -half], [half, half], [-half, half]]), at, q[5], coordinates=plane
    )
    contacts = [
        *ns.contacts(box, ns.HalfSpace((0, 1)), name="floor", friction=0.5),
        *ns.contacts(box, ns.HalfSpace((-1, 0), -half - GAP), name="wall", friction=0.5),
    ]
    drawn: list[ns.scene.PlanarShape] = [ns.scene.Ground(0), ns.scene.Rectangle(at, (SIDE, SIDE), angle=q[5])]
    for name, side in (("left", -1), ("right", 1)):
        place = ca.vertcat(palm[0] + side * width, palm[1])
        tip = ns.Placed(ns.Sphere(TIP), place, coordinates=plane)
        contacts += ns.contacts(tip, box, name=name, friction=0.8)
        drawn.append(ns.scene.Disc(place, TIP))
    mass = 0.2
    system = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.diag([0.5, 0.5, 0.1, mass, mass, mass * SIDE**2 / 6]),
        force=ca.vertcat(u[0], u[1] - 0.5 * g, u[2], 0, -mass * g, 0), contacts=contacts, scene=drawn,
        names={"q": ["palm_x", "palm_y", "width", "x", "y", "angle"], "u": ["push", "lift", "grip"]},
    )  # fmt: skip
    # Tips stay off the floor and the wall.
    beside = [palm[1] >= TIP, palm[0] + width <= half + GAP - TIP]
    return ns.OCP(
        system, horizon=horizon, x0={"palm_x": -0.02, "palm_y": 0.15, "width": 0.045, "y": half},
        stage_cost=1e-2 * ca.sumsqr(u - ca.vertcat(0, 0.5 * g, 0)), path_constraints=beside,
        bounds={"width": (TIP, 0.06), **dict.fromkeys(("push", "lift", "grip"), (-20, 20))},
        terminal_constraints=[at[1] == half + height, at[0] == palm[0], q[5] == 0, *(v[k] == 0 for k in (3, 4, 5))],
        point_constraints=[ns.Constraint(at[1], equals=half + height, times=[0.75 * horizon], name="held")],
    )  # fmt: skip
