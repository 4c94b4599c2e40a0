"""Small systems with motions and optima in closed form, for the checks of methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.ocp import OCP, Bounds, Constraint
from nosnoc_py.systems.cls import CLS, Contact
from nosnoc_py.systems.pss import ODE, PSS, Modes

GRAVITY = 9.81


@dataclass(frozen=True, eq=False)
class KnownMotion:
    """A motion under a constant control, and a model that has no numbers.

    Attributes
    ----------
    system : CLS or PSS
    x0 : tuple of float
    u : tuple of float
    duration : float
        [s]
    end : (n_x,)
        State at the end, in closed form.
    events : tuple of float
        Times of impacts or switches [s].
    broken : CLS or PSS
        The same with an acceleration that is not a number after 0.2 s.
    """

    system: Any
    x0: tuple[float, ...]
    u: tuple[float, ...]
    duration: float
    end: np.ndarray
    events: tuple[float, ...]
    broken: Any


def bouncing_ball() -> KnownMotion:
    """Return the motion of a ball that falls from 1 m, loses half of its speed, and is pushed up by half its weight."""
    q, v, u, t = (ca.SX.sym(name) for name in ("q", "v", "u", "t"))
    ground = Contact("ground", gap=q, restitution=0.5)
    names = {"q": ["height"], "v": ["speed"], "u": ["thrust"]}
    system = CLS(q=q, v=v, u=u, mass_matrix=1, force=u - GRAVITY, contacts=[ground], names=names)
    broken = CLS(q=q, v=v, u=u, t=t, mass_matrix=1, force=u - ca.sqrt(0.2 - t), contacts=[ground])
    pull, duration = GRAVITY / 2, 1.0
    lands = float(np.sqrt(2 / pull))
    left, speed = duration - lands, 0.5 * pull * lands
    end = np.array([speed * left - pull * left**2 / 2, speed - pull * left])
    return KnownMotion(system, (1.0, 0.0), (pull,), duration, end, (lands,), broken)


def switched_mass() -> KnownMotion:
    """Return the motion of a mass against dry friction of 2 m/s^2 with a push of 1 m/s^2: it stops, and stays."""
    x, u, t = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("t")
    friction = Modes("friction", flows=[[0, 2], [0, -2]], functions=x[1], signs=[[-1], [1]])
    system = PSS(x=x, u=u, flow=ca.vertcat(x[1], u), modes=friction, names={"x": ["place", "speed"], "u": ["push"]})
    broken = PSS(x=x, u=u, t=t, flow=ca.vertcat(x[1], u - ca.sqrt(0.2 - t)), modes=friction)
    # From 0.6 m/s with -1 m/s^2: it rests after 0.6 s and 0.18 m.
    return KnownMotion(system, (0.0, 0.6), (1.0,), 1.0, np.array([0.18, 0.0]), (0.6,), broken)


MOTIONS = {CLS: bouncing_ball, PSS: switched_mass}


def least_effort(kind: type, place: float = 1.0, bound: float = np.inf) -> OCP:
    """Return the problem to bring a mass from rest to rest over a way in 1 s with the least integral of u^2.

    The optimum is 12 place^2: u = place (6 - 12 t). No contact, switch or bound is in the way of it.
    """
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    x = ca.vertcat(q, v)
    if issubclass(kind, CLS):
        system: Any = CLS(
            q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[Contact("wall", gap=q + 9.0, restitution=0.5)]
        )
    elif issubclass(kind, PSS) and not issubclass(kind, ODE):
        far = Modes("far", flows=[[0, 0], [0, 1]], functions=q - 9.0, signs=[[-1], [1]])
        system = PSS(x=x, u=u, flow=ca.vertcat(v, u), modes=far)
    else:
        system = ODE(x=x, u=u, flow=ca.vertcat(v, u))
    home = Constraint(system.x, [place, 0.0], [place, 0.0], name="home")
    bounds = Bounds(u=(-bound, bound))
    return OCP(system, horizon=1.0, x0=[0, 0], stage_cost=system.u**2, terminal_constraints=[home], bounds=bounds)


def bounce_to(place: float = 0.5) -> OCP:
    """Return the problem to let a ball fall, bounce and come to rest at a height, with little thrust."""
    ball = bouncing_ball().system
    up = Constraint(ball.x, [place, 0.0], [place, 0.0], name="up")
    bounds = Bounds(u=(-5.0, 15.0))
    return OCP(ball, horizon=1.0, x0=[1, 0], stage_cost=ball.u**2, terminal_constraints=[up], bounds=bounds)


def fall_to(place: float = 0.3) -> OCP:
    """Return the problem to choose the weight with which a mass without control falls from 1 m to a height in 1 s."""
    q, v, g = (ca.SX.sym(name) for name in "qvg")
    system = CLS(q=q, v=v, p=g, mass_matrix=1, force=-g, contacts=[Contact("ground", gap=q)], names={"p": ["weight"]})
    goal = (system.q - place) ** 2
    return OCP(system, horizon=1.0, x0=[1, 0], p=[9.0], free_parameters={"weight": (0.5, 12)}, terminal_cost=goal)
