"""The hybrid minimum principle, solved by the relaxed method of successive approximations (HMP, Algorithm 1)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from nosnoc_py.methods.indirect.anderson import Memory, advance
from nosnoc_py.methods.indirect.forward import GridSweep, SweepFailure
from nosnoc_py.methods.indirect.iteration import Iteration, IterationState, nothing_but_the_start, recorded
from nosnoc_py.methods.indirect.motion import HybridMotion
from nosnoc_py.methods.indirect.moving_grid import MovingGrid
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.methods.indirect.successive_approximation import UniformGrid
from nosnoc_py.methods.indirect.validity import branch_missed
from nosnoc_py.ocp import OCP
from nosnoc_py.status import Status
from nosnoc_py.systems.controls import control_of_guess

if TYPE_CHECKING:
    from nosnoc_py.methods.indirect.boundary_value import Polish

Array = np.ndarray

LABEL = "minimum principle"
# Shorter and shorter steps in place of one that fails, before giving up.
MOST_RETRIES = 6
# Relaxed steps with one sequence of collisions before the first accelerated one: far from a fixed point, extrapolation
# easily leads to controls that collide otherwise.
DELAY = 20
# Iterations between two refinements.
REFINE_AFTER = 80
# |H_u| that falls less than this in a third of the iterations has stopped falling.
STALLED = 0.9
OSCILLATES = "the iteration oscillates, H_u no longer falls: a smaller relaxation, or grid='moving'"


class MinimumPrinciple(Iteration):
    """Solve the hybrid minimum principle: relaxed successive approximations, and Newton's method for the last digits.

    For isolated collisions of a frictionless `CLS` with restitution, or a `HybridSystem`, with bounds on controls only.
    The number of collisions need not be known: iterates gain and lose them. The start has to collide.

    Parameters
    ----------
    steps : int
        N equal steps of forward Euler (grid "uniform"), of first order.
    relaxation : float
        alpha in (0, 1]: u <- (1 - alpha) u + alpha u_* (Eq. 16). Too large a step loses the collision.
    grid : {"uniform", "moving"}
        "uniform" is Algorithm 1. "moving" holds one control per phase between collisions, which are located exactly:
        no search, higher order, and fast with `acceleration`.
    control_nodes : int
        Legendre nodes of the control per phase of the moving grid.
    acceleration : int
        Depth of Anderson's acceleration of the iteration; 0 is the plain one.
    tolerance : float
        Success: the L2 norm of H_u (Eq. 30) is below it; with bounds, that of the distance to the minimiser.
    max_iterations : int
    refine : bool
        Solve the multi-point boundary value problem by Newton's method from an iterate (machine precision), with
        checks of its validity; tried every 80 iterations.
    time_limit : float, optional
        Seconds.
    """

    steps: int = Field(default=480, ge=2)
    relaxation: float = Field(default=0.01, gt=0, le=1)
    grid: Literal["uniform", "moving"] = "uniform"
    control_nodes: int = Field(default=6, ge=1)
    acceleration: int = Field(default=0, ge=0)
    tolerance: float = Field(default=1e-6, gt=0)
    max_iterations: int = Field(default=3000, ge=0)
    refine: bool = False

    def init(self, ocp: OCP | HybridProblem, guess: Any = None) -> MinimumPrincipleState:
        """The state before the first pass."""
        problem = ocp if isinstance(ocp, HybridProblem) else hybrid_problem(ocp, "MinimumPrinciple")
        moving = self.grid == "moving"
        grid = MovingGrid(problem, self.control_nodes) if moving else UniformGrid(problem, self.steps)
        control = grid.initial(control_of_guess(problem.ocp, guess))
        return MinimumPrincipleState(
            problem=problem, grid=grid, control=control, memory=Memory(depth=self.acceleration, delay=DELAY)
        )

    def step(self, state: MinimumPrincipleState, deadline: float = np.inf) -> MinimumPrincipleState:
        """One pass, or one refinement when it is due; whatever fails is a status of the state."""
        started = time.monotonic()
        if self._refinement_due(state):
            from nosnoc_py.methods.indirect.boundary_value import (
                polish,  # SciPy is slow to import, and needed here only
            )

            assert state.sweep is not None
            found = polish(state.problem, state.sweep.motion())
            tried = replace(state, polish=found, refined_at=state.iterations)
            return self._recorded(tried, started, "refinement", found.iterations)
        try:
            sweep = state.grid.sweep(state.control)
        except SweepFailure as failure:
            return self._failed(state, None, failure.status, failure.message)
        if not sweep.jumps:
            when = "the initial control leads" if state.sweep is None else "the last update leads"
            return self._failed(state, sweep, Status.COLLISION_LOST, f"{when} to no collision")
        control, memory = advance(state.memory, sweep.control, sweep.target, self.relaxation, key=sweep.jumps)
        if self.grid == "uniform":
            control = state.problem.controls.project(control)
        passed = replace(state, sweep=sweep, control=control, memory=memory, iterations=state.iterations + 1, retries=0)
        return self._recorded(passed, started, LABEL, 1)

    def _failed(
        self, state: MinimumPrincipleState, sweep: GridSweep | None, status: Status, message: str
    ) -> MinimumPrincipleState:
        """A relaxed step from the last pass in place of the one that failed, ever shorter; in the end a status.

        The plain iteration on equal steps is left as the paper has it, and ends at once.
        """
        last, plain = state.sweep, self.acceleration == 0
        if last is None or (plain and self.grid == "uniform") or state.retries == MOST_RETRIES:
            return replace(state, sweep=last or sweep, status=status, message=message)
        part = self.relaxation * 0.5 ** (state.retries + plain)
        memory = Memory(depth=self.acceleration, delay=DELAY)
        control = last.control + part * (last.target - last.control)
        return replace(state, control=control, memory=memory, retries=state.retries + 1)

    def judged(self, state: MinimumPrincipleState) -> tuple[Status | None, str]:
        """Converged, at the limit of iterations, or lost, and what a refinement that failed has to say."""
        found = state.polish
        if state.status is not None:
            return state.status, state.message
        if found is not None and found.motion is not None:
            return Status.SOLVED, ""
        if self._refinement_due(state):
            return None, ""
        said = "" if found is None else f"refinement: {found.reason}"
        if state.sweep is not None and state.sweep.slope < self.tolerance:
            return self._converged(state) if found is None else (found.status, said)
        if state.iterations < self.max_iterations:
            return None, ""
        oscillates = "" if not self._oscillates(state) else OSCILLATES
        return Status.ITERATION_LIMIT, "; ".join(filter(None, (oscillates, said)))

    def _converged(self, state: MinimumPrincipleState) -> tuple[Status, str]:
        """Solved, unless Newton's method for the minimiser, which is local, followed the wrong branch."""
        assert state.sweep is not None
        missed = None
        if state.problem.minimiser.kind == "numeric":
            missed = branch_missed(state.problem, state.sweep.motion())
        return (Status.SOLVED, "") if missed is None else (Status.NOT_AN_OPTIMUM, missed)

    def _oscillates(self, state: MinimumPrincipleState) -> bool:
        """Whether |H_u| on equal steps has stopped falling, though the relaxation leaves time enough."""
        slopes = [record.slope for record in state.records if record.label == LABEL and record.slope is not None]
        third = len(slopes) // 3
        if self.grid != "uniform" or third * self.relaxation < 1.5:
            return False
        return bool(np.median(slopes[-third:]) > STALLED * np.median(slopes[-2 * third : -third]))

    def found(self, state: MinimumPrincipleState) -> tuple[HybridMotion, int, float]:
        """The motion that a state stands for, passes and steps of Newton's method so far, and the latter's residual."""
        polished = state.polish
        iterations = state.iterations + (0 if polished is None else polished.iterations)
        if polished is not None and polished.motion is not None:
            return polished.motion, iterations, polished.residual
        motion = nothing_but_the_start(state.problem) if state.sweep is None else state.sweep.motion()
        return motion, iterations, 0.0

    def _refinement_due(self, state: MinimumPrincipleState) -> bool:
        sweep = state.sweep
        if not self.refine or sweep is None or state.refined_at == state.iterations:
            return False
        ended = sweep.slope < self.tolerance or state.iterations >= self.max_iterations
        return ended or state.iterations % REFINE_AFTER == 0

    def _recorded(self, state: MinimumPrincipleState, started: float, label: str, count: int) -> Any:
        sweep, found = state.sweep, state.polish if label != LABEL else None
        assert sweep is not None
        more: dict[str, Any] = {"iterations": count}
        if found is not None:
            more |= {"infeasibility": found.residual, "solver_status": found.reason}
        if found is not None and found.motion is not None:
            best = found.motion
            return recorded(state, started, label, best.objective, best.jumps, best.times, **more)
        return recorded(state, started, label, sweep.objective, sweep.jumps, sweep.times, **more, slope=sweep.slope)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MinimumPrincipleState(IterationState):
    """Where the iteration stands.

    Attributes
    ----------
    grid : UniformGrid or MovingGrid
    control : ndarray
        Of the next pass.
    sweep : GridSweep, optional
        The last pass.
    memory : Memory
        Earlier iterates, for the acceleration.
    polish : Polish, optional
        The last refinement.
    retries : int
        Shorter steps since the last pass that succeeded.
    """

    grid: UniformGrid | MovingGrid
    control: Array
    sweep: GridSweep | None = None
    memory: Memory = field(default_factory=Memory)
    polish: Polish | None = None
    refined_at: int = -1
    retries: int = 0
