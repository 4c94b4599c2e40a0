"""A finger of two links turns a disc by friction: `python -m problems.loops.spinner`.

The tip of the finger is a point that touches the rim of a disc on a fixed axle, with friction and without
restitution. Links of 1 m, 0.5 kg and 0.0839 kg m^2, disc of 0.3 m and 0.5 kg at (1.5, 1.0) m with viscous damping 0.1
N m s, friction 0.8, torques within 15 N m, weights, horizon 1.5 s, 15 control stages of 0.1 s with steps of the
implicit Euler method without switch detection (4, 4, 2, 2, then 1 in each control stage), the start and the limit of
the tip, x <= 1.4 m at a quadratic cost, are those of `examples/mpc/mpc_finger_ball` (`spinner_model.m`,
`spinner_mpc.m`, a disc as shape) of the MATLAB toolbox nosnoc.

There the angle of the disc follows a table over time; here it has one set point, the second one of the table, a
quarter turn clockwise. The centre of the lower link is at its middle; in the toolbox a later line assigns the
variable once more. The cost of the limit is an integral over time here, a sum over points there. Every eighth sample
the speed of the disc jumps by 1 rad/s to a random side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.systems.scene import Disc, Line
from problems.loops.common import Kicks, Loop, loop_program

GRAVITY, LINK, MASS, LINK_INERTIA = 9.81, 1.0, 0.5, 0.0839
CENTRE, RADIUS, DISC_MASS, DAMPING, FRICTION = (1.5, 1.0), 0.3, 0.5, 0.1, 0.8
DISC_INERTIA = 0.5 * DISC_MASS * RADIUS**2
START = (0.0, 3 * np.pi / 8, 0.0, 0.0, 0.0, 0.0)
GOAL = (0.0, 3 * np.pi / 8, -np.pi / 2, 0.0, 0.0, 0.0)
METHOD = ns.FESDJ(control_stages=15, finite_elements=(4, 4, 2, 2, *(1,) * 11), rk_stages=1, switch_detection=False)
KICKS = Kicks(state="spin", size=1.0)


def joints(q: Any) -> tuple[ca.SX, ca.SX]:
    """Return the places of elbow and tip [m]; angles are from the vertical, clockwise."""
    elbow = LINK * ca.vertcat(ca.sin(q[0]), ca.cos(q[0]))
    return elbow, elbow + LINK * ca.vertcat(ca.sin(q[0] + q[1]), ca.cos(q[0] + q[1]))


def plant() -> ns.CLS:
    """Return the system: shoulder, elbow and disc, whose angle is counterclockwise; torques at the joints."""
    q, v, u = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("u", 2)
    elbow, tip = joints(q)
    middles = [0.5 * elbow, 0.5 * (elbow + tip)]
    turning = LINK_INERTIA * (v[0] ** 2 + (v[0] + v[1]) ** 2) + DISC_INERTIA * v[2] ** 2
    mechanics = ns.lagrangian(
        q=q, v=v, u=u, forces=ca.vertcat(u, -DAMPING * v[2]),
        kinetic=ns.kinetic_energy(q, v, masses=[(MASS, middle) for middle in middles]) + 0.5 * turning,
        potential=MASS * GRAVITY * (middles[0][1] + middles[1][1]),
    )  # fmt: skip
    offset = tip - ca.DM(CENTRE)
    distance = ca.norm_2(offset)
    around = ca.vertcat(-offset[1], offset[0]) / distance
    # Slip of the tip on the rim, which moves with RADIUS times the speed of the disc.
    tangent = ca.jacobian(tip, q).T @ around - ca.vertcat(0, 0, RADIUS)
    mark = ca.DM(CENTRE) + RADIUS * ca.vertcat(ca.cos(q[2]), ca.sin(q[2]))
    return ns.CLS(
        q=q, v=v, u=u, mass_matrix=mechanics.mass_matrix, force=mechanics.force,
        contacts=[ns.Contact("tip", gap=distance - RADIUS, tangent=tangent, friction=FRICTION)],
        scene=[Disc(list(CENTRE), RADIUS), Line([list(CENTRE), mark]), Line([[0, 0], elbow]), Line([elbow, tip])],
        names={"q": ["shoulder", "elbow", "disc"], "v": ["v_shoulder", "v_elbow", "spin"], "u": ["hip", "knee"]},
    )  # fmt: skip


def build() -> ns.OCP:
    """Return the problem: the disc at the set point, little motion of the finger."""
    s = plant()
    error = s.x - ca.DM(GOAL)
    limit = ns.Constraint(joints(s.q)[1][0], upper=1.4, soft="l2", weight=0.1, name="tip_side")
    return ns.OCP(
        s, horizon=1.5, x0=START,
        stage_cost=ca.dot(ca.DM([0.5, 0.1, 20, 1, 1, 1e-3]), error**2) + 0.01 * ca.sumsqr(s.u),
        terminal_cost=ca.dot(ca.DM([1, 1, 10, 0.1, 0.1, 1]), error**2),
        bounds=ns.Bounds(x=dict.fromkeys(("shoulder", "elbow"), (-10 * np.pi, 10 * np.pi)), u=(-15, 15)),
        path_constraints=[limit],
    )  # fmt: skip


def task() -> Loop:
    """Return the loop."""
    return Loop(name="spinner", ocp=build(), plant=plant(), x0=START, period=0.1, method=METHOD, kicks=KICKS)


def assess(log: ns.ClosedLoop) -> tuple[Mapping[str, Any], bool]:
    """Return the angle of the disc at the end [rad], and whether it has not turned away from the set point."""
    angle = float(log["disc"][-1])
    return {"end_angle": angle}, angle < 0.1


PROGRAM = loop_program(__name__, task, assess, method=METHOD, kick=KICKS.size, quick={"samples": 2})
