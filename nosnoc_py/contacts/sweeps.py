"""Projected Gauss-Seidel sweeps over independent sets of contacts."""

from __future__ import annotations

import numpy as np

from nosnoc_py.contacts.cones import Projection
from nosnoc_py.contacts.rows import RowProblem


class Sweeps:
    """Impulses and velocity of contacts in the order of their colours, changed in place.

    Attributes
    ----------
    impulses : (m, w)
    v : (n_q + 1,)
    stiffness : (m, w)
        Rates per impulse.
    """

    def __init__(
        self, problem: RowProblem, parts: tuple[slice, ...], impulses: np.ndarray, projection: Projection
    ) -> None:
        self.problem, self.impulses, self.projection = problem, impulses.copy(), projection
        self.v = problem.velocity(impulses)
        self.stiffness = _stiffness(problem.blocks)
        inverse = 1.0 / self.stiffness
        self._parts = [
            (
                part,
                problem.rows[part],
                problem.dofs[part],
                problem.answers[part],
                problem.reached[part],
                problem.blocks[part, 1:, 0],
                inverse[part],
                problem.least[part],
                problem.friction[part],
            )
            for part in parts
        ]

    def put(self, impulses: np.ndarray) -> None:
        """Go on from other impulses (m, w)."""
        self.impulses = impulses
        self.v = self.problem.velocity(impulses)

    def sweep(self) -> None:
        """Solve contact after contact, those of one colour at once: first for the normal, then for the tangents."""
        v = self.v
        for part, rows, dofs, answers, reached, coupling, inverse, least, friction in self._parts:
            old = self.impulses[part]
            rates = np.einsum("mwk,mk->mw", rows, v[dofs])
            new = np.empty_like(old)
            new[:, 0] = np.maximum(old[:, 0] - (rates[:, 0] - least) * inverse[:, 0], 0.0)
            if old.shape[1] > 1:
                slip = rates[:, 1:] + coupling * (new[:, :1] - old[:, :1])
                new[:, 1:] = self.projection(old[:, 1:] - slip * inverse[:, 1:], friction * new[:, 0])
            v[reached] += np.einsum("mwk,mw->mk", answers, new - old)
            self.impulses[part] = new

    def residual(self) -> float:
        """How far the impulses are from the law [m/s]: what one more projection of every contact would change."""
        problem, f = self.problem, self.impulses
        self.v = problem.velocity(f)
        rates = problem.rates(self.v)
        normal = np.minimum(f[:, 0] * self.stiffness[:, 0], rates[:, 0] - problem.least)
        found = float(np.abs(normal).max(initial=0.0))
        if f.shape[1] > 1:
            free = f[:, 1:] - rates[:, 1:] / self.stiffness[:, 1:]
            moved = f[:, 1:] - self.projection(free, problem.friction * np.maximum(f[:, 0], 0.0))
            found = max(found, float(np.abs(moved * self.stiffness[:, 1:]).max(initial=0.0)))
        return found if np.isfinite(self.v).all() else np.nan


def _stiffness(blocks: np.ndarray) -> np.ndarray:
    """Rate per impulse (m, w): exact for the normal; for tangents the largest one in any direction."""
    stiffness = np.einsum("mww->mw", blocks).copy()
    if blocks.shape[1] == 3:
        a, b, c = blocks[:, 1, 1], blocks[:, 2, 2], 0.5 * (blocks[:, 1, 2] + blocks[:, 2, 1])
        stiffness[:, 1:] = (0.5 * (a + b) + np.hypot(0.5 * (a - b), c))[:, None]
    # A row of zeros is a tangent that a contact does not have.
    return np.where(stiffness > 0.0, stiffness, 1.0)
