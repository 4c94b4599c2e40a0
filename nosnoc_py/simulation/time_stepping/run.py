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

# Other outcomes of impacts are looked for with so many contacts in a step, of a system with so many contacts, at most.
FEW, FEW_CONTACTS = 6, 50
# A contact law that is missed by more than this share of the speeds at work is not solved.
GROSS = 1e-2
LOST = "gaps, their directions, forces or derivatives of forces are no finite numbers at t = {:.6g} s"


@dataclass(frozen=True, eq=False, kw_only=True)
class TimeSteppingState(StepState):
    """Where a simulation stands: what a callback sees after every step.

    `iterations` are the sweeps over the contacts, `complementarity` is the residual of the contact law [m/s],
    `infeasibility` the deepest penetration where the step looked at the gaps [m].

    Attributes
    ----------
    contacts : int
        Contacts that took part in the last step.
    """

    contacts: int = 0


def run(system: CLS, method: TimeStepping, task: SimulationTask) -> Trajectory:
    """See `nosnoc_py.simulate`."""
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


def stepped(
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
    """The state after some steps, with the status of all of them."""
    loop = _TimeSteppingLoop(system, method, limits, control, p)
    status = loop.run(x, seconds, count, None, deadline).status
    return replace(loop.last, status=status)


@dataclass(eq=False)
class _TimeSteppingLoop:
    """One simulation."""

    system: CLS
    method: TimeStepping
    limits: Limits
    control: Control
    p: np.ndarray

    def run(
        self, start: np.ndarray, seconds: float, count: int, callback: Callable[[Any], Any] | None, deadline: float
    ) -> Trajectory:
        """Step by step; what there is when it ends early."""
        self.h, self.grid = seconds / count, np.linspace(0.0, seconds, count + 1)
        self.x, self.applied = [start], list[np.ndarray]()
        self.unsolved, self.refused = _Missed(self.method, self.limits, self.system), list[str]()
        self.struck_at: list[tuple[float, np.ndarray, np.ndarray]] = []
        self.stepper = Stepper(self.system, self.method, self.limits, self.p)
        self.record = ImpulseRecord(self.system.mechanics.frames_at(self.p), self.limits)
        first = TimeSteppingState(t=0.0, x=start, p=self.p)
        self.last = driven(first, self._step, lambda state: len(self.applied) == count, callback, deadline)
        status = self.last.status
        x, t = np.array(self.x), self.grid[: len(self.x)]
        if status is Status.SOLVED and not np.isfinite(self.stepper.rows.gaps(x[-1], self.p)).all():
            status = Status.NUMERICAL_ERROR
        if status is Status.SOLVED and self.unsolved.worst > GROSS * self.unsolved.speed(x):
            status = Status.INACCURATE
        notes = [self._lost(float(t[-1]), x[-1])] if status is Status.NUMERICAL_ERROR else []
        notes += no_time_note(status, len(self.applied))
        notes += [*self.refused, *self.unsolved.notes, *not_unique_note(self._several(self.struck_at))]
        u = np.array(self.applied).reshape(len(self.applied), self.system.n_u)
        series, units = self.record.series(t)
        made = MotionRecord(
            t=t,
            x=x,
            interpolant=RungeKuttaInterpolant.linear(t, x),
            events=self.record.events(),
            series=series,
            units=units,
        )
        return made.trajectory(self.system, self.p, (t, u), status, notes)

    def _lost(self, t: float, x: np.ndarray) -> str:
        """What is no number any more, as far as the system itself tells."""
        with np.errstate(all="ignore"):
            u = self.control(t + 0.5 * self.h, x)
            found = not_finite(self.system, ahead(self.system, x, u, self.p, self.h), u, self.p)
        return LOST.format(t) + (f": {found}" if found else "")

    def _step(self, state: TimeSteppingState) -> TimeSteppingState:
        done, names = len(self.applied), self.system.mechanics.frames.names
        t, x = float(self.grid[done]), self.x[-1]
        u = self.control.reached(t + 0.5 * self.h, x)
        with np.errstate(all="ignore"):  # what is not finite is a status
            step = self.stepper.step(self.h, x, u, self.p)
        if not np.isfinite(u).all() or step is None or not (np.isfinite(step.q).all() and np.isfinite(step.v).all()):
            return replace(state, status=Status.NUMERICAL_ERROR)
        if step.gain > 0.0:
            struck = step.contacts[step.approach < 0.0]
            self.refused.append(f"t = {t:.9g}: at {', '.join(names[c] for c in struck)}")
            return replace(state, status=Status.ENERGY_GAIN)
        if (step.approach < -self.limits.impact_velocity).any() and len(step.contacts) <= FEW:
            self.struck_at.append((t, x, step.contacts))
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

    def _several(self, impacts: list[tuple[float, np.ndarray, np.ndarray]]) -> list[float]:
        """Times [s] of impacts, at states with contacts, that admit other outcomes."""
        if not impacts or self.system.mechanics.frames.count > FEW_CONTACTS:
            return []
        times, states, struck = zip(*impacts, strict=True)
        found = several_outcomes(self.system, np.array(states), self.p, self.limits.rest_velocity, struck)
        return list(np.array(times)[found])


class _Missed:
    """Counts the steps whose contact problem was not solved to the tolerance."""

    def __init__(self, method: TimeStepping, limits: Limits, system: CLS) -> None:
        self.method, self.limits, self.system = method, limits, system
        self.count, self.steps, self.worst, self.when = 0, 0, 0.0, 0.0
        self.fastest = self.push = 0.0

    def add(self, t: float, step: StepResult) -> None:
        """Take note of a step."""
        self.steps += 1
        self.fastest = max(self.fastest, float(np.abs(step.approach).max(initial=0.0)))
        self.push = max(self.push, step.push)
        if step.residual > self.limits.tolerance:
            self.count += 1
            if step.residual > self.worst:
                self.worst, self.when = step.residual, float(t)

    def speed(self, x: np.ndarray) -> float:
        """Speeds at work in states (k, n_x) [m/s]: the fastest one, at least that of a fall over their length."""
        fall = float(np.sqrt(self.push * np.abs(x[:, self.system.at_q]).max(initial=0.0)))
        return max(self.fastest, fall, float(np.abs(x[:, self.system.at_v]).max(initial=0.0)))

    @property
    def notes(self) -> list[str]:
        """A word about them, or none."""
        if not self.count:
            return []
        return [
            f"{self.count} of {self.steps} steps miss the tolerance {self.limits.tolerance:g} m/s of the contact law "
            f"after {self.method.max_sweeps} sweeps, the worst by {self.worst:.2g} m/s at t = {self.when:.6g}"
        ]
