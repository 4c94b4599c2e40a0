"""Cases of `one_try`, from a ball to an ant, and what stands beside them: programs and simulations written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import ant, biped, gripper_arm, kneed_hopper, quadruped
from problems import arm_pushes_box, biped_step, quadruped_jump
from problems import kneed_hopper as kneed_jump
from problems.benchmarks.contact import push_t

GRAVITY = 9.81
# As the search compares sequences: a coarse grid, few iterations, one refinement.
COARSE = ns.MultiPhase(intervals=16, max_iterations=150, refinements=1)


@dataclass(frozen=True, kw_only=True)
class Model:
    """Robot for MuJoCo.

    Parameters
    ----------
    urdf : str
    floats : bool
        True if its first body moves freely; MuJoCo knows no planar base.
    armature : float
        Inertia of the rotors at all joints [kg m^2].
    """

    urdf: str
    floats: bool
    armature: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Bounce:
    """System whose phases are linear, for the simulation and the program that are written by hand.

    Parameters
    ----------
    x0, goal : tuple of float
        Initial state, and final values of the states `rows`.
    rows : tuple of int
    flow : function (x, u)
        Rates of the states, as a list.
    gap : function of x
    jump : function of x
        State after the impact.
    cost : function of u
    u : float
        Control of the start.
    most : float
        Largest control.
    """

    x0: tuple[float, ...]
    goal: tuple[float, ...]
    rows: tuple[int, ...]
    flow: Callable[[Any, Any], list[Any]]
    gap: Callable[[Any], Any]
    jump: Callable[[Any], list[Any]]
    cost: Callable[[Any], Any]
    u: float = 0.0
    most: float = np.inf
    horizon: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """One problem, the method of its try and its start.

    Parameters
    ----------
    build : function () -> OCP
    method : MultiPhase or FESDJ
    guess : function (), optional
        Returns the guess.
    hand : Bounce, optional
    model : function () -> Model, optional
    """

    build: Callable[[], ns.OCP]
    method: Any = COARSE
    guess: Callable[[], Any] = lambda: None
    hand: Bounce | None = None
    model: Callable[[], Model] | None = None


def ball() -> ns.OCP:
    """Return the problem: a ball bounces once, and is lifted to a height by a force."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    ground = ns.Contact("ground", gap=q, restitution=0.5)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - GRAVITY, contacts=[ground])
    return ns.OCP(system, horizon=1.0, x0=[1, 0], stage_cost=u**2, terminal_constraints=[ns.Constraint(q, 0.2, 0.2)])


def paddle() -> ns.OCP:
    """Return the problem: a paddle strikes a ball that falls slowly, so that it rises to a height."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    contact = ns.Contact("paddle", gap=q[1] - q[0], restitution=0.8)
    force = ca.vertcat(u - GRAVITY, -0.1 * GRAVITY)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.diag([1.0, 0.1]), force=force, contacts=[contact])
    ends = [ns.Constraint(ca.vertcat(q[1], v[1]), equals=[2.0, 1.0], name="ball")]
    cost = 0.01 * (u - GRAVITY) ** 2
    return ns.OCP(
        system, horizon=1.0, x0=[0, 1, 0, 0], stage_cost=cost, terminal_constraints=ends, bounds=ns.Bounds(u=(-50, 50))
    )


def _struck(x: Any) -> list[Any]:
    """Return the state of paddle (1 kg) and ball (0.1 kg) after an impact with restitution 0.8."""
    impulse = 1.8 * (x[2] - x[3]) / (1.0 + 1.0 / 0.1)
    return [x[0], x[1], x[2] - impulse, x[3] + impulse / 0.1]


def pushed_disc() -> ns.OCP:
    """Return the problem: one disc pushes another one, which resists, near a place."""
    q, v, u = ca.SX.sym("q", 4), ca.SX.sym("v", 4), ca.SX.sym("u", 2)
    touching = ns.Contact("discs", gap=ca.norm_2(q[:2] - q[2:]) - 0.6)
    force = ca.vertcat(u - 0.3 * v[:2], -v[2:])
    mass = ca.diag(ca.DM([1.0, 1.0, 2.0, 2.0]))
    return ns.OCP(
        ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=force, contacts=[touching]),
        horizon=2.0,
        x0=[-1.5, 0.4, *6 * [0.0]],
        stage_cost=0.05 * ca.sumsqr(u),
        terminal_cost=20.0 * ca.sumsqr(q[2:] - ca.DM([0.8, 0.7])) + ca.sumsqr(v[2:]),
        bounds=ns.Bounds(u=(-15.0, 15.0)),
    )


def hop_to_apex() -> ns.OCP:
    """Return the problem: body and foot on a leg with a force between them; one jump whose apex is at the end."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    mass, force = ca.diag(ca.DM([1.0, 0.2])), ca.vertcat(u - GRAVITY, -u - 0.2 * GRAVITY)
    apex = ns.Constraint(ca.vertcat(q[1], q[0] - q[1], v), equals=[0.4, 0.6, 0.0, 0.0], name="goal")
    return ns.OCP(
        ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=force, contacts=[ns.Contact("foot", gap=q[1])]),
        horizon=1.0,
        x0=[0.6, 0.0, 0.0, 0.0],
        stage_cost=0.001 * u**2,
        terminal_constraints=[apex],
        path_constraints=[ns.Constraint(q[0] - q[1], 0.3, 0.9, name="leg")],
        bounds=ns.Bounds(u=(-60.0, 60.0)),
    )


def ant_lands() -> ns.OCP:
    """Return the problem: an ant falls from 5 cm on its feet and remains level, with little torque."""
    system, x0 = ant.build(), ant.start()
    x0[2] += 0.05
    cost = 1e-4 * ca.sumsqr(system.u)
    level = 10.0 * ca.sumsqr(system.q[4:7])  # vector part of a unit quaternion
    rest = 0.1 * ca.sumsqr(system.v)
    bounds = ant.robot().bounds()
    return ns.OCP(system, horizon=0.2, x0=x0, stage_cost=cost, terminal_cost=level + rest, bounds=bounds)


CASES: dict[str, Case] = {
    "ball": Case(
        build=ball,
        guess=lambda: [2.5],  # bounces once
        hand=Bounce(
            x0=(1.0, 0.0),
            goal=(0.2,),
            rows=(0,),
            flow=lambda x, u: [x[1], u - GRAVITY],
            gap=lambda x: x[0],
            jump=lambda x: [x[0], -0.5 * x[1]],
            cost=lambda u: u**2,
            u=2.5,
        ),
    ),
    "paddle": Case(
        build=paddle,
        guess=lambda: [12.0],
        hand=Bounce(
            x0=(0.0, 1.0, 0.0, 0.0),
            goal=(2.0, 1.0),
            rows=(1, 3),
            flow=lambda x, u: [x[2], x[3], u - GRAVITY, -GRAVITY],
            gap=lambda x: x[1] - x[0],
            jump=_struck,
            cost=lambda u: 0.01 * (u - GRAVITY) ** 2,
            u=12.0,
            most=50.0,
        ),
    ),
    "discs": Case(build=pushed_disc, guess=lambda: [3.0, 0.0]),
    "hopper": Case(
        build=hop_to_apex,
        method=COARSE.replace(sequence=ns.Sequence([{"foot": "closed"}, {}], times=[0.7])),
    ),
    "push_t": Case(build=push_t.build, method=ns.FESD(control_stages=16, finite_elements=1)),
    "kneed_leg": Case(
        build=kneed_jump.build, method=kneed_jump.METHOD, model=lambda: Model(urdf=kneed_hopper.file(), floats=True)
    ),
    "biped": Case(
        build=biped_step.build,
        method=biped_step.METHOD,
        guess=biped_step.guess,
        model=lambda: Model(urdf=biped.file(), floats=True),
    ),
    "arm": Case(
        build=arm_pushes_box.build,
        method=arm_pushes_box.METHOD,
        guess=arm_pushes_box.guess,
        model=lambda: Model(urdf=gripper_arm.file(), floats=False),
    ),
    "quadruped": Case(
        build=quadruped_jump.build,
        method=quadruped_jump.METHOD,
        model=lambda: Model(urdf=quadruped.file(), floats=True),
    ),
    "ant": Case(build=ant_lands, method=COARSE, model=lambda: Model(urdf=ant.file(), floats=True, armature=ant.ROTOR)),
}
