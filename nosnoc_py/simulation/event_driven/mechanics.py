"""Motion of a contact system while the modes of its contacts stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nosnoc_py.audit.redundancy import REDUNDANT, null_space
from nosnoc_py.contact_problems.modes import FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.simulation.event_driven.redundancy import Share, most_interior
from nosnoc_py.systems.kinematics import ContactFrames, Kinematics, effective_mass

Array = np.ndarray
# A slip much slower than this share of the speed at work keeps its direction: where it starts that of the acceleration,
# where it ends the last one.
STARTING = 1e-9
# The direction of a slip in space is stiff until it is as fast as this share of the speed at work.
GROWN = 1e-4


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactRegime:
    """The modes of all contacts, and what follows from them.

    Attributes
    ----------
    modes : tuple of int
        As in `contacts.modes`.
    direction : (n_tt,)
        Where a slipping contact slips, at the beginning of a step: +-1 in the plane, a unit vector in space.
    redundant : bool
        Whether closed contacts share their forces in many ways.
    speed : float
        The speed at work.
    """

    frames: ContactFrames
    modes: tuple[int, ...]
    direction: Array
    redundant: bool = False
    speed: float = 1.0

    @cached_property
    def closed(self) -> Array:
        """Contacts that are closed, as indices."""
        return np.flatnonzero(np.array(self.modes, dtype=int) != FREE)

    @cached_property
    def slipping(self) -> tuple[int, ...]:
        """Contacts that slip."""
        return tuple(c for c, mode in enumerate(self.modes) if mode in (SLIP, SLIP_BACK))

    @cached_property
    def spatial(self) -> tuple[int, ...]:
        """Contacts that slip in space."""
        return tuple(c for c in self.slipping if self.frames.width(c) == 2)

    @cached_property
    def rows(self) -> Array:
        """Rates that stay zero, as indices into normals and tangents."""
        stuck = [c for c, mode in enumerate(self.modes) if mode == STICK]
        return np.concatenate([self.closed, self.frames.rows(stuck)[len(stuck) :]])

    def slip_direction(self, contact: int, rates: Array) -> Array:
        """Unit vector of the slip of a contact; a slip that would turn back goes on as if it did not."""
        part = self.frames.tangents[contact]
        given = self.direction[part]
        if part.stop - part.start == 1:
            return given
        slip = rates[self.frames.count :][part]
        starting = STARTING * self.speed
        kept = starting / (1.0 + slip @ slip / starting**2)
        # Turned back along the given direction only: what is across it has to meet its own friction, or it grows.
        along = slip - min(0.0, 2.0 * (slip @ given)) * given + kept * given
        return np.asarray(along / np.linalg.norm(along))

    def slowest(self, rates: Array) -> float:
        """Speed of the slowest slip in space, at least that of a `STARTING` one; infinite when there is none."""
        slips = [rates[self.frames.count :][self.frames.tangents[c]] for c in self.spatial]
        return max(STARTING * self.speed, min((float(np.linalg.norm(slip)) for slip in slips), default=np.inf))

    def stiffness(self, contact: int, look: Kinematics) -> float:
        """What a unit of normal force does against the approach of a slipping contact."""
        part = self.frames.tangents[contact]
        sideways = look.delassus[contact, self.frames.count :][part] @ self.slip_direction(contact, look.rates)
        return float(look.delassus[contact, contact] - self.frames.friction[contact] * sideways)

    def jammed(self, look: Kinematics) -> list[int]:
        """Slipping contacts whose normal force pulls them into their surface (the paradox of Painleve)."""
        return [c for c in self.slipping if self.stiffness(c, look) <= 0.0]

    def turned(self, rates: Array) -> ContactRegime:
        """The same modes with the directions of slip of this instant."""
        if not self.spatial:
            return self
        direction = self.direction.copy()
        for c in self.spatial:
            direction[self.frames.tangents[c]] = self.slip_direction(c, rates)
        return replace(self, direction=direction)

    def inertia(self, look: Kinematics) -> float:
        """The smallest mass [kg] that the normal force of a closed contact moves."""
        return effective_mass(look.delassus, self.closed)

    def columns(self, look: Kinematics) -> Array:
        """Acceleration (n_q, k) by a unit of every independent contact force: one per row."""
        made = look.response[:, self.rows]
        n_c = self.frames.count
        for k, c in enumerate(self.closed):
            if c in self.slipping:
                tangents = look.response[:, n_c:][:, self.frames.tangents[c]]
                made[:, k] -= self.frames.friction[c] * (tangents @ self.slip_direction(c, look.rates))
        return np.asarray(made)

    def motion(self, look: Kinematics) -> tuple[Array, Array]:
        """Acceleration (n_q,) and independent contact forces (k,), one per row; NaN where they have no value."""
        free = look.inverse @ look.force
        if not self.rows.size:
            return free, np.zeros(0)
        columns, A = self.columns(look), look.jacobian[self.rows]
        matrix, right = A @ columns, -(A @ free + look.curvature[self.rows])
        try:
            least = np.linalg.lstsq(matrix, right, rcond=REDUNDANT)[0] if self.redundant else None
            forces = np.linalg.solve(matrix, right) if least is None else least
        except np.linalg.LinAlgError:
            return np.full(free.size, np.nan), np.full(self.rows.size, np.nan)
        return free + columns @ forces, forces

    def forces(self, look: Kinematics) -> Array:
        """All contact forces (n_c + n_tt,); of redundant ones those that are farthest from any change."""
        independent = self.motion(look)[1]
        if self.redundant and np.isfinite(independent).all():
            independent = most_interior(independent, null_space(self.columns(look)), self._shares())
        return np.asarray(self.spread(look) @ independent)

    def spread(self, look: Kinematics) -> Array:
        """From independent forces (k,) to all (n_c + n_tt,)."""
        n_c = self.frames.count
        matrix = np.zeros((n_c + self.frames.n_t, self.rows.size))
        matrix[self.rows, np.arange(self.rows.size)] = 1.0
        for k, c in enumerate(self.closed):
            if c in self.slipping:
                part = self.frames.tangents[c]
                direction = self.slip_direction(c, look.rates)
                matrix[n_c + part.start : n_c + part.stop, k] = -self.frames.friction[c] * direction
        return matrix

    def _shares(self) -> list[Share]:
        """What the independent forces of every closed contact have to satisfy."""
        n_c, shares = self.frames.count, []
        for k, c in enumerate(self.closed):
            part = self.frames.tangents[c]
            inside = (self.rows >= n_c + part.start) & (self.rows < n_c + part.stop)
            shares.append((k, float(self.frames.friction[c]), [int(i) for i in np.flatnonzero(inside)]))
        return shares


def regime_of(frames: ContactFrames, modes: Sequence[int], direction: Array, look: Kinematics) -> ContactRegime:
    """A regime; looks whether the closed contacts are redundant at this state."""
    made = ContactRegime(frames=frames, modes=tuple(modes), direction=direction, speed=look.scales.speed)
    if not made.rows.size:
        return made
    return replace(made, redundant=null_space(look.jacobian[made.rows].T).shape[1] > 0)
