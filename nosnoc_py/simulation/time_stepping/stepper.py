"""Steps of a time-stepping simulation with a constant control each, for closed loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.functions import numbers
from nosnoc_py.simulation.common import SimulationTask, SteppedRun, deadline_of, equal_steps, next_time
from nosnoc_py.simulation.time_stepping.options import Limits, TimeStepping
from nosnoc_py.simulation.time_stepping.run import TimeSteppingState, after_steps, run
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control, control_of
from nosnoc_py.systems.scales import problem_scales
from nosnoc_py.systems.special_laws import refuse_sequences
from nosnoc_py.systems.unsigned import refuse_unsigned


@dataclass(frozen=True, eq=False, kw_only=True)
class TimeSteppingStep(TimeSteppingState):
    """State of a simulation after a step.

    Attributes
    ----------
    u : (n_u,) or None
        The control of the last step.
    limits : Limits or None
        Tolerances of this motion, from its first step on.
    """

    u: np.ndarray | None = None
    limits: Limits | None = None


class _MidpointHold:
    """Control held in each step at its value in the middle, for the state at the start."""

    def __init__(self, control: Control, length: float) -> None:
        self.control, self.length, self.step, self.value = control, length, -1, np.zeros(0)

    def __call__(self, t: float, x: np.ndarray) -> np.ndarray:
        # One evaluation per outer step: the method takes several steps within it and must see the same value.
        step = int(t / self.length)
        if step != self.step:
            self.step, self.value = step, self.control((step + 0.5) * self.length, x)
        return self.value


class TimeStepper:
    """Stepper with equal steps of one system; each consists of as many steps of the method as needed."""

    def __init__(self, system: CLS, method: TimeStepping, length: float) -> None:
        refuse_unsigned(system)
        refuse_sequences(system, "this method")
        self.system, self.method, self.length = system, method, length
        self.count = equal_steps(method, "step", None, length)

    def init(self, x0: Any, p: Any = None) -> TimeSteppingStep:
        """Return the state at t = 0."""
        parameters = self.system.parameters(p)
        return TimeSteppingStep(t=0.0, x=self.system.check_state(x0, parameters), p=parameters)

    def step(
        self, state: TimeSteppingStep, u: Any = None, *, time_limit: float | None = None, sensitivities: bool = False
    ) -> TimeSteppingStep:
        """Take one step with constant control u (n_u,); a step that fails keeps t and x and sets the status."""
        if sensitivities:
            raise OptionError(f"sensitivities: {self.method.refuses['sensitivities']}.")
        u = numbers(0.0 if u is None else u, "u", self.system.n_u)
        control = control_of(u, self.system.n_u, self.length)
        # Kept from the first step on, so that the tolerances do not change along a closed loop.
        limits = state.limits or self.method.limits(
            problem_scales(
                self.system,
                x0=state.x,
                control=control,
                p=state.p,
                duration=self.length,
                speed_scale=self.method.speed_scale,
            )
        )
        deadline = deadline_of(time_limit)
        last = after_steps(
            self.system, self.method, limits, control, state.x, state.p, self.length, self.count, deadline
        )
        # A failed step keeps time and state, so that the user can repeat it with other options.
        if not last.status.success:
            return replace(state, status=last.status, u=u)
        end = next_time(state.t, self.length)
        fields = {
            name: getattr(last, name) for name in ("x", "contacts", "iterations", "complementarity", "infeasibility")
        }
        return replace(state, t=end, status=last.status, u=u, limits=limits, **fields)

    def run(self, x0: Any, arguments: SteppedRun) -> Trajectory:
        """Simulate all steps as one simulation."""
        seconds = arguments.steps * self.length
        control = control_of(arguments.u, self.system.n_u, seconds)
        u = arguments.u if control.constant else _MidpointHold(control, self.length)
        task = SimulationTask(
            x0=x0,
            duration=seconds,
            steps=None,
            u=u,
            p=arguments.p,
            callback=arguments.callback,
            time_limit=arguments.left(),
            sensitivities=arguments.sensitivities,
        )
        task.check(self.method.refuses)
        return run(self.system, self.method.replace(step=self.length / self.count), task)
