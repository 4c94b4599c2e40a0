"""Accelerations and contact forces of a contact system with fixed modes.

In a regime the closed contacts have zero normal acceleration, sticking ones also zero tangential acceleration, and
slipping ones a friction force mu f_n against the direction of slip. This gives a linear system (A M^-1 B) f = -(A M^-1
h + curvature) for the independent forces f (one per row of A), where B contains normal forces together with their
friction. Redundant contacts make it singular: the minimum-norm forces are used for the motion, and forces far from the
edges of their cones for the guards.

If mu f_n increases the approach of a slipping contact more than f_n reduces it, the system has no or several solutions
(Painleve's paradox); `stiffness` measures this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nosnoc_py.audit.redundancy import REDUNDANT, null_space
from nosnoc_py.contact_problems.modes import FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.simulation.event_driven.redundancy import Share, interior_by_piles
from nosnoc_py.systems.kinematics import ContactFrames, Kinematics, effective_mass
from nosnoc_py.tolerances import PULL

Array = np.ndarray
# A slip much slower than this fraction of the typical speed keeps its direction (that of the acceleration where it
# starts, the last one where it ends): the direction of so small a velocity is rounding.
STARTING = 1e-9
# The direction of a slip in space turns fast (a stiff motion) until its speed exceeds this part of the typical speed.
GROWN = 1e-4
# Slack of forces, relative to the largest one, with which they last.
LASTING = 1e-2


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactRegime:
    """Modes of all contacts and the quantities that depend on them.

    Attributes
    ----------
    modes : tuple of int
        As in `contact_problems.modes`.
    direction : (n_tt,)
        Directions of slip at the beginning of a step: +-1 in the plane, a unit vector in space.
    redundant : bool
        True if the forces of closed contacts are not unique.
    speed : float
        Speed of the motion [m/s] that tolerances are relative to.
    known : (k,) or None
        Independent contact forces that are admissible at the start: redundant ones stay as near to them as they can.
    lasts : bool
        The known forces are far from a change of modes.
    choosing : bool
        The known forces have come to an end: redundant ones are chosen anew at every instant.
    """

    frames: ContactFrames
    modes: tuple[int, ...]
    direction: Array
    redundant: bool = False
    speed: float = 1.0
    known: Array | None = None
    lasts: bool = True
    choosing: bool = False

    @cached_property
    def closed(self) -> Array:
        """Indices of the closed contacts."""
        return np.flatnonzero(np.array(self.modes, dtype=int) != FREE)

    @cached_property
    def slipping(self) -> tuple[int, ...]:
        """Indices of the slipping contacts."""
        return tuple(c for c, mode in enumerate(self.modes) if mode in (SLIP, SLIP_BACK))

    @cached_property
    def spatial(self) -> tuple[int, ...]:
        """Indices of the contacts that slip with two tangents."""
        return tuple(c for c in self.slipping if self.frames.width(c) == 2)

    @cached_property
    def rows(self) -> Array:
        """Indices of the rates that stay zero (normals of closed, tangents of sticking contacts)."""
        stuck = [c for c, mode in enumerate(self.modes) if mode == STICK]
        return np.concatenate([self.closed, self.frames.rows(stuck)[len(stuck) :]])

    def slip_direction(self, contact: int, rates: Array) -> Array:
        """Return the unit vector of the slip of a contact; a slip that would reverse keeps its direction."""
        part = self.frames.tangents[contact]
        previous = self.direction[part]
        if part.stop - part.start == 1:
            return previous
        slip = rates[self.frames.count :][part]
        starting = STARTING * self.speed
        # For slips below STARTING this weight keeps the previous direction; above it vanishes like 1 / |slip|^2. The
        # direction is thus a smooth function of the rates, which integrators need.
        weight = starting / (1.0 + slip @ slip / starting**2)
        # Reverse only the component along the previous direction. The component across it must keep its friction force,
        # or it would grow.
        along = slip - min(0.0, 2.0 * (slip @ previous)) * previous + weight * previous
        return np.asarray(along / np.linalg.norm(along))

    def turns(self, contact: int, rates: Array) -> Array:
        """Return the derivative (2, 2) of `slip_direction` by the slip, in space."""
        part = self.frames.tangents[contact]
        previous, slip, starting = self.direction[part], rates[self.frames.count :][part], STARTING * self.speed
        size = 1.0 + slip @ slip / starting**2
        along = slip - min(0.0, 2.0 * (slip @ previous)) * previous + starting / size * previous
        unit, mirrors = along / np.linalg.norm(along), float(slip @ previous < 0.0)
        by_slip = np.eye(2) - np.outer(previous, 2.0 * mirrors * previous + 2.0 * slip / (starting * size**2))
        return np.asarray((by_slip - np.outer(unit, unit @ by_slip)) / np.linalg.norm(along))

    def slowest(self, rates: Array) -> float:
        """Return the speed of the slowest slip in space, at least that of a `STARTING` one; infinite without one."""
        slips = [rates[self.frames.count :][self.frames.tangents[c]] for c in self.spatial]
        return max(STARTING * self.speed, min((float(np.linalg.norm(slip)) for slip in slips), default=np.inf))

    def stiffness(self, contact: int, at: Kinematics) -> float:
        """Return the acceleration of the gap per unit of normal force, with its friction (<= 0: Painleve's paradox)."""
        part = self.frames.tangents[contact]
        sideways = at.delassus[contact, self.frames.count :][part] @ self.slip_direction(contact, at.rates)
        return float(at.delassus[contact, contact] - at.framed(self.frames).friction[contact] * sideways)

    def jammed(self, at: Kinematics) -> list[int]:
        """Return slipping contacts whose normal force pulls them into their surface (Painleve's paradox)."""
        return [c for c in self.slipping if self.stiffness(c, at) <= 0.0]

    def updated(self, rates: Array) -> ContactRegime:
        """Return the same modes with the directions of slip at these rates."""
        if not self.spatial:
            return self
        direction = self.direction.copy()
        for c in self.spatial:
            direction[self.frames.tangents[c]] = self.slip_direction(c, rates)
        return replace(self, direction=direction)

    def inertia(self, at: Kinematics) -> float:
        """Return the smallest mass [kg] that the normal force of a closed contact moves."""
        return effective_mass(at.delassus, self.closed)

    def columns(self, at: Kinematics) -> Array:
        """Return accelerations (n_q, k) per unit of each independent contact force."""
        accelerations, friction = at.response[:, self.rows], at.framed(self.frames).friction
        n_c = self.frames.count
        for k, c in enumerate(self.closed):
            if c in self.slipping:
                tangents = at.response[:, n_c:][:, self.frames.tangents[c]]
                # Friction follows its normal force, f_t = -mu f_n d, so that a slipping contact has one unknown.
                accelerations[:, k] -= friction[c] * (tangents @ self.slip_direction(c, at.rates))
        return np.asarray(accelerations)

    def motion(self, at: Kinematics) -> tuple[Array, Array]:
        """Return acceleration (n_q,) and independent contact forces (k,); NaN if they have no value."""
        free = at.inverse @ at.force
        if not self.rows.size:
            return free, np.zeros(0)
        columns, A = self.columns(at), at.jacobian[self.rows]
        # The rows of A have zero acceleration; the matrix is not symmetric as soon as a contact slips.
        matrix, right = A @ columns, -(A @ free + at.curvature[self.rows])
        if not (np.isfinite(matrix).all() and np.isfinite(right).all()):  # LAPACK would print a warning
            return np.full(free.size, np.nan), np.full(self.rows.size, np.nan)
        try:
            if not self.redundant:
                forces = np.linalg.solve(matrix, right)
            else:
                # Where redundant contacts slip, their shares decide the friction, and so the motion: the smallest
                # forces need not be admissible.
                known = np.zeros(right.size) if self.known is None else self.known
                forces = known + np.linalg.lstsq(matrix, right - matrix @ known, rcond=REDUNDANT)[0]
        except np.linalg.LinAlgError:
            return np.full(free.size, np.nan), np.full(self.rows.size, np.nan)
        return free + columns @ forces, forces

    def turning(self, at: Kinematics) -> tuple[Array, Array]:
        """Return factors (n_v, k), (k, n_v) of the derivative of the acceleration by the velocity as far as it turns
        slips in space.
        """
        columns, n_c, n_v = self.columns(at), self.frames.count, len(at.mass)
        forces, left, right = self.motion(at)[1], [np.zeros((n_v, 0))], [np.zeros((0, n_v))]
        for k, c in enumerate(self.closed):
            if c in self.spatial:
                part = slice(n_c + self.frames.tangents[c].start, n_c + self.frames.tangents[c].stop)
                left.append(
                    -at.framed(self.frames).friction[c] * forces[k] * at.response[:, part] @ self.turns(c, at.rates)
                )
                right.append(at.jacobian[part])
        rows, pushed = at.jacobian[self.rows], np.hstack(left)
        # Other friction changes the forces, so that the accelerations along the rows stay zero.
        held = columns @ np.linalg.lstsq(rows @ columns, rows @ pushed, rcond=REDUNDANT)[0]
        return np.asarray(pushed - held), np.vstack(right)

    def forces(self, at: Kinematics) -> tuple[Array, dict[int, float]]:
        """Return all contact forces (n_c + n_tt,); if they are chosen, with the least slack by contact.

        The motion does not depend on the choice, but modes change only when no choice is admissible any more.
        """
        independent, least = self.motion(at)[1], dict[int, float]()
        if self.choosing and np.isfinite(independent).all():
            independent, slack = self._chosen(at, independent)
            least = {int(self.closed[k]): value for k, value in slack.items()}
        return np.asarray(self.spread(at) @ independent), least

    def with_forces(self, at: Kinematics, forces: Array) -> ContactRegime:
        """Return the regime with admissible forces (n_c + n_tt,), of redundant contacts those farthest from a change.

        Most motions end before these forces do, which saves a program at every instant.
        """
        if not self.redundant:
            return self
        known, least = self._chosen(at, forces[self.rows])
        lasts = min(least.values(), default=np.inf) > LASTING * np.abs(known).max(initial=0.0)
        return replace(self, known=known, lasts=lasts)

    def other_forces(self, at: Kinematics, forces: Array, contact: int) -> Array | None:
        """Return contact forces (n_c + n_tt,) for which a contact, and those that depend on it, are away from a change.

        None if its force is unique, or every choice is at a change.
        """
        known, least = self._chosen(at, forces[self.rows])
        slack = least.get(int(np.searchsorted(self.closed, contact)), 0.0)
        return np.asarray(self.spread(at) @ known) if slack > PULL * np.abs(known).max() else None

    def _chosen(self, at: Kinematics, independent: Array) -> tuple[Array, dict[int, float]]:
        """Return the independent forces (k,) farthest from a change of modes, and least slacks by contact."""
        return interior_by_piles(independent, null_space(self.columns(at)), self._shares(at))

    def spread(self, at: Kinematics) -> Array:
        """Return the matrix from independent forces (k,) to all forces (n_c + n_tt,)."""
        n_c = self.frames.count
        matrix = np.zeros((n_c + self.frames.n_t, self.rows.size))
        matrix[self.rows, np.arange(self.rows.size)] = 1.0
        for k, c in enumerate(self.closed):
            if c in self.slipping:
                part = self.frames.tangents[c]
                direction = self.slip_direction(c, at.rates)
                matrix[n_c + part.start : n_c + part.stop, k] = -at.framed(self.frames).friction[c] * direction
        return matrix

    def _shares(self, at: Kinematics) -> list[Share]:
        """Return the conditions that the independent forces of each closed contact have to satisfy."""
        n_c, shares, cone = self.frames.count, [], at.framed(self.frames).cone
        for k, c in enumerate(self.closed):
            part = self.frames.tangents[c]
            inside = (self.rows >= n_c + part.start) & (self.rows < n_c + part.stop)
            shares.append((k, float(cone[c]), [int(i) for i in np.flatnonzero(inside)]))
        return shares


def regime_of(
    frames: ContactFrames, modes: Sequence[int], direction: Array, at: Kinematics, forces: Array | None = None
) -> ContactRegime:
    """Return the regime of modes, with all contact forces if they are known.

    Determines whether its closed contacts are redundant at this state.
    """
    regime = ContactRegime(frames=frames, modes=tuple(modes), direction=direction, speed=at.scales.speed)
    if not regime.rows.size:
        return regime
    # Dependent rows of A, whatever the friction: forces along them cancel each other.
    regime = replace(regime, redundant=null_space(at.jacobian[regime.rows].T).shape[1] > 0)
    return regime if forces is None else regime.with_forces(at, forces)
