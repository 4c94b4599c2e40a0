"""Multi-phase programs solved, simulated, and refined until the simulation confirms them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.motion.record import MotionRecord
from nosnoc_py.mpcc.ipopt import Ipopt
from nosnoc_py.ocp import OCP
from nosnoc_py.sequences.blocks import BlockNLP, NLPBlock
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.equations import Mode, ModeLaws
from nosnoc_py.sequences.filippov_laws import FilippovLaws
from nosnoc_py.sequences.multi_phase import MultiPhase
from nosnoc_py.sequences.optimise import optimise, status_of
from nosnoc_py.sequences.plan import Plan, sequence_from_modes
from nosnoc_py.sequences.program import PhaseMesh, PhaseNLP, PhaseStart, intervals_of
from nosnoc_py.sequences.reading import read_sequence
from nosnoc_py.sequences.readout import PhasePoint, log_record, peaks_of, solution_of
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.simulation.certification.statements import refined_objective
from nosnoc_py.simulation.common import SimulationTask
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import RungeKuttaInterpolant, Solution, Trajectory
from nosnoc_py.solution.certificate import Certificate
from nosnoc_py.solution.interpolant import Side
from nosnoc_py.solution.records import StepRecord
from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.status import Status, Verdict, asked_to_stop
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import PiecewiseConstant, control_of_guess, state_guess
from nosnoc_py.systems.quaternions import unit_states, with_attitude
from nosnoc_py.systems.scales import problem_scales
from nosnoc_py.tolerances import REST_VELOCITY

Array = np.ndarray
# Sequences that are tried one after the other where the simulation finds another one.
TRIES = 4
# So many refinements leave an error of quadrature only where an integrand is not smooth; it may have this share.
FINE, QUADRATURE = 2, 1e-2
# Points of states that a guess draws.
DRAWN = 200
# So often intervals are given to the phases anew, by the lengths that these turn out to have.
PLACED = 2
# Weight of missed terminal constraints, as a multiple of the objective.
PENALTY = 10.0
# A phase of length zero says nothing of how it would be longer: at first it keeps this share of where it starts.
KEPT, NEAR = 0.2, 1e-3
# Inequalities are broken between nodes beyond this share of the tolerance.
BROKEN = 0.1
# What is broken between the nodes all the same is kept beyond its limit by so many times as much.
BACK = 1.2
# What comes near to an open contact without touching it keeps away by these shares of the length, at least and at most.
MARGINS = 1e-5, 1e-3
# A motion that amplifies errors by more is called unstable.
UNSTABLE = 30.0
# A program is worth more iterations where its constraints are violated by less.
NEARLY = 1e-2
# Iterations for a program whose phases may vanish.
FEW = 100
# IPOPT's options from the solution on another mesh, where its usual start has failed: that one pushes unknowns off
# their bounds by a hundredth, and may leave the solution far behind.
NEAR_START = {
    "mu_strategy": "monotone",
    "mu_init": 1e-3,
    **{f"{of}bound_{what}": 1e-5 for of in ("", "slack_") for what in ("push", "frac")},
}
# Length of a phase that is added, as a share of the horizon.
ADDED = 0.1
# An event so close to a node of equal intervals (in intervals) is held there; it is moved so far beyond.
HELD, BEYOND = 1e-5, 0.05
SMOOTH = EventDriven(grazing="continue")
# Of the whole motion, or of an unstable one in all windows.
CONFIRMED = (Verdict.CONFIRMED, Verdict.CONFIRMED_IN_WINDOWS)
# The better first.
ORDER = (
    *CONFIRMED,
    Verdict.CONSTRAINT_BETWEEN_NODES,
    Verdict.INACCURATE,
    Verdict.UNDECIDED,
    Verdict.REFUTED,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class PhaseAttempt:
    """A solution of a program, and what the simulation says."""

    point: PhasePoint
    solution: Solution
    certificate: Certificate | None = None

    @property
    def verdict(self) -> Verdict | None:
        """None where nothing was simulated."""
        return None if self.certificate is None else self.certificate.verdict

    @property
    def confirmed(self) -> bool:
        """Whether the simulation agrees, of an unstable motion in all windows."""
        return self.verdict in CONFIRMED

    @property
    def true_objective(self) -> float:
        """That of the simulated motion, where it is confirmed as a whole; else of the program."""
        # An unstable motion diverges from its simulation: its own objective is then true to the defects of the windows.
        if self.certificate is None or self.verdict is not Verdict.CONFIRMED:
            return self.solution.objective
        return self.certificate.true_objective

    @property
    def rank(self) -> tuple[int, float]:
        """The smaller the better: of confirmed ones the objective, else the verdict and what is wrong."""
        if self.confirmed:
            return (0, self.solution.objective)
        if self.certificate is None:
            return (len(ORDER) + (not self.solution.success), self.point.violation)
        window = self.certificate.worst_window
        amounts = [abs(violation.amount) for violation in self.certificate.violation]
        return (ORDER.index(self.verdict), max([0.0 if window is None else window.defect, *amounts]))


class Ended(Exception):
    """A callback, the clock or Ctrl-C ends the work."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(str(status))


class Refinement:
    """The work of one call of `MultiPhase`; what was found before it ends is kept."""

    def __init__(
        self, method: MultiPhase, ocp: OCP, callback: Callable[[Any], Any] | None, started: float, deadline: float
    ) -> None:
        self.method, self.ocp, self.callback = method, ocp, callback
        self.started, self.deadline = started, deadline
        self.log: list[StepRecord] = []
        self.best: PhaseAttempt | None = None

    def solve(self, guess: Any) -> Solution:
        """From a guess to the best of what is found."""
        ended: Status | None = None
        try:
            self.search(guess)
        except Ended as end:
            ended = end.status
        except KeyboardInterrupt:
            if self.best is None:
                raise
            ended = Status.INTERRUPTED
        assert self.best is not None
        solution = replace(self.best.solution, **self.effort())
        asked = self.method.sequence
        if solution.success and asked is not None and not self.method.follow and solution.sequence != asked:
            note = "phases or impacts of the sequence that was asked for vanished: see solution.sequence"
            solution = replace(solution, message="; ".join(part for part in (solution.message, note) if part))
        if ended is None or not solution.success:
            return solution
        return replace(solution, status=ended, message=f"the best so far is {self.best.verdict}")

    def search(self, guess: Any) -> None:
        """One sequence, or where the method may follow the simulation several."""
        described = self.method.sequence is not None and isinstance(guess, Mapping) and "x" in guess
        # States that are drawn by hand have no events to read, but where the sequence is given they are the best start.
        motion = drawn(self.ocp, guess) if described else motion_of(self.ocp, guess, self.left())
        laws = laws_of(self.ocp, motion)
        sequence, tried = self.method.sequence or read_sequence(laws, motion, self.ocp.p), list[Sequence]()
        check_times(self.ocp, sequence)
        for _ in range(TRIES if self.method.follow else 1):
            tried.append(sequence)
            found = self.refined(laws, sequence, start_of_motion(self.ocp, sequence, motion))
            if found.confirmed or found.certificate is None or not found.certificate.trajectory.success:
                break
            motion = found.certificate.trajectory
            sequence = read_sequence(laws, motion, found.point.p)
            if any(sequence == other for other in tried):
                break
        if self.method.follow and self.best is not None and self.best.solution.success:
            self.with_ends(laws)

    def with_ends(self, laws: Any) -> None:
        """Try a phase more at the end, or at the beginning, where the state there belongs to another mode, too.

        A motion that comes to rest just at its end may be one that rests a while: a phase of length zero that no
        simulation shows.
        """
        for at_end in (True, False):
            best = self.best
            assert best is not None
            program = best.point.program
            mode = laws.mode_at(best.point.w[program.at_end if at_end else program.at_x0], best.point.p)
            if mode != program.plan.modes[-1 if at_end else 0]:
                self.refined(laws, *lengthened(laws, best, mode, at_end=at_end))

    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self.deadline - time.monotonic())

    def effort(self) -> dict[str, Any]:
        """What it took until now."""
        return {
            "log": tuple(self.log),
            "iterations": sum(record.iterations for record in self.log),
            "wall_seconds": time.monotonic() - self.started,
        }

    def refined(self, laws: ModeLaws, sequence: Sequence, start: PhaseStart, bar: float = np.inf) -> PhaseAttempt:
        """One sequence on finer and finer meshes, until it is confirmed; returns the last attempt.

        A program whose objective is not below the bar is neither simulated nor refined.
        """
        plan, level, points, placed, rounds = Plan.of(sequence, laws), 0, 0, 0, 0
        if self.method.mesh(0).equal:
            # Events may not pass nodes of equal intervals: they are put where they want to be first.
            point = self.optimum(laws, plan, replace(self.method.mesh(0), equal=False), start)
            if self.good(point):
                start = start_of_motion(self.ocp, point.sequence, solution_of(point, Status.SOLVED, "", self.effort()))
        while True:
            mesh = self.method.mesh(level, points)
            found = self.attempt(laws, plan, mesh, start, bar)
            if mesh.equal and not found.solution.success:
                found, start = self.elsewhere(laws, plan, mesh, start, found)
            if found.certificate is None:
                return found
            if rounds >= FINE:
                found = self.priced(found)
            if mesh.equal:
                found = self.moved(laws, plan, mesh, start, found)
            plan, lengths = found.point.program.plan, found.point.lengths
            misplaced = placed < PLACED and not mesh.equal and _misplaced(mesh, np.diff(start.edges), lengths)
            if not misplaced and (found.confirmed or rounds >= self.method.refinements):
                return found
            # An inequality that breaks between the nodes may hide behind an error of the states, and is mended with it.
            broken, amounts = peaks_of(found.point, BROKEN * self.method.tolerance)
            kept = dict(start.kept)
            if points:
                kept |= {label: kept.get(label, 0.0) + BACK * amount for label, amount in amounts.items()}
            for label in _touched(found):
                kept[label] = laws.length * min(max(MARGINS[0], 10.0 * kept.get(label, 0.0) / laws.length), MARGINS[1])
            points = 1 if broken.size else points
            if misplaced:
                placed += 1
            else:
                rounds += 1
                level += found.verdict is not Verdict.CONSTRAINT_BETWEEN_NODES
            peaks = np.unique(np.concatenate([start.peaks, broken]))
            start = start_of_motion(self.ocp, found.point.sequence, found.solution)
            start = replace(start, peaks=peaks, kept=kept, near=True)

    def priced(self, found: PhaseAttempt) -> PhaseAttempt:
        """With the objective by a finer quadrature, where nothing but that keeps the motion from being confirmed.

        An integrand with kinks in time or state (a reference in pieces, a penalty) has no order of convergence.
        """
        certificate, objective = found.certificate, found.solution.objective
        if certificate is None or found.verdict is not Verdict.INACCURATE:
            return found
        if not abs(certificate.true_objective - objective) <= QUADRATURE * (1.0 + abs(objective)):
            return found
        solution = replace(found.solution, objective=refined_objective(self.ocp, found.solution), certificate=None)
        again = certify(self.ocp, solution, time_limit=None if np.isinf(self.left()) else self.left())
        if again.verdict not in CONFIRMED:
            return found
        note = f"the objective is a finer integral of a stage cost with kinks; on the elements it is {objective:.8g}"
        solution = replace(solution, certificate=again, message=note)
        found = PhaseAttempt(point=found.point, solution=solution, certificate=again)
        self.keep(found)
        return found

    def elsewhere(
        self, laws: ModeLaws, plan: Plan, mesh: PhaseMesh, start: PhaseStart, found: PhaseAttempt
    ) -> tuple[PhaseAttempt, PhaseStart]:
        """Events in the intervals beside their own, where no constant control does what is asked on both sides."""
        for edges in beside_nodes(mesh, start.edges):
            beside = replace(start, edges=edges)
            again = self.attempt(laws, plan, mesh, beside)
            if again.solution.success:
                return again, beside
        return found, start

    def moved(
        self, laws: ModeLaws, plan: Plan, mesh: PhaseMesh, start: PhaseStart, found: PhaseAttempt
    ) -> PhaseAttempt:
        """Let events that a node of equal intervals holds pass it, while the objective falls."""
        for _ in range(2 * mesh.intervals):
            edges = beyond_nodes(mesh, start.edges, found.point.edges)
            if edges is None:
                return found
            times = found.point.sequence.items, edges[1:-1]
            start = start_of_motion(self.ocp, Sequence(*times), found.solution)
            again = self.attempt(laws, plan, mesh, start)
            # At a node itself both sides have the same optimum; the simulation may confirm one of the two.
            sounder = again.confirmed and not found.confirmed and self.better(again.point, found.point)
            if not again.solution.success or not (sounder or again.solution.objective < found.solution.objective):
                return found
            found = again
        return found

    def attempt(
        self, laws: ModeLaws, plan: Plan, mesh: PhaseMesh, start: PhaseStart, bar: float = np.inf
    ) -> PhaseAttempt:
        """Solve one program and simulate what it finds, if that is below the bar."""
        point = self.pruned(laws, plan, mesh, start)
        status, message = status_of(point, self.method.tolerance)
        solution = solution_of(point, status, message, {**self.effort(), "method": repr(self.method)})
        found = PhaseAttempt(point=point, solution=solution)
        if status.success and point.objective < bar:
            self.keep(found)  # before it is simulated, which Ctrl-C may end
            certificate = certify(self.ocp, solution, time_limit=None if np.isinf(self.left()) else self.left())
            verdict = certificate.verdict
            note = "" if verdict is Verdict.CONFIRMED else f"{verdict}: {certificate.reason}{_growth(certificate)}"
            solution = replace(solution, certificate=certificate, message=note or solution.message)
            found = PhaseAttempt(point=point, solution=solution, certificate=certificate)
        self.keep(found)
        if status is Status.INTERRUPTED or self.left() <= 0.0:
            raise Ended(Status.INTERRUPTED if status is Status.INTERRUPTED else Status.TIME_LIMIT)
        return found

    def keep(self, found: PhaseAttempt) -> None:
        """Keep the best."""
        if self.best is None or found.rank <= self.best.rank:
            self.best = found

    def optimum(self, laws: ModeLaws, plan: Plan, mesh: PhaseMesh, start: PhaseStart) -> PhasePoint:
        """Solve one program: first with phases that cannot vanish at once, and from a wrong start with a penalty."""
        program = PhaseNLP(self.ocp, laws, plan, mesh, start)
        point = self.run(program, program.w0, "phases", least=KEPT)
        if not self.good(point) and point.violation <= NEARLY:
            # It ran out of iterations, or stalled, beside a motion.
            point = min(point, self.run(program, point.w, "phases", least=KEPT), key=self.unsolved)
        if not self.good(point) and start.near:
            again = self.run(program, program.w0, "from a mesh", least=KEPT, options=NEAR_START)
            point = min(point, again, key=self.unsolved)
        if not self.good(point) and self.ocp.terminal_constraints and self.method.penalised:
            size = max(1.0, abs(point.objective)) if np.isfinite(point.objective) else 1.0
            soft = PhaseNLP(self.ocp, laws, plan, replace(mesh, penalty=PENALTY * size), start)
            reached = self.run(soft, soft.w0, "penalised", least=KEPT)
            near = np.clip(np.delete(reached.w, soft.at_slack), program.nlp.lbw, program.nlp.ubw)
            again = self.run(program, near, "phases", least=KEPT)
            point = min(point, again, key=self.unsolved)
        return point

    def unsolved(self, point: PhasePoint) -> float:
        """The violation of a program that is not solved; less than any for one that is."""
        return -1.0 if self.good(point) else point.violation

    def pruned(self, laws: ModeLaws, plan: Plan, mesh: PhaseMesh, start: PhaseStart) -> PhasePoint:
        """The optimum, without the phases that vanish: these make a program degenerate.

        A phase at the length that it keeps at first would be shorter. Without it the sequence is the limit of the one
        that is asked for; where that is no motion, it is let go to its own limit.
        """
        point = self.optimum(laws, plan, mesh, start)
        while len(plan) > 1:
            short = point.lengths <= (1.0 + NEAR) * KEPT * point.program.lengths_of(point.program.w0)
            if not short.any() or short.all():
                return point
            shorter, edges = plan.without_phases(short, point.edges)
            motion = solution_of(point, Status.STOPPED, "", self.effort())
            anew = start_of_motion(
                self.ocp, sequence_from_modes(shorter.modes, shorter.impacts, laws, edges[1:-1]), motion
            )
            found = self.optimum(laws, shorter, mesh, anew)
            if not self.better(found, point):
                freed = self.run(point.program, point.w, "short phases", most=FEW)
                return freed if self.better(freed, point) else point
            plan, point = shorter, found
        return point

    def better(self, one: PhasePoint, other: PhasePoint) -> bool:
        """Whether one solves its program, and is not worse than the other."""
        if not self.good(one):
            return False
        size = max(1.0, abs(other.objective))
        return not self.good(other) or one.objective <= other.objective + self.method.tolerance * size

    def good(self, point: PhasePoint) -> bool:
        """Whether it is feasible and IPOPT is content."""
        return status_of(point, self.method.tolerance)[0].success

    def run(
        self,
        program: PhaseNLP,
        w: Array,
        label: str,
        least: float = 0.0,
        most: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> PhasePoint:
        """IPOPT on one program, for so many iterations; phases keep this share of the lengths they start with."""
        most = self.method.max_iterations if most is None else min(most, self.method.max_iterations)
        lower, at = program.nlp.lbw.copy(), program.at_lengths
        # A piece of a phase that has several, by nodes of equal intervals, may vanish: its event is then at the node.
        kept = np.where(np.bincount(program.length_phase)[program.length_phase] == 1, least, 0.0)
        lower[at] = np.maximum(lower[at], kept * program.w0[at])
        point = optimise(program, w, {"max_iter": most, **(options or {}), **self.method.ipopt}, self.deadline, lower)
        self.log.append(log_record(len(self.log), label, point))
        if self.callback is not None and (status := asked_to_stop(self.callback, point)) is not None:
            if self.best is None:
                self.keep(PhaseAttempt(point=point, solution=solution_of(point, status, "", self.effort())))
            raise Ended(status)
        return point


def lengthened(laws: Any, attempt: PhaseAttempt, mode: Mode, *, at_end: bool) -> tuple[Sequence, PhaseStart]:
    """The sequence with one phase more at an end, and the motion slowed down to leave it `ADDED` of the horizon."""
    point, solution = attempt.point, attempt.solution
    plan, edges = point.program.plan, point.edges
    horizon, share = float(edges[-1]), 1.0 - ADDED
    offset = 0.0 if at_end else ADDED * horizon
    inner = offset + share * edges
    edges = np.append(inner, horizon) if at_end else np.append(0.0, inner)
    modes = (*plan.modes, mode) if at_end else (mode, *plan.modes)
    impacts = (*plan.impacts, {}) if at_end else ({}, *plan.impacts)

    def before(t: float) -> float:
        return float(np.clip((t - offset) / share, 0.0, horizon))

    start = PhaseStart(
        edges=edges,
        state=lambda t, side: np.asarray(solution(before(t), side=side)),
        control=lambda t: np.asarray(solution.control(before(t))),
        p=point.p,
    )
    return sequence_from_modes(modes, impacts, laws, edges[1:-1]), start


def beyond_nodes(mesh: PhaseMesh, before: Array, after: Array) -> Array | None:
    """Ends of phases with those moved beyond a node of equal intervals that are held there; None where none is.

    An end belongs to the interval in which it started, `before`; `after` has the ends of the solution.
    """
    width = after[-1] / mesh.intervals
    home = np.clip(np.floor(before[1:-1] / width + HELD), 0, mesh.intervals - 1)
    place = after[1:-1] / width - home
    shift = np.where((place > 1.0 - HELD) & (home < mesh.intervals - 1), 1.0 + BEYOND, np.nan)
    shift = np.where((place < HELD) & (home > 0), -BEYOND, shift)
    if np.isnan(shift).all():
        return None
    moved = after.copy()
    moved[1:-1] = np.where(np.isnan(shift), after[1:-1], (home + shift) * width)
    return np.maximum.accumulate(moved)


def _touched(found: PhaseAttempt) -> list[str]:
    """Gaps of contacts with an impact that only the simulation has: they come near, and the smallest error decides."""
    certificate = found.certificate
    if certificate is None or found.verdict not in (Verdict.REFUTED, Verdict.UNDECIDED):
        return []
    return [f"gap[{e.event.name}]" for e in certificate.events if e.claimed is None and e.event.kind == "impact"]


def _growth(certificate: Certificate) -> str:
    """By how much the motion amplifies errors, where that is why it is not confirmed."""
    growth = certificate.amplification
    if growth is None or growth < UNSTABLE:
        return ""
    return (
        f"; the motion is unstable: an error grows {growth:.3g}-fold until the end, so that on a real system it needs "
        "feedback that tracks it"
    )


def beside_nodes(mesh: PhaseMesh, edges: Array) -> list[Array]:
    """Ends of phases with one of them beyond the node of equal intervals that is nearest to it, for each of them."""
    width, found = edges[-1] / mesh.intervals, list[Array]()
    for k in range(1, edges.size - 1):
        place = edges[k] / width
        node = round(place)
        if 0 < node < mesh.intervals:
            moved = edges.copy()
            moved[k] = (node + (BEYOND if place < node else -BEYOND)) * width
            if (np.diff(moved) >= 0.0).all():
                found.append(moved)
    return found


def _misplaced(mesh: PhaseMesh, before: Array, after: Array) -> bool:
    """Whether phases would have other numbers of intervals by the lengths that they have now."""
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
    """The motion of a guess: itself, if it has states, else the simulation of its control."""
    # The iterate of a failure may be no motion at all: its control has one.
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
    return SMOOTH.simulate(ocp.system, task)


def drawn(ocp: OCP, guess: Mapping[str, Any]) -> Trajectory:
    """The states and controls of a guess, as a motion without events."""
    system, count = ocp.system, DRAWN
    grid = np.linspace(0.0, float(ocp.horizon), count + 1)
    state, control = state_guess(guess["x"], len(system.state_names), float(ocp.horizon)), control_of_guess(ocp, guess)
    x = np.array([state(t) for t in grid])
    u = np.array([control(t) for t in 0.5 * (grid[1:] + grid[:-1])]).reshape(count, system.n_u)
    made = MotionRecord(t=grid, x=x, interpolant=RungeKuttaInterpolant.linear(grid, x))
    return made.trajectory(system, np.asarray(ocp.p), (grid, u), Status.SOLVED, [])


def check_times(ocp: OCP, sequence: Sequence) -> None:
    """Raise `ModelError` where a phase would begin after the end."""
    longest = float(ocp.horizon) if ocp.free_time is None else ocp.free_time.upper
    last = 0.0 if sequence.times is None or not len(sequence.times) else float(sequence.times[-1])
    if last > longest:
        raise ModelError(f"Sequence: times: the last phase begins at {last:g} s, after the horizon of {longest:g} s.")


def free_start(ocp: OCP, near: Array | None = None, closed: tuple[str, ...] | None = None) -> Array:
    """The state nearest to another (zero, or the middle of its bounds) that initial constraints and contacts allow.

    With names of contacts these are `closed`, and initial constraints do not count.
    """
    s, (low, high) = ocp.system, ocp.x_bounds
    if near is None:
        both = np.isfinite(low) & np.isfinite(high)
        near = np.where(both, 0.5 * (np.where(both, low, 0.0) + np.where(both, high, 0.0)), np.clip(0.0, low, high))
    units = getattr(s, "unit_parts", ())
    near = with_attitude(near, units)
    gaps = s.mechanics.gaps if isinstance(s, CLS) else ca.SX(0, 1)
    asked = () if closed is not None else ocp.initial_constraints
    rows = ca.Function("rows", [s.x, s.p], [ca.vertcat(ca.SX(0, 1), *[c.expression for c in asked], gaps)])
    most = np.full(gaps.numel(), np.inf)
    if closed:
        most[[k for k, contact in enumerate(s.contacts) if contact.name in closed]] = 0.0
    limits = [
        np.concatenate([np.zeros(0), *[getattr(c, side) for c in asked], end])
        for side, end in (("lower", np.zeros(gaps.numel())), ("upper", most))
    ]
    distance = ca.sumsqr((s.x - near) / s.x_nominal)
    index = np.arange(near.size)[None]
    numbers: dict[str, Any] = {"lower": limits[0], "upper": limits[1]}
    block = NLPBlock(name="start", y=s.x, rows=rows(s.x, ocp.p), cost=distance, index=index, **numbers)
    nlp = BlockNLP([block], low, high, np.asarray(s.x_nominal, float), near)
    found = Ipopt(nlp, {}).solve(near / nlp.scale, np.empty(0))
    return unit_states(np.clip(found.x * nlp.scale, low, high), units)


def laws_of(ocp: OCP, motion: Trajectory) -> Any:
    """The system in its modes, with the sizes that are at work in a motion."""
    system, p = ocp.system, np.asarray(ocp.p, float)
    if not isinstance(system, CLS):
        return FilippovLaws(system)
    law = (lambda t, x: motion.control(motion.t0 + t)) if len(motion.u) else (lambda t, x: np.zeros(system.n_u))
    duration = motion.duration or ocp.horizon
    scales = problem_scales(system, x0=np.array(motion.x[0]), control=law, p=p, duration=duration)
    at = system.kinematics(np.asarray(motion.x), 0.0, p)
    force = float(np.abs(at.force).max(initial=0.0)) or 1.0
    return ContactLaws(
        system,
        rest_velocity=REST_VELOCITY * scales.velocity,
        force=force,
        speed=scales.velocity,
        length=scales.length / scales.steepness,
    )


def sequence_of(ocp: OCP, motion: Trajectory) -> Sequence:
    """The sequence of modes of a motion of an OCP, whatever method made it."""
    return read_sequence(laws_of(ocp, motion), motion, _parameters(ocp, motion))


def start_of_motion(ocp: OCP, sequence: Sequence, motion: Trajectory) -> PhaseStart:
    """Where a program starts: the motion, in the phases of a sequence; stretched to the horizon where it ends early."""
    horizon, t0, duration = float(ocp.horizon), motion.t0, motion.duration
    if ocp.free_time is not None and duration > 0.0:
        horizon = float(np.clip(duration, ocp.free_time.lower, ocp.free_time.upper))
    count = len(sequence)
    times = np.linspace(0.0, horizon, count + 1)[1:-1] if sequence.times is None else np.asarray(sequence.times)
    edges = np.concatenate([[0.0], np.clip(times, 0.0, horizon), [horizon]])

    def state(t: float, side: Side) -> Array:
        return np.asarray(motion(t0 + min(t, duration), side=side))

    def control(t: float) -> Array:
        return (
            np.asarray(motion.control(min(t0 + t, float(motion.u_grid[-1]))))
            if len(motion.u)
            else np.zeros(ocp.system.n_u)
        )

    return PhaseStart(edges=edges, state=state, control=control, p=_parameters(ocp, motion))


def _parameters(ocp: OCP, motion: Trajectory) -> Array:
    """Those of a solution, else of the OCP (n_p,)."""
    p = getattr(motion, "p", np.empty(0))
    return p if np.size(p) == ocp.system.n_p else np.asarray(ocp.p)
