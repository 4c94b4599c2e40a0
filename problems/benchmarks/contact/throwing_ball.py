"""A ball that bounces is pushed to a place where it comes to rest in the air."""

import casadi as ca

import nosnoc_py as ns
from problems.benchmarks.contact.posed import GRAVITY, Posed, symbols

DRAWN = 0.1  # radius of the ball in pictures [m]; its coordinates are those of its lowest point


def build() -> ns.OCP:
    """Return the problem: from (0, 0.5) to (4, 0.5) m in 4 s; the force has at most 9 N, less than the weight."""
    q, v, u = symbols(2, 2)
    ground = ns.Contact("ground", gap=q[1], restitution=0.9)
    centre = q + ca.DM([0, DRAWN])
    scene = [
        ns.scene.Disc([4, 0.5 + DRAWN], DRAWN, label="goal", colour="grey"),
        ns.scene.Trail(centre),
        ns.scene.Disc(centre, DRAWN, label="ball"),
        ns.scene.Arrow(centre, u, label="force"),
        ns.scene.Ground(),
        ns.scene.Mark("ground", q),
    ]
    force = u - ca.DM([0, GRAVITY])
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=force, contacts=[ground], scene=scene)
    return ns.OCP(
        system,
        horizon=4.0,
        x0=[0, 0.5, 0, 0],
        stage_cost=ca.sumsqr(u),
        terminal_cost=100 * ca.sumsqr(v),
        path_constraints=[ns.Constraint(ca.sumsqr(u), upper=81.0, at="control_grid", name="most")],
        terminal_constraints=[ns.Constraint(q, equals=[4, 0.5], name="goal")],
    )


PROBLEM = Posed(
    title="throwing ball",
    source="nosnoc (MATLAB), throwing_ball (there by time-freezing)",
    build=build,
    best=6.5033,
    found="the search; 441.47 by FESDJ with 20 stages of 5 elements and n_s = 4 from the same start",
)
