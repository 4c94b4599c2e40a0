"""Boundary-value polish: Newton's method on the multi-point problem of the hybrid minimum principle.

What a method of successive approximations ends at is a good start: a few steps lead to rounding. Not every solution of
the equations is a motion, let alone an optimal one; see `validity`.

`motion_of` makes a `HybridMotion` of what was found; the controls of other motions are simulated exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil

import numpy as np
from scipy.sparse import csc_matrix, diags
from scipy.sparse.linalg import splu

from nosnoc_py.methods.indirect.boundary_arcs import Arc, ArcSolution, arcs_of, same_structure, without
from nosnoc_py.methods.indirect.boundary_functions import BoundaryFunctions
from nosnoc_py.methods.indirect.boundary_system import BoundarySystem
from nosnoc_py.methods.indirect.motion import HybridMotion, MotionPhase
from nosnoc_py.methods.indirect.problem import HybridProblem
from nosnoc_py.methods.indirect.switching_start import moved_by
from nosnoc_py.methods.indirect.validity import not_minimal, penetrated, times_out_of_order, wrong_approach
from nosnoc_py.status import Status

Array = np.ndarray

# Arcs shorter than this many horizons are not believed of a start, and are believed of a solution.
SLIVER_OF_START, SLIVER = 0.02, 1e-6
ROUNDS = 10  # of other arcs or shorter elements, at most
MOST_ELEMENTS = 64  # per arc
SMALLEST_DAMPING = 1e-3
KEPT = 0.9  # an arc loses this part of its length in one step at most
COLLAPSED = 1e-6  # length of an arc that is left out, in horizons
ROUNDING = 1e-8  # corrections below this that no longer fall are rounding errors
# Intervals of the horizon at whose ends regimes are looked for.
OBSERVED = 480
SIMULATED_STEPS = 480
ALLOWANCE = 1e-9  # of the objective, relative


def motion_of(
    functions: BoundaryFunctions, arcs: Sequence[ArcSolution], jumps: Sequence[int], intervals: int
) -> HybridMotion:
    """Phases of arcs, every element cut into so many parts that about `intervals` make up the horizon.

    States and costates at the nodes, and dense output between them, are the collocation polynomials; the control has
    dense output, too. Its means on the intervals are of second order in their lengths: a simulation with means has
    velocities that are exact at the nodes where u enters linearly with constant factors.
    """
    phases, n_x, tableau = [], functions.problem.n_x, arcs[0].tableau
    for _, group in groupby(arcs, key=lambda arc: arc.arc.phase):
        pieces = list(group)
        parts = zip(*[_cut(functions, arc, intervals) for arc in pieces], strict=True)
        t, left, stages, u_left, u = (np.concatenate(part) for part in parts)
        nodes = np.vstack([left, pieces[-1].nodes[-1]])
        phases.append(
            MotionPhase(
                t=np.append(t, pieces[-1].arc.end),
                x=nodes[:, :n_x],
                costate=nodes[:, n_x:],
                u=np.einsum("j,kji->ki", tableau.b, u),
                c=tableau.c,
                x_stages=stages,
                u_c=tableau.c,
                u_left=u_left,
                u_stages=u,
            )
        )
    return HybridMotion(phases=tuple(phases), jumps=tuple(jumps), objective=objective(functions, arcs))


def objective(functions: BoundaryFunctions, arcs: Sequence[ArcSolution]) -> float:
    """phi(x(T)) plus the integral of L by the Gauss quadrature of the collocation."""
    problem, n_x = functions.problem, functions.problem.n_x
    total = float(problem.terminal(arcs[-1].nodes[-1, :n_x])[0][0, 0])
    for arc in arcs:
        z, u = arc.stages.reshape(-1, 2 * n_x), arc.u.reshape(-1, problem.n_u)
        rates = problem.along([problem.running_cost], len(z))(z[:, :n_x], z[:, n_x:], u)[0]
        total += arc.step * float(rates.reshape(-1, arc.tableau.stages).sum(axis=0) @ arc.tableau.b)
    return total


def simulated_objective(problem: HybridProblem, motion: HybridMotion, steps: int) -> float | None:
    """The objective of the control of a motion, held on equal steps, with exact times of collisions; None if it fails.

    The motion of an Euler scheme has an objective that is wrong by O(1/N), in either direction. Its control is
    admissible, whatever it came from: what it costs in truth, no optimum costs more.
    """
    t = np.concatenate([phase.t[1:] for phase in motion.phases])
    u = np.vstack([phase.u for phase in motion.phases])
    held = moved_by(problem, lambda time: u[np.searchsorted(t[:-1], time, "right")], steps)
    return None if held is None else held.objective


def control_at(functions: BoundaryFunctions, arc: ArcSolution, fractions: Array) -> Array:
    """The control at fractions (m,) of every element, (E, m, n_u), from (x, lambda) there."""
    points, near = arc.at(fractions), arc.near_control(fractions)
    flat = points.reshape(-1, points.shape[2])
    if functions.law(arc.arc.regime).w.numel() == 0:
        return functions.control(arc.arc.regime, len(flat))(flat).reshape(near.shape)
    problem = functions.problem
    u = problem.minimiser.mapped(len(flat))(flat[:, : problem.n_x], flat[:, problem.n_x :], near.reshape(len(flat), -1))
    return u.reshape(near.shape)


def _cut(functions: BoundaryFunctions, arc: ArcSolution, intervals: int) -> tuple[Array, ...]:
    """Left ends of the intervals of an arc and (x, lambda) there, states at their stages, u at both."""
    problem, c = functions.problem, arc.tableau.c
    cuts = max(1, ceil(intervals * arc.step / problem.horizon - 1e-9))
    edges = np.arange(cuts) / cuts
    places = (edges[:, None] + c / cuts).ravel()
    left = arc.at(edges).reshape(-1, 2 * problem.n_x)
    left[::cuts] = arc.nodes[:-1]
    stages = arc.at(places).reshape(len(left), c.size, -1)[:, :, : problem.n_x]
    u = control_at(functions, arc, places).reshape(len(left), c.size, -1)
    return arc.times(edges).ravel(), left, stages, control_at(functions, arc, edges).reshape(len(left), -1), u


@dataclass(frozen=True, eq=False, kw_only=True)
class Polish:
    """What became of a polish.

    Attributes
    ----------
    motion : HybridMotion, optional
        None where no solution was found, or none that is a motion: `reason` says why.
    residual : float
        The largest of the equations, each in units of what its unknowns do to it.
    iterations : int
        Steps of Newton's method, over all structures of arcs.
    reason : str
        Empty on success.
    status : Status
        SOLVED; NOT_AN_OPTIMUM for a solution that is no motion or no optimum; else why there is no solution:
        ITERATION_LIMIT, NO_DESCENT or NUMERICAL_ERROR.
    arcs : tuple of Arc
        The regimes of the minimiser in time, as far as found.
    """

    motion: HybridMotion | None
    residual: float
    iterations: int
    reason: str
    status: Status
    arcs: tuple[Arc, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Root:
    """Where Newton's method ended, and if that is no solution, why; `collapsed` is an arc that has no length left."""

    z: Array
    residual: float
    iterations: int
    reason: str = ""
    status: Status = Status.SOLVED
    collapsed: int | None = None


def polish(
    problem: HybridProblem,
    start: HybridMotion,
    *,
    elements: int = 8,
    stages: int = 8,
    accuracy: float = 1e-10,
    tolerance: float = 1e-12,
    steps: int = 30,
    intervals: int = 100,
) -> Polish:
    """Solve the necessary conditions from a motion with costates.

    Parameters
    ----------
    problem : HybridProblem
    start : HybridMotion
        With costates; its sequence of collisions is kept.
    elements, stages : int
        Elements per arc and stages of Gauss-Legendre collocation: order 2 stages.
    accuracy : float
        Of (x, lambda) between the nodes, relative to their sizes: elements are halved until an estimate says so.
    tolerance : float
        Of Newton's correction, relative to the sizes of the unknowns.
    steps : int
        Of Newton's method, at most, for each structure of arcs.
    intervals : int
        About how many intervals the result has.
    """
    functions, jumps, tried = BoundaryFunctions(problem), start.jumps, 0
    root, found = _Root(z=np.empty(0), residual=np.inf, iterations=0), tuple[ArcSolution, ...]()

    def ended(reason: str | None, status: Status = Status.NOT_AN_OPTIMUM, motion: HybridMotion | None = None) -> Polish:
        """A success where there is no reason against it, else a failure with this status."""
        return Polish(
            motion=None if reason else motion,
            residual=root.residual,
            iterations=tried,
            reason=reason or "",
            status=status if reason else Status.SOLVED,
            arcs=tuple(arc.arc for arc in found),
        )

    if not all(len(phase.u) for phase in start.phases):
        return ended("a phase has no length")
    arcs = arcs_of(problem, start, SLIVER_OF_START * problem.horizon)
    guess = start
    for _ in range(ROUNDS):
        system = BoundarySystem(problem, arcs, jumps, elements, stages, functions)
        root = newton(system, system.guess(guess), tolerance, steps)
        tried, found = tried + root.iterations, system.solutions(root.z)
        fewer = None if root.collapsed is None else without([arc.arc for arc in found], root.collapsed)
        reason = root.reason or times_out_of_order(problem, found)
        if fewer is None and reason:
            return ended(reason, root.status if root.reason else Status.NOT_AN_OPTIMUM)
        guess = motion_of(functions, found, jumps, OBSERVED)
        observed = fewer or arcs_of(problem, guess, SLIVER * problem.horizon)
        settled = fewer is None and (same_structure(observed, arcs) or not_minimal(problem, found) is None)
        if settled and (_roughness(system, root, found) <= accuracy or 2 * elements > MOST_ELEMENTS):
            objection = _objection(problem, found, start, guess)
            return ended(objection, motion=motion_of(functions, found, jumps, intervals))
        arcs, elements = (tuple(arc.arc for arc in found), 2 * elements) if settled else (observed, elements)
    return ended("the regimes of the minimiser do not settle", Status.ITERATION_LIMIT)


def _roughness(system: BoundarySystem, root: _Root, found: Sequence[ArcSolution]) -> float:
    sizes = system.scale(root.z)[system.nodes[0][0]]
    return float(max((arc.roughness() / sizes).max() for arc in found))


def _objection(
    problem: HybridProblem, found: Sequence[ArcSolution], start: HybridMotion, motion: HybridMotion
) -> str | None:
    """Why a solution is not taken."""
    reason = wrong_approach(problem, found, motion.jumps) or penetrated(problem, found) or not_minimal(problem, found)
    if reason:
        return reason
    bound = simulated_objective(problem, start, SIMULATED_STEPS)
    if bound is not None and motion.objective > bound + ALLOWANCE * (1.0 + abs(bound)):
        return f"its objective {motion.objective:.9g} is above that of the start's control, {bound:.9g}"
    return None


def newton(system: BoundarySystem, z: Array, tolerance: float, steps: int) -> _Root:
    """Newton's method, damped so that the next correction with the same matrix is shorter (natural monotonicity)."""
    scale, previous, residual = system.scale(z), np.inf, np.inf

    def failed(reason: str, status: Status, collapsed: int | None = None) -> _Root:
        return _Root(z=z, residual=residual, iterations=iteration, reason=reason, status=status, collapsed=collapsed)

    for iteration in range(steps + 1):
        value, jacobian = system(z)
        if not np.isfinite(value).all() or not np.isfinite(jacobian.data).all():
            residual = np.inf
            return failed("a function is not finite", Status.NUMERICAL_ERROR)
        solved = _corrections(jacobian, scale)
        if solved is None:
            return failed("the equations are singular", Status.NO_DESCENT)
        corrected, largest = solved
        residual, step = float(np.abs(value / largest).max()), corrected(value)
        size = float(np.abs(step).max())
        if size <= ROUNDING and (size <= tolerance or size >= 0.5 * previous):
            return _Root(z=z - scale * step, residual=residual, iterations=iteration + 1)
        if iteration == steps:
            break
        damping, previous = _damping(system, corrected, z, scale, step), size
        if damping is None:
            return failed("Newton's method finds no descent", Status.NO_DESCENT)
        z = z - damping * scale * step
        shortest = int(np.argmin(z[system.lengths]))
        if z[system.lengths[shortest]] < COLLAPSED * system.problem.horizon:
            iteration += 1
            return failed("an arc or a phase has no length left", Status.NO_DESCENT, shortest)
    return failed(f"no convergence in {steps} steps", Status.ITERATION_LIMIT)


def _corrections(jacobian: csc_matrix, scale: Array) -> tuple[Callable[[Array], Array], Array] | None:
    """Residuals -> corrections in units of the unknowns, and the largest entries of the rows; None if singular."""
    scaled = jacobian @ diags(scale)
    largest = abs(scaled).max(axis=1).toarray().ravel()
    if not largest.all():
        return None
    try:
        factors = splu((diags(1.0 / largest) @ scaled).tocsc())
    except RuntimeError:
        return None
    return lambda residual: np.asarray(factors.solve(residual / largest)), largest


def _damping(
    system: BoundarySystem, corrected: Callable[[Array], Array], z: Array, scale: Array, step: Array
) -> float | None:
    """The longest part of a step after which the simplified correction is shorter; lengths of arcs stay positive."""
    size = np.linalg.norm(step)
    lengths, falling = z[system.lengths], (scale * step)[system.lengths]
    limit = np.min(np.where(falling > 0.0, KEPT * lengths / np.maximum(falling, 1e-300), np.inf))
    damping = min(1.0, float(limit))
    if np.abs(step).max() <= ROUNDING:
        return damping
    while damping >= SMALLEST_DAMPING * min(1.0, limit):
        value, _ = system(z - damping * scale * step)
        if np.isfinite(value).all() and np.linalg.norm(corrected(value)) <= (1.0 - 0.25 * damping) * size:
            return damping
        damping *= 0.5
    return None
