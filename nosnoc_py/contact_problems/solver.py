"""One solver of contact problems with interchangeable algorithms, and whether their solution is the only one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import casadi as ca
import numpy as np

from nosnoc_py.contact_problems.colours import Colouring
from nosnoc_py.contact_problems.cones import projection_of
from nosnoc_py.contact_problems.linear_algebra import correction
from nosnoc_py.contact_problems.modes import CLOSED, FREE, SLIP, SLIP_BACK, STICK, friction_rows, masks_of
from nosnoc_py.contact_problems.problem import Array, ContactProblem, by_rows, forces_of
from nosnoc_py.contact_problems.projected import Solver
from nosnoc_py.functions import buffered
from nosnoc_py.systems.kinematics import ContactFrames
from nosnoc_py.tolerances import ADMISSIBLE

Algorithm = Literal["enumeration", "sweeps", "newton"]

SWEEPS = 400
MOST_CANDIDATES = 3000
# Residual of projected iterations, relative to the rates at work: Newton's method in their modes follows.
PROJECTED = 1e-13
# Rates that differ by more than this, relative to those at work, are those of different motions.
DIFFERENT = 1e-6
# Directions of slip in space that are tried for every contact, by the number of contacts that slip in space.
STARTS = {1: 8, 2: 6, 3: 4}
FEWEST_STARTS = 3
# The equations of contact problems, by the numbers of tangents of their contacts.
_PROBLEMS: dict[tuple[int, ...], Callable[..., list[Array]]] = {}


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactSolution:
    """A solution of a `ContactProblem`.

    Attributes
    ----------
    modes : tuple of int
    unknowns : (n_c + n_tt + n_spatial,)
        z = (f_n, y, s): normal forces, forces in stick or directions of slip, slip speeds.
    forces, rates : (n_c + n_tt,)
    residual : float
    """

    modes: tuple[int, ...]
    unknowns: Array
    forces: Array
    rates: Array
    residual: float


class ContactSolver:
    """Solves contact problems of one system, with the coefficients of each problem.

    Projected iterations find the modes, Newton's method in these modes makes the solution exact to rounding; where they
    fail, all modes are tried.
    """

    def __init__(self, frames: ContactFrames) -> None:
        self.frames = frames
        widths = tuple(map(frames.width, range(frames.count)))
        if widths not in _PROBLEMS:  # which is all that the equations depend on
            _PROBLEMS[widths] = buffered(_masked_problem(frames))
        self._function = _PROBLEMS[widths]

    def solve(
        self, problem: ContactProblem, hints: Sequence[Sequence[int]] = (), algorithm: Algorithm | None = None
    ) -> ContactSolution | None:
        """Return an admissible solution, or None where none is found.

        Parameters
        ----------
        problem : ContactProblem
        hints : sequence of modes
            Tried first.
        algorithm : {"enumeration", "sweeps", "newton"}, optional
            All modes in turn; projected Gauss-Seidel (Jourdan, Alart and Jean 1998); the same with semismooth Newton
            steps (Alart and Curnier 1991). By default the last, the second and the first, until one succeeds.
        """
        if not problem.active:
            return self._nothing(problem)
        scaled, mass = problem.in_unit_mass()
        found = self._solve(scaled, hints, algorithm)
        return None if found is None else _in_units_of(found, self.frames, mass)

    def solutions(self, problem: ContactProblem) -> list[ContactSolution]:
        """Return solutions with different rates: all of them in the plane, in space those that a search finds.

        In space a slip may have any direction; the search starts from several for every choice of modes, so that what
        it does not find may exist all the same.
        """
        if not problem.active:
            return [self._nothing(problem)]
        scaled, mass = problem.in_unit_mass()
        # Sweeps cannot leave the cones, so they are a start in any modes, whether or not they converge.
        pairs = self._candidates(scaled, self._projected(scaled, newton=False))
        every = [self._admissible(scaled, *pair) for pair in pairs]
        distinct: list[ContactSolution] = []
        for found in every:
            if found is not None and not any(self._same(scaled, found, other) for other in distinct):
                distinct.append(found)
        return [_in_units_of(found, self.frames, mass) for found in distinct]

    def is_unique(self, problem: ContactProblem) -> bool:
        """Return whether all solutions have the same rates: by a sufficient condition, else by looking for another."""
        return is_monotone(problem) or len(self.solutions(problem)) < 2

    def in_modes(self, problem: ContactProblem, modes: Sequence[int], start: Array | None = None) -> ContactSolution:
        """Run Newton's method in given modes from forces `start`; the result need not be admissible."""
        chosen = self._nearest(problem, modes)
        z = self._unknowns(problem, chosen, np.zeros(problem.offset.size) if start is None else start)
        coefficients = problem.frames.friction
        data = (problem.delassus.T, problem.offset, masks_of(chosen), problem.held, problem.direction, coefficients)
        residual = np.inf
        for _ in range(20):
            rows, jacobian, forces, rates = self._function(z, *data)
            last, residual = residual, float(np.abs(rows).max(initial=0.0))
            small = ADMISSIBLE * max(problem.scale, 1e-300)
            if residual == 0.0 or not np.isfinite(residual) or (residual < small and residual >= 0.5 * last):
                break
            z = z + correction(jacobian, rows.reshape(-1))
        return ContactSolution(
            modes=chosen, unknowns=z, forces=forces.reshape(-1), rates=rates.reshape(-1), residual=residual
        )

    def admissible(self, problem: ContactProblem, found: ContactSolution) -> bool:
        """Return whether every equation and inequality holds."""
        frames, n_c = self.frames, self.frames.count
        if not np.isfinite(found.residual):
            return False
        force = ADMISSIBLE * max(problem.scale, float(np.abs(found.forces).max(initial=0.0)))
        rate = ADMISSIBLE * max(problem.scale, float(np.abs(found.rates).max(initial=0.0)))
        if found.residual > force + rate:
            return False
        for c in problem.active:
            mode, part = found.modes[c], slice(n_c + frames.tangents[c].start, n_c + frames.tangents[c].stop)
            normal, f = found.forces[c], found.forces[part]
            if found.rates[c] < -rate or normal < -force:
                return False
            if mode == STICK and np.linalg.norm(f) > problem.frames.friction[c] * normal + force:
                return False
            # The force of a slipping contact lies opposite to its direction: it must not do work.
            if mode in (SLIP, SLIP_BACK) and not problem.held[c] and self._along(found, c) < -rate:
                return False
        return True

    # --- how a solution is looked for ---

    def _solve(
        self, problem: ContactProblem, hints: Sequence[Sequence[int]], algorithm: Algorithm | None
    ) -> ContactSolution | None:
        tried = [(modes, np.zeros(problem.offset.size)) for modes in hints]
        # Several contacts that stick may share their forces in many ways: the choice that loads friction least is next
        # to what the normal forces bear alone.
        tried += [
            (modes, self._projected(problem, newton=True, friction=0.0))
            for modes in hints
            if list(modes).count(STICK) > 1
        ]
        for modes, start in tried:
            if (found := self._admissible(problem, modes, start)) is not None:
                return found
        start = np.zeros(problem.offset.size)
        # Redundant contacts make the matrix of the Newton steps singular, and plain sweeps are then the surer way.
        for newton in {"enumeration": (), "sweeps": (False,), "newton": (True,), None: (True, False)}[algorithm]:
            start = self._projected(problem, newton=newton)
            if (found := self._admissible(problem, self._read(problem, start), start)) is not None:
                return found
        if algorithm in ("sweeps", "newton"):
            return None
        frictionless = self._projected(problem, newton=False, friction=0.0)
        every = (self._admissible(problem, *pair) for pair in self._candidates(problem, frictionless))
        return next((found for found in every if found is not None), None)

    def _admissible(self, problem: ContactProblem, modes: Sequence[int], start: Array) -> ContactSolution | None:
        found = self.in_modes(problem, modes, start)
        return found if self.admissible(problem, found) else None

    def _nothing(self, problem: ContactProblem) -> ContactSolution:
        """Return no forces, where no contact takes part."""
        frames, size = self.frames, problem.offset.size
        unknowns = np.zeros(size + frames.spatial)
        modes = (FREE,) * frames.count
        return ContactSolution(
            modes=modes, unknowns=unknowns, forces=np.zeros(size), rates=problem.offset, residual=0.0
        )

    def _along(self, found: ContactSolution, c: int) -> float:
        """Return the slip velocity in the direction against which friction acts."""
        n_c, part = self.frames.count, self.frames.tangents[c]
        if self.frames.width(c) == 1:
            return float(found.rates[n_c + part.start] * (1.0 if found.modes[c] == SLIP else -1.0))
        return float(found.rates[n_c:][part] @ found.unknowns[n_c:][part])

    def _nearest(self, problem: ContactProblem, modes: Sequence[int]) -> tuple[int, ...]:
        """Return the nearest modes that this problem has: inactive contacts are open, held ones slip as they do."""
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
        """Return all choices of modes; none where there are too many."""
        options = [self._options(problem, c) for c in range(self.frames.count)]
        few = np.prod([float(len(legal)) for legal in options]) <= MOST_CANDIDATES
        return list(product(*options)) if few else []

    def _candidates(self, problem: ContactProblem, start: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Yield all modes with forces to start from, those first that differ in few contacts from what `start` means.

        The modes of a contact that slips in space leave its direction open: several are tried.
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
        """Return forces with friction of contacts in given directions."""
        turned = forces.copy()
        for c, angle in zip(contacts, angles, strict=True):
            part = self.frames.tangents[c]
            size = friction[c] * max(turned[c], 1.0)
            at = slice(self.frames.count + part.start, self.frames.count + part.stop)
            turned[at] = size * np.array([np.cos(angle), np.sin(angle)])
        return turned

    def _same(self, problem: ContactProblem, one: ContactSolution, other: ContactSolution) -> bool:
        """Return whether two solutions are one motion; redundant contacts may share its forces in many ways."""
        size = max(problem.scale, float(np.abs(one.rates).max(initial=0.0)))
        return bool(np.abs(one.rates - other.rates).max(initial=0.0) <= DIFFERENT * size)

    def _projected(self, problem: ContactProblem, *, newton: bool, friction: float = 1.0) -> Array:
        """Return forces (n_c + n_tt,) by projected iterations from zero."""
        rows = by_rows(problem, friction)
        count = len(problem.active)
        solver = Solver(
            projection_of(rows.rows.shape[1] - 1, None), PROJECTED * max(problem.scale, 1e-300), SWEEPS, newton
        )
        one_by_one = Colouring(order=np.arange(count), parts=tuple(slice(k, k + 1) for k in range(count)))
        with np.errstate(over="ignore", invalid="ignore"):  # no solution: the iterations diverge
            found = solver.solve(rows, one_by_one, np.zeros(rows.rows.shape[:2]))
        forces = forces_of(problem, found.impulses)
        return forces if np.isfinite(forces).all() else np.zeros_like(forces)

    def _read(self, problem: ContactProblem, forces: Array) -> tuple[int, ...]:
        """Return the modes that forces on the cones stand for."""
        n_c, modes = self.frames.count, [FREE] * self.frames.count
        scale = np.abs(forces).max(initial=0.0)
        for c in problem.active:
            legal, tangential = self._options(problem, c), forces[n_c:][self.frames.tangents[c]]
            if not forces[c] > 1e-9 * scale:
                continue
            if len(legal) == 2:
                modes[c] = legal[1]
            elif np.linalg.norm(tangential) < (1 - 1e-7) * problem.frames.friction[c] * forces[c]:
                modes[c] = STICK
            else:
                modes[c] = SLIP_BACK if tangential.size == 1 and tangential[0] > 0 else SLIP
        return tuple(modes)

    def _unknowns(self, problem: ContactProblem, modes: tuple[int, ...], forces: Array) -> Array:
        """Return the first z = (f_n, y, s) of given modes."""
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
    """Return whether a sufficient condition says that all solutions have the same rates.

    Two solutions satisfy d'G d <= sum_c mu_c |d_n,c| |(G d)_t,c| with the difference d of their forces, because in
    De Saxce's form (r_n + mu |r_t|, r_t) and f lie in dual cones. With x = G^(1/2) d the right side is at most
    |x|^2 / 2 sum_c mu_c sqrt((G^-1)_nn |G_tt|), for the two functionals of x are orthogonal; if the sum is below 2,
    x = 0. Without friction d'G d <= 0 says the same for any G. Given directions of slip make G unsymmetric: they are
    left to a search.
    """
    frames, n_c = problem.frames, problem.frames.count
    rubbing = [c for c in problem.active if frames.width(c)]
    if not rubbing:
        return True
    if problem.held[rubbing].any():
        return False
    index = frames.rows(problem.active)
    delassus = problem.delassus[np.ix_(index, index)]
    try:
        inverse = np.linalg.inv(delassus)
    except np.linalg.LinAlgError:
        return False
    total = 0.0
    for c in rubbing:
        k = problem.active.index(c)
        part = slice(n_c + frames.tangents[c].start, n_c + frames.tangents[c].stop)
        tangential = np.linalg.norm(problem.delassus[part, part], 2)
        total += float(frames.friction[c] * np.sqrt(max(inverse[k, k], 0.0) * tangential))
    # Rounding of an inverse near its limit must not decide.
    return bool(np.linalg.cond(delassus) < 1e10 and total < 1.99)


def _in_units_of(found: ContactSolution, frames: ContactFrames, mass: float) -> ContactSolution:
    """Forces of a problem in unit mass in the units of the system; directions of slip among the unknowns have none."""
    unknowns = found.unknowns.copy()
    unknowns[: frames.count] *= mass
    for c, part in enumerate(frames.tangents):
        if found.modes[c] == STICK:
            unknowns[frames.count + part.start : frames.count + part.stop] *= mass
    return replace(found, unknowns=unknowns, forces=mass * found.forces)


def _unit(first: Array, second: Array) -> Array:
    """Return the direction of the first of two vectors that has one."""
    for vector in (first, second):
        size = float(np.linalg.norm(vector))
        if size > 0:
            return np.asarray(vector / size)
    return np.array([1.0, 0.0])


def _masked_problem(frames: ContactFrames) -> ca.Function:
    """Rows, Jacobian, forces and rates of a `ContactProblem` at z = (f_n, y, s); the masks choose the rows."""
    n_c, n_t = frames.count, frames.n_t
    z = ca.SX.sym("z", n_c + n_t + frames.spatial)
    delassus, offset = ca.SX.sym("delassus", n_c + n_t, n_c + n_t), ca.SX.sym("offset", n_c + n_t)
    masks, held, direction = ca.SX.sym("masks", 3 * n_c), ca.SX.sym("held", n_c), ca.SX.sym("direction", n_t)
    normal, tangential, speed = ca.vertsplit(z, [0, n_c, n_c + n_t, n_c + n_t + frames.spatial])
    # The rates depend on the friction force, and its rows on the rates: the force needs no rate.
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
