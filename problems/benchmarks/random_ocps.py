"""Optimal control problems of at most four states that are drawn by a seed, of five families.

The families are what people try first: launches, carts, a paddle, pucks, and switched systems. Numbers, directions,
contacts and costs are drawn, so that no rule of a search can be fitted to them. A reference motion with a drawn
control, simulated exactly, gives the goal: every problem has a solution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns

GRAVITY = 9.81
Random = np.random.Generator
# Number of equal intervals of the control of a reference motion.
PIECES = 4


def problem(family: str, seed: int) -> ns.OCP:
    """Return a problem of a family.

    Parameters
    ----------
    family : str
        One of `FAMILIES`.
    seed : int

    Examples
    --------
    >>> problem("puck", 3).system.n_x
    4
    """
    return FAMILIES[family](np.random.default_rng([list(FAMILIES).index(family), seed]))


def _reached(system: Any, rng: Random, x0: Any, T: float, most: float, rows: list[int]) -> list[ns.Constraint]:
    """Return the constraints that some states end where those of a reference motion end."""
    u = most * rng.uniform(-0.8, 0.8, (PIECES, system.n_u))
    motion = ns.simulate(system, x0=x0, duration=T, u=u)
    names = [system.state_names[row] for row in rows]
    return [ns.Constraint(system.x[k], g, g, name=n) for k, g, n in zip(rows, motion.x[-1][rows], names, strict=True)]


def _ocp(system: Any, rng: Random, x0: Any, T: float, most: float, rows: list[int], **fields: Any) -> ns.OCP:
    """Return the problem: least energy, or least energy and effort, to where a reference motion ends."""
    cost = ca.sumsqr(system.u) + (0.2 * most * ca.fabs(system.u[0]) if rng.random() < 0.2 else 0.0)
    bounds = ns.Bounds(u=([-most] * system.n_u, [most] * system.n_u))
    ends = _reached(system, rng, x0, T, most, rows)
    return ns.OCP(system, horizon=T, x0=x0, stage_cost=cost, terminal_constraints=ends, bounds=bounds, **fields)


def launch(rng: Random) -> ns.OCP:
    """Throw a ball over, against or under things so that it is at a place after a given or a free time."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    e, drag = rng.uniform(0.3, 0.9), rng.choice([0.0, 0.1])
    contacts = [ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=rng.choice([0.0, 0.4]), restitution=e)]
    wall = rng.uniform(2.0, 4.0)
    if rng.random() < 0.6:
        contacts.append(ns.Contact("wall", gap=wall - q[0], restitution=e))
    force = ca.vertcat(-drag * v[0], -GRAVITY - drag * v[1])
    ball = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=force, contacts=contacts)
    height, T = rng.uniform(0.5, 2.0), rng.uniform(0.8, 1.6)
    x0 = [0.0, height, rng.uniform(1.0, 5.0), rng.uniform(-2.0, 4.0)]
    end = ns.simulate(ball, x0=x0, duration=T).x[-1]
    return ns.OCP(
        ball,
        horizon=T if rng.random() < 0.5 else ns.FreeTime(0.5 * T, 2.0 * T, T),
        initial_constraints=[ns.Constraint(q, [0.0, height], [0.0, height])],
        terminal_constraints=[ns.Constraint(q, end[:2], end[:2], name="place")],
        terminal_cost=ca.sumsqr(ball.x_initial[2:]),
        bounds=ns.Bounds(x=([-10, -1, -10, -10], [10, 10, 10, 10])),
    )


def cart(rng: Random) -> ns.OCP:
    """Move a cart between buffers, or a second one without drive by pushing or hitting it."""
    e, most, T = rng.uniform(0.0, 0.9), rng.uniform(3.0, 8.0), rng.uniform(1.5, 3.0)
    two = rng.random() < 0.7
    n = 1 + two
    q, v, u = ca.SX.sym("q", n), ca.SX.sym("v", n), ca.SX.sym("u")
    contacts = [ns.Contact("buffer", gap=rng.uniform(1.5, 3.0) - q[n - 1], restitution=e)]
    if two:
        contacts.append(ns.Contact("carts", gap=q[1] - q[0], restitution=rng.uniform(0.0, 0.9)))
    damping = rng.choice([0.0, 0.3])
    force = ca.vertcat(u - damping * v[0], *([-damping * v[1]] if two else []))
    mass = np.diag(rng.uniform(0.5, 2.0, n))
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=force, contacts=contacts)
    x0 = [*np.cumsum(rng.uniform(0.0, 1.0, n)) - 1.0, *[0.0] * n]
    return _ocp(system, rng, x0, T, most, [n - 1, 2 * n - 1] if two else [0, 1])


def paddle(rng: Random) -> ns.OCP:
    """Bring a ball to a height, and its paddle to a place, by hitting it from below."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    mass = rng.uniform(0.5, 3.0)
    hit = ns.Contact("paddle", gap=q[0] - q[1], restitution=rng.uniform(0.3, 0.9))
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=np.diag([1.0, mass]), force=ca.vertcat(-GRAVITY, u), contacts=[hit])
    x0, T = [rng.uniform(0.5, 1.5), 0.0, 0.0, 0.0], rng.uniform(0.8, 1.6)
    return _ocp(system, rng, x0, T, mass * rng.uniform(10.0, 30.0), [0, 1] if rng.random() < 0.5 else [0, 1, 2])


def puck(rng: Random) -> ns.OCP:
    """Drive a puck in a plane with cushions to a place, sometimes past a post that it may hit."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    e, grip = rng.uniform(0.2, 0.95), rng.choice([0.0, 0.3])
    cushions = [
        ns.Contact("right", gap=1.0 - q[0], tangent=ca.DM([0, 1]), friction=grip, restitution=e),
        ns.Contact("bottom", gap=q[1] + 1.0, tangent=ca.DM([1, 0]), friction=grip, restitution=e),
    ]
    if rng.random() < 0.5:
        centre = rng.uniform(-0.3, 0.3, 2)
        cushions.append(ns.Contact("post", gap=ca.norm_2(q - ca.DM(centre)) - 0.25, restitution=e))
    drag = rng.choice([0.0, 0.5])
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u - drag * v, contacts=cushions)
    x0 = [-0.9, rng.uniform(-0.9, 0.9), *rng.uniform(-1.0, 2.0, 2)]
    return _ocp(
        system, rng, x0, rng.uniform(1.0, 2.0), rng.uniform(1.0, 4.0), [0, 1] if rng.random() < 0.5 else [0, 1, 2, 3]
    )


def switched(rng: Random) -> ns.OCP:
    """Drive a mass with dry friction, in regions of other stiffness, or a leaking tank."""
    kind = rng.choice(["friction", "stiffness", "regions"])
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    most, T = rng.uniform(2.0, 5.0), rng.uniform(1.5, 3.0)
    if kind == "friction":
        grip = rng.uniform(0.3, 1.0)
        modes, flow = ns.Modes("dry", flows=[[0, -grip], [0, grip]], functions=x[1], signs=[[1], [-1]]), [x[1], u]
        x0 = [0.0, rng.uniform(-1.0, 1.0)]
    elif kind == "stiffness":
        k = rng.uniform(0.5, 8.0, 2)
        flows = [ca.vertcat(0, -k[0] * x[0]), ca.vertcat(0, -k[1] * x[0])]
        modes, flow = ns.Modes("spring", flows=flows, functions=x[0], signs=[[1], [-1]]), [x[1], u]
        x0 = [rng.uniform(-1.0, 1.0), 0.0]
    else:
        A, B = rng.normal(size=(2, 2, 2))
        line = ca.DM(rng.normal(size=(1, 2))) @ x - 0.3
        modes = ns.Modes("region", flows=[ca.DM(A) @ x, ca.DM(B) @ x], functions=line, signs=[[1], [-1]])
        flow, x0 = [0.0, u], rng.uniform(-1.0, 1.0, 2).tolist()
    system = ns.PSS(x=x, u=u, flow=ca.vertcat(*flow), modes=modes)
    return _ocp(system, rng, x0, T, most, [0] if rng.random() < 0.3 else [0, 1])


FAMILIES: dict[str, Callable[[Random], ns.OCP]] = {
    "launch": launch,
    "cart": cart,
    "paddle": paddle,
    "puck": puck,
    "switched": switched,
}
