"""A cart with dry friction swings up a pole and holds it: `python -m problems.loops.cart_pole`.

The system is `models.cart_pole_friction`, a Filippov system. Masses of 1 and 0.1 kg, length 1 m, friction 3 N, force
within 20 N, rail of 10 m to either side, weights, horizon 1 s, ten control stages of 0.1 s with two elements of one
stage of Radau IIA, and the start, hanging at rest 1 m beside the goal, are those of
`examples/mpc/mpc_cart_pole/mpc_cart_pole.m` of the MATLAB toolbox nosnoc. There the set point moves after 6 s and the
angle jumps by 1 rad after 10 s. Here the set point stays, and every eighth sample the rate of the pole jumps by 1
rad/s to a random side. There the cost is a sum over the ends of the elements, here the integral.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import cart_pole_friction
from problems.loops.common import Kicks, Loop, loop_program

CONSTANTS = cart_pole_friction.Constants(cart=1.0, pole=0.1, length=1.0, friction=3.0)
METHOD = ns.FESD(control_stages=10, finite_elements=2, rk_stages=1)
START, GOAL = (1.0, 0.0, 0.0, 0.0), (0.0, np.pi, 0.0, 0.0)
KICKS = Kicks(state="rate", size=1.0)


def build() -> ns.OCP:
    """Return the problem: the pole upright over the middle of the rail, at rest."""
    s = cart_pole_friction.build(CONSTANTS)
    error = s.x - ca.DM(GOAL)
    return ns.OCP(
        s, horizon=1.0, x0=START,
        stage_cost=ca.dot(ca.DM([1, 10, 1, 1]), error**2) + 0.1 * s.u**2,
        terminal_cost=ca.dot(ca.DM([1000, 1000, 1, 1]), error**2),
        bounds={"position": (-10, 10), "force": (-20, 20)},
    )  # fmt: skip


def task() -> Loop:
    """Return the loop."""
    ocp = build()
    return Loop(name="cart_pole", ocp=ocp, plant=ocp.system, x0=START, period=0.1, method=METHOD, kicks=KICKS)


def assess(log: ns.ClosedLoop) -> tuple[Mapping[str, Any], bool]:
    """Return the angle from upright at the end [rad], less than a quarter turn after two seconds."""
    off = float(abs(log["angle"][-1] - np.pi))
    return {"end_angle_off": off}, off < 0.5 * np.pi or len(log.u) < 20


PROGRAM = loop_program(__name__, task, assess, method=METHOD, kick=KICKS.size, quick={"samples": 3})
