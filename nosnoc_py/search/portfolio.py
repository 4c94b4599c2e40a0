"""Default search of `solve`: generate starts, simulate them, optimise their mode sequences, certify and rank results.

Loop: (1) choose a kind of start by its gains per second (`SearchState.priority`); (2) take one start and simulate it
exactly; (3) read the mode sequence of the motion; (4) solve the smooth multi-phase program of that sequence on a coarse
grid; (5) simulate the solution with the event-driven referee, and if it shows another sequence, repeat from (3).
Neighbours of the best sequences ("moves") skip the simulation and start from the motion that they were derived from.

Invariants: a sequence is tried by few kinds of start only, so that time goes to new ones; what is returned as SOLVED is
confirmed by a simulation; part of the time is reserved for the final grid. No global optimum is proven: agreement of
independent kinds of start is the only evidence, and the message says if it is missing.
"""

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
from nosnoc_py.search.budget import TimeBudget
from nosnoc_py.search.kinds import STARTS
from nosnoc_py.search.nearest import nearest_motion
from nosnoc_py.search.stances import Proposal
from nosnoc_py.search.starts import Start, StartTask
from nosnoc_py.search.state import GUESS, MOVES, SearchState, rank_of
from nosnoc_py.sequences.multi_phase import MultiPhase
from nosnoc_py.sequences.plan import Plan, sequence_from_modes
from nosnoc_py.sequences.reading import read_sequence
from nosnoc_py.sequences.refinement import (
    CONFIRMED,
    PhaseAttempt,
    Refinement,
    RefinementStopped,
    laws_of,
    motion_of,
    start_of_motion,
    stretched_control,
)
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.solution import Sequence, Solution, Trajectory
from nosnoc_py.status import Status, Verdict, iterated
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

REFINE = "refine"
# The simplex comes first: it only has starts for problems without controls, where it is the fastest kind.
KINDS = (*sorted(STARTS, key=lambda kind: kind != "simplex"), MOVES)
# Programs that only compare sequences: control intervals, iterations of IPOPT, and refinements of the mesh.
COARSE, ITERATIONS, ROUNDS = 16, 150, 1
# Time of one turn: at least SECONDS [s], at most the fraction SHARE of what is left. LAST is the fraction of the whole
# time that is reserved for the program on the final grid.
SECONDS, SHARE, LAST = 2.0, 0.25, 0.15
# Time [s] for one program after the search if no turn has led to any program: there has to be something to return.
NOTHING_YET = 10.0
# Fraction of the remaining time for one refinement of the best motion.
REFINING = 0.35
# The best motion is refined when patience ends, or after this fraction of the search time: its verdict then matters
# more than further starts.
REFINED = 0.6
# Number of starts without any confirmed motion after which the best one is refined at once.
SEVERAL = 3
# Largest number of programs per start, where the simulation of a solution shows another sequence than its own.
FOLLOWED = 3
# Largest number of phases of a program; simulations that rattle have hundreds.
PHASES = 16
# Time [s] of one turn of neighbours.
MOVING = 1.0
# Fraction of a program by which a start with a known sequence counts against patience: it costs a simulation only.
KNOWN = 0.2
# Number of kinds of start that may try the same sequence: another motion is another start of its program.
ATTEMPTS = 2
# Factor of the patience without agreement, and for a best motion without events, which every kind finds. Agreement of
# MANY times the usual number of kinds on such a motion counts like that of the usual number on one with events.
ALONE, MANY = 2, 2
# Fraction of the patience for a system without modes: all starts lead to the same program, and differ in its local
# optima only.
SMOOTH_SYSTEM = 0.1
# Marks an exhausted generator, as None is an item of it.
EMPTY: Any = object()


@dataclass(frozen=True)
class Effort:
    """Effort of a search.

    Attributes
    ----------
    seconds : float
        Limit of processor time [s] if the user gives no limit.
    patience : int
        Number of programs without a gain after which the search ends.
    kinds : int
        Number of independent kinds of start that have to agree on the best objective.
    """

    seconds: float
    patience: int
    kinds: int


EFFORTS = {
    "quick": Effort(10.0, 8, 1),
    "normal": Effort(60.0, 20, 2),
    "thorough": Effort(600.0, 120, 3),
}


class Search(CompleteMethod):
    """Search over mode sequences from many starts; the default method of `solve`.

    A start is a control. Its exact motion has a sequence of modes, and the multi-phase program of that sequence is a
    smooth optimal control problem, whose solution is simulated again. Kinds of start share the time by their gains per
    second; one of them, "moves", edits the sequences of the best motions so far. The search ends when independent kinds
    of start agree on the best objective and nothing better has been found for a while, or at the limit of time.

    Parameters
    ----------
    effort : {"quick", "normal", "thorough"}
        Limit of processor time (10 s, 60 s, 600 s) and patience: programs without a gain before the search ends (8, 20,
        120). On a busy machine the clock may show up to three times the limit.
    seed : int
        Seed of the random starts. Every kind has its own random numbers, so that its starts are reproducible; the order
        of the kinds depends on measured times.
    starts : tuple of str
        Kinds of start, all by default: "simplex", "constant", "line", "smoothed", "random", "relaxed", "evolution",
        "stances", "moves".
    program : MultiPhase
        Program of the solution that is returned; sequences are compared on coarser meshes.
    time_limit : float, optional
        Limit of time by the clock [s]; replaces that of `effort`.

    Raises
    ------
    OptionError
        From `init` and `solve`: for an OCP with complementarities of its own, or a guess of another problem.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> wall = ns.Contact("wall", gap=1.0 - q, restitution=0.5)
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[wall])
    >>> ocp = ns.OCP(cart, horizon=2.0, x0=[0, 1.6], stage_cost=u**2, terminal_constraints=[ns.Constraint(q, 0.4, 0.4)])
    >>> search = ns.Search(effort="quick", starts=("constant", "line"))
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
        """Search until kinds of start agree and nothing better is found, or the time is over."""
        budget = TimeBudget.of(started, deadline, EFFORTS[self.effort].seconds)
        state = replace(self.init(ocp, guess, time_limit=budget.seconds), budget=budget)

        def ended(state: SearchState) -> dict[str, Any] | None:
            status = self.terminate(state)
            return None if status is None else {"status": status}

        state = iterated(state, self.step, ended, callback, np.inf)
        return self.solution(state, wall_seconds=time.monotonic() - started)

    def init(self, ocp: OCP, guess: Any = None, *, time_limit: float = np.inf) -> SearchState:
        """Return the state before the first turn.

        Parameters
        ----------
        ocp : OCP
        guess : Solution, Trajectory, mapping or array, optional
            Motion, or control, that is tried before all other starts.
        time_limit : float
            Limit of time for the whole search [s].

        Raises
        ------
        OptionError, ModelError
            For an OCP with complementarities of its own, or a guess of another problem.
        """
        check_type(ocp, OCP, "ocp")
        if ocp.complementarities:
            raise OptionError("Search does not take an OCP with complementarities of its own; use ns.FESDJ(...).")
        began = time.monotonic()
        coarse = self.program.replace(
            sequence=None,
            intervals=min(COARSE, self.program.intervals),
            grid="moving",
            max_iterations=ITERATIONS,
            refinements=min(ROUNDS, self.program.refinements),
        )
        task = StartTask.of(ocp)
        # Every kind has its own random numbers: the order of kinds depends on measured times, their starts must not.
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
            budget=TimeBudget(began, time_limit),
        )

    def step(self, state: SearchState, deadline: float = np.inf) -> SearchState:
        """Take one turn: one start, some neighbours of a good sequence, or a refinement of the best motion."""
        kind, began = self._next_kind(state), time.monotonic()
        if kind is None:
            return replace(state, status=Status.SOLVED if state.confirmed else Status.LOCALLY_INFEASIBLE)
        left = min(self._search_until(state), deadline) - began
        state.work.deadline = began + max(SECONDS * state.budget.load(), (REFINING if kind == REFINE else SHARE) * left)
        # Neighbours are many and start near a motion: where one does not converge, the next is better than a penalty.
        state.work.method = state.work.method.replace(penalised=kind != MOVES)
        if kind == REFINE:
            return self._refine(state, began)
        if kind == MOVES:
            return self._try_neighbours(state, began)
        start = next(state.streams[kind], EMPTY)
        if start is EMPTY:
            return replace(state, streams={k: v for k, v in state.streams.items() if k != kind})
        if start is None:
            return state.with_seconds(kind, began)
        if isinstance(start, Proposal):
            return self._try_motion(state, kind, start.motion, began, sequence=start.sequence)
        motion = state.task.motion(start, state.work.seconds_left()) if isinstance(start, Start) else start
        return self._try_motion(state, kind, motion, began, getattr(start, "p", None))

    def terminate(self, state: SearchState) -> Status | None:
        """Return the status with which the search ends; None while it goes on."""
        if state.status is not None:
            return state.status
        effort = EFFORTS[self.effort]
        # Every kind finds a motion without events: their agreement on it says little of motions with events.
        eventful = state.leader is not None and len(state.leader.sequence.items) > 1
        kinds = effort.kinds * (1 if eventful else MANY)
        patience = effort.patience * (1.0 if len(state.agreement) >= kinds else ALONE)
        if state.leader is not None and not state.leader.laws.names and len(state.agreement) >= effort.kinds:
            patience = SMOOTH_SYSTEM * effort.patience
        if state.confirmed and state.since >= patience and state.refinable is None:
            return Status.SOLVED
        # At least one turn is taken, however short the limit of time.
        over = bool(state.candidates or state.seconds) and time.monotonic() >= self._search_until(state)
        return Status.TIME_LIMIT if over else None

    def solution(self, state: SearchState, *, wall_seconds: float | None = None) -> Solution:
        """Return the best solution so far, solved on the grid of `program`.

        Its status is SOLVED if a simulation confirms it, NOT_CONFIRMED or NOT_CERTIFIED if not.

        Raises
        ------
        OptionError
            Before the first step.
        """
        if state.best is None and (state.seconds or state.status is not None):
            # No turn has led to a program: the motion without control takes their place, so that there is a result.
            state.work.deadline = time.monotonic() + NOTHING_YET
            still = state.task.start(state.task.zero[None])
            state = self._try_motion(state, next(iter(STARTS)), state.task.motion(still, SECONDS), time.monotonic())
        best = state.best
        if best is None:
            raise OptionError("solution: there is nothing yet; take a step first.")
        if best.solution.success and state.status not in (Status.INTERRUPTED, Status.STOPPED):
            finer = self._on_final_grid(state, best, max(state.deadline, time.monotonic() + SECONDS))
            # The search uses moving grids: where equal intervals are required, only the finer solution has them.
            required = self.program.grid == "equal" and finer is not None and finer.solution.success
            best = finer if finer is not None and (required or finer.rank < best.rank) else best
        status, message = self._status_of(state, best)
        solution = replace(best.solution, certificate=best.certificate)
        if status in (Status.SOLVED, Status.NOT_CONFIRMED) and state.guess is not None:
            solution, status, message = self._better_of_guess(state, solution, status, message)
        seconds = time.monotonic() - state.began if wall_seconds is None else wall_seconds
        return replace(
            solution,
            status=status,
            message=message,
            method=repr(self),
            candidates=state.candidates,
            agreement=state.agreement,
            **{**state.work.effort(), "wall_seconds": seconds},
        )

    def _better_of_guess(
        self, state: SearchState, solution: Solution, status: Status, message: str
    ) -> tuple[Solution, Status, str]:
        """Return the guess instead of the solution if it is confirmed on this problem and better."""
        assert state.guess is not None
        try:
            certificate = certify(state.task.ocp, state.guess)
        except (ModelError, OptionError):  # of another problem
            return solution, status, message
        better = status is not Status.SOLVED or certificate.true_objective < solution.objective
        if certificate.verdict not in CONFIRMED or not better or self.program.grid == "equal":
            return solution, status, message
        guess = replace(state.guess, certificate=certificate)
        return guess, Status.SOLVED, "no better solution than the guess was found"

    def _search_until(self, state: SearchState) -> float:
        """Return the time at which the search has to end, so that time is left for the final grid."""
        return state.began + (1.0 - LAST) * (state.deadline - state.began)

    def _next_kind(self, state: SearchState) -> str | None:
        """Return the kind with the highest priority; the guess comes first, a refinement when it is due."""
        if GUESS in state.streams:
            return GUESS
        kinds = [kind for kind in self.starts if kind in state.streams]
        if MOVES in self.starts and state.expandable is not None:
            kinds.append(MOVES)
        late = time.monotonic() - state.began > REFINED * (self._search_until(state) - state.began)
        nothing = len(state.candidates) >= SEVERAL and not any(node.attempt.confirmed for node in state.nodes)
        if state.refinable is not None and (
            late or nothing or not kinds or state.since >= EFFORTS[self.effort].patience
        ):
            return REFINE
        # Every other turn goes to a kind that may still agree with the best: without agreement its value is uncertain.
        alone = state.confirmed and len(state.agreement) < EFFORTS[self.effort].kinds
        others = [kind for kind in kinds if kind != MOVES and kind not in state.agreement]
        if alone and others and len(state.candidates) % 2:
            kinds = others
        return max(kinds, key=state.priority, default=None)

    def _try_motion(
        self,
        state: SearchState,
        kind: str,
        motion: Trajectory,
        began: float,
        p: Any = None,
        sequence: Sequence | None = None,
    ) -> SearchState:
        """Solve the program of the sequence of a motion, and of the sequences that simulations of solutions show.

        A motion that obeys no law (a `Proposal`) comes with its sequence, as none can be read from it.
        """
        ocp, work, best = state.task.ocp, state.work, None
        for _ in range(FOLLOWED):
            laws = laws_of(ocp, motion)
            start = start_of_motion(ocp, Sequence([{}]), motion)
            start = start if p is None else replace(start, p=p)
            moves = len(motion.t) > 1  # else its simulation failed at once
            if sequence is None:
                sequence = read_sequence(laws, motion, start.p) if moves else constant_mode(laws, motion.x[0], start.p)
                sequence = with_longest_phases(sequence, laws, float(ocp.horizon))
            known = state.tried.get(sequence, frozenset())
            # The best sequence may be solved by every kind: that is how kinds of start agree.
            again = state.leader is not None and sequence == state.leader.sequence
            if kind in known or (len(known) >= ATTEMPTS and not again):
                state = replace(state, since=state.since + KNOWN)
                break
            start = replace(start_of_motion(ocp, sequence, motion), p=start.p)
            attempt = self._solve(work, laws, sequence, start, state.cutoff(kind))
            state = state.with_tried(sequence, kind)
            if attempt is None:
                break
            state = state.with_tried(attempt.point.sequence, kind).with_attempt(attempt, kind)
            best = attempt if best is None or rank_of(attempt) < rank_of(best) else best
            if attempt.confirmed or attempt.certificate is None or not attempt.certificate.trajectory.success:
                break
            motion, p, sequence = attempt.certificate.trajectory, attempt.point.p, None
        return state.with_candidate(kind, began, best)

    def _try_neighbours(self, state: SearchState, began: float) -> SearchState:
        """Solve neighbours of one of the best sequences until one is a gain or the turn is over."""
        node = state.expandable
        assert node is not None
        best, ocp = None, state.task.ocp
        while time.monotonic() - began < MOVING * state.budget.load():
            sequence = next(node.moves, None)
            if sequence is None:
                state = replace(state, expanded=state.expanded | {node.sequence})
                break
            if sequence in state.tried:
                continue
            start = start_of_motion(ocp, sequence, node.attempt.solution)
            attempt = self._solve(state.work, node.laws, sequence, start, state.cutoff(MOVES))
            state = state.with_tried(sequence, MOVES)
            if attempt is None:
                break
            gained = state.is_gain(attempt)  # before the attempt is part of the state
            state = state.with_tried(attempt.point.sequence, MOVES).with_attempt(attempt, MOVES)
            best = attempt if best is None or rank_of(attempt) < rank_of(best) else best
            if gained:
                break
        return state.with_candidate(MOVES, began, best)

    def _refine(self, state: SearchState, began: float) -> SearchState:
        """Solve the best motion on the final grid; a motion that is not confirmed there loses its rank."""
        node = state.refinable
        assert node is not None
        attempt = self._on_final_grid(state, node.attempt, state.work.deadline)
        state = replace(state, refined=state.refined | {node.sequence})
        if attempt is None:
            return state
        # A refinement is no new start: patience neither begins anew nor runs on.
        refined = replace(state.with_attempt(attempt, node.kind), since=state.since)
        return refined.with_candidate(node.kind, began, attempt)

    @staticmethod
    def _solve(work: Refinement, laws: Any, sequence: Sequence, start: Any, cutoff: float) -> PhaseAttempt | None:
        """Return the best attempt for a sequence; None if the time is over before there is one."""
        work.best = None
        try:
            attempt = work.refine(laws, sequence, start, cutoff)
        except RefinementStopped as end:
            if end.status is Status.INTERRUPTED:
                raise KeyboardInterrupt from None
            return work.best
        # A finer mesh may fail where a coarse one has found a motion.
        return work.best if work.best is not None and work.best.rank < attempt.rank else attempt

    def _on_final_grid(self, state: SearchState, attempt: PhaseAttempt, deadline: float) -> PhaseAttempt | None:
        """Solve the sequence of an attempt on the grid of `program`, refined until it is confirmed."""
        ocp, sequence = state.task.ocp, attempt.point.sequence
        work = Refinement(self.program.replace(sequence=None), ocp, None, time.monotonic(), deadline)
        laws, start = attempt.point.program.laws, start_of_motion(ocp, sequence, attempt.solution)
        finer = self._solve(work, laws, sequence, replace(start, near=True), np.inf)
        state.work.log.extend(replace(line, step=len(state.work.log) + k) for k, line in enumerate(work.log))
        return finer

    def _status_of(self, state: SearchState, best: PhaseAttempt) -> tuple[Status, str]:
        """Return status and message of the solution that is returned."""
        solution = best.solution
        if state.status in (Status.INTERRUPTED, Status.STOPPED):
            return state.status, f"the best solution so far is {best.verdict or solution.status}"
        if best.confirmed:
            return Status.SOLVED, "; ".join(part for part in (solution.message, self._agreement_note(state)) if part)
        if best.certificate is not None:
            undecided = best.verdict is Verdict.UNDECIDED
            return Status.NOT_CERTIFIED if undecided else Status.NOT_CONFIRMED, solution.message
        if solution.status is Status.NUMERICAL_ERROR:
            return solution.status, solution.message
        count = len(state.candidates)
        nearest = f"the nearest misses {best.point.worst} by {best.point.violation:.3g}"
        message = f"none of {count} starts led to a feasible motion; {nearest}{self._nearest_note(state)}"
        return Status.TIME_LIMIT if state.status is Status.TIME_LIMIT else solution.status, message

    @staticmethod
    def _nearest_note(state: SearchState) -> str:
        """Return a note on the motion nearest to the goal, in the user's quantities; "" without a goal or time."""
        attempts = sorted((node.attempt for node in state.nodes), key=lambda attempt: attempt.point.violation)
        ocp = state.task.ocp
        guesses = (stretched_control(attempt.solution, float(ocp.horizon)) for attempt in attempts)
        deadline = max(state.deadline, time.monotonic() + SECONDS)
        nearest = nearest_motion(ocp, (guess for guess in guesses if guess is not None), deadline)
        return "" if nearest is None else f"; {nearest}"

    def _agreement_note(self, state: SearchState) -> str:
        """Return a note if too few kinds of start agree; their agreement is the only evidence of a global optimum."""
        if len(state.agreement) >= EFFORTS[self.effort].kinds:
            return ""
        finders = (
            f"found only by {', '.join(state.agreement)}" if state.agreement else "not found directly by any start"
        )
        over = "the time limit was reached" if state.status is Status.TIME_LIMIT else "no better one was found"
        return f"the optimum may be local: different kinds of start do not agree on it, it was {finders} ({over})"


def with_longest_phases(sequence: Sequence, laws: Any, horizon: float) -> Sequence:
    """Return the sequence with its `PHASES` longest phases only: a motion that rattles has too many for a program."""
    if len(sequence.phases) <= PHASES or sequence.times is None:
        return sequence
    edges = np.concatenate([[0.0], sequence.times, [max(horizon, float(sequence.times[-1]))]])
    lengths = np.diff(edges)
    short = lengths < np.sort(lengths)[-PHASES]
    plan, edges = Plan.of(sequence, laws).without_phases(short, edges)
    return sequence_from_modes(plan.modes, plan.impacts, laws, edges[1:-1])


def constant_mode(laws: Any, x: np.ndarray, p: np.ndarray) -> Sequence:
    """Return the sequence of a motion that stays in the mode of a state (n_x,)."""
    return sequence_from_modes([laws.mode_at(x, p)], [{}], laws)
