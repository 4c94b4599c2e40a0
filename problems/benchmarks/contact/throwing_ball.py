"""A ball that bounces is pushed to a place where it comes to rest in the air."""

import casadi as ca

import nosnoc_py as ns
from problems.benchmarks.contact.posed import GRAVITY, Posed, symbols


def build() -> ns.OCP:
    """From (0, 0.5) to (4, 0.5) m in 4 s; the force has at most 9 N, less than the weight."""
    q, v, u = symbols(2, 2)
    ground = ns.Contact("ground", gap=q[1], restitution=0.9)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u - ca.DM([0, GRAVITY]), contacts=[ground])
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
