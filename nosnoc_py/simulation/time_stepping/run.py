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
from nosnoc_py.simulation.time_stepping.dynamics import StepFunctions, StepModel
from nosnoc_py.simulation.time_stepping.options import Limits, TimeStepping
from nosnoc_py.simulation.time_stepping.record import ImpulseRecord
from nosnoc_py.simulation.time_stepping.scheme import scheme_of, weight_of
from nosnoc_py.simulation.time_stepping.steps import (
    FASTEST,
    FULL,
    GAIN,
    LEAP,
    PENETRATION,
    PUSH,
    REFUSED,
    RESIDUAL,
    RUNNING,
    TAKEN,
    LeapRows,
    compiled_leap,
    leap,
    place_of,
    rows_of,
)
from nosnoc_py.solution import RungeKuttaInterpolant, Trajectory
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control
from nosnoc_py.systems.not_finite import ahead, not_finite
from nosnoc_py.systems.scales import problem_scales
from nosnoc_py.systems.special_laws import refuse_sequences
from nosnoc_py.systems.unsigned import refuse_unsigned

# Other outcomes of impacts are searched with up to this many contacts in a step, of a system with up to so many.
MOST_IN_IMPACT, MOST_CONTACTS = 6, 50
# A residual of the contact law above this fraction of the typical speed makes the simulation inaccurate.
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
    refuse_sequences(system, "this method")
    seconds = task.seconds
    count = equal_steps(method, "step", task.steps, seconds)
    start, parameters, control = task.start(system)
    deadline = task.deadline()
    scales = problem_scales(
        system, x0=start, control=control, p=parameters, duration=seconds, speed_scale=method.speed_scale
    )
    loop = TimeSteppingLoop(system, method, method.limits(scales), control, parameters)
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
    loop = TimeSteppingLoop(system, method, limits, control, p)
    status = loop.run(x, seconds, count, None, deadline).status
    return replace(loop.last, status=status)


@dataclass(eq=False)
class TimeSteppingLoop:
    """State of one simulation; of the contacts `closed` (n_c,) no event tells that they close."""

    system: CLS
    method: TimeStepping
    limits: Limits
    control: Control
    p: np.ndarray
    closed: np.ndarray | None = None

    def run(
        self, start: np.ndarray, seconds: float, count: int, callback: Callable[[Any], Any] | None, deadline: float
    ) -> Trajectory:
        """Simulate step by step; return the trajectory up to the end or the failure."""
        # Times from the grid and not by adding h, whose rounding would accumulate.
        self.h, self.grid = seconds / count, np.linspace(0.0, seconds, count + 1)
        self.x, self.applied = [start], list[np.ndarray]()
        self.unsolved, self.refused = _ToleranceMonitor(self.method, self.limits, self.system), list[str]()
        self.impacts: list[tuple[float, np.ndarray, np.ndarray]] = []
        self._prepare(start, count, one_by_one=callback is not None or self.control.feedback)
        self.record = ImpulseRecord(self.system.mechanics.frames_at(self.p), self.limits)
        first = TimeSteppingState(t=0.0, x=start, p=self.p)
        self.last = driven(first, self._step, lambda state: len(self.applied) == count, callback, deadline)
        status = self.last.status
        x, t = np.array(self.x), self.grid[: len(self.x)]
        # No step evaluates the gaps of the last state.
        if status is Status.SOLVED and not np.isfinite(self.system.mechanics.gaps_at(x[-1], self.p)).all():
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

    def _prepare(self, start: np.ndarray, count: int, one_by_one: bool) -> None:
        """Choose how steps are taken, and make room for them."""
        self.functions, self.leap = self.system.mechanics.once(StepFunctions), compiled_leap()
        model = None if self.leap is None else self.functions.model(self.p, as_tapes=True)
        # Interpreted steps are taken one by one: Ctrl-C ends the simulation after a complete one.
        if model is None:
            self.leap, model, one_by_one = leap, self.functions.model(self.p, as_tapes=False), True
        assert model is not None
        self.model: StepModel = model
        width = self.model.sizes.width
        self.scheme = scheme_of(self.method, self.limits, self.h, width)
        self.place = place_of(start, self.model.sizes.n_c, width)
        if self.closed is not None:
            self.place.touching[:] = self.place.loaded[:] = self.closed
        self.most = 1 if one_by_one else min(LEAP, count)
        self._make_room(self.most * min(self.model.sizes.n_c, 8))

    def _make_room(self, contacts: int) -> None:
        self.rows = rows_of(self.most, contacts, self.model.sizes.n_x, self.model.sizes.width)

    def _step(self, state: TimeSteppingState) -> TimeSteppingState:
        """Take and record as many steps as one call takes."""
        done, begun = len(self.applied), bool(self.place.begun[0])
        ends = self.grid[done : done + self.most + 1]
        u = np.array([self.control.reached(t + 0.5 * self.h, self.x[-1]) for t in ends[:-1]])
        u = u.reshape(len(ends) - 1, self.system.n_u)
        valid = np.isfinite(u).all(axis=1)
        valid = u[: len(u) if valid.all() else int(np.argmin(valid))]
        while True:
            with np.errstate(all="ignore"):  # what is not finite is a status
                reason = self.leap(self.model, self.scheme, self.place, self.rows, valid)
            if reason != FULL or self.rows.counts[TAKEN]:
                break
            self._make_room(2 * len(self.rows.contacts) + self.model.sizes.n_c)
        if (taken := int(self.rows.counts[TAKEN])) > 0:
            state = self._recorded(state, ends[: taken + 1], u[:taken], begun)
        # The step is refused before it is recorded, so that the trajectory ends before the impact.
        if reason == GAIN:
            last = slice(int(self.rows.ends[taken - 1]) if taken else 0, int(self.rows.counts[REFUSED]))
            hit, names = self.rows.contacts[last][self.rows.approach[last] < 0.0], self.system.mechanics.frames.names
            self.refused.append(f"t = {ends[taken]:.9g}: at {', '.join(names[c] for c in hit)}")
            return replace(state, status=Status.ENERGY_GAIN)
        if reason not in (RUNNING, FULL) or (reason == RUNNING and taken < len(u)):
            return replace(state, status=Status.NUMERICAL_ERROR)
        if self.leap is not leap:  # what is evaluated often becomes machine code
            before, after = self.functions.tapes()
            self.model = self.model._replace(before=before, after=after)
        return state

    def _recorded(self, state: TimeSteppingState, ends: np.ndarray, u: np.ndarray, begun: bool) -> TimeSteppingState:
        """Record the steps taken between times; return the last state."""
        rows, taken, t = self.rows, len(u), ends[:-1]
        looks = np.array([1.0 - weight_of(self.scheme, begun or k > 0) for k in range(taken)])
        self.record.add(t + looks * self.h, self.h, rows)
        self.unsolved.add(t, rows)
        states, starts = rows.x[:taken].copy(), [0, *rows.ends[:taken].tolist()]
        for k in np.flatnonzero(rows.impacts[:taken]).tolist():
            if starts[k + 1] - starts[k] <= MOST_IN_IMPACT:
                x = states[k - 1] if k else self.x[-1]
                self.impacts.append((float(t[k]), x, rows.contacts[starts[k] : starts[k + 1]].copy()))
        self.applied.extend(u)
        self.x.extend(states)
        return replace(
            state,
            t=float(ends[-1]),
            x=states[-1].copy(),
            contacts=starts[-1] - starts[-2],
            iterations=int(rows.sweeps[taken - 1]),
            complementarity=float(rows.measures[taken - 1, RESIDUAL]),
            infeasibility=float(rows.measures[taken - 1, PENETRATION]),
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

    def add(self, t: np.ndarray, rows: LeapRows) -> None:
        """Add steps from times (k,)."""
        measures, self.steps = rows.measures[: len(t)], self.steps + len(t)
        self.fastest = max(self.fastest, float(measures[:, FASTEST].max()))
        self.push = max(self.push, float(measures[:, PUSH].max()))
        residual = np.nan_to_num(measures[:, RESIDUAL], nan=0.0)
        self.count += int((residual > self.limits.tolerance).sum())
        worst = int(np.argmax(residual))
        if residual[worst] > max(self.worst, self.limits.tolerance):
            self.worst, self.when = float(residual[worst]), float(t[worst])

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
