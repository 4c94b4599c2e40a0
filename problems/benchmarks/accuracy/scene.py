"""Description of a scene that several programs simulate.

Planar bodies move in the x-z plane. They stand on small spheres ("feet") with Coulomb friction, on the ground or on the
flat top of the body below. Every program builds its model from the same numbers, so that all have the same masses,
contact points and friction. A slope is a gravity that is not vertical.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns

Array = NDArray[np.float64]
SAMPLES = 8  # times at which positions are compared, equally spaced up to the end
GRAVITY = 9.81


@dataclass(frozen=True, kw_only=True)
class Body:
    """A planar body: position of its centre, half of its width and height [m], its feet, mass [kg], inertia [kg m^2].

    With `turns` it has the coordinates x, z and the angle; without, z only.
    """

    centre: tuple[float, float]
    half: tuple[float, float]
    feet: tuple[tuple[float, float], ...]
    radius: float = 0.01
    mass: float = 1.0
    velocity: tuple[float, float] = (0.0, 0.0)
    turns: bool = True

    @property
    def inertia(self) -> float:
        """Moment of inertia of a homogeneous box about the y-axis."""
        return self.mass * (self.half[0] ** 2 + self.half[1] ** 2) / 3.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Standing:
    """Robot with springs and dampers at its joints.

    Parameters
    ----------
    urdf : str
    system : function () -> CLS
        The same with its ground, contacts, springs and dampers, in this library.
    stiffness, damping : float
        [N m/rad], [N m s/rad].
    targets : (joints,)
        Angles at which the springs are relaxed [rad].
    """

    urdf: str
    system: Callable[[], ns.CLS]
    stiffness: float
    damping: float
    targets: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class Scene:
    """Motion with a reference.

    Parameters
    ----------
    name, title : str
    duration : float
        Duration of the motion [s].
    n_q : int
        Number of coordinates.
    gravity : (3,)
        Acceleration [m/s^2].
    friction, restitution : float
        Coefficients of all contacts.
    impact_speed : float
        Speed of the first impact [m/s], for contact laws whose dissipation depends on it.
    x0 : (n_q + n_v,)
        Initial state, configuration before velocity: x, z, angle of planar bodies; position, quaternion and joints of
        the robot, and its velocities as in `quadruped.build`.
    bodies : tuple of Body
        Planar bodies; each stands on the one before it, the first on the ground.
    robot : Standing, optional
        A robot on the ground instead.
    reference : function (times) -> (times, measured)
        Exact or converged positions.
    measured : tuple of int
        Coordinates that are compared.
    drift : bool
        Compare displacements since the first sample instead of positions.
    """

    name: str
    title: str
    duration: float
    x0: Array
    bodies: tuple[Body, ...] = ()
    robot: Standing | None = None
    reference: Callable[[Array], Array]
    measured: tuple[int, ...]
    n_q: int
    gravity: tuple[float, float, float] = (0.0, 0.0, -GRAVITY)
    friction: float = 0.0
    restitution: float = 0.0
    impact_speed: float = 1.0
    drift: bool = False

    @property
    def times(self) -> Array:
        """Times of the samples [s]."""
        return np.linspace(self.duration / SAMPLES, self.duration, SAMPLES)

    def error(self, q: Array) -> float:
        """Return the largest error of a measured coordinate at a sample [m or rad]; infinite if a program failed."""
        q = np.asarray(q, dtype=float)
        if q.shape != (SAMPLES, self.n_q) or not np.isfinite(q).all():
            return np.inf
        error = q[:, list(self.measured)] - self.reference(self.times)
        return float(np.abs(error - error[0] if self.drift else error).max())


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidate:
    """Program with settings, ready to be measured on a scene.

    Parameters
    ----------
    program, settings : str
    grain : float
        Measure of work, such as steps per sample: candidates that would take too long are left out; 0 is never left
        out.
    series : str
        Candidates that differ in the grain only.
    prepare : function () -> function () -> (SAMPLES, n_q)
        Set-up (models, compilation); the function that it returns simulates and is measured.
    """

    program: str
    settings: str
    grain: float
    series: str
    prepare: Callable[[], Callable[[], Array]]


def stand(half: tuple[float, float], inset: float = 0.7) -> tuple[tuple[float, float], ...]:
    """Return feet at the lower corners of a box, at a fraction of its width."""
    return ((-inset * half[0], -half[1]), (inset * half[0], -half[1]))


def state(bodies: tuple[Body, ...]) -> Array:
    """Return the initial state, configuration before velocity."""
    q = [np.array([*b.centre, 0.0] if b.turns else [b.centre[1]]) for b in bodies]
    v = [np.array([*b.velocity, 0.0] if b.turns else [b.velocity[1]]) for b in bodies]
    return np.concatenate([*q, *v])
