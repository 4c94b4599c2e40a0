"""Films of small machines, for the gallery: a car, a coin, dominoes, a walker on four-bar linkages.

Each function returns a system with its motion; `problems.gallery` films all of `MACHINES`.
"""

from __future__ import annotations

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.rotations import rotation_of

GRAVITY = 9.81
Filmed = tuple[ns.CLS, ns.Trajectory]


def car() -> Filmed:
    """Return a car seen from above: two wheels roll without slip, each with a motor of its own."""
    q, v, u = ca.SX.sym("q", 5), ca.SX.sym("v", 5), ca.SX.sym("u", 2)  # x, y, heading, left and right wheel
    radius, half = 0.05, 0.15
    ahead, aside = ca.vertcat(ca.cos(q[2]), ca.sin(q[2])), ca.vertcat(-ca.sin(q[2]), ca.cos(q[2]))
    speed = ca.dot(ahead, v[:2])
    rolls = {
        "edge": ca.dot(aside, v[:2]),
        "left": speed - half * v[2] - radius * v[3],
        "right": speed + half * v[2] - radius * v[4],
    }
    chassis = [q[:2] + a * ahead + b * aside for a, b in ((0.22, 0.1), (0.22, -0.1), (-0.1, -0.1), (-0.1, 0.1))]
    wheels = [
        [
            q[:2] + along * ahead + (side * half + across) * aside
            for along in (-radius, radius)
            for across in (-0.02, 0.02)
        ]
        for side in (1, -1)
    ]
    scene = [
        ns.scene.Trail(q[:2], colour="grey"),
        ns.scene.Polygon(chassis, colour="blue"),
        *(ns.scene.Polygon([p[0], p[1], p[3], p[2]], colour="black") for p in wheels),
    ]
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.diag([2.0, 2.0, 0.03, 1e-3, 1e-3]),
        force=ca.vertcat(0, 0, 0, u - 0.02 * v[3:]),
        couplings=rolls,
        scene=scene,
    )
    # Torques on the left and the right wheel: straight on, a circle to the left, one to the right.
    torques = [[0.25, 0.25]] * 2 + [[0.12, 0.3]] * 5 + [[0.3, 0.12]] * 5
    return system, ns.simulate(system, x0=np.zeros(10), duration=9.0, u=torques)


def coin() -> Filmed:
    """Return a coin that rolls in a spiral on its rim, and falls flat."""
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    mass, radius = 0.1, 0.2
    moves = ns.Coordinates(q, v, quaternions=[q[3:]])
    disc = ns.Placed(ns.ThinDisc(radius), q[:3], q[3:], coordinates=moves)
    inertia, spin = mass * radius**2 * ca.DM([0.25, 0.25, 0.5]), v[3:]
    turned = rotation_of(q[3:])
    around = 2 * np.pi * np.arange(24) / 24
    rim = [q[:3] + radius * turned @ ca.DM([np.cos(angle), np.sin(angle), 0]) for angle in around]
    down = ca.vertcat(0, 0, -1) + turned[2, 2] * turned[:, 2]  # along the disc, to its lowest point
    lowest = q[:3] + radius * down / ca.sqrt(ca.sumsqr(down) + 1e-12)
    oblique = ca.DM(np.array(ns.scene.VIEWS["oblique"]))
    system = ns.CLS(
        q=q,
        v=v,
        quaternions=[q[3:]],
        mass_matrix=ca.diag(ca.vertcat(mass, mass, mass, inertia)),
        force=ca.vertcat(0, 0, -mass * GRAVITY, -ca.cross(spin, inertia * spin) - 1.5e-3 * spin),
        contacts=ns.contacts(disc, ns.HalfSpace(), name="rim", friction=0.6),
        scene=[
            ns.scene.Trail(oblique @ lowest, colour="grey"),
            ns.scene.Solid(rim, view="oblique", colour="orange"),
            ns.scene.Disc(oblique @ (0.6 * rim[0] + 0.4 * q[:3]), 0.02, colour="blue"),
        ],
    )
    lean, pace = 0.35, 1.2
    unit = np.array([np.cos(np.pi / 4 - lean / 2), np.sin(np.pi / 4 - lean / 2), 0, 0])
    x0 = [0, 0, radius * np.cos(lean), *unit, pace, 0, 0, 0, 1.5, -pace / radius]
    return system, ns.simulate(system, x0=x0, duration=3.6)


def dominoes() -> Filmed:
    """Return three dominoes, the first of which is pushed over."""
    count, half, height, gap = 3, 0.03, 0.2, 0.16
    q, v = ca.SX.sym("q", 3 * count), ca.SX.sym("v", 3 * count)
    moves = ns.Coordinates(q, v)
    shape = ns.ConvexPolygon([(-half, -height), (half, -height), (half, height), (-half, height)])
    placed = [ns.Placed(shape, q[k : k + 2], q[k + 2], coordinates=moves) for k in range(0, 3 * count, 3)]
    contacts = []
    for k, one in enumerate(placed):
        contacts += ns.contacts(one, ns.HalfSpace((0, 1)), name=f"ground {k}", friction=0.6)
        if k:
            contacts += ns.contacts(placed[k - 1], one, name=f"pair {k}", friction=0.2)
    inertia = (half**2 + height**2) / 3
    size = [2 * half, 2 * height]
    system = ns.CLS(
        q=q,
        v=v,
        mass_matrix=ca.diag([1.0, 1.0, inertia] * count),
        force=ca.DM([0, -GRAVITY, 0] * count),
        contacts=contacts,
        scene=[ns.scene.Ground(), *(ns.scene.Rectangle(q[k : k + 2], size, angle=q[k + 2]) for k in range(0, 9, 3))],
    )
    places = [value for k in range(count) for value in (k * gap, height, 0.0)]
    pushed = [0.0] * 9
    pushed[2] = -1.6  # about its right lower corner
    pushed[0], pushed[1] = 1.6 * height, 1.6 * half
    return system, ns.simulate(system, x0=[*places, *pushed], duration=2.0)


def walker() -> Filmed:
    """Return a walker whose four legs are four-bar linkages of Chebyshev on one shaft, which a motor turns."""
    size, legs = 0.05, 4
    q, v = ca.SX.sym("q", 4 + legs), ca.SX.sym("v", 4 + legs)  # x, y, tilt, shaft, couplers
    body, along, up = q[:2], _at(q[2]), _at(q[2] + np.pi / 2)
    ends, contacts, loops, kinetic = [], [], {}, 0.5 * ca.sumsqr(v[:2]) + 0.005 * v[2] ** 2 + 5e-4 * v[3] ** 2
    for k in range(legs):
        side, phase = (1.0 if k % 2 else -1.0), np.pi * (k // 2)
        # Mirrored linkages in front and behind; each leg has a partner half a turn later.
        pivot, fixed = body + side * 1.5 * size * along, body + side * 3.5 * size * along
        crank = pivot + size * _at(q[2] + q[3] + phase)
        direction = _at(q[2] + q[4 + k])
        joint, foot = crank + 2.5 * size * direction, crank + 5.0 * size * direction
        loops[f"leg {k}"] = (ca.sumsqr(joint - fixed) - (2.5 * size) ** 2) / size
        ends.append((crank, joint, foot, fixed))
        contacts.append(ns.Contact(f"foot {k}", gap=foot[1], tangent=ca.jacobian(foot[0], q).T, friction=0.9))
        kinetic += 0.025 * ca.sumsqr(ca.jtimes(joint, q, v)) + 5e-6 * v[4 + k] ** 2
    corners = [body + a * size * along + b * size * up for a, b in ((-4.2, -0.5), (4.2, -0.5), (4.2, 1.2), (-4.2, 1.2))]
    scene: list[ns.scene.Shape] = [ns.scene.Ground(), ns.scene.Polygon(corners, colour="blue")]
    for k, (crank, joint, foot, fixed) in enumerate(ends):
        colour = ("vermilion", "green")[k // 2]
        scene += [ns.scene.Line([fixed, joint], colour="grey"), ns.scene.Line([crank, foot], colour=colour)]
    mass = ca.hessian(kinetic, v)[0]
    # The kinetic energy is quadratic in v: forces of inertia of the light legs follow from it (Lagrange).
    momentum = mass @ v
    inertial = ca.jtimes(momentum, q, v) - ca.gradient(kinetic, q)
    weight = ca.gradient(GRAVITY * (body[1] + 0.05 * sum(joint[1] for _, joint, _, _ in ends)), q)
    motor = ca.vertcat(0, 0, 0, 0.2 * (-4.0 - v[3]), ca.SX.zeros(legs))
    system = ns.CLS(
        q=q, v=v, mass_matrix=mass, force=motor - weight - inertial, contacts=contacts, loops=loops, scene=scene
    )
    x0 = system.project(np.array([0, 4.2 * size, 0, 0, -1.2, -1.9, -1.9, -1.2, *np.zeros(8)]))
    return system, ns.simulate(system, x0=x0, duration=4.0)


def _at(angle: ca.SX) -> ca.SX:
    return ca.vertcat(ca.cos(angle), ca.sin(angle))


MACHINES = {made.__name__: made for made in (car, coin, dominoes, walker)}
