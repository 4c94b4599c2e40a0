"""One pass of successive approximations on equal steps (HMP, Algorithm 1, Eqs. 17-30).

Forward Euler for the state, with located collisions (`forward`), then backward Euler steps for the costate with the
transposed saltation at collisions. The discrete control is smeared over a few steps next to a collision, so the limits
before and after it are taken beside the steepest change in a window of tau T (Eqs. 23, 24); using the adjacent controls
as they are does not converge. First order in the step, with an error that depends on the phase of the collision in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import groupby
from math import ceil

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.methods.indirect.forward import Forward, GridSweep, StepMotion, SweepFailure, chunk_sizes, motion_of
from nosnoc_py.methods.indirect.motion import HybridMotion
from nosnoc_py.methods.indirect.problem import HybridProblem, with_cost
from nosnoc_py.motion.variations import saltation
from nosnoc_py.status import Status

Array = np.ndarray
# Costates (before, after) of every collision.
CostateLimits = list[tuple[Array, Array]]


class UniformGrid:
    """Forward and backward passes on N equal steps; built once per problem.

    Parameters
    ----------
    problem : HybridProblem
    steps : int
        Number N of equal steps.
    search : float
        tau of Eq. 23: the jump of the control is searched within tau T of a collision. 0 takes the controls next to the
        collision, which does not converge.
    """

    def __init__(self, problem: HybridProblem, steps: int, search: float = 0.05) -> None:
        self.problem, self.steps = problem, steps
        # Rounded up, so that a window has at least one step unless `search` is 0.
        self.reach = ceil(search * steps)
        self.forward = Forward(problem, steps)
        self.dt = self.forward.dt
        self._target = problem.minimiser.mapped(steps)
        self._residual_and_cost = problem.along([problem.minimiser.residual, problem.running_cost], steps)
        self._jumps = costate_jumps(problem)
        h = ca.SX.sym("h")
        # Explicit in the costate: H is linear in it, and the step uses lambda_{n+1}.
        back = ca.densify(problem.costate + h * ca.gradient(problem.hamiltonian, problem.x))
        step = ca.Function("back", [problem.costate, problem.x, problem.u, h], [back])
        self._euler = buffered(step)
        self._backward_function = cache(lambda size: buffered(step.mapaccum("back", size)))

    def initial(self, guess: Callable[[float], Array]) -> Array:
        """Sample a function of time at the starts of the steps: (N, n_u)."""
        return self.problem.controls.project(self.forward.sampled_control(guess, 0.0))

    def sweep(self, control: Array) -> GridSweep:
        """Integrate state and costate, and return minimisers and H_u of a control (N, n_u).

        Raises
        ------
        SweepFailure
            If `Forward` fails, or the objective or the costate is not finite.
        """
        rollout = self.forward(control)
        costate, limits_at_jumps = self.backward(rollout)
        x, after = rollout.x[:-1], costate[1:]
        target = self._target(x, after, control)
        # The discrete Hamiltonian pairs x_n with lambda_{n+1} (HMP, Eq. 25).
        slopes, costs = self._residual_and_cost(x, after, control)
        objective = float(self.problem.terminal(rollout.x[-1])[0][0, 0] + self.dt * costs.sum())
        if not np.isfinite(objective) or not np.isfinite(target).all():
            raise SweepFailure(Status.NUMERICAL_ERROR, "the objective or the costate is not finite")
        return GridSweep(
            control=control,
            target=target,
            objective=objective,
            slope=float(np.sqrt(self.dt * (slopes**2).sum())),
            times=tuple(c.step * self.dt + c.s for c in rollout.collisions),
            jumps=tuple(c.jump for c in rollout.collisions),
            # Built on demand: most passes only need the next control.
            motion=lambda: self._motion(rollout, costate, limits_at_jumps, objective),
        )

    def backward(self, rollout: StepMotion) -> tuple[Array, CostateLimits]:
        """Return the costate (N + 1, n_x) at the nodes, and its limits before and after jumps.

        It starts from phi_x at the end (Eqs. 9, 21, 22); its first row is lambda_0.
        """
        costate, last = np.empty_like(rollout.x), self.steps
        limits_at_jumps: CostateLimits = []
        costate[-1] = self.problem.terminal(rollout.x[-1])[1][:, 0]
        for n, collisions in groupby(reversed(rollout.collisions), key=lambda collision: collision.step):
            self._backward_steps(costate, rollout, n + 1, last)
            value, end, (before, after) = costate[n + 1], self.dt, self.limits(rollout.u, n)
            # Collisions of a step in reverse order, with the control after a collision in each part of the step.
            for c in collisions:
                after_jump = self._euler(value, c.x_after, after, end - c.s)[0][:, 0]
                value = self._jumps[c.jump](after_jump, c.x_before, before, after)
                # Collisions are met backwards and listed forwards.
                limits_at_jumps.insert(0, (value, after_jump))
                end = c.s
            # The part of the step before its first collision, with the control of the step itself.
            costate[n] = self._euler(value, rollout.x[n], rollout.u[n], end)[0][:, 0]
            last = n
        self._backward_steps(costate, rollout, 0, last)
        return costate, limits_at_jumps

    def _backward_steps(self, costate: Array, rollout: StepMotion, first: int, last: int) -> None:
        """Apply Eq. 21 from node `last` down to `first`."""
        n = last
        for size in chunk_sizes(last - first):
            rows = slice(n - size, n)
            costates = self._backward_function(size)(costate[n], rollout.x[rows][::-1], rollout.u[rows][::-1], self.dt)[
                0
            ]
            costate[rows] = costates.T[::-1]
            n -= size

    def limits(self, u: Array, n: int) -> tuple[Array, Array]:
        """Return the controls before and after a collision in step n, beside the steepest change (Eqs. 23-24)."""
        last = len(u) - 1
        # Window [n - tau N + 1, n + tau N - 1], clipped to the grid.
        first, end = max(n - self.reach + 1, 0), min(n + self.reach - 1, last - 1)
        if end < first:
            return u[n], u[min(n + 1, last)]
        jumps = np.linalg.norm(np.diff(u[first : end + 2], axis=0), axis=1)
        steepest = first + int(np.argmax(jumps))
        return u[max(steepest - 1, 0)], u[min(steepest + 2, last)]

    def _motion(
        self, rollout: StepMotion, costate: Array, limits_at_jumps: CostateLimits, objective: float
    ) -> HybridMotion:
        """Return the phases of a rollout with costates, including their limits at collisions."""
        jumps = tuple(
            replace(c, x_before=np.append(c.x_before, before), x_after=np.append(c.x_after, after))
            for c, (before, after) in zip(rollout.collisions, limits_at_jumps, strict=True)
        )
        with_costates = StepMotion(x=np.hstack([rollout.x, costate]), u=rollout.u, collisions=jumps)
        return motion_of(self.forward, with_costates, objective)


def costate_jumps(problem: HybridProblem) -> list[Callable[..., Array]]:
    """Return the costate jumps G (HMP, Eq. 14), one per jump: (lambda+, x-, u-, u+) -> lambda- (n_x,).

    G is the transposed saltation matrix of state and running cost: lambda-' = lambda+' g_x + eta psi_x (Eq. 10), where
    eta accounts for the variation of the collision time (Eq. 11). The cost has to be a state here: without the term
    L- - L+ the iteration still converges smoothly, but to a wrong control.
    """
    extended = with_cost(problem)
    rate = buffered(ca.Function("rate", [extended.x, problem.u], [extended.flow]))

    def jump_of(crossing: Callable[..., list[Array]]) -> Callable[..., Array]:
        def jump(costate: Array, x: Array, before: Array, after: Array) -> Array:
            z = np.append(x, 0.0)
            reset, slope, _, (normal,) = crossing(z)
            event = saltation(normal, rate(z, before)[0][:, 0], rate(reset[:, 0], after)[0][:, 0], slope)
            # The costate of the accumulated cost is 1 everywhere.
            return np.asarray(np.append(costate, 1.0) @ event.jump)[: x.size]

        return jump

    return [jump_of(crossing) for crossing in extended.crossings]
