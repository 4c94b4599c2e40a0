"""HMP-MAS: multiple autonomous switchings, descent over collision times and states of a prescribed sequence.

Reference: Hu, Long, Zang, E, Han, "Solving optimal control problems of rigid-body dynamics with collisions using the
hybrid minimum principle" (called HMP in this folder), Section 6.1. It is the method that the paper compares with.

1. Given switching times s_i and states y_i before the collisions, every phase is an optimal control problem with fixed
   ends (`switching_phases`).
2. The costates of the phases give the gradient of the total cost by s_i and y_i: H- - H+ and the costate jump.
3. A line search along a BFGS or gradient direction updates s_i, y_i.
4. The guards psi(x-) = 0 enter by an augmented Lagrangian eta psi + rho psi^2 / 2; the paper's quadratic penalty leaves
   |psi| = O(1 / rho). Multipliers are updated whenever the gradient is smaller than the infeasibility.

The sequence of collisions is fixed. Invariant: all phases stay longer than `shortest`.
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
from nosnoc_py.methods.indirect.iteration import Iteration, IterationState, initial_state_only, with_record
from nosnoc_py.methods.indirect.minimiser_forms import is_definite
from nosnoc_py.methods.indirect.motion import HybridMotion
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.methods.indirect.switching_phases import SATURATED, NoArcError, SwitchedPhases, SwitchingValue
from nosnoc_py.methods.indirect.switching_start import motion_under, predicted_collisions, roll_out_sequence
from nosnoc_py.methods.indirect.validity import SHRUNK, invalidity
from nosnoc_py.ocp import OCP
from nosnoc_py.quasi_newton import bfgs
from nosnoc_py.status import Status
from nosnoc_py.systems.controls import control_of_guess

Array = np.ndarray

NAME = "AutonomousSwitching"
# Armijo condition: a step has to achieve this fraction of the decrease predicted by the gradient, up to rounding.
SUFFICIENT_DECREASE, ROUNDING_OF_COSTS = 1e-4, 1e-14
HALVINGS = 40  # 2^-40 of a step is at the level of rounding
# Number of equal steps of the motion that is returned if the start has no collision.
FALLBACK_STEPS = 400
# Largest |psi(x-)| of a solution, in units of the guard ([m] for a gap).
FEASIBLE = 1e-9
# A step may use at most this fraction of the time by which a phase exceeds its shortest duration.
MAX_SHRINKAGE = 0.9


def longest_step(times: Array, direction: Array, horizon: float, shortest: float) -> float:
    """Return the longest step along a direction for which all phases stay longer than the shortest duration [s]."""
    durations = np.diff([0.0, *times, horizon])
    rates = np.diff([0.0, *direction[: times.size], 0.0])
    shrinking = rates < 0
    room = MAX_SHRINKAGE * np.maximum(durations[shrinking] - shortest, 0.0)
    return float(np.min(room / -rates[shrinking], initial=np.inf))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SwitchingState(IterationState):
    """State of the descent of `AutonomousSwitching`.

    Attributes
    ----------
    phases : SwitchedPhases, optional
        Cost as a function of the switchings; None if the start has no collision.
    at : ndarray
        Switching times and states in one vector, see `SwitchedPhases`.
    value : SwitchingValue, optional
        Cost, gradient, guards and arcs at `at`.
    multipliers : (M,)
        eta of the augmented Lagrangian.
    inverse : (n, n), optional
        BFGS approximation of the inverse Hessian.
    length : float
        Initial step length of the next gradient step.
    begun : HybridMotion, optional
        Motion under the control of the guess, if there is no `value`.
    """

    measure = "gradient"
    phases: SwitchedPhases | None = None
    at: Array = field(default_factory=lambda: np.empty(0))
    value: SwitchingValue | None = None
    multipliers: Array = field(default_factory=lambda: np.empty(0))
    inverse: Array | None = None
    length: float = 1e-2
    begun: HybridMotion | None = None

    @property
    def times(self) -> Array:
        """Times of the collisions [s]."""
        return self.at[: self.multipliers.size]

    @property
    def slope(self) -> float:
        """Largest absolute component of the gradient."""
        return np.inf if self.value is None else float(np.abs(self.value.gradient).max(initial=0.0))

    @property
    def infeasibility(self) -> float:
        """Largest |psi(x-)|."""
        return 0.0 if self.value is None else float(np.abs(self.value.guards).max(initial=0.0))

    def motion(self) -> HybridMotion:
        """Return the motion of the phases, or that under the control of the guess if there are none."""
        if self.phases is not None and self.value is not None:
            return self.phases.motion(self.value)
        return initial_state_only(self.problem) if self.begun is None else self.begun


class AutonomousSwitching(Iteration):
    """Optimise times and states of a prescribed sequence of collisions (HMP-MAS; HMP, Section 6.1).

    Mainly for comparisons, as `MinimumPrinciple` needs no sequence. A wrong sequence leads to the status "not an
    optimum", or to the best motion with this sequence. The flow must be affine in u and the stage cost quadratic in u
    with positive curvature; controls may be bounded.

    Parameters
    ----------
    sequence : names, optional
        Names of the jumps (contacts) in order; default those of a simulation with the control of the guess.
    steps : int
        Number of Runge-Kutta steps (RK4) per phase.
    weight : float
        rho of the term rho psi^2 / 2 of the augmented Lagrangian, where psi(x-) are the guards.
    descent : {"bfgs", "gradient"}
        Search direction; both use a line search.
    max_iterations : int
        Maximal number of steps, including multiplier updates.
    tolerance : float
        Largest component of the gradient by times and states of a solution; guards also have to be zero (1e-9), and the
        motion valid.
    shortest : float
        Lower bound of the duration of a phase, relative to the horizon.
    time_limit : float, optional
        Seconds.

    Raises
    ------
    OptionError
        By `nosnoc_py.solve`, for an unknown contact in `sequence` and for problems outside of the scope above; the
        message names a method that fits.

    Examples
    --------
    A unit mass bounces elastically off a wall and shall end at q = 1; the exact optimal cost is 3 / 52.

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> mass = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=q, restitution=1)])
    >>> ocp = ns.OCP(mass, horizon=1.0, x0=[0.5, -1], stage_cost=0.1 * u**2, terminal_cost=(q - 1) ** 2)
    >>> solution = ns.solve(ocp, ns.AutonomousSwitching(sequence=("wall",)), certify=False)
    >>> solution.success, round(solution.objective, 6)
    (True, 0.057692)
    """

    sequence: tuple[str, ...] | None = None
    steps: int = Field(default=40, ge=2)
    weight: float = Field(default=100.0, gt=0)
    descent: Literal["bfgs", "gradient"] = "bfgs"
    max_iterations: int = Field(default=1000, ge=0)
    tolerance: float = Field(default=1e-8, gt=0)
    shortest: float = Field(default=1e-3, gt=0, lt=1)

    def init(self, ocp: OCP | HybridProblem, guess: Any = None) -> SwitchingState:
        """Return the state before the first step; `guess` as in `nosnoc_py.solve`, zero by default.

        Raises
        ------
        OptionError, ModelError, TranscriptionError
            For a problem or a guess outside of the scope of the method.
        """
        problem = ocp if isinstance(ocp, HybridProblem) else hybrid_problem(ocp, NAME)
        _check(problem)
        law = control_of_guess(problem.ocp, guess)

        def control(t: float) -> Array:
            return problem.controls.project(np.array(law(t)))

        try:
            times, jumps = predicted_collisions(problem, guess, control, self.sequence, NAME)
            ends, bases = roll_out_sequence(problem, jumps, times, control, self.steps)
            at = np.concatenate([times, *[basis.T @ end for basis, end in zip(bases, ends, strict=True)]])
            phases, multipliers = SwitchedPhases(problem, jumps, self.steps, bases), np.zeros(len(jumps))
            value = phases.value(at, multipliers, self.weight)
        except SweepFailure as failure:
            motion = motion_under(problem, control, FALLBACK_STEPS)
            return SwitchingState(problem=problem, begun=motion, status=failure.status, message=failure.message)
        return SwitchingState(problem=problem, phases=phases, at=at, value=value, multipliers=multipliers)

    def step(self, state: SwitchingState, deadline: float = np.inf) -> SwitchingState:
        """Take one descent step, or update the multipliers if the gradient is below the infeasibility."""
        started = time.monotonic()
        assert state.phases is not None
        assert state.value is not None
        # Inner problem solved well enough for the present infeasibility: first-order multiplier update.
        if state.slope <= max(self.tolerance, state.infeasibility):
            multipliers = state.multipliers + self.weight * state.value.guards
            # Arcs depend on the multipliers in their unreached costates only: Newton's method starts at its solution.
            value = state.phases.value(state.at, multipliers, self.weight, state.value.arcs)
            return self._logged(replace(state, multipliers=multipliers, value=value), started, "multipliers")
        return self._descend(state, started)

    def _descend(self, state: SwitchingState, started: float) -> SwitchingState:
        """Take a step along the search direction, halved until the cost decreases sufficiently."""
        value, phases, shortest = state.value, state.phases, self.shortest * state.problem.horizon
        assert value is not None
        assert phases is not None
        gradient = value.gradient
        inverse = state.inverse if self.descent == "bfgs" else None
        direction, first_length = (-gradient, state.length) if inverse is None else (-inverse @ gradient, 1.0)
        # Times must stay ordered with phases longer than `shortest`.
        length = min(first_length, longest_step(state.times, direction, state.problem.horizon, shortest))
        for _ in range(HALVINGS):
            trial = state.at + length * direction
            try:
                candidate, reason = phases.value(trial, state.multipliers, self.weight, value.arcs), ""
            except NoArcError as error:
                candidate, reason = None, error.message
            bound = (
                value.total
                + SUFFICIENT_DECREASE * length * gradient @ direction
                + ROUNDING_OF_COSTS * (1 + abs(value.total))
            )
            if candidate is not None and candidate.total <= bound:
                inverse_next = bfgs(state.inverse, length * direction, candidate.gradient - gradient)
                # The next gradient step may be twice as long, so that its length adapts in both directions.
                state = replace(state, at=trial, value=candidate, inverse=inverse_next, length=2 * length)
                return self._logged(replace(state, iterations=state.iterations + 1), started, self.descent)
            length /= 2
        if inverse is not None:  # the BFGS matrix may be wrong: restart once with the gradient
            return replace(state, inverse=None, length=1e-3)
        message = f"the line search finds no descent, and the gradient is {state.slope:.3e}"
        saturated = [i for i, arc in enumerate(value.arcs[:-1]) if phases.saturated(arc)]
        if saturated:
            message += f"; phase {saturated[0]}: {SATURATED}"
        elif reason:
            message += f"; from here {reason}"
        return replace(state, status=Status.NO_DESCENT, message=message)

    def _logged(self, state: SwitchingState, started: float, label: str) -> Any:
        assert state.value is not None
        assert state.phases is not None
        sizes = {"infeasibility": state.infeasibility, "iterations": 1, "slope": state.slope}
        return with_record(state, started, label, state.value.objective, state.phases.jumps, state.times, **sizes)

    def outcome(self, state: SwitchingState) -> tuple[Status | None, str]:
        """Return status and reason if a state is final, else None."""
        if state.status is not None:
            return state.status, state.message
        assert state.value is not None
        horizon = state.problem.horizon
        durations = np.diff([0.0, *state.times, horizon])
        # A phase at its bound does not move any more: the sequence has one collision too many.
        if state.times.size and durations.min() <= SHRUNK * self.shortest * horizon:
            return Status.NOT_AN_OPTIMUM, self._invalid(state)
        if state.slope <= self.tolerance and state.infeasibility <= FEASIBLE:
            reason = self._invalid(state)
            return (Status.NOT_AN_OPTIMUM, reason) if reason else (Status.SOLVED, "")
        return (Status.ITERATION_LIMIT, "") if len(state.records) >= self.max_iterations else (None, "")

    def _invalid(self, state: SwitchingState) -> str:
        # A guard that is not yet zero is seen as a penetration of the same size.
        tolerance = max(1e-6, 2 * state.infeasibility)
        shortest = self.shortest * state.problem.horizon
        return invalidity(state.problem, state.motion(), shortest=shortest, tolerance=tolerance)

    def result_of(self, state: SwitchingState) -> tuple[HybridMotion, int, float]:
        """Return the motion of a state, the number of descent steps, and the largest |psi(x-)|."""
        return state.motion(), state.iterations, state.infeasibility


def _check(problem: HybridProblem) -> None:
    """Refuse problems whose minimiser is discontinuous: the sensitivities of a phase need a continuous control."""
    curvature = ca.hessian(problem.running_cost, problem.u)[0]
    if problem.minimiser.kind != "quadratic" or not is_definite(curvature, problem.x):
        raise OptionError(
            f"{NAME}: the control that minimises the Hamiltonian has to be a continuous closed form: a flow that is "
            "affine in u and a stage cost that is quadratic in u with a positive curvature; use "
            "ns.MinimumPrinciple(...)."
        )
