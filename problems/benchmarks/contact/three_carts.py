"""Three carts on rough ground: the middle one, which is driven, sends both others to their places."""

import casadi as ca

import nosnoc_py as ns
from problems.benchmarks.contact.posed import GRAVITY, Posed, squares, symbols

WEIGHTS = [10, 0.001, 1, 0.001, 10, 0.001, *[0.1] * 6]
NAMES = ("left", "middle", "right")


def build() -> ns.OCP:
    """Return the problem: the left cart goes from -3 to -7 m, the right one from 3 to 5 m."""
    q, v, u = symbols(6, 1)
    sides = [ca.DM([0, -1, 0, 1, 0, 0]), ca.DM([0, 0, 0, -1, 0, 1])]
    gaps, restitutions = (q[2] - q[0] - 2, q[4] - q[2] - 2), (0.0, 0.5)
    contacts = [
        ns.Contact(
            name,
            gap=gap,
            normal=ca.gradient(gap, q) / 2**0.5,
            tangent=side / 2**0.5,
            friction=0.1,
            restitution=e,
        )
        for name, gap, side, e in zip(("left", "right"), gaps, sides, restitutions, strict=True)
    ]
    contacts += [
        ns.Contact(f"ground_{k}", gap=q[2 * k + 1] - 1, tangent=ca.DM.eye(6)[:, 2 * k], friction=0.2) for k in range(3)
    ]
    force = ca.vertcat(0, -GRAVITY, u, -GRAVITY, 0, -GRAVITY)
    carts = [q[2 * k : 2 * k + 2] for k in range(3)]
    scene = [
        *(ns.scene.Rectangle(cart, (2, 2), label=name) for cart, name in zip(carts, NAMES, strict=True)),
        ns.scene.Arrow(carts[1], [u, 0], label="push"),
        ns.scene.Ground(),
        *(ns.scene.Mark(name, (carts[1] + cart) / 2) for name, cart in (("left", carts[0]), ("right", carts[2]))),
    ]
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(6), force=force, contacts=contacts, scene=scene)
    distance = squares(system.x - ca.DM([-7, 1, 0, 1, 5, 1, *[0.0] * 6]), WEIGHTS)
    return ns.OCP(
        system,
        horizon=6.0,
        x0=[-3, 1, 0, 1, 3, 1, *[0.0] * 6],
        stage_cost=distance + 0.1 * u**2,
        terminal_cost=100 * distance,
        bounds=ns.Bounds(u=(-30, 30), x=(-10, 10)),
    )


PROBLEM = Posed(
    title="three carts with friction",
    source="nosnoc (MATLAB), examples/cls_tutorial_ocp/three_cart_ocp_2D.m",
    reported="its guess contains the normal forces of the ground",
    build=build,
    stages=15,
)
