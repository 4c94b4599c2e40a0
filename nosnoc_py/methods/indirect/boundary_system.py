"""The multi-point boundary-value problem of the hybrid minimum principle (HMP, Eqs. 2-4, 8-12) as sparse equations.

On every arc, (x, lambda) follow x' = H_lambda, lambda' = -H_x with the control of the arc's regime, by collocation; the
lengths of the arcs are unknown. Arcs of one phase meet continuously where their regimes do. Between phases

    psi(x-) = 0,  x+ = g(x-),  lambda- = g_x' lambda+ + eta psi_x',  H- = H+,

and x(0) = x_0, lambda(T) = phi_x, the lengths sum up to T.
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


# Equations with the places of their unknowns.
Piece = tuple[Equations, Array]


class BoundarySystem:
    """Residuals and Jacobian for given arcs; one object per structure of arcs.

    Parameters
    ----------
    problem : HybridProblem
    arcs : sequence of Arc
    jumps : sequence of int
        Which jump comes after which phase.
    elements, stages : int
        Elements per arc, and stages of Gauss-Legendre collocation on each: order 2 stages.
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
        self.size, self._sums = 0, cache(self._weighted)
        n_w = [self.functions.law(arc.regime).w.numel() for arc in arcs]
        self.nodes = [self._take(elements + 1, 2 * problem.n_x) for _ in arcs]
        self.stages = [self._take(elements, stages, 2 * problem.n_x + n) for n in n_w]
        self.ends = [self._take(2, n) for n in n_w]
        self.lengths = self._take(len(arcs))
        self.etas = self._take(len(jumps))
        self.pieces = self._links()

    def _take(self, *shape: int) -> Array:
        self.size += prod(shape)
        return np.arange(self.size - prod(shape), self.size).reshape(shape)

    def __call__(self, z: Array) -> tuple[Array, sp.csc_matrix]:
        """Residual (size,) and Jacobian at z (size,)."""
        blocks = [block for index in range(len(self.arcs)) for block in self._arc(index, z)]
        for equations, unknowns in self.pieces:
            value, nonzeros = (out[:, 0] for out in equations.fast(z[unknowns]))
            blocks.append((value, self._sparse(value.size, nonzeros, equations.rows, unknowns[equations.columns])))
        total = np.atleast_1d(z[self.lengths].sum() - self.problem.horizon)
        blocks.append((total, self._sparse(1, 1.0, 0, self.lengths)))
        values, slopes = zip(*blocks, strict=True)
        return np.concatenate(values), sp.vstack(slopes, format="csc")

    def _sparse(self, count: int, values: Array | float, rows: Array | int, columns: Array) -> sp.csr_matrix:
        """Entries of so many rows of the Jacobian."""
        values, rows, columns = (np.broadcast_to(part, columns.shape).ravel() for part in (values, rows, columns))
        return sp.csr_matrix((values, (rows, columns)), shape=(count, self.size))

    def _arc(self, index: int, z: Array) -> list[tuple[Array, sp.csr_matrix]]:
        """Collocation on one arc, and the laws of its control where they are implicit."""
        regime, nodes = self.arcs[index].regime, self.nodes[index]
        stages, n = self.stages[index], 2 * self.problem.n_x
        points = stages.reshape(-1, stages.shape[2])
        count, field = len(points), self.functions.field(regime)
        values, entries = self.functions.field_of(regime, count)(z[points])
        places = np.arange(count)[:, None] * len(values) + field.rows
        rates = values.T.ravel()  # of (x, lambda) and of the law, point by point
        slopes = self._sparse(rates.size, entries.T, places, points[:, field.columns])
        weights, laws = self._sums(len(values))
        ends = np.concatenate([stages[:, :, :n], nodes[1:, None]], axis=1)
        starts, ends = np.broadcast_to(nodes[:-1, None], ends.shape).ravel(), ends.ravel()
        h, moved = z[self.lengths[index]] / self.elements, weights @ rates
        unknowns = np.stack([ends, starts, np.full_like(ends, self.lengths[index])])
        factors = np.stack([np.ones(ends.size), -np.ones(ends.size), -moved / self.elements])
        jacobian = self._sparse(ends.size, factors, np.arange(ends.size), unknowns) - h * (weights @ slopes)
        return [(z[ends] - z[starts] - h * moved, jacobian), (laws @ rates, laws @ slopes)]

    def _weighted(self, count: int) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """What sums up, of so many rates at every stage, those of (x, lambda) as collocation does, and picks others."""
        n, every = 2 * self.problem.n_x, sp.identity(count, format="csr")
        weights = sp.kron(np.vstack([self.tableau.a, self.tableau.b]), every[:n])
        laws = sp.kron(sp.identity(self.elements * self.tableau.stages), every[n:], format="csr")
        return sp.kron(sp.identity(self.elements), weights, format="csr"), laws

    def _links(self) -> list[Piece]:
        """What holds at the start, between arcs and at the end."""
        f, arcs, last = self.functions, self.arcs, len(self.arcs) - 1
        pieces: list[Piece] = [(f.start(arcs[0].regime), self._side(0, 0))]
        for k, (one, other) in enumerate(pairwise(arcs)):
            sides = np.concatenate([self._side(k, 1), self._side(k + 1, 0)])
            if one.phase == other.phase:
                pieces.append((f.switch(one.regime, other.regime), sides))
            else:
                unknowns = np.append(sides, self.etas[one.phase])
                pieces.append((f.collision(one.regime, other.regime, self.jumps[one.phase]), unknowns))
        return [*pieces, (f.end(arcs[last].regime), self._side(last, 1))]

    def _side(self, index: int, end: int) -> Array:
        return np.concatenate([self.nodes[index][-end], self.ends[index][end]])

    def guess(self, motion: HybridMotion) -> Array:
        """Unknowns (size,) from a motion with costates: straight lines between its nodes."""
        z = np.zeros(self.size)
        c, n = self.tableau.c, 2 * self.problem.n_x
        for k, arc in enumerate(self.arcs):
            phase, length = motion.phases[arc.phase], arc.end - arc.start
            places = arc.start + length * np.linspace(0.0, 1.0, self.elements + 1)
            inner = places[:-1, None] + length / self.elements * c
            z[self.nodes[k]] = _costate_lines(phase, places)
            z[self.stages[k][:, :, :n]] = _costate_lines(phase, inner)
            if self.ends[k].size:
                z[self.stages[k][:, :, n:]] = self._minimisers(z[self.stages[k][:, :, :n]], _control(phase, inner))
                z[self.ends[k]] = self._minimisers(z[self.nodes[k][[0, -1]]], _control(phase, places[[0, -1]]))
            z[self.lengths[k]] = length
        for k, jump in enumerate(self.jumps):
            before, after = motion.phases[k], motion.phases[k + 1]
            assert before.costate is not None
            assert after.costate is not None
            z[self.etas[k]] = self.functions.eta(jump, before.x[-1], before.costate[-1], after.costate[0])
        return z

    def _minimisers(self, nodes: Array, near: Array) -> Array:
        """What minimises the Hamiltonian at (x, lambda) (..., 2 n_x), found from controls (..., n_u)."""
        flat, n_x = nodes.reshape(-1, nodes.shape[-1]), self.problem.n_x
        u = near.reshape(len(flat), -1)
        return self.problem.minimiser.mapped(len(flat))(flat[:, :n_x], flat[:, n_x:], u).reshape(near.shape)

    def solutions(self, z: Array) -> tuple[ArcSolution, ...]:
        """The unknowns as polynomials on arcs."""
        found, start, n = [], 0.0, 2 * self.problem.n_x
        for k, arc in enumerate(self.arcs):
            last = k == len(self.arcs) - 1
            end = self.problem.horizon if last else start + float(z[self.lengths[k]])
            stages = z[self.stages[k]]
            control = self.functions.control(arc.regime, self.elements * self.tableau.stages + 2)
            sides = np.vstack([z[self._side(k, 0)], z[self._side(k, 1)]])
            u = control(np.vstack([stages.reshape(-1, stages.shape[2]), sides]))
            found.append(
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
        return tuple(found)

    def scale(self, z: Array) -> Array:
        """Sizes (size,) of the unknowns: the largest of their kind, by component."""
        scale, n_x = np.ones(self.size), self.problem.n_x
        sizes = np.max([np.abs(z[nodes]).max(axis=0) for nodes in self.nodes], axis=0)
        for part in (sizes[:n_x], sizes[n_x:]):
            part[:] = np.maximum(part, 1e-2 * part.max()) if part.max() > 0 else 1.0
        for nodes, stages in zip(self.nodes, self.stages, strict=True):
            scale[nodes] = sizes
            scale[stages[:, :, : 2 * n_x]] = sizes
        scale[self.lengths] = self.problem.horizon
        scale[self.etas] = np.maximum(np.abs(z[self.etas]), 1e-2 * sizes[n_x:].max())
        return scale


def _costate_lines(phase: MotionPhase, times: Array) -> Array:
    """(x, lambda) at times of any shape: straight lines between the nodes of a phase."""
    assert phase.costate is not None
    values = np.hstack([phase.x, phase.costate])
    return np.stack([np.interp(times, phase.t, column) for column in values.T], axis=-1)


def _control(phase: MotionPhase, times: Array) -> Array:
    place = np.searchsorted(phase.t, times, "right") - 1
    return np.asarray(phase.u[np.clip(place, 0, len(phase.u) - 1)])
