"""The control between two prescribed switchings: a differentiable law, and whether it has anything left to choose."""

from __future__ import annotations

import casadi as ca
import numpy as np

from nosnoc_py.indirect.control_set import ControlSet
from nosnoc_py.indirect.problem import HybridProblem

Array = np.ndarray

# Relative distance from its bound below which a control is at it.
AT_BOUND = 1e-6
# What helps where the end of a phase cannot be prescribed, because there is nothing left to choose.
SATURATED = (
    "the control is at its bound throughout the phase; use ns.MinimumPrinciple(...) or ns.DirectShooting(form='phases')"
)


def optimal_control(problem: HybridProblem) -> ca.SX:
    """The control that minimises the Hamiltonian, by x and the costate, with derivatives wherever phases may be."""
    assert problem.minimiser.control is not None
    return _on_ball(problem) if problem.controls.is_ball else problem.minimiser.control


def _on_ball(problem: HybridProblem) -> ca.SX:
    """For a curvature R(x) I: differentiable at zero, where phases may end."""
    slope = ca.substitute(ca.gradient(problem.hamiltonian, problem.u), problem.u, ca.SX.zeros(problem.n_u))
    free, radius = -slope / ca.hessian(problem.running_cost, problem.u)[0][0, 0], problem.controls.radius
    return free * radius / ca.sqrt(ca.fmax(ca.sumsqr(free), radius**2))


def at_bound(controls: ControlSet, u: Array) -> bool:
    """Whether all of the controls (n, n_u) have their largest length, or one component of all is at a bound."""
    if controls.is_ball:
        return bool((np.linalg.norm(u, axis=1) >= controls.radius * (1 - AT_BOUND)).all())
    gap = np.minimum(u - controls.lower, controls.upper - u)
    return bool((gap <= AT_BOUND * (1 + np.abs(u))).all(axis=0).any())
