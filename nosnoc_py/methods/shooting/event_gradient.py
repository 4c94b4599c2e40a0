"""Objective of a control on the event-detecting integrator, and its exact gradient (HMP, Eq. 36).

The gradient is that of the numbers the integrator returns: a discrete adjoint goes back through the steps; through the
collisions of a step it goes with the derivative of their times, which follows from psi(x-) = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.methods.indirect.forward import Collision, Forward, StepMotion, one_step
from nosnoc_py.methods.indirect.problem import with_cost
from nosnoc_py.motion.variations import saltation

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Shot:
    """What a control leads to.

    Attributes
    ----------
    objective : float
    gradient : (N, n_u)
        dJ/du_n.
    rollout : StepMotion
    """

    objective: float
    gradient: Array
    rollout: StepMotion


class EventGradient:
    """J(u) and dJ/du for piecewise constant controls u (N, n_u) on the grid of a `Forward`; built once.

    With the Euler scheme the running cost is the sum of L(x_n, u_n) dt (Eq. 36); with RK4 it is integrated like the
    state, from collision to collision.

    Parameters
    ----------
    forward : Forward
    """

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        problem, h = with_cost(forward.problem), ca.SX.sym("h")
        flow = ca.Function("flow", [problem.x, problem.u], [problem.flow])
        end, arguments = one_step(flow, problem.x, problem.u, h, forward.scheme), [problem.x, problem.u, h]
        outputs = [ca.densify(end), ca.densify(ca.jacobian(end, ca.vertcat(*arguments)))]
        piece = ca.Function("piece", arguments, outputs)
        self._piece, self._steps = buffered(piece), buffered(piece.map(forward.steps))
        self._adjoint = buffered(_adjoint(problem.n_x).mapaccum("adjoint", forward.steps))

    def __call__(self, u: Array) -> Shot:
        """Integrate forward and back.

        Raises
        ------
        SweepFailure
            For what `Forward` cannot integrate.
        """
        rollout, count, n_x = self.forward(u), self.forward.steps, self.forward.problem.n_x
        starts = np.pad(rollout.x[:-1], ((0, 0), (0, 1)))  # the cost of every step begins with zero
        ends, slopes = self._steps(starts, u, self.forward.dt)  # every step as if it had no collision
        costs = ends[n_x]
        # derivatives (n_x + 1, ...) of state and cost after a step by those before, u_n, and the control behind a
        # collision
        steps = slopes.reshape(n_x + 1, count, -1).transpose(1, 0, 2)[:, :, :-1].copy()
        later = np.zeros((count, n_x + 1, u.shape[1]))
        for n, collisions in groupby(rollout.collisions, key=lambda collision: collision.step):
            cost, slope = self._through(rollout, n, list(collisions))
            if self.forward.scheme == "euler":  # Eq. 36 knows nothing of the collision
                slope[n_x] = np.append(steps[n, n_x], np.zeros(u.shape[1]))
            else:
                costs[n] = cost
            steps[n], later[n] = np.split(slope, [steps.shape[2]], axis=1)
        terminal, slope, _ = self.forward.problem.terminal(rollout.x[-1])
        costates = self._back(np.append(slope, 1.0), steps[:, :, : n_x + 1])
        gradient = np.einsum("nij,ni->nj", steps[:, :, n_x + 1 :], costates)
        np.add.at(gradient, self._after(np.arange(count)), np.einsum("nij,ni->nj", later, costates))
        return Shot(objective=float(terminal[0, 0] + costs.sum()), gradient=gradient, rollout=rollout)

    def _back(self, costate: Array, steps: Array) -> Array:
        """The adjoint of state and cost (N, n_x + 1) at the ends of the steps, from the last one."""
        found = self._adjoint(costate, steps[::-1].reshape(-1, costate.size))[0]
        return np.vstack([found.T[::-1][1:], costate])

    def _after(self, n: Array) -> Array:
        """The interval whose control acts in step n after a collision."""
        return np.minimum(n + 1, self.forward.steps - 1) if self.forward.after == "next" else n

    def _through(self, rollout: StepMotion, n: int, collisions: Sequence[Collision]) -> tuple[float, Array]:
        """The cost of step n, and the derivative (n_x + 1, n_x + 1 + 2 n_u) of state and cost.

        That is by state and cost before, u_n and the control behind the collisions. It goes from piece to piece: the
        length of each is a function of where it starts, and is told by the saltation to the collision itself.
        """
        n_z, n_u, dt = self.forward.problem.n_x + 1, rollout.u.shape[1], self.forward.dt
        z, u, after = np.append(rollout.x[n], 0.0), rollout.u[n], self.forward.control_after(rollout.u, n)
        by = np.eye(n_z + n_u, n_z + 2 * n_u)  # of state and cost, and of the control
        begin, elapsed = 0.0, np.zeros(n_z + 2 * n_u)
        for collision in collisions:
            here, slopes = self._piece(z, u, collision.s - begin)
            _, reset, _, (normal,) = self.forward.problem.crossings[collision.jump](collision.x_before)
            moved = slopes[:, :-1] @ by
            reset = np.pad(reset, (0, 1))
            reset[-1, -1] = 1.0
            event = saltation(np.append(normal, 0.0), slopes[:, -1], np.zeros(n_z), reset)
            by = np.vstack([event.jump @ moved, np.eye(n_u, n_z + 2 * n_u, n_z + n_u)])
            elapsed, begin, u = elapsed + event.delay @ moved, collision.s, after
            z = np.append(collision.x_after, here[-1])
        here, slopes = self._piece(z, u, dt - begin)
        return float(here[-1, 0]), slopes[:, :-1] @ by - np.outer(slopes[:, -1], elapsed)


def _adjoint(n_z: int) -> ca.Function:
    costate, step = ca.SX.sym("costate", n_z), ca.SX.sym("step", n_z, n_z)
    return ca.Function("adjoint", [costate, step], [ca.mtimes(step, costate)])
