"""The multi-phase program as a method: a sequence in, a smooth optimum out, refined until a simulation confirms it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from nosnoc_py.errors import ModelError, OptionError, check_type
from nosnoc_py.mpcc.ipopt import Ipopt
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.equations import Mode, ModeLaws
from nosnoc_py.sequences.filippov_laws import FilippovLaws
from nosnoc_py.sequences.plan import Plan, written
from nosnoc_py.sequences.program import PhaseMesh, PhaseNLP, PhaseStart, intervals_of
from nosnoc_py.sequences.reading import read
from nosnoc_py.sequences.readout import PhasePoint, log_record, solution_of
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.solution.interpolant import Side
from nosnoc_py.solution.records import StepRecord
from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.status import Status, Verdict
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import control_of_guess
from nosnoc_py.systems.pss import PDS, PSS, Heaviside
from nosnoc_py.systems.scales import problem_scales
from nosnoc_py.tolerances import REST_VELOCITY

Array = np.ndarray
# Of IPOPT: a motion is a good start, which a large barrier would forget; redundant contacts leave rows dependent.
IPOPT = {
    "perturb_always_cd": "yes",
    "tol": 1e-9,
    "dual_inf_tol": 1e-6,
    "compl_inf_tol": 1e-9,
    "mu_target": 0.0,
    "acceptable_tol": 1e-7,
}
# Finer meshes, one after the other: stages and elements of every control interval, as multiples of those asked for.
FINER = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4))
# Further points on the path where a constraint breaks between the nodes.
MORE_POINTS = 4
# Sequences that are tried one after the other where the simulation finds another one.
TRIES = 4
# So often intervals are given to the phases anew, by the lengths that these turn out to have.
PLACED = 2
# Weight of missed terminal constraints, as a multiple of the objective.
PENALTY = 10.0
# A phase of length zero says nothing of how it would be longer: at first it keeps this share of where it starts.
KEPT, NEAR = 0.2, 1e-3
# Length of a phase that is added, as a share of the horizon.
ADDED = 0.1
SMOOTH = EventDriven(grazing="continue")


class MultiPhase(CompleteMethod):
    """One smooth program for a sequence of modes: a phase per mode, free phase lengths, no complementarity.

    Between two changes of contact the system is smooth; with the order of the changes given, what is left is one smooth
    optimal control problem with phases of free lengths (Betts 2010, Section 4.4). It is written by Radau collocation on
    index-reduced equations, solved by IPOPT, and refined until an event-driven simulation confirms it.

    Parameters
    ----------
    sequence : Sequence, optional
        Default: that of the guess, or of a simulation with the control that it is.
    intervals : int
        Of the control, over the whole horizon; every phase has one at least.
    grid : {"moving", "equal"}
        Control intervals of equal length in every phase, which move with it; or over the whole horizon.
    control_degree : int
        The control is a polynomial of this degree on every interval of a moving grid; by default constant.
    stages : int
        n_s of Radau IIA, of order 2 n_s - 1.
    elements : int
        Finite elements in every interval.
    refinements : int
        How often stages, elements and points of path constraints are raised where the simulation does not confirm.
    follow : bool
        Whether the sequence may become the one that the simulation of a solution shows.
    tolerance : float
        Of what is accepted as feasible, in the user's units.
    shortest : float
        Lower bound of the length of a phase, as a share of the horizon.
    max_iterations : int
        Of IPOPT, per program.
    time_limit : float, optional
        Seconds.
    ipopt : dict
        Further options of IPOPT.
    """

    takes: ClassVar[tuple[type, ...]] = (CLS, PSS, Heaviside, PDS)

    sequence: Any = None
    intervals: int = Field(default=20, ge=1)
    grid: Literal["moving", "equal"] = "moving"
    control_degree: int = Field(default=0, ge=0, le=6)
    stages: int = Field(default=3, ge=1, le=12)
    elements: int = Field(default=1, ge=1)
    refinements: int = Field(default=4, ge=0)
    follow: bool = False
    tolerance: float = Field(default=1e-6, gt=0)
    shortest: float = Field(default=0.0, ge=0, lt=1)
    max_iterations: int = Field(default=500, ge=0)
    ipopt: dict[str, str | int | float] = Field(default_factory=dict)

    @field_validator("sequence", mode="before")
    @classmethod
    def _sequence(cls, value: Any) -> Any:
        if value is None or isinstance(value, Sequence):
            return value
        try:
            return Sequence(value)
        except ModelError as error:
            raise ValueError(str(error)) from None

    def solved(
        self, ocp: OCP, guess: Any, callback: Callable[[Any], Any] | None, started: float, deadline: float
    ) -> Solution:
        """Solve, simulate, refine."""
        check_type(ocp, OCP, "ocp")
        if ocp.complementarities:
            raise OptionError("MultiPhase takes no complementarities of the user's own; use ns.FESDJ(...).")
        if self.grid == "equal" and self.control_degree:
            raise OptionError("control_degree: polynomials need grid='moving'; leave it out for constant controls.")
        return _Run(self, ocp, callback, started, deadline).solve(guess)

    def mesh(self, level: int, points: int = 0) -> PhaseMesh:
        """The mesh after so many refinements."""
        stages, elements = FINER[min(level, len(FINER) - 1)]
        return PhaseMesh(
            stages=min(12, self.stages + stages - 1),
            intervals=self.intervals,
            elements=self.elements * elements,
            equal=self.grid == "equal",
            degree=self.control_degree,
            points=MORE_POINTS * points,
            shortest=self.shortest,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class PhaseAttempt:
    """A solution of a program, and what the simulation says."""

    point: PhasePoint
    solution: Solution
    verdict: Verdict | None = None
    reason: str = ""
    motion: Trajectory | None = None

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """The smaller the better: confirmed, feasible, objective."""
        confirmed = self.verdict in (Verdict.CONFIRMED, Verdict.CONFIRMED_IN_WINDOWS)
        solved = self.solution.success
        return (not confirmed, not solved, self.solution.objective if solved else self.point.violation)


class _Run:
    def __init__(self, method: MultiPhase, ocp: OCP, callback: Any, started: float, deadline: float) -> None:
        self.method, self.ocp, self.callback = method, ocp, callback
        self.started, self.deadline = started, deadline
        self.log: list[StepRecord] = []

    def solve(self, guess: Any) -> Solution:
        """From a guess to the best of what is found."""
        motion = motion_of(self.ocp, guess, self.left())
        laws = laws_of(self.ocp, motion)
        sequence = self.method.sequence or read(laws, motion, self.ocp.p)
        best: PhaseAttempt | None = None
        tried: list[Sequence] = []
        for _ in range(TRIES if self.method.follow else 1):
            tried.append(sequence)
            found = self.refined(laws, sequence, start_of_motion(self.ocp, sequence, motion))
            if best is None or found.rank < best.rank:
                best = found
            motion = found.motion if found.motion is not None else motion
            if not found.rank[0] or not self.left() or found.motion is None or not found.motion.success:
                break
            sequence = read(laws, motion, found.point.p)
            if any(sequence == other for other in tried):
                break
        assert best is not None
        if self.method.follow:
            best = self.with_ends(laws, best)
        return best.solution

    def with_ends(self, laws: Any, best: PhaseAttempt) -> PhaseAttempt:
        """Try a phase more at the end, or at the beginning, where the state there belongs to another mode, too.

        A motion that comes to rest just at its end may be one that rests a while: a phase of length zero that no
        simulation shows.
        """
        sequence, p = best.solution.sequence, best.point.p
        assert sequence is not None
        if not best.solution.success:
            return best
        for at_end in (True, False):
            x = best.point.w[best.point.program.at_end if at_end else best.point.program.at_x0]
            mode = laws.mode_at(x, p)
            modes = list(best.point.program.plan.modes)
            if mode == modes[-1 if at_end else 0] or not self.left():
                continue
            longer, start = lengthened(laws, best, mode, at_end=at_end)
            found = self.refined(laws, longer, start)
            best = min(best, found, key=lambda attempt: attempt.rank)
        return best

    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self.deadline - time.monotonic())

    def refined(self, laws: ModeLaws, sequence: Sequence, start: PhaseStart) -> PhaseAttempt:
        """One sequence on finer and finer meshes, until it is confirmed."""
        plan, level, points, placed = Plan.of(sequence, laws), 0, 0, 0
        best: PhaseAttempt | None = None
        for _ in range(self.method.refinements + PLACED + 1):
            mesh = self.method.mesh(level, points)
            found = self.attempt(laws, plan, mesh, start)
            if best is None or found.rank <= best.rank or found.solution.success:
                best = found
            if not found.solution.success or not self.left():
                break
            start_lengths, lengths = np.diff(start.edges), found.point.lengths
            if placed < PLACED and not mesh.equal and _misplaced(mesh, start_lengths, lengths):
                placed += 1
            elif level + points >= self.method.refinements:
                break
            elif found.verdict is Verdict.CONSTRAINT_BETWEEN_NODES:
                points += 1
            elif found.verdict in (Verdict.INACCURATE, Verdict.REFUTED, Verdict.UNDECIDED):
                level += 1
            else:
                break
            start = start_of_motion(self.ocp, found.point.sequence, found.solution)
        assert best is not None
        return best

    def attempt(self, laws: ModeLaws, plan: Plan, mesh: PhaseMesh, start: PhaseStart) -> PhaseAttempt:
        """Solve one program and simulate what it finds."""
        point = self.optimum(laws, plan, mesh, start)
        status, message = self.status(point)
        told: dict[str, Any] = {
            "log": tuple(self.log),
            "iterations": sum(record.iterations for record in self.log),
            "wall_seconds": time.monotonic() - self.started,
            "method": repr(self.method),
        }
        solution = solution_of(point, status, message, told)
        if not status.success:
            return PhaseAttempt(point=point, solution=solution)
        certificate = certify(self.ocp, solution)
        verdict = certificate.verdict
        note = "" if verdict is Verdict.CONFIRMED else f"{verdict}: {certificate.reason}"
        return PhaseAttempt(
            point=point,
            solution=solution if not note else replace(solution, message=note),
            verdict=verdict,
            reason=certificate.reason,
            motion=certificate.trajectory,
        )

    def optimum(self, laws: ModeLaws, plan: Plan, mesh: PhaseMesh, start: PhaseStart) -> PhasePoint:
        """Solve one program: first with phases that cannot vanish at once, and from a wrong start with a penalty."""
        program = PhaseNLP(self.ocp, laws, plan, mesh, start)
        point = self.run(program, program.w0, "phases", least=KEPT)
        if not self.good(point) and self.ocp.terminal_constraints:
            size = max(1.0, abs(point.objective)) if np.isfinite(point.objective) else 1.0
            soft = PhaseNLP(self.ocp, laws, plan, replace(mesh, penalty=PENALTY * size), start)
            reached = self.run(soft, soft.w0, "penalised", least=KEPT)
            near = np.clip(np.delete(reached.w, soft.at_slack), program.nlp.lbw, program.nlp.ubw)
            again = self.run(program, near, "phases", least=KEPT)
            point = min((point, again), key=lambda found: found.violation if not self.good(found) else -1.0)
        lengths = point.w[program.at_lengths]
        floor = KEPT * program.w0[program.at_lengths]
        if (lengths <= (1.0 + NEAR) * floor).any():
            freed = self.run(program, point.w, "short phases")
            point = freed if self.good(freed) or not self.good(point) else point
        return point

    def good(self, point: PhasePoint) -> bool:
        """Whether it is feasible and IPOPT is content."""
        return self.status(point)[0].success

    def run(self, program: PhaseNLP, w: Array, label: str, least: float = 0.0) -> PhasePoint:
        """IPOPT on one program; phases keep this share of the lengths they start with."""
        options = {**IPOPT, "max_iter": self.method.max_iterations, **self.method.ipopt}
        nlp, lower = program.nlp, program.nlp.lbx.copy()
        at = program.at_lengths
        lower[at] = np.maximum(lower[at], least * program.w0[at] / nlp.scale[at])
        result = Ipopt(nlp, options).solve(w / nlp.scale, np.empty(0), deadline=self.deadline, lbx=lower)
        point = PhasePoint.of(program, np.clip(result.x * nlp.scale, nlp.lbw, nlp.ubw), result)
        self.log.append(log_record(len(self.log), label, point))
        return point

    def status(self, point: PhasePoint) -> tuple[Status, str]:
        """What IPOPT's word and the residuals say."""
        result = point.result
        assert result is not None
        word = result.solver_status
        if result.interrupted:
            return Status.INTERRUPTED, word
        if not np.isfinite([point.objective, point.violation]).all() or word == "Invalid_Number_Detected":
            return Status.NUMERICAL_ERROR, word
        if point.violation <= self.method.tolerance and result.converged:
            return Status.SOLVED, ""
        if word == "User_Requested_Stop":
            return Status.TIME_LIMIT, word
        if word == "Maximum_Iterations_Exceeded":
            return Status.ITERATION_LIMIT, word
        if point.violation > self.method.tolerance:
            return Status.LOCALLY_INFEASIBLE, f"this sequence misses {point.worst} by {point.violation:.3g}"
        return Status.NO_DESCENT, word


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
    return written(modes, impacts, laws, edges[1:-1]), start


def _misplaced(mesh: PhaseMesh, before: Array, after: Array) -> bool:
    """Whether phases would have other numbers of intervals by the lengths that they have now."""
    counts = [[intervals_of(mesh, length, lengths.sum()) for length in lengths] for lengths in (before, after)]
    return counts[0] != counts[1]


def motion_of(ocp: OCP, guess: Any, left: float) -> Trajectory:
    """The motion of a guess: itself, if it has states, else the simulation of its control."""
    if isinstance(guess, Trajectory) and guess.state_names == ocp.system.state_names and len(guess.t) > 1:
        # The iterate of a failure may be no motion at all: its control has one.
        if guess.success or not len(guess.u):
            return guess
    x0 = np.clip(0.0, *ocp.x_bounds) if ocp.x0 is None else ocp.x0
    law = control_of_guess(ocp, guess)
    from nosnoc_py.simulation.common import SimulationTask

    limit = None if np.isinf(left) else left
    task = SimulationTask(x0=x0, duration=ocp.horizon, u=law, p=ocp.p, time_limit=limit)
    return SMOOTH.simulate(ocp.system, task)


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

    p = getattr(motion, "p", np.empty(0))
    return PhaseStart(
        edges=edges, state=state, control=control, p=p if np.size(p) == ocp.system.n_p else np.asarray(ocp.p)
    )
