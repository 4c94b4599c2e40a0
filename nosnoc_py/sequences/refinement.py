"""Solution of the multi-phase program of a sequence, with refinement until a simulation confirms it.

Loop of `Refinement.refine` for one sequence: solve the program, certify its solution by an event-driven simulation, and
choose the next mesh by the verdict. Errors of the states raise the order or the number of elements; inequalities that
are violated between the stages get further points, and then margins. With `follow`, a simulation that shows another
sequence replaces the sequence, a few times.

Details that make the programs solvable:

- At first, phases keep a fraction of their initial length, since a phase of length zero has no gradient with respect to
  its states and controls. Phases that stay at this bound are removed, which changes the sequence; only if the shorter
  sequence is no better may they vanish in the program itself.
- If terminal constraints cannot be satisfied from the start, an exact penalty finds a better one first.
- On a grid of equal intervals an event cannot cross a node, as its phase would need another interval. Events held at a
  node are moved beyond it, while the objective decreases.

The best attempt so far is always kept, so that a limit of time, a callback or Ctrl-C loses nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.attempts.loop import best_attempt
from nosnoc_py.attempts.rank import ObjectiveScale, Rank, RankGroup
from nosnoc_py.attempts.work import exhausted
from nosnoc_py.errors import ModelError, OptionError, check_type
from nosnoc_py.kernels import Kernel
from nosnoc_py.motion.record import MotionRecord
from nosnoc_py.mpcc.interior.method import ABOVE, SOLVED, InteriorPoint
from nosnoc_py.ocp import OCP
from nosnoc_py.problem_sizes import rounded
from nosnoc_py.programs import BlockProgram, KernelBlock, LinearMap
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.equations import Mode, ModeLaws
from nosnoc_py.sequences.filippov_laws import FilippovLaws
from nosnoc_py.sequences.multi_phase import MultiPhase
from nosnoc_py.sequences.optimise import ended_by, has_descent, optimise, status_of
from nosnoc_py.sequences.plan import Plan, sequence_from_modes
from nosnoc_py.sequences.program import PhaseMesh, PhaseNLP, PhaseStart, intervals_of
from nosnoc_py.sequences.reading import read_sequence
from nosnoc_py.sequences.readout import PhasePoint, log_record, peaks_of, solution_of
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.simulation.certification.statements import refined_objective
from nosnoc_py.simulation.common import SimulationTask
from nosnoc_py.simulation.event_driven.options import THROUGH_TOUCHES
from nosnoc_py.solution import RungeKuttaInterpolant, Solution, Trajectory
from nosnoc_py.solution.certificate import Certificate
from nosnoc_py.solution.interpolant import Side
from nosnoc_py.solution.records import StepRecord
from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.status import Status, Verdict, asked_to_stop, seconds_to
from nosnoc_py.systems.controls import PiecewiseConstant, control_of_guess, state_guess
from nosnoc_py.systems.quaternions import unit_states, with_attitude
from nosnoc_py.systems.scales import problem_scales
from nosnoc_py.tolerances import FAR, REST_VELOCITY

Array = np.ndarray
# Largest number of sequences in one call, where simulations of solutions show other ones.
TRIES = 4
# Number of refinements after which an error of the objective is attributed to an integrand that is not smooth, and the
# largest such error, relative to the objective.
FINE, QUADRATURE = 2, 1e-2
# Number of samples of a guess that consists of states.
DRAWN = 200
# Number of times that control intervals are distributed anew over the phases, by the lengths these turn out to have.
PLACED = 2
# Weight of the penalty of terminal constraints, as a multiple of the objective. It need not exceed the multipliers, as
# the penalised solution is only a start for the program with the constraints themselves.
PENALTY = 10.0
# Lower bound of the length of a phase at first, as a fraction of its initial length, and the relative distance from
# this bound within which the phase counts as vanishing.
KEPT_LENGTH, VANISHING_LENGTH = 0.2, 1e-3
# Relative violation of an admissible state, and largest number of Gauss-Newton steps towards one.
ADMISSIBLE_START, PROJECTIONS = 1e-9, 30
# Violation between the stages that calls for further points, as a fraction of the tolerance.
BROKEN = 0.1
# Increase of a margin as a multiple of the violation that is left; above one, as a margin also changes the motion.
BACK = 1.2
# A refinement converges if it leaves this part of the largest defect.
CONVERGES = 0.2
# Part of a defect that is left on a mesh of one stage more, part of the tolerance that more elements shall reach, and
# their largest factor in one refinement and in all.
HIGHER_ORDER, SAFE, MOST_SPLIT, MOST_ELEMENTS = 1e-2, 0.3, 4, 32
# Least and largest margin of an open contact that a motion nearly touches, as fractions of the typical length.
MARGINS = 1e-5, 1e-3
# Amplification of errors from which on the message calls a motion unstable.
UNSTABLE = 30.0
# Relative violation below which a program that failed is worth more iterations.
NEARLY = 1e-2
# Least length of a phase of a given sequence, as a fraction of the horizon.
SHORTEST = 1e-3
# An inaccurate motion counts as one to be refined if its defects at the ends of windows are at most this fraction of
# the largest state; beyond that it ranks with the refuted ones.
SOUND = 1e-2
# Limit of the iterations of a program whose phases may vanish: it is degenerate, and often does not converge.
FEW_ITERATIONS = 100
# Options for small programs whose solution others begin at.
EXACT_OPTIONS = {"tol": 1e-11, "acceptable_tol": 1e-9}
# Options for a start at the solution on another mesh: by default it is pushed off its bounds by a hundredth, which may
# be far from the solution, and takes half as many iterations more.
NEAR_START = {"mu_init": 1e-3, "bound_push": 1e-5, "bound_frac": 1e-5}
# Length of an added phase as a fraction of the horizon.
ADDED = 0.1
# Distance from a node of equal intervals at which an event counts as held there, and the distance by which it is moved
# beyond the node; in intervals.
HELD_EVENT, BEYOND_NODE = 1e-5, 0.05
# Verdicts that count as confirmed; unstable motions are simulated in windows, as errors grow over the whole of them.
CONFIRMED = (Verdict.CONFIRMED, Verdict.CONFIRMED_IN_WINDOWS)


@dataclass(frozen=True, eq=False, kw_only=True)
class PhaseAttempt:
    """Solution of a program with the verdict of the simulation.

    Attributes
    ----------
    point : PhasePoint
        Iterate of the program.
    solution : Solution
    certificate : Certificate, optional
        None if the solution was not simulated, as its program failed or its objective is too high.
    """

    point: PhasePoint
    solution: Solution
    certificate: Certificate | None = None

    @property
    def verdict(self) -> Verdict | None:
        """Verdict of the certificate; None without one."""
        return None if self.certificate is None else self.certificate.verdict

    @property
    def confirmed(self) -> bool:
        """True if the simulation agrees; for an unstable motion in all windows."""
        return self.verdict in CONFIRMED

    @property
    def true_objective(self) -> float:
        """Objective of the simulated motion if it is confirmed as a whole, else that of the program."""
        # An unstable motion diverges from its simulation: its own objective is then accurate up to defects of windows.
        if self.certificate is None or self.verdict is not Verdict.CONFIRMED:
            return self.solution.objective
        return self.certificate.true_objective

    @property
    def is_sound(self) -> bool:
        """True if a finer mesh is likely to confirm the motion: only errors of the discretisation speak against it."""
        if self.certificate is None or self.verdict not in (Verdict.INACCURATE, Verdict.CONSTRAINT_BETWEEN_NODES):
            return False
        window = self.certificate.worst_window
        return window is None or window.defect <= SOUND * float(np.abs(self.solution.x).max())

    @property
    def is_wrong(self) -> bool:
        """True if more than errors of the discretisation speaks against the motion, or if nothing can be said of it."""
        return self.verdict in (Verdict.REFUTED, Verdict.UNDECIDED)

    @cached_property
    def rank(self) -> Rank:
        """Rank of the attempt: its group by the verdict, then the objective, or the violation."""
        rank = Rank.of_point(self.solution.objective, self.point.residual, self.point.program.tolerance)
        if self.certificate is None or not rank.feasible:
            return rank
        if self.confirmed:
            return Rank(RankGroup.CONFIRMED, self.true_objective)
        return Rank(RankGroup.SOUND if self.is_sound else RankGroup.WRONG, rank.amount)

    @cached_property
    def escapes(self) -> bool:
        """True if the solver followed a descent so far that the objective seems to have no lower bound."""
        result = self.point.result
        # Far out every point is acceptable: tolerances are relative to numbers that are large there.
        ended = result is None or result.solver_status == SOLVED
        return not ended and self.rank.feasible and bool(self._sizes.max() > FAR)

    def judged(self) -> tuple[Status, str]:
        """Return the status of a simulated motion, and a message about it.

        It is solved if the simulation confirms it and no direction of descent is left; a confirmed motion that has one
        is feasible, or belongs to an objective without a lower bound.
        """
        if self.escapes:
            return Status.UNBOUNDED, f"not proved: {self.falling()}"
        if not self.confirmed:
            undecided = self.verdict is Verdict.UNDECIDED
            return Status.NOT_CERTIFIED if undecided else Status.NOT_CONFIRMED, self.solution.message
        result, message = self.point.result, self.solution.message
        if result is None or result.converged:
            return Status.SOLVED, message
        word = ended_by(result.solver_status)
        others = "; ".join(part for part in message.split("; ") if part != word)
        if not has_descent(self.point.program.nlp, self.point.w):
            return Status.SOLVED, others
        why = f"the motion is confirmed, but it is not shown to be optimal: {word}"
        return Status.FEASIBLE, joined(others, why)

    def falling(self) -> str:
        """Return a sentence about a descent that the solver followed far out."""
        system, k = self.point.program.ocp.system, int(np.argmax(self._sizes))
        grows = f"{(*system.state_names, *system.control_names)[k]} grows to {self._sizes[k]:.1g} times its size"
        return f"the objective falls to {self.point.objective:.2g} while {grows}"

    @cached_property
    def _sizes(self) -> Array:
        """Largest states (n_x,) and controls (n_u,) relative to their sizes in the problem."""
        sizes, motion = self.point.program.ocp.sizes, self.solution
        pairs = ((motion.x, sizes.x), (motion.u, sizes.u))
        return np.concatenate([np.abs(part).max(axis=0, initial=0.0) / size for part, size in pairs])


class RefinementStopped(Exception):
    """Raised if a callback, the limit of time or Ctrl-C ends the refinement; `status` is the reason."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(str(status))


@dataclass(frozen=True)
class Cutoff:
    """Objectives above which a program is of no use.

    Attributes
    ----------
    simulated : float
        A solution that is not below is neither simulated nor refined.
    solved : float
        A program whose optimum seems to stay above is given up.
    """

    simulated: float = np.inf
    solved: float = np.inf


NO_CUTOFF = Cutoff()


def refined(
    ocp: OCP,
    method: MultiPhase,
    guess: Any,
    callback: Callable[[Any], Any] | None,
    started: float,
    deadline: float,
) -> Solution:
    """Solve the program of a sequence, simulate its solution, and refine until both agree."""
    check_type(ocp, OCP, "ocp")
    if ocp.complementarities:
        raise OptionError("MultiPhase does not take an OCP with complementarities of its own; use ns.FESDJ(...).")
    if method.grid == "equal" and method.control_degree:
        raise OptionError("control_degree: polynomials need grid='moving'; leave it out for constant controls.")
    return Refinement(method, ocp, callback, started, deadline).solve(guess)


class Refinement:
    """One call of `MultiPhase` on an OCP: its programs, simulations, log, and best attempt so far.

    Parameters
    ----------
    method : MultiPhase
    ocp : OCP
    callback : callable, optional
        Called with the `PhasePoint` of every program; returns `ns.Stop` to end the work.
    started, deadline : float
        Times of the monotonic clock [s].
    """

    def __init__(
        self, method: MultiPhase, ocp: OCP, callback: Callable[[Any], Any] | None, started: float, deadline: float
    ) -> None:
        self.method, self.ocp, self.callback = method, ocp, callback
        self.started, self.deadline = started, deadline
        self.log: list[StepRecord] = []
        self.best: PhaseAttempt | None = None
        # Of a given sequence: mode equations and optimum without its shortest phases, and phases that cannot be kept.
        self.without: tuple[Any, PhasePoint] | None = None
        self.vanished: tuple[str, ...] = ()

    def solve(self, guess: Any) -> Solution:
        """Return the best solution from a guess; see `solve` for the kinds of guess."""
        ended: Status | None = None
        try:
            self.search(guess)
        except RefinementStopped as end:
            ended = end.status
        except KeyboardInterrupt:
            if self.best is None:
                raise
            ended = Status.INTERRUPTED
        assert self.best is not None
        best = self.best
        solution = replace(best.solution, **self.effort())
        # As of every method with a grid of the user's, its errors of discretisation are a note, and no failure.
        if best.confirmed or best.is_wrong:
            status, message = best.judged()
            solution = replace(solution, status=status, message=message)
        if self.vanished and solution.success:
            note = f"{', '.join(self.vanished)} of the given sequence could not be kept: see solution.sequence"
            solution = replace(solution, status=Status.NOT_KEPT, message=joined(solution.message, note))
        elif self.without is not None and ended is None and self._is_shortest(best.point):
            shorter = self._shorter_solution(*self.without)
            note = "phases are as short as shortest= allows; without them: solution.shorter, objective "
            note += f"{shorter.objective:.8g}"
            solution = replace(solution, shorter=shorter, message=joined(solution.message, note))
        if ended is None or not solution.success:
            return solution
        return replace(solution, status=ended, message=f"the best solution so far is {self.best.verdict}")

    def _is_shortest(self, point: PhasePoint) -> bool:
        """True if a phase is at its least length."""
        return bool((point.lengths <= (1.0 + 10.0 * VANISHING_LENGTH) * self.least_length * point.edges[-1]).any())

    def _shorter_solution(self, laws: Any, point: PhasePoint) -> Solution:
        """Return the solution of a sequence without its shortest phases."""
        own = Refinement(self.method.replace(sequence=None), self.ocp, self.callback, self.started, self.deadline)
        motion = solution_of(point, Status.STOPPED, "", self.effort())
        attempt = own.refine(laws, point.sequence, start_of_motion(self.ocp, point.sequence, motion))
        status, message = (
            attempt.judged() if attempt.certificate is not None else status_of(point, own.method.tolerance)
        )
        return replace(attempt.solution, status=status, message=message)

    def search(self, guess: Any) -> None:
        """Solve one sequence, or several if the method may follow the simulation."""
        described = self.method.sequence is not None and isinstance(guess, Mapping) and "x" in guess
        # A guess of states has no events to read a sequence from, but with a given sequence it is the best start.
        motion = motion_of_states(self.ocp, guess) if described else motion_of(self.ocp, guess, self.seconds_left())
        laws = laws_of(self.ocp, motion)
        sequence, tried = self.method.sequence or read_sequence(laws, motion, self.ocp.p), list[Sequence]()
        check_times(self.ocp, sequence)
        for _ in range(TRIES if self.method.follow else 1):
            tried.append(sequence)
            attempt = self.refine(laws, sequence, start_of_motion(self.ocp, sequence, motion))
            # A simulation that failed shows no sequence to follow.
            if attempt.confirmed or attempt.certificate is None or not attempt.certificate.trajectory.success:
                break
            motion = attempt.certificate.trajectory
            sequence = read_sequence(laws, motion, attempt.point.p)
            # A sequence that comes again would do so for ever.
            if any(sequence == other for other in tried):
                break
        if self.method.follow and self.best is not None and self.best.solution.success:
            self.try_end_phases(laws)

    def try_end_phases(self, laws: Any) -> None:
        """Try an additional phase at the end, and at the beginning, if the state there belongs to another mode as well.

        A motion that comes to rest just at its end may be better if it rests for a while: this is a phase of length
        zero, which no simulation shows.
        """
        for at_end in (True, False):
            best = self.best
            assert best is not None
            program = best.point.program
            mode = laws.mode_at(best.point.w[program.at_end if at_end else program.at_x0], best.point.p)
            if mode != program.plan.modes[-1 if at_end else 0]:
                self.refine(laws, *with_added_phase(laws, best, mode, at_end=at_end))

    def seconds_left(self) -> float:
        """Return the remaining time [s]."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def time_limit(self) -> float | None:
        """Remaining time [s]; None without a limit."""
        return seconds_to(self.deadline)

    def effort(self) -> dict[str, Any]:
        """Return log, iterations and time so far, as fields of a solution."""
        return {
            "log": tuple(self.log),
            "iterations": sum(record.iterations for record in self.log),
            "wall_seconds": time.monotonic() - self.started,
        }

    def refine(self, laws: ModeLaws, sequence: Sequence, start: PhaseStart, cutoff: Cutoff = NO_CUTOFF) -> PhaseAttempt:
        """Solve one sequence on finer and finer meshes until it is confirmed; return the last attempt."""
        plan, level, points, placed, rounds, free = Plan.of(sequence, laws), 0, 0, 0, 0, 0
        defect = np.inf
        if self.method.mesh(0).equal:
            # Events cannot cross nodes of equal intervals: a moving grid finds their intervals first.
            point = self.optimum(laws, plan, replace(self.method.mesh(0), equal=False), start)
            if self.is_feasible(point):
                start = start_of_motion(self.ocp, point.sequence, solution_of(point, Status.SOLVED, "", self.effort()))
        while True:
            mesh = self.method.mesh(level, points)
            attempt = self.attempt(laws, plan, mesh, start, cutoff)
            if mesh.equal and not attempt.solution.success:
                attempt, start = self.try_adjacent_intervals(laws, plan, mesh, start, attempt)
            if attempt.certificate is None:
                return attempt
            if rounds >= FINE:
                attempt = self.with_fine_objective(attempt)
            if mesh.equal:
                attempt = self.move_across_nodes(laws, attempt)
            plan, lengths = attempt.point.program.plan, attempt.point.lengths
            # A refinement that removes most of the defects is followed by another one: up to twice as many in all.
            before, defect = defect, _defect(attempt)
            if 0.0 < defect <= CONVERGES * before < np.inf and free < self.method.refinements:
                rounds, free = rounds - 1, free + 1
            misplaced = placed < PLACED and not mesh.equal and _misplaced(mesh, np.diff(start.edges), lengths)
            if not misplaced and (attempt.confirmed or rounds >= self.method.refinements):
                return attempt
            # An inequality that is violated between the stages may hide behind an error of the states: treat both.
            broken, amounts = peaks_of(attempt.point, BROKEN * self.method.tolerance)
            margins = dict(start.margins)
            if points:  # margins only where further points were not enough
                margins |= {label: margins.get(label, 0.0) + BACK * amount for label, amount in amounts.items()}
            for label in _nearly_touched_gaps(attempt):
                share = max(MARGINS[0], 10.0 * margins.get(label, 0.0) / laws.length)
                margins[label] = laws.length * min(share, MARGINS[1])
            points = 1 if broken.size else points
            kept, splits = _moved(start, attempt.point.edges), list[tuple[float, float, int]]()
            if not mesh.equal:
                splits = _splits(attempt, kept, self.method.tolerance * (SAFE if level else 1.0 / HIGHER_ORDER))
            if misplaced:
                placed += 1
            else:
                rounds += 1
                # The mesh itself is fine enough if only points are missing, or where only some windows are inaccurate.
                level += attempt.verdict is not Verdict.CONSTRAINT_BETWEEN_NODES and not (level and splits)
            peaks = np.unique(np.concatenate([start.peaks, broken]))
            splits = [*kept.splits, *splits]
            start = start_of_motion(self.ocp, attempt.point.sequence, attempt.solution)
            start = replace(start, peaks=peaks, margins=margins, near=True, splits=tuple(splits))

    def with_fine_objective(self, attempt: PhaseAttempt) -> PhaseAttempt:
        """Return the attempt with the objective of a finer quadrature, if only its error speaks against the motion.

        An integrand with kinks in time or state (a reference in pieces, a penalty) has no order of convergence.
        """
        certificate, objective = attempt.certificate, attempt.solution.objective
        if certificate is None or attempt.verdict is not Verdict.INACCURATE:
            return attempt
        scale = ObjectiveScale.of([(attempt.point.objective_at_start, objective)])
        if not abs(certificate.true_objective - objective) <= QUADRATURE * scale.size(objective):
            return attempt
        solution = replace(attempt.solution, objective=refined_objective(self.ocp, attempt.solution), certificate=None)
        again = certify(self.ocp, solution, time_limit=self.time_limit)
        if again.verdict not in CONFIRMED:
            return attempt
        note = f"the objective is a finer integral of a stage cost with kinks; on the elements it is {objective:.8g}"
        solution = replace(solution, certificate=again, message=note)
        attempt = PhaseAttempt(point=attempt.point, solution=solution, certificate=again)
        self.keep_best(attempt)
        return attempt

    def try_adjacent_intervals(
        self, laws: ModeLaws, plan: Plan, mesh: PhaseMesh, start: PhaseStart, attempt: PhaseAttempt
    ) -> tuple[PhaseAttempt, PhaseStart]:
        """Try events in adjacent intervals, as no constant control may satisfy the constraints on both sides of one."""
        for edges in events_beside_nodes(mesh, start.edges):
            beside = replace(start, edges=edges)
            again = self.attempt(laws, plan, mesh, beside)
            if again.solution.success:
                return again, beside
        return attempt, start

    def move_across_nodes(self, laws: ModeLaws, attempt: PhaseAttempt) -> PhaseAttempt:
        """Move events that are held at a node of equal intervals beyond it, while the objective decreases."""
        for _ in range(2 * attempt.point.program.mesh.intervals):
            # Phases may have vanished from the sequence with which the search for this attempt began.
            program = attempt.point.program
            edges = events_beyond_nodes(program.mesh, program.start.edges, attempt.point.edges)
            if edges is None:
                return attempt
            times = attempt.point.sequence.items, edges[1:-1]
            start = start_of_motion(self.ocp, Sequence(*times), attempt.solution)
            again = self.attempt(laws, program.plan, program.mesh, start)
            # An event exactly at the node has the same objective on both sides; the simulation may confirm only one.
            sounder = again.confirmed and not attempt.confirmed and self.better(again.point, attempt.point)
            if not again.solution.success or not (sounder or again.solution.objective < attempt.solution.objective):
                return attempt
            attempt = again
        return attempt

    def attempt(
        self, laws: ModeLaws, plan: Plan, mesh: PhaseMesh, start: PhaseStart, cutoff: Cutoff = NO_CUTOFF
    ) -> PhaseAttempt:
        """Solve one program, and certify its solution if its objective is below the cutoff."""
        point = self.optimum_of_phases(laws, plan, mesh, start, cutoff.solved)
        status, message = status_of(point, self.method.tolerance)
        solution = solution_of(point, status, message, {**self.effort(), "method": repr(self.method)})
        result = PhaseAttempt(point=point, solution=solution)
        # Without work the simulation would end at once, and say nothing about the motion.
        if status.success and point.objective < cutoff.simulated and not exhausted() and not result.escapes:
            self.keep_best(result)  # before it is simulated, which Ctrl-C may end
            certificate = certify(self.ocp, solution, time_limit=self.time_limit)
            verdict = certificate.verdict
            note = "" if verdict is Verdict.CONFIRMED else f"{verdict}: {certificate.reason}{_growth(certificate)}"
            solution = replace(solution, certificate=certificate, message=note or solution.message)
            result = PhaseAttempt(point=point, solution=solution, certificate=certificate)
        self.keep_best(result)
        if status is Status.INTERRUPTED:
            raise RefinementStopped(status)
        if exhausted() or self.seconds_left() <= 0.0:
            raise RefinementStopped(Status.WORK_LIMIT if exhausted() else Status.TIME_LIMIT)
        return result

    def keep_best(self, attempt: PhaseAttempt) -> None:
        """Keep an attempt if it is the best so far; of those that are not confirmed a later one is on a finer mesh."""
        if self.best is None:
            self.best = attempt
            return
        rank, best = attempt.rank, self.best.rank
        later = rank.group is best.group and rank.group not in (RankGroup.CONFIRMED, RankGroup.MISSES)
        if later or rank <= best:
            self.best = attempt

    def optimum(
        self, laws: ModeLaws, plan: Plan, mesh: PhaseMesh, start: PhaseStart, cutoff: float = np.inf
    ) -> PhasePoint:
        """Solve one program whose phases cannot vanish, with further attempts from better starts if it fails."""
        program = PhaseNLP(self.ocp, laws, plan, mesh, start, tolerance=self.method.tolerance)
        # Phases of a given sequence have their least length once a first mesh has shown where they want to be.
        kept = self.keeps_phases and start.near
        bound: dict[str, Any] = {"shortest": self.least_length} if kept else {"least": KEPT_LENGTH}
        bound["cutoff"] = cutoff

        def first(_: PhasePoint | None) -> PhasePoint:
            options = NEAR_START if start.near else None
            return self.run_solver(program, program.w0, "phases", options=options, **bound)

        def again(best: PhasePoint | None) -> PhasePoint | None:
            # The solver ran out of iterations, or stalled, at or near a feasible point: continue there.
            near = best is not None and best.residual <= NEARLY
            return self.run_solver(program, best.w, "phases", **bound) if best is not None and near else None

        def from_mesh(best: PhasePoint | None) -> PhasePoint | None:
            if not start.near or (best is not None and self.is_feasible(best)):
                return None
            return self.run_solver(program, program.w0, "from a mesh", **bound)

        def through_penalty(best: PhasePoint | None) -> PhasePoint | None:
            if best is None or self.is_feasible(best) or not (self.ocp.terminal_constraints and self.method.penalised):
                return None
            size = max(abs(best.objective) if np.isfinite(best.objective) else 0.0, 1.0 / program.nlp.cost_scale)
            finer = replace(mesh, penalty=PENALTY * size)
            soft = PhaseNLP(self.ocp, laws, plan, finer, start, tolerance=self.method.tolerance)
            reached = self.run_solver(soft, soft.w0, "penalised", **bound)
            # The slacks are the only unknowns that the two programs do not share.
            near = np.clip(np.delete(reached.w, soft.at_slack), program.nlp.lbw, program.nlp.ubw)
            return self.run_solver(program, near, "phases", **bound)

        point = best_attempt(
            (first, again, from_mesh, through_penalty),
            rank=lambda point: Rank.of_point(point.objective, point.residual, self.method.tolerance),
            stop=lambda point: (self.is_feasible(point) and _converged(point)) or _stays_above(point),
        )
        assert point is not None
        return point

    def optimum_of_phases(
        self, laws: ModeLaws, plan: Plan, mesh: PhaseMesh, start: PhaseStart, cutoff: float = np.inf
    ) -> PhasePoint:
        """Return the optimum without the phases that vanish, which make a program degenerate.

        A phase at its lower bound would be shorter. The sequence without it is the limit of the given one; if that is
        not better, the phase may vanish in its own program. A given sequence keeps its phases, with their least length.
        """
        point = self.optimum(laws, plan, mesh, start, cutoff)
        while len(plan) > 1 and not (self.keeps_phases and start.near) and not _stays_above(point):
            begun = point.program.lengths_of(point.program.w0)
            # A phase that was as short before has been found to be needed, such as one behind an impact at the end.
            short = (point.lengths <= (1.0 + VANISHING_LENGTH) * KEPT_LENGTH * begun) & (begun > SHORTEST * begun.sum())
            if not short.any() or short.all():
                return point
            motion = solution_of(point, Status.STOPPED, "", self.effort())
            for gone in _may_vanish(short):
                shorter, edges = plan.without_phases(gone, point.edges)
                sequence = sequence_from_modes(shorter.modes, shorter.impacts, laws, edges[1:-1])
                anew = start_of_motion(self.ocp, sequence, motion)
                if self.keeps_phases:
                    return self.optimum_of_given_phases(laws, shorter, mesh, anew, point, short)
                pruned_point = self.optimum(laws, shorter, mesh, anew, cutoff)
                if self.better(pruned_point, point):
                    break
            else:
                freed = self.run_solver(point.program, point.w, "short phases", most=FEW_ITERATIONS)
                return freed if self.better(freed, point) else point
            plan, point = shorter, pruned_point
        return point

    def optimum_of_given_phases(
        self, laws: ModeLaws, shorter: Plan, mesh: PhaseMesh, anew: PhaseStart, point: PhasePoint, short: Array
    ) -> PhasePoint:
        """Return the optimum of a given sequence with its least lengths; without the short phases if there is none."""
        kept = self.run_solver(point.program, point.w, "short phases", shortest=self.least_length)
        kept = kept if self.better(kept, point) else point
        without = self.optimum(laws, shorter, mesh, replace(anew, near=False))
        if self.is_feasible(without) and (not self.is_feasible(kept) or self.better(without, kept)):
            self.without = laws, without
        if self.is_feasible(kept) or not self.is_feasible(without):
            return kept
        modes = self.method.sequence.phases
        self.vanished = tuple(f"phase {k} {modes[k] or '(nothing closed)'}" for k in np.flatnonzero(short))
        return without

    @property
    def keeps_phases(self) -> bool:
        """True if the user has given the sequence and its phases may not vanish (`shortest=0` lets them)."""
        return self.method.sequence is not None and not self.method.follow and self.method.shortest != 0.0

    @property
    def least_length(self) -> float:
        """Least length of a phase of a given sequence, as a fraction of the horizon."""
        return SHORTEST if self.method.shortest is None else self.method.shortest

    def better(self, one: PhasePoint, other: PhasePoint) -> bool:
        """True if one point is feasible, and not worse than the other."""
        if not self.is_feasible(one):
            return False
        scale = ObjectiveScale.of([(other.objective_at_start, other.objective)])
        return not self.is_feasible(other) or one.objective <= scale.above(other.objective, self.method.tolerance)

    def is_feasible(self, point: PhasePoint) -> bool:
        """True if the point satisfies all rows and bounds, whatever the solver says of it."""
        return Rank.of_point(point.objective, point.residual, self.method.tolerance).feasible

    def run_solver(
        self,
        program: PhaseNLP,
        w: Array,
        label: str,
        least: float = 0.0,
        most: int | None = None,
        shortest: float = 0.0,
        cutoff: float = np.inf,
        options: Mapping[str, Any] | None = None,
    ) -> PhasePoint:
        """Solve one program, with a record in the log and the callback.

        Parameters
        ----------
        program : PhaseNLP
        w : (n,)
            Start.
        label : str
            Label of the record.
        least : float
            Lower bound of the lengths of phases, as a fraction of their initial ones.
        most : int, optional
            Limit of the iterations.
        shortest : float
            The same bound, as a fraction of the horizon.
        cutoff : float
            Objective above which an optimum is of no use.
        options : mapping, optional
            Further options of the solver.
        """
        most = self.method.max_iterations if most is None else min(most, self.method.max_iterations)
        lower, at = program.nlp.lbw.copy(), program.at_lengths
        # A phase that nodes of equal intervals cut into pieces may lose one: its event is then at the node.
        shares = np.where(np.bincount(program.length_phase)[program.length_phase] == 1, least, 0.0)
        lower[at] = np.maximum(lower[at], shares * np.maximum(program.w0[at], SHORTEST * program.w0[at].sum()))
        if shortest:
            lower[at] = np.maximum(lower[at], shortest * program.w0[at].sum() * (shares if least else 1.0))
        limits = {"max_iter": most, "cutoff": cutoff * program.nlp.cost_scale}
        point = optimise(program, w, {**limits, **(options or {}), **self.method.interior}, self.deadline, lower)
        self.log.append(log_record(len(self.log), label, point))
        # Ctrl-C ends the work here: further attempts at this program would hide it.
        status = Status.INTERRUPTED if point.result is not None and point.result.interrupted else None
        if status is None and self.callback is not None:
            status = asked_to_stop(self.callback, point)
        if status is not None:
            if self.best is None:
                self.keep_best(PhaseAttempt(point=point, solution=solution_of(point, status, "", self.effort())))
            raise RefinementStopped(status)
        return point


def _converged(point: PhasePoint) -> bool:
    return point.result is not None and point.result.converged


def _stays_above(point: PhasePoint) -> bool:
    """Return True if the solver has given up a program as its objective stays above the cutoff."""
    return point.result is not None and point.result.solver_status == ABOVE


def joined(*parts: str) -> str:
    """Return the notes that are not empty, with semicolons between them."""
    return "; ".join(part for part in parts if part)


def with_added_phase(laws: Any, attempt: PhaseAttempt, mode: Mode, *, at_end: bool) -> tuple[Sequence, PhaseStart]:
    """Return the sequence with one more phase at an end, and a start in which it has `ADDED` of the horizon.

    The motion of the attempt is slowed down to fill the rest.
    """
    point, solution = attempt.point, attempt.solution
    plan, edges = point.program.plan, point.edges
    horizon, share = float(edges[-1]), 1.0 - ADDED
    offset = 0.0 if at_end else ADDED * horizon
    inner = offset + share * edges
    edges = np.append(inner, horizon) if at_end else np.append(0.0, inner)
    modes = (*plan.modes, mode) if at_end else (mode, *plan.modes)
    impacts = (*plan.impacts, {}) if at_end else ({}, *plan.impacts)

    def before(t: Array) -> Array:
        return np.asarray(np.clip((t - offset) / share, 0.0, horizon))

    start = PhaseStart(
        edges=edges,
        state=lambda t, side: np.asarray(solution(before(t), side=side)),
        control=lambda t: np.asarray(solution.control(before(t))),
        p=point.p,
    )
    return sequence_from_modes(modes, impacts, laws, edges[1:-1]), start


def events_beyond_nodes(mesh: PhaseMesh, before: Array, after: Array) -> Array | None:
    """Return the ends of phases, with those that are held at a node of equal intervals moved beyond it; None if none
    is.

    Parameters
    ----------
    mesh : PhaseMesh
    before, after : (phases + 1,)
        Ends of the phases [s] at the start, which decide the interval of an event, and in the solution.
    """
    width = after[-1] / mesh.intervals
    # Pieces of the program belong to the intervals of the start, so that an event is held by the nodes of that
    # interval.
    home = np.clip(np.floor(before[1:-1] / width + HELD_EVENT), 0, mesh.intervals - 1)
    place = after[1:-1] / width - home
    shift = np.where((place > 1.0 - HELD_EVENT) & (home < mesh.intervals - 1), 1.0 + BEYOND_NODE, np.nan)
    shift = np.where((place < HELD_EVENT) & (home > 0), -BEYOND_NODE, shift)
    if np.isnan(shift).all():
        return None
    moved = after.copy()
    moved[1:-1] = np.where(np.isnan(shift), after[1:-1], (home + shift) * width)
    # Events at the same node may be moved past others: their order must stay.
    return np.maximum.accumulate(moved)


def _nearly_touched_gaps(attempt: PhaseAttempt) -> list[str]:
    """Return the gaps of contacts whose impact only the simulation has: the motion nearly touches them."""
    certificate = attempt.certificate
    if certificate is None or attempt.verdict not in (Verdict.REFUTED, Verdict.UNDECIDED):
        return []
    return [f"gap[{e.event.name}]" for e in certificate.events if e.claimed is None and e.event.kind == "impact"]


def _may_vanish(short: Array) -> list[Array]:
    """Return which of the short phases to leave out: all of them, or all but the last one.

    The state at the end may be that behind an impact, in a phase without length.
    """
    but_last = short.copy()
    but_last[-1] = False
    return [short, but_last] if short[-1] and but_last.any() else [short]


def _defect(attempt: PhaseAttempt) -> float:
    """Return the largest defect of a window; infinite without one."""
    worst = None if attempt.certificate is None else attempt.certificate.worst_window
    return np.inf if worst is None else worst.defect


def _moved(start: PhaseStart, edges: Array) -> PhaseStart:
    """Return a start whose windows with more elements follow the phases that they are in to their new ends."""
    if edges.size != start.edges.size:
        return replace(start, splits=())
    ends = [(*np.interp((a, b), start.edges, edges).tolist(), factor) for a, b, factor in start.splits]
    return replace(start, splits=tuple(ends))


def _splits(attempt: PhaseAttempt, start: PhaseStart, tolerance: float) -> list[tuple[float, float, int]]:
    """Return the windows with larger defects, relative to the sizes of the states, and the factor of their elements.

    Elements of a fraction 1 / n of the length have errors of n^(1 - 2 s) with s stages of Radau IIA.
    """
    certificate, program = attempt.certificate, attempt.point.program
    splits, names = list[tuple[float, float, int]](), attempt.solution.state_names
    for window in () if certificate is None else certificate.windows:
        if window.state in names and np.isfinite(window.defect):
            share = window.defect / float(program.sizes[names.index(window.state)])
            factor = (share / tolerance) ** (1.0 / (2 * program.mesh.stages - 1))
            if factor > 1.0:
                now = start.elements(window.start, window.end, 1)
                # Behind an event that only one of both has, the defect says little about the mesh.
                more = int(min(np.ceil(factor), MOST_SPLIT if window.events_agree else 2))
                splits.append((window.start, window.end, min(now * more, MOST_ELEMENTS)))
    return splits


def _growth(certificate: Certificate) -> str:
    """Return a note on the amplification of errors, for a motion that is unstable; else an empty text."""
    growth = certificate.amplification
    if growth is None or growth < UNSTABLE:
        return ""
    return (
        f"; the motion is unstable: errors grow by a factor of {growth:.3g} until the end; a real system needs "
        "feedback (ns.track)"
    )


def events_beside_nodes(mesh: PhaseMesh, edges: Array) -> list[Array]:
    """Return variants of the ends of phases: in each, one event is moved beyond its nearest node of equal intervals."""
    width, variants = edges[-1] / mesh.intervals, list[Array]()
    for k in range(1, edges.size - 1):
        place = edges[k] / width
        node = round(place)
        if 0 < node < mesh.intervals:
            moved = edges.copy()
            moved[k] = (node + (BEYOND_NODE if place < node else -BEYOND_NODE)) * width
            if (np.diff(moved) >= 0.0).all():
                variants.append(moved)
    return variants


def _misplaced(mesh: PhaseMesh, before: Array, after: Array) -> bool:
    """True if the phases would have other numbers of intervals by the lengths that they have now."""
    if before.size != after.size:
        return True
    counts = [[intervals_of(mesh, length, lengths.sum()) for length in lengths] for lengths in (before, after)]
    return counts[0] != counts[1]


def stretched_control(solution: Solution, horizon: float) -> PiecewiseConstant | None:
    """Return the control of an iterate, stretched to the horizon: phases of a failed program need not add up to it."""
    grid = np.asarray(solution.u_grid, dtype=float)
    if not len(solution.u) or not np.isfinite(solution.u).all() or not grid[-1] > grid[0]:
        return None
    stretched = (grid - grid[0]) * horizon / (grid[-1] - grid[0])
    wide = np.append(np.diff(stretched) > 0.0, True)  # phases may have vanished
    return PiecewiseConstant(stretched[wide], solution.u[wide[:-1]]) if wide.sum() > 1 else None


def motion_of(ocp: OCP, guess: Any, left: float) -> Trajectory:
    """Return the motion of a guess: the guess itself if it has states, else the simulation of its control."""
    # The iterate of a failed solve may satisfy no dynamics at all: simulate its control instead.
    moves = isinstance(guess, Trajectory) and (guess.success or not len(guess.u)) and len(guess.t) > 1
    if moves and guess.state_names == ocp.system.state_names:
        return guess
    x0 = free_start(ocp) if ocp.x0 is None else ocp.x0
    if isinstance(guess, Solution) and not guess.success and ocp.free_time is None:
        guess = stretched_control(guess, float(ocp.horizon)) or np.zeros(ocp.system.n_u)
    control_of_guess(ocp, guess)  # raises for a guess that does not fit
    u = guess.get("u") if isinstance(guess, Mapping) else guess
    limit = None if np.isinf(left) else left
    task = SimulationTask(x0=x0, duration=ocp.horizon, u=u, p=ocp.p, time_limit=limit)
    return THROUGH_TOUCHES.simulate(ocp.system, task)


def motion_of_states(ocp: OCP, guess: Mapping[str, Any]) -> Trajectory:
    """Return the states and controls of a guess as a motion without events."""
    system, count = ocp.system, DRAWN
    grid = np.linspace(0.0, float(ocp.horizon), count + 1)
    state, control = state_guess(guess["x"], len(system.state_names), float(ocp.horizon)), control_of_guess(ocp, guess)
    x = np.array([state(t) for t in grid])
    u = np.array([control(t) for t in 0.5 * (grid[1:] + grid[:-1])]).reshape(count, system.n_u)
    record = MotionRecord(t=grid, x=x, interpolant=RungeKuttaInterpolant.linear(grid, x))
    return record.trajectory(system, np.asarray(ocp.p), (grid, u), Status.SOLVED, [])


def check_times(ocp: OCP, sequence: Sequence) -> None:
    """Raise `ModelError` if a phase would begin after the end of the horizon."""
    longest = float(ocp.horizon) if ocp.free_time is None else ocp.free_time.upper
    last = 0.0 if sequence.times is None or not len(sequence.times) else float(sequence.times[-1])
    if last > longest:
        raise ModelError(f"Sequence: times: the last phase begins at {last:g} s, after the horizon of {longest:g} s.")


def free_start(ocp: OCP, near: Array | None = None, closed: tuple[str, ...] | None = None) -> Array:
    """Return the admissible state that is nearest to another one.

    Parameters
    ----------
    ocp : OCP
    near : (n_x,), optional
        Default: zero within the bounds, or the middle of the bounds where both are finite.
    closed : tuple of str, optional
        Contacts whose gap is zero; all others are >= 0. If given, initial constraints are ignored.

    Returns
    -------
    (n_x,)
        Within its bounds, with unit quaternions; the distance is scaled by the nominal values of the states.
    """
    s, (low, high) = ocp.system, ocp.x_bounds
    if near is None:
        both = np.isfinite(low) & np.isfinite(high)
        near = np.where(both, 0.5 * (np.where(both, low, 0.0) + np.where(both, high, 0.0)), np.clip(0.0, low, high))
    units = s.unit_parts
    near = with_attitude(near, units)
    gaps = s.gaps
    constraints = () if closed is not None else ocp.initial_constraints
    rows = ca.Function("rows", [s.x, s.p], [ca.vertcat(ca.SX(0, 1), *[c.expression for c in constraints], gaps)])
    most = np.full(gaps.numel(), np.inf)
    if closed:
        most[[k for k, contact in enumerate(s.contacts) if contact.name in closed]] = 0.0
    limits = [
        np.concatenate([np.zeros(0), *[getattr(c, side) for c in constraints], end])
        for side, end in (("lower", np.zeros(gaps.numel())), ("upper", most))
    ]
    distance = ca.sumsqr((s.x - near) / ocp.sizes.x)
    index = np.arange(near.size)[None]
    kernel = Kernel(s.x, rows(s.x, ocp.p), distance)
    block = KernelBlock(name="start", kernel=kernel, at=LinearMap.at(index), lower=limits[0], upper=limits[1])
    nlp = BlockProgram([block], low, high, ocp.sizes.x, near)
    found = np.clip(InteriorPoint(nlp, EXACT_OPTIONS).solve(near / nlp.scale, np.empty(0)).x * nlp.scale, low, high)
    # Rows that imply each other leave no interior: Gauss-Newton steps need none.
    if not nlp.residual(found) <= ADMISSIBLE_START:
        found = min((found, _projected(nlp, near)), key=nlp.residual)
    return unit_states(found, units)


def _projected(nlp: BlockProgram, x: Array) -> Array:
    """Return a state within bounds and rows, by Gauss-Newton steps of least norm on the violated rows."""
    for _ in range(PROJECTIONS):
        rows = nlp.evaluate(x)[1]
        missed = np.clip(rows, nlp.lower, nlp.upper) - rows
        slope = nlp.jacobian(x / nlp.scale).toarray()
        broken = (missed != 0.0) | (nlp.lower == nlp.upper)
        if not (np.isfinite(slope).all() and (missed != 0.0).any()):
            break
        step = np.linalg.lstsq(slope[broken], (missed * nlp.row_scale)[broken], rcond=1e-10)[0]
        x = np.clip(x + step * nlp.scale, nlp.lbw, nlp.ubw)
    return x


def laws_of(ocp: OCP, motion: Trajectory) -> Any:
    """Return the mode equations of the system of an OCP, scaled by the typical values of a motion.

    Motions of one system with typical values of the same size share them, and so the kernels of their programs.
    """
    system, p = ocp.system, np.asarray(ocp.p, float)
    if not system.mechanical:
        return system.kernels.kept("laws", lambda: FilippovLaws(system))
    law = (lambda t, x: motion.control(motion.t0 + t)) if len(motion.u) else (lambda t, x: np.zeros(system.n_u))
    duration = motion.duration or ocp.horizon
    scales = problem_scales(system, x0=np.array(motion.x[0]), control=law, p=p, duration=duration)
    at = system.kinematics(np.asarray(motion.x), 0.0, p)
    speed, length = scales.velocity, scales.length / scales.steepness
    # Without any force (free flight without gravity): that which makes the typical speed within the typical length.
    force = float(np.abs(at.force).max(initial=0.0)) or float(np.abs(at.mass).max()) * speed**2 / length
    force, speed, length = (float(2.0 ** np.round(np.log2(size))) for size in (force, speed, length))
    sizes = {"rest_velocity": REST_VELOCITY * speed, "force": force, "speed": speed, "length": length}
    return system.kernels.kept(("laws", *sizes.values()), lambda: ContactLaws(system, **sizes))


def sequence_of(ocp: OCP, motion: Trajectory) -> Sequence:
    """Return the mode sequence of a motion of an OCP, whatever method computed it."""
    return read_sequence(laws_of(ocp, motion), motion, _parameters(ocp, motion))


def start_of_motion(ocp: OCP, sequence: Sequence, motion: Trajectory) -> PhaseStart:
    """Return the start of a program: a motion in the phases of a sequence.

    Phases without times are equally long. After the end of a motion that is too short its last state is used. Times and
    states are rounded: the compiled simulation and the interpreted one lead to the same program to the last bit.
    """
    horizon, t0, duration = float(ocp.horizon), motion.t0, motion.duration
    if ocp.free_time is not None and duration > 0.0:
        horizon = float(np.clip(duration, ocp.free_time.lower, ocp.free_time.upper))
    count = len(sequence)
    times = np.linspace(0.0, horizon, count + 1)[1:-1] if sequence.times is None else np.asarray(sequence.times)
    edges = np.concatenate([[0.0], np.clip(rounded(times, horizon), 0.0, horizon), [horizon]])
    largest = np.abs(motion.x).max(axis=0, initial=0.0, where=np.isfinite(motion.x))
    sizes = np.maximum(ocp.sizes.x, largest)

    def state(t: Array, side: Side) -> Array:
        return rounded(motion(t0 + np.minimum(t, duration), side=side), sizes)

    def control(t: Array) -> Array:
        if not len(motion.u):
            return np.zeros((t.size, ocp.system.n_u))
        return np.asarray(motion.control(np.minimum(t0 + t, float(motion.u_grid[-1]))))

    return PhaseStart(edges=edges, state=state, control=control, p=_parameters(ocp, motion))


def _parameters(ocp: OCP, motion: Trajectory) -> Array:
    """Return the parameters (n_p,) of the OCP; those that are free have the values of a solution."""
    p, known = np.array(ocp.p, float), np.asarray(getattr(motion, "p", np.empty(0)), float)
    free = [ocp.system.parameter_names.index(name) for name in ocp.free_parameters]
    if known.size == p.size:
        p[free] = known[free]
    return p
