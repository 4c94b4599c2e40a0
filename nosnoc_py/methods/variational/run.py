"""The Lie group variational collision integrator as a method of `nosnoc_py.simulate`."""

from __future__ import annotations

from typing import Any

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.methods.variational.options import LieGroupVariational
from nosnoc_py.simulation.common import Task, equal_steps
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.rigid_body import RigidBody

# A duration that differs so little, relatively, from a whole number of steps consists of these, of exactly length h.
ROUNDING = 1e-9


def run(system: RigidBody, method: LieGroupVariational, task: Task) -> Trajectory:
    """See `nosnoc_py.simulate`."""
    check_arguments(system, method, task.u, task.p, task.solver)
    seconds = task.seconds
    count = equal_steps(method, "h", task.steps, seconds)
    h = method.h if abs(seconds / method.h - count) <= ROUNDING * count else seconds / count
    start = system.check_state(task.x0)
    # numba is imported with the loop, which takes its time
    from nosnoc_py.methods.variational.loop import Loop, kernel_of

    loop = Loop(system, method, h, kernel_of(system, method))
    loop.check_start(start)
    return loop.run(start, count, task.callback, task.deadline())


def check_arguments(system: RigidBody, method: LieGroupVariational, u: Any, p: Any, solver: Any) -> None:
    """Refuse what does not belong to this method, and say what does."""
    if not isinstance(system, RigidBody):
        raise OptionError(
            f"LieGroupVariational simulates one rigid body over planes, expected an ns.RigidBody, given a "
            f"{type(system).__name__}; simulate it with method=ns.FESDJ(...), ns.EventDriven() or ns.TimeStepping()."
        )
    if solver is not None:
        raise OptionError("solver: LieGroupVariational takes none; its options are those of the method.")
    for name, value in (("u", u), ("p", p)):
        if value is not None and np.size(value):
            raise OptionError(f"{name}: a rigid body has neither controls nor parameters; leave it out.")
    if method.algorithm == "5.2":
        return
    for plane in system.planes:
        if plane.restitution != 1.0 or plane.friction != 0.0:
            raise OptionError(
                f"algorithm '5.1' is for restitution 1 without friction; plane {plane.name!r} has "
                f"{plane.restitution:g} and {plane.friction:g}: use algorithm='5.2'."
            )
