"""The Lie group variational collision integrator as a method of `nosnoc_py.simulate`."""

from __future__ import annotations

from nosnoc_py.errors import OptionError
from nosnoc_py.methods.variational.options import LieGroupVariational
from nosnoc_py.simulation.common import SimulationTask, equal_steps
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.rigid_body import RigidBody

# A duration that differs so little, relatively, from a whole number of steps consists of these, of exactly length h.
ROUNDING = 1e-9


def run(system: RigidBody, method: LieGroupVariational, task: SimulationTask) -> Trajectory:
    """See `nosnoc_py.simulate`."""
    check_planes(system, method)
    seconds = task.seconds
    count = equal_steps(method, "h", task.steps, seconds)
    h = method.h if abs(seconds / method.h - count) <= ROUNDING * count else seconds / count
    start = system.check_state(task.x0)
    # numba is imported with the loop, which takes its time
    from nosnoc_py.methods.variational.loop import Loop, kernel_of

    loop = Loop(system, method, h, kernel_of(system, method))
    loop.check_start(start)
    return loop.run(start, count, task.callback, task.deadline())


def check_planes(system: RigidBody, method: LieGroupVariational) -> None:
    """Refuse planes that do not belong to algorithm 5.1."""
    for plane in system.planes if method.algorithm == "5.1" else ():
        if plane.restitution != 1.0 or plane.friction != 0.0:
            raise OptionError(
                f"algorithm '5.1' is for restitution 1 without friction; plane {plane.name!r} has "
                f"{plane.restitution:g} and {plane.friction:g}: use algorithm='5.2'."
            )
