"""A hopper on one telescopic leg hops in place: `python -m problems.loops.hopper`.

Two masses in the vertical: a body, and a foot that strikes the floor without restitution. The leg between them is a
spring beside a motor that pushes or pulls. The body has to be 0.75 m high. Standing, it is 0.55 m high at most, when
the motor carries its weight and stretches the spring with all its force. So the cost asks for hops: in flight only
gravity acts on the centre of mass, and the height is paid for with impulses from the floor. The controller works at
50 Hz and sees half a second, about one hop. Every eighth sample the velocity of the body jumps by 0.3 m/s up or down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import casadi as ca

import nosnoc_py as ns
from nosnoc_py.systems.scene import Disc, Ground, Line
from problems.loops.common import Kicks, Loop, loop_program

GRAVITY, BODY, FOOT = 9.81, 2.0, 0.5  # [m/s^2], [kg], [kg]
STIFFNESS, LENGTH, MOST = 400.0, 0.5, 40.0  # of the spring [N/m], its length at rest [m], force of the motor [N]
HEIGHT = 0.75  # of the body, asked for [m]
STANDING = LENGTH - BODY * GRAVITY / STIFFNESS  # height of the body at rest, without the motor [m]
METHOD = ns.FESDJ(control_stages=25, finite_elements=2, rk_stages=2)
START = (STANDING, 0.0, 0.0, 0.0)
KICKS = Kicks(state="v_body", size=0.3)


def plant() -> ns.CLS:
    """Return the system: heights of body and foot, and the force of the motor, positive if it pushes."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    push = u + STIFFNESS * (LENGTH - (q[0] - q[1]))
    return ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.diag(ca.DM([BODY, FOOT])),
        force=ca.vertcat(push - BODY * GRAVITY, -push - FOOT * GRAVITY), contacts=[ns.Contact("floor", gap=q[1])],
        scene=[Ground(), Line([[0, q[1]], [0, q[0]]]), Disc([0, q[0]], 0.08), Disc([0, q[1]], 0.02)],
        names={"q": ["body", "foot"], "v": ["v_body", "v_foot"], "u": ["motor"]},
    )  # fmt: skip


def build() -> ns.OCP:
    """Return the problem: the body near its height, the leg near its length at rest, little force."""
    s = plant()
    stretch = s.q[0] - s.q[1] - LENGTH
    # At the end of the horizon a fast body is worth as much as a high one: otherwise no plan would push off late.
    apex = s.q[0] + s.v[0] ** 2 / (2 * GRAVITY)
    return ns.OCP(
        s, horizon=0.5, x0=START, stage_cost=20 * (s.q[0] - HEIGHT) ** 2 + 30 * stretch**2 + 1e-3 * s.u**2,
        terminal_cost=5 * (apex - HEIGHT) ** 2 + stretch**2, bounds={"motor": (-MOST, MOST)},
    )  # fmt: skip


def task() -> Loop:
    """Return the loop."""
    return Loop(name="hopper", ocp=build(), plant=plant(), x0=START, period=0.02, method=METHOD, kicks=KICKS)


def assess(log: ns.ClosedLoop) -> tuple[Mapping[str, Any], bool]:
    """Return the largest heights of body and foot [m]; the foot has to leave the floor in a loop of a second."""
    body, foot = float(log["body"].max()), float(log["foot"].max())
    return {"body": body, "foot": foot}, foot > 0.02 or len(log.u) < 50


PROGRAM = loop_program(__name__, task, assess, method=METHOD, kick=KICKS.size, quick={"samples": 4})
