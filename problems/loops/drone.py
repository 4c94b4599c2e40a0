"""A drone lifts a load on a rope from the ground and carries it: `python -m problems.loops.drone`.

The rope transmits tension only and the ground carries the load; both are unilateral contacts without restitution and
friction. Masses of 1 and 0.35 kg, inertia 0.05 kg m^2, rope of 0.95 m, rotors at 0.22 m of the centre with 10 N to
either side, drag, weights, bounds, horizon 0.5 s, ten control stages of 50 ms with one step of the implicit Euler
method without switch detection, and the start, the load on the ground under a taut rope, are those of
`examples/mpc/mpc_drone_load_2d` (`drone_load_model.m`, `drone_mpc.m`) of the MATLAB toolbox nosnoc.

There the reference is a table over time: up to 3.5 m in 0.4 s, 6 m to the side in 3 s, and down. Here it is one set
point, at this height and 1 m to the side. The forces of reference are those of hovering, half of the weight at each
rotor; the toolbox has a quarter, as for four rotors. Every eighth sample the vertical velocity of the load jumps by 1
m/s up or down, so that the rope becomes slack or is pulled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.systems.scene import Ground, Line, Rectangle
from problems.loops.common import Kicks, Loop, loop_program

GRAVITY, DRONE, INERTIA, LOAD, ROPE, ARM, MOST = 9.81, 1.0, 0.05, 0.35, 0.95, 0.22, 10.0
DRAG, TURN_DRAG, LOAD_DRAG = 0.10, 0.05, 0.05  # [N s/m], [N m s], [N s/m]
REST = 0.1  # height of the load's centre on the ground, half of its size [m]
START = (0.0, REST + ROPE, 0.0, 0.0, REST, 0.0, 0.0, 0.0, 0.0, 0.0)
GOAL = (1.0, 3.5, 0.0, 1.0, 3.5 - ROPE, 0.0, 0.0, 0.0, 0.0, 0.0)
HOVER = 0.5 * (DRONE + LOAD) * GRAVITY  # force of each rotor [N]
METHOD = ns.FESDJ(control_stages=10, finite_elements=1, rk_stages=1, switch_detection=False)
KICKS = Kicks(state="v_z_load", size=1.0)


def plant() -> ns.CLS:
    """Return the system: drone (x, z, pitch) and load (x, z), driven by two rotors."""
    q, v, u = ca.SX.sym("q", 5), ca.SX.sym("v", 5), ca.SX.sym("u", 2)
    thrust = (u[0] + u[1]) * ca.vertcat(-ca.sin(q[2]), ca.cos(q[2]))
    force = ca.vertcat(
        thrust[0] - DRAG * v[0],
        thrust[1] - DRONE * GRAVITY - DRAG * v[1],
        ARM * (u[1] - u[0]) - TURN_DRAG * v[2],
        -LOAD_DRAG * v[3],
        -LOAD * GRAVITY - LOAD_DRAG * v[4],
    )
    wings = 0.2 * ca.vertcat(ca.cos(q[2]), ca.sin(q[2]))
    return ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.diag(ca.DM([DRONE, DRONE, INERTIA, LOAD, LOAD])), force=force,
        contacts=[
            ns.Contact("rope", gap=ROPE - ca.norm_2(q[:2] - q[3:])),
            ns.Contact("ground", gap=q[4] - REST),
        ],
        scene=[Ground(), Line([q[:2] - wings, q[:2] + wings]), Line([q[:2], q[3:]]), Rectangle(q[3:], [0.15, REST])],
        names={
            "q": ["x", "z", "pitch", "x_load", "z_load"],
            "v": ["v_x", "v_z", "rate", "v_x_load", "v_z_load"],
            "u": ["left", "right"],
        },
    )  # fmt: skip


def build() -> ns.OCP:
    """Return the problem: drone and load at the set point, at rest."""
    s = plant()
    error = s.x - ca.DM(GOAL)
    running, last = [20, 20, 2, 35, 35, 0.5, 0.5, 0.1, 0.5, 0.5], [400, 400, 50, 1000, 500, 1, 1, 0.2, 1, 1]
    far = np.array([np.inf, np.inf, np.pi, np.inf, np.inf, 40, 40, 100, 40, 40])
    return ns.OCP(
        s, horizon=0.5, x0=START, stage_cost=ca.dot(ca.DM(running), error**2) + 5e-3 * ca.sumsqr(s.u - HOVER),
        terminal_cost=ca.dot(ca.DM(last), error**2), bounds=ns.Bounds(x=(-far, far), u=(-MOST, MOST)),
    )  # fmt: skip


def task() -> Loop:
    """Return the loop."""
    return Loop(name="drone", ocp=build(), plant=plant(), x0=START, period=0.05, method=METHOD, kicks=KICKS)


def assess(log: ns.ClosedLoop) -> tuple[Mapping[str, Any], bool]:
    """Return the largest height of the load [m] and the largest pitch [rad], which stays below a quarter turn."""
    pitch = float(np.abs(log["pitch"]).max())
    return {"load_height": float(log["z_load"].max()), "largest_pitch": pitch}, pitch < 0.5 * np.pi


PROGRAM = loop_program(__name__, task, assess, method=METHOD, kick=KICKS.size, quick={"samples": 4})
