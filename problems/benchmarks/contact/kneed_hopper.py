"""A hopper with hip and knee goes from rest to rest."""

import casadi as ca
import numpy as np

import nosnoc_py as ns
from problems.benchmarks.contact.posed import GRAVITY, Posed, symbols

TRUNK, THIGH, SHANK, LENGTH, CROUCH = 3.0, 0.4, 0.2, 0.3, 0.6
HEIGHT = 2 * LENGTH * np.cos(CROUCH)


def build(distance: float = 0.5, horizon: float = 1.0) -> ns.OCP:
    """Return the problem: this far [m] in this time [s]."""
    q, v, u = symbols(4, 2)
    hip = q[:2]
    knee = hip + LENGTH * ca.vertcat(ca.sin(q[2]), -ca.cos(q[2]))
    foot = knee + LENGTH * ca.vertcat(ca.sin(q[2] + q[3]), -ca.cos(q[2] + q[3]))
    masses = [(TRUNK, hip), (THIGH, knee), (SHANK, foot)]
    leg = ns.lagrangian(
        q=q,
        v=v,
        u=u,
        forces=ca.vertcat(0, 0, u),
        kinetic=ns.kinetic_energy(q, v, masses=masses),
        potential=GRAVITY * sum(mass * place[1] for mass, place in masses),
        damping=[0, 0, 0.05, 0.05],
    )
    contact = ns.Contact("foot", gap=foot[1], tangent=ca.gradient(foot[0], q), friction=0.7)
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=leg.mass_matrix,
        force=leg.force,
        contacts=[contact],
        names={
            "q": ["x", "z", "hip", "knee"],
            "v": ["x_speed", "z_speed", "hip_speed", "knee_speed"],
            "u": ["hip_torque", "knee_torque"],
        },
        scene=[
            ns.scene.Trail(foot),
            ns.scene.Line([hip, knee, foot], label="leg"),
            ns.scene.Disc(hip, 0.08, label="trunk"),
            ns.scene.Ground(),
            ns.scene.Mark("foot", foot),
        ],
    )
    start = [0.0, HEIGHT, CROUCH, -2 * CROUCH, 0, 0, 0, 0]
    return ns.OCP(
        system,
        horizon=horizon,
        x0=start,
        stage_cost=0.01 * ca.sumsqr(u),
        terminal_constraints=[ns.Constraint(system.x, equals=[distance, *start[1:]], name="end")],
        path_constraints=[ns.Constraint(knee[1], lower=0.03, name="knee above the ground")],
        bounds=ns.Bounds(u=(-30, 30), x=([-1, 0.2, -1.5, -2.4, *[-30.0] * 4], [3, 1.5, 1.5, -0.1, *[30.0] * 4])),
    )


PROBLEM = Posed(
    title="kneed hopper",
    source="a user of the library: two hops of 25 cm from rest to rest, hip and knee driven",
    build=build,
    best=0.34385,
    found="the search, on a faster machine",
    stages=20,
)
