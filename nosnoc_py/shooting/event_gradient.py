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
from nosnoc_py.indirect.forward import Collision, Forward, Rollout, one_step
from nosnoc_py.indirect.problem import HybridProblem

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Shot:
    """What a control leads to.

    Attributes
    ----------
    objective : float
    gradient : (N, n_u)
        dJ/du_n.
    rollout : Rollout
    """

    objective: float
    gradient: Array
    rollout: Rollout


@dataclass(frozen=True, eq=False, kw_only=True)
class _Steps:
    """All N steps: costs, and derivatives (rows: by what) of the next state and of the cost."""

    cost: Array  # (N,)
    state: Array  # (N, n_x, n_x)
    control: Array  # (N, n_u, n_x)
    cost_state: Array  # (N, n_x)
    cost_control: Array  # (N, n_u)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Broken:
    """One step with collisions: its cost, and derivatives of state and cost by (x_n, u_n, control after)."""

    step: int
    cost: float
    state: Array  # (n_x + 2 n_u, n_x)
    cost_slope: Array  # (n_x + 2 n_u,)


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
        problem = forward.problem
        x, u, h = problem.x, problem.u, ca.SX.sym("h")
        piece = _piece(problem, forward.scheme)
        outputs = piece(x, u, h)
        jacobians = [ca.jacobian(out, by) for out in outputs for by in (x, u, h)]
        self._piece = buffered(ca.Function("piece", [x, u, h], [*outputs, *jacobians]))
        end, cost = piece(x, u, ca.SX(forward.dt))
        rows = [cost, *[ca.jacobian(out, by).T for out in (end, cost) for by in (x, u)]]
        self._steps = buffered(ca.Function("steps", [x, u], [ca.densify(row) for row in rows]).map(forward.steps))
        self._adjoint = buffered(_adjoint(problem.n_x).mapaccum("adjoint", forward.steps))
        slope = ca.gradient(problem.terminal_cost, x)
        self._terminal = buffered(ca.Function("terminal", [x], [problem.terminal_cost, slope]))
        self._normals = buffered(ca.Function("normals", [x], [ca.jacobian(problem.guards, x)]))
        self._resets = [buffered(ca.Function("reset", [x], [ca.jacobian(reset, x)])) for reset in problem.resets]

    def __call__(self, u: Array) -> Shot:
        """Integrate forward and back.

        Raises
        ------
        SweepFailure
            For what `Forward` cannot integrate.
        """
        rollout = self.forward(u)
        steps = self._smooth(rollout)
        groups = groupby(rollout.collisions, key=lambda collision: collision.step)
        broken = [self._through(steps, rollout, n, list(collisions)) for n, collisions in groups]
        n_x, n_u = self.forward.problem.n_x, self.forward.problem.n_u
        for b in broken:
            steps.cost[b.step], steps.cost_state[b.step], steps.cost_control[b.step] = b.cost, b.cost_slope[:n_x], 0.0
            steps.state[b.step], steps.control[b.step] = b.state[:n_x], 0.0
        terminal, slope = self._terminal(rollout.x[-1])
        costate = self._back(slope[:, 0], steps)
        gradient = steps.cost_control + np.einsum("nux,nx->nu", steps.control, costate)
        for b in broken:
            slopes = (b.state @ costate[b.step] + b.cost_slope)[n_x:]
            gradient[b.step] += slopes[:n_u]
            gradient[self._after(b.step)] += slopes[n_u:]
        return Shot(objective=float(terminal[0, 0] + steps.cost.sum()), gradient=gradient, rollout=rollout)

    def _smooth(self, rollout: Rollout) -> _Steps:
        """Every step as if it had no collision."""
        count = self.forward.steps
        cost, state, control, cost_state, cost_control = self._steps(rollout.x[:-1], rollout.u)
        return _Steps(
            cost=cost[0],
            state=state.reshape(len(state), count, -1).transpose(1, 0, 2),
            control=control.reshape(len(control), count, -1).transpose(1, 0, 2),
            cost_state=cost_state.T,
            cost_control=cost_control.T,
        )

    def _back(self, slope: Array, steps: _Steps) -> Array:
        """The adjoint at the ends of the steps (N, n_x), from phi_x."""
        columns = steps.state.transpose(0, 2, 1)[::-1].reshape(-1, slope.size)
        found = self._adjoint(slope, columns, steps.cost_state[::-1])[0]
        return np.vstack([found.T[::-1][1:], slope])

    def _after(self, n: int) -> int:
        """The interval whose control acts in step n after a collision."""
        return min(n + 1, self.forward.steps - 1) if self.forward.after == "next" else n

    def _through(self, steps: _Steps, rollout: Rollout, n: int, collisions: Sequence[Collision]) -> _Broken:
        """The derivatives of step n, from piece to piece: the length of each is a function of where it starts."""
        n_x, n_u = self.forward.problem.n_x, self.forward.problem.n_u
        x, u, after = rollout.x[n], rollout.u[n], rollout.u[self._after(n)]
        state = np.eye(n_x, n_x + 2 * n_u)
        by_u = np.eye(n_u, n_x + 2 * n_u, n_x)
        total, cost, begin, elapsed = 0.0, np.zeros(n_x + 2 * n_u), 0.0, np.zeros(n_x + 2 * n_u)
        for collision in collisions:
            _, here, *slopes = self._piece(x, u, collision.s - begin)
            normal = self._normals(collision.x_before)[0][collision.jump]
            end = slopes[0] @ state + slopes[1] @ by_u
            length = -(normal @ end) / (normal @ slopes[2][:, 0])
            total += float(here[0, 0])
            cost += (slopes[3] @ state + slopes[4] @ by_u)[0] + slopes[5][0, 0] * length
            state = self._resets[collision.jump](collision.x_before)[0] @ (end + np.outer(slopes[2], length))
            elapsed, begin = elapsed + length, collision.s
            x, u, by_u = collision.x_after, after, np.eye(n_u, n_x + 2 * n_u, n_x + n_u)
        _, here, *slopes = self._piece(x, u, self.forward.dt - begin)
        cost += (slopes[3] @ state + slopes[4] @ by_u)[0] - slopes[5][0, 0] * elapsed
        state = slopes[0] @ state + slopes[1] @ by_u - np.outer(slopes[2], elapsed)
        total += float(here[0, 0])
        if self.forward.scheme == "euler":  # Eq. 36 knows nothing of the collision
            total, cost = steps.cost[n], np.concatenate([steps.cost_state[n], steps.cost_control[n], np.zeros(n_u)])
        return _Broken(step=n, cost=total, state=state.T, cost_slope=cost)


def _piece(problem: HybridProblem, scheme: str) -> ca.Function:
    """(x, u, h) -> the state after h, and the running cost of it."""
    x, u, h, spent = problem.x, problem.u, ca.SX.sym("h"), ca.SX.sym("spent")
    both, rates = ca.vertcat(x, spent), ca.vertcat(problem.flow, problem.running_cost)
    flow = ca.Function("flow", [both, u], [rates])
    end = ca.substitute(one_step(flow, both, u, h, scheme), spent, ca.SX(0))
    return ca.Function("piece", [x, u, h], [end[:-1], end[-1]])


def _adjoint(n_x: int) -> ca.Function:
    costate, state, cost = ca.SX.sym("costate", n_x), ca.SX.sym("state", n_x, n_x), ca.SX.sym("cost", n_x)
    return ca.Function("adjoint", [costate, state, cost], [ca.mtimes(state, costate) + cost])
