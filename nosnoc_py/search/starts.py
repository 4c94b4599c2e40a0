"""Starts of different kinds: each is a control, from which a motion follows by simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.ocp import OCP
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import PiecewiseConstant

Array = np.ndarray
# Knots of random controls, and their size as shares of the bounds (of the forces at work, where there are none).
KNOTS, SIZES = (1, 2, 3, 5), (0.1, 0.3, 1.0)
# Intervals of the controls that starts are made of.
PIECES = 40


@dataclass(frozen=True, eq=False, kw_only=True)
class StartTask:
    """A problem with what its starts are made of.

    Attributes
    ----------
    ocp : OCP
    x0 : (n_x,)
        Where motions begin, also where x(0) is free.
    lower, upper : (n_u,)
        Finite: where the OCP has no bounds, a multiple of what holds the system still.
    rest : (n_u,)
        A control that leaves as little force as possible at x0.
    """

    ocp: OCP
    x0: Array
    lower: Array
    upper: Array
    rest: Array

    @classmethod
    def of(cls, ocp: OCP, x0: Array) -> StartTask:
        """Look at the forces where the motion begins."""
        low, high = (np.array(bound, float) for bound in ocp.u_bounds)
        rest, size = _balance(ocp, x0)
        rest = np.clip(rest, low, high)
        reach = 3.0 * np.maximum(np.maximum(np.abs(rest), size), ocp.system.u_nominal)
        lower = np.where(np.isfinite(low), low, np.minimum(rest, high) - reach)
        upper = np.where(np.isfinite(high), high, np.maximum(rest, lower) + reach)
        return cls(ocp=ocp, x0=x0, lower=lower, upper=upper, rest=np.clip(rest, lower, upper))

    def control(self, values: Array) -> PiecewiseConstant:
        """The control through rows (m, n_u) at equally spaced times, joined by straight lines and cut at the bounds."""
        t = (np.arange(PIECES) + 0.5) / PIECES
        knots = np.linspace(0.0, 1.0, len(values)) if len(values) > 1 else np.zeros(1)
        rows = (
            np.column_stack([np.interp(t, knots, column) for column in values.T])
            if self.lower.size
            else np.zeros((PIECES, 0))
        )
        return PiecewiseConstant(
            np.linspace(0.0, float(self.ocp.horizon), PIECES + 1), np.clip(rows, self.lower, self.upper)
        )


def _balance(ocp: OCP, x0: Array) -> tuple[Array, Array]:
    """The control that leaves the least force (flow) at x0, and its size that changes the motion as the rest does."""
    s = ocp.system
    force = s.force if isinstance(s, CLS) else s.flow
    at = ca.Function("force", [s.x, s.u, s.p], [force, ca.jacobian(force, s.u)])
    value, slope = (np.array(part) for part in at(x0, np.zeros(s.n_u), ocp.p))
    if not (np.isfinite(value).all() and np.isfinite(slope).all()):
        return np.zeros(s.n_u), np.zeros(s.n_u)
    rest = -np.linalg.lstsq(slope, value[:, 0], rcond=1e-10)[0] if slope.size else np.zeros(s.n_u)
    strongest = np.abs(value).max(initial=0.0)
    gains = np.abs(slope).max(axis=0, initial=0.0)
    return rest, np.where(gains > 0.0, strongest / np.where(gains > 0.0, gains, 1.0), 0.0)


def constant(task: StartTask, rng: np.random.Generator) -> Iterator[Any]:
    """Nothing, and what holds the system still."""
    yield task.control(np.clip(np.zeros((1, task.rest.size)), task.lower, task.upper))
    yield task.control(task.rest[None])


def random(task: StartTask, rng: np.random.Generator) -> Iterator[Any]:
    """Random knots joined by straight lines, around zero or around what holds the system still."""
    half = 0.5 * (task.upper - task.lower)
    while True:
        knots, size = int(rng.choice(KNOTS)), float(rng.choice(SIZES))
        centre = task.rest if rng.random() < 0.5 else np.clip(0.0, task.lower, task.upper)
        yield task.control(centre + size * half * rng.uniform(-1.0, 1.0, (knots, half.size)))


def line(task: StartTask, rng: np.random.Generator) -> Iterator[Any]:
    """Computed torque: the forces of a smooth way to the goal in configuration space, as far as the controls have them.

    The goal is what the terminal constraints and costs ask of the positions: the nearest state that satisfies them.
    """
    ocp, s = task.ocp, task.ocp.system
    if not isinstance(s, CLS) or not s.n_u:
        return
    end = goal(ocp, task.x0)
    if end is None:
        return
    n_q, T = s.n_q, float(ocp.horizon)
    force = ca.Function("force", [s.x, s.u, s.p], [s.mass_matrix, s.force, ca.jacobian(s.force, s.u)])
    for lift in (0.0, 0.5, -0.5):
        times, rows = (np.arange(PIECES) + 0.5) / PIECES * T, []
        for t in times:
            q, v, a = _way(task.x0, end, n_q, t, T)
            bump, rate, bend = _bump(t, T)
            way = end[:n_q] - task.x0[:n_q]
            side = lift * np.abs(way).max(initial=0.0) * np.ones(n_q)
            mass, drift, slope = (
                np.array(part) for part in force(np.append(q + bump * side, v + rate * side), 0.0, ocp.p)
            )
            need = mass @ (a + bend * side) - drift[:, 0]
            rows.append(np.linalg.lstsq(slope, need, rcond=1e-8)[0])
        grid = np.linspace(0.0, T, PIECES + 1)
        yield PiecewiseConstant(grid, np.clip(np.nan_to_num(rows), task.lower, task.upper))


def _way(start: Array, end: Array, n_q: int, t: float, T: float) -> tuple[Array, Array, Array]:
    """Cubic polynomials from the positions and velocities at the start to those at the end."""
    r, (q0, v0), (q1, v1) = t / T, np.split(start, [n_q]), np.split(end, [n_q])
    d = q1 - q0
    c2, c3 = 3.0 * d - (2.0 * v0 + v1) * T, -2.0 * d + (v0 + v1) * T
    q = q0 + v0 * t + c2 * r**2 + c3 * r**3
    return q, v0 + (2.0 * c2 * r + 3.0 * c3 * r**2) / T, (2.0 * c2 + 6.0 * c3 * r) / T**2


def _bump(t: float, T: float) -> tuple[float, float, float]:
    """16 r^2 (1 - r)^2 with its derivatives."""
    r = t / T
    return (
        16.0 * r**2 * (1.0 - r) ** 2,
        32.0 * r * (1.0 - r) * (1.0 - 2.0 * r) / T,
        32.0 * (1.0 - 6.0 * r + 6.0 * r**2) / T**2,
    )


def goal(ocp: OCP, x0: Array) -> Array | None:
    """The state nearest to x0 that the terminal constraints allow and the terminal cost likes; None without either."""
    s = ocp.system
    cost = ocp.terminal_cost
    if not ocp.terminal_constraints and cost.is_constant():
        return None
    x = ca.MX.sym("x", x0.size)
    fixed = [s.x_initial, s.p] + ([] if ocp.free_time is None else [ocp.free_time.symbol])
    values = [x0, ocp.p] + ([] if ocp.free_time is None else [ocp.free_time.initial])
    rows = ca.vertcat(ca.SX(0, 1), *[c.expression for c in ocp.terminal_constraints])
    made = ca.Function("end", [s.x, *fixed], [rows, cost])(x, *values)
    size = np.maximum(np.abs(x0), 1.0)
    nlp = {"x": x, "f": made[1] + 1e-3 * ca.sumsqr((x - x0) / size), "g": made[0]}
    low, high = (
        np.concatenate([np.zeros(0), *[getattr(c, side) for c in ocp.terminal_constraints]])
        for side in ("lower", "upper")
    )
    options = {"print_time": False, "error_on_fail": False, "ipopt": {"print_level": 0, "sb": "yes", "max_iter": 100}}
    solver = ca.nlpsol("goal", "ipopt", nlp, options)
    found = np.array(solver(x0=x0, lbx=ocp.x_bounds[0], ubx=ocp.x_bounds[1], lbg=low, ubg=high)["x"])[:, 0]
    return found if np.isfinite(found).all() else None


# Kinds of starts by name; each is a stream of controls.
STARTS: dict[str, Callable[[StartTask, np.random.Generator], Iterator[Any]]] = {
    "constant": constant,
    "line": line,
    "random": random,
}
