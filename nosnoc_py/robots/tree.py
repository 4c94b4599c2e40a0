"""Trees of rigid bodies as numbers: joints with their frames, inertias and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Array = np.ndarray
REVOLUTE, PRISMATIC, FLOATING = "revolute", "prismatic", "floating"
# Entries of rotations and inertias below this fraction of the largest one are zero: they would be in every graph.
ZERO_ENTRY = 1e-14


def cleaned(matrix: Array) -> Array:
    """Return the matrix with entries of rounding size set to zero."""
    result = np.array(matrix, dtype=float)
    # Entries such as cos(pi / 2) = 6e-17 would appear as terms in every expression.
    result[np.abs(result) <= ZERO_ENTRY * np.abs(result).max(initial=0.0)] = 0.0
    return result


def skew(a: Array) -> Array:
    """Return the cross-product matrix (3, 3) of a."""
    return np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])


@dataclass(frozen=True, eq=False, kw_only=True)
class BodyInertia:
    """Mass, first moment and moments of inertia of a body, all in one frame and about its origin.

    Attributes
    ----------
    mass : float
        [kg].
    moment : (3,)
        Mass times the centre of mass [kg m].
    about : (3, 3)
        [kg m^2].
    """

    mass: float = 0.0
    moment: Array = field(default_factory=lambda: np.zeros(3))
    about: Array = field(default_factory=lambda: np.zeros((3, 3)))

    @classmethod
    def at_centre(cls, mass: float, centre: Array, about: Array) -> BodyInertia:
        """Return the inertia from the moments about the centre of mass."""
        # Parallel axes: -[c]^2 is the matrix |c|^2 I - c c'.
        return cls(mass=mass, moment=mass * centre, about=about - mass * skew(centre) @ skew(centre))

    def moved(self, rotation: Array, position: Array) -> BodyInertia:
        """Return the same body seen from a frame in which its own has this rotation and position."""
        turned = rotation @ self.moment
        # Mixed terms of the parallel-axis theorem for a reference point that is not the centre of mass.
        cross = skew(turned) @ skew(position)
        about = rotation @ self.about @ rotation.T - cross - cross.T - self.mass * skew(position) @ skew(position)
        return BodyInertia(mass=self.mass, moment=turned + self.mass * position, about=about)

    def __add__(self, other: BodyInertia) -> BodyInertia:
        return BodyInertia(
            mass=self.mass + other.mass, moment=self.moment + other.moment, about=self.about + other.about
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class JointedBody:
    """Body with the joint that connects it to its parent.

    Attributes
    ----------
    link, joint : str
        Names.
    kind : {"revolute", "prismatic", "floating"}
    parent : int
        Index of the parent body; -1 for the world.
    rotation, position : (3, 3), (3,)
        Of the joint in the frame of the parent.
    axis : (3,)
        Unit vector in the frame of the joint.
    inertia : BodyInertia
        In the frame of the body, which is that of the joint, moved by it.
    lower, upper : float
        Of the coordinate [rad or m].
    effort, speed : float
        Largest force of a drive [N m or N], and rate.
    damping, friction, armature : float
        Viscous and dry friction of the joint, and inertia of the drive seen from it.
    """

    link: str
    joint: str
    kind: str
    parent: int
    rotation: Array = field(default_factory=lambda: np.eye(3))
    position: Array = field(default_factory=lambda: np.zeros(3))
    axis: Array = field(default_factory=lambda: np.zeros(3))
    inertia: BodyInertia = field(default_factory=BodyInertia)
    lower: float = -np.inf
    upper: float = np.inf
    effort: float = np.inf
    speed: float = np.inf
    damping: float = 0.0
    friction: float = 0.0
    armature: float = 0.0

    @property
    def n_q(self) -> int:
        """Coordinates."""
        return 7 if self.kind == FLOATING else 1

    @property
    def n_v(self) -> int:
        """Velocities."""
        return 6 if self.kind == FLOATING else 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Tree:
    """Bodies, parents before children.

    Attributes
    ----------
    name : str
    bodies : tuple of JointedBody
    frames : mapping link -> (body, rotation, position)
        Of every link, those that are fixed to others included; body -1 is the world.
    shapes : tuple of LinkShape
        Collision and visual shapes of the file.
    driven : tuple of str, optional
        Joints with drives, if the file names them.
    left_out : tuple of str
        Elements of the file without effect on the motion: materials, drivers, settings of simulators.
    """

    name: str
    bodies: tuple[JointedBody, ...]
    frames: Mapping[str, tuple[int, Array, Array]]
    shapes: tuple[Any, ...] = ()
    driven: tuple[str, ...] | None = None
    left_out: tuple[str, ...] = ()

    def with_armature(self, armature: Mapping[str, float]) -> Tree:
        """Return the tree with armature inertias, given by the names of joints."""
        bodies = tuple(replace(b, armature=armature.get(b.joint, b.armature)) for b in self.bodies)
        return replace(self, bodies=bodies)
