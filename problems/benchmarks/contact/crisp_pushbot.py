"""A pole on a cart swings up between soft walls that its tip may lean on."""

import casadi as ca

import nosnoc_py as ns
from nosnoc_py.mpcc.program import MPCC
from problems.benchmarks.contact import crisp, walled_cart_pole
from problems.benchmarks.contact.posed import Posed
from problems.benchmarks.contact.walled_cart_pole import CART, GRAVITY, LENGTH, POLE, START, WALL

STIFFNESS, COUNT = 200.0, 100


def build() -> ns.OCP:
    """Return the problem with compliant contacts."""
    return walled_cart_pole.build(STIFFNESS)


def switched() -> ns.OCP:
    """Return the problem with the springs of the walls as switches: no force outside, a linear force in the wall."""
    ocp, arm = build(), walled_cart_pole.arm()
    q, v = arm.q, arm.v
    modes = []
    for name, gap in walled_cart_pole.gaps(q).items():
        push = ca.solve(arm.mass_matrix, -STIFFNESS * gap * ca.gradient(gap, q))
        flows = [ca.SX(4, 1), ca.vertcat(ca.SX(2, 1), push)]
        modes.append(ns.Modes(name, flows=flows, functions=gap, signs=[[1], [-1]]))
    free = ca.vertcat(v, ca.solve(arm.mass_matrix, arm.force))
    system = ns.PSS(x=ca.vertcat(q, v), u=arm.u, flow=free, modes=modes)
    return ns.OCP(system, horizon=ocp.horizon, x0=ocp.x0, **walled_cart_pole.costs(system.x, system.u))


def literal() -> MPCC:
    """Return the discretised problem with 100 steps of 20 ms and the forces of both walls as variables."""
    steps = crisp.Steps(names="x angle v w u right left", count=COUNT)
    for k in range(COUNT):
        at = steps[k]
        if k == COUNT - 1:
            steps.objective += 100 * (at.x**2 + at.angle**2 + at.v**2 + at.w**2)
            break
        then, c, s = steps[k + 1], ca.cos(at.angle), ca.sin(at.angle)
        # The tip has all of the pole's mass: a force on it acts on the cart only along the pole.
        wall = at.left - at.right
        heavy = CART + POLE * s**2
        rate = (at.u + wall * s**2 - GRAVITY * POLE * c * s + LENGTH * POLE * at.w**2 * s) / heavy
        turning = (
            wall * CART * c - POLE * at.u * c + GRAVITY * POLE * (POLE + CART) * s - LENGTH * POLE**2 * at.w**2 * c * s
        ) / (LENGTH * POLE * heavy)
        steps.between(then.x - at.x - then.v * crisp.STEP)
        steps.between(then.angle - at.angle - then.w * crisp.STEP)
        steps.between(then.v - at.v - rate * crisp.STEP)
        steps.between(then.w - at.w - turning * crisp.STEP)
        tip = at.x + LENGTH * s
        steps.pairs += [
            (at.right, WALL - tip + at.right / STIFFNESS),
            (at.left, WALL + tip + at.left / STIFFNESS),
        ]
        steps.objective += 0.001 * at.u**2
    return steps.program(list(START))


PROBLEM = Posed(
    title="CRISP pushbot",
    source=crisp.SOURCE,
    build=build,
    literal=literal,
    switched=switched,
    best=2.5764,
    found="finite elements on 50 stages; the literal program 2.7202 by plain Scholtes",
    stages=50,
)
