"""What the boundary-value problem found, as a `Motion`; and the controls of other motions, simulated exactly."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import casadi as ca
import numpy as np

from nosnoc_py.indirect.boundary_arcs import ArcSolution
from nosnoc_py.indirect.boundary_functions import BoundaryFunctions
from nosnoc_py.indirect.forward import Forward
from nosnoc_py.indirect.motion import Motion, Phase
from nosnoc_py.indirect.problem import HybridProblem, with_cost
from nosnoc_py.indirect.sweep import SweepFailure

Array = np.ndarray


def motion_of(
    functions: BoundaryFunctions, arcs: Sequence[ArcSolution], jumps: Sequence[int], intervals: int
) -> Motion:
    """Phases of arcs, every element cut into so many parts that about `intervals` make up the horizon.

    States and costates at the nodes, and dense output between them, are the collocation polynomials; the control has
    dense output, too. Its means on the intervals are of second order in their lengths: a simulation with means has
    velocities that are exact at the nodes where u enters linearly with constant factors.
    """
    phases = []
    for index in range(len(jumps) + 1):
        parts = [_part(functions, arc, intervals) for arc in arcs if arc.arc.phase == index]
        phases.append(_joined(parts))
    return Motion(phases=tuple(phases), jumps=tuple(jumps), objective=objective(functions, arcs))


def objective(functions: BoundaryFunctions, arcs: Sequence[ArcSolution]) -> float:
    """phi(x(T)) plus the integral of L by the Gauss quadrature of the collocation."""
    problem, n_x = functions.problem, functions.problem.n_x
    total = 0.0
    for arc in arcs:
        elements, stages = arc.u.shape[:2]
        rate = functions.cost(elements * stages)(
            arc.stages[:, :, :n_x].reshape(-1, n_x), arc.u.reshape(-1, problem.n_u)
        )
        total += arc.step * float(rate[0].reshape(elements, stages).sum(axis=0) @ arc.tableau.b)
    final = ca.Function("final", [problem.x], [problem.terminal_cost])
    return total + float(final(arcs[-1].nodes[-1, :n_x]))


def simulated_objective(problem: HybridProblem, motion: Motion, steps: int) -> float | None:
    """The objective of the control of a motion, held on equal steps, with exact times of collisions; None if it fails.

    The motion of an Euler scheme has an objective that is wrong by O(1/N), in either direction. Its control is
    admissible, whatever it came from: what it costs in truth, no optimum costs more.
    """
    extended = with_cost(problem)
    t = np.concatenate([phase.t[1:] for phase in motion.phases])
    u = np.vstack([phase.u for phase in motion.phases])
    middles = (np.arange(steps) + 0.5) * problem.horizon / steps
    rows = np.minimum(np.searchsorted(t, middles, "right"), len(u) - 1)
    try:
        final = Forward(extended, steps, scheme="rk4", after="same")(u[rows]).x[-1]
    except SweepFailure:
        return None
    return float(ca.Function("final", [problem.x], [problem.terminal_cost])(final[:-1])) + float(final[-1])


def control_at(functions: BoundaryFunctions, arc: ArcSolution, fractions: Array) -> Array:
    """The control at fractions (m,) of every element, (E, m, n_u), from (x, lambda) there."""
    points, near = arc.at(fractions), arc.near_control(fractions)
    flat = points.reshape(-1, points.shape[2])
    if functions.law(arc.arc.regime).w.numel() == 0:
        return functions.control(arc.arc.regime, len(flat))(flat).reshape(near.shape)
    problem = functions.problem
    u = problem.minimiser.mapped(len(flat))(flat[:, : problem.n_x], flat[:, problem.n_x :], near.reshape(len(flat), -1))
    return u.reshape(near.shape)


def _part(functions: BoundaryFunctions, arc: ArcSolution, intervals: int) -> Phase:
    """One arc as a phase of its own, every element cut into so many intervals."""
    problem, tableau = functions.problem, arc.tableau
    cuts, n_x = max(1, ceil(intervals * arc.step / problem.horizon - 1e-9)), problem.n_x
    edges = np.linspace(0.0, 1.0, cuts + 1)
    places = (edges[:-1, None] + tableau.c / cuts).ravel()
    stages = arc.at(places).reshape(len(arc.stages) * cuts, -1, 2 * n_x)[:, :, :n_x]
    left = arc.at(edges[:-1]).reshape(-1, 2 * n_x)
    left[::cuts] = arc.nodes[:-1]
    nodes = np.vstack([left, arc.nodes[-1]])
    u = control_at(functions, arc, places).reshape(len(left), tableau.stages, -1)
    return Phase(
        t=np.append(arc.times(edges[:-1]).ravel(), arc.arc.end),
        x=nodes[:, :n_x],
        costate=nodes[:, n_x:],
        u=np.einsum("j,kji->ki", tableau.b, u),
        c=tableau.c,
        x_stages=stages,
        u_c=tableau.c,
        u_left=control_at(functions, arc, edges[:-1]).reshape(len(left), -1),
        u_stages=u,
    )


def _joined(parts: Sequence[Phase]) -> Phase:
    """The arcs of one phase, one after the other."""

    def joined(name: str) -> Array:
        return np.concatenate([getattr(part, name) for part in parts])

    def nodes(name: str) -> Array:
        values = [getattr(part, name) for part in parts]
        return np.concatenate([values[0][:1], *[value[1:] for value in values]])

    first = parts[0]
    return Phase(
        t=nodes("t"),
        x=nodes("x"),
        costate=nodes("costate"),
        u=joined("u"),
        c=first.c,
        x_stages=joined("x_stages"),
        u_c=first.u_c,
        u_left=joined("u_left"),
        u_stages=joined("u_stages"),
    )
