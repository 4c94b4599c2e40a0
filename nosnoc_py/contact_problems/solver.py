"""Solver of contact problems with interchangeable algorithms, and tests of uniqueness.

1. Projected iterations (`projected`) find the modes: open, stick or slip of every contact.
2. Newton's method on the smooth equations of these modes (`modes`) makes the solution exact to rounding.
3. All equations and inequalities are tested. If they fail, the modes are enumerated, those first that differ in few
   contacts; the first admissible solution is returned.

`ContactSolver.solutions` enumerates all modes and returns all solutions with different rates; `is_monotone` is a
sufficient condition for uniqueness. Forces of redundant contacts are never unique, so that solutions are compared by
their rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any, Literal

import casadi as ca
import numpy as np

from nosnoc_py.contact_problems.colours import one_by_one
from nosnoc_py.contact_problems.cones import corners_of
from nosnoc_py.contact_problems.linear_algebra import correction
from nosnoc_py.contact_problems.modes import CLOSED, FREE, SLIP, SLIP_BACK, STICK, friction_rows, masks_of
from nosnoc_py.contact_problems.problem import Array, ContactProblem, by_rows, forces_of
from nosnoc_py.contact_problems.projected import Projected, solve
from nosnoc_py.functions import ExpressionCache, buffered
from nosnoc_py.systems.kinematics import ContactFrames
from nosnoc_py.tolerances import ADMISSIBLE

Algorithm = Literal["enumeration", "sweeps", "newton"]

# Sweeps in one problem at most; and at last in one of a long chain of contacts, through which forces travel slowly.
SWEEPS, MANY_SWEEPS = 400, 4000
# Projected iterations of each algorithm, with or without semismooth Newton steps, whose matrix redundant contacts make
# singular: plain sweeps are more robust then.
ATTEMPTS: dict[Algorithm | None, tuple[tuple[bool, int], ...]] = {
    "enumeration": (),
    "sweeps": ((False, SWEEPS),),
    "newton": ((True, SWEEPS),),
    None: ((True, SWEEPS), (False, SWEEPS), (True, MANY_SWEEPS)),
}
MOST_CANDIDATES = 3000  # choices of modes up to which they are enumerated
# Starts of a search for other solutions in space, nearest modes first: it may miss some however many there are.
MOST_DIRECTIONS = 100
# Tolerance of projected iterations relative to the rates. It only has to separate modes; Newton's method follows.
PROJECTED = 1e-13
# A slip, relative to the rates, that projected iterations may leave of none.
HARDLY = 1e-6
# Relative difference of rates above which two solutions are different motions.
DIFFERENT = 1e-6
# Number of directions of slip that are tried for every contact, by the number of contacts that slip in space.
STARTS = {1: 8, 2: 6, 3: 4}
FEWEST_STARTS = 3
# Equations of contact problems, by the numbers of tangents of their contacts, which they alone depend on.
_PROBLEMS = ExpressionCache(64)


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactSolution:
    """Solution of a `ContactProblem`.

    Attributes
    ----------
    modes : tuple of int
        One of the modes of `contact_problems.modes` for every contact.
    unknowns : (n_c + n_tt + n_spatial,)
        z = (f_n, y, s): normal forces, forces in stick or directions of slip, slip speeds.
    forces, rates : (n_c + n_tt,)
    residual : float
        Largest residual of the equations of the modes.
    """

    modes: tuple[int, ...]
    unknowns: Array
    forces: Array
    rates: Array
    residual: float


class ContactSolver:
    """Solver of the contact problems of one system; see the module's docstring for its steps."""

    def __init__(self, frames: ContactFrames) -> None:
        self.frames = frames

    def solve(
        self, problem: ContactProblem, hints: Sequence[Sequence[int]] = (), algorithm: Algorithm | None = None
    ) -> ContactSolution | None:
        """Return an admissible solution, or None if none is found.

        Parameters
        ----------
        problem : ContactProblem
        hints : sequence of modes
            Modes that are tried first.
        algorithm : {"enumeration", "sweeps", "newton"}, optional
            Enumeration of all modes; projected Gauss-Seidel (Jourdan, Alart & Jean 1998); the same with semismooth
            Newton steps (Alart & Curnier 1991). By default the last, the second and the first, until one succeeds.
        """
        if not problem.active:
            return self._nothing(problem)
        scaled, mass = problem.in_unit_mass()
        solution = self._solve(scaled, hints, algorithm)
        return None if solution is None else _in_units_of(solution, self.frames, mass)

    def solutions(self, problem: ContactProblem) -> list[ContactSolution]:
        """Return solutions with different rates: all of them in the plane, in space those that a search finds.

        In space the direction of slip is an unknown. The search starts from several directions for every choice of
        modes and may miss solutions.
        """
        return list(self._distinct(problem))

    def _distinct(self, problem: ContactProblem) -> Iterator[ContactSolution]:
        """Yield solutions with different rates."""
        if not problem.active:
            yield self._nothing(problem)
            return
        scaled, mass = problem.in_unit_mass()
        distinct: list[ContactSolution] = []
        # Sweeps cannot leave the cones, so that their forces are a start in any modes, converged or not.
        candidates = self._candidates(scaled, self._projected(scaled, newton=False))
        for pair in islice(candidates, None if scaled.exact else MOST_DIRECTIONS):
            candidate = self._admissible(scaled, *pair)
            if candidate is not None and not any(self._same(scaled, candidate, other) for other in distinct):
                distinct.append(candidate)
                yield _in_units_of(candidate, self.frames, mass)

    def is_unique(self, problem: ContactProblem) -> bool:
        """Return True if all solutions have the same rates: by a sufficient condition, else by a search for another."""
        return is_monotone(problem) or len(list(islice(self._distinct(problem), 2))) < 2

    def outcomes(self, problem: ContactProblem, most: int) -> list[ContactSolution]:
        """Return solutions with different rates, `most` at most: the one of `solve` alone where it is the only one."""
        if is_monotone(problem):
            return [one for one in [self.solve(problem)] if one is not None]
        return list(islice(self._distinct(problem), most))

    def in_modes(self, problem: ContactProblem, modes: Sequence[int], start: Array | None = None) -> ContactSolution:
        """Run Newton's method in given modes from forces `start`; the result need not be admissible."""
        chosen = self._nearest(problem, modes)  # hints may be modes of an earlier problem
        z = self._unknowns(problem, chosen, np.zeros(problem.offset.size) if start is None else start)
        # Contacts that take no part have no force: their equations would only make those of the others larger.
        active, residual = sorted(problem.active, key=self.frames.width), np.inf
        directions, unknowns = self.frames.rows(active), self._places(active)
        tangents, own = directions[len(active) :] - self.frames.count, np.ix_(directions, directions)
        data = (
            problem.delassus[own].T,
            problem.offset[directions],
            masks_of([chosen[c] for c in active]),
            problem.held[active],
            problem.direction[tangents],
            problem.frames.friction[active],
        )
        equations, part = _equations(tuple(map(self.frames.width, active))), z[unknowns]
        for _ in range(20):
            rows, jacobian, forces, _ = equations(part, *data)
            last, residual = residual, float(np.abs(rows).max(initial=0.0))
            small = ADMISSIBLE * max(problem.scale, 1e-300)
            # Stop at rounding errors: a small residual that is no longer halved.
            if residual == 0.0 or not np.isfinite(residual) or (residual < small and residual >= 0.5 * last):
                break
            part = part + correction(jacobian, rows.reshape(-1))
        every, z[unknowns] = np.zeros(problem.offset.size), part
        every[directions] = forces.reshape(-1)
        rates = problem.delassus @ every + problem.offset
        return ContactSolution(modes=chosen, unknowns=z, forces=every, rates=rates, residual=residual)

    def _places(self, contacts: Sequence[int]) -> Array:
        """Return the positions of contacts among the unknowns (f_n, y, s)."""
        frames = self.frames
        speeds = [frames.count + frames.n_t + frames.speeds[c] for c in contacts if frames.width(c) == 2]
        return np.concatenate([frames.rows(contacts), np.array(speeds, dtype=int)])

    def admissible(self, problem: ContactProblem, solution: ContactSolution) -> bool:
        """Return True if every equation and inequality holds within `ADMISSIBLE`."""
        frames, n_c = self.frames, self.frames.count
        if not np.isfinite(solution.residual):
            return False
        force = ADMISSIBLE * max(problem.scale, float(np.abs(solution.forces).max(initial=0.0)))
        rate = ADMISSIBLE * max(problem.scale, float(np.abs(solution.rates).max(initial=0.0)))
        if solution.residual > force + rate:
            return False
        for c in problem.active:
            mode, part = solution.modes[c], slice(n_c + frames.tangents[c].start, n_c + frames.tangents[c].stop)
            normal, f = solution.forces[c], solution.forces[part]
            if solution.rates[c] < -rate or normal < -force:
                return False
            if mode == STICK and np.linalg.norm(f) > problem.frames.cone[c] * normal + force:
                return False
            # Friction opposes slip: a negative slip along its direction would let the force do work.
            if mode in (SLIP, SLIP_BACK) and not problem.held[c] and self._along(solution, c) < -rate:
                return False
        return True

    # --- search for a solution ---

    def _solve(
        self, problem: ContactProblem, hints: Sequence[Sequence[int]], algorithm: Algorithm | None
    ) -> ContactSolution | None:
        tried = [(modes, np.zeros(problem.offset.size)) for modes in hints]
        # Forces of several contacts in stick are not unique. Starting from the normal forces of the frictionless
        # problem Newton's shortest correction gives forces with little friction, which are most likely inside their
        # cones.
        tried += [
            (modes, self._projected(problem, newton=True, friction=0.0))
            for modes in hints
            if list(modes).count(STICK) > 1
        ]
        for modes, start in tried:
            if (solution := self._admissible(problem, modes, start)) is not None:
                return solution
        start = np.zeros(problem.offset.size)
        for newton, sweeps in ATTEMPTS[algorithm]:
            start = self._projected(problem, newton=newton, sweeps=sweeps)
            for modes in self._readings(problem, start):
                if (solution := self._admissible(problem, modes, start)) is not None:
                    return self._at_rest(problem, solution)
        if algorithm in ("sweeps", "newton"):
            return None
        frictionless = self._projected(problem, newton=False, friction=0.0)
        candidates = (self._admissible(problem, *pair) for pair in self._candidates(problem, frictionless))
        found = next((candidate for candidate in candidates if candidate is not None), None)
        return None if found is None else self._at_rest(problem, found)

    def _at_rest(self, problem: ContactProblem, solution: ContactSolution) -> ContactSolution:
        """Return a solution in which contacts stick, all or one by one, that only static friction can hold."""
        cone, friction = problem.frames.cone, problem.frames.friction
        loose = [
            c
            for c in problem.active
            if solution.modes[c] in (SLIP, SLIP_BACK) and not problem.held[c] and cone[c] > friction[c]
        ]
        for together in ([loose] if len(loose) > 1 else []) + [[c] for c in loose]:
            modes = tuple(STICK if c in together else mode for c, mode in enumerate(solution.modes))
            if (stuck := self._admissible(problem, modes, solution.forces)) is not None:
                solution = stuck
        return solution

    def _admissible(self, problem: ContactProblem, modes: Sequence[int], start: Array) -> ContactSolution | None:
        solution = self.in_modes(problem, modes, start)
        return solution if self.admissible(problem, solution) else None

    def _nothing(self, problem: ContactProblem) -> ContactSolution:
        """Return the solution without forces of a problem without active contacts."""
        frames, size = self.frames, problem.offset.size
        unknowns = np.zeros(size + frames.spatial)
        modes = (FREE,) * frames.count
        return ContactSolution(
            modes=modes, unknowns=unknowns, forces=np.zeros(size), rates=problem.offset, residual=0.0
        )

    def _along(self, solution: ContactSolution, c: int) -> float:
        """Return the slip velocity in the direction against which friction acts."""
        n_c, part = self.frames.count, self.frames.tangents[c]
        if self.frames.width(c) == 1:
            return float(solution.rates[n_c + part.start] * (1.0 if solution.modes[c] == SLIP else -1.0))
        return float(solution.rates[n_c:][part] @ solution.unknowns[n_c:][part])

    def _nearest(self, problem: ContactProblem, modes: Sequence[int]) -> tuple[int, ...]:
        """Return the nearest modes that are possible: inactive contacts are open, `held` ones keep their slip."""
        chosen = []
        for c, mode in enumerate(modes):
            legal = self._options(problem, c)
            chosen.append(mode if mode in legal else legal[min(1, len(legal) - 1)] if mode != FREE else FREE)
        return tuple(chosen)

    def _options(self, problem: ContactProblem, c: int) -> tuple[int, ...]:
        if c not in problem.active:
            return (FREE,)
        width = self.frames.width(c)
        if width == 0:
            return (FREE, CLOSED)
        if problem.held[c]:
            backwards = width == 1 and problem.direction[self.frames.tangents[c]][0] < 0
            return (FREE, SLIP_BACK if backwards else SLIP)
        return (FREE, STICK, SLIP, SLIP_BACK) if width == 1 else (FREE, STICK, SLIP)

    def _every(self, problem: ContactProblem) -> list[tuple[int, ...]]:
        """Return all choices of modes; none if there are more than `MOST_CANDIDATES`."""
        options = [self._options(problem, c) for c in range(self.frames.count)]
        few = np.prod([float(len(legal)) for legal in options]) <= MOST_CANDIDATES
        return list(product(*options)) if few else []

    def _candidates(self, problem: ContactProblem, start: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Yield all modes with forces to start from, those first that differ in few contacts from those of `start`.

        For contacts that slip in space several directions are tried.
        """
        first = self._read(problem, start)
        spatial = [c for c in problem.active if self.frames.width(c) == 2 and not problem.held[c]]
        for modes in sorted(
            self._every(problem), key=lambda modes: sum(a != b for a, b in zip(modes, first, strict=True))
        ):
            yield modes, start
            slipping = [c for c in spatial if modes[c] == SLIP]
            count = STARTS.get(len(slipping), FEWEST_STARTS)
            angles = 2.0 * np.pi * np.arange(count) / count
            for turned in product(angles, repeat=len(slipping)) if slipping else ():
                yield modes, self._towards(problem.frames.friction, start, slipping, turned)

    def _towards(self, friction: Array, forces: Array, contacts: Sequence[int], angles: Sequence[float]) -> Array:
        """Return the forces with the friction forces of some contacts in given directions."""
        turned = forces.copy()
        for c, angle in zip(contacts, angles, strict=True):
            part = self.frames.tangents[c]
            size = friction[c] * max(turned[c], 1.0)
            at = slice(self.frames.count + part.start, self.frames.count + part.stop)
            turned[at] = size * np.array([np.cos(angle), np.sin(angle)])
        return turned

    def _same(self, problem: ContactProblem, one: ContactSolution, other: ContactSolution) -> bool:
        """Return True if two solutions are one motion: their forces may differ at redundant contacts."""
        size = max(problem.scale, float(np.abs(one.rates).max(initial=0.0)))
        return bool(np.abs(one.rates - other.rates).max(initial=0.0) <= DIFFERENT * size)

    def _projected(
        self, problem: ContactProblem, *, newton: bool, friction: float = 1.0, sweeps: int = SWEEPS
    ) -> Array:
        """Return forces (n_c + n_tt,) by projected iterations from zero."""
        rows = by_rows(problem, friction)
        rule = Projected(PROJECTED * max(problem.scale, 1e-300), sweeps, newton, corners_of(None))
        with np.errstate(over="ignore", invalid="ignore"):  # without a solution the iterations diverge
            solution = solve(rows, *one_by_one(len(problem.active)), np.zeros(rows.rows.shape[:2]), rule)
        forces = forces_of(problem, solution.impulses)
        return forces if np.isfinite(forces).all() else np.zeros_like(forces)

    def _read(self, problem: ContactProblem, forces: Array) -> tuple[int, ...]:
        """Return the modes that forces in the cones indicate."""
        n_c, modes = self.frames.count, [FREE] * self.frames.count
        scale = np.abs(forces).max(initial=0.0)
        for c in problem.active:
            legal, tangential = self._options(problem, c), forces[n_c:][self.frames.tangents[c]]
            if not forces[c] > 1e-9 * scale:
                continue  # open: the force is a rounding error
            if len(legal) == 2:
                modes[c] = legal[1]
            # Projections put slipping contacts exactly on the cone; stick is strictly inside.
            elif np.linalg.norm(tangential) < (1 - 1e-7) * problem.frames.friction[c] * forces[c]:
                modes[c] = STICK
            else:
                modes[c] = SLIP_BACK if tangential.size == 1 and tangential[0] > 0 else SLIP
        return tuple(modes)

    def _readings(self, problem: ContactProblem, forces: Array) -> list[tuple[int, ...]]:
        """Return the modes that forces indicate, and those in which contacts on their cones that hardly slip stick.

        Bodies of one coefficient that press on each other reach their cones together: some of them stand there still.
        """
        slips, first = (problem.delassus @ forces + problem.offset)[self.frames.count :], self._read(problem, forces)
        still = [np.linalg.norm(slips[part]) <= HARDLY * problem.scale for part in self.frames.tangents]
        slipping = [mode in (SLIP, SLIP_BACK) and not held for mode, held in zip(first, problem.held, strict=True)]
        second = tuple(
            STICK if slip and rests else mode for mode, slip, rests in zip(first, slipping, still, strict=True)
        )
        return [first] if first == second else [first, second]

    def _unknowns(self, problem: ContactProblem, modes: tuple[int, ...], forces: Array) -> Array:
        """Return the start z = (f_n, y, s) of Newton's method in given modes."""
        frames, n_c = self.frames, self.frames.count
        z = np.zeros(n_c + frames.n_t + frames.spatial)
        z[:n_c] = np.where(np.asarray(modes) == FREE, 0.0, forces[:n_c])
        rates = problem.delassus @ forces + problem.offset
        for c, part in enumerate(frames.tangents):
            at = slice(n_c + part.start, n_c + part.stop)
            if modes[c] == STICK:
                z[at] = forces[at]
            elif modes[c] == SLIP and frames.width(c) == 2:
                z[at] = problem.direction[part] if problem.held[c] else _unit(-forces[at], rates[at])
                z[n_c + frames.n_t + frames.speeds[c]] = 0.0 if problem.held[c] else float(rates[at] @ z[at])
        return z


def is_monotone(problem: ContactProblem) -> bool:
    """Return True if a sufficient condition proves that all solutions have the same rates.

    Two solutions satisfy d'G d <= sum_c mu_c |d_n,c| |(G d)_t,c| with the difference d of their forces, because in the
    form of De Saxce and Feng (1998) (r_n + mu |r_t|, r_t) and f lie in dual cones. With x = G^(1/2) d the right side is
    at most |x|^2 / 2 sum_c mu_c sqrt((G^-1)_nn |G_tt|), because the two functionals of x are orthogonal; if the sum is
    below 2, then x = 0. Without friction d'G d <= 0 proves it for any G. Prescribed directions of slip make G
    unsymmetric and are not covered.
    """
    frames, n_c = problem.frames, problem.frames.count
    frictional = [c for c in problem.active if frames.width(c)]
    if not frictional:
        return True
    if problem.held[frictional].any():
        return False
    index = frames.rows(problem.active)
    delassus = problem.delassus[np.ix_(index, index)]
    try:
        inverse = np.linalg.inv(delassus)
    except np.linalg.LinAlgError:
        return False
    total = 0.0
    for c in frictional:
        k = problem.active.index(c)
        part = slice(n_c + frames.tangents[c].start, n_c + frames.tangents[c].stop)
        tangential = np.linalg.norm(problem.delassus[part, part], 2)
        total += float(frames.friction[c] * np.sqrt(max(inverse[k, k], 0.0) * tangential))
    # The margins keep rounding errors of the inverse from deciding.
    return bool(np.linalg.cond(delassus) < 1e10 and total < 1.99)


def _in_units_of(solution: ContactSolution, frames: ContactFrames, mass: float) -> ContactSolution:
    """Return the solution of a problem in unit mass with forces in the units of the system.

    Directions of slip among the unknowns have no unit and are not scaled.
    """
    unknowns = solution.unknowns.copy()
    unknowns[: frames.count] *= mass
    for c, part in enumerate(frames.tangents):
        if solution.modes[c] == STICK:
            unknowns[frames.count + part.start : frames.count + part.stop] *= mass
    return replace(solution, unknowns=unknowns, forces=mass * solution.forces)


def _unit(first: Array, second: Array) -> Array:
    """Return the direction of the first of two vectors that is not zero, else the first axis."""
    for vector in (first, second):
        size = float(np.linalg.norm(vector))
        if size > 0:
            return np.asarray(vector / size)
    return np.array([1.0, 0.0])


def _equations(widths: tuple[int, ...]) -> Any:
    """Return the function z = (f_n, y, s) -> rows, Jacobian, forces and rates of contacts with so many tangents.

    Masks choose the rows of the modes.
    """
    return _PROBLEMS.kept(widths, lambda: buffered(_masked_problem(widths)))


def _masked_problem(widths: tuple[int, ...]) -> ca.Function:
    # Equations know how many tangents contacts have; coefficients are arguments.
    frames = ContactFrames.of_widths(widths, names=("",) * len(widths), friction=None, restitution=None, weights=None)
    n_c, n_t = frames.count, frames.n_t
    z = ca.SX.sym("z", n_c + n_t + frames.spatial)
    delassus, offset = ca.SX.sym("delassus", n_c + n_t, n_c + n_t), ca.SX.sym("offset", n_c + n_t)
    masks, held, direction = ca.SX.sym("masks", 3 * n_c), ca.SX.sym("held", n_c), ca.SX.sym("direction", n_t)
    normal, tangential, speed = ca.vertsplit(z, [0, n_c, n_c + n_t, n_c + n_t + frames.spatial])
    # Two calls: the friction force does not depend on the rates, the rates depend on it, and its rows on the rates.
    friction = ca.SX.sym("friction", n_c)
    force, _ = friction_rows(frames, friction, masks, normal, tangential, speed, ca.SX.zeros(n_t), held, direction)
    forces = ca.vertcat(normal, force)
    rates = delassus @ forces + offset
    _, rows = friction_rows(frames, friction, masks, normal, tangential, speed, rates[n_c:], held, direction)
    closed = masks[:n_c]
    residual = ca.vertcat(closed * rates[:n_c] + (1 - closed) * normal, rows)
    return ca.Function(
        "contact_problem",
        [z, delassus, offset, masks, held, direction, friction],
        [residual, ca.jacobian(residual, z), forces, rates],
    )
