"""Starts from the states of a guess: demonstrations, motions of other tools, keyframes.

States obey no law of the problem, and often come without controls, so that no simulation follows them. But they show
where contacts are: one is closed between two given states that both touch, and around a single one that does, unless it
bounces there. Lines between far postures leave a surface on which both stand; so states in between say nothing. The
motion with its sequence is a `Proposal`. A second one is the motion that springs in place of contacts make of it, from
whose forces a sequence is read (`compliant`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from nosnoc_py.search.compliant import CREEPS, SLIPS, CompliantProgram, has_springs
from nosnoc_py.search.contact_steps import SHORT, contact_modes, lasting, proposal_of
from nosnoc_py.search.stances import Proposal, drawn_motion
from nosnoc_py.search.starts import StartTask
from nosnoc_py.search.ways import velocity_of
from nosnoc_py.sequences.refinement import laws_of, motion_of
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.controls import control_of_guess, merged, state_guess
from nosnoc_py.systems.named_guesses import DrawnCourses
from nosnoc_py.systems.quaternions import unit_states

Array = np.ndarray
# A contact is closed below this fraction of its length, and slips by the speeds of springs as wide as this fraction.
TOUCHES = 0.01
# Least number of given states of a motion whose single steps are left out, as they may be noise.
MANY = 20


def guessed(task: StartTask, guess: Any, time_limit: float) -> Iterator[Trajectory | Proposal | None]:
    """Yield what is tried of a guess: its states, if they move, and the simulation of its control.

    Raises
    ------
    OptionError, TranscriptionError
        At once, for a guess of another problem.
    """
    drawn = DrawnStates.of(task, guess) if isinstance(guess, Mapping) and guess.get("x") is not None else None
    # Impacts of bodies that bounce may lie between the given states: the simulation of the control shows them, too.
    s = task.ocp.system
    bounces = drawn is not None and (not s.n_u or any(contact.bounces for contact in s.contacts))
    simulated = [motion_of(task.ocp, guess, time_limit)] if drawn is None or drawn.driven or bounces else []
    return chain([] if drawn is None else drawn.proposals(), simulated)


@dataclass(frozen=True, eq=False, kw_only=True)
class DrawnStates:
    """States of a guess with lines between them.

    Attributes
    ----------
    task : StartTask
    times : (m,)
        Times at which contacts are looked at [s], those of the given states.
    states : (m, n_x)
    grid, between : (n,), (n, n_x)
        Equal steps of the whole horizon, with the states on the lines.
    control : (n - 1, n_u)
        Controls of the steps; those that balance the forces at x0 if the guess has none.
    driven : bool
        True if the guess has controls.
    """

    task: StartTask
    times: Array
    states: Array
    grid: Array
    between: Array
    control: Array
    driven: bool

    @classmethod
    def of(cls, task: StartTask, guess: Mapping[str, Any]) -> DrawnStates | None:
        """Return the states of a guess; None if they do not move, or the problem has no contacts."""
        ocp, T = task.ocp, float(task.ocp.horizon)
        s, steps = ocp.system, CompliantProgram.steps
        control, state = control_of_guess(ocp, guess), state_guess(guess["x"], len(ocp.system.state_names), T)
        grid = np.linspace(0.0, T, steps + 1)
        x, given = guess["x"], np.zeros(0)
        if isinstance(x, DrawnCourses):
            given = np.array(x.times)
        elif not callable(x):
            given = np.linspace(0.0, T, len(_rows(x)))
        times = grid
        if 1 < len(given) <= steps:
            # Times that differ by rounding are the same.
            times = np.array([0.0, T])
            for time in given:
                times = merged(times, np.array([time]))
        drawn = [np.array([state(t) for t in at]) for at in (times, grid)]
        if not s.mechanical or not s.contacts or task.undefined:
            return None
        u = np.array([control(t) for t in 0.5 * (grid[1:] + grid[:-1])]).reshape(steps, s.n_u)
        states, between = (_as_states(task, at, x) for at, x in zip((times, grid), drawn, strict=True))
        if not (np.ptp(between[:, s.at_q], axis=0) > 0.0).any():
            return None
        driven = bool(u.any())
        return cls(
            task=task,
            times=times,
            states=states,
            grid=grid,
            between=between,
            control=u if driven else np.tile(task.rest, (steps, 1)),
            driven=driven,
        )

    def proposals(self) -> Iterator[Proposal | None]:
        """Yield the motion with the sequence of its states, then with the one of springs that follow it."""
        program = CompliantProgram.of(self.task)
        yield self._read(program)
        if has_springs(self.task):
            yield program.proposal(self.between, self.control)

    def _read(self, program: CompliantProgram) -> Proposal:
        """Return the drawn motion with the sequence of contacts that its states show."""
        task, s, p = self.task, self.task.ocp.system, np.asarray(self.task.ocp.p, float)
        motion = drawn_motion(task, self.grid, self.between, (self.grid, self.control), p)
        laws = laws_of(task.ocp, motion)
        steps, middles = np.diff(self.times), 0.5 * (self.states[1:] + self.states[:-1])
        middles = unit_states(middles, s.unit_parts)
        middles[:, s.at_v] = _slopes(task, self.times, self.states)
        rates = np.asarray(s.kinematics(middles, 0.0, p).rates)
        gaps = np.asarray(s.kinematics(self.states, 0.0, p).gaps).reshape(len(self.times), -1)
        near = gaps < TOUCHES * program.lengths
        # Slow beside the motion that is drawn, whatever speeds the problem may have.
        fast = SLIPS * TOUCHES * min(program.creep, CREEPS * float(np.abs(middles[:, s.at_v]).max()))
        slow = np.abs(np.diff(gaps, axis=0) / steps[:, None]) < fast
        closed = near[1:] & near[:-1] & slow
        slips = np.column_stack(
            [np.linalg.norm(rates[:, laws.rows_of(c)], axis=1) > fast for c in range(gaps.shape[1])]
        )
        many = len(steps) >= MANY
        if many:
            closed, slips = (np.apply_along_axis(lasting, 0, each) for each in (closed, slips))
        # What touches in one state only: impacts, or half of the steps beside it, in which it sticks.
        beside = np.zeros((1, closed.shape[1]), bool)
        alone = near & ~np.vstack([closed, beside]) & ~np.vstack([beside, closed])
        inside = np.zeros(len(self.times), bool)
        inside[1:-1] = True
        bouncing = np.array([contact.bounces for contact in s.contacts])
        hits = alone & bouncing & inside[:, None]
        # Between two states a body turned round that would have touched in between.
        at_states = np.asarray(s.kinematics(self.states, 0.0, p).rates)[:, : gaps.shape[1]]
        before, after = at_states[:-1] * steps[:, None], at_states[1:] * steps[:, None]
        turned = (before < 0.0) & (after > 0.0) & ((gaps[:-1] + before < 0.0) | (gaps[1:] - after < 0.0))
        turned &= bouncing & ~closed
        hits[:-1] &= ~turned
        hits[1:] &= ~turned
        holds = alone & ~bouncing if not many else np.zeros_like(alone)
        halves = [np.stack([closed | holds[:-1], closed | holds[1:]], axis=1), np.stack([slips & closed] * 2, axis=1)]
        closed, slips = (each.reshape(2 * len(steps), -1) for each in halves)
        twice = np.repeat(np.arange(len(steps)), 2)
        words = contact_modes(
            laws, closed, slips, rates[twice], [laws.soft_modes(middles[k : k + 1], p) for k in twice.tolist()]
        )
        grid = np.sort(np.append(self.times, self.times[:-1] + 0.5 * steps))
        bounces = [(float(self.times[k]), s.contacts[c].name) for k, c in np.argwhere(hits).tolist()]
        for k, c in np.argwhere(turned).tolist():
            share = min(-gaps[k, c] / before[k, c], max(0.0, 1.0 - gaps[k + 1, c] / after[k, c]))
            bounces.append((float(self.times[k] + share * steps[k]), s.contacts[c].name))
        bounces.sort()
        return proposal_of(laws, motion, grid, words, 2 * SHORT if many else 1, bounces)


def _rows(given: Any) -> Array:
    """Return the rows of states that are no function; a single state is one row."""
    return np.atleast_2d(np.asarray(given, dtype=float))


def _as_states(task: StartTask, times: Array, x: Array) -> Array:
    """Return states with unit quaternions, the time, the initial state of the problem, and slopes for no velocities."""
    s, x = task.ocp.system, unit_states(x, task.ocp.system.unit_parts)
    if not s.autonomous:
        x[:, -1] = task.x0[-1] + times
    if not (x[:, s.at_v] != task.x0[s.at_v]).any() or not x[:, s.at_v].any():
        slopes = _slopes(task, times, x)
        # Those on both sides of an inner state.
        x[:, s.at_v] = 0.5 * (np.vstack([slopes[:1], slopes]) + np.vstack([slopes, slopes[-1:]]))
    if task.ocp.x0 is not None:
        x[0] = task.x0
    return x


def _slopes(task: StartTask, times: Array, x: Array) -> Array:
    """Return the velocities (m - 1, n_v) of straight lines between states (m, n_x): N(q) v = q'."""
    s, p = task.ocp.system, np.asarray(task.ocp.p, float)
    change = np.diff(x[:, s.at_q], axis=0) / np.diff(times)[:, None]
    middles = unit_states(0.5 * (x[1:] + x[:-1]), s.unit_parts)
    return np.array([velocity_of(s, x, rate, p) for x, rate in zip(middles, change, strict=True)])
