"""Default search of `solve`: generate starts, simulate them, optimise their mode sequences, certify and rank results.

Loop: (1) choose a kind of start by its gains per work (`SearchState.priority`); (2) take one start and simulate it
exactly; (3) read the mode sequence of the motion; (4) solve the smooth multi-phase program of that sequence on a coarse
grid; (5) simulate the solution with the event-driven referee, and if it shows another sequence, repeat from (3).
Neighbours of the best sequences ("moves") skip the simulation and start from the motion that they were derived from.

Invariants: a sequence is tried by few kinds of start, or from motions far apart, so that work goes to new ones; what is
returned as SOLVED is confirmed by a simulation, and no direction of descent is left; limits are of counted work, so
that the clock may cut the search but does not steer it; part of the work is reserved for the final grid. No global
optimum is proven: agreement of independent kinds of start is the only evidence, and the message says if it is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from nosnoc_py.attempts.rank import ObjectiveScale, RankGroup
from nosnoc_py.attempts.work import Account, counted, exhausted
from nosnoc_py.errors import ModelError, OptionError, check_type, unknown_name
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod
from nosnoc_py.processes import can_fork
from nosnoc_py.search.drawn import guessed
from nosnoc_py.search.kinds import STARTS
from nosnoc_py.search.nearest import conflict, nearest_motion
from nosnoc_py.search.progress_line import progress_line
from nosnoc_py.search.seeds import best_of_seeds
from nosnoc_py.search.stances import Proposal
from nosnoc_py.search.starts import Start, StartTask
from nosnoc_py.search.state import GUESS, MOVES, SearchState
from nosnoc_py.search.tuning import TUNING
from nosnoc_py.sequences.multi_phase import MultiPhase
from nosnoc_py.sequences.optimise import NOT_FINITE
from nosnoc_py.sequences.plan import Plan, sequence_from_modes
from nosnoc_py.sequences.program import PhaseStart
from nosnoc_py.sequences.reading import read_sequence
from nosnoc_py.sequences.refinement import (
    CONFIRMED,
    NO_CUTOFF,
    Cutoff,
    PhaseAttempt,
    Refinement,
    RefinementStopped,
    joined,
    laws_of,
    start_of_motion,
    stretched_control,
)
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.solution import Sequence, Solution, Trajectory
from nosnoc_py.status import LIMITS, Status, iterated
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

REFINE = "refine"
# The simplex comes first: it only has starts for problems without controls, where it is the fastest kind.
KINDS = (*sorted(STARTS.own, key=lambda kind: kind != "simplex"), MOVES)
# Marks an exhausted generator, as None is an item of it.
EMPTY: Any = object()


@dataclass(frozen=True)
class Effort:
    """Effort of a search.

    Attributes
    ----------
    work : float
        Limit of work for a problem of up to ten states, in units of about a second; it grows with the number of states.
    patience : int
        Number of starts without a gain after which the search ends.
    kinds : int
        Number of independent kinds of start that have to agree on the best objective.
    longer : float
        Factor of the work where motions wait that would be better, or the only ones, if a finer mesh confirmed them.
    """

    work: float
    patience: int
    kinds: int
    longer: float = 1.0


EFFORTS = {
    "quick": Effort(4.0, 6, 1),
    "normal": Effort(24.0, 15, 2, 2.0),
    "thorough": Effort(240.0, 90, 3, 2.0),
}


class Search(CompleteMethod):
    """Search over mode sequences from many starts; the default method of `solve`.

    A start is a control. Its exact motion has a sequence of modes, and the multi-phase program of that sequence is a
    smooth optimal control problem, whose solution is simulated again. Kinds of start share the work by their gains per
    work; one of them, "moves", edits the sequences of the best motions so far. The search ends when independent kinds
    of start agree on the best objective and nothing better has been found for a while, or at the limit of work. Work is
    counted in evaluations: the same problem and seed give the same candidates, whatever else the machine does.

    Parameters
    ----------
    effort : {"quick", "normal", "thorough"}
        Limit of work (4, 24, 240 units of about a second, more for problems of more than ten states) and patience:
        starts without a gain before the search ends (6, 15, 90). The second and third limits double while a motion
        waits that a finer mesh may confirm.
    seed : int
        Seed of the random starts. Every kind has its own random numbers.
    starts : tuple of str
        Kinds of start, all by default: "simplex", "constant", "line", "smoothed", "random", "relaxed", "evolution",
        "stances", "compliant", "quasistatic", "moves".
    program : MultiPhase
        Program of the solution that is returned; sequences are compared on coarser meshes. By default its control has
        24 intervals, and more where that gains more than .1 %.
    progress : bool
        Show one line of progress on standard error, in a terminal or a notebook and without a callback.
    workers : int
        Number of processes (forks, on Linux), each of which searches with a seed of its own: seed, seed + 1, ... The
        best solution of all of them is returned, with the candidates of all. The first search is that of one worker.
    time_limit : float, optional
        Limit of time by the clock [s], which cuts the search; the message says so.

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

    takes: ClassVar[tuple[type, ...]] = (CLS, PSS, Heaviside, PDS, HybridSystem)
    remembers: ClassVar[bool] = True
    special_friction: ClassVar[bool] = True

    effort: Literal["quick", "normal", "thorough"] = "normal"
    seed: int = Field(default=0, ge=0)
    starts: tuple[str, ...] = KINDS
    program: MultiPhase = Field(default_factory=lambda: MultiPhase(intervals=24, interior={"patience": TUNING.stalled}))
    progress: bool = True
    workers: int = Field(default=1, ge=1)

    @field_validator("starts")
    @classmethod
    def _starts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for kind in value:
            if kind not in STARTS and kind != MOVES:
                raise ValueError(unknown_name(kind, (*STARTS, MOVES), "kind of start"))
        if not set(value) - {MOVES}:
            raise ValueError(f"expected one kind of start at least besides {MOVES!r}, such as {next(iter(STARTS))!r}")
        return value

    def solved(
        self, ocp: OCP, guess: Any, callback: Callable[[Any], Any] | None, started: float, deadline: float
    ) -> Solution:
        """Search until kinds of start agree and nothing better is found, or the work or the time is used up."""
        if self.workers > 1 and can_fork():

            def search(number: int) -> Solution:
                alone = self.replace(workers=1, seed=self.seed + number, progress=self.progress and not number)
                return alone.solved(ocp, guess, None if number else callback, started, deadline)

            solution = replace(best_of_seeds(search, self.workers), method=repr(self))
            return replace(solution, wall_seconds=time.monotonic() - started)
        state = self.init(ocp, guess, time_limit=deadline - started)

        def ended(state: SearchState) -> dict[str, Any] | None:
            status = self.terminate(state)
            return None if status is None else {"status": status}

        with progress_line(self.progress, callback) as shown:
            state = iterated(state, self.step, ended, shown, np.inf)
            solution = self.solution(state)
        if self.workers > 1:
            note = f"one process instead of workers={self.workers}: processes cannot be forked here"
            solution = replace(solution, message=joined(solution.message, note))
        return replace(solution, wall_seconds=time.monotonic() - started)

    def init(self, ocp: OCP, guess: Any = None, *, time_limit: float = np.inf) -> SearchState:
        """Return the state before the first turn.

        Parameters
        ----------
        ocp : OCP
        guess : Solution, Trajectory, mapping or array, optional
            Motion, states or control that are tried before all other starts.
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
            intervals=min(TUNING.coarse_intervals, self.program.intervals),
            grid="moving",
            max_iterations=TUNING.coarse_iterations,
            refinements=min(TUNING.coarse_refinements, self.program.refinements),
        )
        task = StartTask.of(ocp)
        # Every kind has its own random numbers, so that leaving one out does not change the others.
        streams: dict[str, Iterator[Any]] = {
            kind: make(task, np.random.default_rng((self.seed, number)))
            for number, (kind, make) in enumerate(STARTS.items())
            if kind in self.starts
        }
        if guess is not None:
            streams = {GUESS: guessed(task, guess, time_limit), **streams}
        return SearchState(
            guess=guess if isinstance(guess, Solution) else None,
            task=task,
            work=Refinement(coarse, ocp, None, began, began + time_limit),
            streams=streams,
            limit=EFFORTS[self.effort].work * task.growth,
            deadline=began + time_limit,
        )

    def step(self, state: SearchState, deadline: float = np.inf) -> SearchState:
        """Take one turn: one start, some neighbours of a good sequence, or a refinement of the best motion."""
        kind = self._next_kind(state)
        if kind is None:
            return replace(state, status=Status.SOLVED if state.confirmed else Status.LOCALLY_INFEASIBLE)
        # However short the limit of time is, the first turn is a whole one.
        grace = -np.inf if state.spent else time.monotonic() + TUNING.grace
        state.work.deadline = max(min(state.deadline, deadline), grace)
        # Neighbours are many and start near a motion: where one does not converge, the next is better than a penalty.
        state.work.method = state.work.method.replace(penalised=kind != MOVES)
        first = len(state.work.log)
        with counted() as account:
            state = self._turn(state, kind, account)
        words = [record.solver_status for record in state.work.log[first:]]
        state = state.with_work(kind, account.total, (len(words), words.count(NOT_FINITE)))
        return state.extended(EFFORTS[self.effort].work * EFFORTS[self.effort].longer * state.task.growth)

    def _work_of_turn(self, state: SearchState, kind: str) -> float:
        """Return the limit of work of one turn."""
        left = (1.0 - TUNING.reserved - state.used) * state.limit
        least = TUNING.least_turn * state.task.growth
        if kind == REFINE:
            # Cut short, the only motion that may be confirmed would be lost: it is refined once.
            return max(least if state.confirmed else TUNING.last_program * state.limit, TUNING.refinement * left)
        return max(least, TUNING.turn * left)

    def _turn(self, state: SearchState, kind: str, account: Account) -> SearchState:
        """Return the state after one turn of a kind; the start and its programs have a limit each."""
        limit = self._work_of_turn(state, kind)
        with counted(limit):
            if kind == REFINE:
                return self._refine(state, account)
            if kind == MOVES:
                return self._try_neighbours(state, account)
            start = next(state.streams[kind], EMPTY)
        if start is EMPTY:
            return replace(state, streams={k: v for k, v in state.streams.items() if k != kind})
        if start is None:
            return state
        with counted(limit):
            if isinstance(start, Proposal):
                return self._try_motion(state, kind, start.motion, account, sequence=start.sequence)
            if isinstance(start, Start):
                motion = state.task.motion(start, state.work.seconds_left())
                return self._try_motion(state, kind, motion, account, start.p)
            return self._try_motion(state, kind, start, account)  # a guess

    def terminate(self, state: SearchState) -> Status | None:
        """Return the status with which the search ends; None while it goes on."""
        if state.status is not None:
            return state.status
        effort = EFFORTS[self.effort]
        # Every kind finds a motion without events: their agreement on it says little of motions with events.
        leader = state.leader
        eventful = leader is not None and len(leader.sequence.items) > 1
        kinds = effort.kinds * (1 if eventful else TUNING.kinds_without_events)
        patience = effort.patience * (1.0 if len(state.agreement) >= kinds else TUNING.patience_alone)
        if leader is not None and leader.laws.names and not state.task.rest.size:
            patience *= TUNING.patience_thrown
        elif leader is not None and leader.is_smooth and len(state.agreement) >= effort.kinds:
            rivalled = not leader.laws.names or state.rivals >= TUNING.rivals * effort.kinds
            patience = (TUNING.patience_smooth if rivalled else TUNING.patience_unrivalled) * effort.patience
        if state.task.undefined and state.candidates:
            return Status.NUMERICAL_ERROR
        if leader is not None and leader.attempt.escapes:
            return Status.UNBOUNDED
        if state.confirmed and state.since >= patience and state.refinable is None:
            return Status.SOLVED
        # At least one turn is taken, however short the limit of time.
        if state.spent and time.monotonic() >= self._search_until(state):
            return Status.TIME_LIMIT
        return Status.WORK_LIMIT if state.used >= 1.0 - TUNING.reserved else None

    def solution(self, state: SearchState) -> Solution:
        """Return the best solution so far, solved on the grid of `program`.

        Its status is SOLVED if a simulation confirms it, NOT_CONFIRMED or NOT_CERTIFIED if not.

        Raises
        ------
        OptionError
            Before the first step.
        """
        if state.best is None and (state.spent or state.status is not None):
            # No turn has led to a program: the motion without control takes their place, so that there is a result.
            with counted(TUNING.first_program * state.task.growth) as account:
                still = state.task.motion(state.task.start(state.task.zero[None]))
                state = self._try_motion(state, next(iter(STARTS)), still, account)
        best, loss = state.best, 0.0
        if best is None:
            raise OptionError("solution: there is nothing yet; take a step first.")
        if best.rank.feasible and not best.escapes and state.status not in (Status.INTERRUPTED, Status.STOPPED):
            # Without a confirmed motion the last program may be the first one.
            last = TUNING.least_turn * state.task.growth if best.confirmed else TUNING.last_program * state.limit
            with counted(max(last, (1.0 - state.used) * state.limit)) as account:
                finer = self._on_final_grid(state, best)
                if finer is not None and finer.confirmed and self.refines_control:
                    with counted(TUNING.finer_grids * state.limit):
                        finer, loss = self._with_finer_control(state, finer)
            state = state.with_work(REFINE, account.total)
            # The search uses moving grids: where equal intervals are required, only the finer solution has them.
            required = self.program.grid == "equal" and finer is not None and finer.solution.success
            best = finer if finer is not None and (required or finer.rank < best.rank) else best
        with counted(TUNING.first_program * state.task.growth):
            status, message = self._status_of(state, best)
        if loss > TUNING.fine_grid:
            message = joined(message, f"a finer control would gain about {loss:.1%}")
        solution = replace(best.solution, certificate=best.certificate)
        if status in (Status.SOLVED, Status.NOT_CONFIRMED) and state.guess is not None:
            solution, status, message = self._better_of_guess(state, solution, status, message)
        seconds = time.monotonic() - state.work.started
        return replace(
            solution,
            status=status,
            message=message,
            method=repr(self),
            candidates=state.candidates,
            agreement=state.agreement,
            work=dict(state.spent),
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
        better = not status.success or certificate.true_objective < solution.objective
        if certificate.verdict not in CONFIRMED or not better or self.program.grid == "equal":
            return solution, status, message
        guess = replace(state.guess, certificate=certificate)
        return guess, Status.SOLVED, "no better solution than the guess was found"

    def _search_until(self, state: SearchState) -> float:
        """Return the time at which the search is cut, so that time is left for the final grid."""
        return (
            state.deadline - TUNING.reserved * (state.deadline - state.work.started)
            if np.isfinite(state.deadline)
            else np.inf
        )

    def _next_kind(self, state: SearchState) -> str | None:
        """Return the kind with the highest priority; the guess comes first, a refinement when it is due."""
        if GUESS in state.streams:
            return GUESS
        kinds = [kind for kind in self.starts if kind in state.streams]
        if MOVES in self.starts and state.expandable is not None:
            kinds.append(MOVES)
        late = state.used > TUNING.refined_at * (1.0 - TUNING.reserved)
        nothing = len(state.candidates) >= TUNING.unconfirmed_starts and not any(
            node.attempt.confirmed for node in state.nodes
        )
        if state.refinable is not None and (
            late or nothing or not kinds or state.since >= EFFORTS[self.effort].patience
        ):
            return REFINE
        # Every other turn goes to a kind that may still agree with the best: without agreement its value is uncertain.
        alone = state.confirmed and len(state.agreement) < EFFORTS[self.effort].kinds
        best = max(map(state.priority, kinds), default=0.0)
        others = [
            kind
            for kind in kinds
            if kind != MOVES and kind not in state.agreement and state.priority(kind) >= TUNING.hopeful * best
        ]
        if alone and others and len(state.candidates) % 2:
            kinds = others
        return max(kinds, key=state.priority, default=None)

    def _try_motion(
        self,
        state: SearchState,
        kind: str,
        motion: Trajectory,
        account: Account,
        p: Any = None,
        sequence: Sequence | None = None,
    ) -> SearchState:
        """Solve the program of the sequence of a motion, and of the sequences that simulations of solutions show.

        A motion that obeys no law (a `Proposal`) comes with its sequence, as none can be read from it.
        """
        best = None
        state = replace(state, since=state.since + 1.0)  # a gain sets it to zero
        for turn in range(TUNING.followed):
            laws, sequence, start = self._program_of(state, motion, p, sequence)
            if not self._is_new(state, kind, sequence, motion):
                # A start whose sequence is known costs a simulation only.
                counts = round(
                    float(np.clip(account.total / (state.usual_work or 1.0), TUNING.known_least, TUNING.known_most)), 2
                )
                state = replace(state, since=max(0.0, state.since - (1.0 - counts))) if not turn else state
                break
            cutoff = state.cutoff(kind)
            attempt = self._solve(state.work, laws, sequence, start, cutoff)
            state = state.with_tried(sequence, kind, self._place(state, motion))
            if attempt is None:
                break
            state = state.with_tried(attempt.point.sequence, kind).with_attempt(attempt, kind)
            best = attempt if best is None or attempt.rank.promise < best.rank.promise else best
            if attempt.confirmed or attempt.certificate is None or not attempt.certificate.trajectory.success:
                break
            motion, p, sequence = attempt.certificate.trajectory, attempt.point.p, None
        return state.with_candidate(kind, account.total, best)

    @staticmethod
    def _program_of(
        state: SearchState, motion: Trajectory, p: Any, sequence: Sequence | None
    ) -> tuple[Any, Sequence, PhaseStart]:
        """Return laws, sequence and start of the program of a motion; the sequence is read unless it is given."""
        ocp = state.task.ocp
        laws = laws_of(ocp, motion)
        p = start_of_motion(ocp, Sequence([{}]), motion).p if p is None else p
        if sequence is None:
            moves = len(motion.t) > 1  # else its simulation failed at once
            sequence = read_sequence(laws, motion, p) if moves else constant_mode(laws, motion.x[0], p)
            sequence = with_longest_phases(sequence, laws, float(ocp.horizon))
        return laws, sequence, replace(start_of_motion(ocp, sequence, motion), p=p)

    def _is_new(self, state: SearchState, kind: str, sequence: Sequence, motion: Trajectory) -> bool:
        """True if the program of a motion is worth solving."""
        return state.is_new(sequence, kind, self._place(state, motion), TUNING.kinds_per_sequence)

    @staticmethod
    def _place(state: SearchState, motion: Trajectory) -> np.ndarray:
        """Return samples of a motion, relative to the sizes of the states (m,)."""
        times = motion.t0 + np.linspace(0.0, motion.duration, TUNING.motion_samples)
        return motion(times).ravel() / np.tile(state.task.sizes, TUNING.motion_samples)

    def _try_neighbours(self, state: SearchState, account: Account) -> SearchState:
        """Solve neighbours of one of the best sequences until one is a gain or the turn is over."""
        node = state.expandable
        assert node is not None
        best = None
        while account.total < TUNING.neighbours * state.task.growth:
            sequence = next(node.moves, None)
            if sequence is None:
                state = replace(state, expanded=state.expanded | {node.sequence})
                break
            if not state.is_worth_trying(sequence):
                continue
            start = start_of_motion(state.task.ocp, sequence, node.attempt.solution)
            attempt = self._solve(state.work, node.laws, sequence, start, state.cutoff(MOVES))
            state = state.with_tried(sequence, MOVES)
            if attempt is None:
                break
            gained = state.is_gain(attempt)  # before the attempt is part of the state
            state = state.with_tried(attempt.point.sequence, MOVES).with_attempt(attempt, MOVES)
            best = attempt if best is None or attempt.rank.promise < best.rank.promise else best
            if gained:
                break
        return state.with_candidate(MOVES, account.total, best)

    def _refine(self, state: SearchState, account: Account) -> SearchState:
        """Solve the best motion on the final grid; a motion that is not confirmed there loses its rank."""
        node = state.refinable
        assert node is not None
        attempt = self._on_final_grid(state, node.attempt)
        state = state.with_refinement(node)
        if attempt is None:
            return state
        # A refinement is no new start: patience neither begins anew nor runs on.
        refined = replace(state.with_attempt(attempt, node.kind), since=state.since)
        # One that is still rough is not refined for ever.
        refined = replace(refined, waiting=tuple(one for one in refined.waiting if one.attempt is not attempt))
        return refined.with_candidate(node.kind, account.total, attempt)

    @staticmethod
    def _solve(work: Refinement, laws: Any, sequence: Sequence, start: Any, cutoff: Cutoff) -> PhaseAttempt | None:
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

    @property
    def refines_control(self) -> bool:
        """True if the grid of the control is the search's own: one that the user gives is kept."""
        return "program" not in self.model_fields_set

    def _with_finer_control(self, state: SearchState, attempt: PhaseAttempt) -> tuple[PhaseAttempt, float]:
        """Return the attempt on a control grid on which its loss is small, and the loss as a fraction of the objective.

        The loss of a control that is constant on intervals falls with the square of their length: a third of the last
        gain is left (Richardson 1911).
        """
        if not state.task.rest.size:
            return attempt, 0.0
        scale, loss, intervals = state.scale, np.inf, self.program.intervals
        while loss > TUNING.fine_grid and intervals < TUNING.most_intervals and not exhausted():
            intervals *= 2
            finer = self._on_final_grid(state, attempt, intervals)
            if finer is None or not finer.confirmed:
                break
            gain = (attempt.true_objective - finer.true_objective) / (scale.size(finer.true_objective) or 1.0)
            loss = max(gain, 0.0) / 3.0
            attempt = finer if gain > 0.0 else attempt
        return attempt, loss if np.isfinite(loss) else 0.0

    def _on_final_grid(
        self, state: SearchState, attempt: PhaseAttempt, intervals: int | None = None
    ) -> PhaseAttempt | None:
        """Solve the sequence of an attempt on the grid of `program`, refined until it is confirmed."""
        ocp, sequence = state.task.ocp, attempt.point.sequence
        program = self.program.replace(sequence=None)
        if intervals is not None:
            # From a solution on a coarser grid it takes few iterations, or is not worth more.
            program = program.replace(
                intervals=intervals,
                max_iterations=TUNING.few_iterations,
                penalised=False,
                refinements=TUNING.coarse_refinements,
            )
        deadline = max(state.deadline, time.monotonic() + TUNING.grace)
        work = Refinement(program, ocp, None, time.monotonic(), deadline)
        laws, start = attempt.point.program.laws, start_of_motion(ocp, sequence, attempt.solution)
        finer = self._solve(work, laws, sequence, replace(start, near=True), NO_CUTOFF)
        state.work.log.extend(replace(line, step=len(state.work.log) + k) for k, line in enumerate(work.log))
        return finer

    def _status_of(self, state: SearchState, best: PhaseAttempt) -> tuple[Status, str]:
        """Return status and message of the solution that is returned."""
        if state.status in (Status.INTERRUPTED, Status.STOPPED):
            return state.status, f"the best solution so far is {best.verdict or best.solution.status}"
        status, message = self._judgement(state, best)
        return status, joined(message, self._broken_note(state), self._cut_note(state))

    def _judgement(self, state: SearchState, best: PhaseAttempt) -> tuple[Status, str]:
        """Return status and message of the best attempt, without notes about the search."""
        if best.certificate is not None or best.escapes:
            status, message = best.judged()
            escaped = [node.attempt for node in state.nodes if node.attempt.escapes]
            lowest = min(escaped, key=lambda attempt: attempt.point.objective, default=best)
            if status.success and lowest.point.objective < ObjectiveScale().above(best.point.objective, -TUNING.fallen):
                status, message = Status.FEASIBLE, joined(message, f"there may be no optimum: {lowest.falling()}")
            return status, joined(message, self._agreement_note(state) if best.confirmed else "")
        if best.rank.feasible:
            return Status.NOT_CERTIFIED, "the motion satisfies all constraints at its nodes; it was not simulated"
        if best.rank.group is RankGroup.BROKEN or best.solution.status is Status.NUMERICAL_ERROR:
            return Status.NUMERICAL_ERROR, state.task.undefined or best.solution.message
        status = state.status if state.status in LIMITS else best.solution.status
        nearest = f"the nearest misses {best.point.worst} by {best.point.violation:.3g}"
        count = sum(candidate.start != MOVES for candidate in state.candidates)
        note, conflicting = self._nearest_note(state)
        # What conflicts is not found with more work.
        status = Status.LOCALLY_INFEASIBLE if conflicting and status is Status.WORK_LIMIT else status
        return status, f"none of {count} starts led to a feasible motion; {nearest}{note}"

    @staticmethod
    def _broken_note(state: SearchState) -> str:
        """Return a note about programs that met values that are not finite; "" if there were few."""
        programs, broken = (sum(column) for column in zip((0, 0), *state.broken.values(), strict=True))
        if 5 * broken <= programs:
            return ""
        places = (node.attempt.point.not_finite for node in state.nodes)
        place = next((f" ({place})" for place in places if place), "")
        return f"{broken} of {programs} programs met values or derivatives that are not finite{place}"

    def _cut_note(self, state: SearchState) -> str:
        """Return a note about a limit that ended the search."""
        if state.status is Status.TIME_LIMIT:
            done = min(1.0, state.used)
            return f"time_limit cut the search at {done:.0%} of the work of effort={self.effort!r}"
        return f"the work of effort={self.effort!r} is used up" if state.status is Status.WORK_LIMIT else ""

    @staticmethod
    def _nearest_note(state: SearchState) -> tuple[str, bool]:
        """Return a note on the motion nearest to the goal and on constraints that conflict; True if there are any."""
        attempts = sorted((node.attempt for node in state.nodes), key=lambda attempt: attempt.point.residual)
        ocp = state.task.ocp
        stretched = (stretched_control(attempt.solution, float(ocp.horizon)) for attempt in attempts)
        guesses = [guess for guess in stretched if guess is not None]
        nearest = nearest_motion(ocp, guesses, state.deadline)
        names = conflict(ocp, guesses[0], state.deadline) if guesses else ()
        together = f"; no motion satisfies {' and '.join(names)} together, without any one of them there is one"
        note = "" if nearest is None else f"; {nearest}"
        return note + (together if len(names) > 1 else ""), len(names) > 1

    def _agreement_note(self, state: SearchState) -> str:
        """Return a note if too few kinds of start agree; their agreement is the only evidence of a global optimum."""
        if len(state.agreement) >= EFFORTS[self.effort].kinds:
            return ""
        finders = (
            f"found only by {', '.join(state.agreement)}" if state.agreement else "not found directly by any start"
        )
        return f"the optimum may be local: different kinds of start do not agree on it, it was {finders}"


def with_longest_phases(sequence: Sequence, laws: Any, horizon: float) -> Sequence:
    """Return the sequence with its `PHASES` longest phases only: a motion that rattles has too many for a program."""
    if len(sequence.phases) <= TUNING.most_phases or sequence.times is None:
        return sequence
    edges = np.concatenate([[0.0], sequence.times, [max(horizon, float(sequence.times[-1]))]])
    lengths = np.diff(edges)
    # By their order and not by a length: phases of a motion that rattles may be equally long.
    short = np.ones(lengths.size, bool)
    short[np.argsort(-lengths, kind="stable")[: TUNING.most_phases]] = False
    plan, edges = Plan.of(sequence, laws).without_phases(short, edges)
    return sequence_from_modes(plan.modes, plan.impacts, laws, edges[1:-1])


def constant_mode(laws: Any, x: np.ndarray, p: np.ndarray) -> Sequence:
    """Return the sequence of a motion that stays in the mode of a state (n_x,)."""
    return sequence_from_modes([laws.mode_at(x, p)], [{}], laws)
