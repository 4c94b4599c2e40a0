"""Whether what satisfies the equations of a method is a motion, and its control a minimum: phases of a prescribed
sequence of collisions, arcs of the boundary-value problem, which Newton's method also finds where there is no motion.

How far guards fall below zero is judged by `nosnoc_py.audit.guards`, of phases and of arcs alike.
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

SAMPLES = 24  # per element, for guards
SHORTEST = 1e-7  # arc or phase, in horizons
TOUCHING = 1e-9  # of a guard, in |psi_x| (1 + |x|)
PENETRATION = 1e-9  # of a guard, in its largest value
MINIMAL = 1e-9  # gain of another control in the Hamiltonian, relative
MISSED, FEW = 1e-6, 0.05  # such a gain, at so many of the nodes, of an approximate motion
PROBED = 64  # stages at which the Hamiltonian is compared with that of other controls
PROBES = 32  # other controls of each kind
SCALES = (1e-2, 1e-1, 1.0, 10.0)  # of their distances, in the size of the control
MOST_CORNERS = 32  # of a box
# A phase counts as shrunk when it is longer than the shortest one that is allowed by less than this factor.
SHRUNK = 1.01
# A guard that is constrained counts as active below this.
ACTIVE = 1e-6


def invalidity(
    problem: HybridProblem, motion: HybridMotion, *, shortest: float, tolerance: float, constrained: bool = False
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
    for phase, jump in zip(motion.phases, motion.jumps, strict=False):
        rate = float(problem.look(phase.x[-1], phase.u[-1])[1][jump])
        if not rate * problem.horizon < -tolerance:
            name, when = problem.names[jump], f"at t = {phase.t[-1]:.6g} s"
            return f"{name!r} is reached {when} with the rate {rate:.2g}, which is no approach"
    found = guard_depths(problem, motion)
    k, which = np.unravel_index(int(np.argmax(found.amounts)), found.amounts.shape)
    depth = float(found.amounts[k, which])
    if not depth <= tolerance:
        at = f"t = {found.t[k]:.6g} s"
        return f"{problem.names[which]!r} is penetrated by {depth:.2g} at {at}: a collision is missing"
    return _held(problem, motion) if constrained else ""


def _held(problem: HybridProblem, motion: HybridMotion) -> str:
    """Whether a guard is active at a node where there is no collision."""
    for phase, jump in zip(motion.phases, [*motion.jumps, None], strict=True):
        guards = np.array(problem.look.map(len(phase.u))(phase.x[1:].T, phase.u.T)[0])
        if jump is not None:
            guards[jump, -1] = np.inf
        which, where = np.unravel_index(int(np.argmin(guards)), guards.shape)
        if guards[which, where] <= ACTIVE:
            name, when = problem.names[int(which)], phase.t[1 + int(where)]
            return f"{name!r} holds the motion back at t = {when:.6g} s: another sequence of collisions would be better"
    return ""


def times_out_of_order(problem: HybridProblem, arcs: Sequence[ArcSolution]) -> str | None:
    """A phase or an arc of no or negative length."""
    for arc in arcs:
        if not arc.arc.end - arc.arc.start > SHORTEST * problem.horizon:
            return f"times are out of order: an arc from t = {arc.arc.start:.6g} to {arc.arc.end:.6g}"
    return None


def wrong_approach(problem: HybridProblem, arcs: Sequence[ArcSolution], jumps: Sequence[int]) -> str | None:
    """A collision whose guard is not reached from above with a speed, or zero after it and not left again."""
    ends = [pair for pair in pairwise(arcs) if pair[0].arc.phase != pair[1].arc.phase]
    for (before, after), jump in zip(ends, jumps, strict=True):
        name, t, right = problem.names[jump], before.arc.end, after.nodes[0, : problem.n_x]
        _, rate, size = (float(out[jump]) for out in problem.look(before.nodes[-1, : problem.n_x], before.ends[1]))
        if not rate < -TANGENT * size:
            return f"the guard {name!r} is not approached at t = {t:.6g}: its rate is {rate:.3g}"
        guard, rate, size = (float(out[jump]) for out in problem.look(right, after.ends[0]))
        near = TOUCHING * np.linalg.norm(problem.crossings[jump](right)[3]) * (1.0 + np.linalg.norm(right))
        if not (guard > near or rate > TANGENT * size):  # a reset may lead away from the guard, as that of a neuron
            return f"the guard {name!r} is not left at t = {t:.6g}: its rate is {rate:.3g}"
    return None


def penetrated(problem: HybridProblem, arcs: Sequence[ArcSolution]) -> str | None:
    """A guard below zero inside a phase: at samples, and where a parabola through three of them is lowest."""
    fractions = np.linspace(0.0, 1.0, SAMPLES + 1)
    states = [arc.at(fractions).reshape(-1, fractions.size, 2 * problem.n_x)[..., : problem.n_x] for arc in arcs]
    starts = [arc.times(fractions).reshape(-1, fractions.size)[:, 0] for arc in arcs]
    worst = depths_at(problem, np.concatenate(starts), np.concatenate(states)).worst()
    if worst is None or worst.share <= PENETRATION:
        return None
    return f"the guard {worst.subject!r} is below zero near t = {worst.time:.6g}"


def not_minimal(problem: HybridProblem, arcs: Sequence[ArcSolution]) -> str | None:
    """A stage where the control is not admissible, or another one has a smaller Hamiltonian (Eq. 12)."""
    n_x = problem.n_x
    nodes = np.vstack([arc.stages.reshape(-1, 2 * n_x) for arc in arcs])
    u = np.vstack([arc.u.reshape(-1, problem.n_u) for arc in arcs])
    t = np.concatenate([arc.times(arc.tableau.c).ravel() for arc in arcs])
    x, costate = nodes[:, :n_x], nodes[:, n_x:]
    best = problem.minimiser.mapped(len(u))(x, costate, u)
    outside = np.abs(u - problem.controls.project(u)).max(axis=1) / (1.0 + np.abs(u).max())
    excess = np.maximum(_gain(problem, x, costate, u, best[:, None]), outside)
    excess[~np.isfinite(best).all(axis=1)] = np.inf
    some = _some(np.arange(len(u)))
    others = _others(problem, u[some])
    excess[some] = np.maximum(excess[some], _gain(problem, x[some], costate[some], u[some], others))
    if excess.max() <= MINIMAL:
        return None
    return f"the control does not minimise the Hamiltonian over the admissible ones at t = {t[np.argmax(excess)]:.6g}"


def branch_missed(problem: HybridProblem, motion: HybridMotion) -> str | None:
    """Whether the minimisers along an approximate motion with costates are local ones only, at more than a few nodes.

    Beside a collision, nodes of equal steps hold controls that belong to other costates: some may be wrong.
    """
    parts = [(p.x[:-1], p.costate[:-1], p.u, p.t[:-1]) for p in motion.phases if p.costate is not None]
    x, costate, u, t = (_some(np.concatenate(part)) for part in zip(*parts, strict=True))
    best = problem.minimiser.mapped(len(u))(x, costate, u)
    gain = _gain(problem, x, costate, best, _others(problem, best))
    if np.count_nonzero(gain > MISSED) <= FEW * len(u):
        return None
    return f"the control is a local minimiser of the Hamiltonian only, for example at t = {t[np.argmax(gain)]:.6g}"


def _some(rows: Array) -> Array:
    """So many rows of an array, evenly spread."""
    return np.asarray(rows[np.unique(np.linspace(0, len(rows) - 1, PROBED).astype(int))])


def _gain(problem: HybridProblem, x: Array, costate: Array, u: Array, others: Array) -> Array:
    """How much lower the Hamiltonian is at other controls (N, m, n_u), relative, for points (N, ...): (N,).

    The minimiser that made the control may have missed a branch of a Hamiltonian that is not convex; this asks no
    minimiser.
    """
    every = np.concatenate([u[:, None], others], axis=1)
    points = (np.repeat(nodes, every.shape[1], axis=0) for nodes in (x, costate))
    value = problem.along([problem.hamiltonian], every[:, :, 0].size)
    values = value(*points, every.reshape(-1, problem.n_u))[0].reshape(len(u), -1)
    own, least = values[:, 0], np.nanmin(values, axis=1, initial=np.inf)
    return np.asarray((own - least) / (1.0 + np.abs(own)))


def _others(problem: HybridProblem, u: Array) -> Array:
    """Admissible controls (N, m, n_u): random ones around u (N, n_u) and zero, corners, and the edge of the ball."""
    random, controls = np.random.default_rng(7), problem.controls
    size = max(1.0, float(np.abs(u).max()))
    normal = random.normal(size=(len(SCALES), PROBES, problem.n_u))
    clouds = (size * np.array(SCALES)[:, None, None] * normal).reshape(-1, problem.n_u)
    low, high = np.maximum(controls.lower, -10.0 * size), np.minimum(controls.upper, 10.0 * size)
    spread = random.uniform(low, high, size=(PROBES * problem.n_u, problem.n_u))
    corners = np.where(random.integers(0, 2, size=(MOST_CORNERS, problem.n_u)), high, low)
    fixed = [np.zeros((1, problem.n_u)), clouds, spread, corners]
    if controls.is_ball:
        ends = random.normal(size=(PROBES * problem.n_u, problem.n_u))
        fixed.append(controls.radius * ends / np.linalg.norm(ends, axis=1, keepdims=True))
    anywhere = np.broadcast_to(np.vstack(fixed), (len(u), sum(map(len, fixed)), problem.n_u))
    return controls.project(np.concatenate([u[:, None] + clouds, anywhere], axis=1))
