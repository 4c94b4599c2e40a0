"""State of `Search`: solved sequences, what was tried, and the rules that choose the next turn.

Attempts are ranked in three groups: motions that the simulation confirms (or a finer mesh is likely to), programs that
were solved but refuted, and programs that miss constraints. Within a group the objective decides, or the violation.

Turns go to the kind of start with the largest ratio of gains to seconds, both with a prior, as in a bandit problem:
a kind that has not run yet counts as one that gains once in about a second. The search ends when several independent
kinds of start reach the same best objective and nothing better has been found for a while.

States are immutable except for their streams (generators), which all states of one search share, and for `work`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nosnoc_py.search.budget import TimeBudget
from nosnoc_py.search.moves import neighbours
from nosnoc_py.search.starts import StartTask
from nosnoc_py.sequences.refinement import CONFIRMED, PhaseAttempt, Refinement
from nosnoc_py.solution import Candidate, Sequence, Solution
from nosnoc_py.status import Status, Verdict

GUESS, MOVES, STANCES = "guess", "moves", "stances"
# Relative to the best objective: difference within which kinds of start agree, and the smallest improvement that counts
# as a gain. NOTHING is absolute, for objectives that are zero.
AGREE, GAIN, NOTHING = 0.01, 1e-4, 1e-9
# An inaccurate motion counts as one to be refined if its defects at the ends of windows are at most this fraction of
# the largest state; beyond that it ranks with the refuted ones.
SOUND = 1e-2
# Number of best motions whose neighbours are tried; every NEARLY-th turn goes to a sequence that misses constraints.
EXPANDED, NEARLY = 3, 3
# Rank group of programs that miss constraints: behind sound motions (0) and those that the simulation refutes (1).
MISSES = 2
# A violation reduced to this fraction of the least one counts as a gain.
NEARER = 0.7
# Prior of the gains per turn: moves from a sound motion and stances are promising, everything else counts as one.
EXPECTED = 3.0
# Prior of the seconds per turn; larger for kinds that simulate or solve a lot for one start. Other kinds count as 1 s.
USUAL = {"moves": 3.0, "relaxed": 2.0, "evolution": 3.0, "stances": 3.0}


def rank_of(attempt: PhaseAttempt) -> tuple[int, float]:
    """Return the rank of an attempt (smaller is better): its group, then the objective or the violation."""
    objective = attempt.solution.objective
    if attempt.confirmed or is_near(attempt):
        return (0, objective)
    return (1, objective) if attempt.solution.success else (MISSES, attempt.point.violation)


def is_near(attempt: PhaseAttempt) -> bool:
    """True if a finer mesh is likely to confirm the motion: only errors of the discretisation speak against it."""
    if attempt.certificate is None or attempt.verdict not in (Verdict.INACCURATE, Verdict.CONSTRAINT_BETWEEN_NODES):
        return False
    window = attempt.certificate.worst_window
    return window is None or window.defect <= SOUND * float(np.abs(attempt.solution.x).max())


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceNode:
    """Node of the search over sequences: best attempt, kind of start that led to it, and neighbours not tried yet."""

    attempt: PhaseAttempt
    kind: str
    moves: Iterator[Sequence]

    @property
    def sequence(self) -> Sequence:
        """Sequence of the solution; phases may have vanished from the one that was tried."""
        return self.attempt.point.sequence

    @property
    def laws(self) -> Any:
        """Mode equations of the system, scaled by the typical values of this motion."""
        return self.attempt.point.program.laws


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SearchState:
    """State of a `Search`, passed to the callback after every turn.

    All states of one search share the generators of starts and neighbours: continue from the newest state only.

    Attributes
    ----------
    task : StartTask
        The problem with the bounds and the initial state of its starts.
    guess : Solution or None
        The guess, if it is a solution that may itself be returned.
    streams : dict
        Generators of starts that are not exhausted, by kind.
    budget : TimeBudget
        Start and limit of time of the search.
    nodes : tuple of SequenceNode
        Best attempt of every sequence.
    candidates : tuple of Candidate
        One per turn: start, neighbours of a sequence, or refinement.
    status : Status or None
        Reason why the search ended; None while it runs.
    since : float
        Programs solved since the last gain; a start whose sequence is known counts as a fraction.
    gains, seconds : dict
        Number of gains and time used [s], by kind of start.
    tried : dict
        Kinds of start that have led to a sequence.
    expanded, refined : frozenset of Sequence
        Sequences whose neighbours are exhausted, and those solved on the final grid.
    """

    task: StartTask
    guess: Solution | None = None
    work: Refinement
    streams: dict[str, Iterator[Any]]
    budget: TimeBudget
    nodes: tuple[SequenceNode, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    status: Status | None = None
    since: float = 0.0
    gains: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    tried: dict[Sequence, frozenset[str]] = field(default_factory=dict)
    expanded: frozenset[Sequence] = frozenset()
    refined: frozenset[Sequence] = frozenset()

    def __repr__(self) -> str:
        last = self.candidates[-1] if self.candidates else "no start yet"
        best = "nothing yet" if self.leader is None else f"{self.leader.attempt.solution.objective:.8g}"
        verdict = "" if self.leader is None else f" ({self.leader.attempt.verdict or 'not solved'})"
        return f"SearchState: {len(self.candidates)} starts, best {best}{verdict}, last: {last}"

    @property
    def best(self) -> PhaseAttempt | None:
        """Best attempt, including that of an unfinished step; confirmed ones come first."""
        attempts = [node.attempt for node in self.nodes]
        attempts += [] if self.work.best is None else [self.work.best]
        # Among unconfirmed attempts, a good motion that is slightly inaccurate is better than a poor exact one.
        return min(attempts, key=lambda attempt: (not attempt.confirmed, *rank_of(attempt)), default=None)

    @property
    def leader(self) -> SequenceNode | None:
        """Best node, confirmed or still to be refined."""
        return min(self.nodes, key=self._rank, default=None)

    def _rank(self, node: SequenceNode) -> tuple[int, float]:
        """Return the rank of a node; a motion that refinement did not confirm moves to the refuted ones."""
        group, amount = rank_of(node.attempt)
        return (max(group, int(node.sequence in self.refined and not node.attempt.confirmed)), amount)

    @property
    def confirmed(self) -> bool:
        """True if the simulation confirms the best node."""
        return self.leader is not None and self.leader.attempt.confirmed

    @property
    def provisional(self) -> bool:
        """True if the best node has to be refined before it can be confirmed."""
        return self.leader is not None and self._rank(self.leader)[0] == 0 and not self.confirmed

    @property
    def refinable(self) -> SequenceNode | None:
        """Node to be refined next: the best one, or an inaccurate one with a better objective.

        On a coarse mesh contacts that close slowly cause large errors of the states although all events agree.
        """
        if self.provisional:
            return self.leader
        cutoff = self._above(-AGREE) if self.confirmed else np.inf
        inaccurate = [
            node
            for node in self.nodes
            if node.attempt.verdict is Verdict.INACCURATE
            and node.sequence not in self.refined
            and node.attempt.solution.objective < cutoff
        ]
        return min(inaccurate, key=lambda node: node.attempt.solution.objective, default=None)

    @property
    def agreement(self) -> tuple[str, ...]:
        """Independent kinds of start that reached the best objective.

        Neighbours do not count, as they begin at motions of other kinds.
        """
        if not self.confirmed:
            return ()
        cutoff = self._above(AGREE)
        # A guess that is a solution may itself come from these kinds of start.
        dependent = (MOVES,) if self.guess is None else (MOVES, GUESS)
        kinds = (
            c.start
            for c in self.candidates
            if c.start not in dependent and c.verdict in CONFIRMED and c.objective <= cutoff
        )
        return tuple(dict.fromkeys(kinds))

    @property
    def began(self) -> float:
        """Time of the monotonic clock at the start [s]."""
        return self.budget.began

    @property
    def deadline(self) -> float:
        """Time of the monotonic clock [s] at which the budget will be used up, at the present load."""
        return self.budget.deadline()

    @property
    def expandable(self) -> SequenceNode | None:
        """Node whose neighbours are tried next: one of the best, or a nearly feasible one with a better objective."""
        turns = sum(candidate.start == MOVES for candidate in self.candidates)
        left = [node for node in sorted(self.nodes, key=self._rank) if node.sequence not in self.expanded]
        best = [node for node in left if node in sorted(self.nodes, key=self._rank)[:EXPANDED]]
        near = [node for node in left if rank_of(node.attempt)[0] == MISSES and self._is_below(node)]
        first, second = (near, best) if turns % NEARLY == NEARLY - 1 else (best, near)
        return next(iter((*first, *second)), None)

    def _is_below(self, node: SequenceNode) -> bool:
        """True if the objective of an infeasible program is better than the best one."""
        return self.leader is None or node.attempt.point.objective < self._above(0.0)

    def _above(self, share: float) -> float:
        """Return the best objective plus this fraction of its size (negative: below it)."""
        assert self.leader is not None
        objective = self.leader.attempt.solution.objective
        return objective + share * abs(objective) + np.copysign(NOTHING, share)

    def cutoff(self, kind: str) -> float:
        """Return the objective above which a program of this kind is not simulated.

        A kind that does not agree with the best objective yet may confirm it; all others have to improve on it.
        """
        if self.leader is None or self._rank(self.leader)[0] > 0:
            return np.inf
        return self._above(-GAIN if kind == MOVES or kind in self.agreement else AGREE)

    def priority(self, kind: str) -> float:
        """Return the gains per second of a kind of start, with a prior for kinds that are new."""
        sound = kind == MOVES and self.leader is not None and self._rank(self.leader)[0] == 0
        usual = 1.0 if sound else USUAL.get(kind, 1.0)
        expected = EXPECTED if sound or kind == STANCES else 1.0
        return (expected + self.gains.get(kind, 0)) / (usual + self.seconds.get(kind, 0.0))

    def is_gain(self, attempt: PhaseAttempt) -> bool:
        """True if an attempt improves on the best node by more than the threshold of a gain."""
        if self.leader is None:
            return True
        (group, amount), (best_group, least) = rank_of(attempt), self._rank(self.leader)
        if group != best_group:
            return group < best_group
        return amount < (NEARER * least if group == MISSES else self._above(-GAIN))

    def with_tried(self, sequence: Sequence, kind: str) -> SearchState:
        """Return the state that knows that a kind of start has tried a sequence."""
        return replace(self, tried={**self.tried, sequence: self.tried.get(sequence, frozenset()) | {kind}})

    def with_attempt(self, attempt: PhaseAttempt, kind: str) -> SearchState:
        """Return the state with an attempt, which replaces a worse one of the same sequence."""
        gained = self.is_gain(attempt)
        since = 0.0 if gained else self.since + 1.0
        gains = {**self.gains, kind: self.gains.get(kind, 0) + gained}
        same = next((node for node in self.nodes if node.sequence == attempt.point.sequence), None)
        nodes = self.nodes
        if same is None or attempt.rank < same.attempt.rank:
            moves = neighbours(self.task.ocp, attempt.point, attempt.solution)
            node = SequenceNode(attempt=attempt, kind=kind, moves=moves)
            nodes = (*(other for other in nodes if other is not same), node)
        self.work.best = None  # now among the nodes; `best` would count it twice
        return replace(self, nodes=nodes, since=since, gains=gains)

    def with_candidate(self, kind: str, began: float, attempt: PhaseAttempt | None) -> SearchState:
        """Return the state with the record of a turn that began at this time and led to an attempt, or to none."""
        good = attempt is not None and attempt.solution.success
        candidate = Candidate(
            start=kind,
            sequence=attempt.point.sequence if attempt is not None else None,
            objective=attempt.true_objective if attempt is not None and good else np.inf,
            verdict=None if attempt is None else attempt.verdict,
            seconds=time.monotonic() - began,
        )
        return replace(self.with_seconds(kind, began), candidates=(*self.candidates, candidate))

    def with_seconds(self, kind: str, began: float) -> SearchState:
        """Return the state with the time that a kind has used since this time."""
        seconds = self.seconds.get(kind, 0.0) + time.monotonic() - began
        return replace(self, seconds={**self.seconds, kind: seconds})
