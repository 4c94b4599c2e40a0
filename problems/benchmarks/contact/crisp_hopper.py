"""A body on a telescopic leg falls, lands on its foot, and hops to a place."""

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.mpcc.program import MPCC
from problems.benchmarks.contact import crisp
from problems.benchmarks.contact.posed import GRAVITY, Posed, squares, symbols

BODY, FOOT, LENGTH, STROKE, COUNT = 1.0, 0.05, 1.0, 0.8, 200
START, GOAL = (0.0, 1.5, 0.0, 0.5), (2.0, 1.0, 2.0, 0.0)


def build() -> ns.OCP:
    """Return the problem. Body and foot are points; the leg pushes along itself and swings the foot; 4 s."""
    q, v, u = symbols(4, 2)
    leg = q[:2] - q[2:]
    length = ca.norm_2(leg)
    along = leg / length
    force = u[0] * along + u[1] * ca.vertcat(-along[1], along[0])
    contacts = [
        ns.Contact("ground", gap=q[3], tangent=ca.DM([0, 0, 1, 0]), friction=1.0),
        ns.Contact("stretched", gap=LENGTH - length),
        ns.Contact("pressed", gap=length - (LENGTH - STROKE)),
    ]
    weight = ca.DM([0, -BODY * GRAVITY, 0, -FOOT * GRAVITY])
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.diag(ca.DM([BODY, BODY, FOOT, FOOT])),
        force=ca.vertcat(force, -force) + weight,
        contacts=contacts,
        names={
            "q": ["x", "z", "foot_x", "foot_z"],
            "v": ["x_speed", "z_speed", "foot_x_speed", "foot_z_speed"],
            "u": ["thrust", "swing"],
        },
        scene=[
            ns.scene.Trail(q[:2]),
            ns.scene.Line([q[2:], q[:2]], label="leg"),
            ns.scene.Disc(q[:2], 0.12, label="body"),
            ns.scene.Arrow(q[:2], force, label="force on the body"),
            ns.scene.Ground(),
            ns.scene.Mark("ground", q[2:]),
        ],
    )
    ended = squares(system.x - ca.DM([*GOAL, 0, 0, 0, 0]), [100.0] * 6 + [0.0] * 2)
    return ns.OCP(
        system,
        horizon=COUNT * crisp.STEP,
        x0=[*START, 0, 0, 0, 0],
        stage_cost=(1e-5 * u[0] ** 2 + 0.001 * u[1] ** 2) / crisp.STEP,
        terminal_cost=ended,
        bounds={"thrust": (0, 100), "swing": (-5, 5)},
    )


def literal() -> MPCC:
    """Return the discretised problem with 200 steps of 20 ms; the leg has no mass, and swings freely in the air."""
    steps = crisp.Steps(names="x z foot_x foot_z angle press vx vz swing thrust below", count=COUNT)
    for k in range(COUNT):
        at = steps[k]
        steps.pairs += [(at.press, at.foot_z), (at.thrust, at.foot_z)]
        steps.between(at.swing**2 * at.press, -np.inf, 0.0)
        steps.between(at.press, 0.0, STROKE)
        steps.between(at.foot_z + at.press - 0.1 + at.below, 0.0, np.inf)
        steps.between(at.below, 0.0, np.inf)
        steps.between((LENGTH - at.press) * ca.cos(at.angle) - at.z + at.foot_z)
        steps.between((LENGTH - at.press) * ca.sin(at.angle) - at.foot_x + at.x)
        steps.objective += 0.001 * at.swing**2 + 1e-5 * at.thrust**2 + 100 * at.below**2
        if k == COUNT - 1:
            reached = ca.vertcat(at.x, at.z, at.foot_x, at.foot_z, at.angle, at.press, at.vx, at.vz)
            steps.objective += squares(reached - ca.DM([*GOAL, 0, 0, 0, 0]), [100.0] * 8)
            break
        then, dt = steps[k + 1], crisp.STEP
        steps.between(then.x - at.x - then.vx * dt)
        steps.between(then.z - at.z - then.vz * dt)
        steps.between(BODY * (then.vx - at.vx) + at.thrust * ca.sin(at.angle) * dt)
        steps.between(BODY * (then.vz - at.vz) - at.thrust * ca.cos(at.angle) * dt + BODY * GRAVITY * dt)
        steps.between(at.press * (then.foot_x - at.foot_x))
        steps.between(at.press * (then.foot_z - at.foot_z))
        steps.between(at.foot_z * (then.angle - at.angle - at.swing * dt))
    return steps.program([*START, 0.0, 0.0, 0.0, 0.0])


PROBLEM = Posed(
    title="CRISP hopper",
    source=crisp.SOURCE,
    differs="the foot has 50 g and a force swings it, since a massless leg that jumps to any angle is not mechanical",
    build=build,
    literal=literal,
    reported="CRISP starts from a free fall",
)
