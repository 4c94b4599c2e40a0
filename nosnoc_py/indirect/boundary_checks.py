"""Whether a solution of the multi-point problem is a motion: Newton's method also finds points that are none."""

from __future__ import annotations

from collections.abc import Sequence

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.indirect.boundary_arcs import ArcSolution
from nosnoc_py.indirect.problem import HybridProblem

Array = np.ndarray

SAMPLES = 24  # per element, for guards
SHORTEST = 1e-7  # arc or phase, in horizons
TANGENT = 1e-8  # rate of a guard, in |psi_x| |f|
PENETRATION = 1e-9  # of a guard, in its largest value
MINIMAL = 1e-9  # gain of another control in the Hamiltonian, relative


def times_out_of_order(problem: HybridProblem, arcs: Sequence[ArcSolution]) -> str | None:
    """A phase or an arc of no or negative length."""
    for arc in arcs:
        if not arc.arc.end - arc.arc.start > SHORTEST * problem.horizon:
            return f"times are out of order: an arc from t = {arc.arc.start:.6g} to {arc.arc.end:.6g}"
    return None


def wrong_approach(problem: HybridProblem, arcs: Sequence[ArcSolution], jumps: Sequence[int]) -> str | None:
    """A collision whose guard is not reached from above with a speed, or not left again."""
    gradient = ca.jacobian(problem.guards, problem.x)
    rates = ca.mtimes(gradient, problem.flow)
    sizes = ca.sqrt(ca.sum2(gradient**2)) * ca.norm_2(problem.flow)
    look = buffered(ca.Function("look", [problem.x, problem.u], [rates, ca.densify(sizes)]))
    ends = [k for k in range(len(arcs) - 1) if arcs[k].arc.phase != arcs[k + 1].arc.phase]
    for k, jump in zip(ends, jumps, strict=True):
        before, after, name, t = arcs[k], arcs[k + 1], problem.names[jump], arcs[k].arc.end
        rate, size = (out[jump, 0] for out in look(before.nodes[-1, : problem.n_x], before.ends[1]))
        if not rate < -TANGENT * size:
            return f"the guard {name!r} is not approached at t = {t:.6g}: its rate is {rate:.3g}"
        rate, size = (out[jump, 0] for out in look(after.nodes[0, : problem.n_x], after.ends[0]))
        if not rate > TANGENT * size:
            return f"the guard {name!r} is not left at t = {t:.6g}: its rate is {rate:.3g}"
    return None


def penetrated(problem: HybridProblem, arcs: Sequence[ArcSolution]) -> str | None:
    """A guard below zero inside a phase: at samples, and where a parabola through three of them is lowest."""
    fractions = np.linspace(0.0, 1.0, SAMPLES + 1)
    count = sum(len(arc.stages) for arc in arcs) * fractions.size
    x = np.vstack([arc.at(fractions).reshape(-1, 2 * problem.n_x)[:, : problem.n_x] for arc in arcs])
    t = np.concatenate([arc.times(fractions).ravel() for arc in arcs])
    found = buffered(ca.Function("guards", [problem.x], [problem.guards]).map(count))(x)[0]
    values = found.reshape(len(found), -1, fractions.size)
    left, here, right = values[:, :, :-2], values[:, :, 1:-1], values[:, :, 2:]
    bend = left - 2.0 * here + right
    dip = (here < left) & (here < right)
    lowest = here - np.divide((right - left) ** 2, 8.0 * bend, out=np.zeros_like(bend), where=dip)
    depths = (
        np.concatenate([values, lowest], axis=2).min(axis=2) + PENETRATION * np.abs(values).max(axis=(1, 2))[:, None]
    )
    if depths.min() >= 0.0:
        return None
    guard, element = np.unravel_index(np.argmin(depths), depths.shape)
    return f"the guard {problem.names[guard]!r} is below zero near t = {t.reshape(-1, fractions.size)[element, 0]:.6g}"


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
    if excess.max() <= MINIMAL:
        return None
    return f"the control does not minimise the Hamiltonian over the admissible ones at t = {t[np.argmax(excess)]:.6g}"
