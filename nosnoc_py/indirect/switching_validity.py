"""Whether phases that satisfy the equations of a prescribed sequence of collisions are a motion at all."""

from __future__ import annotations

from collections.abc import Callable

import casadi as ca
import numpy as np

from nosnoc_py.indirect.motion import Motion, guard_depths
from nosnoc_py.indirect.problem import HybridProblem

Array = np.ndarray

# A phase counts as shrunk when it is longer than the shortest one that is allowed by less than this factor.
SHRUNK = 1.01
# A guard that is constrained counts as active below this.
ACTIVE = 1e-6


def invalidity(
    problem: HybridProblem, motion: Motion, *, shortest: float, tolerance: float, constrained: bool = False
) -> str:
    """Why phases are no motion, or cannot be an optimum; empty if nothing speaks against them.

    Phases have a duration, guards fall where they are reached and are nowhere else below zero.

    Parameters
    ----------
    shortest : float
        The lower bound that durations were given [s].
    tolerance : float
        Of guards, in their units; of rates, times the horizon.
    constrained : bool
        Whether the method kept guards from becoming negative at the nodes: one that is zero there without a collision
        holds the motion back, and another sequence would be better.
    """
    for i, phase in enumerate(motion.phases):
        if motion.jumps and phase.t[-1] - phase.t[0] <= SHRUNK * shortest:
            return f"phase {i} has shrunk to its lower bound: this sequence of collisions is not one of an optimum"
    look = looker(problem)
    for phase, jump in zip(motion.phases, motion.jumps, strict=False):
        rate = look(phase.x[-1:], phase.u[-1:])[1][jump, 0]
        if not rate * problem.horizon < -tolerance:
            name, when = problem.names[jump], f"at t = {phase.t[-1]:.6g} s"
            return f"{name!r} is reached {when} with the rate {rate:.2g}, which is no approach"
    found = guard_depths(problem, motion)
    k, which = np.unravel_index(int(np.argmax(found.amounts)), found.amounts.shape)
    depth = float(found.amounts[k, which])
    if not depth <= tolerance:
        at = f"t = {found.t[k]:.6g} s"
        return f"{problem.names[which]!r} is penetrated by {depth:.2g} at {at}: a collision is missing"
    return _held(problem, motion, look) if constrained else ""


def looker(problem: HybridProblem) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Guards and their rates (n_jumps, n) at states (n, n_x) under controls (n, n_u)."""
    rates = ca.jtimes(problem.guards, problem.x, problem.flow)
    function = ca.Function("look", [problem.x, problem.u], [problem.guards, rates])

    def look(x: Array, u: Array) -> tuple[Array, Array]:
        guards, rate = (np.array(out) for out in function.map(len(x))(x.T, u.T))
        return guards, rate

    return look


def _held(problem: HybridProblem, motion: Motion, look: Callable[[Array, Array], tuple[Array, Array]]) -> str:
    """Whether a guard is active at a node where there is no collision."""
    for phase, jump in zip(motion.phases, [*motion.jumps, None], strict=True):
        guards = look(phase.x[1:], phase.u)[0]
        if jump is not None:
            guards[jump, -1] = np.inf
        which, where = np.unravel_index(int(np.argmin(guards)), guards.shape)
        if guards[which, where] <= ACTIVE:
            name, when = problem.names[int(which)], phase.t[1 + int(where)]
            return f"{name!r} holds the motion back at t = {when:.6g} s: another sequence of collisions would be better"
    return ""
