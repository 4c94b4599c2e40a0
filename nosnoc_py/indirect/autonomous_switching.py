"""HMP-MAS: descent over switching times and states of a prescribed sequence of collisions (HMP, Section 6.1).

The method the hybrid minimum principle is compared with: optimal controls between guessed switchings, the gradient of
the total cost by the guesses, a step of descent. Guards enter as a penalty, or by an augmented Lagrangian.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import casadi as ca
import numpy as np
from pydantic import Field

from nosnoc_py.errors import OptionError
from nosnoc_py.indirect.iteration import Iteration, control_of_guess
from nosnoc_py.indirect.motion import solution_of
from nosnoc_py.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.indirect.switching_control import SATURATED
from nosnoc_py.indirect.switching_descent import direction, longest, remembered
from nosnoc_py.indirect.switching_phases import NoArcError, SwitchedPhases, Switchings, Value
from nosnoc_py.indirect.switching_start import moved_by, predicted, rolled_out
from nosnoc_py.indirect.switching_state import SwitchingState, recorded
from nosnoc_py.indirect.switching_validity import SHRUNK, invalidity
from nosnoc_py.ocp import OCP
from nosnoc_py.solution import Solution
from nosnoc_py.status import Status

Array = np.ndarray

NAME = "AutonomousSwitching"
# The curvature of the stage cost is judged at the start and at so many random points around it.
PROBES = 8
# A step has to achieve this part of what the gradient promises, up to rounding.
ARMIJO, ROUNDING = 1e-4, 1e-14
HALVINGS = 40
# Equal steps of the motion that is shown where there is none with switchings.
START_STEPS = 400


class AutonomousSwitching(Iteration):
    """Optimise times and states of a prescribed sequence of collisions (HMP-MAS).

    For comparisons: `MinimumPrinciple` needs no sequence. What a wrong sequence ends at is "not an optimum", or the
    best motion with that sequence.

    Parameters
    ----------
    sequence : names, optional
        Jumps (contacts) in their order; default those of a simulation with the control of the guess.
    steps : int
        Runge-Kutta steps (RK4) in every phase.
    constraint : {"augmented_lagrangian", "penalty"}
        How psi(x-) = 0 is enforced; "penalty" leaves |psi| = O(1 / weight).
    weight : float
        rho, in rho psi^2 / 2.
    descent : {"bfgs", "gradient"}
        Both with a line search.
    max_iterations : int
    tolerance : float
        Success: the gradient by times and states is below it, and the motion is valid.
    feasibility : float
        Success: |psi(x-)| is below it.
    shortest : float
        Lower bound of the duration of a phase, relative to the horizon.
    time_limit : float, optional
        Seconds.
    """

    sequence: tuple[str, ...] | None = None
    steps: int = Field(default=40, ge=2)
    constraint: Literal["augmented_lagrangian", "penalty"] = "augmented_lagrangian"
    weight: float = Field(default=100.0, gt=0)
    descent: Literal["bfgs", "gradient"] = "bfgs"
    max_iterations: int = Field(default=1000, ge=0)
    tolerance: float = Field(default=1e-8, gt=0)
    feasibility: float = Field(default=1e-9, gt=0)
    shortest: float = Field(default=1e-3, gt=0, lt=1)

    def init(self, ocp: OCP | HybridProblem, guess: Any = None) -> SwitchingState:
        """The state before the first step; `guess` as in `nosnoc_py.solve`, zero by default.

        Raises
        ------
        OptionError, ModelError, TranscriptionError
            For a problem or a guess that does not fit.
        """
        problem = ocp if isinstance(ocp, HybridProblem) else hybrid_problem(ocp, NAME)
        _check(problem)
        law = control_of_guess(problem, guess)

        def control(t: float) -> Array:
            return problem.controls.project(np.array(law(t)))

        start = predicted(problem, guess, control, self.sequence, NAME)
        if start.status is not None:
            motion = moved_by(problem, control, START_STEPS)
            return SwitchingState(problem=problem, begun=motion, status=start.status, message=start.message)
        return self._begun(problem, start.jumps, start.times, control)

    def _begun(
        self, problem: HybridProblem, jumps: tuple[int, ...], times: Array, control: Callable[[float], Array]
    ) -> SwitchingState:
        ends, bases = rolled_out(problem, jumps, times, control, self.steps)
        phases = SwitchedPhases(problem, jumps, self.steps, bases)
        at = Switchings(times=times, ends=tuple(basis.T @ end for basis, end in zip(bases, ends, strict=True)))
        state = SwitchingState(problem=problem, phases=phases, at=at, multipliers=np.zeros(len(jumps)))
        try:
            return replace(state, value=phases.value(at, state.multipliers, self.weight))
        except NoArcError as none:
            motion = moved_by(problem, control, START_STEPS)
            return replace(state, begun=motion, status=Status.LOCALLY_INFEASIBLE, message=str(none))

    def step(self, state: SwitchingState) -> SwitchingState:
        """One step of descent, or of the multipliers when the descent has done enough."""
        started = time.monotonic()
        assert state.phases is not None
        assert state.value is not None
        if self.constraint == "augmented_lagrangian" and state.slope <= max(self.tolerance, state.infeasibility):
            multipliers = state.multipliers + self.weight * state.value.guards
            value = state.phases.value(state.at, multipliers, self.weight, state.value.arcs)
            return recorded(replace(state, multipliers=multipliers, value=value), started, "multipliers")
        return self._descended(state, started)

    def _descended(self, state: SwitchingState, started: float) -> SwitchingState:
        """A step along the direction of descent, halved until it descends."""
        value, shortest = state.value, self.shortest * state.problem.horizon
        assert value is not None
        gradient, flat = value.gradient, state.at.flat
        way = direction(state.curvature, gradient) if self.descent == "bfgs" else -gradient
        first = 1.0 if self.descent == "bfgs" and state.curvature is not None else state.length
        length = min(first, longest(state.at.times, way, state.problem.horizon, shortest))
        for _ in range(HALVINGS):
            there = state.at.moved(flat + length * way)
            found = self._tried(state, there)
            enough = value.total + ARMIJO * length * gradient @ way + ROUNDING * (1 + abs(value.total))
            if isinstance(found, Value) and found.total <= enough:
                moved = remembered(state.curvature, length * way, found.gradient - gradient)
                state = replace(state, at=there, value=found, curvature=moved, length=2 * length)
                return recorded(replace(state, iterations=state.iterations + 1), started, self.descent)
            length /= 2
        if state.curvature is not None and self.descent == "bfgs":  # what it remembers may be wrong: once from scratch
            return replace(state, curvature=None, length=1e-3)
        stuck = f"the line search finds no descent, and the gradient is {state.slope:.3e}"
        assert state.phases is not None
        saturated = [i for i, arc in enumerate(value.arcs[:-1]) if state.phases.saturated(arc)]
        if saturated:
            stuck += f"; phase {saturated[0]}: {SATURATED}"
        elif isinstance(found, NoArcError):
            stuck += f"; from here {found}"
        return replace(state, status=Status.NO_DESCENT, message=stuck)

    def _tried(self, state: SwitchingState, at: Switchings) -> Value | NoArcError:
        assert state.phases is not None
        assert state.value is not None
        try:
            return state.phases.value(at, state.multipliers, self.weight, state.value.arcs)
        except NoArcError as none:
            return none

    def judged(self, state: SwitchingState) -> tuple[Status | None, str]:
        """Why a state is the last one, with a reason."""
        if state.status is not None:
            return state.status, state.message
        assert state.value is not None
        horizon = state.problem.horizon
        durations = np.diff([0.0, *state.at.times, horizon])
        if state.at.times.size and durations.min() <= SHRUNK * self.shortest * horizon:
            return Status.NOT_AN_OPTIMUM, self._invalid(state)
        penalty = self.constraint == "penalty"
        if state.slope <= self.tolerance and (penalty or state.infeasibility <= self.feasibility):
            return self._ended(state)
        return (Status.ITERATION_LIMIT, "") if len(state.records) >= self.max_iterations else (None, "")

    def _ended(self, state: SwitchingState) -> tuple[Status, str]:
        """What a stationary point is."""
        if state.infeasibility > self.feasibility:
            return Status.LOCALLY_INFEASIBLE, (
                f"the penalty leaves guards of {state.infeasibility:.2g} at the collisions; give a larger weight or "
                "feasibility, or constraint='augmented_lagrangian'"
            )
        reason = self._invalid(state)
        if reason:
            return Status.NOT_AN_OPTIMUM, reason
        return Status.SOLVED, ""

    def _invalid(self, state: SwitchingState) -> str:
        tolerance = max(1e-6, 2 * state.infeasibility)
        shortest = self.shortest * state.problem.horizon
        return invalidity(state.problem, state.motion(), shortest=shortest, tolerance=tolerance)

    def solution(self, state: SwitchingState, *, wall_seconds: float | None = None) -> Solution:
        """The solution that a state stands for, whatever its status; costates are series."""
        seconds = sum(record.wall_seconds for record in state.records)
        status, message = self.judged(state)
        return solution_of(
            state.problem,
            state.motion(),
            status=status or Status.STOPPED,
            message=message,
            log=state.records,
            iterations=state.iterations,
            wall_seconds=seconds if wall_seconds is None else wall_seconds,
            infeasibility=state.infeasibility,
            method=repr(self),
        )


def _check(problem: HybridProblem) -> None:
    """Only minimisers that are continuous can be differentiated along a phase."""
    curvature = ca.hessian(problem.running_cost, problem.u)[0]
    function = ca.Function("R", [problem.x, problem.u], [ca.densify(curvature)])
    random = np.random.default_rng(20)
    size = 1.0 + np.abs(problem.x0)
    places = [problem.x0, *(problem.x0 + size * random.normal(size=(PROBES, problem.n_x)))]
    values = np.array([function(x, np.zeros(problem.n_u)) for x in places])
    if problem.minimiser.kind != "quadratic" or not np.linalg.eigvalsh(values).min() > 0:
        raise OptionError(
            f"{NAME}: the control that minimises the Hamiltonian has to be a continuous closed form: a flow that is "
            "affine in u and a stage cost that is quadratic in u with a positive curvature; use "
            "ns.MinimumPrinciple(...)."
        )
