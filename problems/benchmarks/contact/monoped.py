"""A body on one telescopic leg with a hip hops forward."""

import casadi as ca

import nosnoc_py as ns
from problems.benchmarks.contact.posed import GRAVITY, Posed, symbols

BODY, INERTIA, FOOT, LENGTH = 10.0, 0.5, 1.0, 0.58


def build(distance: float = 0.5, horizon: float = 1.0) -> ns.OCP:
    """Return the problem: from standing to standing this far ahead [m]; torque of the hip and thrust of the leg."""
    q, v, u = symbols(5, 2)
    lean = q[2] + q[3]
    foot = q[:2] + q[4] * ca.vertcat(ca.sin(lean), -ca.cos(lean))
    moving = ns.kinetic_energy(q, v, masses=[(BODY, q[:2]), (FOOT, foot)]) + 0.5 * INERTIA * v[2] ** 2
    weight = GRAVITY * (BODY * q[1] + FOOT * foot[1])
    leg = ns.lagrangian(q=q, v=v, u=u, forces=ca.vertcat(0, 0, 0, u), kinetic=moving, potential=weight)
    contact = ns.Contact("foot", gap=foot[1], tangent=ca.gradient(foot[0], q), friction=0.7)
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=leg.mass_matrix,
        force=leg.force,
        contacts=[contact],
        names={
            "q": ["x", "z", "pitch", "hip", "length"],
            "v": ["x_speed", "z_speed", "pitch_speed", "hip_speed", "length_speed"],
            "u": ["torque", "thrust"],
        },
        scene=[
            ns.scene.Trail(foot),
            ns.scene.Line([q[:2], foot], label="leg"),
            ns.scene.Rectangle(q[:2], (0.4, 0.15), q[2], label="body"),
            ns.scene.Ground(),
            ns.scene.Mark("foot", foot),
        ],
    )
    return ns.OCP(
        system,
        horizon=horizon,
        x0={"z": LENGTH, "length": LENGTH},
        stage_cost=1e-3 * u[0] ** 2 + 1e-4 * u[1] ** 2,
        terminal_state={"x": distance, "z": LENGTH, "pitch": 0, "hip": 0, "length": LENGTH},
        terminal_constraints=[ns.Constraint(v, equals=0, name="rest")],
        bounds={"torque": (-50, 50), "thrust": (-400, 400), "length": (0.3, 0.8), "hip": (-1, 1), "pitch": (-1, 1)},
    )


PROBLEM = Posed(
    title="monoped",
    source="TOWR (Winkler et al., RA-L 2018), monoped with a leg of 0.58 m",
    differs="in the plane, 10 kg, with mass in the foot instead of a massless leg",
    build=build,
    best=1.6082,
    found="the search, on a faster machine",
)
