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

import math
from typing import NamedTuple

import numpy as np

from nosnoc_py.compiled import compiled_as, jitable
from nosnoc_py.contact_problems.cones import onto_sections
from nosnoc_py.contact_problems.rows import Array, RowProblem, RowSolution, delassus_of, rates_of, velocity_of

# Numbers of sweeps between two evaluations of the residual, before Newton's method, and between its steps.
CHECK_EVERY, BEFORE_NEWTON, BETWEEN = 5, 30, 8
# Up to FEW_ROWS rows TRIED steps of Newton's method are tried before any sweep: a dense solve is cheap then.
FEW_ROWS, TRIED = 60, 6
# First damping of Newton's method, relative to the stiffness of a contact, and its lower limit.
STIFFEST = 1e-2
ROUNDING_OF_VELOCITIES = 1e-9
# Damping of steps without sweeps, which have to be exact: it only makes the matrix of redundant contacts regular.
LEAST_DAMPING = 1e-13
# Problems with more rows are left to the sweeps, which need no dense matrix.
MOST_ROWS = 1200


class Projected(NamedTuple):
    """What the iterations of a problem do; they end at a residual of `tolerance`, or return the best impulses.

    Attributes
    ----------
    tolerance : float
        [m/s].
    max_sweeps : int
    newton : bool
        Use Newton's method; for Coulomb's cone only.
    corners : (d, 2)
        Of a polyhedral cone, see `cones.corners_of`.
    """

    tolerance: float
    max_sweeps: int
    newton: bool
    corners: Array


class _Search(NamedTuple):
    """Iterations for one problem, changed in place; contacts are in the order of their colours.

    Attributes
    ----------
    problem : RowProblem
    ends : (n + 1,) int
        First contact of every colour, and their number.
    stiffness : (m, w)
        Rates per unit impulse.
    impulses, v : (m, w), (n_v + 1,)
    best, least : (m, w), (1,)
        Best impulses so far, and their residual.
    done : (1,) int
        Number of sweeps.
    rule : Projected
    """

    problem: RowProblem
    ends: Array
    stiffness: Array
    impulses: Array
    v: Array
    best: Array
    least: Array
    done: Array
    rule: Projected


@jitable
def solve(problem: RowProblem, order: Array, ends: Array, guess: Array, rule: Projected) -> RowSolution:
    """Solve one problem from impulses `guess` (m, w); order and ends are those of a `Colouring`."""
    if order.size == 0:
        known = 0.0 if np.isfinite(problem.free).all() else np.nan
        return RowSolution(guess.copy(), problem.free.copy(), 0, known)
    search = _search_of(problem, order, ends, guess, rule)
    # With a single colour no two contacts share a body: one sweep solves them exactly.
    if rule.newton and guess.size <= FEW_ROWS and ends.size > 2:
        _newton_only(search)
    if rule.newton and guess.size <= MOST_ROWS:
        _conjugate_sweeps(search, min(BEFORE_NEWTON, rule.max_sweeps))
        _newton(search)
    else:
        _conjugate_sweeps(search, rule.max_sweeps)
    impulses = np.empty_like(search.best)
    impulses[order] = search.best
    return RowSolution(impulses, velocity_of(problem, impulses), search.done[0], search.least[0])


@jitable
def _search_of(problem: RowProblem, order: Array, ends: Array, guess: Array, rule: Projected) -> _Search:
    """Return the search with the contacts in an order."""
    ordered = RowProblem(
        problem.rows[order],
        problem.dofs[order],
        problem.answers[order],
        problem.reached[order],
        problem.blocks[order],
        problem.least[order],
        problem.friction[order],
        problem.free,
    )
    impulses, stiffness = guess[order], _stiffness(ordered.blocks)
    v, least, done = np.zeros(problem.free.size), np.zeros(1), np.zeros(1, dtype=np.int64)
    search = _Search(ordered, ends, stiffness, impulses, v, impulses.copy(), least, done, rule)
    least[0] = _residual(search)
    return search


@jitable
def _is_open(search: _Search) -> bool:
    """Return True while the residual is above the tolerance and sweeps are left."""
    return bool(search.least[0] > search.rule.tolerance and search.done[0] < search.rule.max_sweeps)


@jitable
def _update_best(search: _Search) -> float:
    """Return the residual of the current impulses, and remember them if they are the best ones."""
    residual = _residual(search)
    if residual < search.least[0]:
        search.best[:], search.least[0] = search.impulses, residual
    return residual


@jitable
def _put(search: _Search, impulses: Array) -> None:
    """Continue from other impulses (m, w)."""
    search.impulses[:] = impulses
    search.v[:] = velocity_of(search.problem, impulses)


@jitable
def _newton_only(search: _Search) -> None:
    """Take Newton steps without sweeps as long as each reduces the residual; continue from the best impulses."""
    if not _is_open(search):
        return
    last = np.inf
    matrix, offset = _natural_map(search)
    for _ in range(TRIED):
        if not _is_open(search) or not search.least[0] < last:
            break
        last = search.least[0]
        _put(search, _newton_step(search, matrix, offset, LEAST_DAMPING))
        search.done[0] += 1
        _update_best(search)
    if _is_open(search):
        _put(search, search.best)


@jitable
def _conjugate_sweeps(search: _Search, most: int) -> None:
    """Sweep with nonsmooth nonlinear conjugate directions (Silcowitz, Niebe & Erleben).

    The change by a sweep is used as a negative gradient (Fletcher-Reeves ratio); the direction is reset if the change
    has grown.
    """
    direction, push, last = np.zeros_like(search.impulses), np.zeros_like(search.v), 0.0
    while _is_open(search) and search.done[0] < most:
        search.done[0] += 1
        impulses, v = search.impulses.copy(), search.v.copy()
        _sweep(search)
        change, shift = search.impulses - impulses, search.v - v
        # A residual is hardly smaller than the change by a sweep: it is evaluated if that is small.
        small = np.abs(change * search.stiffness).max() <= search.rule.tolerance
        if small or search.done[0] % CHECK_EVERY == 0 or search.done[0] == most:
            _update_best(search)
        size = np.sum(change * change * search.stiffness)
        ratio = size / last if last > size else 0.0
        last = size
        if ratio > 0.0:
            search.impulses[:] += ratio * direction
            search.v[:] += ratio * push
        direction, push = change + ratio * direction, shift + ratio * push


@jitable
def _newton(search: _Search) -> None:
    """Take Newton steps with some sweeps after each; the damping grows with the residual (Levenberg-Marquardt)."""
    if not _is_open(search):
        return
    damping, last = STIFFEST, search.least[0]
    matrix, offset = _natural_map(search)
    while _is_open(search):
        _put(search, _newton_step(search, matrix, offset, damping + ROUNDING_OF_VELOCITIES))
        for _ in range(min(BETWEEN, search.rule.max_sweeps - search.done[0])):
            _sweep(search)
            search.done[0] += 1
        residual = _update_best(search)
        damping = damping / 3.0 if residual < last else min(4.0 * damping, 10.0 * STIFFEST)
        last = residual


def _sweep_by_loops(search: _Search) -> None:
    problem, impulses, v, stiffness = search.problem, search.impulses, search.v, search.stiffness
    count, width = impulses.shape
    new, slip = np.zeros((1, width)), np.zeros(width)
    for k in range(count):
        for i in range(width):
            slip[i] = 0.0
            for j in range(problem.rows.shape[2]):
                slip[i] += problem.rows[k, i, j] * v[problem.dofs[k, j]]
        new[0, 0] = max(impulses[k, 0] - (slip[0] - problem.least[k]) / stiffness[k, 0], 0.0)
        if width > 1:
            for i in range(1, width):
                slip[i] += problem.blocks[k, i, 0] * (new[0, 0] - impulses[k, 0])
                new[0, i] = impulses[k, i] - slip[i] / stiffness[k, i]
            radius = problem.friction[k : k + 1] * new[0, 0]
            new[:, 1:] = onto_sections(new[:, 1:], radius, search.rule.corners)
        for i in range(width):
            change = new[0, i] - impulses[k, i]
            if change != 0.0:
                for j in range(problem.answers.shape[2]):
                    v[problem.reached[k, j]] += problem.answers[k, i, j] * change
            impulses[k, i] = new[0, i]


@compiled_as(_sweep_by_loops)
def _sweep(search: _Search) -> None:
    """Solve contact after contact, those of one colour at once: first the normal, then the tangents."""
    problem, v = search.problem, search.v
    # Colours in turn: the velocity contains all impulses computed before (Gauss-Seidel, not Jacobi).
    for first, last in zip(search.ends[:-1].tolist(), search.ends[1:].tolist(), strict=True):
        part = slice(first, last)
        old, stiffness = search.impulses[part], search.stiffness[part]
        rates = rates_of(problem.rows[part], problem.dofs[part], v)
        new = np.empty_like(old)
        new[:, 0] = np.maximum(old[:, 0] - (rates[:, 0] - problem.least[part]) / stiffness[:, 0], 0.0)
        if old.shape[1] > 1:
            # The slip velocity already contains the new normal impulse.
            slip = rates[:, 1:] + problem.blocks[part, 1:, 0] * (new[:, :1] - old[:, :1])
            radius = problem.friction[part] * new[:, 0]
            new[:, 1:] = onto_sections(old[:, 1:] - slip / stiffness[:, 1:], radius, search.rule.corners)
        v[problem.reached[part]] += np.einsum("mwk,mw->mk", problem.answers[part], new - old)
        search.impulses[part] = new


@jitable
def _residual(search: _Search) -> float:
    """Return the residual of the contact law [m/s]: the change by one more projection of every contact."""
    problem, f, stiffness = search.problem, search.impulses, search.stiffness
    search.v[:] = velocity_of(problem, f)  # recomputed: updates in place accumulate rounding errors
    if not np.isfinite(search.v).all():
        return np.nan
    rates = rates_of(problem.rows, problem.dofs, search.v)
    residual = np.abs(np.minimum(f[:, 0] * stiffness[:, 0], rates[:, 0] - problem.least)).max()
    if f.shape[1] > 1:
        radius = problem.friction * np.maximum(f[:, 0], 0.0)
        moved = f[:, 1:] - onto_sections(f[:, 1:] - rates[:, 1:] / stiffness[:, 1:], radius, search.rule.corners)
        residual = max(residual, np.abs(moved * stiffness[:, 1:]).max())
    return float(residual)


@jitable
def _stiffness(blocks: Array) -> Array:
    """Return the rates per unit impulse (m, w): exact for the normal, for tangents the largest in any direction.

    With the largest eigenvalue of the tangential block a step is not too long in any direction.
    """
    stiffness = np.zeros(blocks.shape[:2])
    for i in range(blocks.shape[1]):
        stiffness[:, i] = blocks[:, i, i]
    if blocks.shape[1] == 3:
        a, b, c = blocks[:, 1, 1], blocks[:, 2, 2], 0.5 * (blocks[:, 1, 2] + blocks[:, 2, 1])
        stiffness[:, 1] = 0.5 * (a + b) + np.hypot(0.5 * (a - b), c)
        stiffness[:, 2] = stiffness[:, 1]
    # Rows of zeros are padding: tangents that a contact does not have.
    return np.where(stiffness > 0.0, stiffness, 1.0)


# --- semismooth Newton steps on the natural map of every contact (Alart & Curnier 1991); Coulomb's cone only ---


@jitable
def _natural_map(search: _Search) -> tuple[Array, Array]:
    """Return the Delassus matrix (m w, m w) and the rates without impulses (m, w), in units of impulse.

    The normal part of these rates contains -c.
    """
    offset = rates_of(search.problem.rows, search.problem.dofs, search.problem.free)
    offset[:, 0] -= search.problem.least
    return delassus_of(search.problem) / search.stiffness.reshape(-1, 1), offset / search.stiffness


@jitable
def _newton_step(search: _Search, matrix: Array, offset: Array, damping: float) -> Array:
    """Return the impulses (m, w) after one step, projected onto their cones.

    Forces of redundant contacts are not unique, and wrong modes may have no forces at all: damping keeps them near
    those of the sweeps. It does not change the solution.
    """
    impulses, friction = search.impulses, search.problem.friction
    count, width = impulses.shape
    rates = np.dot(matrix, impulses.reshape(-1)).reshape(count, width) + offset
    system, rest = matrix.copy(), rates.copy()
    for k in range(impulses.size):
        system[k, k] += damping
    for c in range(count):
        # Active set of the natural map min(f_n, r_n - c): closed where f_n is the larger one.
        if not impulses[c, 0] > rates[c, 0]:
            for i in range(width):
                _replace(system, rest, c, i, impulses[c, i])
        elif width > 1:
            _slip(system, rest, c, impulses[c], rates[c], friction[c])
    try:
        change = np.linalg.solve(system, rest.reshape(-1))
    except Exception:  # a singular matrix: the sweeps go on from here
        return impulses.copy()
    moved = impulses - change.reshape(count, width)
    moved[:, 0] = np.maximum(moved[:, 0], 0.0)
    if width > 1:
        moved[:, 1:] = onto_sections(moved[:, 1:], friction * moved[:, 0], search.rule.corners)
    return moved


@jitable
def _slip(system: Array, rest: Array, c: int, impulse: Array, rates: Array, friction: float) -> None:
    """Write the rows of a contact if it slips: f_t = mu f_n z / |z| with z = f_t - r_t, whose direction is unknown."""
    width, bound, length = impulse.size, friction * impulse[0], 0.0
    for i in range(1, width):
        length += (impulse[i] - rates[i]) ** 2
    length = math.sqrt(length)
    if not length > bound:
        return
    direction, first = (impulse - rates) / length, c * width
    # Derivative of z: rows of the identity minus those of the system.
    slopes = -system[first : first + width]
    for i in range(1, width):
        slopes[i, first + i] += 1.0
        _replace(system, rest, c, i, impulse[i] - bound * direction[i])
    for i in range(1, width):
        system[first + i, first] -= friction * direction[i]
        # Derivative of z / |z|: the projection across the direction, divided by the length; 0 in the plane.
        for k in range(1, width if width > 2 else 1):
            across = (1.0 if i == k else 0.0) - direction[i] * direction[k]
            system[first + i] -= bound / length * across * slopes[k]


@jitable
def _replace(system: Array, rest: Array, c: int, i: int, value: float) -> None:
    """Replace a row of a linear system by an equation for its own unknown."""
    row = c * rest.shape[1] + i
    system[row] = 0.0
    system[row, row] = 1.0
    rest[c, i] = value
