"""Simulation of windows of a solution from its own states, and comparison of events one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from nosnoc_py.contact_problems.modes import FREE, STICK
from nosnoc_py.simulation.certification.memory import modes_at
from nosnoc_py.simulation.certification.readings import states_of
from nosnoc_py.simulation.event_driven.filippov.model import Filippov
from nosnoc_py.simulation.event_driven.history import EventDrivenSimulator, SimulationResult
from nosnoc_py.simulation.event_driven.hybrid import HybridModel
from nosnoc_py.solution import Event, Solution, Trajectory
from nosnoc_py.solution.certificate import EventPair, Window
from nosnoc_py.solution.interpolant import Side
from nosnoc_py.systems.controls import Control
from nosnoc_py.tolerances import TOUCHING_SOLVED

SIDES: tuple[Side, Side] = ("-", "+")
# Events this close to an end of a window (as a fraction of it) are not compared: they may happen on its other side.
EDGE = 0.02
# Events further apart than this fraction of a window are different events.
OTHER_EVENT = 0.25
# Neighbouring starts that are tried for a window, and how far such a motion may end from the solution.
NEIGHBOURS, NEIGHBOUR_ERROR = 8, 1e-3
# A contact counts as closed at the start of a window if it is closed at these fractions of it.
AFTERWARDS = (1e-3, 1e-2, 5e-2)


@dataclass(frozen=True, eq=False)
class WindowRun:
    """Window with its simulation.

    Attributes
    ----------
    window : Window
    history : SimulationResult
    differing : frozenset of str
        Kinds of events that differ.
    lone : float
        Largest impulse of an impact without a partner [N s].
    share : float
        The defect relative to the sizes of the states.
    """

    window: Window
    history: SimulationResult
    differing: frozenset[str] = frozenset()
    lone: float = 0.0
    share: float = 0.0


@dataclass(frozen=True, eq=False)
class WindowRuns:
    """Simulations of windows of a solution from its own states, under its control."""

    simulator: EventDrivenSimulator
    solution: Solution
    control: Control
    deadline: float
    sizes: np.ndarray

    def between(self, edges: np.ndarray) -> tuple[WindowRun, ...]:
        """Return the runs of all windows between boundaries [s]."""
        return tuple(self._run_window(*pair) for pair in pairwise(edges.tolist()))

    def neighbour_agrees(self, window: Window, size: float) -> bool:
        """Return True if a start that differs by `size` (absolute and relative) gives the events of the solution.

        The difference in a window is then one of rounding: a touch without speed, a threshold that is just reached, or
        a surface that may be left at any time.
        """
        # A fixed seed: a certificate has to be reproducible.
        x, random = state_at(self.solution, window.start, "+"), np.random.default_rng(7)
        for _ in range(NEIGHBOURS):
            away = size * (self.sizes + np.abs(x)) * random.normal(size=x.size)
            near = self._run_window(window.start, window.end, away)
            if near.window.events_agree and near.share <= NEIGHBOUR_ERROR:
                return True
        return False

    def _run_window(self, start: float, end: float, away: np.ndarray | float = 0.0) -> WindowRun:
        """Simulate a window, from a state moved by `away`."""
        solution, x = self.solution, state_at(self.solution, start, "+") + away
        modes, deadline = modes_from(self.simulator, solution, solution.p, start, end), self.deadline
        # Contacts that the solution keeps closed stay closed, however large their rates: these are errors of the
        # solution.
        history = self.simulator.run(
            x, self.control, solution.p, start=start, end=end, modes=modes, drift=np.inf, deadline=deadline
        )
        inside = self._inside(history, start, end)
        lone = [event for pair in inside if pair.lone for event in (pair.claimed, pair.found) if event is not None]
        impulses = [event.impulse or 0.0 for event in lone if event.kind == "impact"]
        differing = [pair for pair in inside if pair.lone or abs(pair.delay) > OTHER_EVENT * (end - start)]
        kinds = frozenset(event.kind for pair in differing for event in (pair.claimed, pair.found) if event is not None)
        error = _defects(solution, history, end)
        window = _window(solution, history, start, end, inside, error)
        share = np.inf if window.stopped else float((error / self.sizes).max())
        return WindowRun(window, history, kinds, max(impulses, default=0.0), share)

    @cached_property
    def _claimed(self) -> list[Event]:
        """Events of the solution, by the time since its start."""
        return [replace(e, time=e.time - self.solution.t0) for e in self.solution.events]

    def _inside(self, history: SimulationResult, start: float, end: float) -> list[EventPair]:
        """Return pairs of events in a window without those at its ends, which may belong to its neighbours."""
        pairs = pair_events([e for e in self._claimed if start <= e.time <= end], history.events)
        edge = EDGE * (end - start)
        return [pair for pair in pairs if start + edge < pair.event.time < end - edge]


def state_at(solution: Trajectory, t: float, side: Side) -> np.ndarray:
    """Return the solution's state at a time since its start; beyond the end of a failed one its last state."""
    return states_at(solution, np.array([t]), side)[0]


def states_at(solution: Trajectory, t: np.ndarray, side: Side) -> np.ndarray:
    """Return the states (m, n_x) at times (m,), as `state_at`."""
    return states_of(solution, np.minimum(t, solution.duration) + solution.t0, side)


def modes_from(
    simulator: EventDrivenSimulator, solution: Trajectory, p: np.ndarray, start: float, end: float
) -> tuple[int, ...]:
    """Return the modes at the start of a window: closed contacts, or surfaces the motion stays on."""
    if isinstance(simulator.model, HybridModel):
        return simulator.model.modes(state_at(solution, start, "+")[None], p, TOUCHING_SOLVED)
    times = np.array([start, *(start + share * (end - start) for share in AFTERWARDS)])
    states = states_at(solution, times, "+")
    if isinstance(simulator.model, Filippov):
        modes = simulator.model.modes(states, p, TOUCHING_SOLVED)
        remembered = modes_at(simulator.system, solution, p, np.array([start]))[0]
        return simulator.model.remembering(modes, remembered)
    gaps = np.array([simulator.mechanics.touching(x, p)[0] for x in states])
    shut = np.all(gaps <= TOUCHING_SOLVED * simulator.scales.length, axis=0)
    return tuple(STICK if closed else FREE for closed in shut.tolist())


def _window(
    solution: Solution,
    history: SimulationResult,
    start: float,
    end: float,
    inside: Sequence[EventPair],
    error: np.ndarray,
) -> Window:
    """Return the comparison of a window with its simulation, which misses the end by `error` (n_x,)."""
    stopped = "" if history.status.success else f"the simulation stops at {history.t:.6g} s: {history.status}"
    time, difference = (np.nan, "") if stopped else first_difference(inside, OTHER_EVENT * (end - start))
    return Window(
        start=start,
        end=end,
        defect=np.inf if stopped else float(error.max()),
        state=solution.state_names[int(np.argmax(error))],
        events_agree=not (difference or stopped),
        time=time,
        difference=difference,
        stopped=stopped,
    )


def _defects(solution: Solution, history: SimulationResult, end: float) -> np.ndarray:
    """Return the errors of the states at the end of a window (n_x,), from the nearer limit where the solution jumps."""
    return min((np.abs(history.x - state_at(solution, end, side)) for side in SIDES), key=np.max)


def first_difference(pairs: Sequence[EventPair], late: float) -> tuple[float, str]:
    """Return time and description of the first event without a partner or later by `late` [s]; (NaN, "") for none."""
    for pair in sorted(pairs, key=lambda pair: pair.event.time):
        time, words = pair.event.time, f"{pair.event.kind} {pair.event.name} at {pair.event.time:.6g} s"
        if pair.lone:
            return time, f"{words} {'does not happen' if pair.found is None else 'is missing'}"
        if abs(pair.delay) > late:
            return time, f"{words} comes {abs(pair.delay):.3g} s {'later' if pair.delay > 0 else 'earlier'}"
    return np.nan, ""


def pair_events(claimed: Sequence[Event], found: Sequence[Event]) -> tuple[EventPair, ...]:
    """Return pairs of events of the same kind and name, nearest in time; events without a partner stay alone."""
    pairs = []
    for key in {(e.kind, e.name): None for e in (*claimed, *found)}:
        mine, theirs = ([e for e in events if (e.kind, e.name) == key] for events in (claimed, found))
        matched = _matched(np.array([e.time for e in mine]), np.array([e.time for e in theirs]))
        pairs += [EventPair(claimed=mine[i], found=theirs[j]) for i, j in matched]
        pairs += [EventPair(claimed=e, found=None) for i, e in enumerate(mine) if i not in {i for i, _ in matched}]
        pairs += [EventPair(claimed=None, found=e) for j, e in enumerate(theirs) if j not in {j for _, j in matched}]
    return tuple(sorted(pairs, key=lambda pair: pair.event.time))


def _matched(mine: np.ndarray, theirs: np.ndarray) -> list[tuple[int, int]]:
    """Return pairs of numbers of times with the least sum of distances; nearest ones in turn could take one twice."""
    if not (mine.size and theirs.size):
        return []
    if mine.size == theirs.size:  # on a line the order is such a matching
        return [(int(i), int(j)) for i, j in zip(np.argsort(mine), np.argsort(theirs), strict=True)]
    from scipy.optimize import linear_sum_assignment  # not paid for where it is not needed

    pairs = zip(*linear_sum_assignment(np.abs(mine[:, None] - theirs)), strict=True)
    return [(int(i), int(j)) for i, j in pairs]
