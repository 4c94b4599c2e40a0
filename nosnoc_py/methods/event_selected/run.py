"""Simulation of event-selected systems: initial bits, chunks of the loop `kernel.advance`, messages, trajectory.

The loop runs in chunks, compiled or not. Between chunks the time limit and callbacks are checked; with a callback a
chunk is one segment. The loop returns numbers only: why it stopped is a code and a report, from which the message is
written here. Chunks are joined to a `record.Record`, and everything that a trajectory shows (events, series, dense
output, local errors, sensitivities) is computed from it after the simulation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from nosnoc_py.compiled import compiled, version_of
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.methods.event_selected import kernel, segments
from nosnoc_py.methods.event_selected.functions import Fields, fields_of
from nosnoc_py.methods.event_selected.kernel import LIVENESS, Buffers, Rules, State
from nosnoc_py.methods.event_selected.options import EventSelected
from nosnoc_py.methods.event_selected.record import Record, dense_output, local_error, record_of, step_too_long
from nosnoc_py.methods.event_selected.segments import NOISE_OF_GUARDS, Scheme, System
from nosnoc_py.motion.record import MotionRecord
from nosnoc_py.notices import COMPILING, notify
from nosnoc_py.simulation.common import SimulationTask, StepState, equal_steps
from nosnoc_py.solution import Event, RungeKuttaInterpolant, Series, Trajectory
from nosnoc_py.status import Status, asked_to_stop
from nosnoc_py.systems.event_selected import EventSelectedSystem
from nosnoc_py.tableaus import Tableau

Array = np.ndarray

CHUNK = 2000  # segments between two checks of the time limit
STATUS = {
    kernel.FINISHED: Status.SOLVED,
    kernel.NOT_LIVE: Status.NOT_EVENT_SELECTED,
    kernel.TOO_MANY: Status.ZENO,
    kernel.NOT_FINITE: Status.NUMERICAL_ERROR,
}
USER_STOPS = (Status.TIME_LIMIT, Status.STOPPED, Status.INTERRUPTED)
NAMES = 3  # most names listed in a message


@dataclass(frozen=True, eq=False, kw_only=True)
class EventSelectedState(StepState):
    """State of a simulation that callbacks receive after every segment.

    Attributes
    ----------
    mode : (m,)
        Bits from this time on.
    crossings : int
        Number of guards crossed so far.
    """

    mode: Array
    crossings: int


def run(system: EventSelectedSystem, method: EventSelected, task: SimulationTask) -> Trajectory:
    """Simulate an event-selected system; see `nosnoc_py.simulate`."""
    seconds = task.seconds
    step = method.step if task.steps is None else seconds / equal_steps(method, "step", task.steps, seconds)
    parameters = system.parameters(task.p)
    start = system.check_state(task.x0, parameters)
    fields = fields_of(system, method.compiled)
    with np.errstate(all="ignore"):  # what is not finite ends the simulation with a status
        mode = initial_mode(system, fields, method, start, parameters)
        walk = EventSelectedRun(system, fields, method, parameters, step, task.callback, task.deadline())
        walk.go(np.array(start), mode, seconds)
        return walk.trajectory(bool(task.sensitivities) or method.sensitivities)


def initial_mode(system: EventSelectedSystem, fields: Fields, method: EventSelected, x: Array, p: Array) -> Array:
    """Return the bits (m,) at the start: `method.initial_mode`, or 1 where h > 0.

    At h = 0 the bit is 0: a rising guard is crossed at once, an opening contact stays open.

    Raises
    ------
    ModelError
        If the bits contradict the state, or a guard is on its surface and does not rise.
    """
    values, names = fields.guards(x, p), system.guard_names
    # Rounding of the state moves a guard by |D h| |x| eps: smaller values have no sign.
    noise = NOISE_OF_GUARDS * np.abs(fields.gradients(x, p)) @ np.abs(x)
    if method.initial_mode is not None:
        if len(method.initial_mode) != len(names):
            raise OptionError(
                f"EventSelected: initial_mode: expected one bit per guard, {len(names)}, given "
                f"{len(method.initial_mode)}."
            )
        mode = np.array(method.initial_mode, dtype=float)
    else:
        mode = np.where(values[0] > noise[0], 1.0, 0.0)
        on_surface = np.flatnonzero(np.abs(values[0]) <= noise[0])
        speeds = fields.gradients(x, p)[0] @ np.asarray(fields.flow(x, mode, p)) if on_surface.size else np.zeros(0)
        for k in on_surface:
            opens = fields.returns[k] and speeds[k] < -LIVENESS
            if not (speeds[k] > LIVENESS or opens):
                raise ModelError(
                    f"guard {names[k]!r} is on its surface at the start and D h f = {speeds[k]:.3g}: it has to "
                    "increase where it is crossed; reverse its sign, or use ns.EventDriven or ns.FESD with an ns.PSS "
                    "if the motion slides on it."
                )
    # Row b of values belongs to bit b; with the bits of the start every function has to be below zero.
    live, uncertain = np.where(mode > 0.5, values[::-1], values)[0], np.where(mode > 0.5, noise[::-1], noise)[0]
    is_lost = (mode > 0.5) & ~fields.returns & (values[0] < -noise[0])
    for k in np.flatnonzero(is_lost | (live > uncertain)):
        # A bit without a way back has no `back`: there the function itself has fallen below zero.
        function = "back" if mode[k] and not is_lost[k] else "function"
        value = (values[0] if is_lost[k] else live)[k]
        raise ModelError(
            f"guard {names[k]!r}: its bit is {int(mode[k])} at the start, but its {function} is {value:.3g} there; "
            "give initial_mode with the other bit, or another start."
        )
    return mode


@lru_cache(maxsize=1)
def _compiled_loop() -> Callable[..., Any]:
    """Return the kernel loop, compiled once for all systems and cached on disk."""
    # The compilation takes half a minute without output.
    notify(COMPILING)
    # Examples fix the types alone, so that one compiled loop serves systems of every size.
    x, p = np.zeros(1), np.zeros(1)
    flow = compiled(lambda x, mode, p: x, examples=(x, x, p))
    rows = compiled(lambda x, p: np.zeros((2, 1)), examples=(x, p))
    row_gradients = compiled(lambda x, p: np.zeros((2, 1, 1)), examples=(x, p))
    functions = (flow, rows, row_gradients, p, np.zeros(1, dtype=bool))
    scheme, rules = Scheme(np.zeros((1, 1)), 1), Rules(1.0, 1.0, 1, True, 1)
    state, buffers = State(0.0, x, x, x, np.zeros((2, 1)), x, x, True, 1), buffers_for(1, 1, 1, 1)
    examples = (*functions, scheme, rules, state, 1.0, buffers, True)
    return compiled(kernel.versioned(version_of(segments, kernel)), examples=examples, cache=True)


def buffers_for(room: int, n_x: int, m: int, n_s: int) -> Buffers:
    """Allocate output buffers for `room` segments."""
    return Buffers(
        t=np.zeros(room),
        x=np.zeros((room, n_x)),
        h=np.zeros(room),
        slopes=np.zeros((room, n_s, n_x)),
        euler=np.zeros(room, dtype=bool),
        # Room for one more sweep with all guards: the loop tests the room before a segment, not within it.
        crossings=np.zeros((room + m, 3), dtype=np.int64),
        report=np.zeros(3),
    )


class EventSelectedRun:
    """One simulation, run in chunks."""

    def __init__(
        self,
        system: EventSelectedSystem,
        fields: Fields,
        method: EventSelected,
        p: Array,
        step: float,
        callback: Callable[[Any], Any] | None,
        deadline: float,
    ) -> None:
        self.system, self.fields, self.method, self.p = system, fields, method, np.array(p)
        self.callback, self.deadline = callback, deadline
        self.tableau: Tableau = method.tableau
        # First same as last: the final stage of a step is the slope at its end, which the next step needs anyway.
        closing = self.tableau.stiffly_accurate
        own = self.tableau.stages - int(closing)
        self.scheme = Scheme(np.vstack([self.tableau.a[:own, :own], self.tableau.b[:own]]), own)
        # Negative for "auto": the loop takes plain numbers.
        eps = -1.0 if method.eps == "auto" else float(method.eps)
        self.rules = Rules(step, eps, method.corrections, method.projection == "euler", method.max_events)
        self.status, self.message = Status.SOLVED, ""
        self.chunks: list[tuple[Array, ...]] = []
        self.crossed: list[Array] = []

    def go(self, x: Array, mode: Array, seconds: float) -> None:
        """Simulate until the end, a failure, the time limit or a stop by the callback."""
        f = self.fields
        advance = _compiled_loop() if f.compiled else kernel.advance
        # Plain arguments instead of a `System`: numba accepts no functions inside a tuple argument.
        arguments = (f.flow, f.rows, f.row_gradients, self.p, ~f.returns, self.scheme, self.rules)
        state = kernel.start_at(System(*arguments, f.compiled), x, mode)
        self.start, self.initial, self.end = state, mode, state
        buffers = self._buffers(seconds)
        nodes, sweeps, code = 0, 0, kernel.FULL
        while code == kernel.FULL:
            if time.monotonic() > self.deadline:
                self.status = Status.TIME_LIMIT
                return
            state, count, rows, code = advance(*arguments, state, seconds, buffers, f.compiled)
            # Copies: the buffers are filled again by the next chunk.
            self.chunks.append(tuple(array[:count].copy() for array in buffers[:5]))  # t, x, h, slopes, euler
            # Nodes and sweeps count from zero in every chunk: shifted to those of the whole motion.
            self.crossed.append(buffers.crossings[:rows] + np.array([nodes, 0, sweeps]))
            nodes, self.end = nodes + count, state
            # The last sweep of the chunk, plus one, because sweeps count from zero.
            sweeps += int(buffers.crossings[rows - 1, 2]) + 1 if rows else 0
            self.status = STATUS.get(code, Status.SOLVED)
            if count and self.callback is not None:
                # Copies for the user, who may keep the state or change it.
                t, x, bits = float(state.t), np.array(state.x), np.array(state.mode)
                view = EventSelectedState(
                    t=t, x=x, p=self.p, mode=bits, crossings=int(state.crossed), status=self.status
                )
                stopped = asked_to_stop(self.callback, view)
                # A failure in the same segment says more than the wish to stop.
                if stopped is not None and self.status.success:
                    self.status = stopped
                    return
        self.message = self._message(code, state, buffers.report)

    def _buffers(self, seconds: float) -> Buffers:
        expected = int(min(1.25 * seconds / self.rules.step + 50, CHUNK))  # every crossing adds a segment
        # Full buffers end a chunk: with room for one segment a callback sees every segment.
        room = 1 if self.callback is not None else expected
        return buffers_for(room, self.system.n_x, len(self.initial), self.tableau.stages)

    def _message(self, code: int, state: State, report: Array) -> str:
        """Return the reason for an early end, or an empty string."""
        if code == kernel.NOT_FINITE:
            return f"the flow or a guard is not finite in the step after t = {state.t:.9g}"
        if code == kernel.TOO_MANY:
            return (
                f"more than {self.method.max_events} crossings until t = {state.t:.9g}; raise max_events if there are"
            )
        return self._not_live(state, report) if code == kernel.NOT_LIVE else ""

    def _not_live(self, state: State, report: Array) -> str:
        k, before, after = int(report[0]), report[1], report[2]
        name, where = self.system.guard_names[k], f"at t = {state.t:.9g}"
        # NaN marks a permanent bit that lost its guard; there is no crossing and no rate after it.
        if np.isnan(after):
            return (
                f"guard {name!r} falls below zero again {where}, D h f = {before:.3g}, and its bit has no way back: "
                "reverse its sign, or give it a `back`"
            )
        # Both speeds positive: only the unit of the guard makes them too small.
        slow = "; where its values are tiny, write it in smaller units" if min(before, after) > 0.0 else ""
        return (
            f"guard {name!r} is not crossed with speed {where}: D h f = {before:.3g} before and {after:.3g} after the "
            f"crossing, both have to be above liveness = {LIVENESS:g}{slow}; reverse its sign, or use "
            "an ns.PSS with ns.FESD or ns.EventDriven if the motion slides there"
        )

    def _status_and_notes(self, errors: Series | None, record: Record) -> tuple[Status, list[str]]:
        """Return status and notes; steps that are too long come first, as they may cause the other failures."""
        status, notes = self.status, [self.message]
        inaccuracy = "" if errors is None else step_too_long(errors, record, self.method.tolerance)
        if inaccuracy and status not in USER_STOPS:
            status, notes = Status.INACCURATE, [inaccuracy, *notes]
        if self.method.initial_mode is None:
            notes.append(_bits_set_at_start(self.system.guard_names, self.initial))
        return status, notes

    def trajectory(self, sensitivities: bool) -> Trajectory:
        """Return the trajectory up to the last node."""
        system = self.system
        record = record_of(self.start.x, self.initial, self.tableau.stages, self.chunks, self.crossed)
        events, kinds, times = [], system.event_kinds, record.t.tolist()
        for crossing in record.crossings:
            for k in crossing.guards.tolist():
                kind = kinds[k][int(crossing.before[k])]
                events.append(Event(times[crossing.node], system.guard_names[k], kind))
        sensitivity = None
        if sensitivities:
            from nosnoc_py.methods.event_selected.sensitivity import sensitivity_of

            sensitivity = sensitivity_of(system, self.fields, record, self.tableau, tuple(events), self.p)
        errors = local_error(record, self.tableau, system.nominal["x"])
        status, notes = self._status_and_notes(errors, record)
        motion = MotionRecord(
            t=record.t,
            x=record.x,
            interpolant=self._interpolant(record),
            events=tuple(events),
            series={**_series(system.guard_names, record), **({} if errors is None else {"local_error": errors})},
        )
        control = record.t[[0, -1]], np.zeros((1, 0))
        return replace(motion.trajectory(system, self.p, control, status, notes), sensitivity=sensitivity)

    def _interpolant(self, record: Record) -> RungeKuttaInterpolant:
        # A motion that ended at its start has one node and no segment.
        if not len(record.h):
            return RungeKuttaInterpolant.linear(record.t, record.x)
        # The first slope of a segment is the last one of the segment before, unless a crossing changed the mode at the
        # node.
        ends = np.concatenate([record.slopes[1:, 0], record.slopes[:1, 0]])
        if self.scheme.own == self.tableau.stages:  # the scheme has no last stage at the end of the step
            for node in {len(record.h), *(crossing.node for crossing in record.crossings)} - {0}:
                ends[node - 1] = self.fields.flow(record.x[node], record.bits(node - 1), self.p)
        return dense_output(self.tableau, record, ends)


def _bits_set_at_start(names: tuple[str, ...], mode: Array) -> str:
    """List the bits set at the start; a guard with the wrong sign becomes visible there."""
    set_names = [name for name, bit in zip(names, mode, strict=True) if bit]
    more = f" and {len(set_names) - NAMES} more" if len(set_names) > NAMES else ""
    return f"set at the start: {', '.join(set_names[:NAMES])}{more}" if set_names else ""


def _series(names: tuple[str, ...], record: Record) -> dict[str, Series]:
    """Return the bits over time as step functions: the time of a change occurs twice."""
    changes: list[list[float]] = [[] for _ in names]
    t = record.t.tolist()
    for crossing in record.crossings:
        for k in crossing.guards.tolist():
            changes[k] += [t[crossing.node], t[crossing.node]]
    series = {}
    for name, first, times in zip(names, record.first.tolist(), changes, strict=True):
        # Every change of the bit has two entries, before and after, at the same time.
        bits = [(first + i // 2) % 2 for i in range(len(times) + 2)]
        series[f"mode[{name}]"] = Series(np.array([t[0], *times, t[-1]]), np.array(bits, dtype=float))
    return series
