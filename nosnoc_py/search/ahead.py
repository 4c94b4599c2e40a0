"""Programs of neighbours, solved ahead of the search by helper processes.

Which sequence is tried next depends on all results before, so the search itself stays one sequence of turns. But the
neighbours of a motion are a list that is known beforehand, and are half or more of the work: helpers solve those that
come next, while this process tries starts and refines. An answer is used only if this process would have computed the
same numbers: nothing was cut by a limit of work, and no decision by the cutoff of the objective differs. Otherwise the
program is solved again here. So any number of helpers gives the candidates of one process, and no answer is used in the
order of its arrival.
"""

from __future__ import annotations

import contextvars
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from nosnoc_py.attempts.work import count, counted, left
from nosnoc_py.ocp import OCP
from nosnoc_py.processes import Helper, helpers
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.multi_phase import MultiPhase
from nosnoc_py.sequences.readout import PhasePoint
from nosnoc_py.sequences.refinement import PhaseAttempt, Refinement, start_of_motion
from nosnoc_py.solution import Sequence, Solution
from nosnoc_py.solution.records import StepRecord

if TYPE_CHECKING:
    from nosnoc_py.search.state import SearchState, SequenceNode

# Number of tasks that a helper has at a time: about as many neighbours as a start takes time here.
DEPTH = 6
# Longest wait [s] before limits of time are looked at again.
POLL = 0.5
# Attributes of a point and of its program that the search reads, computed where the program is.
CACHED = ("sequence", "objective_at_start", "is_inside_mode", "p", "lengths", "edges")
OF_PROGRAM = ("plan", "at_end", "tolerance")
# Numbers by which the laws of contacts are scaled; other laws have none.
SCALES = ("rest_velocity", "force", "speed", "length")
Solve = Callable[[Refinement, Any, Sequence, Any, float], PhaseAttempt | None]


class Peekable(Iterator[Sequence]):
    """Iterator over sequences whose next ones can be looked at."""

    def __init__(self, source: Iterator[Sequence]) -> None:
        self.source = source
        self.seen: deque[Sequence] = deque()

    def __next__(self) -> Sequence:
        return self.seen.popleft() if self.seen else next(self.source)

    def peek(self) -> Iterator[Sequence]:
        """Yield the next ones, which stay next."""
        yield from tuple(self.seen)
        for sequence in self.source:
            self.seen.append(sequence)
            yield sequence


class ComparedRefinement(Refinement):
    """Refinement that records the objectives that it compares with the cutoff."""

    def __init__(self, method: MultiPhase, ocp: OCP) -> None:
        super().__init__(method, ocp, None, time.monotonic(), np.inf)
        self.objectives: list[float] = []

    def attempt(self, laws: Any, plan: Any, mesh: Any, start: Any, cutoff: float = np.inf) -> PhaseAttempt:
        """See `Refinement.attempt`."""
        attempt = super().attempt(laws, plan, mesh, start, cutoff)
        if np.isfinite(cutoff):
            self.objectives.append(attempt.point.objective)
        return attempt


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """A neighbour to be solved: everything but the problem, which the helper has."""

    sequence: Sequence
    motion: Solution
    scales: tuple[float, ...]
    cutoff: float
    limit: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """Attempt of a helper as numbers: the fields of its point, and what the search reads of the point's program."""

    point: dict[str, Any]
    cached: dict[str, Any]
    program: dict[str, Any]
    rest: dict[str, Any]
    work: float
    log: tuple[StepRecord, ...]
    objectives: tuple[float, ...]

    def holds(self, task: Task, cutoff: float) -> bool:
        """True if this process would compute the same with its own cutoff and the work that is left to it."""
        same = all((value < cutoff) == (value < task.cutoff) for value in self.objectives)
        tested = np.isfinite(cutoff) == np.isfinite(task.cutoff)
        return bool(same and tested and self.work < min(task.limit, left()))


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


class NeighboursAhead:
    """Helpers of one search.

    Parameters
    ----------
    ocp : OCP
    method : MultiPhase
        Coarse program of neighbours.
    solve : function
        `Search._solve`.
    """

    def __init__(self, ocp: OCP, method: MultiPhase, solve: Solve) -> None:
        self.ocp, self.method, self.solve = ocp, method.replace(penalised=False), solve
        self.helpers: list[Helper] = []
        self.node: SequenceNode | None = None  # of the tasks that were handed out last
        self.tasks: dict[int, tuple[Task, Helper]] = {}  # by the identity of a sequence, which the task holds
        self.answers: dict[int, Answer | None] = {}
        # In a helper: laws are recognised by their identity, and have caches of their own.
        self.laws = lru_cache(maxsize=64)(self._laws)

    def _laws(self, kind: type, scales: tuple[float, ...]) -> Any:
        return kind(self.ocp.system, **dict(zip(SCALES, scales, strict=False)))

    # --- in this process ---

    def hand_out(self, node: SequenceNode | None, state: SearchState, cutoff: float, limit: float) -> None:
        """Give the next neighbours of a node to the helpers that have too little to do."""
        self._collect(0.0)
        if node is None or not self.helpers or not isinstance(node.moves, Peekable):
            return
        if node is not self.node:
            self.node = node
            for helper in self.helpers:
                helper.forget()
        load = dict.fromkeys(self.helpers, 0)
        for number, (_, helper) in self.tasks.items():
            load[helper] += number not in self.answers
        scales = tuple(getattr(node.laws, name) for name in SCALES) if isinstance(node.laws, ContactLaws) else ()
        motion = node.attempt.solution
        for sequence in node.moves.peek():
            helper = min(self.helpers, key=load.__getitem__)
            if load[helper] >= DEPTH:
                return
            if id(sequence) not in self.tasks and state.is_worth_trying(sequence):
                task = Task(sequence=sequence, motion=motion, scales=scales, cutoff=cutoff, limit=limit)
                self.tasks[id(sequence)] = task, helper
                helper.send(id(sequence), (type(node.laws), task))
                load[helper] += 1

    def take(self, state: SearchState, node: SequenceNode, sequence: Sequence, cutoff: float) -> PhaseAttempt | None:
        """Return the attempt at a neighbour; None if no helper has solved it as this process would."""
        number = id(sequence)
        if number not in self.tasks:
            return None
        while number in self.tasks and number not in self.answers and state.work.seconds_left() > 0.0:
            self._collect(POLL, self.tasks[number][1])
        task, _ = self.tasks.pop(number, (None, None))
        answer = self.answers.pop(number, None)
        if task is None or answer is None or not answer.holds(task, cutoff):
            return None
        count(answer.work)
        first = len(state.work.log)
        state.work.log.extend(replace(record, step=first + k) for k, record in enumerate(answer.log))
        return self._attempt(answer, node, task)

    def _collect(self, timeout: float, helper: Helper | None = None) -> None:
        """Read the answers that are there; of one helper after this time [s] at most."""
        for each in (helper,) if helper is not None else tuple(self.helpers):
            try:
                for number, success, value in each.answers(timeout):
                    if success or value:
                        self.answers[number] = value if success else None
                    else:  # forgotten
                        self.tasks.pop(number, None)
            except EOFError:  # it has died: its tasks are solved here
                self.helpers.remove(each)
                self.tasks = {number: pair for number, pair in self.tasks.items() if pair[1] is not each}

    def _attempt(self, answer: Answer, node: SequenceNode, task: Task) -> PhaseAttempt:
        """Return the attempt with the laws of this process."""

        def again() -> PhaseAttempt | None:
            start = start_of_motion(self.ocp, task.sequence, task.motion)
            return self.solve(ComparedRefinement(self.method, self.ocp), node.laws, task.sequence, start, task.cutoff)

        program: Any = SolvedElsewhere(again, laws=node.laws, **answer.program)
        point = PhasePoint(program=program, **answer.point)
        vars(point).update(answer.cached)
        return PhaseAttempt(point=point, **answer.rest)

    # --- in a helper ---

    def answer(self, order: tuple[type, Task]) -> Answer | None:
        """Return the answer to a task; None if it was cut by its limit of work."""
        kind, task = order
        work = ComparedRefinement(self.method, self.ocp)
        start = start_of_motion(self.ocp, task.sequence, task.motion)
        with counted(task.limit) as account:
            attempt = self.solve(work, self.laws(kind, task.scales), task.sequence, start, task.cutoff)
        if attempt is None or account.left <= 0.0:
            return None
        point = attempt.point
        return Answer(
            point={each.name: getattr(point, each.name) for each in fields(point) if each.name != "program"},
            cached={name: getattr(point, name) for name in CACHED},
            program={name: getattr(point.program, name) for name in OF_PROGRAM},
            rest={each.name: getattr(attempt, each.name) for each in fields(attempt) if each.name != "point"},
            work=account.total,
            log=tuple(work.log),
            objectives=tuple(work.objectives),
        )


@contextmanager
def solved_ahead(ocp: OCP, method: MultiPhase, solve: Solve, workers: int) -> Iterator[NeighboursAhead | None]:
    """Start the helpers of a search for this block; None with one worker."""
    if workers <= 1:
        yield None
        return
    ahead = NeighboursAhead(ocp, method, solve)
    with helpers(ahead.answer, workers) as started:
        ahead.helpers = started
        yield ahead
