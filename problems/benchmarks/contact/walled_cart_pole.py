"""A pole on a cart swings up between rigid walls that its tip may strike."""

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.systems.lagrangian import Lagrangian
from problems.benchmarks.contact.posed import Posed, symbols

CART, POLE, LENGTH, GRAVITY, WALL = 1.0, 0.1, 0.8, 9.8, 1.0
START = (0.0, np.pi, 0.0, 2.8)


def arm() -> Lagrangian:
    """Return the equations of motion of cart and pole without walls."""
    q, v, u = symbols(2, 1)
    tip = ca.vertcat(q[0] + LENGTH * ca.sin(q[1]), LENGTH * ca.cos(q[1]))
    energy = ns.kinetic_energy(q, v, masses=[(CART, ca.vertcat(q[0], 0)), (POLE, tip)])
    return ns.lagrangian(q=q, v=v, u=u, forces=ca.vertcat(u, 0), kinetic=energy, potential=POLE * GRAVITY * tip[1])


def gaps(q: ca.SX) -> dict[str, ca.SX]:
    """Return the distances of the tip from the walls [m]."""
    tip = q[0] + LENGTH * ca.sin(q[1])
    return {"right": WALL - tip, "left": WALL + tip}


def costs(x: ca.SX, u: ca.SX) -> dict[str, ca.SX]:
    """Return the costs of the swing-up."""
    return {"stage_cost": 0.05 * u**2, "terminal_cost": 100 * ca.sumsqr(x)}


def scene(q: ca.SX, u: ca.SX, rigid: bool) -> list[ns.scene.Shape]:
    """Cart, pole and both walls; contacts that yield have no events to mark."""
    cart, tip = ca.vertcat(q[0], 0), ca.vertcat(q[0] + LENGTH * ca.sin(q[1]), LENGTH * ca.cos(q[1]))
    return [
        ns.scene.Trail(tip),
        ns.scene.Rectangle(cart, (0.3, 0.15), label="cart"),
        ns.scene.Line([cart, tip], label="pole"),
        ns.scene.Arrow(cart, [u, 0], label="force"),
        *(ns.scene.Ground(points=[[side * WALL, -side], [side * WALL, side]]) for side in (-1, 1)),
        *(ns.scene.Mark(name, tip) for name in gaps(q) if rigid),
    ]


def build(stiffness: float | None = None) -> ns.OCP:
    """Return the problem; with a stiffness [N/m] the walls are compliant."""
    free = arm()
    q, v, u = free.q, free.v, free.u
    contacts = [ns.Contact(name, gap=gap, stiffness=stiffness) for name, gap in gaps(q).items()]
    seen = scene(q, u, rigid=stiffness is None)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=free.mass_matrix, force=free.force, contacts=contacts, scene=seen)
    return ns.OCP(system, horizon=2.0, x0=START, **costs(ca.vertcat(q, v), u))


PROBLEM = Posed(
    title="cart-pole with hard walls",
    source="CRISP (RSS 2025), pushbot, with walls that are rigid and inelastic",
    build=build,
    best=2.58,
    found="FESDJ with 25 stages of 2 elements; the cheapest motions known use no wall",
    stages=25,
)
