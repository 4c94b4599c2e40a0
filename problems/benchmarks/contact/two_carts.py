"""Two carts on rough ground: the right one, which is driven, sends the left one to its place."""

import casadi as ca

import nosnoc_py as ns
from problems.benchmarks.contact.posed import GRAVITY, Posed, squares, symbols


def build() -> ns.OCP:
    """Return the problem: the driven cart begins and ends at 0, the other one goes from -3 to -6 m."""
    q, v, u = symbols(4, 1)
    contacts = [
        ns.Contact("carts", gap=q[2] - q[0] - 2, normal=ca.DM([-1, 0, 1, 0]) / 2**0.5, restitution=0.5),
        ns.Contact("left", gap=q[1] - 1, tangent=ca.DM([1, 0, 0, 0]), friction=0.3),
        ns.Contact("right", gap=q[3] - 1, tangent=ca.DM([0, 0, 1, 0]), friction=0.3),
    ]
    force = ca.vertcat(0, -GRAVITY, u, -GRAVITY)
    scene = [
        *(ns.scene.Rectangle(q[2 * k : 2 * k + 2], (2, 2), label=name) for k, name in enumerate(("left", "right"))),
        ns.scene.Arrow(q[2:], [u, 0], label="push"),
        ns.scene.Ground(),
        ns.scene.Mark("carts", (q[:2] + q[2:]) / 2),
    ]
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(4), force=force, contacts=contacts, scene=scene)
    distance = squares(system.x - ca.DM([-6, *[0.0] * 7]), [10, 0.1, 1, 0.1, 0.1, 0.1, 0.1, 0.1])
    return ns.OCP(
        system,
        horizon=3.0,
        x0=[-3, 1, 0, 1, 0, 0, 0, 0],
        stage_cost=distance + 0.1 * u**2,
        terminal_cost=200 * distance,
        bounds=ns.Bounds(u=(-30, 30), x=(-10, 10)),
    )


PROBLEM = Posed(
    title="two carts with friction",
    source="nosnoc (MATLAB), examples/cls_tutorial_ocp/two_cart_ocp_2D.m",
    build=build,
    best=113.22,
    found="the search; 114.65 by finite elements from many random starts",
    stages=10,
)
