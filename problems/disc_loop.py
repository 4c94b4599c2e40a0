"""Closed loop of a disc that pushes another one around an obstacle: `python -m problems.disc_loop`.

The task of `problems.disc_manipulation` in a closed loop: ten times a second both discs are measured with white noise
of 1 cm and 1 cm/s, and the motion of the next four seconds is planned again from the previous plan. Pushing is
unstable: without feedback the plan ends half a metre off.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import nosnoc_py as ns
from problems.disc_manipulation import START, TARGET, build
from problems.loops.common import Loop, filmed, looped
from problems.runner import program

METHOD = ns.FESDJ(control_stages=40, finite_elements=1, rk_stages=2, scheme="radau_iia")


def loop(
    method: Any = METHOD, samples: int = 60, noise: float = 0.01, seed: int = 0, deadline: float = 1.0
) -> ns.ClosedLoop:
    """Run the closed loop with this number of samples of a tenth of a second."""
    ocp = build()
    # Over 40 periods the steps of a fixed grid would be too long for pushes.
    mpc = ns.MPC(ocp, method, deadline=deadline, preparation=5.0, fixed_grid=False)
    return ns.close_loop(mpc, ocp.system, samples * mpc.period, START, noise=noise, seed=seed)


def task() -> Loop:
    """Return the loop."""
    ocp = build()
    return Loop(name="discs", ocp=ocp, plant=ocp.system, x0=START, period=0.1, method=METHOD)


def assess(log: ns.ClosedLoop) -> tuple[Mapping[str, Any], bool]:
    """Return the distance of both discs from their targets at the end [m]."""
    error = float(np.abs(log.x[-1, :4] - np.array(TARGET[:4])).max())
    return {"end_error": error}, error < 0.05


def film(path: str | Path) -> Path:
    """Write a film of the plant."""
    return filmed(build().system, loop(), path)


PROGRAM = program(__name__, looped(loop, assess), loop, quick={"samples": 2, "deadline": 10.0}, method=METHOD)
