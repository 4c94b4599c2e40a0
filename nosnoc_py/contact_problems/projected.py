"""Projected Gauss-Seidel sweeps and semismooth Newton steps for contact problems by rows.

- Sweeps (Jourdan, Alart & Jean 1998; Jean 1999): every contact is solved for the impulses of the others, normal first,
  then a projection of the tangential impulse onto its friction disc. Contacts of one colour are solved at once. They
  find the modes soon and the forces slowly; conjugate directions (Silcowitz, Niebe & Erleben) accelerate them.
- Newton's method (Alart & Curnier 1991) on the natural map: the change that one more projection of every contact would
  make. It starts from the sweeps and converges quadratically in fixed modes.

For few contacts Newton's method is tried first, from the impulses of the last time step: contacts that keep their modes
take one step. The residual is a velocity, so that one tolerance serves forces and rates.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nosnoc_py.contact_problems.colours import Colouring
from nosnoc_py.contact_problems.cones import Projection, onto_disc
from nosnoc_py.contact_problems.rows import RowProblem, RowSolution

# Numbers of sweeps between two evaluations of the residual, before Newton's method, and between its steps.
CHECK_EVERY, BEFORE_NEWTON, BETWEEN = 5, 30, 8
# Up to FEW_ROWS rows TRIED steps of Newton's method are tried before any sweep: a dense solve is cheap then.
FEW_ROWS, TRIED = 60, 6


class Solver:
    """Solver of contact problems by rows.

    It ends at a residual of `tolerance`, or returns the best impulses of `max_sweeps` sweeps.

    Parameters
    ----------
    projection : function
        Projection onto the section of the friction cone.
    tolerance : float
        [m/s].
    max_sweeps : int
    newton : bool
        Use Newton's method; for Coulomb's cone only.
    """

    def __init__(self, projection: Projection, tolerance: float, max_sweeps: int, newton: bool) -> None:
        self.projection, self.tolerance, self.max_sweeps, self.newton = projection, tolerance, max_sweeps, newton

    def solve(self, problem: RowProblem, colouring: Colouring, guess: np.ndarray) -> RowSolution:
        """Solve one problem from impulses `guess` (m, w)."""
        order = colouring.order
        ordered = problem if colouring.sorted else _ordered(problem, order)
        work = _ImpulseSearch(Sweeps(ordered, colouring.parts, guess[order], self.projection), self)
        # With a single colour no two contacts share a body: one sweep solves them exactly.
        if self.newton and guess.size <= FEW_ROWS and len(colouring.parts) > 1:
            work.newton_only()
        if self.newton and guess.size <= MOST_ROWS:
            work.conjugate_sweeps(min(BEFORE_NEWTON, self.max_sweeps))
            work.newton()
        else:
            work.conjugate_sweeps(self.max_sweeps)
        impulses = np.empty_like(work.best)
        impulses[order] = work.best
        velocity = problem.velocity(impulses)
        return RowSolution(impulses=impulses, velocity=velocity, sweeps=work.done, residual=work.least)


class _ImpulseSearch:
    """Iterations for one problem: number of sweeps, and the best impulses so far with their residual."""

    def __init__(self, sweeps: Sweeps, solver: Solver) -> None:
        self.sweeps, self.solver, self.done = sweeps, solver, 0
        self.best, self.least = sweeps.impulses.copy(), sweeps.residual()

    @property
    def open(self) -> bool:
        """True while the residual is above the tolerance and sweeps are left."""
        return self.least > self.solver.tolerance and self.done < self.solver.max_sweeps

    def update_best(self) -> float:
        """Return the residual of the current impulses, and remember them if they are the best ones."""
        residual = self.sweeps.residual()
        if residual < self.least:
            self.best, self.least = self.sweeps.impulses.copy(), residual
        return residual

    def newton_only(self) -> None:
        """Take Newton steps without sweeps as long as each reduces the residual; continue from the best impulses."""
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
            self.update_best()
        if self.open:
            sweeps.put(self.best.copy())

    def conjugate_sweeps(self, most: int) -> None:
        """Sweep with nonsmooth nonlinear conjugate directions (Silcowitz, Niebe & Erleben).

        The change by a sweep is used as a negative gradient (Fletcher-Reeves ratio); the direction is reset if the
        change has grown.
        """
        sweeps = self.sweeps
        direction, push, last = np.zeros_like(sweeps.impulses), np.zeros_like(sweeps.v), 0.0
        while self.open and self.done < most:
            self.done += 1
            impulses, v = sweeps.impulses.copy(), sweeps.v.copy()
            sweeps.sweep()
            change, shift = sweeps.impulses - impulses, sweeps.v - v
            # A residual is hardly smaller than the change by a sweep: it is evaluated if that is small.
            small = np.abs(change * sweeps.stiffness).max() <= self.solver.tolerance
            if small or self.done % CHECK_EVERY == 0 or self.done == most:
                self.update_best()
            size = float(np.sum(change * change * sweeps.stiffness))
            ratio = size / last if last > size else 0.0
            last = size
            if ratio > 0.0:
                sweeps.impulses += ratio * direction
                sweeps.v += ratio * push
            direction, push = change + ratio * direction, shift + ratio * push

    def newton(self) -> None:
        """Take Newton steps with some sweeps after each; the damping grows with the residual (Levenberg-Marquardt)."""
        if not self.open:
            return
        sweeps, damping = self.sweeps, STIFFEST
        newton, last = Newton(sweeps.problem, sweeps.stiffness), self.least
        while self.open:
            sweeps.put(newton.step(sweeps.impulses, damping + ROUNDING))
            for _ in range(min(BETWEEN, self.solver.max_sweeps - self.done)):
                sweeps.sweep()
                self.done += 1
            residual = self.update_best()
            damping = damping / 3.0 if residual < last else min(4.0 * damping, 10.0 * STIFFEST)
            last = residual


def _ordered(problem: RowProblem, order: np.ndarray) -> RowProblem:
    fields = ("rows", "dofs", "answers", "reached", "blocks", "least", "friction")
    return replace(problem, **{name: getattr(problem, name)[order] for name in fields})


class Sweeps:
    """Impulses and velocity of contacts in the order of their colours; sweeps change them in place.

    Attributes
    ----------
    impulses : (m, w)
    v : (n_v + 1,)
    stiffness : (m, w)
        Rates per unit impulse.
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
        """Continue from other impulses (m, w)."""
        self.impulses = impulses
        self.v = self.problem.velocity(impulses)

    def sweep(self) -> None:
        """Solve contact after contact, those of one colour at once: first the normal, then the tangents."""
        v = self.v
        # Colours in turn: the velocity contains all impulses computed before (Gauss-Seidel, not Jacobi).
        for part, rows, dofs, answers, reached, coupling, inverse, least, friction in self._parts:
            old = self.impulses[part]
            rates = np.einsum("mwk,mk->mw", rows, v[dofs])
            new = np.empty_like(old)
            new[:, 0] = np.maximum(old[:, 0] - (rates[:, 0] - least) * inverse[:, 0], 0.0)
            if old.shape[1] > 1:
                # The slip velocity already contains the new normal impulse.
                slip = rates[:, 1:] + coupling * (new[:, :1] - old[:, :1])
                new[:, 1:] = self.projection(old[:, 1:] - slip * inverse[:, 1:], friction * new[:, 0])
            v[reached] += np.einsum("mwk,mw->mk", answers, new - old)
            self.impulses[part] = new

    def residual(self) -> float:
        """Return the residual of the contact law [m/s]: the change by one more projection of every contact."""
        problem, f = self.problem, self.impulses
        self.v = problem.velocity(f)  # recomputed: updates in place accumulate rounding errors
        rates = problem.rates(self.v)
        normal = np.minimum(f[:, 0] * self.stiffness[:, 0], rates[:, 0] - problem.least)
        residual = float(np.abs(normal).max(initial=0.0))
        if f.shape[1] > 1:
            free = f[:, 1:] - rates[:, 1:] / self.stiffness[:, 1:]
            moved = f[:, 1:] - self.projection(free, problem.friction * np.maximum(f[:, 0], 0.0))
            residual = max(residual, float(np.abs(moved * self.stiffness[:, 1:]).max(initial=0.0)))
        return residual if np.isfinite(self.v).all() else np.nan


def _stiffness(blocks: np.ndarray) -> np.ndarray:
    """Return the rates per unit impulse (m, w): exact for the normal, for tangents the largest in any direction.

    With the largest eigenvalue of the tangential block a step is not too long in any direction.
    """
    stiffness = np.einsum("mww->mw", blocks).copy()
    if blocks.shape[1] == 3:
        a, b, c = blocks[:, 1, 1], blocks[:, 2, 2], 0.5 * (blocks[:, 1, 2] + blocks[:, 2, 1])
        stiffness[:, 1:] = (0.5 * (a + b) + np.hypot(0.5 * (a - b), c))[:, None]
    # Rows of zeros are padding: tangents that a contact does not have.
    return np.where(stiffness > 0.0, stiffness, 1.0)


# First damping of Newton's method, relative to the stiffness of a contact, and its lower limit.
STIFFEST = 1e-2
ROUNDING = 1e-9
# Damping of steps without sweeps, which have to be exact: it only makes the matrix of redundant contacts regular.
LEAST_DAMPING = 1e-13
# Problems with more rows are left to the sweeps, which need no dense matrix.
MOST_ROWS = 1200


class Newton:
    """Semismooth Newton steps on the natural map of every contact (Alart & Curnier 1991); Coulomb's cone only.

    Parameters
    ----------
    problem : RowProblem
    stiffness : (m, w)
        Rates per unit impulse.
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
        # Rows of the Delassus matrix scaled to units of impulse; the normal part of the offset contains -c.
        self._matrix = flat @ answers[..., :-1].reshape(-1, size - 1).T * self._scale.reshape(-1, 1)
        offset = problem.rates(problem.free)
        offset[:, 0] -= problem.least
        self._offset, self._friction = offset * self._scale, problem.friction

    def step(self, impulses: np.ndarray, damping: float) -> np.ndarray:
        """Return the impulses (m, w) after one step, projected onto their cones.

        Forces of redundant contacts are not unique, and wrong modes may have no forces at all: damping keeps them near
        those of the sweeps. It does not change the solution.
        """
        rates = (self._matrix @ impulses.reshape(-1)).reshape(impulses.shape) + self._offset
        # Active set of the natural map min(f_n, r_n - c): closed where f_n is the larger one.
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
            return impulses  # the sweeps go on from here
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
        """Write the rows of slipping contacts: f_t = mu f_n z / |z| with z = f_t - r_t, whose direction is unknown."""
        towards = impulses[:, 1:] - rates[:, 1:]
        length = np.linalg.norm(towards, axis=1)
        bound = self._friction * impulses[:, 0]
        slips = np.flatnonzero(closed & (length > bound))
        if not slips.size:
            return
        direction = towards[slips] / length[slips, None]
        values = impulses[slips, 1:] - bound[slips, None] * direction
        share = bound[slips] / length[slips]
        # Derivative of z / |z|: the projection across the direction, divided by the length.
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
    """Replace rows of a linear system by equations for single unknowns."""
    system[numbers] = 0.0
    system[numbers, numbers] = 1.0
    rest.reshape(-1)[numbers] = values
