"""One box pushes two others to their places: `python -m problems.three_boxes`.

The optimal control problem of FESD-J, Section 5.3: the middle box, the only one with a force, hits the left box
(inelastic) and the right box (restitution 0.5), so that friction stops them at their targets, and returns to its place.
The problem has many local optima: which boxes are hit, how often, and in which order.

The motion reduces exactly to three coordinates (see `models.three_boxes`), so every control that is found here is
simulated once more, event by event and without discretisation, and both objectives are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console

import nosnoc_py as ns
from models import three_boxes
from nosnoc_py.progress import Progress
from problems.runner import Program, Report, impacts_text, main
from problems.settings import Settings, defaults_of

TARGET = (-7.0, 1.0, 0.0, 1.0, 6.0, 1.0, *[0.0] * 6)
WEIGHTS = (10.0, 1e-3, 1.0, 1e-3, 10.0, 1e-3, *[0.1] * 6)
CONTROL_WEIGHT = 0.1
TERMINAL_FACTOR = 100.0
HORIZONTAL = (0, 2, 4, 6, 8, 10)  # of the states of the full model: those of the reduced one

METHOD = ns.FESDJ(control_stages=15, finite_elements=2, rk_stages=2, scheme="radau_iia", impulse_form="sum")
SOLVERS = {"auto": ns.Auto(), "homotopy": ns.Homotopy(), "active_set": ns.ActiveSet()}
QUICK = {"max_iterations": 300}


def build(horizon: float = 6.0, side_friction: float = three_boxes.PAPER.sides[0]) -> ns.OCP:
    """The task as an optimal control problem (FESD-J, Eq. 38).

    Parameters
    ----------
    horizon : float
        T [s].
    side_friction : float
        Friction between boxes; 0 gives the same motions with fewer variables.

    Returns
    -------
    ns.OCP
        minimise the integral of |x - x_r|_Q^2 + |u|_R^2 plus |x(T) - x_r|_{Q_T}^2, with bounds on positions,
        velocities and the force.
    """
    system = three_boxes.build(three_boxes.Constants(sides=(side_friction, side_friction)))
    error = system.x - ca.DM(TARGET)
    distance = ca.dot(ca.DM(WEIGHTS), error**2)
    return ns.OCP(
        system,
        horizon=horizon,
        x0=three_boxes.START,
        stage_cost=distance + CONTROL_WEIGHT * ca.sumsqr(system.u),
        terminal_cost=TERMINAL_FACTOR * distance,
        bounds=ns.Bounds(x=(-10.0, 10.0), u=(-30.0, 30.0)),
    )


def reduced_objective(motion: three_boxes.ReducedMotion) -> float:
    """The objective of an exact motion, heights at their references; exact up to rounding.

    The integrand is a polynomial of degree 4 on every piece, for which three Gauss nodes are exact.
    """
    weights, target = np.array(WEIGHTS)[list(HORIZONTAL)], np.array(TARGET)[list(HORIZONTAL)]
    nodes, shares = np.polynomial.legendre.leggauss(3)
    lengths = np.diff(motion.t)
    s = 0.5 * lengths[:, None] * (nodes + 1.0)
    x = motion.x[:, None] + motion.v[:, None] * s[..., None] + 0.5 * motion.a[:, None] * s[..., None] ** 2
    v = motion.v[:, None] + motion.a[:, None] * s[..., None]
    distance = (np.concatenate([x, v], axis=-1) - target) ** 2 @ weights
    integral = float(0.5 * lengths @ (distance @ shares) + CONTROL_WEIGHT * lengths @ motion.u**2)
    return integral + TERMINAL_FACTOR * float((motion.end - target) ** 2 @ weights)


def reduced_simulation(u: ArrayLike, horizon: float = 6.0) -> tuple[three_boxes.ReducedMotion, float]:
    """What a control (N,) really does: the exact motion of the boxes, with times, states and impacts; its objective."""
    motion = three_boxes.reduced_motion(u, horizon)
    return motion, reduced_objective(motion)
