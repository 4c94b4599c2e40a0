"""State of `Search`: solved sequences, what was tried, and the rules that choose the next turn.

Attempts are ranked by `attempts.rank`: motions that the simulation confirms, or a finer mesh is likely to, come first.

Turns go to the kind of start with the largest ratio of gains to work, both with a prior, as in a bandit problem: a kind
that has not run yet counts as one that gains once in about one unit. The search ends when several independent kinds of
start reach the same best objective and nothing better has been found for a while. Work is counted and not measured
(`attempts.work`): the same problem and seed give the same turns.

States are immutable except for their streams (generators), which all states of one search share, and for `work`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from nosnoc_py.attempts.rank import LEAST_GAIN, SAME_OBJECTIVE, ObjectiveScale, Rank, RankGroup
from nosnoc_py.search.moves import neighbours
from nosnoc_py.search.starts import StartTask
from nosnoc_py.search.tuning import TUNING
from nosnoc_py.sequences.refinement import CONFIRMED, NO_CUTOFF, Cutoff, PhaseAttempt, Refinement
from nosnoc_py.solution import Candidate, Sequence, Solution
from nosnoc_py.status import Status, Verdict

GUESS, MOVES = "guess", "moves"
# Kinds whose starts are motions to the goal.
PROMISING = ("stances", "compliant", "quasistatic")


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

    @cached_property
    def is_smooth(self) -> bool:
        """True if there are no modes, or one mode all the time, whose end would be far from the motion."""
        return not self.laws.names or (len(self.sequence.items) == 1 and self.attempt.point.is_inside_mode)


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
    limit : float
        Work after which the search ends.
    deadline : float
        Time of the monotonic clock [s] at which it is cut.
    nodes : tuple of SequenceNode
        Best attempt of every sequence.
    candidates : tuple of Candidate
        One per turn: start, neighbours of a sequence, or refinement.
    status : Status or None
        Reason why the search ended; None while it runs.
    since : float
        Starts since the last gain; a start whose sequence is known counts as a fraction.
    gains, spent : dict
        Number of gains and work, by kind of start.
    tried : dict
        Kinds of start that have led to a sequence.
    places : dict
        Motions (samples of their states, relative to the sizes of these) from which the program of a sequence was
        solved.
    broken : dict
        Numbers of programs of a kind of start, and of those that met values that are not finite.
    scale : ObjectiveScale
        Size of the objective, for comparisons.
    waiting : tuple of SequenceNode
        Rough motions with a better objective than that of the node with the same sequence: other optima of its program.
    again : dict
        Least objective of those that were refined, by their sequences: they are not refined twice.
    expanded, refined : frozenset of Sequence
        Sequences whose neighbours are exhausted, and those solved on the final grid.
    order : tuple
        Nodes and refined sequences of which the ranked nodes are known, and these: states with the same ones share it.
    """

    task: StartTask
    guess: Solution | None = None
    work: Refinement
    streams: dict[str, Iterator[Any]]
    limit: float
    deadline: float
    nodes: tuple[SequenceNode, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    status: Status | None = None
    since: float = 0.0
    gains: dict[str, int] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    tried: dict[Sequence, frozenset[str]] = field(default_factory=dict)
    places: dict[Sequence, tuple[np.ndarray, ...]] = field(default_factory=dict)
    broken: dict[str, tuple[int, int]] = field(default_factory=dict)
    scale: ObjectiveScale = ObjectiveScale()
    waiting: tuple[SequenceNode, ...] = ()
    again: dict[Sequence, float] = field(default_factory=dict)
    expanded: frozenset[Sequence] = frozenset()
    refined: frozenset[Sequence] = frozenset()
    order: tuple[Any, Any, tuple[SequenceNode, ...]] = ((), None, ())

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
        return min(attempts, key=lambda attempt: (not attempt.confirmed, attempt.rank.promise), default=None)

    @property
    def ranked(self) -> tuple[SequenceNode, ...]:
        """All nodes, the best ones first."""
        # States follow each other by `replace`, most of them with the same nodes.
        if self.order[0] is not self.nodes or self.order[1] is not self.refined:
            order = (self.nodes, self.refined, tuple(sorted(self.nodes, key=self._rank)))
            vars(self)["order"] = order  # as a cached property does
        return self.order[2]

    @property
    def leader(self) -> SequenceNode | None:
        """Best node, confirmed or still to be refined."""
        return self.ranked[0] if self.nodes else None

    def _rank(self, node: SequenceNode) -> Rank:
        """Return the rank of a node; a motion that refinement did not confirm belongs to the wrong ones."""
        rank = node.attempt.rank.promise
        failed = not node.attempt.confirmed and node.sequence in self.refined
        return Rank(max(rank.group, RankGroup.WRONG), rank.amount) if failed else rank

    @property
    def confirmed(self) -> bool:
        """True if the simulation confirms the best node."""
        return self.leader is not None and self.leader.attempt.confirmed

    @property
    def usual_work(self) -> float:
        """Mean work of the turns that led to a program; 0 before the first one."""
        works = [candidate.work for candidate in self.candidates if candidate.sequence is not None]
        return sum(works) / len(works) if works else 0.0

    @property
    def rivals(self) -> int:
        """Number of worse motions with other sequences that starts, and not only neighbours, have led to.

        None count while a program that misses its constraints has a better objective than the best motion.
        """
        if any(not node.attempt.rank.feasible and self._is_below(node) for node in self.nodes):
            return 0
        worse = (node for node in self.nodes if node is not self.leader and node.attempt.rank.feasible)
        return sum(node.kind != MOVES for node in worse)

    @property
    def sound(self) -> bool:
        """True if the best node is confirmed, or is likely to be so on a finer mesh."""
        return self.leader is not None and self._rank(self.leader).group is RankGroup.CONFIRMED

    @property
    def refinable(self) -> SequenceNode | None:
        """Node to be refined next: the best one, or an inaccurate one with a better objective.

        On a coarse mesh contacts that close slowly cause large errors of the states although all events agree; a
        program at the end of the work of its turn was not simulated. One that is refuted may be so by its mesh: it is
        worth a finer one if it is much better, or if nothing else is left late in the search.
        """
        if self.sound and not self.confirmed:
            return self.leader
        late = self.used > TUNING.refined_at * (1.0 - TUNING.reserved)
        cutoff, far = np.inf, np.inf if late else -np.inf
        if self.confirmed:
            cutoff, far = self._above(-SAME_OBJECTIVE), self._above(-TUNING.large_gain)
        inaccurate = [
            node
            for node in self.nodes
            if (_is_rough(node.attempt) and node.attempt.solution.objective < cutoff)
            or (node.attempt.verdict is Verdict.REFUTED and node.attempt.solution.objective < far)
        ]
        inaccurate = [node for node in inaccurate if node.sequence not in self.refined]
        inaccurate += [node for node in self.waiting if node.attempt.solution.objective < cutoff]
        return min(inaccurate, key=lambda node: node.attempt.solution.objective, default=None)

    @property
    def is_unfinished(self) -> bool:
        """True if a motion waits that a finer mesh may confirm, and that would be the first one, or better."""
        return self.refinable is not None or (
            not self.confirmed and any(node.attempt.rank.feasible for node in self.nodes)
        )

    @property
    def agreement(self) -> tuple[str, ...]:
        """Independent kinds of start that reached the best objective.

        Neighbours do not count, as they begin at motions of other kinds; neither does a kind most of whose programs met
        values that are not finite, as what it did not see may be better.
        """
        if not self.confirmed:
            return ()
        assert self.leader is not None
        cutoff, same = self._above(SAME_OBJECTIVE), self._above(TUNING.same_sequence)
        # A guess that is a solution may itself come from these kinds of start.
        dependent = (MOVES,) if self.guess is None else (MOVES, GUESS)
        kinds = (
            c.start
            for c in self.candidates
            if c.start not in dependent
            and c.verdict in CONFIRMED
            and c.objective <= (same if c.sequence == self.leader.sequence else cutoff)
        )
        return tuple(kind for kind in dict.fromkeys(kinds) if not self._fails(kind))

    def _fails(self, kind: str) -> bool:
        """True if most programs of a kind met values that are not finite."""
        programs, broken = self.broken.get(kind, (0, 0))
        return 2 * broken > programs

    @property
    def expandable(self) -> SequenceNode | None:
        """Node whose neighbours are tried next: one of the best, or a nearly feasible one with a better objective."""
        turns = sum(candidate.start == MOVES for candidate in self.candidates)
        left = [node for node in self.ranked if node.sequence not in self.expanded]
        best = [node for node in left if node in self.ranked[: TUNING.expanded]]
        near = [node for node in left if not node.attempt.rank.feasible and self._is_below(node)]
        first, second = (near, best) if turns % TUNING.nearly == TUNING.nearly - 1 else (best, near)
        return next(iter((*first, *second)), None)

    def _is_below(self, node: SequenceNode) -> bool:
        """True if the objective of an infeasible program is better than the best one."""
        return self.leader is None or node.attempt.point.objective < self._above(0.0)

    def _above(self, share: float) -> float:
        """Return the best objective plus this fraction of its size (negative: below it)."""
        assert self.leader is not None
        return self.scale.above(self.leader.attempt.solution.objective, share)

    def _below(self, objective: float) -> float:
        """Return an objective less the least gain."""
        return self.scale.above(objective, -LEAST_GAIN) if np.isfinite(objective) else objective

    def cutoff(self, kind: str) -> Cutoff:
        """Return the objectives above which a program of this kind is of no use.

        A kind that does not agree with the best objective yet may confirm it, and its programs may be slow to get
        there; all others have to improve on it.
        """
        if not self.sound:
            return NO_CUTOFF
        if kind == MOVES or kind in self.agreement:
            return Cutoff(simulated=self._above(-LEAST_GAIN), solved=self._above(-LEAST_GAIN))
        # An objective that is 0 at every start has no size: the same one agrees.
        return Cutoff(
            simulated=float(np.nextafter(self._above(SAME_OBJECTIVE), np.inf)), solved=self._above(TUNING.large_gain)
        )

    def priority(self, kind: str) -> float:
        """Return the gains per work of a kind of start, with a prior for kinds that are new."""
        sound = kind == MOVES and self.sound
        usual = TUNING.usual_turn if sound else TUNING.usual_turns.get(kind, TUNING.usual_turn)
        expected = TUNING.expected_gains if sound else 1.0
        if kind in PROMISING:
            # The larger a system is, the less often a control that is simulated leads to the goal.
            expected = TUNING.expected_gains * self.task.growth
        spent = TUNING.grain * round(self.spent.get(kind, 0.0) / self.task.growth / TUNING.grain)
        return (expected + self.gains.get(kind, 0)) / (usual + spent)

    def is_gain(self, attempt: PhaseAttempt) -> bool:
        """True if an attempt improves on the best node by more than the threshold of a gain."""
        if self.leader is None:
            return True
        rank, best = attempt.rank.promise, self._rank(self.leader)
        if rank.group != best.group:
            return rank.group < best.group
        if not best.feasible:
            return rank.amount < TUNING.nearer * best.amount
        known = attempt.point.sequence == self.leader.sequence
        return rank.amount < self._above(-SAME_OBJECTIVE if known else -LEAST_GAIN)

    def is_new(self, sequence: Sequence, kind: str, place: np.ndarray, most: int) -> bool:
        """True if the program of a sequence is worth solving from a start of this kind at this place.

        Parameters
        ----------
        sequence : Sequence
        kind : str
        place : (m,)
            Samples of the motion, see `places`.
        most : int
            Number of kinds that try a sequence, unless it is the best one, which all may confirm.
        """
        known = self.tried.get(sequence, frozenset())
        best = self.leader is not None and sequence == self.leader.sequence
        if kind not in known and (len(known) < most or best):
            return True
        return all(
            np.sqrt(np.mean((place - other) ** 2)) > TUNING.other_motion for other in self.places.get(sequence, ())
        )

    def is_worth_trying(self, sequence: Sequence) -> bool:
        """True if a neighbour was not tried yet, and its program is not too large."""
        return sequence not in self.tried and len(sequence.phases) <= TUNING.most_phases

    def with_tried(self, sequence: Sequence, kind: str, place: np.ndarray | None = None) -> SearchState:
        """Return the state that knows that a kind of start has tried a sequence, from a motion with these samples."""
        tried = {**self.tried, sequence: self.tried.get(sequence, frozenset()) | {kind}}
        places = self.places
        if place is not None:
            places = {**places, sequence: (*places.get(sequence, ()), place)}
        return replace(self, tried=tried, places=places)

    def with_attempt(self, attempt: PhaseAttempt, kind: str) -> SearchState:
        """Return the state with an attempt, which replaces a worse one of the same sequence."""
        gained = self.is_gain(attempt)
        same = next((node for node in self.nodes if node.sequence == attempt.point.sequence), None)
        nodes, waiting = self.nodes, self.waiting
        moves = neighbours(self.task.ocp, attempt.point, attempt.solution)
        node = SequenceNode(attempt=attempt, kind=kind, moves=moves)
        if same is None or attempt.rank < same.attempt.rank:
            nodes = (*(other for other in nodes if other is not same), node)
        elif _is_rough(attempt) and attempt.solution.objective < min(
            same.attempt.solution.objective, self._below(self.again.get(same.sequence, np.inf))
        ):
            # Another optimum of a sequence whose best motion is of a better group.
            waiting = (*waiting, node)
        self.work.best = None  # now among the nodes; `best` would count it twice
        change = [(attempt.point.objective_at_start, attempt.point.objective)] if attempt.rank.feasible else []
        return replace(
            self,
            nodes=nodes,
            waiting=waiting,
            since=0.0 if gained else self.since,
            gains={**self.gains, kind: self.gains.get(kind, 0) + gained},
            scale=ObjectiveScale(max(self.scale.change, ObjectiveScale.of(change).change)),
        )

    def with_refinement(self, node: SequenceNode) -> SearchState:
        """Return the state in which a node was refined: it is not refined again."""
        if node in self.waiting:
            left = tuple(other for other in self.waiting if other is not node)
            least = min(node.attempt.solution.objective, self.again.get(node.sequence, np.inf))
            return replace(self, waiting=left, again={**self.again, node.sequence: least})
        return replace(self, refined=self.refined | {node.sequence})

    def with_candidate(self, kind: str, work: float, attempt: PhaseAttempt | None) -> SearchState:
        """Return the state with the record of a turn of so much work that led to an attempt, or to none."""
        good = attempt is not None and attempt.rank.feasible
        candidate = Candidate(
            start=kind,
            sequence=attempt.point.sequence if attempt is not None else None,
            objective=attempt.true_objective if attempt is not None and good else np.inf,
            verdict=None if attempt is None else attempt.verdict,
            work=work,
        )
        return replace(self, candidates=(*self.candidates, candidate))

    def with_work(self, kind: str, work: float, programs: tuple[int, int] = (0, 0)) -> SearchState:
        """Return the state with the work of a turn of a kind, and its numbers of programs and of broken ones."""
        spent = {**self.spent, kind: self.spent.get(kind, 0.0) + work}
        before = self.broken.get(kind, (0, 0))
        broken = {**self.broken, kind: (before[0] + programs[0], before[1] + programs[1])}
        return replace(self, spent=spent, broken=broken)

    def extended(self, longer: float) -> SearchState:
        """Return the state with a longer limit of work, if it is at its end while a motion waits."""
        is_over = self.used >= 1.0 - TUNING.reserved and self.limit < longer
        return replace(self, limit=longer) if is_over and self.is_unfinished else self

    @property
    def used(self) -> float:
        """Work of all turns so far, as a fraction of the limit."""
        return sum(self.spent.values()) / self.limit


def _is_rough(attempt: PhaseAttempt) -> bool:
    """True if a finer mesh may confirm an attempt: it is inaccurate, or its turn ended before its simulation."""
    return attempt.verdict is Verdict.INACCURATE or attempt.rank.group is RankGroup.UNTESTED
