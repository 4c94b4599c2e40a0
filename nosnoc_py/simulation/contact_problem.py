"""Contact problems at one instant: impulses of an impact, and which contacts stick, slip or open right after it.

Both are the same problem in local coordinates, with the Delassus matrix G = J M^-1 J' (FESD-J, Eqs. 1c to 1e):

    r = G f + b,    0 <= f_n  perpendicular  r_n >= 0,    |f_t| <= mu f_n,    mu f_n r_t = -|r_t| f_t for every contact.

At an impact f are impulses and r velocities after it (r_n shifted by e v_n-); between impacts f are forces and r
accelerations. Tangents carry the weights of an anisotropic cone, so that all cones here are circular.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.simulation.contact_frames import CLOSED, FREE, SLIP, SLIP_BACK, STICK, ContactFrames, friction_rows
from nosnoc_py.simulation.linear_algebra import correction

SWEEPS = 400
MOST_CANDIDATES = 3000
# Violations below this, relative to the sizes at hand, are rounding.
ADMISSIBLE = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalProblem:
    """One problem r = G f + b in local coordinates, normals first, then tangents.

    Attributes
    ----------
    delassus : (n_c + n_tt, n_c + n_tt)
    offset : (n_c + n_tt,)
        b; its normal part contains e v_n-.
    least : (n_c,)
        r_n may not be below this: 0, or e v_n- where r_n >= 0 would still be a penetration.
    active : tuple of int
        Contacts that take part.
    held : (n_c,) bool
        Contacts that slip already: `direction` (n_tt,) is theirs and does not follow r_t.
    """

    delassus: np.ndarray
    offset: np.ndarray
    least: np.ndarray
    active: tuple[int, ...]
    held: np.ndarray
    direction: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalForces:
    """A solution of a `LocalProblem`: unknowns z = (f_n, y, s), the forces f, the rates r, and the modes."""

    modes: tuple[int, ...]
    unknowns: np.ndarray
    forces: np.ndarray
    rates: np.ndarray
    residual: float


def impact_problem(
    frames: ContactFrames, delassus: np.ndarray, before: np.ndarray, active: Sequence[int], rest_velocity: float
) -> LocalProblem:
    """The problem of an impact (FESD-J, Eq. 11) with the rates `before` (n_c + n_tt,) it; slower ones do not bounce."""
    normal = before[: frames.count]
    bounce = np.where(np.abs(normal) > rest_velocity, frames.restitution, 0.0) * normal
    offset = before.copy()
    offset[: frames.count] += bounce
    return LocalProblem(
        delassus=delassus,
        offset=offset,
        least=np.maximum(bounce, 0.0),
        active=tuple(active),
        held=np.zeros(frames.count, dtype=bool),
        direction=np.zeros(frames.weights.size),
    )


def acceleration_problem(
    frames: ContactFrames,
    delassus: np.ndarray,
    offset: np.ndarray,
    rates: np.ndarray,
    active: Sequence[int],
    resting: float | np.ndarray,
) -> LocalProblem:
    """The problem of the accelerations of closed contacts; what slips faster than `resting` goes on as it does."""
    held, direction = np.zeros(frames.count, dtype=bool), np.zeros(frames.weights.size)
    for c, (part, slow) in enumerate(zip(frames.tangents, np.broadcast_to(resting, frames.count), strict=True)):
        slip = rates[frames.count :][part]
        size = float(np.linalg.norm(slip))
        if size > slow:
            held[c], direction[part] = True, slip / size
    return LocalProblem(
        delassus=delassus,
        offset=offset,
        least=np.zeros(frames.count),
        active=tuple(active),
        held=held,
        direction=direction,
    )


class LocalSolver:
    """Solves contact problems: projected Gauss-Seidel finds the modes, Newton's method in these modes polishes."""

    def __init__(self, frames: ContactFrames) -> None:
        self.frames = frames
        self._function = buffered(_masked_problem(frames))
        n_c, tangents = frames.count, frames.tangents
        self._blocks = [np.concatenate([[c], n_c + np.arange(t.start, t.stop)]) for c, t in enumerate(tangents)]

    def solve(self, problem: LocalProblem, hints: Sequence[Sequence[int]] = ()) -> LocalForces | None:
        """The first admissible solution: in the hinted modes, in those of the sweeps, in any modes at all."""
        if not problem.active:
            return self._nothing(problem)
        start = np.zeros(problem.offset.size)
        for modes in hints:
            found = self.in_modes(problem, modes, start)
            if self.admissible(problem, found):
                return found
        for modes in (modes for modes in hints if list(modes).count(STICK) > 1):
            # Forces that are not unique: those that load friction least, next to what the normals bear alone.
            found = self.in_modes(problem, modes, self._sweep(problem, friction=0.0))
            if self.admissible(problem, found):
                return found
        start = self._sweep(problem)
        for modes in self._candidates(problem, self._read(problem, start)):
            found = self.in_modes(problem, modes, start)
            if self.admissible(problem, found):
                return found
        return None

    def _nothing(self, problem: LocalProblem) -> LocalForces:
        """No contact takes part: no forces."""
        frames, size = self.frames, problem.offset.size
        unknowns = np.zeros(size + frames.spatial)
        modes = (FREE,) * frames.count
        return LocalForces(modes=modes, unknowns=unknowns, forces=np.zeros(size), rates=problem.offset, residual=0.0)

    def in_modes(self, problem: LocalProblem, modes: Sequence[int], start: np.ndarray | None = None) -> LocalForces:
        """Newton's method in given modes from forces `start`, whether or not the result is admissible."""
        chosen = self._cast(problem, modes)
        z = self._unknowns(problem, chosen, np.zeros(problem.offset.size) if start is None else start)
        data = (problem.delassus.T, problem.offset, self.frames.masks(chosen), problem.held, problem.direction)
        residual = np.inf
        for _ in range(20):
            rows, jacobian, forces, rates = self._function(z, *data)
            last, residual = residual, float(np.abs(rows).max(initial=0.0))
            if residual == 0.0 or not np.isfinite(residual) or (residual < 1e-9 and residual >= 0.5 * last):
                break
            z = z + correction(jacobian, rows.reshape(-1))
        return LocalForces(
            modes=chosen, unknowns=z, forces=forces.reshape(-1), rates=rates.reshape(-1), residual=residual
        )

    def admissible(self, problem: LocalProblem, found: LocalForces) -> bool:
        """Whether every equation and inequality holds."""
        frames, n_c = self.frames, self.frames.count
        force, rate = 1.0 + np.abs(found.forces).max(initial=0.0), 1.0 + np.abs(found.rates).max(initial=0.0)
        if not (np.isfinite(found.residual) and found.residual <= ADMISSIBLE * (force + rate)):
            return False
        for c in problem.active:
            mode, part = found.modes[c], slice(n_c + frames.tangents[c].start, n_c + frames.tangents[c].stop)
            normal, f = found.forces[c], found.forces[part]
            if found.rates[c] < max(problem.least[c], 0.0) - ADMISSIBLE * rate or normal < -ADMISSIBLE * force:
                return False
            if mode == STICK and np.linalg.norm(f) > frames.friction[c] * normal + ADMISSIBLE * force:
                return False
            # The force of a slipping contact lies opposite to its direction: it must not do work.
            if mode in (SLIP, SLIP_BACK) and not problem.held[c] and self._work(found, c) < -ADMISSIBLE * rate:
                return False
        return True

    def _work(self, found: LocalForces, c: int) -> float:
        n_c, part = self.frames.count, self.frames.tangents[c]
        if self.frames.width(c) == 1:
            return float(found.rates[n_c + part.start] * (1.0 if found.modes[c] == SLIP else -1.0))
        return float(found.rates[n_c:][part] @ found.unknowns[n_c:][part])

    def _cast(self, problem: LocalProblem, modes: Sequence[int]) -> tuple[int, ...]:
        """The nearest modes that this problem knows: inactive contacts are open, held ones slip as they do."""
        chosen = []
        for c, mode in enumerate(modes):
            legal = self._options(problem, c)
            chosen.append(mode if mode in legal else legal[min(1, len(legal) - 1)] if mode != FREE else FREE)
        return tuple(chosen)

    def _options(self, problem: LocalProblem, c: int) -> tuple[int, ...]:
        if c not in problem.active:
            return (FREE,)
        width = self.frames.width(c)
        if width == 0:
            return (FREE, CLOSED)
        if problem.held[c]:
            backwards = width == 1 and problem.direction[self.frames.tangents[c]][0] < 0
            return (FREE, SLIP_BACK if backwards else SLIP)
        return (FREE, STICK, SLIP, SLIP_BACK) if width == 1 else (FREE, STICK, SLIP)

    def _candidates(self, problem: LocalProblem, first: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """The modes of the sweeps, then all others that differ in few contacts first, up to a bound."""
        yield first
        options = [self._options(problem, c) for c in range(self.frames.count)]
        if np.prod([float(len(legal)) for legal in options]) <= MOST_CANDIDATES:
            every = [modes for modes in product(*options) if modes != first]
            yield from sorted(every, key=lambda modes: sum(a != b for a, b in zip(modes, first, strict=True)))

    def _sweep(self, problem: LocalProblem, friction: float = 1.0) -> np.ndarray:
        """Projected Gauss-Seidel with De Saxce's projection onto the friction cone, of `friction` times the slope."""
        forces = np.zeros(problem.offset.size)
        rho = {c: 1.0 / max(np.linalg.eigvalsh(self._block(problem, c))[-1], 1e-300) for c in problem.active}
        for _ in range(SWEEPS):
            before = forces.copy()
            for c in problem.active:
                self._relax(problem, c, rho[c], friction * self.frames.friction[c], forces)
            if np.abs(forces - before).max(initial=0.0) <= 1e-13 * (1.0 + np.abs(forces).max(initial=0.0)):
                break
        return forces

    def _block(self, problem: LocalProblem, c: int) -> np.ndarray:
        return problem.delassus[np.ix_(self._blocks[c], self._blocks[c])]

    def _relax(self, problem: LocalProblem, c: int, rho: float, mu: float, forces: np.ndarray) -> None:
        """One contact of a sweep; changes `forces` in place."""
        block = self._blocks[c]
        rate = problem.delassus[block] @ forces + problem.offset[block]
        if problem.held[c]:
            along = np.concatenate([[1.0], -mu * problem.direction[self.frames.tangents[c]]])
            stiffness = float(problem.delassus[c, block] @ along)
            # Not positive: the paradox of Painleve; the sweeps then diverge and all modes are tried.
            forces[block] = max(0.0, forces[c] - rate[0] / (stiffness if stiffness > 0 else 1.0 / rho)) * along
        else:
            rate[0] += mu * np.linalg.norm(rate[1:])
            forces[block] = project_onto_cone(forces[block] - rho * rate, mu)

    def _read(self, problem: LocalProblem, forces: np.ndarray) -> tuple[int, ...]:
        """The modes that forces on the cones stand for."""
        n_c, modes = self.frames.count, [FREE] * self.frames.count
        scale = np.abs(forces).max(initial=0.0)
        for c in problem.active:
            legal, tangential = self._options(problem, c), forces[n_c:][self.frames.tangents[c]]
            if not forces[c] > 1e-9 * scale:
                continue
            if len(legal) == 2:
                modes[c] = legal[1]
            elif np.linalg.norm(tangential) < (1 - 1e-7) * self.frames.friction[c] * forces[c]:
                modes[c] = STICK
            else:
                modes[c] = SLIP_BACK if tangential.size == 1 and tangential[0] > 0 else SLIP
        return tuple(modes)

    def _unknowns(self, problem: LocalProblem, modes: tuple[int, ...], forces: np.ndarray) -> np.ndarray:
        """First z = (f_n, y, s) of given modes."""
        frames, n_c = self.frames, self.frames.count
        z = np.zeros(n_c + frames.weights.size + frames.spatial)
        z[:n_c] = np.where(np.asarray(modes) == FREE, 0.0, forces[:n_c])
        rates = problem.delassus @ forces + problem.offset
        for c, part in enumerate(frames.tangents):
            at = slice(n_c + part.start, n_c + part.stop)
            if modes[c] == STICK:
                z[at] = forces[at]
            elif modes[c] == SLIP and frames.width(c) == 2:
                z[at] = problem.direction[part] if problem.held[c] else _unit(-forces[at], rates[at])
                z[n_c + frames.weights.size + frames.speeds[c]] = 0.0 if problem.held[c] else float(rates[at] @ z[at])
        return z


def project_onto_cone(force: np.ndarray, mu: float) -> np.ndarray:
    """The nearest force (f_n, f_t) with |f_t| <= mu f_n."""
    normal, size = force[0], float(np.linalg.norm(force[1:]))
    if size <= mu * normal:
        return force
    if mu * size <= -normal:
        return np.zeros_like(force)
    new = (normal + mu * size) / (1.0 + mu * mu)
    return np.concatenate([[new], mu * new * force[1:] / size])


def _unit(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The direction of the first of two vectors that has one."""
    for vector in (first, second):
        size = float(np.linalg.norm(vector))
        if size > 0:
            return np.asarray(vector / size)
    return np.array([1.0, 0.0])


def _masked_problem(frames: ContactFrames) -> ca.Function:
    """Rows, Jacobian, forces and rates of a `LocalProblem` at z = (f_n, y, s); the masks choose the rows."""
    n_c, n_t = frames.count, frames.weights.size
    z = ca.SX.sym("z", n_c + n_t + frames.spatial)
    delassus, offset = ca.SX.sym("delassus", n_c + n_t, n_c + n_t), ca.SX.sym("offset", n_c + n_t)
    masks, held, direction = ca.SX.sym("masks", 3 * n_c), ca.SX.sym("held", n_c), ca.SX.sym("direction", n_t)
    normal, tangential, speed = ca.vertsplit(z, [0, n_c, n_c + n_t, n_c + n_t + frames.spatial])
    # The rates depend on the friction force, and its rows on the rates: the force needs no rate.
    force, _ = friction_rows(frames, masks, normal, tangential, speed, ca.SX.zeros(n_t), held, direction)
    forces = ca.vertcat(normal, force)
    rates = delassus @ forces + offset
    _, rows = friction_rows(frames, masks, normal, tangential, speed, rates[n_c:], held, direction)
    closed = masks[:n_c]
    residual = ca.vertcat(closed * rates[:n_c] + (1 - closed) * normal, rows)
    return ca.Function(
        "contact_problem",
        [z, delassus, offset, masks, held, direction],
        [residual, ca.jacobian(residual, z), forces, rates],
    )
