"""Direct multiple shooting with free phase durations: the control grid is aligned with the collisions.

A prescribed sequence of collisions makes the problem smooth. The grid moves with the collisions, so controls may jump
there, and the error is of second order in the number of intervals, where a fixed grid leaves a kink at every node.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from nosnoc_py.errors import OptionError
from nosnoc_py.methods.indirect.control_set import ControlSet
from nosnoc_py.methods.indirect.motion import Motion, solution_of
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_system, stated
from nosnoc_py.methods.indirect.switching_start import Collisions, predicted
from nosnoc_py.methods.indirect.validity import invalidity
from nosnoc_py.methods.shooting.phase_program import Grid, PhaseProgram, Point
from nosnoc_py.mpcc.ipopt import Ipopt, NLPResult
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.solution.records import StepRecord
from nosnoc_py.status import Status, asked_to_stop
from nosnoc_py.systems.controls import control_of_guess
from nosnoc_py.systems.hybrid import HybridSystem

Array = np.ndarray

NAME = "DirectShooting(form='phases')"


class PhaseShooting(CompleteMethod):
    """Multiple shooting with a phase between any two collisions, each with a free duration.

    For frictionless contacts with restitution, and any `HybridSystem`.

    Parameters
    ----------
    sequence : names, optional
        Jumps (contacts) in their order. Default: those of the guess, which are its own if it is a trajectory, else
        those of a simulation with its control.
    intervals : int
        K: equal intervals with a constant control in every phase.
    substeps : int
        Runge-Kutta steps (RK4) in every interval.
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
    substeps: int = Field(default=2, ge=1)
    shortest: float = Field(default=1e-3, gt=0, lt=1)
    max_iterations: int = Field(default=500, ge=0)
    tolerance: float = Field(default=1e-6, gt=0)
    ipopt: dict[str, str | int | float] = Field(default_factory=dict)

    def solved(
        self, ocp: OCP, guess: Any, callback: Callable[[Any], Any] | None, started: float, deadline: float
    ) -> Solution:
        """Solve one program; the callback sees it when it is solved."""
        system = hybrid_system(ocp, NAME)
        if ocp.complementarities:
            raise OptionError(f"{NAME} takes no complementarities; use ns.FESDJ(...).")
        prediction = self._predicted(ocp, system, guess)
        if prediction.collisions.status is not None:
            return self._unsolved(ocp, system, prediction, started)
        grid = Grid(intervals=self.intervals, substeps=self.substeps, jumps=prediction.collisions.jumps)
        program = PhaseProgram(ocp, system, grid, self.shortest * ocp.horizon)
        point = _rolled_out(program, prediction)
        ipopt = Ipopt(program.nlp, {"max_iter": self.max_iterations, **self.ipopt})
        result = ipopt.solve(program.packed(point), np.empty(0), deadline=deadline)
        return self._solution(program, result, callback, started)

    def _predicted(self, ocp: OCP, system: HybridSystem, guess: Any) -> _Prediction:
        """The sequence, with times, and the control of the guess as a function of time."""
        x0 = _first_state(ocp, guess)
        horizon = float(ocp.horizon)
        if ocp.free_time is not None and isinstance(guess, Trajectory):
            horizon = min(max(guess.duration, ocp.free_time.lower), ocp.free_time.upper)
        problem = _stated(ocp, system, x0, horizon, ocp.p)
        law = control_of_guess(problem.ocp, guess)
        found = predicted(problem, guess, law, self.sequence, NAME)
        return _Prediction(x0=x0, horizon=horizon, collisions=found, control=law)

    def _unsolved(self, ocp: OCP, system: HybridSystem, prediction: _Prediction, started: float) -> Solution:
        """Nothing but the control of the guess, and why there is no more."""
        grid = Grid(intervals=self.intervals, substeps=self.substeps, jumps=())
        program = PhaseProgram(ocp, system, grid, self.shortest * ocp.horizon)
        w = program.packed(_rolled_out(program, prediction))
        status, message = prediction.collisions.status, prediction.collisions.message
        assert status is not None
        if status is Status.COLLISION_LOST:
            message += "; give sequence=(...), or another guess"
        return self._shown(_Found.of(program, w), status, message, started)

    def _solution(
        self, program: PhaseProgram, result: NLPResult, callback: Callable[[Any], Any] | None, started: float
    ) -> Solution:
        found = _Found.of(program, result.x)
        motion, names = found.motion, found.problem.names
        status, message = self._status(found, result, self.shortest * program.ocp.horizon)
        record = StepRecord(
            step=0,
            label="phases",
            objective=motion.objective,
            infeasibility=found.infeasibility,
            iterations=result.iterations,
            wall_seconds=result.wall_seconds,
            solver_status=result.solver_status,
            collisions=tuple((names[i], float(at)) for i, at in zip(motion.jumps, motion.times, strict=True)),
        )
        stopped = None if callback is None else asked_to_stop(callback, PhaseState(records=(record,), motion=motion))
        status = status if stopped is None or status.success else stopped
        return self._shown(found, status, message, started, (record,))

    def _shown(
        self, found: _Found, status: Status, message: str, started: float, log: tuple[StepRecord, ...] = ()
    ) -> Solution:
        return solution_of(
            found.problem,
            found.motion,
            status=status,
            message=message,
            log=log,
            iterations=sum(record.iterations for record in log),
            wall_seconds=time.monotonic() - started,
            infeasibility=found.infeasibility,
            method=repr(self),
        )

    def _status(self, found: _Found, result: NLPResult, shortest: float) -> tuple[Status, str]:
        word, infeasibility = result.solver_status, found.infeasibility
        if result.interrupted:
            return Status.INTERRUPTED, word
        if not np.isfinite([*result.x, infeasibility]).all() or word == "Invalid_Number_Detected":
            return Status.NUMERICAL_ERROR, word
        if word == "User_Requested_Stop":
            return Status.TIME_LIMIT, word
        if word == "Maximum_Iterations_Exceeded":
            return Status.ITERATION_LIMIT, word
        if not infeasibility <= self.tolerance:
            return Status.LOCALLY_INFEASIBLE, word
        if not result.converged:
            return Status.NO_DESCENT, word
        limits = {"shortest": shortest, "tolerance": self.tolerance}
        reason = invalidity(found.problem, found.motion, **limits, constrained=True)
        return (Status.NOT_AN_OPTIMUM, reason) if reason else (Status.SOLVED, "")


@dataclass(frozen=True, eq=False, kw_only=True)
class PhaseState:
    """What a callback sees: the record of the solve, and the motion."""

    records: tuple[StepRecord, ...]
    motion: Motion


@dataclass(frozen=True, eq=False, kw_only=True)
class _Prediction:
    """Where the program starts: x(0), the horizon [s], the collisions, and the control as a function of time."""

    x0: Array
    horizon: float
    collisions: Collisions
    control: Callable[[float], Array]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Found:
    """Unknowns of a program as a motion of the problem with their x(0), horizon and parameters."""

    problem: HybridProblem
    motion: Motion
    infeasibility: float

    @classmethod
    def of(cls, program: PhaseProgram, w: Array) -> _Found:
        """Read them."""
        point, (objective, infeasibility) = program.unpacked(w), program.measure(w)
        problem = _stated(program.ocp, program.system, point.x[0, 0], float(point.durations.sum()), point.p)
        return cls(problem=problem, motion=program.motion(point, objective), infeasibility=infeasibility)


def _stated(ocp: OCP, system: HybridSystem, x0: Array, horizon: float, p: Array) -> HybridProblem:
    """The problem with numbers for what is free; constraints are the program's business."""
    controls = ControlSet(lower=ocp.u_bounds[0], upper=ocp.u_bounds[1])
    return stated(ocp, system, x0=x0, horizon=horizon, p=p, controls=controls, method=NAME)


def _first_state(ocp: OCP, guess: Any) -> Array:
    """x0, or where the guess or the middle of the bounds puts it."""
    if ocp.x0 is not None:
        return np.array(ocp.x0)
    if isinstance(guess, Trajectory):
        return np.array(guess.x[0])
    low, high = ocp.x_bounds
    both = np.isfinite(low) & np.isfinite(high)
    return np.where(both, (np.where(both, low, 0.0) + np.where(both, high, 0.0)) / 2, np.clip(0.0, low, high))


def _rolled_out(program: PhaseProgram, prediction: _Prediction) -> Point:
    """The motion of the predicted durations and control, with jumps where they are predicted."""
    grid, ocp = program.grid, program.ocp
    ends = np.concatenate([[0.0], prediction.collisions.times, [prediction.horizon]])
    durations = np.diff(ends)
    middles = (np.arange(grid.intervals) + 0.5) / grid.intervals
    times = (ends[:-1, None] + durations[:, None] * middles).ravel()
    u = np.array([prediction.control(t) for t in times]).reshape(grid.phases, grid.intervals, -1)
    x = np.empty((grid.phases, grid.intervals + 1, program.system.x.numel()))
    x[0, 0] = prediction.x0
    for i in range(grid.phases):
        if i:
            x[i, 0] = np.array(program.resets[grid.jumps[i - 1]](x[i - 1, -1], ocp.p)).reshape(-1)
        for k in range(grid.intervals):
            x[i, k + 1] = np.array(program.step(x[i, k], u[i, k], ocp.p, durations[i] / grid.intervals)[0]).reshape(-1)
    return Point(durations=durations, u=u, x=x, p=np.array(ocp.p))
