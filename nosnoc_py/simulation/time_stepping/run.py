"""Time-stepping as a method of `nosnoc_py.simulate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nosnoc_py.contact_problems.instants import several_outcomes
from nosnoc_py.motion.loop import driven
from nosnoc_py.motion.record import MotionRecord
from nosnoc_py.simulation.common import SimulationTask, StepState, equal_steps, no_time_note, not_unique_note
from nosnoc_py.simulation.time_stepping.options import Limits, TimeStepping
from nosnoc_py.simulation.time_stepping.record import ImpulseRecord
from nosnoc_py.simulation.time_stepping.scheme import Stepper, StepResult
from nosnoc_py.solution import RungeKuttaInterpolant, Trajectory
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control
from nosnoc_py.systems.not_finite import ahead, not_finite
from nosnoc_py.systems.scales import problem_scales
from nosnoc_py.systems.unsigned import refuse_unsigned

# Other outcomes of impacts are searched with up to this many contacts in a step, of a system with up to so many.
MOST_IN_IMPACT, MOST_CONTACTS = 6, 50
# A residual of the contact law above this share of the typical speed makes the simulation inaccurate.
INACCURATE_LAW = 1e-2
LOST = "gaps, their directions, forces or derivatives of forces are no finite numbers at t = {:.6g} s"


@dataclass(frozen=True, eq=False, kw_only=True)
class TimeSteppingState(StepState):
    """State of a simulation, passed to a callback after every step.

    `iterations` are the sweeps over the contacts, `complementarity` is the residual of the contact law [m/s],
    `infeasibility` the deepest penetration where gaps were evaluated [m].

    Attributes
    ----------
    contacts : int
        Contacts that took part in the last step.
    """

    contacts: int = 0


def run(system: CLS, method: TimeStepping, task: SimulationTask) -> Trajectory:
    """Simulate a system; see `nosnoc_py.simulate`."""
    refuse_unsigned(system)
    seconds = task.seconds
    count = equal_steps(method, "step", task.steps, seconds)
    start, parameters, control = task.start(system)
    deadline = task.deadline()
    scales = problem_scales(
        system, x0=start, control=control, p=parameters, duration=seconds, speed_scale=method.speed_scale
    )
    loop = _TimeSteppingLoop(system, method, method.limits(scales), control, parameters)
    return loop.run(start, seconds, count, task.callback, deadline)


def after_steps(
    system: CLS,
    method: TimeStepping,
    limits: Limits,
    control: Control,
    x: np.ndarray,
    p: np.ndarray,
    seconds: float,
    count: int,
    deadline: float,
) -> TimeSteppingState:
    """Return the state after several steps, with the status of all of them."""
    loop = _TimeSteppingLoop(system, method, limits, control, p)
    status = loop.run(x, seconds, count, None, deadline).status
    return replace(loop.last, status=status)


@dataclass(eq=False)
class _TimeSteppingLoop:
    """State of one simulation."""

    system: CLS
    method: TimeStepping
    limits: Limits
    control: Control
    p: np.ndarray

    def run(
        self, start: np.ndarray, seconds: float, count: int, callback: Callable[[Any], Any] | None, deadline: float
    ) -> Trajectory:
        """Simulate step by step; return the trajectory up to the end or the failure."""
        # Times from the grid and not by adding h, whose rounding would accumulate.
        self.h, self.grid = seconds / count, np.linspace(0.0, seconds, count + 1)
        self.x, self.applied = [start], list[np.ndarray]()
        self.unsolved, self.refused = _ToleranceMonitor(self.method, self.limits, self.system), list[str]()
        self.impacts: list[tuple[float, np.ndarray, np.ndarray]] = []
        self.stepper = Stepper(self.system, self.method, self.limits, self.p)
        self.record = ImpulseRecord(self.system.mechanics.frames_at(self.p), self.limits)
        first = TimeSteppingState(t=0.0, x=start, p=self.p)
        self.last = driven(first, self._step, lambda state: len(self.applied) == count, callback, deadline)
        status = self.last.status
        x, t = np.array(self.x), self.grid[: len(self.x)]
        # No step evaluates the gaps of the last state.
        if status is Status.SOLVED and not np.isfinite(self.stepper.rows.gaps(x[-1], self.p)).all():
            status = Status.NUMERICAL_ERROR
        if status is Status.SOLVED and self.unsolved.worst > INACCURATE_LAW * self.unsolved.speed(x):
            status = Status.INACCURATE
        notes = [self._not_finite_message(float(t[-1]), x[-1])] if status is Status.NUMERICAL_ERROR else []
        notes += no_time_note(status, len(self.applied))
        notes += [*self.refused, *self.unsolved.notes]
        u = np.array(self.applied).reshape(len(self.applied), self.system.n_u)
        series, units = self.record.series(t)
        record = MotionRecord(
            t=t,
            x=x,
            interpolant=RungeKuttaInterpolant.linear(t, x),
            events=self.record.events(),
            series=series,
            units=units,
        )
        return record.trajectory(self.system, self.p, (t, u), status, notes, self._other_outcomes())

    def _not_finite_message(self, t: float, x: np.ndarray) -> str:
        """Return the message about numbers that are not finite."""
        with np.errstate(all="ignore"):
            u = self.control(t + 0.5 * self.h, x)
            name = not_finite(self.system, ahead(self.system, x, u, self.p, self.h), u, self.p)
        return LOST.format(t) + (f": {name}" if name else "")

    def _step(self, state: TimeSteppingState) -> TimeSteppingState:
        """Take one step and record it."""
        done, names = len(self.applied), self.system.mechanics.frames.names
        t, x = float(self.grid[done]), self.x[-1]
        u = self.control.reached(t + 0.5 * self.h, x)
        with np.errstate(all="ignore"):  # what is not finite is a status
            step = self.stepper.step(self.h, x, u, self.p)
        if not np.isfinite(u).all() or step is None or not (np.isfinite(step.q).all() and np.isfinite(step.v).all()):
            return replace(state, status=Status.NUMERICAL_ERROR)
        # The step is refused before it is recorded, so that the trajectory ends before the impact.
        if step.gain > 0.0:
            impact_contacts = step.contacts[step.approach < 0.0]
            self.refused.append(f"t = {t:.9g}: at {', '.join(names[c] for c in impact_contacts)}")
            return replace(state, status=Status.ENERGY_GAIN)
        if (step.approach < -self.limits.impact_velocity).any() and len(step.contacts) <= MOST_IN_IMPACT:
            self.impacts.append((t, x, step.contacts))
        self.applied.append(u)
        self.x.append(np.concatenate([step.q, step.v, step.y]))
        self.record.add(t, self.h, step)
        self.unsolved.add(t, step)
        return replace(
            state,
            t=float(self.grid[done + 1]),
            x=self.x[-1].copy(),
            contacts=len(step.contacts),
            iterations=step.sweeps,
            complementarity=step.residual,
            infeasibility=step.penetration,
        )

    def _other_outcomes(self) -> Callable[[], list[str]] | None:
        """Return the function of a note about impacts with other admissible outcomes, None if there is no such impact.

        The search takes longer than many steps: it is made when somebody reads the message.
        """
        if not self.impacts or self.system.mechanics.frames.count > MOST_CONTACTS:
            return None
        system, p, rest_velocity = self.system, self.p, self.limits.rest_velocity
        times, states, closing = zip(*self.impacts, strict=True)

        def later() -> list[str]:
            several = several_outcomes(system, np.array(states), p, rest_velocity, closing)
            return not_unique_note(np.array(times)[several].tolist())

        return later


class _ToleranceMonitor:
    """Counter of steps whose contact problem was not solved to the tolerance."""

    def __init__(self, method: TimeStepping, limits: Limits, system: CLS) -> None:
        self.method, self.limits, self.system = method, limits, system
        self.count, self.steps, self.worst, self.when = 0, 0, 0.0, 0.0
        self.fastest = self.push = 0.0

    def add(self, t: float, step: StepResult) -> None:
        """Add a step."""
        self.steps += 1
        self.fastest = max(self.fastest, float(np.abs(step.approach).max(initial=0.0)))
        self.push = max(self.push, step.push)
        if step.residual > self.limits.tolerance:
            self.count += 1
            if step.residual > self.worst:
                self.worst, self.when = step.residual, float(t)

    def speed(self, x: np.ndarray) -> float:
        """Return the typical speed of states (k, n_x) [m/s]: the fastest, at least that of a fall over their length."""
        # A motion that starts at rest has no speed yet: the speed of a fall, sqrt(a L), keeps the limit positive.
        fall = float(np.sqrt(self.push * np.abs(x[:, self.system.at_q]).max(initial=0.0)))
        return max(self.fastest, fall, float(np.abs(x[:, self.system.at_v]).max(initial=0.0)))

    @property
    def notes(self) -> list[str]:
        """Notes about these steps, if any."""
        if not self.count:
            return []
        return [
            f"{self.count} of {self.steps} steps miss the tolerance {self.limits.tolerance:g} m/s of the contact law "
            f"after {self.method.max_sweeps} sweeps, the worst by {self.worst:.2g} m/s at t = {self.when:.6g}"
        ]
