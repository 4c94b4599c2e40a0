"""Polishing of a motion by Newton's method on the multi-point boundary-value problem of the minimum principle.

1. Read phases and arcs (regimes of the minimiser) from a motion with costates, usually an iterate of
   `MinimumPrinciple`.
2. Solve the collocation equations (`boundary_system`) by damped Newton with the natural monotonicity test (Deuflhard
   2004, Section 3.3): the simplified correction with the old Jacobian has to become shorter.
3. Compare the regimes of the solution with the assumed arcs. Change the arcs, or halve the elements until the estimated
   error is small, and repeat.
4. Reject roots that are not motions (guards, order of events, approach), that do not minimise the Hamiltonian, or that
   cost more than the simulated control of the start; see `validity`.

From a start of successive approximations 4 to 5 Newton steps lead to machine precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil

import numpy as np
from scipy.sparse import csc_matrix, diags
from scipy.sparse.linalg import splu

from nosnoc_py.methods.indirect.boundary_arcs import Arc, ArcSolution, arcs_of, same_structure, without_arc
from nosnoc_py.methods.indirect.boundary_functions import BoundaryFunctions
from nosnoc_py.methods.indirect.boundary_system import BoundarySystem
from nosnoc_py.methods.indirect.motion import HybridMotion, MotionPhase
from nosnoc_py.methods.indirect.problem import HybridProblem
from nosnoc_py.methods.indirect.switching_start import motion_under
from nosnoc_py.methods.indirect.validity import not_minimal, penetrated, times_out_of_order, wrong_approach
from nosnoc_py.status import Status

Array = np.ndarray

# Shortest arc, relative to the horizon: of an approximate start (coarse nodes fake short arcs) and of a solution.
SHORTEST_ARC_OF_START, SHORTEST_ARC = 0.02, 1e-6
STRUCTURE_ROUNDS = 10  # maximal number of changes of arcs or elements
MAX_ELEMENTS = 64  # per arc
SMALLEST_DAMPING = 1e-3
MAX_SHRINKAGE = 0.9  # an arc may lose at most this fraction of its length per step
COLLAPSED = 1e-6  # an arc shorter than this, relative to the horizon, is removed
ROUNDING_OF_CORRECTIONS = 1e-8  # relative corrections below this that no longer decrease are rounding
# Intervals of the horizon at whose ends the regimes of a solution are evaluated.
REGIME_INTERVALS = 480
SIMULATED_STEPS = 480
OBJECTIVE_TOLERANCE = 1e-9  # relative tolerance of objectives


def motion_of(
    functions: BoundaryFunctions, arcs: Sequence[ArcSolution], jumps: Sequence[int], intervals: int
) -> HybridMotion:
    """Return the motion of solved arcs, with elements subdivided so that the horizon has about `intervals` intervals.

    States, costates and their dense output are the collocation polynomials; the control has dense output, too. Its
    interval means are accurate to second order: if u enters linearly with constant factors, a simulation with the means
    has exact velocities at the nodes.
    """
    phases, n_x, tableau = [], functions.problem.n_x, arcs[0].tableau
    for _, group in groupby(arcs, key=lambda arc: arc.arc.phase):
        phase_arcs = list(group)
        parts = zip(*[_subdivided(functions, arc, intervals) for arc in phase_arcs], strict=True)
        t, left, stages, u_left, u = (np.concatenate(part) for part in parts)
        nodes = np.vstack([left, phase_arcs[-1].nodes[-1]])
        phases.append(
            MotionPhase(
                t=np.append(t, phase_arcs[-1].arc.end),
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
    """Return phi(x(T)) plus the integral of L by the Gauss quadrature of the collocation."""
    problem, n_x = functions.problem, functions.problem.n_x
    total = float(problem.terminal(arcs[-1].nodes[-1, :n_x])[0][0, 0])
    for arc in arcs:
        z, u = arc.stages.reshape(-1, 2 * n_x), arc.u.reshape(-1, problem.n_u)
        rates = problem.along([problem.running_cost], len(z))(z[:, :n_x], z[:, n_x:], u)[0]
        total += arc.step * float(rates.reshape(-1, arc.tableau.stages).sum(axis=0) @ arc.tableau.b)
    return total


def simulated_objective(problem: HybridProblem, motion: HybridMotion, steps: int) -> float | None:
    """Return the simulated objective of a motion's control, held on equal steps; None if the simulation fails.

    The objective of an Euler scheme is wrong by O(1/N) in either direction. Its control is admissible, so its simulated
    cost is an upper bound of the optimal cost.
    """
    t = np.concatenate([phase.t[1:] for phase in motion.phases])
    u = np.vstack([phase.u for phase in motion.phases])
    simulated = motion_under(problem, lambda time: u[np.searchsorted(t[:-1], time, "right")], steps)
    return None if simulated is None else simulated.objective


def control_at(functions: BoundaryFunctions, arc: ArcSolution, fractions: Array) -> Array:
    """Return the control at fractions (m,) of every element, (E, m, n_u), from (x, lambda) by the law."""
    points, start = arc.at(fractions), arc.interpolated_control(fractions)
    flat = points.reshape(-1, points.shape[2])
    if functions.law(arc.arc.regime).w.numel() == 0:
        return functions.control(arc.arc.regime, len(flat))(flat).reshape(start.shape)
    problem = functions.problem
    u = problem.minimiser.mapped(len(flat))(
        flat[:, : problem.n_x], flat[:, problem.n_x :], start.reshape(len(flat), -1)
    )
    return u.reshape(start.shape)


def _subdivided(functions: BoundaryFunctions, arc: ArcSolution, intervals: int) -> tuple[Array, ...]:
    """Return left ends of the intervals of an arc, (x, lambda) there, states at stages, and u at both."""
    problem, c = functions.problem, arc.tableau.c
    # 1e-9 absorbs the rounding of whole numbers.
    parts = max(1, ceil(intervals * arc.step / problem.horizon - 1e-9))
    edges = np.arange(parts) / parts
    stage_points = (edges[:, None] + c / parts).ravel()
    left = arc.at(edges).reshape(-1, 2 * problem.n_x)
    # Nodes of the system exactly; the polynomial would add rounding.
    left[::parts] = arc.nodes[:-1]
    stages = arc.at(stage_points).reshape(len(left), c.size, -1)[:, :, : problem.n_x]
    u = control_at(functions, arc, stage_points).reshape(len(left), c.size, -1)
    return arc.times(edges).ravel(), left, stages, control_at(functions, arc, edges).reshape(len(left), -1), u


@dataclass(frozen=True, eq=False, kw_only=True)
class BoundaryValueResult:
    """Result of polishing a motion.

    Attributes
    ----------
    motion : HybridMotion, optional
        Polished motion; None on failure, with the cause in `reason`.
    residual : float
        Largest residual, each row scaled by its largest Jacobian entry in scaled unknowns.
    iterations : int
        Newton steps, summed over all structures of arcs.
    reason : str
        Empty on success.
    status : Status
        SOLVED; NOT_AN_OPTIMUM for a root that is not a motion or not an optimum; ITERATION_LIMIT, NO_DESCENT or
        NUMERICAL_ERROR if there is no root.
    arcs : tuple of Arc
        Arcs (regimes of the minimiser with times) of the last solution.
    """

    motion: HybridMotion | None
    residual: float
    iterations: int
    reason: str
    status: Status
    arcs: tuple[Arc, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class _NewtonEnd:
    """Last iterate of Newton's method, the cause of a failure, and the index of an arc whose length became zero."""

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
) -> BoundaryValueResult:
    """Solve the necessary conditions of the minimum principle, starting from a motion with costates.

    Parameters
    ----------
    problem : HybridProblem
    start : HybridMotion
        Start with costates; its sequence of collisions is not changed.
    elements, stages : int
        Elements per arc and stages of Gauss-Legendre collocation: order 2 stages.
    accuracy : float
        Estimated error of (x, lambda) between the nodes, relative to their scales; elements are halved until it is met.
    tolerance : float
        Size of the last Newton correction, relative to the scales of the unknowns.
    steps : int
        Maximal number of Newton steps for each structure of arcs.
    intervals : int
        Approximate number of intervals of the result.

    Returns
    -------
    BoundaryValueResult
    """
    functions, jumps, iterations = BoundaryFunctions(problem), start.jumps, 0
    root, solutions = _NewtonEnd(z=np.empty(0), residual=np.inf, iterations=0), tuple[ArcSolution, ...]()

    def result_with(
        reason: str | None, status: Status = Status.NOT_AN_OPTIMUM, motion: HybridMotion | None = None
    ) -> BoundaryValueResult:
        """Return a success if there is no reason against it, else a failure with this status."""
        return BoundaryValueResult(
            motion=None if reason else motion,
            residual=root.residual,
            iterations=iterations,
            reason=reason or "",
            status=status if reason else Status.SOLVED,
            arcs=tuple(arc.arc for arc in solutions),
        )

    # A phase of zero length has no regime to start from.
    if not all(len(phase.u) for phase in start.phases):
        return result_with("a phase has zero length")
    arcs = arcs_of(problem, start, SHORTEST_ARC_OF_START * problem.horizon)
    guess = start
    for _ in range(STRUCTURE_ROUNDS):
        system = BoundarySystem(problem, arcs, jumps, elements, stages, functions)
        root = newton(system, system.guess(guess), tolerance, steps)
        iterations, solutions = iterations + root.iterations, system.solutions(root.z)
        # An arc that shrinks to zero length is removed, and Newton's method starts again from the present iterate.
        remaining = None if root.collapsed is None else without_arc([arc.arc for arc in solutions], root.collapsed)
        reason = root.reason or times_out_of_order(problem, solutions)
        if remaining is None and reason:
            return result_with(reason, root.status if root.reason else Status.NOT_AN_OPTIMUM)
        guess = motion_of(functions, solutions, jumps, REGIME_INTERVALS)
        next_arcs = remaining or arcs_of(problem, guess, SHORTEST_ARC * problem.horizon)
        # Chattering regimes: accept the assumed arcs if their control minimises the Hamiltonian everywhere.
        is_settled = remaining is None and (same_structure(next_arcs, arcs) or not_minimal(problem, solutions) is None)
        if is_settled and (_error_estimate(system, root, solutions) <= accuracy or 2 * elements > MAX_ELEMENTS):
            objection = _objection(problem, solutions, start, guess)
            return result_with(objection, motion=motion_of(functions, solutions, jumps, intervals))
        arcs, elements = (tuple(arc.arc for arc in solutions), 2 * elements) if is_settled else (next_arcs, elements)
    return result_with("the regimes of the minimiser do not converge", Status.ITERATION_LIMIT)


def _error_estimate(system: BoundarySystem, root: _NewtonEnd, solutions: Sequence[ArcSolution]) -> float:
    scales = system.scale(root.z)[system.nodes[0][0]]
    return float(max((arc.error_estimate() / scales).max() for arc in solutions))


def _objection(
    problem: HybridProblem, solutions: Sequence[ArcSolution], start: HybridMotion, motion: HybridMotion
) -> str | None:
    """Return the reason to reject a root, or None."""
    reason = (
        wrong_approach(problem, solutions, motion.jumps)
        or penetrated(problem, solutions)
        or not_minimal(problem, solutions)
    )
    if reason:
        return reason
    # A root with a higher cost than an admissible control cannot be the optimum.
    bound = simulated_objective(problem, start, SIMULATED_STEPS)
    if bound is not None and motion.objective > bound + OBJECTIVE_TOLERANCE * (1.0 + abs(bound)):
        return f"its objective {motion.objective:.9g} is above that of the start's control, {bound:.9g}"
    return None


def newton(system: BoundarySystem, z: Array, tolerance: float, steps: int) -> _NewtonEnd:
    """Run damped Newton with the natural monotonicity test (Deuflhard 2004)."""
    scale, previous, residual = system.scale(z), np.inf, np.inf

    def failed(reason: str, status: Status, collapsed: int | None = None) -> _NewtonEnd:
        return _NewtonEnd(
            z=z, residual=residual, iterations=iteration, reason=reason, status=status, collapsed=collapsed
        )

    for iteration in range(steps + 1):
        value, jacobian = system(z)
        if not np.isfinite(value).all() or not np.isfinite(jacobian.data).all():
            residual = np.inf
            return failed("a function is not finite", Status.NUMERICAL_ERROR)
        factored = _corrections(jacobian, scale)
        if factored is None:
            return failed("the equations are singular", Status.NO_DESCENT)
        correction_of, largest = factored
        residual, step = float(np.abs(value / largest).max()), correction_of(value)
        norm = float(np.abs(step).max())
        # Below ROUNDING_OF_CORRECTIONS, stop at the tolerance or when rounding prevents further decrease; take the last
        # correction.
        if norm <= ROUNDING_OF_CORRECTIONS and (norm <= tolerance or norm >= 0.5 * previous):
            return _NewtonEnd(z=z - scale * step, residual=residual, iterations=iteration + 1)
        if iteration == steps:
            break
        damping, previous = _damping(system, correction_of, z, scale, step), norm
        if damping is None:
            return failed("Newton's method finds no descent", Status.NO_DESCENT)
        z = z - damping * scale * step
        # Lengths stay positive by the damping, but may tend to zero if an arc does not exist.
        shortest = int(np.argmin(z[system.lengths]))
        if z[system.lengths[shortest]] < COLLAPSED * system.problem.horizon:
            iteration += 1
            return failed("the length of an arc or a phase has become zero", Status.NO_DESCENT, shortest)
    return failed(f"no convergence in {steps} steps", Status.ITERATION_LIMIT)


def _corrections(jacobian: csc_matrix, scale: Array) -> tuple[Callable[[Array], Array], Array] | None:
    """Factorise the Jacobian, scaled by unknowns and rows; return the solver and row scales, or None if singular."""
    scaled = jacobian @ diags(scale)
    # Row scaling makes residuals of different units (states, costates, guards) comparable.
    largest = abs(scaled).max(axis=1).toarray().ravel()
    if not largest.all():
        return None
    try:
        factors = splu((diags(1.0 / largest) @ scaled).tocsc())
    except RuntimeError:
        return None
    return lambda residual: np.asarray(factors.solve(residual / largest)), largest


def _damping(
    system: BoundarySystem, correction_of: Callable[[Array], Array], z: Array, scale: Array, step: Array
) -> float | None:
    """Return the largest damping with a shorter simplified correction and positive arc lengths, or None."""
    norm = np.linalg.norm(step)
    lengths, decrease = z[system.lengths], (scale * step)[system.lengths]
    # Keep all arcs positive: a negative length would integrate backwards.
    limit = np.min(np.where(decrease > 0.0, MAX_SHRINKAGE * lengths / np.maximum(decrease, 1e-300), np.inf))
    damping = min(1.0, float(limit))
    if np.abs(step).max() <= ROUNDING_OF_CORRECTIONS:  # the test would compare rounding errors
        return damping
    while damping >= SMALLEST_DAMPING * min(1.0, limit):
        value, _ = system(z - damping * scale * step)
        if np.isfinite(value).all() and np.linalg.norm(correction_of(value)) <= (1.0 - 0.25 * damping) * norm:
            return damping
        damping *= 0.5
    return None
