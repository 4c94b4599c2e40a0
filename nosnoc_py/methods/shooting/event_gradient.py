"""Objective of a control on the event-detecting integrator, and its exact gradient (HMP, Eq. 36).

The gradient is exact for the discrete objective: a discrete adjoint runs backward through the steps. Within a step with
collisions, the derivative of the collision times follows from psi(x-) = 0 (saltation), and the parts of the step before
and after a collision depend on the control of their own intervals. Cost: one forward sweep with Jacobians of all steps,
one backward sweep.
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
class ShootingEvaluation:
    """Objective, gradient and motion of a control.

    Attributes
    ----------
    objective : float
    gradient : (N, n_u)
        dJ/du_n.
    rollout : StepMotion
        States and collisions.
    """

    objective: float
    gradient: Array
    rollout: StepMotion


class EventGradient:
    """Evaluation of J(u) and dJ/du for piecewise constant controls u (N, n_u) on the grid of a `Forward`; built once.

    With the Euler scheme the running cost is the sum of L(x_n, u_n) dt (HMP, Eq. 36); with RK4 it is an additional
    state, integrated from collision to collision.

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
        self._partial_step, self._steps = buffered(piece), buffered(piece.map(forward.steps))
        self._adjoint = buffered(_adjoint(problem.n_x).mapaccum("adjoint", forward.steps))

    def __call__(self, u: Array) -> ShootingEvaluation:
        """Integrate forward and backward.

        Raises
        ------
        SweepFailure
            If `Forward` fails.
        """
        rollout, count, n_x = self.forward(u), self.forward.steps, self.forward.problem.n_x
        starts = np.pad(rollout.x[:-1], ((0, 0), (0, 1)))  # the cost of each step starts at zero
        ends, jacobians = self._steps(starts, u, self.forward.dt)  # all steps at once, as if without collisions
        costs = ends[n_x]
        # Derivatives (n_x + 1, ...) of state and cost after a step by those before it and u_n; `by_next_control` holds
        # those by the control that acts after a collision.
        step_matrices = jacobians.reshape(n_x + 1, count, -1).transpose(1, 0, 2)[:, :, :-1].copy()
        by_next_control = np.zeros((count, n_x + 1, u.shape[1]))
        for n, collisions in groupby(rollout.collisions, key=lambda collision: collision.step):
            cost, gradient_end = self._through_collisions(rollout, n, list(collisions))
            if self.forward.scheme == "euler":  # the cost of HMP, Eq. 36 does not depend on the collision
                gradient_end[n_x] = np.append(step_matrices[n, n_x], np.zeros(u.shape[1]))
            else:
                costs[n] = cost
            step_matrices[n], by_next_control[n] = np.split(gradient_end, [step_matrices.shape[2]], axis=1)
        terminal, gradient_end, _ = self.forward.problem.terminal(rollout.x[-1])
        costates = self._back(np.append(gradient_end, 1.0), step_matrices[:, :, : n_x + 1])
        gradient = np.einsum("nij,ni->nj", step_matrices[:, :, n_x + 1 :], costates)
        np.add.at(gradient, self._interval_after(np.arange(count)), np.einsum("nij,ni->nj", by_next_control, costates))
        return ShootingEvaluation(objective=float(terminal[0, 0] + costs.sum()), gradient=gradient, rollout=rollout)

    def _back(self, costate: Array, steps: Array) -> Array:
        """Return the adjoint (N, n_x + 1) of state and cost at the ends of the steps, from the last one backward."""
        costates = self._adjoint(costate, steps[::-1].reshape(-1, costate.size))[0]
        return np.vstack([costates.T[::-1][1:], costate])

    def _interval_after(self, n: Array) -> Array:
        """Return the interval whose control acts in step n after a collision."""
        return np.minimum(n + 1, self.forward.steps - 1) if self.forward.after == "next" else n

    def _through_collisions(self, rollout: StepMotion, n: int, collisions: Sequence[Collision]) -> tuple[float, Array]:
        """Return the cost of step n with collisions, and the derivative (n_x + 1, n_x + 1 + 2 n_u) of state and cost.

        The derivative is by state and cost before the step, u_n, and the control after the collisions. It is
        accumulated part by part; the lengths of the parts depend on the start through the collision times
        (`event.delay`).
        """
        n_z, n_u, dt = self.forward.problem.n_x + 1, rollout.u.shape[1], self.forward.dt
        z, u, after = np.append(rollout.x[n], 0.0), rollout.u[n], self.forward.control_after(rollout.u, n)
        derivative = np.eye(n_z + n_u, n_z + 2 * n_u)  # rows: state and cost, then the acting control
        begin, elapsed = 0.0, np.zeros(n_z + 2 * n_u)
        for collision in collisions:
            end, jacobian = self._partial_step(z, u, collision.s - begin)
            _, reset, _, (normal,) = self.forward.problem.crossings[collision.jump](collision.x_before)
            end_derivative = jacobian[:, :-1] @ derivative
            reset = np.pad(reset, (0, 1))
            reset[-1, -1] = 1.0
            # With a zero field after the jump, `event.jump` gives the state at the collision itself, not at a fixed
            # time.
            event = saltation(np.append(normal, 0.0), jacobian[:, -1], np.zeros(n_z), reset)
            derivative = np.vstack([event.jump @ end_derivative, np.eye(n_u, n_z + 2 * n_u, n_z + n_u)])
            elapsed, begin, u = elapsed + event.delay @ end_derivative, collision.s, after
            z = np.append(collision.x_after, end[-1])
        end, jacobian = self._partial_step(z, u, dt - begin)
        return float(end[-1, 0]), jacobian[:, :-1] @ derivative - np.outer(jacobian[:, -1], elapsed)


def _adjoint(n_z: int) -> ca.Function:
    costate, step = ca.SX.sym("costate", n_z), ca.SX.sym("step", n_z, n_z)
    return ca.Function("adjoint", [costate, step], [ca.mtimes(step, costate)])
