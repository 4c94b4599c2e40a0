"""Steps of a time-stepping simulation with a constant control each, for closed loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.functions import numbers
from nosnoc_py.simulation.common import SimulationTask, SteppedRun, deadline_of, equal_steps, next_time
from nosnoc_py.simulation.time_stepping.options import Limits, TimeStepping
from nosnoc_py.simulation.time_stepping.run import TimeSteppingState, run, stepped
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control, control_of
from nosnoc_py.systems.scales import problem_scales
from nosnoc_py.systems.unsigned import refuse_unsigned


@dataclass(frozen=True, eq=False, kw_only=True)
class TimeSteppingStep(TimeSteppingState):
    """Where a simulation stands after a step.

    Attributes
    ----------
    u : (n_u,) or None
        The control of the last step.
    limits : Limits or None
        Tolerances of this motion, from its first step on.
    """

    u: np.ndarray | None = None
    limits: Limits | None = None


class _Held:
    """A control that keeps the value that it has in the middle of a step, for the state where the step begins."""

    def __init__(self, control: Control, length: float) -> None:
        self.control, self.length, self.step, self.value = control, length, -1, np.zeros(0)

    def __call__(self, t: float, x: np.ndarray) -> np.ndarray:
        step = int(t / self.length)
        if step != self.step:
            self.step, self.value = step, self.control((step + 0.5) * self.length, x)
        return self.value


class TimeStepper:
    """Steps of equal length of one system, each made of as many of the method's as fit into it."""

    def __init__(self, system: CLS, method: TimeStepping, length: float) -> None:
        refuse_unsigned(system)
        self.system, self.method, self.length = system, method, length
        self.count = equal_steps(method, "step", None, length)

    def init(self, x0: Any, p: Any = None) -> TimeSteppingStep:
        """The state at t = 0."""
        parameters = self.system.parameters(p)
        return TimeSteppingStep(t=0.0, x=self.system.check_state(x0, parameters), p=parameters)

    def step(
        self, state: TimeSteppingStep, u: Any = None, *, time_limit: float | None = None, sensitivities: bool = False
    ) -> TimeSteppingStep:
        """One step with constant control u; a step that fails has its status and leaves t and x where they were."""
        if sensitivities:
            raise OptionError(f"sensitivities: {self.method.refuses['sensitivities']}.")
        u = numbers(0.0 if u is None else u, "u", self.system.n_u)
        control = control_of(u, self.system.n_u, self.length)
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
        last = stepped(self.system, self.method, limits, control, state.x, state.p, self.length, self.count, deadline)
        if not last.status.success:
            return replace(state, status=last.status, u=u)
        end = next_time(state.t, self.length)
        shown = {
            name: getattr(last, name) for name in ("x", "contacts", "iterations", "complementarity", "infeasibility")
        }
        return replace(state, t=end, status=last.status, u=u, limits=limits, **shown)

    def run(self, x0: Any, asked: SteppedRun) -> Trajectory:
        """All steps as one simulation."""
        seconds = asked.steps * self.length
        control = control_of(asked.u, self.system.n_u, seconds)
        u = asked.u if control.constant else _Held(control, self.length)
        task = SimulationTask(
            x0=x0,
            duration=seconds,
            steps=None,
            u=u,
            p=asked.p,
            callback=asked.callback,
            time_limit=asked.left(),
            sensitivities=asked.sensitivities,
        )
        task.check(self.method.refuses)
        return run(self.system, self.method.replace(step=self.length / self.count), task)
