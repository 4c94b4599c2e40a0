"""Multi-point boundary-value problem of the hybrid minimum principle (HMP, Eqs. 2-4, 8-12) as sparse equations.

On every arc, (x, lambda) satisfy x' = H_lambda, lambda' = -H_x with the control of the arc's regime, discretised by
Gauss-Legendre collocation (Ascher, Mattheij, Russell 1995). The lengths of the arcs are unknowns, so that collisions
and changes of the regime are ends of elements. Arcs of one phase are joined continuously. Between phases

    psi(x-) = 0,  x+ = g(x-),  lambda- = g_x' lambda+ + eta psi_x',  H- = H+,

and x(0) = x_0, lambda(T) = phi_x, and the lengths sum up to T. The system is square; each index array below (`nodes`,
`stages`, `ends`, `lengths`, `etas`) gives the positions of its unknowns in z.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import prod

import numpy as np
import scipy.sparse as sp

from nosnoc_py.methods.indirect.boundary_arcs import Arc, ArcSolution
from nosnoc_py.methods.indirect.boundary_functions import BoundaryFunctions, Equations
from nosnoc_py.methods.indirect.motion import HybridMotion, MotionPhase
from nosnoc_py.methods.indirect.problem import HybridProblem
from nosnoc_py.tableaus import gauss_legendre

Array = np.ndarray


# Equations with the indices of their unknowns in z.
LinkEquations = tuple[Equations, Array]


class BoundarySystem:
    """Residual and Jacobian of the boundary-value problem for a fixed sequence of arcs.

    Parameters
    ----------
    problem : HybridProblem
    arcs : sequence of Arc
    jumps : sequence of int
        Index of the jump after each phase but the last.
    elements, stages : int
        Elements per arc, and stages of Gauss-Legendre collocation per element (order 2 stages).
    functions : BoundaryFunctions
    """

    def __init__(
        self,
        problem: HybridProblem,
        arcs: Sequence[Arc],
        jumps: Sequence[int],
        elements: int,
        stages: int,
        functions: BoundaryFunctions,
    ) -> None:
        self.problem, self.arcs, self.jumps = problem, tuple(arcs), tuple(jumps)
        self.elements, self.tableau, self.functions = elements, gauss_legendre(stages), functions
        self.size, self._quadrature = 0, cache(self._quadrature_matrices)
        n_w = [self.functions.law(arc.regime).w.numel() for arc in arcs]
        # Order of unknowns; each array holds the indices of its entries in z.
        self.nodes = [self._allocate(elements + 1, 2 * problem.n_x) for _ in arcs]
        self.stages = [self._allocate(elements, stages, 2 * problem.n_x + n) for n in n_w]
        self.ends = [self._allocate(2, n) for n in n_w]
        self.lengths = self._allocate(len(arcs))
        self.etas = self._allocate(len(jumps))
        self.pieces = self._links()

    def _allocate(self, *shape: int) -> Array:
        self.size += prod(shape)
        return np.arange(self.size - prod(shape), self.size).reshape(shape)

    def __call__(self, z: Array) -> tuple[Array, sp.csc_matrix]:
        """Return the residual (size,) and the sparse Jacobian at z (size,)."""
        blocks = [block for index in range(len(self.arcs)) for block in self._arc(index, z)]
        for equations, unknowns in self.pieces:
            value, nonzeros = (out[:, 0] for out in equations.fast(z[unknowns]))
            blocks.append((value, self._sparse(value.size, nonzeros, equations.rows, unknowns[equations.columns])))
        # The last length is an unknown like the others, which keeps all arcs alike and the rows sparse.
        duration = np.atleast_1d(z[self.lengths].sum() - self.problem.horizon)
        blocks.append((duration, self._sparse(1, 1.0, 0, self.lengths)))
        values, jacobians = zip(*blocks, strict=True)
        return np.concatenate(values), sp.vstack(jacobians, format="csc")

    def _sparse(self, count: int, values: Array | float, rows: Array | int, columns: Array) -> sp.csr_matrix:
        """Return `count` rows of the Jacobian with the given entries (broadcast)."""
        values, rows, columns = (np.broadcast_to(part, columns.shape).ravel() for part in (values, rows, columns))
        return sp.csr_matrix((values, (rows, columns)), shape=(count, self.size))

    def _arc(self, index: int, z: Array) -> list[tuple[Array, sp.csr_matrix]]:
        """Return residual and Jacobian of the collocation on one arc and of its implicit control law."""
        regime, nodes = self.arcs[index].regime, self.nodes[index]
        stages, n = self.stages[index], 2 * self.problem.n_x
        points = stages.reshape(-1, stages.shape[2])
        count, field = len(points), self.functions.field(regime)
        values, entries = self.functions.field_of(regime, count)(z[points])
        rows = np.arange(count)[:, None] * len(values) + field.rows
        rates = values.T.ravel()  # of (x, lambda) and of the law, point by point
        rate_jacobian = self._sparse(rates.size, entries.T, rows, points[:, field.columns])
        weights, law_rows = self._quadrature(len(values))
        ends = np.concatenate([stages[:, :, :n], nodes[1:, None]], axis=1)
        # Row order: for each element its stages, then its right node, as in `weights`.
        starts, ends = np.broadcast_to(nodes[:-1, None], ends.shape).ravel(), ends.ravel()
        h, increments = z[self.lengths[index]] / self.elements, weights @ rates
        # Derivatives by the right value, the left value, and the length of the arc.
        unknowns = np.stack([ends, starts, np.full_like(ends, self.lengths[index])])
        factors = np.stack([np.ones(ends.size), -np.ones(ends.size), -increments / self.elements])
        jacobian = self._sparse(ends.size, factors, np.arange(ends.size), unknowns) - h * (weights @ rate_jacobian)
        return [(z[ends] - z[starts] - h * increments, jacobian), (law_rows @ rates, law_rows @ rate_jacobian)]

    def _quadrature_matrices(self, count: int) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """Return the matrix of collocation weights of (x, lambda), and the one that selects rows of the control law."""
        n, identity = 2 * self.problem.n_x, sp.identity(count, format="csr")
        weights = sp.kron(np.vstack([self.tableau.a, self.tableau.b]), identity[:n])
        law_rows = sp.kron(sp.identity(self.elements * self.tableau.stages), identity[n:], format="csr")
        return sp.kron(sp.identity(self.elements), weights, format="csr"), law_rows

    def _links(self) -> list[LinkEquations]:
        """Return the conditions at the start, between arcs and at the end."""
        f, arcs, last = self.functions, self.arcs, len(self.arcs) - 1
        pieces: list[LinkEquations] = [(f.start(arcs[0].regime), self._side(0, 0))]
        for k, (first, second) in enumerate(pairwise(arcs)):
            sides = np.concatenate([self._side(k, 1), self._side(k + 1, 0)])
            if first.phase == second.phase:
                pieces.append((f.switch(first.regime, second.regime), sides))
            else:
                unknowns = np.append(sides, self.etas[first.phase])
                pieces.append((f.collision(first.regime, second.regime, self.jumps[first.phase]), unknowns))
        return [*pieces, (f.end(arcs[last].regime), self._side(last, 1))]

    def _side(self, index: int, end: int) -> Array:
        # `end` is 0 or 1: -0 is the first node, -1 the last one.
        return np.concatenate([self.nodes[index][-end], self.ends[index][end]])

    def guess(self, motion: HybridMotion) -> Array:
        """Return initial unknowns (size,) by linear interpolation of a motion with costates."""
        z = np.zeros(self.size)
        c, n = self.tableau.c, 2 * self.problem.n_x
        for k, arc in enumerate(self.arcs):
            phase, length = motion.phases[arc.phase], arc.end - arc.start
            times = arc.start + length * np.linspace(0.0, 1.0, self.elements + 1)
            stage_times = times[:-1, None] + length / self.elements * c
            z[self.nodes[k]] = _interpolated(phase, times)
            z[self.stages[k][:, :, :n]] = _interpolated(phase, stage_times)
            # Only laws that are implicit in u have the control among their unknowns.
            if self.ends[k].size:
                z[self.stages[k][:, :, n:]] = self._minimisers(
                    z[self.stages[k][:, :, :n]], _control(phase, stage_times)
                )
                z[self.ends[k]] = self._minimisers(z[self.nodes[k][[0, -1]]], _control(phase, times[[0, -1]]))
            z[self.lengths[k]] = length
        for k, jump in enumerate(self.jumps):
            before, after = motion.phases[k], motion.phases[k + 1]
            assert before.costate is not None
            assert after.costate is not None
            z[self.etas[k]] = self.functions.eta(jump, before.x[-1], before.costate[-1], after.costate[0])
        return z

    def _minimisers(self, nodes: Array, start: Array) -> Array:
        """Return minimisers of the Hamiltonian at (x, lambda) (..., 2 n_x), started from controls (..., n_u)."""
        flat, n_x = nodes.reshape(-1, nodes.shape[-1]), self.problem.n_x
        u = start.reshape(len(flat), -1)
        return self.problem.minimiser.mapped(len(flat))(flat[:, :n_x], flat[:, n_x:], u).reshape(start.shape)

    def solutions(self, z: Array) -> tuple[ArcSolution, ...]:
        """Return the unknowns as collocation polynomials on arcs."""
        solutions, start, n = [], 0.0, 2 * self.problem.n_x
        for k, arc in enumerate(self.arcs):
            last = k == len(self.arcs) - 1
            # A sum of lengths would miss the horizon by rounding.
            end = self.problem.horizon if last else start + float(z[self.lengths[k]])
            stages = z[self.stages[k]]
            control = self.functions.control(arc.regime, self.elements * self.tableau.stages + 2)
            sides = np.vstack([z[self._side(k, 0)], z[self._side(k, 1)]])
            u = control(np.vstack([stages.reshape(-1, stages.shape[2]), sides]))
            solutions.append(
                ArcSolution(
                    arc=Arc(phase=arc.phase, regime=arc.regime, start=start, end=end),
                    tableau=self.tableau,
                    nodes=z[self.nodes[k]],
                    stages=stages[:, :, :n],
                    u=u[:-2].reshape(*stages.shape[:2], -1),
                    ends=u[-2:],
                )
            )
            start = end
        return tuple(solutions)

    def scale(self, z: Array) -> Array:
        """Return scales (size,) of the unknowns: the largest absolute value of each component over all nodes."""
        scale, n_x = np.ones(self.size), self.problem.n_x
        sizes = np.max([np.abs(z[nodes]).max(axis=0) for nodes in self.nodes], axis=0)
        for part in (sizes[:n_x], sizes[n_x:]):
            # A component that stays near zero must not get a tiny scale, or its rounding would dominate the norms.
            part[:] = np.maximum(part, 1e-2 * part.max()) if part.max() > 0 else 1.0
        for nodes, stages in zip(self.nodes, self.stages, strict=True):
            scale[nodes] = sizes
            scale[stages[:, :, : 2 * n_x]] = sizes
        scale[self.lengths] = self.problem.horizon
        # eta has the unit of a costate per guard gradient; a multiplier near zero gets the scale of the costates.
        scale[self.etas] = np.maximum(np.abs(z[self.etas]), 1e-2 * sizes[n_x:].max())
        return scale


def _interpolated(phase: MotionPhase, times: Array) -> Array:
    """Interpolate (x, lambda) linearly at times of any shape."""
    assert phase.costate is not None
    values = np.hstack([phase.x, phase.costate])
    return np.stack([np.interp(times, phase.t, column) for column in values.T], axis=-1)


def _control(phase: MotionPhase, times: Array) -> Array:
    interval = np.searchsorted(phase.t, times, "right") - 1
    # Times at the ends of a phase belong to its first and last interval.
    return np.asarray(phase.u[np.clip(interval, 0, len(phase.u) - 1)])
