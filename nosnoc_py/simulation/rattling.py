"""Piles that rattle, taken to rest by time-stepping between two parts of an event-driven simulation.

Bodies of a pile that comes to rest rock and hit each other in turns. Each accumulation of impacts ends, but its end is
the beginning of others, and every body adds many more: event by event the work has no bound. The impulses of short
steps (`TimeStepping`) carry the motion to where no contact changes any more; it goes on event by event from there.
The steps are as long as the mean phase that they replace. Steps of half that length are taken beside them: they are
the motion, and the difference is the error that is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nosnoc_py.contact_problems.modes import FREE
from nosnoc_py.motion.crossing import NODES
from nosnoc_py.simulation.event_driven.accumulation import at_rest
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.mechanics import regime_of
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.event_driven.records import IntegratorStep, Node, Phase
from nosnoc_py.simulation.time_stepping.options import TimeStepping
from nosnoc_py.simulation.time_stepping.run import TimeSteppingLoop, TimeSteppingState
from nosnoc_py.status import Status, Stop
from nosnoc_py.systems.controls import Control
from nosnoc_py.tolerances import SWEPT

# No contact has changed for so many steps: the pile does not rattle any more. Most steps at once.
QUIET, MOST_STEPS = 100, 20_000
# Rates below so many times the tolerance of the contact law are none.
STILL = 10.0


def stepped(flow: ContactFlow, method: EventDriven, node: Node, h: float, end: float, deadline: float) -> Phase | None:
    """Return the motion after a node by steps of about h seconds to where it is quiet; None if the steps fail."""
    if flow.mechanics.system.simultaneous_impacts != "at once":
        return None
    count = min(int(np.ceil((end - node.t) / h)), MOST_STEPS)
    seconds = min(count * h, end - node.t)
    rough = _loop(flow, method, node, seconds)
    rough.run(node.after, seconds, count, _until_quiet(rough), deadline)
    taken = len(rough.applied)
    if not (_succeeded(rough) and taken):
        return None
    seconds = float(rough.grid[taken])
    fine = _loop(flow, method, node, seconds)
    fine.run(node.after, seconds, 2 * taken, None, deadline)
    if not _succeeded(fine):
        return None
    apart = np.abs(fine.x[-1] - rough.x[-1])[flow.mechanics.system.at_q].max()
    return _phase_of(
        flow,
        node,
        fine,
        f"bodies rattle from t = {node.t:.6g} to {node.t + seconds:.6g}: {2 * taken} steps of {fine.h:.2g} s are taken "
        f"instead of all events; with steps twice as long positions end {apart:.1g} apart",
    )


def _succeeded(loop: TimeSteppingLoop) -> bool:
    """Return True if steps came to their end; raise what the loop has made a status of."""
    if loop.last.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return loop.last.status in (Status.SOLVED, Status.STOPPED)


def _loop(flow: ContactFlow, method: EventDriven, node: Node, seconds: float) -> TimeSteppingLoop:
    """Return the loop of steps after a node, whose closed contacts stay so without an event."""
    steps = TimeStepping(rest_velocity=method.rest_velocity, speed_scale=flow.scales.speed)
    control = Control(
        law=lambda t, x: flow.control(node.t + t, x), breaks=np.array([0.0, seconds]), constant=False, feedback=True
    )
    closed = np.array(node.regime.modes, dtype=int) != FREE
    return TimeSteppingLoop(flow.mechanics.system, steps, steps.limits(flow.scales), control, flow.p, closed)


def _until_quiet(loop: TimeSteppingLoop) -> Callable[[TimeSteppingState], type[Stop] | None]:
    """Return a callback that stops when no contact has changed for some steps."""
    seen = [0, 0]

    def callback(state: TimeSteppingState) -> type[Stop] | None:
        changes, taken = loop.record.changes, len(loop.applied)
        if changes != seen[0]:
            seen[:] = changes, taken
        return Stop if taken - seen[1] >= QUIET else None

    return callback


def _phase_of(flow: ContactFlow, node: Node, loop: TimeSteppingLoop, note: str) -> Phase:
    """Return steps as those of an integrator: states joined by lines, forces that are means over steps."""
    t, x = node.t + loop.grid[: len(loop.x)], np.array(loop.x)
    rates = np.array([flow.kinematics(float(time), state).rates for time, state in zip(t, x, strict=True)])
    forces, share = loop.record.forces(len(x) - 1), NODES[:, None]
    steps = tuple(
        IntegratorStep(
            t=t[k] + (t[k + 1] - t[k]) * NODES,
            x=x[k] + share * (x[k + 1] - x[k]),
            forces=np.tile(forces[k], (len(NODES), 1)),
            rates=rates[k] + share * (rates[k + 1] - rates[k]),
        )
        for k in range(len(forces))
    )
    at = flow.kinematics(float(t[-1]), x[-1])
    modes = at_rest(flow.frames, at, loop.place.touching, STILL * SWEPT)
    regime = regime_of(flow.frames, modes, np.zeros(flow.frames.n_t), at)
    return Phase(
        start=node.regime,
        regime=regime,
        steps=steps,
        t=float(t[-1]),
        # What the tolerance of the steps has left of the rates would be slips and impacts.
        x=flow.project(regime, float(t[-1]), x[-1]),
        events=tuple(replace(event, time=node.t + event.time) for event in loop.record.events()),
        note=note,
        length=2.0 * loop.h,
    )
