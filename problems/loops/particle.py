"""A particle falls on smooth ground and is pushed to a goal: `python -m problems.loops.particle`.

The task of `problems.receding_horizon` with the particle as a system with contacts, at 10 Hz: inelastic impacts, a
force along the ground only. Every eighth sample the vertical velocity jumps by 1 m/s up or down; down, the particle
strikes the ground at once, up, it flies for 0.2 s and lands within the horizon of 1 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nosnoc_py as ns
from problems.loops.common import Kicks, Loop, loop_program
from problems.receding_horizon import GOAL, HORIZON, START, build

METHOD = ns.FESDJ(control_stages=10)
KICKS = Kicks(state="v_y", size=1.0)


def task() -> Loop:
    """Return the loop."""
    ocp = build()
    return Loop(
        name="particle", ocp=ocp, plant=ocp.system, x0=START, period=HORIZON / METHOD.control_stages, method=METHOD,
        kicks=KICKS,
    )  # fmt: skip


def assess(log: ns.ClosedLoop) -> tuple[Mapping[str, Any], bool]:
    """Return the distance from the goal at the end [m], which is less than at the start."""
    distance = abs(float(log["x"][-1]) - GOAL)
    return {"distance": distance}, distance < GOAL


PROGRAM = loop_program(__name__, task, assess, method=METHOD, kick=KICKS.size, quick={"samples": 3})
