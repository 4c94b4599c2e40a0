"""HMP-MAS: descent over switching times and states of a prescribed sequence of collisions (HMP, Section 6.1).

The method the hybrid minimum principle is compared with: optimal controls between guessed switchings, the gradient of
the total cost by the guesses, a step of descent. Guards enter by an augmented Lagrangian, because the paper's penalty
of weight rho leaves |psi| = O(1 / rho).

Also here: the state of the descent, the quasi-Newton update of all descents, and the longest step over times.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import casadi as ca
import numpy as np
from pydantic import Field

from nosnoc_py.errors import OptionError
from nosnoc_py.methods.indirect.forward import SweepFailure
from nosnoc_py.methods.indirect.iteration import Iteration, IterationState, nothing_but_the_start, recorded
from nosnoc_py.methods.indirect.minimiser_forms import is_definite
from nosnoc_py.methods.indirect.motion import HybridMotion
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.methods.indirect.switching_phases import SATURATED, NoArcError, SwitchedPhases, Value
from nosnoc_py.methods.indirect.switching_start import moved_by, predicted, rolled_out
from nosnoc_py.methods.indirect.validity import SHRUNK, invalidity
from nosnoc_py.ocp import OCP
from nosnoc_py.quasi_newton import bfgs
from nosnoc_py.status import Status
from nosnoc_py.systems.controls import control_of_guess

Array = np.ndarray

NAME = "AutonomousSwitching"
# A step has to achieve this part of what the gradient promises, up to rounding.
ARMIJO, ROUNDING = 1e-4, 1e-14
HALVINGS = 40
# Equal steps of the motion that is shown where there is none with switchings.
START_STEPS = 400
# Largest |psi(x-)| of a success.
FEASIBLE = 1e-9
# A step may use up this part of what is left of a phase.
BOLDNESS = 0.9


def longest(times: Array, way: Array, horizon: float, shortest: float) -> float:
    """How far one may go until a phase has lost most of what it has beyond the shortest duration."""
    durations = np.diff([0.0, *times, horizon])
    rates = np.diff([0.0, *way[: times.size], 0.0])
    falling = rates < 0
    left = BOLDNESS * np.maximum(durations[falling] - shortest, 0.0)
    return float(np.min(left / -rates[falling], initial=np.inf))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SwitchingState(IterationState):
    """Where the descent stands.

    Attributes
    ----------
    phases : SwitchedPhases, optional
        The cost as a function of switchings; None where there is no collision to begin with.
    at : ndarray
        Switchings, as `SwitchedPhases` takes them.
    value : Value, optional
        Cost, gradient, guards and arcs there.
    multipliers : (M,)
        eta of the augmented Lagrangian.
    inverse : (n, n), optional
        Of the Hessian, as BFGS knows it.
    length : float
        First step length of the next line search.
    begun : HybridMotion, optional
        That of the control of the guess, where there is no `value`.
    """

    measure = "gradient"
    phases: SwitchedPhases | None = None
    at: Array = field(default_factory=lambda: np.empty(0))
    value: Value | None = None
    multipliers: Array = field(default_factory=lambda: np.empty(0))
    inverse: Array | None = None
    length: float = 1e-2
    begun: HybridMotion | None = None

    @property
    def times(self) -> Array:
        """Of the collisions [s]."""
        return self.at[: self.multipliers.size]

    @property
    def slope(self) -> float:
        """The largest component of the gradient."""
        return np.inf if self.value is None else float(np.abs(self.value.gradient).max(initial=0.0))

    @property
    def infeasibility(self) -> float:
        """The largest |psi(x-)|."""
        return 0.0 if self.value is None else float(np.abs(self.value.guards).max(initial=0.0))

    def motion(self) -> HybridMotion:
        """The phases, or where there are none, what the control of the guess leads to."""
        if self.phases is not None and self.value is not None:
            return self.phases.motion(self.value)
        return nothing_but_the_start(self.problem) if self.begun is None else self.begun


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
    weight : float
        rho, in the term rho psi^2 / 2 of the augmented Lagrangian, psi(x-) the guards.
    descent : {"bfgs", "gradient"}
        Both with a line search.
    max_iterations : int
    tolerance : float
        Success: the gradient by times and states is below it, guards are zero, and the motion is valid.
    shortest : float
        Lower bound of the duration of a phase, relative to the horizon.
    time_limit : float, optional
        Seconds.
    """

    sequence: tuple[str, ...] | None = None
    steps: int = Field(default=40, ge=2)
    weight: float = Field(default=100.0, gt=0)
    descent: Literal["bfgs", "gradient"] = "bfgs"
    max_iterations: int = Field(default=1000, ge=0)
    tolerance: float = Field(default=1e-8, gt=0)
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
        law = control_of_guess(problem.ocp, guess)

        def control(t: float) -> Array:
            return problem.controls.project(np.array(law(t)))

        try:
            times, jumps = predicted(problem, guess, control, self.sequence, NAME)
            ends, bases = rolled_out(problem, jumps, times, control, self.steps)
            at = np.concatenate([times, *[basis.T @ end for basis, end in zip(bases, ends, strict=True)]])
            phases, multipliers = SwitchedPhases(problem, jumps, self.steps, bases), np.zeros(len(jumps))
            value = phases.value(at, multipliers, self.weight)
        except SweepFailure as failure:
            motion = moved_by(problem, control, START_STEPS)
            return SwitchingState(problem=problem, begun=motion, status=failure.status, message=failure.message)
        return SwitchingState(problem=problem, phases=phases, at=at, value=value, multipliers=multipliers)

    def step(self, state: SwitchingState, deadline: float = np.inf) -> SwitchingState:
        """One step of descent, or of the multipliers when the descent has done enough."""
        started = time.monotonic()
        assert state.phases is not None
        assert state.value is not None
        if state.slope <= max(self.tolerance, state.infeasibility):
            multipliers = state.multipliers + self.weight * state.value.guards
            value = state.phases.value(state.at, multipliers, self.weight, state.value.arcs)
            return self._recorded(replace(state, multipliers=multipliers, value=value), started, "multipliers")
        return self._descended(state, started)

    def _descended(self, state: SwitchingState, started: float) -> SwitchingState:
        """A step along the direction of descent, halved until it descends."""
        value, phases, shortest = state.value, state.phases, self.shortest * state.problem.horizon
        assert value is not None
        assert phases is not None
        gradient = value.gradient
        inverse = state.inverse if self.descent == "bfgs" else None
        way, first = (-gradient, state.length) if inverse is None else (-inverse @ gradient, 1.0)
        length = min(first, longest(state.times, way, state.problem.horizon, shortest))
        for _ in range(HALVINGS):
            there = state.at + length * way
            try:
                found, why = phases.value(there, state.multipliers, self.weight, value.arcs), ""
            except NoArcError as none:
                found, why = None, none.message
            enough = value.total + ARMIJO * length * gradient @ way + ROUNDING * (1 + abs(value.total))
            if found is not None and found.total <= enough:
                moved = bfgs(state.inverse, length * way, found.gradient - gradient)
                state = replace(state, at=there, value=found, inverse=moved, length=2 * length)
                return self._recorded(replace(state, iterations=state.iterations + 1), started, self.descent)
            length /= 2
        if inverse is not None:  # what it remembers may be wrong: once from scratch
            return replace(state, inverse=None, length=1e-3)
        stuck = f"the line search finds no descent, and the gradient is {state.slope:.3e}"
        saturated = [i for i, arc in enumerate(value.arcs[:-1]) if phases.saturated(arc)]
        if saturated:
            stuck += f"; phase {saturated[0]}: {SATURATED}"
        elif why:
            stuck += f"; from here {why}"
        return replace(state, status=Status.NO_DESCENT, message=stuck)

    def _recorded(self, state: SwitchingState, started: float, label: str) -> Any:
        assert state.value is not None
        assert state.phases is not None
        sizes = {"infeasibility": state.infeasibility, "iterations": 1, "slope": state.slope}
        return recorded(state, started, label, state.value.objective, state.phases.jumps, state.times, **sizes)

    def judged(self, state: SwitchingState) -> tuple[Status | None, str]:
        """Why a state is the last one, with a reason."""
        if state.status is not None:
            return state.status, state.message
        assert state.value is not None
        horizon = state.problem.horizon
        durations = np.diff([0.0, *state.times, horizon])
        if state.times.size and durations.min() <= SHRUNK * self.shortest * horizon:
            return Status.NOT_AN_OPTIMUM, self._invalid(state)
        if state.slope <= self.tolerance and state.infeasibility <= FEASIBLE:
            reason = self._invalid(state)
            return (Status.NOT_AN_OPTIMUM, reason) if reason else (Status.SOLVED, "")
        return (Status.ITERATION_LIMIT, "") if len(state.records) >= self.max_iterations else (None, "")

    def _invalid(self, state: SwitchingState) -> str:
        tolerance = max(1e-6, 2 * state.infeasibility)
        shortest = self.shortest * state.problem.horizon
        return invalidity(state.problem, state.motion(), shortest=shortest, tolerance=tolerance)

    def found(self, state: SwitchingState) -> tuple[HybridMotion, int, float]:
        """The motion that a state stands for, steps of descent so far, and the largest |psi(x-)|."""
        return state.motion(), state.iterations, state.infeasibility


def _check(problem: HybridProblem) -> None:
    """Only minimisers that are continuous can be differentiated along a phase."""
    curvature = ca.hessian(problem.running_cost, problem.u)[0]
    if problem.minimiser.kind != "quadratic" or not is_definite(curvature, problem.x):
        raise OptionError(
            f"{NAME}: the control that minimises the Hamiltonian has to be a continuous closed form: a flow that is "
            "affine in u and a stage cost that is quadratic in u with a positive curvature; use "
            "ns.MinimumPrinciple(...)."
        )
