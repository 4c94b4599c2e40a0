"""What a control of the two discs is worth: its distance from the optimal one, and its cost in an exact simulation."""

from __future__ import annotations

import casadi as ca
import numpy as np

import nosnoc_py as ns
from problems.two_discs import HORIZON
from tests.references.two_discs import Optimum, semi_norm

SAMPLES = 480  # left ends at which controls are compared
BEYOND = 1e-9  # of a left end, so that a control that jumps there is taken to the right of it [s]
LEGENDRE = np.polynomial.legendre.leggauss(3)


def control_error(found: ns.Solution, exact: Optimum) -> float:
    """L2 semi-norm of u - u_opt; NaN where there is no control over all of the horizon."""
    if found.u_grid.size < 2 or abs(found.u_grid[-1] - HORIZON) > 1e-6:
        return np.nan
    t = np.arange(SAMPLES) * HORIZON / SAMPLES
    return semi_norm(found.control(t + BEYOND) - exact.control(t + BEYOND), t, exact.times)


def true_objective(ocp: ns.OCP, found: ns.Solution) -> float:
    """Cost of the control of a solution, with the state from an event-driven simulation; NaN if that fails."""
    again = ns.simulate(ocp.system, x0=ocp.x0, duration=HORIZON, u=found, method=ns.EventDriven())
    if not again.success:
        return np.nan
    s = ocp.system
    terminal = ca.Function("terminal", [s.x], [ocp.terminal_cost])
    running = ca.Function("running", [s.u], [ocp.stage_cost])
    nodes, weights = LEGENDRE
    length = np.diff(found.u_grid)
    t = found.u_grid[:-1, None] + length[:, None] * (nodes + 1.0) / 2.0
    rates = np.array(running.map(t.size)(found.control(t.ravel()).T)).reshape(t.shape)
    return float(terminal(again.final_state)) + float(np.sum(length[:, None] * weights / 2.0 * rates))
