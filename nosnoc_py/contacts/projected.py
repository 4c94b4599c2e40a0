"""Solves contact problems of steps: by sweeps, and by Newton's method where these take long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nosnoc_py.contacts.colours import Colouring
from nosnoc_py.contacts.cones import Projection
from nosnoc_py.contacts.newton import MOST_ROWS, STIFFEST, Newton
from nosnoc_py.contacts.rows import RowProblem, RowSolution
from nosnoc_py.contacts.sweeps import Sweeps

# Sweeps between two looks at the residual, before the first step of Newton's method, and between its steps.
CHECK_EVERY, BEFORE_NEWTON, BETWEEN = 5, 30, 8


class Solver:
    """Solves step problems to a residual of `tolerance` [m/s], or returns the best of `max_sweeps` sweeps.

    Parameters
    ----------
    projection : function
        Onto the section of the friction cone.
    tolerance : float
    max_sweeps : int
    newton : bool
        Whether to use Newton's method; for Coulomb's cone only.
    """

    def __init__(self, projection: Projection, tolerance: float, max_sweeps: int, newton: bool) -> None:
        self.projection, self.tolerance, self.max_sweeps, self.newton = projection, tolerance, max_sweeps, newton

    def solve(self, problem: RowProblem, colouring: Colouring, guess: np.ndarray) -> RowSolution:
        """Solve one problem from impulses `guess` (m, w)."""
        order = colouring.order
        work = _Search(Sweeps(_ordered(problem, order), colouring.parts, guess[order], self.projection), self)
        if self.newton and guess.size <= MOST_ROWS:
            work.accelerated(min(BEFORE_NEWTON, self.max_sweeps))
            work.newton()
        else:
            work.accelerated(self.max_sweeps)
        impulses = np.empty_like(work.best)
        impulses[order] = work.best
        velocity = problem.velocity(impulses)
        return RowSolution(impulses=impulses, velocity=velocity, sweeps=work.done, residual=work.least)


class _Search:
    """The way to a solution: sweeps done, and the best impulses so far."""

    def __init__(self, sweeps: Sweeps, solver: Solver) -> None:
        self.sweeps, self.solver, self.done = sweeps, solver, 0
        self.best, self.least = sweeps.impulses.copy(), sweeps.residual()

    @property
    def open(self) -> bool:
        """Whether to go on."""
        return self.least > self.solver.tolerance and self.done < self.solver.max_sweeps

    def look(self) -> float:
        """The residual here."""
        residual = self.sweeps.residual()
        if residual < self.least:
            self.best, self.least = self.sweeps.impulses.copy(), residual
        return residual

    def accelerated(self, most: int) -> None:
        """Sweeps with conjugate directions after Silcowitz, Niebe and Erleben.

        What a sweep changes is taken for a negative gradient; the directions are dropped where it has grown.
        """
        sweeps = self.sweeps
        direction, push, last = np.zeros_like(sweeps.impulses), np.zeros_like(sweeps.v), 0.0
        while self.open and self.done < most:
            self.done += 1
            impulses, v = sweeps.impulses.copy(), sweeps.v.copy()
            sweeps.sweep()
            change, shift = sweeps.impulses - impulses, sweeps.v - v
            # Residuals are hardly smaller than what a sweep changes: only where that is little it is worth the look.
            small = np.abs(change * sweeps.stiffness).max() <= self.solver.tolerance
            if small or self.done % CHECK_EVERY == 0 or self.done == most:
                self.look()
            size = float(np.sum(change * change * sweeps.stiffness))
            ratio = size / last if last > size else 0.0
            last = size
            if ratio > 0.0:
                sweeps.impulses += ratio * direction
                sweeps.v += ratio * push
            direction, push = change + ratio * direction, shift + ratio * push

    def newton(self) -> None:
        """Newton's steps with some sweeps after each, shorter ones where the residual grows."""
        if not self.open:
            return
        sweeps, damping = self.sweeps, STIFFEST
        newton, last = Newton(sweeps.problem, sweeps.stiffness), self.least
        while self.open:
            sweeps.put(newton.step(sweeps.impulses, damping))
            for _ in range(min(BETWEEN, self.solver.max_sweeps - self.done)):
                sweeps.sweep()
                self.done += 1
            residual = self.look()
            damping = damping / 3.0 if residual < last else min(4.0 * damping, 10.0 * STIFFEST)
            last = residual


def _ordered(problem: RowProblem, order: np.ndarray) -> RowProblem:
    fields = ("rows", "dofs", "answers", "reached", "blocks", "least", "friction")
    return replace(problem, **{name: getattr(problem, name)[order] for name in fields})
