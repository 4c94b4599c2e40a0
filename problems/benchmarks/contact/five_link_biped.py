"""A biped of five links without ankles takes one step."""

import casadi as ca
import numpy as np

import nosnoc_py as ns
from problems.benchmarks.contact.posed import GRAVITY, Posed, symbols

# Trunk, thigh, shank: masses, inertias, lengths, and distances of the centres of mass from the hip, the hip, the knee.
MASSES, INERTIAS, LENGTHS = (20.0, 6.8, 3.2), (2.22, 1.08, 0.93), (0.625, 0.4, 0.4)
CENTRES = (0.2, 0.163, 0.128)
SIDES = ("left", "right")


def build(step: float = 0.3, horizon: float = 0.8) -> ns.OCP:
    """Return the problem: from one leg ahead to the other one ahead; the hips move this far [m]."""
    q, v, u = symbols(7, 4)  # hips, pitch of the trunk; hip and knee of the left and of the right leg
    hip = q[:2]
    middle = hip + CENTRES[0] * ca.vertcat(-ca.sin(q[2]), ca.cos(q[2]))  # all angles turn the same way
    parts, turning, feet = [(MASSES[0], middle)], INERTIAS[0] * v[2] ** 2, []
    knees = []
    for k in (3, 5):
        thigh, shank = q[2] + q[k], q[2] + q[k] + q[k + 1]
        down = [ca.vertcat(ca.sin(angle), -ca.cos(angle)) for angle in (thigh, shank)]
        knee = hip + LENGTHS[1] * down[0]
        parts += [(MASSES[1], hip + CENTRES[1] * down[0]), (MASSES[2], knee + CENTRES[2] * down[1])]
        turning += INERTIAS[1] * (v[2] + v[k]) ** 2 + INERTIAS[2] * (v[2] + v[k] + v[k + 1]) ** 2
        knees.append(knee)
        feet.append(knee + LENGTHS[2] * down[1])
    mechanics = ns.lagrangian(
        q=q,
        v=v,
        u=u,
        forces=ca.vertcat(0, 0, 0, u),
        kinetic=ns.kinetic_energy(q, v, masses=parts) + 0.5 * turning,
        potential=GRAVITY * sum(mass * place[1] for mass, place in parts),
    )
    top = hip + LENGTHS[0] * ca.vertcat(-ca.sin(q[2]), ca.cos(q[2]))
    scene = [
        *(
            ns.scene.Line([hip, *leg], label=name)
            for name, leg in zip(SIDES, zip(knees, feet, strict=True), strict=True)
        ),
        ns.scene.Line([hip, top], label="trunk"),
        ns.scene.Ground(),
        *(ns.scene.Mark(name, foot) for name, foot in zip(SIDES, feet, strict=True)),
    ]
    contacts = [
        ns.Contact(name, gap=foot[1], tangent=ca.gradient(foot[0], q), friction=0.8)
        for name, foot in zip(SIDES, feet, strict=True)
    ]
    joints = ("hips_x", "hips_z", "pitch", "left_hip", "left_knee", "right_hip", "right_knee")
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=mechanics.mass_matrix,
        force=mechanics.force,
        contacts=contacts,
        names={"q": joints, "v": [f"{name}_speed" for name in joints], "u": [f"{name}_torque" for name in joints[3:]]},
        scene=scene,
    )
    begin, end = stance(-step / 2, step / 2, 0.0), stance(step / 2, -step / 2, step)
    # With both feet on the ground, hips and trunk determine the state of the legs.
    arrived = ca.vertcat(q[:3], v[:3], feet[0][0])
    return ns.OCP(
        system,
        horizon=horizon,
        x0=[*begin, *np.zeros(7)],
        stage_cost=1e-3 * ca.sumsqr(u),
        terminal_constraints=[ns.Constraint(arrived, equals=[*end[:3], 0, 0, 0, 1.5 * step], name="step")],
        bounds=ns.Bounds(
            u=(-150, 150),
            x=([-1, 0.4, -1, -1.5, -2, -1.5, -2, *[-20.0] * 7], [2, 0.9, 1, 1.5, 0, 1.5, 0, *[20.0] * 7]),
        ),
    )


def stance(left: float, right: float, hips: float, height: float = 0.72) -> list[float]:
    """Return coordinates with the hips at x, the feet at these distances from there, and the trunk upright."""
    legs = []
    for ahead in (left, right):
        bend = 2 * np.arccos(np.hypot(ahead, height) / (2 * LENGTHS[1]))
        legs += [np.arctan2(ahead, height) + bend / 2, -bend]
    return [hips, height, 0.0, *map(float, legs)]


PROBLEM = Posed(
    title="five-link biped, one step",
    source="Kelly, An Introduction to Trajectory Optimization (SIAM Review 2017), Section 6: the robot",
    differs="contacts are computed instead of prescribed, from rest to rest instead of a periodic gait",
    build=build,
)
