"""Closed loop of a paddle with a ball of higher restitution than in the model: `python -m problems.paddle_loop`.

Model predictive control through impacts: the paddle is measured and planned again 12 times a second, with restitution
0.8 in the plan and another one in the plant (`restitution`), and white noise on all measured states. The ball has to
stay near a height of half a metre above the paddle, which needs a push at every bounce.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.systems.scene import Disc, Line
from problems.loops.common import Loop, filmed, looped
from problems.runner import program

GRAVITY, HEIGHT = 9.81, 0.5
METHOD = ns.FESDJ(control_stages=10, finite_elements=2, rk_stages=2)
START = (0.0, HEIGHT, 0.0, 0.0)


def plant() -> ns.CLS:
    """Return the system: a paddle of 1 kg with a motor, and a ball; restitution and mass of the ball are parameters."""
    q, v, u, p = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u"), ca.SX.sym("p", 2)
    contact = ns.Contact("paddle", gap=q[1] - q[0], restitution=p[0])
    scene = [Line([[-0.15, q[0]], [0.15, q[0]]]), Disc([0, q[1] + 0.03], 0.03)]
    return ns.CLS(
        q=q, v=v, u=u, p=p, p_default=[0.8, 0.1], mass_matrix=ca.diag(ca.vertcat(1.0, p[1])),
        force=ca.vertcat(u - GRAVITY, -p[1] * GRAVITY), contacts=[contact], scene=scene,
        names={"q": ["paddle", "ball"], "u": ["motor"], "p": ["restitution", "mass"]},
    )  # fmt: skip


def build() -> ns.OCP:
    """Return the problem: the paddle near zero, the ball near its height, little force beyond the weight."""
    s = plant()
    cost = 10 * s.q[0] ** 2 + s.v[0] ** 2 + 20 * (s.q[1] - HEIGHT) ** 2
    return ns.OCP(
        s, horizon=0.8, x0=START, stage_cost=cost + 0.01 * (s.u - GRAVITY) ** 2, terminal_cost=cost,
        bounds=ns.Bounds(u=(-50, 50)),
    )  # fmt: skip


def loop(
    method: Any = METHOD,
    samples: int = 50,
    restitution: float = 0.85,
    mass: float = 0.11,
    noise: float = 0.002,
    seed: int = 0,
) -> ns.ClosedLoop:
    """Run the closed loop with this number of samples and a plant with other parameters than the model."""
    mpc = ns.MPC(build(), method, deadline=0.08)
    return ns.close_loop(mpc, plant(), samples * mpc.period, START, p=[restitution, mass], noise=noise, seed=seed)


def task() -> Loop:
    """Return the loop with the restitution and the mass of the model."""
    return Loop(name="paddle", ocp=build(), plant=plant(), x0=START, period=0.08, method=METHOD)


def assess(log: ns.ClosedLoop) -> tuple[Mapping[str, Any], bool]:
    """Return the peak height of the ball in the second half, and whether it is within half and twice the target."""
    late = log.motion_x[log.motion_t > 0.5 * log.t[-1]]
    top = float(late[:, 1].max())
    return {"top": top, "paddle": float(np.abs(late[:, 0]).max())}, 0.5 * HEIGHT < top < 2 * HEIGHT


def film(path: str | Path) -> Path:
    """Write a film of the plant."""
    return filmed(plant(), loop(), path, p=[0.85, 0.11])


PROGRAM = program(__name__, looped(loop, assess), loop, quick={"samples": 8}, method=METHOD)
