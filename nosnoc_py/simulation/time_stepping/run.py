"""Time-stepping as a method of `nosnoc_py.simulate`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.contacts.instants import several_outcomes
from nosnoc_py.errors import OptionError
from nosnoc_py.simulation.common import StepState, Task, equal_steps, not_unique_note
from nosnoc_py.simulation.time_stepping.options import Limits, TimeStepping
from nosnoc_py.simulation.time_stepping.record import Record
from nosnoc_py.simulation.time_stepping.scheme import Stepper, StepResult
from nosnoc_py.solution import RungeKuttaInterpolant, Trajectory
from nosnoc_py.status import Status, asked_to_stop
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control
from nosnoc_py.systems.scales import problem_scales

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


def run(system: CLS, method: TimeStepping, task: Task) -> Trajectory:
    """See `nosnoc_py.simulate`."""
    if task.solver is not None:
        raise OptionError("solver: TimeStepping takes none; choose it by TimeStepping(solver=...).")
    seconds = task.seconds
    count = equal_steps(method, "step", task.steps, seconds)
    start, parameters, control = task.start(system)
    deadline = task.deadline()
    scales = problem_scales(
        system, x0=start, control=control, p=parameters, duration=seconds, speed_scale=method.speed_scale
    )
    loop = _Loop(system, method, method.limits(scales), control, parameters, task.callback, deadline)
    return loop.run(start, seconds, count)


@dataclass(eq=False)
class _Loop:
    """One simulation."""

    system: CLS
    method: TimeStepping
    limits: Limits
    control: Control
    p: np.ndarray
    callback: Callable[[Any], Any] | None
    deadline: float

    def run(self, start: np.ndarray, seconds: float, count: int) -> Trajectory:
        """Step by step; what there is when it ends early."""
        system, n, h, names = self.system, self.system.n_q, seconds / count, self.system.mechanics.frames.names
        grid = np.linspace(0.0, seconds, count + 1)
        x, applied = np.empty((count + 1, 2 * n)), np.empty((count, system.n_u))
        x[0], status, done, unsolved = start, Status.SOLVED, 0, _Missed(self.method, self.limits)
        refused: list[str] = []
        struck_at: list[tuple[float, np.ndarray, np.ndarray]] = []
        stepper, record = Stepper(system, self.method, self.limits), Record(system.mechanics.frames, self.limits)
        while done < count and status is Status.SOLVED:
            if time.monotonic() > self.deadline:
                status = Status.TIME_LIMIT
                break
            u = self.control(grid[done] + 0.5 * h, x[done])
            with np.errstate(all="ignore"):  # what is not finite is a status
                step = stepper.step(h, x[done, :n], x[done, n:], u, self.p)
            if step is None or not (np.isfinite(step.q).all() and np.isfinite(step.v).all()):
                status = Status.NUMERICAL_ERROR
                break
            if step.gain > 0.0:
                status, struck = Status.ENERGY_GAIN, step.contacts[step.approach < 0.0]
                refused = [f"t = {grid[done]:.9g}: at {', '.join(names[c] for c in struck)}"]
                break
            if (step.approach < -self.limits.impact_velocity).any() and len(step.contacts) <= FEW:
                struck_at.append((float(grid[done]), x[done].copy(), step.contacts))
            applied[done] = u
            x[done + 1, :n], x[done + 1, n:] = step.q, step.v
            record.add(grid[done], h, step)
            unsolved.add(grid[done], step)
            done += 1
            status = self._stopped(grid[done], x[done], step)
        if status is Status.SOLVED and not np.isfinite(stepper.rows.gaps(x[done, :n], self.p)).all():
            status = Status.NUMERICAL_ERROR
        if status is Status.SOLVED and unsolved.worst > GROSS * unsolved.speed(x[: done + 1]):
            status = Status.INACCURATE
        lost = status is Status.NUMERICAL_ERROR
        notes = [LOST.format(grid[done])] if lost else []
        notes += [*refused, *unsolved.notes, *not_unique_note(self._several(struck_at))]
        return self._trajectory(grid[: done + 1], x[: done + 1], applied[:done], status, notes, record)

    def _several(self, impacts: list[tuple[float, np.ndarray, np.ndarray]]) -> list[float]:
        """Times [s] of impacts, at states with contacts, that admit other outcomes."""
        count = self.system.mechanics.frames.count
        if not impacts or count > FEW_CONTACTS:
            return []
        closed = np.zeros((len(impacts), count), dtype=bool)
        for k, (_, _, contacts) in enumerate(impacts):
            closed[k, contacts] = True
        states = np.array([x for _, x, _ in impacts])
        found = several_outcomes(self.system, states, closed, self.p, self.limits.rest_velocity)
        return [t for (t, _, _), several in zip(impacts, found, strict=True) if several]

    def _stopped(self, t: float, x: np.ndarray, step: StepResult) -> Status:
        if self.callback is None:
            return Status.SOLVED
        state = TimeSteppingState(
            t=float(t),
            x=x.copy(),
            p=self.p,
            contacts=len(step.contacts),
            iterations=step.sweeps,
            complementarity=step.residual,
            infeasibility=step.penetration,
        )
        return asked_to_stop(self.callback, state) or Status.SOLVED

    def _trajectory(
        self, t: np.ndarray, x: np.ndarray, u: np.ndarray, status: Status, notes: list[str], record: Record
    ) -> Trajectory:
        system = self.system
        series, units = record.series(t)
        return Trajectory(
            t=t,
            x=x,
            state_names=system.state_names,
            u_grid=t,
            u=u,
            control_names=system.control_names,
            interpolant=RungeKuttaInterpolant.linear(t, x),
            events=record.events(),
            series=series,
            parameters=dict(zip(system.parameter_names, self.p, strict=True)),
            status=status,
            message="; ".join(notes),
            units={**system.units, **units},
        )


class _Missed:
    """Counts the steps whose contact problem was not solved to the tolerance."""

    def __init__(self, method: TimeStepping, limits: Limits) -> None:
        self.method, self.limits = method, limits
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
        """Speeds at work in states (k, 2 n_q) [m/s]: the fastest one, at least that of a fall over their length."""
        n = x.shape[1] // 2
        fall = float(np.sqrt(self.push * np.abs(x[:, :n]).max(initial=0.0)))
        return max(self.fastest, fall, float(np.abs(x[:, n:]).max(initial=0.0)))

    @property
    def notes(self) -> list[str]:
        """A word about them, or none."""
        if not self.count:
            return []
        return [
            f"{self.count} of {self.steps} steps miss the tolerance {self.limits.tolerance:g} m/s of the contact law "
            f"after {self.method.max_sweeps} sweeps, the worst by {self.worst:.2g} m/s at t = {self.when:.6g}"
        ]
