"""What `solve` does without a method: starts of different kinds, simulated, polished, certified and ranked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from nosnoc_py.errors import ModelError, OptionError, check_type, unknown_name
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod
from nosnoc_py.search.kinds import STARTS
from nosnoc_py.search.stances import Proposal
from nosnoc_py.search.starts import Start, StartTask
from nosnoc_py.search.state import GUESS, MOVES, SearchState, worth
from nosnoc_py.sequences.multi_phase import MultiPhase
from nosnoc_py.sequences.plan import Plan, written
from nosnoc_py.sequences.reading import read
from nosnoc_py.sequences.refinement import (
    CONFIRMED,
    Ended,
    PhaseAttempt,
    Refinement,
    laws_of,
    motion_of,
    start_of_motion,
)
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.solution import Sequence, Solution, Trajectory
from nosnoc_py.status import Status, Verdict, iterated
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

REFINE = "refine"
# Without controls nothing is as fast as a simplex; other problems have no starts of this kind.
KINDS = (*sorted(STARTS, key=lambda kind: kind != "simplex"), MOVES)
# Intervals of the control in programs that only compare sequences, iterations of IPOPT on each, and refinements.
COARSE, ITERATIONS, ROUNDS = 16, 150, 1
# Seconds that one start may take at least, and the share of all that are left; the share of all for the last program.
SECONDS, SHARE, LAST = 2.0, 0.25, 0.15
# Seconds for one program where no start has led to any.
NOTHING_YET = 10.0
# The share of what is left for refining the best.
REFINING = 0.35
# The best motion is refined, if it has to be, where patience ends, or after this share of the time.
REFINED = 0.6
# Where so many starts have led to nothing that is confirmed, the best is refined at once.
SEVERAL = 3
# Motions that are followed one after the other, where the simulation of a solution shows another sequence.
FOLLOWED = 3
# Phases of a program at most, where a simulation has more.
PHASES = 16
# Neighbours of a sequence are tried for so many seconds, one after the other.
MOVING = 1.0
# A start whose sequence is known counts as this share of a program when patience is counted.
KNOWN = 0.2
# So many kinds of start try a sequence whose program has not been solved.
ATTEMPTS = 2
# Without agreement, and where nothing happens in the best motion, the search goes on so many times longer.
ALONE = 2
# What a kind that has no more starts gives.
EMPTY: Any = object()


@dataclass(frozen=True)
class Effort:
    """Seconds, programs without a gain after which the search ends, and kinds of start that have to agree."""

    seconds: float
    patience: int
    kinds: int


EFFORTS = {
    "quick": Effort(10.0, 8, 1),
    "normal": Effort(60.0, 20, 2),
    "thorough": Effort(600.0, 120, 3),
}


class Search(CompleteMethod):
    """Starts of different kinds, each simulated, its sequence of modes polished, certified, and ranked.

    A start is a control. Its exact motion has a sequence of modes; the multi-phase program of that sequence is a smooth
    optimal control problem, whose solution is simulated again. Kinds of start share the time by what they have brought;
    one of them, "moves", changes the sequences of the best motions so far. The search ends when kinds of start that
    know nothing of each other agree on an optimum and nothing better has been found for a while, or at the limit.

    Parameters
    ----------
    effort : {"quick", "normal", "thorough"}
        Seconds at most (10, 60, 600), and how long it goes on where nothing better is found.
    seed : int
        Of random starts: the same seed gives the same starts of every kind. Which kind has the next turn depends on the
        seconds that they took.
    starts : tuple of str
        Kinds of starts.
    program : MultiPhase
        Of the solution; sequences are compared by coarser ones.
    time_limit : float, optional
        Seconds, instead of those of the effort.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> wall = ns.Contact("wall", gap=1.0 - q, restitution=0.5)
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[wall])
    >>> ocp = ns.OCP(cart, horizon=2.0, x0=[0, 1.6], stage_cost=u**2, terminal_constraints=[ns.Constraint(q, 0.4, 0.4)])
    >>> search = ns.Search(effort="quick")
    >>> state = search.init(ocp)
    >>> while search.terminate(state) is None:
    ...     state = search.step(state)
    >>> search.solution(state).status.success
    True
    """

    takes: ClassVar[tuple[type, ...]] = (CLS, PSS, Heaviside, PDS)
    remembers: ClassVar[bool] = True

    effort: Literal["quick", "normal", "thorough"] = "normal"
    seed: int = Field(default=0, ge=0)
    starts: tuple[str, ...] = KINDS
    program: MultiPhase = Field(default_factory=lambda: MultiPhase(intervals=24))

    @field_validator("starts")
    @classmethod
    def _starts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for kind in value:
            if kind not in KINDS:
                raise ValueError(unknown_name(kind, KINDS, "kind of start"))
        if not set(value) - {MOVES}:
            raise ValueError(f"expected one kind of start at least besides {MOVES!r}, such as {next(iter(STARTS))!r}")
        return value

    def solved(
        self, ocp: OCP, guess: Any, callback: Callable[[Any], Any] | None, started: float, deadline: float
    ) -> Solution:
        """Search until kinds of start agree and nothing better is found, or time is over."""
        limit = min(deadline - started, EFFORTS[self.effort].seconds if np.isinf(deadline) else np.inf)
        state = self.init(ocp, guess, time_limit=limit)

        def judged(state: SearchState) -> dict[str, Any] | None:
            status = self.terminate(state)
            return None if status is None else {"status": status}

        state = iterated(state, self.step, judged, callback, np.inf)
        return self.solution(state, wall_seconds=time.monotonic() - started)

    def init(self, ocp: OCP, guess: Any = None, *, time_limit: float = np.inf) -> SearchState:
        """Prepare the starts.

        Raises
        ------
        OptionError, ModelError
            For a problem or a guess that it cannot take.
        """
        check_type(ocp, OCP, "ocp")
        if ocp.complementarities:
            raise OptionError("Search takes no complementarities of the user's own; use ns.FESDJ(...).")
        began = time.monotonic()
        coarse = self.program.replace(
            sequence=None,
            intervals=min(COARSE, self.program.intervals),
            grid="moving",
            max_iterations=ITERATIONS,
            refinements=min(ROUNDS, self.program.refinements),
        )
        task = StartTask.of(ocp)
        # Every kind has random numbers of its own: which kind is next depends on time, its starts do not.
        streams: dict[str, Iterator[Any]] = {
            kind: make(task, np.random.default_rng((self.seed, number)))
            for number, (kind, make) in enumerate(STARTS.items())
            if kind in self.starts
        }
        if guess is not None:
            streams = {GUESS: iter([motion_of(ocp, guess, time_limit)]), **streams}
        work = Refinement(coarse, ocp, None, began, np.inf)
        return SearchState(
            guess=guess if isinstance(guess, Solution) else None,
            task=task,
            work=work,
            streams=streams,
            began=began,
            deadline=began + time_limit,
        )

    def step(self, state: SearchState, deadline: float = np.inf) -> SearchState:
        """One start of the kind that has brought most for its time, or some neighbours of the best sequences."""
        kind, began = self._choice(state), time.monotonic()
        if kind is None:
            return replace(state, status=Status.SOLVED if state.confirmed else Status.LOCALLY_INFEASIBLE)
        left = min(self._search_until(state), deadline) - began
        state.work.deadline = began + max(SECONDS, (REFINING if kind == REFINE else SHARE) * left)
        # Neighbours are many, and start near a motion: one that does not converge from there is passed over.
        state.work.method = state.work.method.replace(penalised=kind != MOVES)
        if kind == REFINE:
            return self._refined(state, began)
        if kind == MOVES:
            return self._moved(state, began)
        start = next(state.streams[kind], EMPTY)
        if start is EMPTY:
            return replace(state, streams={k: v for k, v in state.streams.items() if k != kind})
        if start is None:
            return state.spent(kind, began)
        if isinstance(start, Proposal):
            return self._polished(state, kind, start.motion, began, sequence=start.sequence)
        motion = state.task.motion(start, state.work.left()) if isinstance(start, Start) else start
        return self._polished(state, kind, motion, began, getattr(start, "p", None))

    def terminate(self, state: SearchState) -> Status | None:
        """Why the search ends; None while there is something left to do."""
        if state.status is not None:
            return state.status
        effort = EFFORTS[self.effort]
        # A motion without an event is found from everywhere: that says little of those with events.
        eventful = state.leader is not None and len(state.leader.sequence.items) > 1
        patience = effort.patience * (1 if len(state.agreement) >= effort.kinds and eventful else ALONE)
        if state.confirmed and state.since >= patience and state.rough is None:
            return Status.SOLVED
        # Something is looked at, whatever the limit of time.
        over = bool(state.candidates or state.seconds) and time.monotonic() >= self._search_until(state)
        return Status.TIME_LIMIT if over else None

    def solution(self, state: SearchState, *, wall_seconds: float | None = None) -> Solution:
        """The best so far, on the grid that is asked for; its status says what the simulation makes of it.

        Raises
        ------
        OptionError
            Before the first step.
        """
        if state.best is None and (state.seconds or state.status is not None):
            # No start has led to a program: what does nothing stands for all of them.
            state.work.deadline = time.monotonic() + NOTHING_YET
            still = state.task.start(state.task.zero[None])
            state = self._polished(state, next(iter(STARTS)), state.task.motion(still, SECONDS), time.monotonic())
        best = state.best
        if best is None:
            raise OptionError("solution: there is nothing yet; take a step first.")
        if best.solution.success and state.status not in (Status.INTERRUPTED, Status.STOPPED):
            finer = self._on_own_grid(state, best, max(state.deadline, time.monotonic() + SECONDS))
            asked = self.program.grid == "equal" and finer is not None and finer.solution.success
            best = finer if finer is not None and (asked or finer.rank < best.rank) else best
        status, message = self._verdict(state, best)
        found = replace(best.solution, certificate=best.certificate)
        if status in (Status.SOLVED, Status.NOT_CONFIRMED) and state.guess is not None:
            found, status, message = self._with_guess(state, found, status, message)
        seconds = time.monotonic() - state.began if wall_seconds is None else wall_seconds
        return replace(
            found,
            status=status,
            message=message,
            method=repr(self),
            candidates=state.candidates,
            agreement=state.agreement,
            **{**state.work.effort(), "wall_seconds": seconds},
        )

    def _with_guess(
        self, state: SearchState, found: Solution, status: Status, message: str
    ) -> tuple[Solution, Status, str]:
        """The solution that was given, where it is confirmed on this problem and better on a grid of its own."""
        assert state.guess is not None
        try:
            certificate = certify(state.task.ocp, state.guess)
        except (ModelError, OptionError):  # of another problem
            return found, status, message
        better = status is not Status.SOLVED or certificate.true_objective < found.objective
        if certificate.verdict not in CONFIRMED or not better or self.program.grid == "equal":
            return found, status, message
        return replace(state.guess, certificate=certificate), Status.SOLVED, "nothing better than the guess was found"

    def _search_until(self, state: SearchState) -> float:
        """When the search has to end so that time is left for the last program."""
        return state.began + (1.0 - LAST) * (state.deadline - state.began)

    def _choice(self, state: SearchState) -> str | None:
        """The kind whose gains are largest for the time that it took; the guess comes first."""
        if GUESS in state.streams:
            return GUESS
        kinds = [kind for kind in self.starts if kind in state.streams]
        if MOVES in self.starts and state.movable is not None:
            kinds.append(MOVES)
        late = time.monotonic() - state.began > REFINED * (self._search_until(state) - state.began)
        nothing = len(state.candidates) >= SEVERAL and not any(node.attempt.confirmed for node in state.nodes)
        if state.rough is not None and (late or nothing or not kinds or state.since >= EFFORTS[self.effort].patience):
            return REFINE
        # Every other turn is of a kind that may still agree with the best: without that its value is unknown.
        alone = state.confirmed and len(state.agreement) < EFFORTS[self.effort].kinds
        others = [kind for kind in kinds if kind != MOVES and kind not in state.agreement]
        if alone and others and len(state.candidates) % 2:
            kinds = others
        return max(kinds, key=state.merit, default=None)

    def _polished(
        self,
        state: SearchState,
        kind: str,
        motion: Trajectory,
        began: float,
        p: Any = None,
        sequence: Sequence | None = None,
    ) -> SearchState:
        """Solve the program of the sequence of a motion; follow what the simulation of the solution shows instead.

        A motion that is drawn comes with its sequence.
        """
        ocp, work, best = state.task.ocp, state.work, None
        for _ in range(FOLLOWED):
            laws = laws_of(ocp, motion)
            start = start_of_motion(ocp, Sequence([{}]), motion)
            start = start if p is None else replace(start, p=p)
            moves = len(motion.t) > 1  # else its simulation has failed at once
            if sequence is None:
                sequence = read(laws, motion, start.p) if moves else at_rest(laws, motion.x[0], start.p)
                sequence = of_long_phases(sequence, laws, float(ocp.horizon))
            known = state.tried.get(sequence, frozenset())
            again = state.leader is not None and sequence == state.leader.sequence
            if kind in known or (len(known) >= ATTEMPTS and not again):
                state = replace(state, since=state.since + KNOWN)
                break
            start = replace(start_of_motion(ocp, sequence, motion), p=start.p)
            found = self._solved(work, laws, sequence, start, state.bar(kind))
            state = state.trying(sequence, kind)
            if found is None:
                break
            state = state.trying(found.point.sequence, kind).having(found, kind)
            best = found if best is None or worth(found) < worth(best) else best
            if found.confirmed or found.certificate is None or not found.certificate.trajectory.success:
                break
            motion, p, sequence = found.certificate.trajectory, found.point.p, None
        return state.told(kind, began, best)

    def _moved(self, state: SearchState, began: float) -> SearchState:
        """Neighbours of one of the best sequences, until one of them is better."""
        node = state.movable
        assert node is not None
        best, ocp = None, state.task.ocp
        while time.monotonic() - began < MOVING:
            sequence = next(node.moves, None)
            if sequence is None:
                state = replace(state, expanded=state.expanded | {node.sequence})
                break
            if sequence in state.tried:
                continue
            start = start_of_motion(ocp, sequence, node.attempt.solution)
            found = self._solved(state.work, node.laws, sequence, start, state.bar(MOVES))
            state = state.trying(sequence, MOVES)
            if found is None:
                break
            gained = state.gained(found)
            state = state.trying(found.point.sequence, MOVES).having(found, MOVES)
            best = found if best is None or worth(found) < worth(best) else best
            if gained:
                break
        return state.told(MOVES, began, best)

    def _refined(self, state: SearchState, began: float) -> SearchState:
        """The best motion on the grid that is asked for, until it is confirmed; else it is the best no more."""
        node = state.rough
        assert node is not None
        found = self._on_own_grid(state, node.attempt, state.work.deadline)
        state = replace(state, refined=state.refined | {node.sequence})
        if found is None:
            return state
        return replace(state.having(found, node.kind), since=state.since).told(node.kind, began, found)

    @staticmethod
    def _solved(work: Refinement, laws: Any, sequence: Sequence, start: Any, bar: float) -> PhaseAttempt | None:
        """What comes of a sequence; None where the time is over before anything has."""
        work.best = None
        try:
            found = work.refined(laws, sequence, start, bar)
        except Ended as end:
            if end.status is Status.INTERRUPTED:
                raise KeyboardInterrupt from None
            return work.best
        # A finer mesh may fail where a coarse one has found a motion.
        return work.best if work.best is not None and work.best.rank < found.rank else found

    def _on_own_grid(self, state: SearchState, attempt: PhaseAttempt, deadline: float) -> PhaseAttempt | None:
        """The sequence of an attempt on the grid that the program asks for, refined until it is confirmed."""
        ocp, sequence = state.task.ocp, attempt.point.sequence
        work = Refinement(self.program.replace(sequence=None), ocp, None, time.monotonic(), deadline)
        laws, start = attempt.point.program.laws, start_of_motion(ocp, sequence, attempt.solution)
        found = self._solved(work, laws, sequence, replace(start, near=True), np.inf)
        state.work.log.extend(replace(line, step=len(state.work.log) + k) for k, line in enumerate(work.log))
        return found

    def _verdict(self, state: SearchState, best: PhaseAttempt) -> tuple[Status, str]:
        """Status and message of what is returned."""
        solution = best.solution
        if state.status in (Status.INTERRUPTED, Status.STOPPED):
            return state.status, f"the best so far is {best.verdict or solution.status}"
        if best.confirmed:
            return Status.SOLVED, "; ".join(part for part in (solution.message, self._alone(state)) if part)
        if best.certificate is not None:
            undecided = best.verdict is Verdict.UNDECIDED
            return Status.NOT_CERTIFIED if undecided else Status.NOT_CONFIRMED, solution.message
        if solution.status is Status.NUMERICAL_ERROR:
            return solution.status, solution.message
        count = len(state.candidates)
        nearest = f"the nearest misses {best.point.worst} by {best.point.violation:.3g}"
        message = f"none of {count} starts led to a feasible motion; {nearest}"
        return Status.TIME_LIMIT if state.status is Status.TIME_LIMIT else solution.status, message

    def _alone(self, state: SearchState) -> str:
        """A note where kinds of start do not agree, which is all that speaks for a better optimum not being there."""
        if len(state.agreement) >= EFFORTS[self.effort].kinds:
            return ""
        found = f"only by {', '.join(state.agreement)}" if state.agreement else "from no start alone"
        over = "the time limit came first" if state.status is Status.TIME_LIMIT else "nothing better was found"
        return f"different kinds of start do not agree ({over}): this optimum was found {found}"


def of_long_phases(sequence: Sequence, laws: Any, horizon: float) -> Sequence:
    """The sequence with its `PHASES` longest phases: a motion that rattles has hundreds that no program can hold."""
    if len(sequence.phases) <= PHASES or sequence.times is None:
        return sequence
    edges = np.concatenate([[0.0], sequence.times, [max(horizon, float(sequence.times[-1]))]])
    lengths = np.diff(edges)
    short = lengths < np.sort(lengths)[-PHASES]
    plan, edges = Plan.of(sequence, laws).without(short, edges)
    return written(plan.modes, plan.impacts, laws, edges[1:-1])


def at_rest(laws: Any, x: np.ndarray, p: np.ndarray) -> Sequence:
    """The sequence of a motion that stays in the mode of a state (n_x,)."""
    return written([laws.mode_at(x, p)], [{}], laws)
