"""Simulation of systems with very many contacts, where the default, which follows every event, would take too long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nosnoc_py.motion.record import message_of
from nosnoc_py.simulation.common import SimulationTask
from nosnoc_py.simulation.time_stepping.options import TimeStepping
from nosnoc_py.solution import Trajectory
from nosnoc_py.status import Status, seconds_to
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.scales import problem_scales

# More contacts than this are many. With many contacts EventDriven is the default up to that many contacts times the
# square of the velocities: every body adds events, and work to each of them. Nine dominoes in the plane, and three
# boxes in space, are below it.
MANY, MOST_WORK = 100, 80_000
# Steps in the time in which the forces at the start make the typical speed, or in a shorter duration.
STEPS, MOST_STEPS = 1000, 20_000
# Ends of a motion by events that steps in time may pass.
TOO_HARD = (Status.GRAZING, Status.ZENO, Status.NO_ADMISSIBLE_IMPACT, Status.STEP_FAILED, Status.NUMERICAL_ERROR)
# A difference of positions, relative to the largest way, beyond which a motion is not accurate.
ROUGH = 0.05


def is_large(system: CLS) -> bool:
    """Return True if a system has very many contacts and bodies."""
    return len(system.contacts) > MANY and len(system.contacts) * system.n_v**2 > MOST_WORK


def after_failure(system: CLS, task: SimulationTask, failed: Trajectory, deadline: float) -> Trajectory:
    """Return the motion by time-stepping where the one by events ended at one of many contacts, too hard to resolve."""
    if len(system.contacts) <= MANY or failed.status not in TOO_HARD:
        return failed
    found = simulate(system, replace(task, callback=None, time_limit=seconds_to(deadline)))
    if not found.success:
        return failed
    why = f"ns.EventDriven() ends at {failed.t[-1]:.6g} s: {failed.status}"
    return replace(found, message=message_of([why, found.message], None))


def simulate(system: CLS, task: SimulationTask) -> Trajectory:
    """Simulate by time-stepping; the message tells the step, and the difference from steps twice as long."""
    task.check(TimeStepping.refuses)
    deadline = task.deadline()
    if task.steps is None:
        x0, p, control = task.start(system)
        scales = problem_scales(system, x0=x0, control=control, p=p, duration=task.seconds)
        typical = scales.length / scales.speed if scales.speed else task.seconds
        task = replace(task, steps=min(int(np.ceil(STEPS * max(1.0, task.seconds / typical))), MOST_STEPS))
    fine = TimeStepping().simulate(system, task)
    notes = [f"{len(system.contacts)} contacts: {task.steps} steps by ns.TimeStepping, of first order"]
    if fine.success:
        half = replace(task, steps=(task.steps + 1) // 2, callback=None, time_limit=seconds_to(deadline))
        rough = TimeStepping().simulate(system, half)
        apart = np.abs(fine.final_state - rough.final_state)[system.at_q].max()
        notes += [f"positions end {apart:.1g} from those of half as many"] if rough.success else []
        moved = np.abs(fine.x - fine.x[0])[:, system.at_q].max()
        if rough.success and apart > ROUGH * moved:
            fine = replace(fine, status=Status.INACCURATE)
    notes += ["ns.EventDriven() follows every event", fine.message]
    return replace(fine, message=message_of(notes, None))
