"""Entry point of the Lie group variational collision integrator for `nosnoc_py.simulate`."""

from __future__ import annotations

from nosnoc_py.errors import OptionError
from nosnoc_py.methods.variational.options import LieGroupVariational
from nosnoc_py.simulation.common import SimulationTask, equal_steps
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.rigid_body import RigidBody

# If the duration is a whole number of steps up to this relative difference, steps have exactly the length h.
ROUNDING_OF_DURATION = 1e-9


def run(system: RigidBody, method: LieGroupVariational, task: SimulationTask) -> Trajectory:
    """Simulate a rigid body; see `nosnoc_py.simulate`."""
    check_planes(system, method)
    seconds = task.seconds
    count = equal_steps(method, "h", task.steps, seconds)
    h = method.h if abs(seconds / method.h - count) <= ROUNDING_OF_DURATION * count else seconds / count
    start = system.check_state(task.x0)
    # Imported here, because numba loads slowly.
    from nosnoc_py.methods.variational.loop import VariationalLoop, kernel_of

    loop = VariationalLoop(system, method, h, kernel_of(system, method))
    loop.check_start(start)
    return loop.run(start, count, task.callback, task.deadline())


def check_planes(system: RigidBody, method: LieGroupVariational) -> None:
    """Raise for restitution or friction that algorithm 5.1 does not support."""
    for plane in system.planes if method.algorithm == "5.1" else ():
        if plane.restitution != 1.0 or plane.friction != 0.0:
            raise OptionError(
                f"algorithm '5.1' is for restitution 1 without friction; plane {plane.name!r} has "
                f"{plane.restitution:g} and {plane.friction:g}: use algorithm='5.2'."
            )
