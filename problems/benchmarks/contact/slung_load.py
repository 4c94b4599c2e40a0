"""A drone lifts a load on a rope off the ground, carries it and sets it down."""

import casadi as ca
import numpy as np

import nosnoc_py as ns
from problems.benchmarks.contact.posed import GRAVITY, Posed, rotation, squares, symbols

HORIZON, ROPE, ARM = 5.0, 0.95, 0.22
DRONE, INERTIA, LOAD = 1.0, 0.05, 0.35
TIMES = (0.0, 1.25, 3.75, 5.0)
LOW, HIGH = 0.1 + ROPE, 2.55
REFERENCE = np.array(
    [[0, 0, 4, 4], [LOW, HIGH, HIGH, 0.45], [0, 0, 0, 0], [0, 0, 4, 4], [0.1, HIGH - ROPE, HIGH - ROPE, 0.1]]
)


def between(t: ca.SX, values: np.ndarray) -> ca.SX:
    """Return a function that is piecewise linear in time."""
    expression = ca.SX(values[-1])
    for k in reversed(range(len(TIMES) - 1)):
        rate = (values[k + 1] - values[k]) / (TIMES[k + 1] - TIMES[k])
        expression = ca.if_else(t < TIMES[k + 1], values[k] + rate * (t - TIMES[k]), expression)
    return expression


def scene(q: ca.SX, u: ca.SX) -> list[ns.scene.Shape]:
    """The drone as a bar with its two thrusts, the rope and the load."""
    turned, load = rotation(q[2]), q[3:]
    rotors = [q[:2] + turned @ ca.DM([side * ARM, 0]) for side in (-1, 1)]
    return [
        ns.scene.Trail(load),
        ns.scene.Line([q[:2], load], joints=False, label="rope", colour="grey"),
        ns.scene.Rectangle(q[:2], (2 * ARM, 0.08), q[2], label="drone"),
        ns.scene.Disc(load, 0.1, label="load"),
        *(ns.scene.Arrow(place, turned[:, 1] * u[k], label="" if k else "thrust") for k, place in enumerate(rotors)),
        ns.scene.Ground(),
        ns.scene.Mark("ground", [load[0], load[1] - 0.1]),
    ]


def build() -> ns.OCP:
    """Return the problem: a drone with two thrusts, and a load; the rope is a contact that pulls."""
    q, v, u = symbols(5, 2)
    t = ca.SX.sym("t")
    thrust = u[0] + u[1]
    force = ca.vertcat(
        -thrust * ca.sin(q[2]) - 0.1 * v[0],
        thrust * ca.cos(q[2]) - DRONE * GRAVITY - 0.1 * v[1],
        ARM * (u[1] - u[0]) - 0.05 * v[2],
        -0.05 * v[3],
        -LOAD * GRAVITY - 0.05 * v[4],
    )
    apart = ca.sqrt((q[0] - q[3]) ** 2 + (q[1] - q[4]) ** 2 + 1e-12)
    contacts = [ns.Contact("rope", gap=ROPE - apart), ns.Contact("ground", gap=q[4] - 0.1)]
    masses = ca.diag(ca.DM([DRONE, DRONE, INERTIA, LOAD, LOAD]))
    system = ns.CLS(q=q, v=v, u=u, t=t, mass_matrix=masses, force=force, contacts=contacts, scene=scene(q, u))
    planned = ca.vertcat(*[between(t, row) for row in REFERENCE])
    hover = (DRONE + LOAD) * GRAVITY / 4
    moving = squares(v, [0.5, 0.5, 0.1, 0.5, 0.5])
    ended = squares(q - ca.DM(REFERENCE[:, -1]), [80, 80, 10, 150, 200])
    names = system.names["q"]
    return ns.OCP(
        system,
        horizon=HORIZON,
        x0=dict(zip(names, (0, LOW, 0, 0, 0.1), strict=True)),
        stage_cost=squares(q - planned, [20, 20, 2, 35, 40]) + moving + 5e-3 * ca.sumsqr(u - hover),
        terminal_cost=ended + squares(v, [1, 1, 0.2, 1, 1]),
        bounds={**dict.fromkeys(system.names["u"], (-10, 10)), names[2]: (-np.pi, np.pi)},
    )


PROBLEM = Posed(
    title="drone with slung load",
    source="nosnoc (MATLAB), drone_ocp.m (there with implicit Euler on 100 stages)",
    build=build,
    best=15.412,
    found="the search; 16.197 by FESDJ with 25 stages of 2 elements, to 1e-3",
    stages=25,
)
