"""Trees of rigid bodies as numbers: joints with their frames, inertias and limits, and what acts between the bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Array = np.ndarray
REVOLUTE, PRISMATIC, FLOATING, SPHERICAL = "revolute", "prismatic", "floating", "spherical"
# Coordinates and velocities of the kinds of joints; quaternions have four components and three rates.
SIZES = {REVOLUTE: (1, 1), PRISMATIC: (1, 1), FLOATING: (7, 6), SPHERICAL: (4, 3)}
WORLD = "world"  # link of all that does not move
Interval = tuple[float, float]
FREE: Interval = (-np.inf, np.inf)
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
class Resistance:
    """Springs and dampers of a joint or a tendon.

    With the excess x of a coordinate over the interval `rest`, and its rate w, the force is
    -x (k_0 + k_1 x + k_2 x^2) - w (d_0 + d_1 |w| + d_2 w^2). Both are continuous, and smooth except at the ends of the
    interval.

    Attributes
    ----------
    stiffness, damping : tuple of 3
        [N/m or N m/rad] and [N s/m or N m s/rad], with further powers.
    rest : (2,), or (n_q,) of a joint with a quaternion
        Interval without force, or the pose at rest.
    """

    stiffness: tuple[float, ...] = (0.0, 0.0, 0.0)
    damping: tuple[float, ...] = (0.0, 0.0, 0.0)
    rest: Array = field(default_factory=lambda: np.zeros(2))

    def damped(self, damping: Iterable[float]) -> Resistance:
        """Return the same with more damping."""
        return replace(self, damping=tuple(np.add(self.damping, tuple(damping)).tolist()))


@dataclass(frozen=True, eq=False, kw_only=True)
class JointedBody:
    """Body with the joint that connects it to its parent.

    Attributes
    ----------
    link, joint : str
        Names.
    kind : {"revolute", "prismatic", "floating", "spherical"}
    parent : int
        Index of the parent body; -1 for the world.
    rotation, position : (3, 3), (3,)
        Of the joint in the frame of the parent.
    axis : (3,)
        Unit vector in the frame of the joint.
    inertia : BodyInertia
        In the frame of the body, which is that of the joint, moved by it.
    lower, upper : float
        Of the coordinate [rad or m]; of a spherical joint `upper` is the largest angle.
    effort : (2,)
        Interval of the force of a drive [N m or N].
    speed : float
        Largest rate.
    driven : (2,)
        Interval of the sum of all forces of drives on the joint.
    resistance : Resistance
    friction, armature : float
        Dry friction of the joint, and inertia of the drive seen from it.
    reference : (n_q,)
        Coordinates at which the file draws the joint.
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
    effort: Interval = FREE
    speed: float = np.inf
    driven: Interval = FREE
    resistance: Resistance = field(default_factory=Resistance)
    friction: float = 0.0
    armature: float = 0.0
    reference: Array | None = None

    @property
    def n_q(self) -> int:
        """Coordinates."""
        return SIZES[self.kind][0]

    @property
    def n_v(self) -> int:
        """Velocities."""
        return SIZES[self.kind][1]

    @property
    def unit(self) -> str:
        """Unit of a coordinate."""
        return "m" if self.kind == PRISMATIC else "rad"

    @property
    def start(self) -> Array:
        """Coordinates (n_q,) at which the file draws the joint: zeros and the quaternion one, unless it says others."""
        if self.reference is not None:
            return self.reference
        return np.array([0.0] * self.n_q if self.n_q == 1 else [0.0] * (self.n_q - 4) + [1.0, 0.0, 0.0, 0.0])


@dataclass(frozen=True, eq=False, kw_only=True)
class Frame:
    """Frame on a link: rotation (3, 3) and position (3,) in the frame of the link."""

    link: str
    rotation: Array = field(default_factory=lambda: np.eye(3))
    position: Array = field(default_factory=lambda: np.zeros(3))


@dataclass(frozen=True, eq=False, kw_only=True)
class Tendon:
    """Length that is a sum of coordinates of joints, or of distances between points.

    Attributes
    ----------
    name : str
    joints : mapping joint -> coefficient
    spans : tuple of (Frame, Frame, float)
        Pairs of points, and a factor of their distance.
    lower, upper : float
        Of the length [m, or as the coordinates].
    resistance : Resistance
    friction, armature : float
        As of a joint.
    """

    name: str
    joints: Mapping[str, float] = field(default_factory=dict)
    spans: tuple[tuple[Frame, Frame, float], ...] = ()
    lower: float = -np.inf
    upper: float = np.inf
    resistance: Resistance = field(default_factory=Resistance)
    friction: float = 0.0
    armature: float = 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Drive:
    """Drive with one control u: (g_0 + g_1 l + g_2 l') u + b_0 + b_1 l + b_2 l' for the length l of what it moves.

    Attributes
    ----------
    name : str
        Of the control.
    target : str or Frame
        Joint, tendon, or frame on which it pushes.
    gear : (6,)
        The length is the first of these times that of the joint or tendon; joints of several velocities, and frames,
        have a component for each direction.
    gain, bias : (3,)
    control, force : (2,)
        Intervals of the control, and of the force, which saturates there.
    lag : float, optional
        The force follows a(t) instead of u: a' = (u - a) / lag; a' = u for 0.
    in_parent : bool
        The gear of a joint with a quaternion has the axes of the parent.
    unit : float
        Control here per unit of that in the file.
    """

    name: str
    target: str | Frame
    gear: Array = field(default_factory=lambda: np.array([1.0, 0, 0, 0, 0, 0]))
    gain: Array = field(default_factory=lambda: np.array([1.0, 0, 0]))
    bias: Array = field(default_factory=lambda: np.zeros(3))
    control: Interval = FREE
    force: Interval = FREE
    lag: float | None = None
    in_parent: bool = False
    unit: float = 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Coupling:
    """Coordinates or lengths that follow each other: a - a_0 = c_0 + c_1 (b - b_0) + c_2 (b - b_0)^2 ...

    Attributes
    ----------
    name, follower : str
        Names of the coupling, and of a joint or tendon.
    leader : str, optional
        Joint or tendon b; without one the follower is fixed.
    offsets : (2,)
        a_0, b_0.
    coefficients : tuple of float
    """

    name: str
    follower: str
    leader: str | None = None
    offsets: tuple[float, float] = (0.0, 0.0)
    coefficients: tuple[float, ...] = (0.0, 1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Closure:
    """Loop of the tree that is closed: two frames with one origin, and with `turning` > 0 with the same axes.

    Attributes
    ----------
    name : str
    first, second : Frame
    turning : float
        Factor of the rows of the rotation [m/rad]; 0 if the frames may turn.
    """

    name: str
    first: Frame
    second: Frame
    turning: float = 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Lifted:
    """Part of a weight that is balanced: `share` [kg] at a point of a link.

    Attributes
    ----------
    frame : Frame
    share : float
    """

    frame: Frame
    share: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Tree:
    """Bodies, parents before children, and what acts between them.

    Attributes
    ----------
    name : str
    bodies : tuple of JointedBody
    frames : mapping link -> (body, rotation, position)
        Of every link, those that are fixed to others included; body -1 is the world.
    shapes : tuple of LinkShape
        Collision and visual shapes of the file.
    drives : tuple of Drive, optional
        If the file names them; else every joint with one coordinate, but those of the base, has one.
    tendons : tuple of Tendon
    couplings : tuple of Coupling
    closures : tuple of Closure
    lifted : tuple of Lifted
        Compensated weights; by the drives of the joints in `lifting`.
    lifting : tuple of str
    apart : frozenset of frozenset of str
        Pairs of links that do not collide.
    pairs : mapping of two shape names -> friction
        Pairs of shapes that collide whatever their bits say.
    left_out : tuple of str
        Elements of the file that are not read, with the reason.
    keyframes : mapping name -> mapping of "q", "v", "u", "activation", "time" -> array
        States that the file names; controls and activations of the drives of the file, in their units.
    """

    name: str
    bodies: tuple[JointedBody, ...]
    frames: Mapping[str, tuple[int, Array, Array]]
    shapes: tuple[Any, ...] = ()
    drives: tuple[Drive, ...] | None = None
    tendons: tuple[Tendon, ...] = ()
    couplings: tuple[Coupling, ...] = ()
    closures: tuple[Closure, ...] = ()
    lifted: tuple[Lifted, ...] = ()
    lifting: tuple[str, ...] = ()
    apart: frozenset[frozenset[str]] = frozenset()
    pairs: Mapping[frozenset[str], float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    keyframes: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)

    def with_armature(self, armature: Mapping[str, float]) -> Tree:
        """Return the tree with armature inertias, given by the names of joints."""
        bodies = tuple(replace(b, armature=armature.get(b.joint, b.armature)) for b in self.bodies)
        return replace(self, bodies=bodies)
