"""Starts of different kinds, simulated, polished and ranked: what `solve` does without a method."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from nosnoc_py.errors import check_type
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod
from nosnoc_py.search.moves import neighbours
from nosnoc_py.search.starts import STARTS, StartTask
from nosnoc_py.sequences.multi_phase import MultiPhase
from nosnoc_py.sequences.refinement import Ended, PhaseAttempt, Refinement, motion_of, start_of_motion
from nosnoc_py.solution import Sequence, Solution
from nosnoc_py.status import Status, Verdict
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

Array = np.ndarray
# By effort: seconds at most, starts without a gain after which the search ends, kinds of start that have to agree.
EFFORTS = {"quick": (5.0, 4, 1), "normal": (40.0, 14, 2), "thorough": (300.0, 60, 2)}
# Objectives within this share are one.
AGREE = 0.01
# A gain below this share is none.
GAIN = 1e-4
# Seconds for one start, as a share of all.
SHARE = 0.25
# Seconds of neighbours, one after the other.
MOVING = 2.0
GUESS, MOVES = "guess", "moves"


@dataclass(frozen=True, eq=False, kw_only=True)
class PortfolioCandidate:
    """One start and what became of it.

    Attributes
    ----------
    start : str
        Its kind.
    sequence : Sequence or None
    objective : float
        On the simulated motion; infinite where nothing was found.
    verdict : Verdict or None
    seconds : float
    """

    start: str
    sequence: Sequence | None
    objective: float
    verdict: Verdict | None
    seconds: float


class Portfolio(CompleteMethod):
    """Starts of different kinds, each simulated, its sequence of modes polished, certified, and ranked.

    Parameters
    ----------
    effort : {"quick", "normal", "thorough"}
        How long it goes on where nothing better is found.
    seed : int
        Of random starts; the same seed gives the same starts.
    intervals : int
        Of the control, see `MultiPhase`.
    starts : tuple of str
        Kinds of starts, "constant", "line", "random", and "moves", which changes the sequence of the best so far.
    time_limit : float, optional
        Seconds.
    """

    takes: ClassVar[tuple[type, ...]] = (CLS, PSS, Heaviside, PDS)

    effort: Literal["quick", "normal", "thorough"] = "normal"
    seed: int = 0
    intervals: int = Field(default=24, ge=1)
    starts: tuple[str, ...] = (*STARTS, MOVES)

    def solved(
        self, ocp: OCP, guess: Any, callback: Callable[[Any], Any] | None, started: float, deadline: float
    ) -> Solution:
        """Search until kinds of start agree and nothing better is found, or time is over."""
        check_type(ocp, OCP, "ocp")
        limit = min(deadline, started + EFFORTS[self.effort][0])
        state = self.init(ocp, guess, callback=callback, started=started, deadline=limit)
        try:
            while self.terminate(state) is None:
                state = self.step(state)
        except KeyboardInterrupt:
            state = replace(state, ended=Status.INTERRUPTED)
        return self.solution(state)

    def init(
        self,
        ocp: OCP,
        guess: Any = None,
        *,
        callback: Any = None,
        started: float | None = None,
        deadline: float = np.inf,
    ) -> PortfolioState:
        """Prepare the starts."""
        started = time.monotonic() if started is None else started
        work = Refinement(MultiPhase(intervals=self.intervals, follow=True), ocp, None, started, deadline)
        x0 = np.array(motion_of(ocp, None, 0.0).x[0]) if ocp.x0 is None else np.array(ocp.x0)
        task, rng = StartTask.of(ocp, x0), np.random.default_rng(self.seed)
        streams = {kind: STARTS[kind](task, rng) for kind in self.starts if kind in STARTS}
        if guess is not None:
            streams = {GUESS: iter([guess]), **streams}
        return PortfolioState(
            ocp=ocp, work=work, streams=streams, callback=callback, started=started, deadline=deadline
        )

    def step(self, state: PortfolioState) -> PortfolioState:
        """One start of the kind that has brought most for its time."""
        began, kind = time.monotonic(), self.choose(state)
        if kind is None:
            return replace(state, ended=Status.SOLVED)
        work = state.work
        work.best, work.deadline = None, min(state.deadline, began + max(2.0, SHARE * (state.deadline - began)))
        try:
            if kind == MOVES:
                assert state.best is not None
                self.move(state)
            else:
                start = next(state.streams[kind], None)
                if start is None:
                    return replace(state, streams={k: v for k, v in state.streams.items() if k != kind})
                work.search(start)
        except Ended as end:
            if end.status is Status.INTERRUPTED:
                raise KeyboardInterrupt from None
        return self.told(state, kind, work.best, time.monotonic() - began)

    def choose(self, state: PortfolioState) -> str | None:
        """The kind whose gains per second are best; every kind is tried first."""
        kinds = [kind for kind in (GUESS, *self.starts) if kind in state.streams]
        if (
            MOVES in self.starts
            and state.best is not None
            and state.best.confirmed
            and id(state.best) not in state.done
        ):
            kinds.append(MOVES)
        if not kinds:
            return None
        spent = {kind: sum(c.seconds for c in state.candidates if c.start == kind) for kind in kinds}
        fresh = [kind for kind in kinds if not any(c.start == kind for c in state.candidates)]
        if fresh:
            return fresh[0]
        return max(kinds, key=lambda kind: (1.0 + state.gains.get(kind, 0)) / (1.0 + spent[kind]))

    def move(self, state: PortfolioState) -> None:
        """The next neighbours of the best sequence, until one of them is better."""
        best, work, began = state.best, state.work, time.monotonic()
        assert best is not None
        if state.neighbours.get(id(best)) is None:
            state.neighbours[id(best)] = neighbours(state.laws, best.point, best.solution)
        for sequence in state.neighbours[id(best)]:
            if str(sequence.items) in state.tried:
                continue
            state.tried.add(str(sequence.items))
            start = start_of_motion(state.ocp, sequence, best.solution)
            work.refined_below(state.laws, sequence, start, best.solution.objective * (1.0 - GAIN))
            if work.best is not None and work.best.confirmed:
                return
            if time.monotonic() - began > MOVING:
                return
        state.done.add(id(best))

    def told(self, state: PortfolioState, kind: str, found: PhaseAttempt | None, seconds: float) -> PortfolioState:
        """Keep what a start has brought."""
        good = found is not None and found.solution.success
        candidate = PortfolioCandidate(
            start=kind,
            sequence=found.solution.sequence if found is not None and good else None,
            objective=found.true_objective if found is not None and good else np.inf,
            verdict=None if found is None else found.verdict,
            seconds=seconds,
        )
        best, since = state.best, state.since + 1
        gains = dict(state.gains)
        if found is not None and (best is None or found.rank < best.rank):
            gained = (
                best is None or found.rank[0] < best.rank[0] or found.rank[1] < best.rank[1] - GAIN * abs(best.rank[1])
            )
            best, since = found, 0 if gained else since
            gains[kind] = gains.get(kind, 0) + gained
        return replace(state, best=best, since=since, gains=gains, candidates=(*state.candidates, candidate))

    def terminate(self, state: PortfolioState) -> Status | None:
        """Why the search ends; None to go on."""
        if state.ended is not None:
            return state.ended
        _, patience, kinds = EFFORTS[self.effort]
        if (
            state.best is not None
            and state.best.confirmed
            and state.since >= patience
            and len(state.agreement) >= kinds
        ):
            return Status.SOLVED
        return Status.TIME_LIMIT if time.monotonic() >= state.deadline else None

    def solution(self, state: PortfolioState) -> Solution:
        """The best so far."""
        assert state.best is not None
        solution = replace(state.best.solution, method=repr(self), **state.work.effort())
        return solution


@dataclass(frozen=True, eq=False, kw_only=True)
class PortfolioState:
    """What a search has found.

    Attributes
    ----------
    best : PhaseAttempt or None
    candidates : tuple of PortfolioCandidate
    since : int
        Starts since the last gain.
    gains : dict
        By kind of start.
    """

    ocp: OCP
    work: Refinement
    streams: dict[str, Iterator[Any]]
    callback: Any
    started: float
    deadline: float
    best: PhaseAttempt | None = None
    candidates: tuple[PortfolioCandidate, ...] = ()
    since: int = 0
    gains: dict[str, int] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    neighbours: dict[int, Iterator[Sequence]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    ended: Status | None = None

    @property
    def laws(self) -> Any:
        """The system in its modes, of the best motion."""
        assert self.best is not None
        return self.best.point.program.laws

    @property
    def agreement(self) -> tuple[str, ...]:
        """Kinds of start that found the best objective."""
        if self.best is None or not self.best.confirmed:
            return ()
        bar = self.best.solution.objective + AGREE * abs(self.best.solution.objective)
        return tuple(dict.fromkeys(c.start for c in self.candidates if c.objective <= bar))
