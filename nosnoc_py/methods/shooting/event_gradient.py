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
        problem, h = forward.problem, ca.SX.sym("h")
        spent, arguments = ca.SX.sym("spent"), [problem.x, problem.u, h]
        both, rates = ca.vertcat(problem.x, spent), ca.vertcat(problem.flow, problem.running_cost)
        flow = ca.Function("flow", [both, problem.u], [rates])
        end = ca.substitute(one_step(flow, both, problem.u, h, forward.scheme), spent, ca.SX(0))
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
        ends, slopes = self._steps(rollout.x[:-1], u, self.forward.dt)  # every step as if it had no collision
        costs = ends[n_x]
        # derivatives (n_x + 1, ...) of state and cost after a step by (x_n, u_n), and by the control after a collision
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
        costates = self._back(slope[:, 0], steps[:, :, :n_x])
        gradient = np.einsum("nij,ni->nj", steps[:, :, n_x:], costates)
        np.add.at(gradient, self._after(np.arange(count)), np.einsum("nij,ni->nj", later, costates))
        return Shot(objective=float(terminal[0, 0] + costs.sum()), gradient=gradient, rollout=rollout)

    def _back(self, slope: Array, steps: Array) -> Array:
        """The adjoint at the ends of the steps and 1, that of the cost (N, n_x + 1), from phi_x."""
        n_x = slope.size
        columns = steps[::-1, :n_x].reshape(-1, n_x)
        found = self._adjoint(slope, columns, steps[::-1, n_x])[0]
        return np.column_stack([np.vstack([found.T[::-1][1:], slope]), np.ones(len(steps))])

    def _after(self, n: Array) -> Array:
        """The interval whose control acts in step n after a collision."""
        return np.minimum(n + 1, self.forward.steps - 1) if self.forward.after == "next" else n

    def _through(self, rollout: StepMotion, n: int, collisions: Sequence[Collision]) -> tuple[float, Array]:
        """The cost of step n, and the derivative (n_x + 1, n_x + 2 n_u) of state and cost by (x_n, u_n, control after).

        It goes from piece to piece: the length of each is a function of where it starts.
        """
        n_x, n_u = self.forward.problem.n_x, self.forward.problem.n_u
        x, u, after = rollout.x[n], rollout.u[n], self.forward.control_after(rollout.u, n)
        by = np.eye(n_x + n_u, n_x + 2 * n_u)  # of state and control
        cost, begin, cost_by, elapsed = 0.0, 0.0, np.zeros(n_x + 2 * n_u), np.zeros(n_x + 2 * n_u)
        for collision in collisions:
            here, slopes = self._piece(x, u, collision.s - begin)
            _, reset, _, (normal,) = self.forward.problem.crossings[collision.jump](collision.x_before)
            moved, rate = slopes[:, :-1] @ by, slopes[:, -1]
            length = -(normal @ moved[:n_x]) / (normal @ rate[:n_x])
            moved += np.outer(rate, length)
            cost, cost_by = cost + float(here[n_x, 0]), cost_by + moved[n_x]
            by = np.vstack([reset @ moved[:n_x], np.eye(n_u, n_x + 2 * n_u, n_x + n_u)])
            elapsed, begin, x, u = elapsed + length, collision.s, collision.x_after, after
        here, slopes = self._piece(x, u, self.forward.dt - begin)
        moved = slopes[:, :-1] @ by - np.outer(slopes[:, -1], elapsed)
        moved[n_x] += cost_by
        return cost + float(here[n_x, 0]), moved


def _adjoint(n_x: int) -> ca.Function:
    costate, state, cost = ca.SX.sym("costate", n_x), ca.SX.sym("state", n_x, n_x), ca.SX.sym("cost", n_x)
    return ca.Function("adjoint", [costate, state, cost], [ca.mtimes(state, costate) + cost])
