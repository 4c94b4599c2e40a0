"""What a search has found so far, and what that says of where to go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nosnoc_py.search.moves import neighbours
from nosnoc_py.search.starts import StartTask
from nosnoc_py.sequences.refinement import CONFIRMED, PhaseAttempt, Refinement
from nosnoc_py.solution import Candidate, Sequence, Solution
from nosnoc_py.status import Status, Verdict

GUESS, MOVES, STANCES = "guess", "moves", "stances"
# Objectives within this share are one; a gain below this share is none. What is below the last of them is nothing.
AGREE, GAIN, NOTHING = 0.01, 1e-4, 1e-9
# An inaccurate motion counts until it is refined where the states at the ends of windows are off by this share at most.
SOUND = 1e-2
# Of so many of the best motions neighbours are tried; every so many times those of a sequence that misses constraints.
EXPANDED, NEARLY = 3, 3
# The group of what misses constraints, behind sound motions and those that the simulation refutes.
MISSES = 2
# What violates constraints by this share less is nearer to a solution.
NEARER = 0.7
# Gains that are expected of moves from a sound motion, and of stances, which are few and are often those of legs and
# hands; of everything else it is one. The seconds in which they are, where it is not one: of moves from what is no
# motion, and of what simulates or solves much for one start.
EXPECTED = 3.0
USUAL = {"moves": 3.0, "relaxed": 2.0, "evolution": 3.0, "stances": 3.0}


def worth(attempt: PhaseAttempt) -> tuple[int, float]:
    """The smaller the better: of sound motions the objective, then of other solved programs, then the violation."""
    objective = attempt.solution.objective
    if attempt.confirmed or is_near(attempt):
        return (0, objective)
    return (1, objective) if attempt.solution.success else (MISSES, attempt.point.violation)


def is_near(attempt: PhaseAttempt) -> bool:
    """Whether a finer mesh is likely to confirm a motion: errors of the discretisation are what is wrong with it."""
    if attempt.certificate is None or attempt.verdict not in (Verdict.INACCURATE, Verdict.CONSTRAINT_BETWEEN_NODES):
        return False
    window = attempt.certificate.worst_window
    return window is None or window.defect <= SOUND * float(np.abs(attempt.solution.x).max())


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceNode:
    """A sequence whose program was solved, the kind of start that led to it, and neighbours that are not tried yet."""

    attempt: PhaseAttempt
    kind: str
    moves: Iterator[Sequence]

    @property
    def sequence(self) -> Sequence:
        """Of its solution."""
        return self.attempt.point.sequence

    @property
    def laws(self) -> Any:
        """The system in its modes, with the sizes of this motion."""
        return self.attempt.point.program.laws


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SearchState:
    """What a search has found; a callback sees it after every start.

    Starts and neighbours are streams that the states of a search share: go on from the newest one only.

    Attributes
    ----------
    candidates : tuple of Candidate
        What was tried: starts, turns of neighbours, refinements.
    status : Status or None
        Why the search has ended.
    since : float
        Programs since the last gain.
    gains, seconds : dict
        By kind of start.
    """

    task: StartTask
    guess: Solution | None = None
    work: Refinement
    streams: dict[str, Iterator[Any]]
    began: float
    deadline: float
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
        """What would be returned now; that of an unfinished step, too."""
        found = [node.attempt for node in self.nodes]
        found += [] if self.work.best is None else [self.work.best]
        # Of what is not confirmed a good motion that is a little inaccurate is worth more than a poor exact one.
        return min(found, key=lambda attempt: (not attempt.confirmed, *worth(attempt)), default=None)

    @property
    def leader(self) -> SequenceNode | None:
        """The best motion, confirmed or to be refined."""
        return min(self.nodes, key=self._worth, default=None)

    def _worth(self, node: SequenceNode) -> tuple[int, float]:
        """Of a motion that refinement did not confirm, nothing."""
        group, amount = worth(node.attempt)
        return (max(group, int(node.sequence in self.refined and not node.attempt.confirmed)), amount)

    @property
    def confirmed(self) -> bool:
        """Whether the simulation confirms the best."""
        return self.leader is not None and self.leader.attempt.confirmed

    @property
    def provisional(self) -> bool:
        """Whether the best has to be refined."""
        return self.leader is not None and self._worth(self.leader)[0] == 0 and not self.confirmed

    @property
    def rough(self) -> SequenceNode | None:
        """What is refined next: the best, or a motion that is better than it if only the errors of its mesh are wrong.

        On a coarse mesh contacts that close slowly make large errors of the states although all events agree.
        """
        if self.provisional:
            return self.leader
        bar = self._above(-AGREE) if self.confirmed else np.inf
        found = [
            node
            for node in self.nodes
            if node.attempt.verdict is Verdict.INACCURATE
            and node.sequence not in self.refined
            and node.attempt.solution.objective < bar
        ]
        return min(found, key=lambda node: node.attempt.solution.objective, default=None)

    @property
    def agreement(self) -> tuple[str, ...]:
        """Kinds of start that found the best objective; neighbours of sequences are none."""
        if not self.confirmed:
            return ()
        bar = self._above(AGREE)
        # A solution that was given may come from the same kinds of start.
        others = (MOVES,) if self.guess is None else (MOVES, GUESS)
        kinds = (
            c.start for c in self.candidates if c.start not in others and c.verdict in CONFIRMED and c.objective <= bar
        )
        return tuple(dict.fromkeys(kinds))

    @property
    def movable(self) -> SequenceNode | None:
        """The motion whose neighbours are tried next: one of the best, or what nearly is a better one."""
        turns = sum(candidate.start == MOVES for candidate in self.candidates)
        left = [node for node in sorted(self.nodes, key=self._worth) if node.sequence not in self.expanded]
        best = [node for node in left if node in sorted(self.nodes, key=self._worth)[:EXPANDED]]
        near = [node for node in left if worth(node.attempt)[0] == MISSES and self._is_below(node)]
        first, second = (near, best) if turns % NEARLY == NEARLY - 1 else (best, near)
        return next(iter((*first, *second)), None)

    def _is_below(self, node: SequenceNode) -> bool:
        """Whether the objective of what is no motion is better than the best one."""
        return self.leader is None or node.attempt.point.objective < self._above(0.0)

    def _above(self, share: float) -> float:
        """The best objective and a share of its size more."""
        assert self.leader is not None
        objective = self.leader.attempt.solution.objective
        return objective + share * abs(objective) + np.copysign(NOTHING, share)

    def bar(self, kind: str) -> float:
        """The objective from which a program is not worth a simulation: better, or by a kind that may still agree."""
        if self.leader is None or self._worth(self.leader)[0] > 0:
            return np.inf
        return self._above(-GAIN if kind == MOVES or kind in self.agreement else AGREE)

    def merit(self, kind: str) -> float:
        """Gains for the time that a kind took, and those that are expected of one that is new."""
        sound = kind == MOVES and self.leader is not None and self._worth(self.leader)[0] == 0
        usual = 1.0 if sound else USUAL.get(kind, 1.0)
        expected = EXPECTED if sound or kind == STANCES else 1.0
        return (expected + self.gains.get(kind, 0)) / (usual + self.seconds.get(kind, 0.0))

    def gained(self, found: PhaseAttempt) -> bool:
        """Whether an attempt is better than the best by more than nothing."""
        if self.leader is None:
            return True
        (group, amount), (there, least) = worth(found), self._worth(self.leader)
        if group != there:
            return group < there
        return amount < (NEARER * least if group == MISSES else self._above(-GAIN))

    def trying(self, sequence: Sequence, kind: str) -> SearchState:
        """With a sequence that a kind has tried."""
        return replace(self, tried={**self.tried, sequence: self.tried.get(sequence, frozenset()) | {kind}})

    def having(self, found: PhaseAttempt, kind: str) -> SearchState:
        """With an attempt, in the place of a worse one of the same sequence."""
        gained = self.gained(found)
        since = 0.0 if gained else self.since + 1.0
        gains = {**self.gains, kind: self.gains.get(kind, 0) + gained}
        same = next((node for node in self.nodes if node.sequence == found.point.sequence), None)
        nodes = self.nodes
        if same is None or found.rank < same.attempt.rank:
            node = SequenceNode(attempt=found, kind=kind, moves=neighbours(self.task.ocp, found.point, found.solution))
            nodes = (*(other for other in nodes if other is not same), node)
        self.work.best = None  # it is among the nodes
        return replace(self, nodes=nodes, since=since, gains=gains)

    def told(self, kind: str, began: float, found: PhaseAttempt | None) -> SearchState:
        """With the candidate that a start has become."""
        good = found is not None and found.solution.success
        candidate = Candidate(
            start=kind,
            sequence=found.point.sequence if found is not None else None,
            objective=found.true_objective if found is not None and good else np.inf,
            verdict=None if found is None else found.verdict,
            seconds=time.monotonic() - began,
        )
        return replace(self.spent(kind, began), candidates=(*self.candidates, candidate))

    def spent(self, kind: str, began: float) -> SearchState:
        """With the time that a kind took."""
        seconds = self.seconds.get(kind, 0.0) + time.monotonic() - began
        return replace(self, seconds={**self.seconds, kind: seconds})
