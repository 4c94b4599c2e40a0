"""Direct multiple shooting with free phase durations: the control grid is aligned with the collisions.

A prescribed sequence of collisions makes the problem smooth: the phases between collisions have free durations, guards
are zero at their ends, and resets connect them. The grid moves with the collisions, so controls may jump there, and the
error is of second order in the number of intervals; on a fixed grid the objective has a kink whenever a collision
passes a node. A solution is rejected if a phase has shrunk to its bound, a guard is active without a collision, or a
body penetrates (`validity.invalidity`): the sequence is then not optimal.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field

from nosnoc_py.errors import OptionError
from nosnoc_py.methods.indirect.control_set import ControlSet
from nosnoc_py.methods.indirect.forward import SweepFailure
from nosnoc_py.methods.indirect.iteration import Iteration, IterationState, with_record
from nosnoc_py.methods.indirect.motion import HybridMotion
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_system, substituted_problem
from nosnoc_py.methods.indirect.switching_start import predicted_collisions
from nosnoc_py.methods.indirect.validity import invalidity
from nosnoc_py.methods.shooting.phase_program import motion_of_point, phase_program, roll_out_sequence
from nosnoc_py.ocp import OCP
from nosnoc_py.sequences.optimise import optimise, status_of
from nosnoc_py.sequences.readout import PhasePoint
from nosnoc_py.solution import Trajectory
from nosnoc_py.status import Status
from nosnoc_py.systems.controls import control_of_guess
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.transcription.guesses import start_of

Array = np.ndarray

NAME = "DirectShooting(form='phases')"


class PhaseShooting(Iteration):
    """Multiple shooting with one phase of free duration between consecutive collisions.

    For frictionless contacts with restitution, and any `HybridSystem`.

    Parameters
    ----------
    sequence : names, optional
        Names of the jumps (contacts) in order. Default: the events of the guess if it is a trajectory, else those of a
        simulation with its control.
    intervals : int
        Number K of equal intervals with constant control per phase; each is one element of Radau IIA with three stages.
    shortest : float
        Lower bound of the duration of a phase, relative to the horizon.
    max_iterations : int
        Iteration limit of the interior-point method.
    tolerance : float
        Largest violation of constraints and largest penetration of a solution.
    time_limit : float, optional
        Seconds.
    ipopt : dict
        Further options of the interior-point method, with IPOPT's names.
    """

    sequence: tuple[str, ...] | None = None
    intervals: int = Field(default=20, ge=1)
    shortest: float = Field(default=1e-3, gt=0, lt=1)
    max_iterations: int = Field(default=500, ge=0)
    tolerance: float = Field(default=1e-6, gt=0)
    ipopt: dict[str, str | int | float] = Field(default_factory=dict)

    def init(self, ocp: OCP, guess: Any = None) -> PhaseState:
        """Return the start: the motion under the control of the guess, with jumps at predicted times."""
        system = hybrid_system(ocp, NAME)
        if ocp.complementarities:
            raise OptionError(f"{NAME} takes no complementarities; use ns.FESDJ(...).")
        x0, horizon = _start(ocp, guess), float(ocp.horizon)
        if ocp.free_time is not None and isinstance(guess, Trajectory):
            # A guess outside of the bounds of a free horizon is moved to the nearest one.
            horizon = min(max(guess.duration, ocp.free_time.lower), ocp.free_time.upper)
        problem = _problem_of(ocp, system, x0, horizon, ocp.p)
        # With the OCP of the problem, in which a free horizon is a number.
        law = control_of_guess(problem.ocp, guess)
        status, message = None, ""
        try:
            times, jumps = predicted_collisions(problem, guess, law, self.sequence, NAME)
        except SweepFailure as failure:
            # The state needs a motion even so: one phase without jumps.
            times, jumps, status, message = np.empty(0), (), failure.status, failure.message
        edges = np.array([0.0, *times, horizon])
        # Jumps at the predicted times regardless of the guards: the NLP makes the guards zero.
        start = roll_out_sequence(ocp, system, jumps, self.intervals, x0, edges, law)
        program = phase_program(ocp, system, self.intervals, jumps, self.shortest, start)
        hint = "; give sequence=(...), or another guess" if status is Status.COLLISION_LOST else ""
        fields = {"status": status, "message": message + hint}
        return PhaseState.at(PhasePoint.of(program, program.w0), system, self.intervals, jumps, **fields)

    def step(self, state: PhaseState, deadline: float = np.inf) -> Any:
        """Solve the NLP; this is the only step."""
        program, started = state.point.program, time.monotonic()
        point = optimise(program, state.point.w, {"max_iter": self.max_iterations, **self.ipopt}, deadline)
        result = point.result
        assert result is not None
        solved = PhaseState.at(point, state.system, state.intervals, state.motion.jumps)
        status, message = self._status(solved)
        final, motion = replace(solved, status=status, message=message, iterations=result.iterations), solved.motion
        fields: dict[str, Any] = {"infeasibility": solved.infeasibility, "iterations": result.iterations}
        fields["solver_status"] = result.solver_status
        return with_record(final, started, "phases", motion.objective, motion.jumps, motion.times, **fields)

    def outcome(self, state: PhaseState) -> tuple[Status | None, str]:
        """Return (status, message); the status is None before the NLP is solved."""
        return state.status, state.message

    def result_of(self, state: PhaseState) -> tuple[HybridMotion, int, float]:
        """Return the motion of the last iterate, IPOPT's iterations, and the largest constraint violation."""
        return state.motion, state.iterations, state.infeasibility

    def _status(self, state: PhaseState) -> tuple[Status, str]:
        # A point without small violations is no motion, so that its validity says nothing.
        status, message = status_of(state.point, self.tolerance)
        if not status.success:
            return status, message
        limits = {"shortest": self.shortest * state.point.program.ocp.horizon, "tolerance": self.tolerance}
        reason = invalidity(state.problem, state.motion, **limits, constrained=True)
        return (Status.NOT_AN_OPTIMUM, reason) if reason else (status, message)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PhaseState(IterationState):
    """Iterate of the NLP, with its motion and the problem with its x(0), horizon and parameters."""

    point: PhasePoint
    system: HybridSystem
    intervals: int
    motion: HybridMotion

    @property
    def infeasibility(self) -> float:
        """Largest violation of a constraint or a bound."""
        return self.point.violation

    @classmethod
    def at(
        cls, point: PhasePoint, system: HybridSystem, intervals: int, jumps: tuple[int, ...], **fields: Any
    ) -> PhaseState:
        """Build a state from an iterate."""
        motion = motion_of_point(point, intervals, jumps)
        first, last = motion.phases[0], motion.phases[-1]
        ocp = point.program.ocp
        # Free quantities have new values at every iterate: costs and guards are those of its own problem.
        problem = _problem_of(ocp, system, first.x[0], float(last.t[-1]), point.p)
        return cls(point=point, system=system, intervals=intervals, problem=problem, motion=motion, **fields)


def _start(ocp: OCP, guess: Any = None) -> Array:
    """Return x0; a free one is that of the guess, else the middle of finite bounds, or the value nearest to zero."""
    if ocp.x0 is None and isinstance(guess, Trajectory):
        return np.array(guess.x[0])
    if ocp.x0 is None and isinstance(guess, Mapping) and "x" in guess:
        states = guess["x"](0.0) if callable(guess["x"]) else np.atleast_2d(guess["x"])[0]
        return np.asarray(states, float)
    start, (low, high) = np.array(start_of(ocp)), ocp.x_bounds
    if ocp.x0 is None:  # at a bound a body may touch a guard immediately
        bounded = np.isfinite(low) & np.isfinite(high)
        start[bounded] = 0.5 * (low[bounded] + high[bounded])
    return start


def _problem_of(ocp: OCP, system: HybridSystem, x0: Array, horizon: float, p: Array) -> HybridProblem:
    """Build the problem with numbers for free quantities; constraints are handled by the NLP."""
    controls = ControlSet(lower=ocp.u_bounds[0], upper=ocp.u_bounds[1])
    return substituted_problem(ocp, system, x0=x0, horizon=horizon, p=p, controls=controls, method=NAME)
