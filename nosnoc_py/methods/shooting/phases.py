"""Direct multiple shooting with free phase durations: the control grid is aligned with the collisions.

A prescribed sequence of collisions makes the problem smooth. The grid moves with the collisions, so controls may jump
there, and the error is of second order in the number of intervals, where a fixed grid leaves a kink at every node.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field

from nosnoc_py.errors import OptionError
from nosnoc_py.methods.indirect.control_set import ControlSet
from nosnoc_py.methods.indirect.forward import SweepFailure
from nosnoc_py.methods.indirect.iteration import Iteration, IterationState, recorded
from nosnoc_py.methods.indirect.motion import HybridMotion
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_system, stated
from nosnoc_py.methods.indirect.switching_start import predicted
from nosnoc_py.methods.indirect.validity import invalidity
from nosnoc_py.methods.shooting.phase_program import motion_of_point, phase_program, rolled_out
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
    """Multiple shooting with a phase between any two collisions, each with a free duration.

    For frictionless contacts with restitution, and any `HybridSystem`.

    Parameters
    ----------
    sequence : names, optional
        Jumps (contacts) in their order. Default: those of the guess, which are its own if it is a trajectory, else
        those of a simulation with its control.
    intervals : int
        K: equal intervals with a constant control in every phase, each one element of Radau IIA with three stages.
    shortest : float
        Lower bound of the duration of a phase, relative to the horizon.
    max_iterations : int
    tolerance : float
        Of what is accepted as feasible and as no penetration.
    time_limit : float, optional
        Seconds.
    ipopt : dict
        Further options of IPOPT.
    """

    sequence: tuple[str, ...] | None = None
    intervals: int = Field(default=20, ge=1)
    shortest: float = Field(default=1e-3, gt=0, lt=1)
    max_iterations: int = Field(default=500, ge=0)
    tolerance: float = Field(default=1e-6, gt=0)
    ipopt: dict[str, str | int | float] = Field(default_factory=dict)

    def init(self, ocp: OCP, guess: Any = None) -> PhaseState:
        """The motion under the control of the guess, with jumps where they are predicted."""
        system = hybrid_system(ocp, NAME)
        if ocp.complementarities:
            raise OptionError(f"{NAME} takes no complementarities; use ns.FESDJ(...).")
        free = ocp.x0 is None and isinstance(guess, Trajectory)
        x0, horizon = np.array(guess.x[0]) if free else _start(ocp), float(ocp.horizon)
        if ocp.free_time is not None and isinstance(guess, Trajectory):
            horizon = min(max(guess.duration, ocp.free_time.lower), ocp.free_time.upper)
        problem = _stated(ocp, system, x0, horizon, ocp.p)
        law = control_of_guess(problem.ocp, guess)
        status, message = None, ""
        try:
            times, jumps = predicted(problem, guess, law, self.sequence, NAME)
        except SweepFailure as failure:
            times, jumps, status, message = np.empty(0), (), failure.status, failure.message
        edges = np.array([0.0, *times, horizon])
        start = rolled_out(ocp, system, jumps, self.intervals, x0, edges, law)
        program = phase_program(ocp, system, self.intervals, jumps, self.shortest, start)
        hint = "; give sequence=(...), or another guess" if status is Status.COLLISION_LOST else ""
        told = {"status": status, "message": message + hint}
        return PhaseState.at(PhasePoint.of(program, program.w0), system, self.intervals, jumps, **told)

    def step(self, state: PhaseState, deadline: float = np.inf) -> Any:
        """Solve the program, which is all there is to do."""
        program, started = state.point.program, time.monotonic()
        point = optimise(program, state.point.w, {"max_iter": self.max_iterations, **self.ipopt}, deadline)
        result = point.result
        assert result is not None
        found = PhaseState.at(point, state.system, state.intervals, state.motion.jumps)
        status, message = self._status(found)
        ended, motion = replace(found, status=status, message=message, iterations=result.iterations), found.motion
        told: dict[str, Any] = {"infeasibility": found.infeasibility, "iterations": result.iterations}
        told["solver_status"] = result.solver_status
        return recorded(ended, started, "phases", motion.objective, motion.jumps, motion.times, **told)

    def judged(self, state: PhaseState) -> tuple[Status | None, str]:
        """None before the program is solved."""
        return state.status, state.message

    def found(self, state: PhaseState) -> tuple[HybridMotion, int, float]:
        """The motion of the last iterate, IPOPT's iterations, and the largest violation of the program."""
        return state.motion, state.iterations, state.infeasibility

    def _status(self, found: PhaseState) -> tuple[Status, str]:
        status, message = status_of(found.point, self.tolerance)
        if not status.success:
            return status, message
        limits = {"shortest": self.shortest * found.point.program.ocp.horizon, "tolerance": self.tolerance}
        reason = invalidity(found.problem, found.motion, **limits, constrained=True)
        return (Status.NOT_AN_OPTIMUM, reason) if reason else (Status.SOLVED, "")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PhaseState(IterationState):
    """An iterate of a program, and the motion of the problem with its x(0), horizon and parameters."""

    point: PhasePoint
    system: HybridSystem
    intervals: int
    motion: HybridMotion

    @property
    def infeasibility(self) -> float:
        """The largest violation of a row or a bound."""
        return self.point.violation

    @classmethod
    def at(
        cls, point: PhasePoint, system: HybridSystem, intervals: int, jumps: tuple[int, ...], **fields: Any
    ) -> PhaseState:
        """Read an iterate."""
        motion = motion_of_point(point, intervals, jumps)
        first, last = motion.phases[0], motion.phases[-1]
        ocp = point.program.ocp
        problem = _stated(ocp, system, first.x[0], float(last.t[-1]), point.p)
        return cls(point=point, system=system, intervals=intervals, problem=problem, motion=motion, **fields)


def _start(ocp: OCP) -> Array:
    """x0; where it is free, the middle of bounds that are both finite, else the admissible value nearest to zero."""
    start, (low, high) = np.array(start_of(ocp)), ocp.x_bounds
    if ocp.x0 is None:  # on a bound a body may touch a guard at once, so that no motion begins there
        both = np.isfinite(low) & np.isfinite(high)
        start[both] = 0.5 * (low[both] + high[both])
    return start


def _stated(ocp: OCP, system: HybridSystem, x0: Array, horizon: float, p: Array) -> HybridProblem:
    """The problem with numbers for what is free; constraints are the program's business."""
    controls = ControlSet(lower=ocp.u_bounds[0], upper=ocp.u_bounds[1])
    return stated(ocp, system, x0=x0, horizon=horizon, p=p, controls=controls, method=NAME)
