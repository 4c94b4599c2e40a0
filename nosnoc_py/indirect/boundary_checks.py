"""Whether a solution of the multi-point problem is a motion: Newton's method also finds points that are none."""

from __future__ import annotations

from collections.abc import Sequence

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.indirect.boundary_arcs import ArcSolution
from nosnoc_py.indirect.forward import TANGENT
from nosnoc_py.indirect.motion import Motion, Phase, depths_at
from nosnoc_py.indirect.problem import HybridProblem

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


def times_out_of_order(problem: HybridProblem, arcs: Sequence[ArcSolution]) -> str | None:
    """A phase or an arc of no or negative length."""
    for arc in arcs:
        if not arc.arc.end - arc.arc.start > SHORTEST * problem.horizon:
            return f"times are out of order: an arc from t = {arc.arc.start:.6g} to {arc.arc.end:.6g}"
    return None


def wrong_approach(problem: HybridProblem, arcs: Sequence[ArcSolution], jumps: Sequence[int]) -> str | None:
    """A collision whose guard is not reached from above with a speed, or zero after it and not left again."""
    gradient = ca.jacobian(problem.guards, problem.x)
    rates, steepness = ca.mtimes(gradient, problem.flow), ca.sqrt(ca.sum2(gradient**2))
    sizes = ca.densify(steepness * ca.norm_2(problem.flow))
    zero = ca.densify(TOUCHING * steepness * (1.0 + ca.norm_2(problem.x)))
    look = buffered(ca.Function("look", [problem.x, problem.u], [rates, sizes, problem.guards, zero]))
    ends = [k for k in range(len(arcs) - 1) if arcs[k].arc.phase != arcs[k + 1].arc.phase]
    for k, jump in zip(ends, jumps, strict=True):
        before, after, name, t = arcs[k], arcs[k + 1], problem.names[jump], arcs[k].arc.end
        rate, size, *_ = (out[jump, 0] for out in look(before.nodes[-1, : problem.n_x], before.ends[1]))
        if not rate < -TANGENT * size:
            return f"the guard {name!r} is not approached at t = {t:.6g}: its rate is {rate:.3g}"
        rate, size, guard, zero = (out[jump, 0] for out in look(after.nodes[0, : problem.n_x], after.ends[0]))
        if not (guard > zero or rate > TANGENT * size):  # a reset may lead away from the guard, as that of a neuron
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
    value = buffered(ca.Function("H", [problem.x, problem.costate, problem.u], [problem.hamiltonian]).map(len(u)))
    own, least = value(x, costate, u)[0][0], value(x, costate, best)[0][0]
    outside = np.abs(u - problem.controls.project(u)).max(axis=1) / (1.0 + np.abs(u).max())
    excess = np.maximum((own - least) / (1.0 + np.abs(own)), outside)
    some = np.unique(np.linspace(0, len(u) - 1, PROBED).astype(int))
    excess[some] = np.maximum(excess[some], _gain(problem, x[some], costate[some], u[some]))
    if excess.max() <= MINIMAL:
        return None
    return f"the control does not minimise the Hamiltonian over the admissible ones at t = {t[np.argmax(excess)]:.6g}"


def branch_missed(problem: HybridProblem, motion: Motion) -> str | None:
    """Whether the minimisers along an approximate motion with costates are local ones only, at more than a few nodes.

    Beside a collision, nodes of equal steps hold controls that belong to other costates: some may be wrong.
    """
    parts = [phase for phase in motion.phases if phase.costate is not None]
    x, costate, u, t = (np.concatenate(part) for part in zip(*map(_starts, parts), strict=True))
    some = np.unique(np.linspace(0, len(u) - 1, PROBED).astype(int))
    x, costate, u, t = x[some], costate[some], u[some], t[some]
    gain = _gain(problem, x, costate, problem.minimiser.mapped(len(u))(x, costate, u))
    if np.count_nonzero(gain > MISSED) <= FEW * len(u):
        return None
    return f"the control is a local minimiser of the Hamiltonian only, for example at t = {t[np.argmax(gain)]:.6g}"


def _starts(phase: Phase) -> tuple[Array, Array, Array, Array]:
    """x, lambda, u and t at the starts of the intervals of a phase."""
    assert phase.costate is not None
    return phase.x[:-1], phase.costate[:-1], phase.u, phase.t[:-1]


def _gain(problem: HybridProblem, x: Array, costate: Array, u: Array) -> Array:
    """How much lower the Hamiltonian is at other controls, relative, for points (N, ...): (N,).

    The minimiser that made the control may have missed a branch of a Hamiltonian that is not convex; this asks no
    minimiser.
    """
    others = _others(problem, u)
    count = others.shape[1]
    value = ca.Function("H", [problem.x, problem.costate, problem.u], [problem.hamiltonian])
    own = np.array(value.map(len(u))(x.T, costate.T, u.T))[0]
    rows = others.reshape(-1, problem.n_u)
    found = np.array(value.map(len(rows))(np.repeat(x, count, axis=0).T, np.repeat(costate, count, axis=0).T, rows.T))
    least = np.nanmin(found[0].reshape(len(u), count), axis=1, initial=np.inf)
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
