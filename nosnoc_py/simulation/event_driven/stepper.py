"""Steps of an event-driven simulation with a constant control each, for closed loops."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from nosnoc_py.functions import numbers
from nosnoc_py.motion.loop import driven
from nosnoc_py.simulation.common import (
    StepDerivative,
    SteppedRun,
    check_control,
    deadline_of,
    next_time,
    not_finite_control,
)
from nosnoc_py.simulation.event_driven.history import EventDrivenSimulator, EventDrivenState, SimulationResult
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.event_driven.run import event_driven_simulator, sensitivity_along, trajectory_of
from nosnoc_py.solution import Trajectory
from nosnoc_py.status import Status
from nosnoc_py.systems.controls import Control, PiecewiseConstant, control_of
from nosnoc_py.systems.described import Described


@dataclass(frozen=True, eq=False, kw_only=True)
class EventDrivenStep(EventDrivenState):
    """State of a stepped simulation; x is the left limit at t.

    Attributes
    ----------
    u : (n_u,) or None
        The control of the last step.
    history : SimulationResult or None
        Nodes and phases of the last step; None before the first one and after one that failed.
    simulator : EventDrivenSimulator or None
        With the tolerances of this motion, from its first step on.
    sensitivity : StepDerivative or None
        Derivatives of x by the x, u and p with which the last step began.
    """

    u: np.ndarray | None = None
    history: SimulationResult | None = field(default=None, repr=False)
    simulator: EventDrivenSimulator | None = field(default=None, repr=False)
    sensitivity: StepDerivative | None = None


class EventDrivenStepper:
    """Stepper with equal steps for one system; see `nosnoc_py.Simulator`."""

    def __init__(self, system: Described, method: EventDriven, length: float) -> None:
        self.system, self.method, self.length = system, method, length

    def init(self, x0: Any, p: Any = None) -> EventDrivenStep:
        """Return the state at t = 0."""
        parameters = self.system.parameters(p)
        return EventDrivenStep(t=0.0, x=self.system.check_state(x0, parameters), p=parameters)

    def step(
        self, state: EventDrivenStep, u: Any = None, *, time_limit: float | None = None, sensitivities: bool = False
    ) -> EventDrivenStep:
        """Take one step with constant control u (n_u,). A step that fails keeps t and x and sets the status."""
        u = numbers(0.0 if u is None else u, "u", self.system.n_u)
        start, end = state.t, next_time(state.t, self.length)
        control = Control(law=lambda t, x: u, breaks=np.array([start, end]), constant=True)
        # The scales of the first step are kept: otherwise tolerances would change from step to step.
        simulator = state.simulator or event_driven_simulator(self.system, self.method, state.x, control, state.p)
        # The last regime continues, so that sticking contacts are not analysed as if they had just closed.
        before = None if state.history is None else state.history.phases[-1].regime
        history = simulator.run(
            state.x,
            control,
            state.p,
            start=start,
            regime=before,
            deadline=deadline_of(time_limit),
            interruptible=True,
        )
        outcome: dict[str, Any] = {"status": history.status, "message": history.message}
        if history.status is not Status.SOLVED:
            return replace(state, **outcome, history=None, u=u, sensitivity=None)
        following = replace(state, t=end, x=history.x, u=u, history=history, simulator=simulator, **outcome)
        if not sensitivities:
            return replace(following, sensitivity=None)
        derivatives = sensitivity_along(self.system, history, control, control.breaks)
        by_u = np.zeros((state.x.size, 0)) if derivatives.u is None else derivatives.u[0]
        # No directions to keep: the projection of the start is part of the derivative.
        no_pairs = np.zeros((0, state.x.size))
        return replace(
            following,
            sensitivity=StepDerivative(
                x=derivatives.x0, u=by_u, p=derivatives.p, keeps=no_pairs, flags=derivatives.flags
            ),
        )

    def run(self, x0: Any, run: SteppedRun) -> Trajectory:
        """Take several steps.

        A law of the state is evaluated at the start of each, a function of time in its middle.
        """
        control = control_of(run.u, self.system.n_u, run.steps * self.length)
        if run.sensitivities:
            check_control(control)
        done: list[EventDrivenStep] = []

        def step(state: EventDrivenStep) -> EventDrivenStep:
            middle = (len(done) + 0.5) * self.length
            # In the middle of the step, as for finite elements: breaks at its ends belong to two steps.
            value = control.reached(middle, state.x)
            if not np.isfinite(value).all():
                return replace(state, status=Status.NUMERICAL_ERROR, message=not_finite_control(middle))
            state = self.step(state, value, time_limit=run.left())
            done.extend([state] if state.status is Status.SOLVED else [])
            return state

        last = driven(self.init(x0, run.p), step, lambda state: len(done) == run.steps, run.callback, run.deadline)
        histories = [state.history for state in done if state.history is not None]
        if not histories:
            empty = SimulationResult(
                nodes=(), phases=(), flows=(), t=0.0, x=last.x, p=last.p, status=last.status, message=last.message
            )
            return trajectory_of(self.system, empty, control)
        parts: dict[str, Any] = {
            name: tuple(chain(*(getattr(each, name) for each in histories))) for name in ("nodes", "phases", "flows")
        }
        joined = replace(histories[-1], status=last.status, message=last.message, **parts)
        grid = np.arange(len(done) + 1) * self.length
        # The controls that were applied, so that the trajectory can be simulated again.
        held = PiecewiseConstant(grid, np.array([state.u for state in done]).reshape(len(done), -1))
        applied = control_of(held, self.system.n_u, float(grid[-1]))
        trajectory = trajectory_of(self.system, joined, applied, grid)
        if not run.sensitivities:
            return trajectory
        return replace(trajectory, sensitivity=sensitivity_along(self.system, joined, applied, grid))
