"""A cart carries a cargo that is held by friction only; both are to stop at a place."""

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.mpcc.program import MPCC
from problems.benchmarks.contact import crisp
from problems.benchmarks.contact.posed import GRAVITY, Posed, squares

CARGO, CART, FRICTION, HALF, COUNT = 1.0, 2.0, 0.2, 1.0, 200
START, GOAL = (3.5, 3.0, -4.0, -4.0), (-0.5, 0.0, -2.0, -2.0)
WEIGHTS = [1e5, 1e5, 10.0, 10.0]


def build() -> ns.OCP:
    """Return the problem: positions and speeds of cargo and cart with friction; the cargo stays on the cart."""
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u")
    grip = FRICTION * CARGO * GRAVITY
    backward = ca.vertcat(0, 0, -grip / CARGO, grip / CART)
    slip = ns.Modes("slip", flows=[backward, -backward], functions=x[2] - x[3], signs=[[1], [-1]])
    names = {"x": ["cargo", "cart", "cargo_speed", "cart_speed"], "u": ["push"]}
    system = ns.PSS(x=x, u=u, flow=ca.vertcat(x[2], x[3], 0, u / CART), modes=[slip], names=names, scene=scene(x, u))
    return ns.OCP(
        system,
        horizon=COUNT * crisp.STEP,
        x0=START,
        stage_cost=1e-4 / crisp.STEP * u**2,
        terminal_cost=squares(x - ca.DM(GOAL), WEIGHTS),
        path_constraints=[ns.Constraint(x[0] - x[1], lower=-HALF, upper=HALF, name="on the cart")],
    )


def scene(x: ca.SX, u: ca.SX) -> list[ns.scene.Shape]:
    """The cargo as a box on the cart, and the place where the cart has to be at the end."""
    wheels = [ns.scene.Disc([x[1] + side * 0.7, 0.1], 0.1, colour="black") for side in (-1, 1)]
    return [
        ns.scene.Line([[GOAL[1], 0], [GOAL[1], 1.2]], joints=False, label="goal of the cart", colour="grey"),
        ns.scene.Rectangle([x[1], 0.3], (2 * HALF + 0.3, 0.2), label="cart"),
        *wheels,
        ns.scene.Rectangle([x[0], 0.55], (0.3, 0.3), label="cargo"),
        ns.scene.Arrow([x[1], 0.3], [u, 0], label="push"),
        ns.scene.Ground(),
    ]


def literal() -> MPCC:
    """Return the discretised problem with 200 steps of 20 ms; the force of friction has a cost, too."""
    steps = crisp.Steps(names="cargo cart cargo_v cart_v forward backward friction u", count=COUNT)
    grip = FRICTION * CARGO * GRAVITY
    for k in range(COUNT):
        at = steps[k]
        steps.pairs += [
            (at.forward, at.backward),
            (at.backward, grip - at.friction),
            (at.forward, at.friction + grip),
        ]
        steps.between(at.cargo - at.cart, -HALF, HALF)
        if k == COUNT - 1:
            reached = ca.vertcat(at.cargo, at.cart, at.cargo_v, at.cart_v)
            steps.objective += squares(reached - ca.DM(GOAL), WEIGHTS)
            break
        then = steps[k + 1]
        steps.between(then.cargo - at.cargo - then.cargo_v * crisp.STEP)
        steps.between(then.cart - at.cart - then.cart_v * crisp.STEP)
        steps.between(then.cargo_v - at.cargo_v - at.friction / CARGO * crisp.STEP)
        steps.between(then.cart_v - at.cart_v - (at.u - at.friction) / CART * crisp.STEP)
        steps.between(at.cargo_v - at.cart_v - at.forward + at.backward)
        steps.objective += 1e-4 * (at.friction**2 + at.u**2)
    return steps.program([*START, *np.zeros(2)])


PROBLEM = Posed(
    title="CRISP transport",
    source=crisp.SOURCE,
    differs="without the cost of the friction force, which no control changes while the cargo slips",
    build=build,
    literal=literal,
    best=2.9047,
    found="the search; the literal program 2.95835 by plain Scholtes",
)
