"""Checks that reject roots of the necessary conditions that are not motions, or whose control is not a minimum.

Newton's method and descents with a prescribed sequence also converge to points that violate guards (a body passes
through another one), the order of events, the approach velocity or the minimum condition (HMP, Eq. 12): for the paper's
example 5.2 there is such a spurious point with a lower cost than the optimum. Each check returns a message, or nothing
if it passes. Penetration is measured by `nosnoc_py.audit.guards`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from nosnoc_py.methods.indirect.boundary_arcs import ArcSolution
from nosnoc_py.methods.indirect.forward import TANGENT
from nosnoc_py.methods.indirect.motion import HybridMotion, depths_at, guard_depths
from nosnoc_py.methods.indirect.problem import HybridProblem

Array = np.ndarray

SAMPLES = 24  # points per element at which guards are evaluated
SHORTEST = 1e-7  # shortest arc or phase, relative to the horizon
TOUCHING = 1e-9  # a guard counts as zero below this, relative to |psi_x| (1 + |x|)
PENETRATION = 1e-9  # largest penetration, relative to the largest value of the guard
MINIMALITY = 1e-9  # largest relative decrease of the Hamiltonian by another control
# The same for an approximate motion, and the fraction of nodes that may exceed it.
MISSED_GAIN, MISSED_FRACTION = 1e-6, 0.05
PROBED = 64  # number of stages at which trial controls are compared
PROBES = 32  # trial controls of each kind
SCALES = (1e-2, 1e-1, 1.0, 10.0)  # distances of trial controls, relative to the size of the control
MAX_CORNERS = 32  # largest number of corners of a box
# A phase counts as shrunk to its lower bound if it is at most this factor longer.
SHRUNK = 1.01
# A constrained guard counts as active below this, in its unit.
ACTIVE = 1e-6


def invalidity(
    problem: HybridProblem, motion: HybridMotion, *, shortest: float, tolerance: float, constrained: bool = False
) -> str:
    """Return the reason why phases are not a motion or cannot be optimal; empty if they pass.

    Phases must be longer than their bound, guards must fall where they are reached and be nonnegative elsewhere.

    Parameters
    ----------
    shortest : float
        Lower bound of durations [s].
    tolerance : float
        Tolerance of guards, in their units, and of rates times the horizon.
    constrained : bool
        True if the method constrained guards to be nonnegative at the nodes. A guard that is zero without a collision
        is then an active constraint, and another sequence would be better.
    """
    for i, phase in enumerate(motion.phases):
        if motion.jumps and phase.t[-1] - phase.t[0] <= SHRUNK * shortest:
            return f"phase {i} has shrunk to its lower bound: this sequence of collisions is not optimal"
    for phase, jump in zip(motion.phases, motion.jumps, strict=False):
        rate = float(problem.guard_rates(phase.x[-1], phase.u[-1])[1][jump])
        if not rate * problem.horizon < -tolerance:
            name, when = problem.names[jump], f"at t = {phase.t[-1]:.6g} s"
            return f"{name!r} is reached {when} with the rate {rate:.2g}, which is not an approach"
    depths = guard_depths(problem, motion)
    k, guard = np.unravel_index(int(np.argmax(depths.amounts)), depths.amounts.shape)
    depth = float(depths.amounts[k, guard])
    if not depth <= tolerance:
        at = f"t = {depths.t[k]:.6g} s"
        return f"{problem.names[guard]!r} is penetrated by {depth:.2g} at {at}: a collision is missing"
    return _active_constraint(problem, motion) if constrained else ""


def _active_constraint(problem: HybridProblem, motion: HybridMotion) -> str:
    """Return a message if a guard is active at a node without a collision, else ''."""
    for phase, jump in zip(motion.phases, [*motion.jumps, None], strict=True):
        guards = np.array(problem.guard_rates.map(len(phase.u))(phase.x[1:].T, phase.u.T)[0])
        if jump is not None:
            guards[jump, -1] = np.inf
        guard, node = np.unravel_index(int(np.argmin(guards)), guards.shape)
        if guards[guard, node] <= ACTIVE:
            name, when = problem.names[int(guard)], phase.t[1 + int(node)]
            where = f"{name!r} is an active constraint without a collision at t = {when:.6g} s"
            return f"{where}: another sequence of collisions would be better"
    return ""


def times_out_of_order(problem: HybridProblem, arcs: Sequence[ArcSolution]) -> str | None:
    """Return a message if a phase or an arc has no positive length, else None."""
    for arc in arcs:
        if not arc.arc.end - arc.arc.start > SHORTEST * problem.horizon:
            return f"times are out of order: an arc from t = {arc.arc.start:.6g} to {arc.arc.end:.6g}"
    return None


def wrong_approach(problem: HybridProblem, arcs: Sequence[ArcSolution], jumps: Sequence[int]) -> str | None:
    """Return a message if a guard is not reached from above with a speed, or not left after the collision."""
    ends = [pair for pair in pairwise(arcs) if pair[0].arc.phase != pair[1].arc.phase]
    for (before, after), jump in zip(ends, jumps, strict=True):
        name, t, right = problem.names[jump], before.arc.end, after.nodes[0, : problem.n_x]
        left = before.nodes[-1, : problem.n_x]
        _, rate, size = (float(out[jump]) for out in problem.guard_rates(left, before.ends[1]))
        if not rate < -TANGENT * size:
            return f"the guard {name!r} is not approached at t = {t:.6g}: its rate is {rate:.3g}"
        guard, rate, size = (float(out[jump]) for out in problem.guard_rates(right, after.ends[0]))
        near = TOUCHING * np.linalg.norm(problem.crossings[jump](right)[3]) * (1.0 + np.linalg.norm(right))
        if not (guard > near or rate > TANGENT * size):  # a reset may lead away from the guard, as that of a neuron
            return f"the guard {name!r} is not left at t = {t:.6g}: its rate is {rate:.3g}"
    return None


def penetrated(problem: HybridProblem, arcs: Sequence[ArcSolution]) -> str | None:
    """Return a message if a guard is below zero inside a phase, at samples or minima of parabolas through them."""
    fractions = np.linspace(0.0, 1.0, SAMPLES + 1)
    states = [arc.at(fractions).reshape(-1, fractions.size, 2 * problem.n_x)[..., : problem.n_x] for arc in arcs]
    starts = [arc.times(fractions).reshape(-1, fractions.size)[:, 0] for arc in arcs]
    worst = depths_at(problem, np.concatenate(starts), np.concatenate(states)).worst()
    if worst is None or worst.share <= PENETRATION:
        return None
    return f"the guard {worst.subject!r} is below zero near t = {worst.time:.6g}"


def not_minimal(problem: HybridProblem, arcs: Sequence[ArcSolution]) -> str | None:
    """Return a message if a stage control is not admissible or does not minimise H (HMP, Eq. 12), else None."""
    n_x = problem.n_x
    nodes = np.vstack([arc.stages.reshape(-1, 2 * n_x) for arc in arcs])
    u = np.vstack([arc.u.reshape(-1, problem.n_u) for arc in arcs])
    t = np.concatenate([arc.times(arc.tableau.c).ravel() for arc in arcs])
    x, costate = nodes[:, :n_x], nodes[:, n_x:]
    best = problem.minimiser.mapped(len(u))(x, costate, u)
    outside = np.abs(u - problem.controls.project(u)).max(axis=1) / (1.0 + np.abs(u).max())
    excess = np.maximum(_hamiltonian_gain(problem, x, costate, u, best[:, None]), outside)
    # A minimiser that fails counts as a violation.
    excess[~np.isfinite(best).all(axis=1)] = np.inf
    probed = _evenly_spread(np.arange(len(u)))
    others = _trial_controls(problem, u[probed])
    gain = _hamiltonian_gain(problem, x[probed], costate[probed], u[probed], others)
    excess[probed] = np.maximum(excess[probed], gain)
    if excess.max() <= MINIMALITY:
        return None
    return f"the control does not minimise the Hamiltonian over the admissible ones at t = {t[np.argmax(excess)]:.6g}"


def branch_missed(problem: HybridProblem, motion: HybridMotion) -> str | None:
    """Return a message if the minimisers of an approximate motion are only local ones at more than a few nodes.

    Next to a collision, nodes of equal steps hold controls of other costates, so a few exceptions are expected.
    """
    parts = [(p.x[:-1], p.costate[:-1], p.u, p.t[:-1]) for p in motion.phases if p.costate is not None]
    x, costate, u, t = (_evenly_spread(np.concatenate(part)) for part in zip(*parts, strict=True))
    best = problem.minimiser.mapped(len(u))(x, costate, u)
    gain = _hamiltonian_gain(problem, x, costate, best, _trial_controls(problem, best))
    if np.count_nonzero(gain > MISSED_GAIN) <= MISSED_FRACTION * len(u):
        return None
    return f"the control is a local minimiser of the Hamiltonian only, for example at t = {t[np.argmax(gain)]:.6g}"


def _evenly_spread(rows: Array) -> Array:
    """Return at most PROBED rows of an array, evenly spread."""
    return np.asarray(rows[np.unique(np.linspace(0, len(rows) - 1, PROBED).astype(int))])


def _hamiltonian_gain(problem: HybridProblem, x: Array, costate: Array, u: Array, others: Array) -> Array:
    """Return the largest relative decrease (N,) of the Hamiltonian by other controls (N, m, n_u).

    The comparison does not use the minimiser, which may have missed a branch of a nonconvex Hamiltonian.
    """
    controls = np.concatenate([u[:, None], others], axis=1)
    points = (np.repeat(nodes, controls.shape[1], axis=0) for nodes in (x, costate))
    value = problem.along([problem.hamiltonian], controls[:, :, 0].size)
    values = value(*points, controls.reshape(-1, problem.n_u))[0].reshape(len(u), -1)
    at_u, lowest = values[:, 0], np.nanmin(values, axis=1, initial=np.inf)
    return np.asarray((at_u - lowest) / (1.0 + np.abs(at_u)))


def _trial_controls(problem: HybridProblem, u: Array) -> Array:
    """Return admissible trial controls (N, m, n_u): random around u and zero, uniform, corners, and on the sphere."""
    random, controls = np.random.default_rng(7), problem.controls
    size = max(1.0, float(np.abs(u).max()))
    normal = random.normal(size=(len(SCALES), PROBES, problem.n_u))
    # Several distances, as another branch of H may be near or far.
    clouds = (size * np.array(SCALES)[:, None, None] * normal).reshape(-1, problem.n_u)
    low, high = np.maximum(controls.lower, -10.0 * size), np.minimum(controls.upper, 10.0 * size)
    spread = random.uniform(low, high, size=(PROBES * problem.n_u, problem.n_u))
    corners = np.where(random.integers(0, 2, size=(MAX_CORNERS, problem.n_u)), high, low)
    fixed = [np.zeros((1, problem.n_u)), clouds, spread, corners]
    if controls.is_ball:
        directions = random.normal(size=(PROBES * problem.n_u, problem.n_u))
        fixed.append(controls.radius * directions / np.linalg.norm(directions, axis=1, keepdims=True))
    independent = np.broadcast_to(np.vstack(fixed), (len(u), sum(map(len, fixed)), problem.n_u))
    return controls.project(np.concatenate([u[:, None] + clouds, independent], axis=1))
