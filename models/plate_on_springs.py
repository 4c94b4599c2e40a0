"""A planar plate falls on a bed of springs: many nearly simultaneous contacts (ESS, Section 5.2).

The middle of the plate is at (x, z), its angle is theta, positive against the clock. Spring i stands at x_i, its top
slides up and down on the vertical line there and rolls without friction on the plate. It is compressed by

    h_i = L_0 + tan(theta) (x - x_i) - z,   D h_i = [tan(theta), -1, (x - x_i) / cos(theta)^2],

which is also its touchdown guard: it rises through zero when the plate reaches the spring, and -h_i is the guard of the
lift-off. In stance, spring and damper push with F_i = k_i h_i + d_i h_i' along the vertical line. What acts on the
plate is -F_i D h_i: a force along the normal of the plate, whose vertical part is F_i. So the forces of the springs
have the potential k_i h_i^2 / 2, and without dampers the energy is kept. (A damper may pull just before the lift-off,
as in the paper: bits follow from h_i alone.)

The paper gives neither masses nor springs. Chosen here: see `Constants`; all springs together have the stiffness of the
hopper of `models.spring_hopper`, so that a plate which is dropped flat, without dampers, moves like it. With the
dampers, half of the critical damping, a plate that falls is thrown up a little at most and then stands on the bed, from
which it slides, as nothing holds it sideways.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from nosnoc_py import compiled
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.event_selected import EventSelectedSystem, Guard
from nosnoc_py.systems.scene import Ground, Mark, PlanarShape, Rectangle, Spring

Array = NDArray[np.float64]

STATES = ("x", "z", "theta", "v_x", "v_z", "omega")
UNITS = dict(zip(STATES, ("m", "m", "rad", "m/s", "m/s", "rad/s"), strict=True))
PARAMETERS = ("mass", "inertia", "gravity", "length", "stiffness", "damping")
FIXED = len(PARAMETERS)  # parameters before the positions of the springs


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of the plate and its bed.

    Parameters
    ----------
    contacts : int
        Number n of springs, evenly spaced over the bed, its ends included.
    mass : float
        Mass of the plate [kg].
    width : float
        Width of the plate [m]; its moment of inertia is m width^2 / 12.
    bed : float
        Width of the bed [m].
    stiffness, damping : float
        Sums over all springs [N/m], [N s/m]; each has the n-th part.
    length : float
        Length of a spring without load [m].
    gravity : float
        Gravitational acceleration [m/s^2].

    Raises
    ------
    ModelError
        For fewer than two springs, negative damping, and what is not positive else.
    """

    contacts: int = 10
    mass: float = 1.0
    width: float = 6.0
    bed: float = 1.0
    stiffness: float = 400.0
    damping: float = 20.0
    length: float = 1.0
    gravity: float = 9.81

    def __post_init__(self) -> None:
        sizes = (self.mass, self.width, self.bed, self.stiffness, self.length, self.gravity)
        if self.contacts < 2 or not all(size > 0.0 for size in sizes) or not self.damping >= 0.0:
            raise ModelError(
                f"the plate needs two springs or more, positive constants, and damping >= 0; given {self}."
            )

    @property
    def inertia(self) -> float:
        """Moment of inertia of the plate, a thin rod [kg m^2]."""
        return self.mass * self.width**2 / 12.0

    @property
    def positions(self) -> Array:
        """Positions of the springs (n,) [m]."""
        return np.linspace(-0.5 * self.bed, 0.5 * self.bed, self.contacts)

    @property
    def parameters(self) -> Array:
        """Argument p (6 + n,) of the NumPy functions: `PARAMETERS`, of one spring, then the positions."""
        one = [self.stiffness / self.contacts, self.damping / self.contacts]
        return np.concatenate([[self.mass, self.inertia, self.gravity, self.length, *one], self.positions])


STANDARD = Constants()
DURATION = 2.0  # [s]: the plate falls, may rebound slightly, and then stands on the springs


def start(height: float, angle: float) -> Array:
    """Return the state (6,) of a plate at rest, centred over the bed."""
    return np.array([0.0, height, angle, 0.0, 0.0, 0.0])


def starts(count: int = 120, seed: int = 0) -> Array:
    """Return random states (count, 6): heights in (2, 3) m, angles in (-.1, .1) rad, at rest over the middle."""
    drawn = np.random.default_rng(seed).uniform([2.0, -0.1], [3.0, 0.1], (count, 2))
    return np.array([start(height, angle) for height, angle in drawn])


def _scene(x: ca.SX, h: ca.SX, c: Constants) -> list[PlanarShape]:
    """Return the scene: the plate on its lower side (x, z), and the springs up to the plate or to their full length."""
    thick = 0.02 * c.width
    up = ca.vertcat(-ca.sin(x[2]), ca.cos(x[2]))
    tops = [ca.vertcat(place, c.length - ca.fmax(h[i], 0)) for i, place in enumerate(c.positions)]
    return [
        Rectangle(x[:2] + 0.5 * thick * up, [c.width, thick], x[2], label="plate"),
        *(Spring([top[0], 0], top, coils=4, width=0.5 * c.bed / c.contacts) for top in tops),
        Ground(),
        *(Mark(name, top) for name, top in zip(_names(c.contacts), tops, strict=True)),
    ]


def build(constants: Constants = STANDARD) -> ns.EventSelectedSystem:
    """Return the plate in CasADi, with the guards spring_1, spring_2, ..."""
    c, n = constants, constants.contacts
    x, mode = ca.SX.sym("x", 6), ca.SX.sym("mode", n)
    tangent = ca.tan(x[2])
    h = c.length + tangent * (x[0] - c.positions) - x[1]
    jacobian = ca.jacobian(h, x[:3])
    force = mode * (c.stiffness * h + c.damping * jacobian @ x[3:]) / n
    weight = ca.vertcat(0.0, -c.mass * c.gravity, 0.0)
    acceleration = (weight - jacobian.T @ force) / ca.DM([c.mass, c.mass, c.inertia])
    guards = [Guard.contact(name, h[i]) for i, name in enumerate(_names(n))]
    return EventSelectedSystem(
        x=x,
        mode=mode,
        flow=ca.vertcat(x[3:], acceleration),
        guards=guards,
        names={"x": list(STATES)},
        units=UNITS,
        scene=_scene(x, h, c),
    )


def build_numeric(constants: Constants = STANDARD, fast: bool = False) -> ns.EventSelectedSystem:
    """Return the plate in NumPy, over all springs at once, or (`fast`) in loops that numba compiles.

    Parameters p are `constants.parameters`: beds with any number of springs share the compiled functions.
    """
    names = [*PARAMETERS, *(f"x_{i + 1}" for i in range(constants.contacts))]
    return EventSelectedSystem(
        x=6,
        p=len(names),
        guards=_names(constants.contacts),
        back="negative",
        names={"x": list(STATES), "p": names},
        units=UNITS,
        p_default=constants.parameters,
        **_numeric(fast),
    )


@lru_cache(maxsize=2)  # so that all systems share the compiled functions
def _numeric(fast: bool) -> dict[str, Any]:
    if not fast:
        return {"flow": _flow, "functions": _functions, "jacobian": _jacobian}
    loops: dict[str, Any] = {"flow": flow_loop, "functions": functions_loop, "jacobian": jacobian_loop}
    return {name: compiled.compiled(function) for name, function in loops.items()}


def energy(x: Array, mode: Array, constants: Constants = STANDARD) -> Array:
    """Return kinetic, potential and elastic energy (...,) [J] of states (..., 6) with bits (..., n)."""
    c, x = constants, np.asarray(x, dtype=float)
    kinetic = 0.5 * (c.mass * (x[..., 3] ** 2 + x[..., 4] ** 2) + c.inertia * x[..., 5] ** 2)
    compression = c.length + np.tan(x[..., 2, None]) * (x[..., 0, None] - c.positions) - x[..., 1, None]
    elastic = 0.5 * c.stiffness / c.contacts * (mode * compression**2).sum(axis=-1)
    return np.asarray(kinetic + c.mass * c.gravity * x[..., 1] + elastic)


def _names(count: int) -> list[str]:
    return [f"spring_{i + 1}" for i in range(count)]


def _flow(x: Array, mode: Array, p: Array) -> Array:
    x_0, z, theta, v_x, v_z, omega = x.tolist()  # Python's numbers are faster than NumPy's here
    mass, inertia, gravity, length, stiffness, damping = p[:FIXED].tolist()
    tangent = float(np.tan(theta))
    square = 1.0 + tangent * tangent
    # A force is affine in the lever, so sums of forces and torques follow from sums of the bits and their two moments
    lever = p[FIXED:] - x_0
    loaded = mode * lever
    count, first, second = float(mode.dot(mode)), float(loaded.dot(mode)), float(loaded.dot(lever))
    middle = stiffness * (length - z) + damping * (tangent * v_x - v_z)
    slope = -(stiffness * tangent + damping * square * omega)
    total, torque = middle * count + slope * first, square * (middle * first + slope * second)
    return np.array([v_x, v_z, omega, -tangent * total / mass, total / mass - gravity, torque / inertia])


def _functions(x: Array, p: Array) -> Array:
    return (p[3] - x[1]) - np.tan(x[2]) * (p[FIXED:] - x[0])


def _jacobian(x: Array, p: Array) -> Array:
    tangent = np.tan(x[2])
    jacobian = np.zeros((p.size - FIXED, 6))
    jacobian[:, 0] = tangent
    jacobian[:, 1] = -1.0
    jacobian[:, 2] = (1.0 + tangent * tangent) * (x[0] - p[FIXED:])
    return jacobian


def flow_loop(x: Array, mode: Array, p: Array) -> Array:
    """Return f(x, mode, p) (6,), spring by spring."""
    tangent = np.tan(x[2])
    square = 1.0 + tangent * tangent
    middle = p[4] * (p[3] - x[1]) + p[5] * (tangent * x[3] - x[4])
    slope = -(p[4] * tangent + p[5] * square * x[5])
    total, torque = 0.0, 0.0
    for i in range(mode.size):
        lever = p[6 + i] - x[0]
        force = mode[i] * (middle + slope * lever)
        total += force
        torque += force * lever
    rates = np.empty(6)
    rates[0], rates[1], rates[2] = x[3], x[4], x[5]
    rates[3] = -tangent * total / p[0]
    rates[4] = total / p[0] - p[2]
    rates[5] = square * torque / p[1]
    return rates


def functions_loop(x: Array, p: Array) -> Array:
    """Return h(x, p) (n,), spring by spring."""
    tangent = np.tan(x[2])
    values = np.empty(p.size - 6)
    for i in range(values.size):
        values[i] = p[3] - x[1] - tangent * (p[6 + i] - x[0])
    return values


def jacobian_loop(x: Array, p: Array) -> Array:
    """Return D h(x, p) (n, 6), spring by spring."""
    tangent = np.tan(x[2])
    square = 1.0 + tangent * tangent
    jacobian = np.zeros((p.size - 6, 6))
    for i in range(p.size - 6):
        jacobian[i, 0] = tangent
        jacobian[i, 1] = -1.0
        jacobian[i, 2] = square * (x[0] - p[6 + i])
    return jacobian
