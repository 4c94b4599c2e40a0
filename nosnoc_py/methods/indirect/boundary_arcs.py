"""Arcs: pieces of a phase in which the minimiser of the Hamiltonian follows one smooth law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np
from numpy.polynomial import legendre

from nosnoc_py.methods.indirect.motion import HybridMotion, MotionPhase
from nosnoc_py.methods.indirect.problem import HybridProblem
from nosnoc_py.tableaus import Tableau, lagrange_basis

Array = np.ndarray
Digits = tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Arc:
    """From `start` to `end` [s], in a phase (counted from 0), in one regime of the minimiser."""

    phase: int
    regime: Digits
    start: float
    end: float


@dataclass(frozen=True, eq=False, kw_only=True)
class ArcSolution:
    """State, costate and control on an arc, as collocation polynomials on E equal elements.

    Attributes
    ----------
    arc : Arc
        With the times that were found.
    tableau : Tableau
        Of n_s stages.
    nodes : (E + 1, 2 n_x)
        (x, lambda) at the ends of the elements.
    stages : (E, n_s, 2 n_x)
    u : (E, n_s, n_u)
        Control at the stages.
    ends : (2, n_u)
        Control at the ends of the arc.
    """

    arc: Arc
    tableau: Tableau
    nodes: Array
    stages: Array
    u: Array
    ends: Array

    @property
    def step(self) -> float:
        """Length of an element [s]."""
        return (self.arc.end - self.arc.start) / len(self.stages)

    def at(self, fractions: Array) -> Array:
        """(x, lambda) at fractions (m,) of every element: (E, m, 2 n_x)."""
        basis = lagrange_basis(np.append(0.0, self.tableau.c), fractions)
        values = np.concatenate([self.nodes[:-1, None], self.stages], axis=1)
        return np.einsum("mk,eky->emy", basis, values)

    def times(self, fractions: Array) -> Array:
        """The times of these points: (E, m)."""
        found = self.arc.start + self.step * (np.arange(len(self.stages))[:, None] + fractions)
        return np.minimum(found, self.arc.end)

    def roughness(self) -> Array:
        """About the error between the nodes of (x, lambda), (2 n_x,).

        The derivative is a polynomial of degree n_s - 1; what its last Legendre coefficients contribute to the integral
        falls from one to the next, and is taken to fall on like that.
        """
        tableau = self.tableau
        slopes = np.linalg.solve(tableau.a, self.stages - self.nodes[:-1, None])  # of y by the fraction of the element
        basis = legendre.legvander(2.0 * tableau.c - 1.0, tableau.stages - 1)[:, -2:] * tableau.b[:, None]
        before, last = np.abs(np.einsum("jk,ejy->key", basis, slopes)).max(axis=1)
        return np.asarray(last * np.minimum(1.0, last / np.maximum(before, 1e-300)))

    def near_control(self, fractions: Array) -> Array:
        """u at fractions (m,) of every element, (E, m, n_u): the polynomial of its stages, less exact than the law."""
        return np.einsum("mk,eku->emu", lagrange_basis(self.tableau.c, fractions), self.u)


def arcs_of(problem: HybridProblem, motion: HybridMotion, sliver: float) -> tuple[Arc, ...]:
    """The arcs of a motion with costates; runs of nodes that last less than `sliver` [s] count as their neighbours."""
    return tuple(arc for index, phase in enumerate(motion.phases) for arc in _phase_arcs(problem, index, phase, sliver))


def without(arcs: Sequence[Arc], dropped: int) -> tuple[Arc, ...] | None:
    """The arcs without one that has no length, its neighbours made one if they are alike; None if it is a phase."""
    gone = arcs[dropped]
    rest = [*arcs[:dropped], *arcs[dropped + 1 :]]
    if not any(arc.phase == gone.phase for arc in rest):
        return None
    return tuple(_joined(rest))


def same_structure(one: Sequence[Arc], other: Sequence[Arc]) -> bool:
    """Whether the regimes come in the same order."""
    return [(arc.phase, arc.regime) for arc in one] == [(arc.phase, arc.regime) for arc in other]


def _phase_arcs(problem: HybridProblem, index: int, phase: MotionPhase, sliver: float) -> list[Arc]:
    assert phase.costate is not None
    near = np.vstack([phase.u, phase.u[-1:]])
    digits = problem.minimiser.regimes(phase.x, phase.costate, near)
    changes = np.flatnonzero((digits[1:] != digits[:-1]).any(axis=1)) + 1
    edges = [phase.t[0], *(0.5 * (phase.t[changes - 1] + phase.t[changes])), phase.t[-1]]
    starts = [0, *changes]
    found = [
        Arc(phase=index, regime=tuple(map(int, digits[first])), start=float(a), end=float(b))
        for first, (a, b) in zip(starts, pairwise(edges), strict=True)
    ]
    while len(found) > 1:
        shortest = min(range(len(found)), key=lambda k: found[k].end - found[k].start)
        if found[shortest].end - found[shortest].start > sliver:
            break
        found = _joined(found[:shortest] + found[shortest + 1 :])
    return _stretched(found, float(phase.t[0]), float(phase.t[-1]))


def _joined(arcs: Sequence[Arc]) -> list[Arc]:
    """Neighbours in the same regime of one phase become one arc."""
    runs = [list(run) for _, run in groupby(arcs, key=lambda arc: (arc.phase, arc.regime))]
    return [replace(run[0], end=run[-1].end) for run in runs]


def _stretched(arcs: Sequence[Arc], start: float, end: float) -> list[Arc]:
    """Gaps between arcs are closed in their middle."""
    cuts = [start, *[0.5 * (a.end + b.start) for a, b in pairwise(arcs)], end]
    pairs = zip(arcs, pairwise(cuts), strict=True)
    return [replace(arc, start=a, end=b) for arc, (a, b) in pairs]
