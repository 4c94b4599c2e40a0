"""A controlled system whose optimal motion slides on a surface: motion along the edge of a current.

x' = u - s, y' = (3 + s) / 2 with s in sign(x): for x > 0 a current carries along y with speed 2 and pushes towards the
edge x = 0, for x < 0 with speed 1 and pushes towards the edge, too. On the edge |u| < 1 keeps the sliding mode, s = u:
the control chooses the speed along y through Filippov's convex combination.

minimise the integral of u^2 + w x^2 over [0, T], from x(0) = d > 0, y(0) = 0, so that y(T) = Y.

The optimum rides to the edge, meets it at t_1, and slides with the constant control
u_s = (2 Y - 3 T - t_1) / (T - t_1). For a fixed t_1 the first part is a linear-quadratic problem, x'' = w x, and the
cost is

    J(t_1) = t_1 - 2 d + r d^2 coth(r t_1) + u_s^2 (T - t_1),   r = sqrt(w),

whose minimum over t_1 is the optimum. It is global: the problem with s free in [-1, 1] and x(T) = 0 is convex, the
motion satisfies its optimality conditions (s = 1 while p_x > p_y / 2, singular on x = 0, u continuous at t_1), and a
motion that leaves the edge again pays u^2 > s^2 = 1 for what sliding has for s^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

import nosnoc_py as ns
from nosnoc_py.errors import ModelError

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Start d, goal Y, horizon T [s], weight w of x^2.

    Raises
    ------
    ModelError
        Unless all are positive.
    """

    start: float = 1.0
    goal: float = 3.1
    horizon: float = 2.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not min(self.start, self.goal, self.horizon, self.weight) > 0.0:
            raise ModelError(f"the ride along the edge needs positive constants; given {self}.")


STANDARD = Constants()


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Optimum in continuous time: arrival at the edge [s], control while sliding, cost."""

    arrival: float
    sliding_control: float
    cost: float
    constants: Constants

    def control(self, t: ArrayLike) -> Array:
        """Return u (n,) at times t [s]."""
        times, c = np.asarray(t, dtype=float), self.constants
        r, left = np.sqrt(c.weight), np.maximum(self.arrival - times, 0.0)
        riding = 1.0 - r * c.start * np.cosh(r * left) / np.sinh(r * self.arrival)
        return np.asarray(np.where(times < self.arrival, riding, self.sliding_control))

    def state(self, t: ArrayLike) -> Array:
        """Return the states (n, 2) at times t [s]."""
        times, c = np.atleast_1d(np.asarray(t, dtype=float)), self.constants
        r, left = np.sqrt(c.weight), np.maximum(self.arrival - times, 0.0)
        x = c.start * np.sinh(r * left) / np.sinh(r * self.arrival)
        slid = np.maximum(times - self.arrival, 0.0)
        return np.column_stack([x, 2.0 * np.minimum(times, self.arrival) + 0.5 * (3.0 + self.sliding_control) * slid])


def build() -> ns.PSS:
    """Return the system with states x, y, control u and a partition "edge"."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    edge = ns.Modes("edge", flows=[[1.0, 1.0], [-1.0, 2.0]], functions=x[0], signs=[[-1], [1]])
    return ns.PSS(x=x, u=u, flow=ca.vertcat(u, 0.0), modes=edge, names={"x": ["x", "y"], "u": ["u"]})


def problem(constants: Constants = STANDARD) -> ns.OCP:
    """Return the optimal control problem; |u| <= 3."""
    system, c = build(), constants
    return ns.OCP(
        system,
        horizon=c.horizon,
        x0=[c.start, 0.0],
        stage_cost=system.u**2 + c.weight * system.x[0] ** 2,
        terminal_constraints=[ns.Constraint(system.x[1] - c.goal, 0.0, 0.0, name="goal")],
        bounds=ns.Bounds(u=(-3.0, 3.0)),
    )


def optimum(constants: Constants = STANDARD) -> Optimum:
    """Return the optimum in continuous time.

    Raises
    ------
    ModelError
        If no motion that slides to the end is optimal: the goal is too close or too far.
    """
    c = constants

    def slope(arrival: float) -> float:
        """Return dJ/dt_1, up to a positive factor: the jump of u at the arrival."""
        return _sliding_control(arrival, c) - (1.0 - c.start * np.sqrt(c.weight) / np.sinh(np.sqrt(c.weight) * arrival))

    times = np.linspace(0.0, c.horizon, 2001)[1:-1]
    changes = [i for i in range(times.size - 1) if slope(times[i]) * slope(times[i + 1]) < 0.0]
    roots = [float(brentq(slope, times[i], times[i + 1], xtol=1e-15)) for i in changes]
    roots = [at for at in roots if abs(_sliding_control(at, c)) < 1.0]
    if not roots:
        raise ModelError(f"no optimal motion slides along the edge up to the end; move the goal: {c}.")
    best = min(roots, key=lambda at: _cost(at, c))
    return Optimum(arrival=best, sliding_control=_sliding_control(best, c), cost=_cost(best, c), constants=c)


def _sliding_control(arrival: float, c: Constants) -> float:
    return (2.0 * c.goal - 3.0 * c.horizon - arrival) / (c.horizon - arrival)


def _cost(arrival: float, c: Constants) -> float:
    r = float(np.sqrt(c.weight))
    slide = _sliding_control(arrival, c) ** 2 * (c.horizon - arrival)
    return float(arrival - 2.0 * c.start + r * c.start**2 / np.tanh(r * arrival) + slide)
