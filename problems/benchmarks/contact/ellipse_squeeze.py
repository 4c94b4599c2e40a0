"""Two fingers grip an ellipse and lift it."""

import casadi as ca

import nosnoc_py as ns
from problems.benchmarks.contact.posed import GRAVITY, Posed, ellipse, placed, rotation, squares, symbols

HALF, RADIUS, FINGER, APART, LIFT = (0.1, 0.4), 0.1, 0.2, 0.5, 0.3
REACH = HALF[0] + RADIUS


def build() -> ns.OCP:
    """Return the problem: position and angle of the ellipse (1 kg), positions of two round driven fingers; 2 s."""
    q, v, u = symbols(7, 4)
    centre = q[:2]
    turned = rotation(q[2])
    contacts = []
    scene: list[ns.scene.Shape] = [ns.scene.Polygon(placed(ellipse(HALF), centre, q[2]), label="ellipse")]
    for k in range(2):
        place, speed = q[3 + 2 * k : 5 + 2 * k], v[3 + 2 * k : 5 + 2 * k]
        seen = turned.T @ (place - centre)
        wide, high = HALF[0] + RADIUS, HALF[1] + RADIUS
        normal = turned @ ca.vertcat(2 * seen[0] / wide**2, 2 * seen[1] / high**2)
        normal /= ca.norm_2(normal)
        arm = place - RADIUS * normal - centre
        slip = speed - (v[:2] + v[2] * ca.vertcat(-arm[1], arm[0]))
        contacts.append(
            ns.Contact(
                f"finger_{k}",
                gap=(seen[0] / wide) ** 2 + (seen[1] / high) ** 2 - 1,
                normal=ca.jacobian(ca.dot(normal, slip), v).T,
                tangent=ca.jacobian(ca.dot(ca.vertcat(-normal[1], normal[0]), slip), v).T,
                friction=0.6,
            )
        )
        scene += [
            ns.scene.Disc(place, RADIUS, label="" if k else "fingers", colour="vermilion"),
            ns.scene.Arrow(place, u[2 * k : 2 * k + 2], label="" if k else "force"),
            ns.scene.Mark(f"finger_{k}", place - RADIUS * normal),
        ]
    weight = ca.DM([0, -FINGER * GRAVITY])
    force = ca.vertcat(0, -GRAVITY, 0, u[:2] + weight, u[2:] + weight)
    inertia = (HALF[0] ** 2 + HALF[1] ** 2) / 4
    masses = ca.diag(ca.DM([1, 1, inertia, *[FINGER] * 4]))
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=masses, force=force, contacts=contacts, scene=scene)
    wanted = ca.DM([0, LIFT, 0, REACH, LIFT, -REACH, LIFT, *[0.0] * 7])
    distance = squares(system.x - wanted, [10, 100, 20, *[1.0] * 11])
    begin = REACH + APART
    return ns.OCP(
        system,
        horizon=2.0,
        x0=[0, 0, 0, begin, 0, -begin, 0, *[0.0] * 7],
        stage_cost=distance + ca.sumsqr(u),
        terminal_cost=100 * distance,
        bounds=ns.Bounds(u=(-10, 10)),
    )


PROBLEM = Posed(
    title="ellipse squeeze",
    source="nosnoc_py, development tree, impedance_grasp_test",
    differs="with its friction 0.6 (the stored version passes none) and forces as controls",
    build=build,
)
