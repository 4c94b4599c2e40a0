"""A cart balances a pole between two walls under kicks: `python -m problems.walled_cart_pole`.

Model predictive control at 20 Hz: the tip of the pole meets a rigid wall on either side, and the controller may lean on
them. Every eighth sample the rate of the pole is kicked by 2 rad/s to one side. After a kick the order of contacts may
change: it is searched on a fixed grid within the sample. `python -m problems.walled_cart_pole --json` prints the
sources of the controls.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.systems.scene import Disc, Line
from problems.loops.common import Kicks, Loop, filmed, looped
from problems.runner import program

GRAVITY, LENGTH, WALL = 9.81, 0.5, 0.3
TIP = 0.02  # radius of the tip in films; the walls are drawn where it touches them [m]
KICKS = Kicks(state="v_1", size=2.0)
METHOD = ns.FESDJ(control_stages=10, finite_elements=2, rk_stages=2)
START = (0.0, 0.0, 0.0, 2.2)


def plant() -> ns.CLS:
    """Return the system: a cart of 1 kg, a mass of 0.2 kg at the end of a massless pole, and two walls."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    tip = ca.vertcat(q[0] + LENGTH * ca.sin(q[1]), LENGTH * ca.cos(q[1]))
    energy = ns.kinetic_energy(q, v, masses=[(1.0, ca.vertcat(q[0], 0)), (0.2, tip)])
    mechanics = ns.lagrangian(q=q, v=v, u=u, forces=ca.vertcat(u, 0), kinetic=energy, potential=0.2 * GRAVITY * tip[1])
    walls = [Line([[x, 0.43], [x, 0.6]], joints=False, colour="black") for x in (-WALL - TIP, WALL + TIP)]
    return ns.CLS(
        q=q, v=v, u=u, mass_matrix=mechanics.mass_matrix, force=mechanics.force,
        contacts=[ns.Contact("right", gap=WALL - tip[0]), ns.Contact("left", gap=WALL + tip[0])],
        scene=[Line([[q[0] - 0.1, 0], [q[0] + 0.1, 0]]), Line([[q[0], 0], tip]), Disc(tip, TIP), *walls],
        names={"q": ["cart", "angle"], "u": ["motor"]},
    )  # fmt: skip


def build() -> ns.OCP:
    """Return the problem: upright, in the middle, at rest."""
    s = plant()
    cost = 10 * s.q[0] ** 2 + 20 * s.q[1] ** 2 + ca.sumsqr(s.v)
    return ns.OCP(
        s, horizon=0.5, x0=START, stage_cost=cost + 0.01 * s.u**2, terminal_cost=10 * cost,
        bounds=ns.Bounds(u=(-20, 20)),
    )  # fmt: skip


def loop(method: Any = METHOD, samples: int = 80, seed: int = 0, preparation: float = 5.0) -> ns.ClosedLoop:
    """Run the closed loop with this number of samples and kicks to random sides."""
    mpc = ns.MPC(build(), method, preparation=preparation)
    jumps = KICKS.jumps(mpc.period, samples, seed)
    return ns.close_loop(mpc, plant(), samples * mpc.period, START, disturbances=jumps, seed=seed, deadline=mpc.period)


def task() -> Loop:
    """Return the loop with kicks of 2 rad/s."""
    return Loop(name="walls", ocp=build(), plant=plant(), x0=START, period=0.05, method=METHOD, kicks=KICKS)


def assess(log: ns.ClosedLoop) -> tuple[Mapping[str, Any], bool]:
    """Return the largest angle [rad]; beyond 1.5 the pole has fallen."""
    largest = float(np.abs(log["angle"]).max())
    return {"largest_angle": largest}, largest < 1.5


def film(path: str | Path) -> Path:
    """Write a film of the plant up to the first kick."""
    return filmed(plant(), loop(samples=KICKS.every), path)


PROGRAM = program(__name__, looped(loop, assess), loop, quick={"samples": 8, "preparation": 1.0}, method=METHOD)
