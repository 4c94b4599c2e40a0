"""Arcs: pieces of a phase on which the minimiser of the Hamiltonian follows one smooth law.

Bounds on the control and costs with kinks make u*(x, lambda) piecewise smooth. Collocation keeps its order only if the
points between two laws are ends of elements, so the boundary-value problem has one set of elements per arc.

Arcs are read from the regimes of a motion at its nodes. Coarse nodes show short arcs that do not exist; pieces below a
least length are merged with their neighbours, and an arc that is missing is found when the solution shows its regime
(`boundary_value`).
"""

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
    """Arc from `start` to `end` [s] in a phase (numbered from 0) with one regime of the minimiser."""

    phase: int
    regime: Digits
    start: float
    end: float


@dataclass(frozen=True, eq=False, kw_only=True)
class ArcSolution:
    """Solution on an arc: state, costate and control as collocation polynomials on E equal elements.

    Attributes
    ----------
    arc : Arc
        Arc with the solved times.
    tableau : Tableau
        Gauss-Legendre tableau with n_s stages.
    nodes : (E + 1, 2 n_x)
        (x, lambda) at the ends of the elements.
    stages : (E, n_s, 2 n_x)
        (x, lambda) at the stages.
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
        """Return (x, lambda) at fractions (m,) in [0, 1] of every element: (E, m, 2 n_x)."""
        basis = lagrange_basis(np.append(0.0, self.tableau.c), fractions)
        values = np.concatenate([self.nodes[:-1, None], self.stages], axis=1)
        return np.einsum("mk,eky->emy", basis, values)

    def times(self, fractions: Array) -> Array:
        """Return the times [s] at fractions (m,) of every element: (E, m)."""
        times = self.arc.start + self.step * (np.arange(len(self.stages))[:, None] + fractions)
        # Rounding must not put a time beyond the collision that ends the arc.
        return np.minimum(times, self.arc.end)

    def error_estimate(self) -> Array:
        """Return an estimate of the error of (x, lambda) between the nodes, (2 n_x,).

        The derivative is a polynomial of degree n_s - 1. The estimate extrapolates the decay of the contributions of
        its last two Legendre coefficients to the integral, as if they fell geometrically.
        """
        tableau = self.tableau
        # Derivative at the stages, from the collocation equations stages - node = h a rates.
        rates = np.linalg.solve(tableau.a, self.stages - self.nodes[:-1, None])  # of y by the fraction of the element
        basis = legendre.legvander(2.0 * tableau.c - 1.0, tableau.stages - 1)[:, -2:] * tableau.b[:, None]
        previous, last = np.abs(np.einsum("jk,ejy->key", basis, rates)).max(axis=1)
        # A sequence that does not fall is not extrapolated.
        return np.asarray(last * np.minimum(1.0, last / np.maximum(previous, 1e-300)))

    def interpolated_control(self, fractions: Array) -> Array:
        """Return u at fractions (m,) of every element, (E, m, n_u), by its stage polynomial (not by the exact law)."""
        return np.einsum("mk,eku->emu", lagrange_basis(self.tableau.c, fractions), self.u)


def arcs_of(problem: HybridProblem, motion: HybridMotion, min_length: float) -> tuple[Arc, ...]:
    """Return the arcs of a motion with costates; pieces of at most `min_length` [s] are merged with neighbours."""
    return tuple(
        arc for index, phase in enumerate(motion.phases) for arc in _phase_arcs(problem, index, phase, min_length)
    )


def without_arc(arcs: Sequence[Arc], dropped: int) -> tuple[Arc, ...] | None:
    """Remove an arc of zero length and merge equal neighbours; None if it is the only arc of its phase."""
    removed = arcs[dropped]
    rest = [*arcs[:dropped], *arcs[dropped + 1 :]]
    if not any(arc.phase == removed.phase for arc in rest):
        return None
    return tuple(_merged(rest))


def same_structure(first: Sequence[Arc], second: Sequence[Arc]) -> bool:
    """True if both have the same regimes in the same order."""
    return [(arc.phase, arc.regime) for arc in first] == [(arc.phase, arc.regime) for arc in second]


def _phase_arcs(problem: HybridProblem, index: int, phase: MotionPhase, min_length: float) -> list[Arc]:
    assert phase.costate is not None
    # One control per node, as starts of the numeric minimiser; the last interval serves both of its ends.
    controls = np.vstack([phase.u, phase.u[-1:]])
    digits = problem.minimiser.regimes(phase.x, phase.costate, controls)
    changes = np.flatnonzero((digits[1:] != digits[:-1]).any(axis=1)) + 1
    # The true switch lies somewhere between two nodes with different digits; take the middle.
    edges = [phase.t[0], *(0.5 * (phase.t[changes - 1] + phase.t[changes])), phase.t[-1]]
    starts = [0, *changes]
    arcs = [
        Arc(phase=index, regime=tuple(map(int, digits[first])), start=float(a), end=float(b))
        for first, (a, b) in zip(starts, pairwise(edges), strict=True)
    ]
    while len(arcs) > 1:
        # Remove the shortest piece first: its neighbours are often the same regime and merge.
        shortest = min(range(len(arcs)), key=lambda k: arcs[k].end - arcs[k].start)
        if arcs[shortest].end - arcs[shortest].start > min_length:
            break
        arcs = _merged(arcs[:shortest] + arcs[shortest + 1 :])
    return _without_gaps(arcs, float(phase.t[0]), float(phase.t[-1]))


def _merged(arcs: Sequence[Arc]) -> list[Arc]:
    """Merge neighbouring arcs of one phase with the same regime."""
    runs = [list(run) for _, run in groupby(arcs, key=lambda arc: (arc.phase, arc.regime))]
    return [replace(run[0], end=run[-1].end) for run in runs]


def _without_gaps(arcs: Sequence[Arc], start: float, end: float) -> list[Arc]:
    """Extend arcs to the middle of the gaps between them."""
    cuts = [start, *[0.5 * (a.end + b.start) for a, b in pairwise(arcs)], end]
    pairs = zip(arcs, pairwise(cuts), strict=True)
    return [replace(arc, start=a, end=b) for arc, (a, b) in pairs]
