"""Work of the search that is done ahead, by helper processes and by this one while it waits for them.

Which sequence is tried next depends on all results before, so the search itself stays one sequence of turns. But the
neighbours of a motion are a list that is known beforehand, and are half or more of the work: helpers solve those that
come next, while this process tries starts and refines. While it waits for an answer it prepares the starts of coming
turns: the next one of a kind, its motion, and the program of its sequence.

What was done ahead is used only if this process would have computed the same numbers in its turn: nothing was cut by a
limit of work, and the cutoff of the objective is the same. Otherwise it is computed again. Its work counts
when it is used. So any number of helpers gives the candidates of one process, and no answer is used in the order of its
arrival. (One limit is left: a start that takes more than the work of its turn is not cut at the same place.)
"""

from __future__ import annotations

import contextvars
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from nosnoc_py.attempts.work import count, counted
from nosnoc_py.ocp import OCP
from nosnoc_py.processes import Helper, can_fork, helpers
from nosnoc_py.search.kinds import STARTS
from nosnoc_py.search.prepared import END, Cost, Peekable, PreparedStream
from nosnoc_py.search.starts import Start
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.multi_phase import MultiPhase
from nosnoc_py.sequences.readout import PhasePoint
from nosnoc_py.sequences.refinement import Cutoff, PhaseAttempt, Refinement, start_of_motion
from nosnoc_py.solution import Sequence, Solution, Trajectory

if TYPE_CHECKING:
    from nosnoc_py.search.state import SearchState, SequenceNode

# Number of tasks that a helper has at a time: about as many neighbours as a start takes time here.
DEPTH = 3
# Longest wait [s] before limits of time are looked at again.
POLL = 0.5
# Kinds of start that are prepared, those of the highest priority, and pieces of their work without a start.
PREPARED, PIECES = 3, 4
# Attributes of a point and of its program that the search reads, computed where the program is.
CACHED = ("sequence", "objective_at_start", "is_inside_mode", "p", "lengths", "edges")
OF_PROGRAM = ("plan", "at_end", "tolerance")
# Numbers by which the laws of contacts are scaled; other laws have none.
SCALES = ("rest_velocity", "force", "speed", "length")


@dataclass(frozen=True, eq=False, kw_only=True)
class NeighbourTask:
    """A neighbour to be solved: everything but the problem, which the helper has."""

    sequence: Sequence
    motion: Solution
    scales: tuple[float, ...]
    cutoff: Cutoff
    limit: float


@dataclass(frozen=True, eq=False, kw_only=True)
class NeighbourAnswer:
    """Attempt of a helper as numbers: the fields of its point, and what the search reads of the point's program."""

    point: dict[str, Any]
    cached: dict[str, Any]
    program: dict[str, Any]
    rest: dict[str, Any]
    cost: Cost


class SolvedElsewhere:
    """Program of a point that a helper has solved: built only if more is asked of it than the search reads.

    It is built by solving once more, outside of all limits of work: that gives the same program.
    """

    def __init__(self, again: Callable[[], PhaseAttempt | None], **known: Any) -> None:
        self._again = again
        self.__dict__.update(known)

    @cached_property
    def _program(self) -> Any:
        attempt = contextvars.Context().run(self._again)
        assert attempt is not None
        return attempt.point.program

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


class WorkAhead:
    """Helpers of one search, and what this process has prepared.

    Parameters
    ----------
    search : Search
    ocp : OCP
    method : MultiPhase
        Coarse program.
    """

    def __init__(self, search: Any, ocp: OCP, method: MultiPhase) -> None:
        self.search, self.ocp = search, ocp
        self.method, self.penalised = method.replace(penalised=False), method.replace(penalised=True)
        self.motions: dict[int, tuple[Any, Trajectory, float]] = {}  # by the identity of a start
        self.attempts: dict[int, tuple[Trajectory, PhaseAttempt | None, Cost | None]] = {}  # of a motion
        self.helpers: list[Helper] = []
        self.deadline = np.inf  # of what this process does ahead; helpers are ended with the search
        self.node: SequenceNode | None = None  # of the tasks that were handed out last
        # By the identity of a sequence, which the task holds: its helper, and the number by which that answers.
        self.tasks: dict[int, tuple[NeighbourTask, Helper, int]] = {}
        self.answers: dict[int, NeighbourAnswer | None] = {}
        self.serial, self.numbered = itertools.count(), dict[int, int]()
        # In a helper: laws are recognised by their identity, and have caches of their own.
        self.laws = lru_cache(maxsize=64)(
            lambda kind, given: kind(ocp.system, **dict(zip(SCALES, given, strict=False)))
        )

    # --- in this process ---

    def hand_out(self, node: SequenceNode | None, state: SearchState, cutoff: Cutoff, limit: float) -> None:
        """Give the next neighbours of a node to the helpers that have too little to do."""
        self._collect(0.0)
        if node is None or not self.helpers or not isinstance(node.moves, Peekable):
            return
        if node is not self.node:
            self.node = node
            for helper in self.helpers:
                helper.forget()
        load = dict.fromkeys(self.helpers, 0)
        for key, (_, helper, _) in self.tasks.items():
            load[helper] += key not in self.answers
        for task in self._next_tasks(node, state, cutoff, limit):
            helper = min(self.helpers, key=load.__getitem__)
            if load[helper] >= DEPTH:
                return
            helper.send(self._register(task, helper), (type(node.laws), task))
            load[helper] += 1

    def _register(self, task: NeighbourTask, helper: Helper) -> int:
        """Return the number of a task. It is never used again, as answers may come after a task was given up."""
        number = next(self.serial)
        self.numbered[number] = id(task.sequence)
        self.tasks[id(task.sequence)] = task, helper, number
        return number

    def _next_tasks(
        self, node: SequenceNode, state: SearchState, cutoff: Cutoff, limit: float
    ) -> Iterator[NeighbourTask]:
        """Yield the neighbours of a node that nobody has begun."""
        scales = [getattr(node.laws, name) for name in SCALES] if isinstance(node.laws, ContactLaws) else []
        fixed: dict[str, Any] = {
            "motion": node.attempt.solution,
            "scales": tuple(scales),
            "cutoff": cutoff,
            "limit": limit,
        }
        assert isinstance(node.moves, Peekable)
        for sequence in node.moves.peek():
            if id(sequence) not in self.tasks and state.is_worth_trying(sequence):
                yield NeighbourTask(sequence=sequence, **fixed)

    def solve_here(self, node: SequenceNode, state: SearchState, task: NeighbourTask) -> bool:
        """Solve a neighbour that nobody has begun, as a helper would; return False if there is none."""
        following = next(self._next_tasks(node, state, task.cutoff, task.limit), None)
        if following is None:
            return False
        self.deadline = state.work.deadline
        self._register(following, self.tasks[id(task.sequence)][1])
        self.answers[id(following.sequence)] = self.answer((type(node.laws), following))
        return True

    def take(self, state: SearchState, node: SequenceNode, sequence: Sequence, cutoff: Cutoff) -> PhaseAttempt | None:
        """Return the attempt at a neighbour; None if no helper has solved it as this process would."""
        key = id(sequence)
        if key not in self.tasks:
            return None
        while key in self.tasks and key not in self.answers and state.work.seconds_left() > 0.0:
            self._collect(0.0)
            if key in self.answers or key not in self.tasks:
                break
            outside = contextvars.Context()
            if outside.run(self.prepare, state) or outside.run(self.solve_here, node, state, self.tasks[key][0]):
                continue
            self._collect(POLL, self.tasks[key][1])
        task, *_ = self.tasks.pop(key, (None,))
        answer = self.answers.pop(key, None)
        if task is None or answer is None or not answer.cost.holds(cutoff):
            return None
        answer.cost.pay(state.work.log)
        return self._attempt(answer, node, task)

    # --- starts, in this process ---

    def prepare(self, state: SearchState) -> bool:
        """Do a piece of the work of a coming turn; return False if there is none."""
        kinds = sorted((kind for kind in state.streams if kind in self.search.starts), key=state.priority, reverse=True)
        for kind in kinds[:PREPARED]:
            stream, limit = state.streams[kind], self.search._work_of_turn(state, kind)
            if not isinstance(stream, PreparedStream):
                continue
            start = stream.start
            if start is None and len(stream.ready) < PIECES:
                stream.prepare(limit)
                return True
            if start is None or start is END:
                continue
            if isinstance(start, Start) and id(start) not in self.motions:
                with counted(limit) as account:
                    motion = state.task.motion(start, state.work.seconds_left())
                self.motions[id(start)] = start, motion, account.total
                return True
            motion = self.motions[id(start)][1] if isinstance(start, Start) else start.motion
            if id(motion) not in self.attempts:
                self.attempts[id(motion)] = motion, *self._prepared(state, kind, start, motion, limit)
                return True
        return False

    def _prepared(
        self, state: SearchState, kind: str, start: Any, motion: Trajectory, limit: float
    ) -> tuple[PhaseAttempt | None, Cost | None]:
        """Return the attempt at the program of a start, and its cost; None if it would not be solved now."""
        given = getattr(start, "p", None), getattr(start, "sequence", None)
        laws, sequence, begin = self.search._program_of(state, motion, *given)
        if not self.search._is_new(state, kind, sequence, motion):
            return None, None
        work, cutoff = self._refinement(self.penalised, state.work.deadline), state.cutoff(kind)
        with counted(limit) as account:
            attempt = self.search._solve(work, laws, sequence, begin, cutoff)
        if attempt is None or account.left <= 0.0:
            return None, None
        return attempt, Cost(work=account.total, log=tuple(work.log), cutoff=cutoff, limit=limit)

    def _refinement(self, method: MultiPhase, deadline: float = np.inf) -> Refinement:
        """Return a refinement with a log of its own."""
        return Refinement(method, self.ocp, None, time.monotonic(), deadline)

    def motion(self, state: SearchState, start: Any) -> Trajectory:
        """Return the motion of a start."""
        known = self.motions.pop(id(start), None)
        if known is None:
            return state.task.motion(start, state.work.seconds_left())
        count(known[2])
        return known[1]

    def attempt_of(self, state: SearchState, motion: Trajectory, cutoff: Cutoff) -> PhaseAttempt | None:
        """Return the attempt at the program of a motion that was made ahead; None if there is none to be used."""
        _, attempt, cost = self.attempts.pop(id(motion), (None, None, None))
        if attempt is None or cost is None or not cost.holds(cutoff):
            return None
        cost.pay(state.work.log)
        return attempt

    def _collect(self, timeout: float, helper: Helper | None = None) -> None:
        """Read the answers that are there; of one helper after this time [s] at most."""
        for each in (helper,) if helper is not None else tuple(self.helpers):
            try:
                for number, success, value in each.answers(timeout):
                    key = self.numbered.pop(number)
                    if key not in self.tasks or self.tasks[key][2] != number:  # given up
                        continue
                    if success or value:
                        self.answers[key] = value if success else None
                    else:  # forgotten
                        del self.tasks[key]
            except EOFError:  # it has died: its tasks are solved here
                self.helpers.remove(each)
                for key in [key for key, (_, helper, _) in self.tasks.items() if helper is each]:
                    del self.tasks[key]
                    self.answers.pop(key, None)

    def _attempt(self, answer: NeighbourAnswer, node: SequenceNode, task: NeighbourTask) -> PhaseAttempt:
        """Return the attempt with the laws of this process."""

        def again() -> PhaseAttempt | None:
            start = start_of_motion(self.ocp, task.sequence, task.motion)
            work = self._refinement(self.method)
            attempt: PhaseAttempt | None = self.search._solve(work, node.laws, task.sequence, start, task.cutoff)
            return attempt

        program: Any = SolvedElsewhere(again, laws=node.laws, **answer.program)
        point = PhasePoint(program=program, **answer.point)
        vars(point).update(answer.cached)
        return PhaseAttempt(point=point, **answer.rest)

    # --- in a helper ---

    def answer(self, order: tuple[type, NeighbourTask]) -> NeighbourAnswer | None:
        """Return the answer to a task; None if it was cut by its limit of work."""
        kind, task = order
        work = self._refinement(self.method, self.deadline)
        start = start_of_motion(self.ocp, task.sequence, task.motion)
        with counted(task.limit) as account:
            attempt = self.search._solve(work, self.laws(kind, task.scales), task.sequence, start, task.cutoff)
        if attempt is None or account.left <= 0.0:
            return None
        point = attempt.point
        return NeighbourAnswer(
            point={each.name: getattr(point, each.name) for each in fields(point) if each.name != "program"},
            cached={name: getattr(point, name) for name in CACHED},
            program={name: getattr(point.program, name) for name in OF_PROGRAM},
            rest={each.name: getattr(attempt, each.name) for each in fields(attempt) if each.name != "point"},
            cost=Cost(work=account.total, log=tuple(work.log), cutoff=task.cutoff, limit=task.limit),
        )


@contextmanager
def working_ahead(search: Any, state: SearchState) -> Iterator[SearchState]:
    """Yield the state with the helpers of a search, which end with this block; with one worker the state itself."""
    if search.workers <= 1 or not can_fork():
        yield state
        return
    ahead = WorkAhead(search, state.task.ocp, state.work.method)
    with helpers(ahead.answer, search.workers) as ahead.helpers:
        streams = {kind: PreparedStream(each) if kind in STARTS else each for kind, each in state.streams.items()}
        yield replace(state, ahead=ahead, streams=streams)
