"""Hybrid minimum principle, solved by relaxed successive approximations (HMP, Algorithm 1).

HMP: Hu, Long, Zang, E, Han, "Solving optimal control problems of rigid-body dynamics with collisions using the hybrid
minimum principle". One iteration of the method of successive approximations (Chernousko and Lyubushin 1982):

1. Integrate the state forward under u with located collisions (Eqs. 17-20).
2. Integrate the costate backward, with jumps at collisions that account for the variation of the collision time
   (Eqs. 9-11, 14, 21, 22).
3. u_* = argmin H at every node (Eq. 25), and relax: u <- (1 - alpha) u + alpha u_* (Eq. 16).

Optional improvements of this library: a grid that moves with the collisions, Anderson acceleration, and Newton's method
on the boundary-value problem for machine precision. A step that loses all collisions, or fails, is retried shorter.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from nosnoc_py.methods.indirect.anderson import AndersonMemory, advance
from nosnoc_py.methods.indirect.forward import GridSweep, SweepFailure
from nosnoc_py.methods.indirect.iteration import Iteration, IterationState, initial_state_only, with_record
from nosnoc_py.methods.indirect.motion import HybridMotion
from nosnoc_py.methods.indirect.moving_grid import MovingGrid
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.methods.indirect.successive_approximation import UniformGrid
from nosnoc_py.methods.indirect.validity import branch_missed
from nosnoc_py.ocp import OCP
from nosnoc_py.status import Status
from nosnoc_py.systems.controls import control_of_guess

if TYPE_CHECKING:
    from nosnoc_py.methods.indirect.boundary_value import BoundaryValueResult

Array = np.ndarray

LABEL = "minimum principle"
# Number of successively halved steps tried in place of one that fails.
MAX_RETRIES = 6
# Relaxed steps with the same sequence of collisions before the first accelerated one: far from the fixed point,
# extrapolation may change the sequence.
ACCELERATION_DELAY = 20
# Number of iterations between two refinements by Newton's method: about what it needs for a good start.
REFINE_AFTER = 80
# |H_u| has stalled if its median over a third of the iterations falls by less than this factor.
STALL_RATIO = 0.9
OSCILLATION_MESSAGE = "the iteration oscillates, H_u no longer falls: a smaller relaxation, or grid='moving'"


class MinimumPrinciple(Iteration):
    """Solve the hybrid minimum principle by relaxed successive approximations (HMP, Algorithm 1).

    For isolated collisions of a frictionless `CLS` with restitution, or a `HybridSystem`, with bounds on controls only.
    The number of collisions need not be known, since iterates gain and lose them; the motion of the initial control has
    to collide. Costates are in `solution.series`.

    Parameters
    ----------
    steps : int
        Number N of equal forward Euler steps (grid "uniform"), a scheme of first order.
    relaxation : float
        alpha in (0, 1]: u <- (1 - alpha) u + alpha u_* (HMP, Eq. 16). Too large a step loses the collision.
    grid : {"uniform", "moving"}
        "uniform" is Algorithm 1 of the paper. "moving" has one control polynomial per phase between collisions, whose
        times are located exactly: higher order, and fast with `acceleration`.
    control_nodes : int
        Number of Legendre nodes of the control in each phase of the moving grid.
    acceleration : int
        Depth of Anderson's acceleration; 0 is the plain iteration.
    tolerance : float
        Largest L2 norm of H_u (HMP, Eq. 30) of a solution; with bounds, norm of u - P(u - H_u).
    max_iterations : int
        Maximal number of passes.
    refine : bool
        If True, every 80 iterations solve the multi-point boundary-value problem from the iterate by Newton's method
        (machine precision) and accept a valid solution.
    time_limit : float, optional
        Seconds.

    Raises
    ------
    OptionError, ModelError
        By `nosnoc_py.solve`, for friction, inelastic contacts, constraints on states, free times or parameters, or a
        Hamiltonian that is unbounded in u; the message names a method that fits.

    References
    ----------
    Hu, Long, Zang, E and Han, "Solving optimal control problems of rigid-body dynamics with collisions using the hybrid
    minimum principle" (HMP). Necessary conditions: Eqs. 8-12; algorithm: Eqs. 16-30.

    Examples
    --------
    A unit mass bounces elastically off a wall and shall end at q = 1; the exact optimal cost is 3 / 52.

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> mass = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=q, restitution=1)])
    >>> ocp = ns.OCP(mass, horizon=1.0, x0=[0.5, -1], stage_cost=0.1 * u**2, terminal_cost=(q - 1) ** 2)
    >>> method = ns.MinimumPrinciple(relaxation=0.2, grid="moving", acceleration=5)
    >>> solution = ns.solve(ocp, method, certify=False)
    >>> solution.success, round(solution.objective, 6), [event.name for event in solution.events]
    (True, 0.057692, ['wall'])
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
        """Return the state before the first pass."""
        problem = ocp if isinstance(ocp, HybridProblem) else hybrid_problem(ocp, "MinimumPrinciple")
        moving = self.grid == "moving"
        grid = MovingGrid(problem, self.control_nodes) if moving else UniformGrid(problem, self.steps)
        control = grid.initial(control_of_guess(problem.ocp, guess))
        return MinimumPrincipleState(
            problem=problem,
            grid=grid,
            control=control,
            memory=AndersonMemory(depth=self.acceleration, delay=ACCELERATION_DELAY),
        )

    def step(self, state: MinimumPrincipleState, deadline: float = np.inf) -> MinimumPrincipleState:
        """Take one pass, or one refinement if due; failures become a status of the state."""
        started = time.monotonic()
        if self._refinement_due(state):
            from nosnoc_py.methods.indirect.boundary_value import (
                polish,  # SciPy is slow to import, and needed here only
            )

            assert state.sweep is not None
            result = polish(state.problem, state.sweep.motion())
            refined = replace(state, polish=result, refined_at=state.iterations)
            return self._logged(refined, started, "refinement", result.iterations)
        try:
            sweep = state.grid.sweep(state.control)
        except SweepFailure as failure:
            return self._retry(state, None, failure.status, failure.message)
        # Without a collision the costate cannot pull the control back to one; u = 0 is then a stationary point.
        if not sweep.jumps:
            when = "the initial control leads" if state.sweep is None else "the last update leads"
            return self._retry(state, sweep, Status.COLLISION_LOST, f"{when} to no collision")
        # Relaxed step (HMP, Eq. 16), accelerated if `acceleration` > 0.
        control, memory = advance(state.memory, sweep.control, sweep.target, self.relaxation, key=sweep.jumps)
        if self.grid == "uniform":
            # Extrapolation by Anderson may leave the control set; on the moving grid the sweep projects.
            control = state.problem.controls.project(control)
        advanced = replace(
            state, sweep=sweep, control=control, memory=memory, iterations=state.iterations + 1, retries=0
        )
        return self._logged(advanced, started, LABEL, 1)

    def _retry(
        self, state: MinimumPrincipleState, sweep: GridSweep | None, status: Status, message: str
    ) -> MinimumPrincipleState:
        """Replace a failed pass by a shorter relaxed step from the last one; after MAX_RETRIES return a status.

        The plain iteration on equal steps is kept as in the paper and ends at once.
        """
        last, plain = state.sweep, self.acceleration == 0
        if last is None or (plain and self.grid == "uniform") or state.retries == MAX_RETRIES:
            return replace(state, sweep=last or sweep, status=status, message=message)
        # Restart from the last good pass without the history, which may have caused the failure.
        # Without acceleration the step that failed was this one already: halved at once.
        fraction = self.relaxation * 0.5 ** (state.retries + plain)
        memory = AndersonMemory(depth=self.acceleration, delay=ACCELERATION_DELAY)
        control = last.control + fraction * (last.target - last.control)
        return replace(state, control=control, memory=memory, retries=state.retries + 1)

    def outcome(self, state: MinimumPrincipleState) -> tuple[Status | None, str]:
        """Return (status, message) of a final state, with the note of a failed refinement; (None, "") otherwise."""
        refinement = state.polish
        if state.status is not None:
            return state.status, state.message
        if refinement is not None and refinement.motion is not None:
            return Status.SOLVED, ""
        if self._refinement_due(state):
            return None, ""
        note = "" if refinement is None else f"refinement: {refinement.reason}"
        if state.sweep is not None and state.sweep.slope < self.tolerance:
            return self._converged(state) if refinement is None else (refinement.status, note)
        if state.iterations < self.max_iterations:
            return None, ""
        oscillates = "" if not self._oscillates(state) else OSCILLATION_MESSAGE
        return Status.ITERATION_LIMIT, "; ".join(filter(None, (oscillates, note)))

    def _converged(self, state: MinimumPrincipleState) -> tuple[Status, str]:
        """Return SOLVED unless the local numeric minimiser followed a branch that is not the global minimum."""
        assert state.sweep is not None
        missed = None
        if state.problem.minimiser.kind == "numeric":
            missed = branch_missed(state.problem, state.sweep.motion())
        return (Status.SOLVED, "") if missed is None else (Status.NOT_AN_OPTIMUM, missed)

    def _oscillates(self, state: MinimumPrincipleState) -> bool:
        """True if |H_u| on equal steps has stalled although the relaxation allows convergence."""
        slopes = [record.slope for record in state.records if record.label == LABEL and record.slope is not None]
        third = len(slopes) // 3
        # With relaxation alpha the error decays like (1 - alpha)^k, so wait for about 1.5 / alpha iterations.
        if self.grid != "uniform" or third * self.relaxation < 1.5:
            return False
        return bool(np.median(slopes[-third:]) > STALL_RATIO * np.median(slopes[-2 * third : -third]))

    def result_of(self, state: MinimumPrincipleState) -> tuple[HybridMotion, int, float]:
        """Return the motion of a state, passes plus Newton steps so far, and the residual of the refinement."""
        polished = state.polish
        iterations = state.iterations + (0 if polished is None else polished.iterations)
        if polished is not None and polished.motion is not None:
            return polished.motion, iterations, polished.residual
        motion = initial_state_only(state.problem) if state.sweep is None else state.sweep.motion()
        return motion, iterations, 0.0

    def _refinement_due(self, state: MinimumPrincipleState) -> bool:
        sweep = state.sweep
        if not self.refine or sweep is None or state.refined_at == state.iterations:
            return False
        # Also at the end: a converged or exhausted iteration is refined once.
        finished = sweep.slope < self.tolerance or state.iterations >= self.max_iterations
        return finished or state.iterations % REFINE_AFTER == 0

    def _logged(self, state: MinimumPrincipleState, started: float, label: str, count: int) -> Any:
        sweep, refinement = state.sweep, state.polish if label != LABEL else None
        assert sweep is not None
        fields: dict[str, Any] = {"iterations": count}
        if refinement is not None:
            fields |= {"infeasibility": refinement.residual, "solver_status": refinement.reason}
        if refinement is not None and refinement.motion is not None:
            motion = refinement.motion
            return with_record(state, started, label, motion.objective, motion.jumps, motion.times, **fields)
        return with_record(
            state, started, label, sweep.objective, sweep.jumps, sweep.times, **fields, slope=sweep.slope
        )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MinimumPrincipleState(IterationState):
    """State of the iteration of `MinimumPrinciple`.

    Attributes
    ----------
    grid : UniformGrid or MovingGrid
    control : ndarray
        Control of the next pass.
    sweep : GridSweep, optional
        Result of the last pass.
    memory : AndersonMemory
        Earlier iterates of the acceleration.
    polish : BoundaryValueResult, optional
        Result of the last refinement.
    retries : int
        Number of shortened steps since the last successful pass.
    refined_at : int
        Iteration of the last refinement.
    """

    grid: UniformGrid | MovingGrid
    control: Array
    sweep: GridSweep | None = None
    memory: AndersonMemory = field(default_factory=AndersonMemory)
    polish: BoundaryValueResult | None = None
    refined_at: int = -1
    retries: int = 0
