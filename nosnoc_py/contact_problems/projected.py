"""Solves contact problems of steps: by sweeps, and by Newton's method where these take long.

The sweeps are projected Gauss-Seidel steps over independent sets of contacts: they find modes soon, and forces in them
slowly. Newton's method starts from where they are. Where contacts are few it is tried first, from the last step's
impulses: contacts that keep their modes take one step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nosnoc_py.contact_problems.colours import Colouring
from nosnoc_py.contact_problems.cones import Projection, onto_disc
from nosnoc_py.contact_problems.rows import RowProblem, RowSolution

# Sweeps between two looks at the residual, before the first step of Newton's method, and between its steps.
CHECK_EVERY, BEFORE_NEWTON, BETWEEN = 5, 30, 8
# With no more rows Newton's method is tried before any sweep, by so many steps.
FEW_ROWS, TRIED = 60, 6


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
        ordered = problem if colouring.sorted else _ordered(problem, order)
        work = _ImpulseSearch(Sweeps(ordered, colouring.parts, guess[order], self.projection), self)
        # Contacts that share no body are solved by one sweep each, exactly.
        if self.newton and guess.size <= FEW_ROWS and len(colouring.parts) > 1:
            work.tried()
        if self.newton and guess.size <= MOST_ROWS:
            work.accelerated(min(BEFORE_NEWTON, self.max_sweeps))
            work.newton()
        else:
            work.accelerated(self.max_sweeps)
        impulses = np.empty_like(work.best)
        impulses[order] = work.best
        velocity = problem.velocity(impulses)
        return RowSolution(impulses=impulses, velocity=velocity, sweeps=work.done, residual=work.least)


class _ImpulseSearch:
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

    def tried(self) -> None:
        """Newton's steps without sweeps, as long as each brings the residual down; on from the best of them."""
        if not self.open:
            return
        sweeps, last = self.sweeps, np.inf
        newton = Newton(sweeps.problem, sweeps.stiffness)
        for _ in range(TRIED):
            if not self.open or not self.least < last:
                break
            last = self.least
            sweeps.put(newton.step(sweeps.impulses, LEAST_DAMPING))
            self.done += 1
            self.look()
        if self.open:
            sweeps.put(self.best.copy())

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
            sweeps.put(newton.step(sweeps.impulses, damping + ROUNDING))
            for _ in range(min(BETWEEN, self.solver.max_sweeps - self.done)):
                sweeps.sweep()
                self.done += 1
            residual = self.look()
            damping = damping / 3.0 if residual < last else min(4.0 * damping, 10.0 * STIFFEST)
            last = residual


def _ordered(problem: RowProblem, order: np.ndarray) -> RowProblem:
    fields = ("rows", "dofs", "answers", "reached", "blocks", "least", "friction")
    return replace(problem, **{name: getattr(problem, name)[order] for name in fields})


class Sweeps:
    """Impulses and velocity of contacts in the order of their colours, changed in place.

    Attributes
    ----------
    impulses : (m, w)
    v : (n_v + 1,)
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


# First damping, in units of the stiffness of a contact.
STIFFEST = 1e-2
ROUNDING = 1e-9
# Without sweeps behind it a step has to be exact: this only keeps redundant contacts apart.
LEAST_DAMPING = 1e-13
# More rows are left to the sweeps, which need no matrix.
MOST_ROWS = 1200


class Newton:
    """Semismooth Newton steps on what a projection of every contact would change; Coulomb's cone only.

    Parameters
    ----------
    problem : RowProblem
    stiffness : (m, w)
        Rates per impulse.
    """

    def __init__(self, problem: RowProblem, stiffness: np.ndarray) -> None:
        count, self.width = stiffness.shape
        size = problem.free.size
        rows, answers = np.zeros((count, self.width, size)), np.zeros((count, self.width, size))
        np.put_along_axis(rows, np.broadcast_to(problem.dofs[:, None, :], problem.rows.shape), problem.rows, axis=2)
        reached = np.broadcast_to(problem.reached[:, None, :], problem.answers.shape)
        np.put_along_axis(answers, reached, problem.answers, axis=2)
        flat = rows[..., :-1].reshape(-1, size - 1)
        self._scale = 1.0 / stiffness
        # Rows of the Delassus matrix in units of impulse; its offset so that the normal part is r_n - c.
        self._matrix = flat @ answers[..., :-1].reshape(-1, size - 1).T * self._scale.reshape(-1, 1)
        offset = problem.rates(problem.free)
        offset[:, 0] -= problem.least
        self._offset, self._friction = offset * self._scale, problem.friction

    def step(self, impulses: np.ndarray, damping: float) -> np.ndarray:
        """Impulses (m, w) after one step, on their cones.

        Redundant contacts share their forces in many ways, and modes that are not yet right may have no forces at all:
        the damping keeps them near to those of the sweeps. It does not change the solution.
        """
        rates = (self._matrix @ impulses.reshape(-1)).reshape(impulses.shape) + self._offset
        closed = impulses[:, 0] > rates[:, 0]
        system, rest = self._matrix.copy(), rates.copy()
        system[np.diag_indices_from(system)] += damping
        numbers = np.arange(impulses.size).reshape(impulses.shape)
        _replace(system, rest, numbers[~closed].reshape(-1), impulses[~closed].reshape(-1))
        if self.width > 1:
            self._slip(system, rest, numbers, impulses, rates, closed)
        try:
            change = np.linalg.solve(system, rest.reshape(-1))
        except np.linalg.LinAlgError:
            return impulses
        return self._onto_cones(impulses - change.reshape(impulses.shape))

    def _slip(
        self,
        system: np.ndarray,
        rest: np.ndarray,
        numbers: np.ndarray,
        impulses: np.ndarray,
        rates: np.ndarray,
        closed: np.ndarray,
    ) -> None:
        """Rows of contacts that slip: f_t = mu f_n z / |z| with z = f_t - r_t, which turns in space."""
        towards = impulses[:, 1:] - rates[:, 1:]
        length = np.linalg.norm(towards, axis=1)
        bound = self._friction * impulses[:, 0]
        slips = np.flatnonzero(closed & (length > bound))
        if not slips.size:
            return
        direction = towards[slips] / length[slips, None]
        values = impulses[slips, 1:] - bound[slips, None] * direction
        share = bound[slips] / length[slips]
        across = np.eye(self.width - 1) - direction[:, :, None] * direction[:, None, :]
        turning = np.zeros((len(slips), self.width - 1, system.shape[1]))
        if self.width == 3:
            at = np.repeat(numbers[slips, 1:, None], 1, axis=2)
            local = -system[numbers[slips, 1:]]
            np.put_along_axis(local, at, np.take_along_axis(local, at, axis=2) + 1.0, axis=2)
            turning = share[:, None, None] * (across @ local)
        _replace(system, rest, numbers[slips, 1:].reshape(-1), values.reshape(-1))
        system[numbers[slips, 1:]] -= turning
        for k in range(1, self.width):
            system[numbers[slips, k], numbers[slips, 0]] -= self._friction[slips] * direction[:, k - 1]

    def _onto_cones(self, impulses: np.ndarray) -> np.ndarray:
        impulses[:, 0] = np.maximum(impulses[:, 0], 0.0)
        impulses[:, 1:] = onto_disc(impulses[:, 1:], self._friction * impulses[:, 0])
        return impulses


def _replace(system: np.ndarray, rest: np.ndarray, numbers: np.ndarray, values: np.ndarray) -> None:
    """Rows that say what an impulse is."""
    system[numbers] = 0.0
    system[numbers, numbers] = 1.0
    rest.reshape(-1)[numbers] = values
