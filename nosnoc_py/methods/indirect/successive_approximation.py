"""The method of successive approximations on equal steps: one pass of the paper's Algorithm 1 (HMP, Eqs. 17-30)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import groupby
from math import ceil

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.methods.indirect.forward import Collision, Forward, Rollout, Sweep, SweepFailure, motion_of, pieces
from nosnoc_py.methods.indirect.motion import Motion
from nosnoc_py.methods.indirect.problem import HybridProblem, with_cost
from nosnoc_py.motion.variations import saltation
from nosnoc_py.status import Status

Array = np.ndarray


class UniformGrid:
    """Forward and backward passes on N equal steps; built once per problem.

    Parameters
    ----------
    problem : HybridProblem
    steps : int
        N.
    search : float
        tau of Eq. 23: the jump of the control is looked for within tau T of a collision. 0 takes the controls next to
        the collision as they are, which does not converge.
    """

    def __init__(self, problem: HybridProblem, steps: int, search: float) -> None:
        self.problem, self.steps = problem, steps
        self.reach = ceil(search * steps)
        self.forward = Forward(problem, steps)
        self.dt = self.forward.dt
        self._target = problem.minimiser.mapped(steps)
        self._jumps = costate_jumps(problem)
        self._back: dict[int, Callable[..., list[Array]]] = {}

    def initial(self, guess: Callable[[float], Array]) -> Array:
        """The control (N, n_u) of a function of time: its values at the starts of the steps."""
        times = np.arange(self.steps) * self.dt
        return self.problem.controls.project(np.array([guess(t) for t in times]).reshape(self.steps, -1))

    def sweep(self, control: Array) -> Sweep:
        """State forward, costate backward, minimisers and H_u of a control (N, n_u).

        Raises
        ------
        SweepFailure
            For what `Forward` cannot integrate.
        """
        rollout = self.forward(control)
        costate = self.backward(rollout)
        x, after = rollout.x[:-1], costate[1:]
        target = self._target(x, after, control)
        slopes, costs = self._look(x, after, control)
        objective = float(self.problem.terminal(rollout.x[-1])[0][0, 0] + self.dt * costs.sum())
        if not np.isfinite(objective) or not np.isfinite(target).all():
            raise SweepFailure(Status.NUMERICAL_ERROR, "the objective or the costate is not finite")
        return Sweep(
            control=control,
            target=target,
            objective=objective,
            slope=float(np.sqrt(self.dt * (slopes**2).sum())),
            times=tuple(c.step * self.dt + c.s for c in rollout.collisions),
            jumps=tuple(c.jump for c in rollout.collisions),
            motion=lambda: self._motion(rollout, costate, objective),
        )

    def backward(self, rollout: Rollout) -> Array:
        """The costate (N + 1, n_x) at the nodes, from phi_x at the end (Eqs. 9, 21, 22); its first row is lambda_0."""
        costate = np.empty_like(rollout.x)
        costate[-1] = self.problem.terminal(rollout.x[-1])[1][:, 0]
        last = self.steps
        for step in sorted({c.step for c in rollout.collisions}, reverse=True):
            self._smooth(costate, rollout, step + 1, last)
            here = [c for c in rollout.collisions if c.step == step]
            costate[step] = self._through(costate[step + 1], rollout, here)[-1]
            last = step
        self._smooth(costate, rollout, 0, last)
        return costate

    def _smooth(self, costate: Array, rollout: Rollout, first: int, last: int) -> None:
        """Eq. 21 from node `last` down to `first`."""
        n = last
        for size in pieces(last - first):
            if size not in self._back:
                self._back[size] = buffered(self._step_back.mapaccum(f"back_{size}", size))
            rows = slice(n - size, n)
            found = self._back[size](costate[n], rollout.x[rows][::-1], rollout.u[rows][::-1], self.dt)[0]
            costate[rows] = found.T[::-1]
            n -= size

    def _through(self, costate: Array, rollout: Rollout, collisions: Sequence[Collision]) -> list[Array]:
        """Eq. 22 through the collisions of one step, last first: lambda after and before each, then at the node."""
        n = collisions[0].step
        before, after = self.limits(rollout.u, n)
        ends = [c.s for c in collisions[1:]] + [self.dt]
        found: list[Array] = []
        for collision, end in zip(reversed(collisions), reversed(ends), strict=True):
            costate = self._euler(costate, collision.x_after, after, end - collision.s)[0][:, 0]
            found.append(costate)
            jump = self._jumps[collision.jump]
            costate = jump(costate, collision.x_before, before, after)
            found.append(costate)
        found.append(self._euler(costate, rollout.x[n], rollout.u[n], collisions[0].s)[0][:, 0])
        return found

    def limits(self, u: Array, n: int) -> tuple[Array, Array]:
        """The control before and after a collision in step n: beside its steepest change nearby (Eqs. 23-24)."""
        last = len(u) - 1
        first, end = max(n - self.reach + 1, 0), min(n + self.reach - 1, last - 1)
        if end < first:
            return u[n], u[min(n + 1, last)]
        change = np.linalg.norm(np.diff(u[first : end + 2], axis=0), axis=1)
        steepest = first + int(np.argmax(change))
        return u[max(steepest - 1, 0)], u[min(steepest + 2, last)]

    @cached_property
    def _step_back(self) -> ca.Function:
        p, h = self.problem, ca.SX.sym("h")
        back = p.costate + h * ca.gradient(p.hamiltonian, p.x)
        return ca.Function("back", [p.costate, p.x, p.u, h], [ca.densify(back)])

    @cached_property
    def _euler(self) -> Callable[..., list[Array]]:
        return buffered(self._step_back)

    @cached_property
    def _look(self) -> Callable[..., list[Array]]:
        p = self.problem
        outputs = [p.minimiser.residual, p.running_cost]
        return buffered(ca.Function("look", [p.x, p.costate, p.u], outputs).map(self.steps))

    def _motion(self, rollout: Rollout, costate: Array, objective: float) -> Motion:
        """The phases of a rollout, with the limits of the costate at collisions."""
        limits: list[tuple[Array, Array]] = []
        for step, group in groupby(rollout.collisions, key=lambda collision: collision.step):
            *found, _ = self._through(costate[step + 1], rollout, list(group))
            limits += [(before, after) for after, before in zip(found[::2], found[1::2], strict=True)][::-1]
        return motion_of(self.forward, rollout, objective, costate, limits)


def costate_jumps(problem: HybridProblem) -> list[Callable[..., Array]]:
    """The function G of Eq. 14, one per jump: (lambda+, x-, u-, u+) -> lambda- (n_x,).

    It is the transpose of the saltation of state and running cost: lambda-' = lambda+' g_x + eta psi_x (Eq. 10), with
    eta from the variation of the time of the collision (Eq. 11).
    """
    extended = with_cost(problem)
    rate = buffered(ca.Function("rate", [extended.x, problem.u], [extended.flow]))

    def jump_of(crossing: Callable[..., list[Array]]) -> Callable[..., Array]:
        def jump(costate: Array, x: Array, before: Array, after: Array) -> Array:
            z = np.append(x, 0.0)
            reset, slope, _, (normal,) = crossing(z)
            event = saltation(normal, rate(z, before)[0][:, 0], rate(reset[:, 0], after)[0][:, 0], slope)
            return np.asarray(np.append(costate, 1.0) @ event.jump)[: x.size]

        return jump

    return [jump_of(crossing) for crossing in extended.crossings]
