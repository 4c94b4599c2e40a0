"""What the boundary-value problem found, as a `Motion`; and the controls of other motions, simulated exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from nosnoc_py.indirect.boundary_arcs import ArcSolution
from nosnoc_py.indirect.boundary_functions import BoundaryFunctions
from nosnoc_py.indirect.motion import Motion, Phase
from nosnoc_py.indirect.problem import HybridProblem
from nosnoc_py.indirect.switching_start import moved_by

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
    return total + float(problem.terminal(arcs[-1].nodes[-1, :n_x])[0][0, 0])


def simulated_objective(problem: HybridProblem, motion: Motion, steps: int) -> float | None:
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

    def joined(name: str, first: int = 0) -> Array:
        return np.concatenate([getattr(parts[0], name)[:first], *[getattr(part, name)[first:] for part in parts]])

    nodes = {name: joined(name, 1) for name in ("t", "x", "costate")}
    return replace(parts[0], **nodes, **{name: joined(name) for name in ("u", "x_stages", "u_left", "u_stages")})
