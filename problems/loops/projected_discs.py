"""A disc without inertia pushes a larger one to a place: `python -m problems.loops.projected_discs`.

A projected dynamical system of first order: the velocity of the small disc is the control, the large one rests until
it is touched, and the velocities of both are projected so that the discs do not overlap. Radii of 1 and 2 m,
velocities within 3 m/s, start, weights, horizon 4 s and 30 control stages with two elements of one stage of Radau IIA
are those of `examples/mpc/mpc_pds_manipulation/mpc_pds_two_discs.m` of the MATLAB toolbox nosnoc. The large disc has
to move by 4 m to the far side of the line between both, so that the small one has to go around it.

There the goal changes after 40, 70 and 90 samples; here it stays. There are no kicks: a state of first order has no
velocity that could jump.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.systems.scene import Disc
from problems.loops.common import Loop, loop_program

RADII = (1.0, 2.0)
START, GOAL = (-5.0, 5.0, 0.0, 0.0), (-5.0, 5.0, 0.0, 4.0)
METHOD = ns.FESD(control_stages=30, finite_elements=2, rk_stages=1)


def plant() -> ns.PDS:
    """Return the system: places of the driven and of the pushed disc."""
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u", 2)
    return ns.PDS(
        x=x, u=u, flow=ca.vertcat(u, 0, 0), constraints=ca.sumsqr(x[:2] - x[2:]) - sum(RADII) ** 2,
        constraint_names=["discs"], scene=[Disc(x[:2], RADII[0]), Disc(x[2:], RADII[1])],
        names={"x": ["x", "y", "x_pushed", "y_pushed"], "u": ["v_x", "v_y"]},
    )  # fmt: skip


def build() -> ns.OCP:
    """Return the problem: the pushed disc at its goal, the driven one back at its start, weakly."""
    s = plant()
    error = s.x - ca.DM(GOAL)
    return ns.OCP(
        s, horizon=4.0, x0=START, stage_cost=0.1 * ca.sumsqr(error[2:]) + 1e-4 * ca.sumsqr(s.u),
        terminal_cost=1e-5 * ca.sumsqr(error[:2]) + 10 * ca.sumsqr(error[2:]),
        bounds=ns.Bounds(x=(-20, 20), u=(-3, 3)),
    )  # fmt: skip


def task() -> Loop:
    """Return the loop."""
    ocp = build()
    return Loop(
        name="projected_discs", ocp=ocp, plant=ocp.system, x0=START, period=ocp.horizon / METHOD.control_stages,
        method=METHOD,
    )  # fmt: skip


def assess(log: ns.ClosedLoop) -> tuple[Mapping[str, Any], bool]:
    """Return the distance of the pushed disc from its goal at the end [m], which should not grow."""
    distance = float(np.hypot(*(log.x[-1, 2:] - np.array(GOAL[2:]))))
    return {"distance": distance}, distance < 4.0 + 1e-6


PROGRAM = loop_program(__name__, task, assess, method=METHOD, quick={"samples": 2})
