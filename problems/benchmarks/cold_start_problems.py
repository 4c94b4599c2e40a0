"""Optimal control problems to be solved without a guess: builders by name, and known optima.

Every builder takes its numbers as keywords, so that problems like it can be drawn (`cold_start_variants`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns

GRAVITY = 9.81
Builder = Callable[..., ns.OCP]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Problem with the data that its variants need.

    Parameters
    ----------
    build : function (**numbers) -> OCP
    best : float
        The least true objective that is known with the numbers of the problem.
    found : str
        Method that found the best objective.
    numbers : mapping
        Values that differ from the defaults of the builder.
    drawn : tuple of str
        Numbers that variants change.
    closed : function (**numbers) -> float, optional
        The least objective over all controls, in closed form.
    mirror : tuple of (n,)
        Signs of positions (of a PSS: of states) and controls in the mirror.
    lengths : (n,)
        Powers of the unit of length in positions (of a PSS: in states).
    efforts : tuple of (n_u,)
        Powers of the units of length and of mass in the controls.
    """

    build: Builder
    best: float
    mirror: tuple[tuple[int, ...], tuple[int, ...]]
    lengths: tuple[int, ...]
    efforts: tuple[tuple[int, ...], tuple[int, ...]]
    found: str = "search, many seeds"
    numbers: Mapping[str, float] = field(default_factory=dict)
    drawn: tuple[str, ...] = ()
    closed: Callable[..., float] | None = None

    def ocp(self, **changes: float) -> ns.OCP:
        """Return the problem, with some of its numbers changed."""
        return self.build(**{**self.numbers, **changes})


def reach(expression: Any, goal: Any, name: str = "goal") -> ns.Constraint:
    """Return the constraint that an expression ends at a goal."""
    return ns.Constraint(expression, goal, goal, name=name)


def symbols(n_q: int, n_u: int) -> tuple[ca.SX, ca.SX, ca.SX]:
    """Return positions, velocities and controls."""
    return ca.SX.sym("q", n_q), ca.SX.sym("v", n_q), ca.SX.sym("u", n_u)


# Contacts ------------------------------------------------------------------------------------------------------------


def landing(height: float = 1.0, goal: float = 3.0, friction: float = 0.6, most: float = 10.0) -> ns.OCP:
    """Return the problem: a particle falls onto rough ground, slides to a place and rests there."""
    q, v, u = symbols(2, 1)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=friction)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -GRAVITY), contacts=[ground])
    return ns.OCP(
        system,
        horizon=2.0,
        x0=[0.0, height, 0.0, 0.0],
        stage_cost=u**2,
        terminal_constraints=[reach(system.x, [goal, 0.0, 0.0, 0.0])],
        bounds=ns.Bounds(u=(-most, most)),
    )


def landing_optimum(height: float = 1.0, goal: float = 3.0, friction: float = 0.6, most: float = 10.0) -> float:
    """Return the least integral of u^2 of `landing`, if the particle slides forward until it stops within T.

    At the impact friction takes as much of the velocity as it would have taken on the way down, so that with
    F = mu g the stop t_s has int u = F t_s and int (t_s - t) u = goal - mu h + F t_s^2 / 2. By the minimum principle
    u = min(most, b (t_s - t)).
    """
    grip = friction * GRAVITY
    share = min(2.0 * (1.0 - grip / most), 1.0)  # fraction of the time to the stop in which the bound is inactive
    top = grip / (1.0 - share / 2.0)  # the largest force
    stop = sqrt((goal - friction * height) / (top * (0.5 - share**2 / 6.0) - grip / 2.0))
    return top**2 * stop * (1.0 - 2.0 * share / 3.0)


def paddle(
    restitution: float = 0.8, ball: float = 0.1, height: float = 2.0, speed: float = 1.0, drop: float = 1.0
) -> ns.OCP:
    """Return the problem: a paddle hits a falling ball so that it has a height and a speed at the end."""
    return _over_paddle(restitution, ball, drop, 50.0, lambda q, v: (ca.vertcat(q[1], v[1]), [height, speed]))


def resting_paddle(
    restitution: float = 0.8, ball: float = 0.3, height: float = 1.5, speed: float = -1.0, drop: float = 1.0
) -> ns.OCP:
    """Return the same problem with a heavier ball, and with a paddle that is at rest at the end."""
    return _over_paddle(restitution, ball, drop, 50.0, lambda q, v: (ca.vertcat(q[1], v), [height, 0.0, speed]))


def soft_catch(ball: float = 0.2, drop: float = 1.2) -> ns.OCP:
    """Return the problem: a hand catches a ball without rebound; both rest at height zero at the end."""
    return _over_paddle(0.0, ball, drop, 60.0, lambda q, v: (ca.vertcat(q, v), np.zeros(4)))


def _over_paddle(restitution: float, ball: float, drop: float, most: float, ends: Callable[..., Any]) -> ns.OCP:
    """Return a ball over a paddle with a thrust of at most `most`; ends(q, v) gives terminal constraints."""
    q, v, u = symbols(2, 1)
    mass = ca.diag(ca.DM([1.0, ball]))
    force = ca.vertcat(u - GRAVITY, -ball * GRAVITY)
    contact = ns.Contact("paddle", gap=q[1] - q[0], restitution=restitution)
    return ns.OCP(
        ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=force, contacts=[contact]),
        horizon=1.0,
        x0=[0.0, drop, 0.0, 0.0],
        stage_cost=0.01 * (u - GRAVITY) ** 2,
        terminal_constraints=[reach(*ends(q, v))],
        bounds=ns.Bounds(u=(-most, most)),
    )


def pendulum_between_walls(
    tip: float = 0.3, length: float = 0.5, wall: float = 0.6, restitution: float = 0.5, swing: float = 3.0
) -> ns.OCP:
    """Return the problem: a cart carries a pendulum between two walls; it ends under the cart, swinging back."""
    q, v, u = symbols(2, 1)
    bob = ca.vertcat(q[0] + length * ca.sin(q[1]), -length * ca.cos(q[1]))
    energy = ns.kinetic_energy(q, v, masses=[(1.0, ca.vertcat(q[0], 0)), (tip, bob)])
    arm = ns.lagrangian(q=q, v=v, u=u, forces=ca.vertcat(u, 0), kinetic=energy, potential=tip * GRAVITY * bob[1])
    walls = [
        ns.Contact("right", gap=wall - bob[0], restitution=restitution),
        ns.Contact("left", gap=wall + bob[0], restitution=restitution),
    ]
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=arm.mass_matrix, force=arm.force, contacts=walls)
    return ns.OCP(
        system,
        horizon=1.0,
        x0=[0.3, 0.0, 0.0, swing],
        stage_cost=u**2,
        terminal_constraints=[reach(system.x, [0.0, 0.0, 0.0, -2.0])],
        bounds=ns.Bounds(u=(-20.0, 20.0)),
    )


def cushion_shot(
    friction: float = 0.2, restitution: float = 0.7, drag: float = 0.2, radius: float = 0.6, speed: float = 1.0
) -> ns.OCP:
    """Return the problem: a puck goes around a pillar and ends in fast motion away from a rough cushion."""
    q, v, u = symbols(2, 2)
    cushion = ns.Contact("cushion", gap=q[1], tangent=ca.DM([1, 0]), friction=friction, restitution=restitution)
    around = ca.sumsqr(q - ca.DM([0.0, 1.0])) - radius**2
    return ns.OCP(
        ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u - drag * v, contacts=[cushion]),
        horizon=1.5,
        x0=[-1.0, 1.0, 0.0, 0.0],
        stage_cost=ca.sumsqr(u),
        terminal_constraints=[reach(q, [1.0, 1.0]), ns.Constraint(v[1], speed, np.inf, name="speed")],
        path_constraints=[ns.Constraint(around, 0.0, np.inf, name="obstacle")],
        bounds=ns.Bounds(u=(-6.0, 6.0), x=([-5.0, -1.0, -20.0, -20.0], [5.0, 1.2, 20.0, 20.0])),
    )


def finger_push(finger: float = 0.2, rough: float = 0.5, friction: float = 0.4, goal: float = 0.6) -> ns.OCP:
    """Return the problem: a finger pushes a block over rough ground to a place, where it rests."""
    q, v, u = symbols(4, 2)
    touching = ns.Contact("finger", gap=q[2] - q[0] - 0.1, tangent=ca.DM([0, 1, 0, -1]), friction=rough)
    ground = ns.Contact("ground", gap=q[3], tangent=ca.DM([0, 0, 1, 0]), friction=friction)
    mass = ca.diag(ca.DM([finger, finger, 1.0, 1.0]))
    force = ca.vertcat(u[0], u[1] - finger * GRAVITY, 0, -GRAVITY)
    space = [2.0, 0.3, 2.0, 2.0, 10.0, 10.0, 10.0, 10.0]
    return ns.OCP(
        ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=force, contacts=[touching, ground]),
        horizon=1.0,
        x0=[-0.2, 0.1, *6 * [0.0]],
        stage_cost=0.1 * ca.sumsqr(u - ca.DM([0.0, finger * GRAVITY])),
        terminal_constraints=[reach(ca.vertcat(q[2:], v[2:]), [goal, 0.0, 0.0, 0.0])],
        bounds=ns.Bounds(u=(-20.0, 20.0), x=([-2.0, 0.0, -2.0, -2.0, *4 * [-10.0]], space)),
    )


def hop_to_apex(foot: float = 0.2, height: float = 0.4, leg: float = 0.6) -> ns.OCP:
    """Return the problem: body and foot on a leg with a force between them; one jump whose apex is at the end."""
    q, v, u = symbols(2, 1)
    mass, force = ca.diag(ca.DM([1.0, foot])), ca.vertcat(u - GRAVITY, -u - foot * GRAVITY)
    return ns.OCP(
        ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=force, contacts=[ns.Contact("foot", gap=q[1])]),
        horizon=1.0,
        x0=[leg, 0.0, 0.0, 0.0],
        stage_cost=0.001 * u**2,
        terminal_constraints=[reach(ca.vertcat(q[1], q[0] - q[1], v), [height, leg, 0.0, 0.0])],
        path_constraints=[ns.Constraint(q[0] - q[1], 0.3, 0.9, name="leg")],
        bounds=ns.Bounds(u=(-60.0, 60.0)),
    )


def pushed_disc(heavy: float = 2.0, size: float = 0.6, drag: float = 1.0, aside: float = 0.7) -> ns.OCP:
    """Return the problem: one disc pushes another one, which resists, near a place."""
    q, v, u = symbols(4, 2)
    touching = ns.Contact("discs", gap=ca.norm_2(q[:2] - q[2:]) - size)
    force = ca.vertcat(u - 0.3 * v[:2], -drag * v[2:])
    mass = ca.diag(ca.DM([1.0, 1.0, heavy, heavy]))
    return ns.OCP(
        ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=force, contacts=[touching]),
        horizon=2.0,
        x0=[-1.5, 0.4, *6 * [0.0]],
        stage_cost=0.05 * ca.sumsqr(u),
        terminal_cost=20.0 * ca.sumsqr(q[2:] - ca.DM([0.8, aside])) + ca.sumsqr(v[2:]),
        bounds=ns.Bounds(u=(-15.0, 15.0)),
    )


def box_set_down(width: float = 0.25, half: float = 0.15, friction: float = 0.5, tilt: float = 0.4) -> ns.OCP:
    """Return the problem: a tilted box falls on its corners, and lies flat elsewhere at the end."""
    q, v, u = symbols(3, 2)
    corners = {
        name: ca.vertcat(
            q[0] + side * ca.cos(q[2]) + half * ca.sin(q[2]), q[1] + side * ca.sin(q[2]) - half * ca.cos(q[2])
        )
        for name, side in (("left", -width), ("right", width))
    }
    contacts = [
        ns.Contact(name, gap=place[1], tangent=ca.jacobian(place[0], q).T, friction=friction)
        for name, place in corners.items()
    ]
    mass, force = ca.diag(ca.DM([1.0, 1.0, 0.03])), ca.vertcat(u[0], -GRAVITY, u[1])
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=force, contacts=contacts)
    return ns.OCP(
        system,
        horizon=1.0,
        x0=[0.0, 0.6, tilt, 0.0, 0.0, 0.0],
        stage_cost=0.1 * u[0] ** 2 + 10.0 * u[1] ** 2,
        terminal_constraints=[reach(system.x, [0.3, half, *4 * [0.0]])],
        bounds=ns.Bounds(u=([-10.0, -1.0], [10.0, 1.0])),
    )


# Switching ------------------------------------------------------------------------------------------------------------


def dry_friction(friction: float = 1.0, goal: float = 1.0, most: float = 3.0) -> ns.OCP:
    """Return the problem: a mass under dry friction goes from rest to rest."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    dry = ns.Modes("dry", flows=[[0.0, friction], [0.0, -friction]], functions=x[1], signs=[[-1], [1]])
    return ns.OCP(
        ns.PSS(x=x, u=u, flow=ca.vertcat(x[1], u), modes=dry),
        horizon=3.0,
        x0=[0.0, 0.0],
        stage_cost=u**2,
        terminal_constraints=[reach(x, [goal, 0.0])],
        bounds=ns.Bounds(u=(-most, most)),
    )


def conveyor(speed: float = 0.5, friction: float = 1.5, spring: float = 10.0, goal: float = -0.5) -> ns.OCP:
    """Return the problem: a spring with a driven end pulls a block on a running belt upstream to a place."""
    x, u = ca.SX.sym("x", 3), ca.SX.sym("u")
    belt = ns.Modes("belt", flows=[[0, friction, 0], [0, -friction, 0]], functions=x[1] - speed, signs=[[-1], [1]])
    flow = ca.vertcat(x[1], spring * (x[2] - x[0]) - 0.2 * x[1], u)
    return ns.OCP(
        ns.PSS(x=x, u=u, flow=flow, modes=belt),
        horizon=3.0,
        x0=[0.0, 0.0, 0.0],
        stage_cost=u**2,
        terminal_constraints=[reach(x[:2], [goal, 0.0])],
        bounds=ns.Bounds(u=(-5.0, 5.0)),
    )


# Tables --------------------------------------------------------------------------------------------------------------

PLANE: dict[str, Any] = {"mirror": ((-1, 1), (-1,)), "lengths": (1, 1), "efforts": ((1,), (1,))}
UPSIDE_DOWN: dict[str, Any] = {"mirror": ((-1, -1), (-1,)), "lengths": (1, 1), "efforts": ((1,), (1,))}
LANDING: dict[str, Any] = {
    **PLANE,
    "build": landing,
    "drawn": ("height", "goal", "friction"),
    "closed": landing_optimum,
}
STRIKE: dict[str, Any] = {**UPSIDE_DOWN, "drawn": ("restitution", "ball", "height", "speed", "drop")}

SUITE: dict[str, Problem] = {
    "part_h0.5": Problem(**LANDING, numbers={"height": 0.5}, best=77.008),
    "part_h1": Problem(**LANDING, best=72.607),
    "part_h1.5": Problem(**LANDING, numbers={"height": 1.5}, best=67.916),
    "part_h2": Problem(**LANDING, numbers={"height": 2.0}, best=62.881),
    "part_end2": Problem(**LANDING, numbers={"goal": 2.0}, best=55.463),
    "paddle_e.5": Problem(**STRIKE, build=paddle, numbers={"restitution": 0.5}, best=0.22311),
    "paddle_rest": Problem(**STRIKE, build=resting_paddle, best=0.28098),
    "cart": Problem(
        build=pendulum_between_walls,
        best=18.505,
        mirror=((-1, -1), (-1,)),
        lengths=(1, 0),
        efforts=((1,), (1,)),
        drawn=("tip", "restitution", "swing"),
    ),
    "puck": Problem(
        build=cushion_shot,
        best=12.237,
        mirror=((-1, 1), (-1, 1)),
        lengths=(1, 1),
        efforts=((1, 1), (1, 1)),
        drawn=("friction", "restitution", "drag", "radius", "speed"),
    ),
    "push": Problem(
        build=finger_push,
        best=1.4334,
        mirror=((-1, 1, -1, 1), (-1, 1)),
        lengths=(1, 1, 1, 1),
        efforts=((1, 1), (1, 1)),
        drawn=("finger", "rough", "friction", "goal"),
    ),
    "catch": Problem(**UPSIDE_DOWN, build=soft_catch, best=0.045418, drawn=("ball", "drop")),
    "hopper_apex": Problem(**UPSIDE_DOWN, build=hop_to_apex, best=0.14866, drawn=("foot", "height")),
    "discs": Problem(
        build=pushed_disc,
        best=2.0049,
        mirror=((-1, 1, -1, 1), (-1, 1)),
        lengths=(1, 1, 1, 1),
        efforts=((1, 1), (1, 1)),
        drawn=("heavy", "size", "drag", "aside"),
    ),
    "box": Problem(
        build=box_set_down,
        best=0.33435,
        mirror=((-1, 1, -1), (-1, -1)),
        lengths=(1, 1, 0),
        efforts=((1, 2), (1, 1)),
        drawn=("friction", "tilt"),
    ),
    "dryfriction": Problem(
        build=dry_friction,
        best=3.2674,
        mirror=((-1, -1), (-1,)),
        lengths=(1, 1),
        efforts=((1,), (0,)),
        drawn=("friction", "goal"),
    ),
    "stickslip": Problem(
        build=conveyor,
        best=0.15071,
        mirror=((-1, -1, -1), (-1,)),
        lengths=(1, 1, 1),
        efforts=((1,), (0,)),
        drawn=("speed", "friction", "spring", "goal"),
    ),
    "paddle_readme": Problem(**STRIKE, build=paddle, best=0.42266),
}
