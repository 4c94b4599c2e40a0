"""Many balls of one size in a box: discs in the plane, by default, or spheres in space.

Every ball may touch every other one and every wall: n (n - 1) / 2 + 4 n contacts in the plane, with 6 n in space. The
balls turn: a frictional contact acts at the surface, so that a ball rolls. In the plane a ball has the coordinates
(x, y, angle), in space (x, y, z) and the time integrals of the three components of its angular velocity; these are no
angles in the usual sense, but a sphere looks the same from every side and nothing depends on them. Without friction
nothing turns, and the rotations are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import casadi as ca
import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Disc, Ground, PlanarShape

Array = NDArray[np.float64]

AXES = ("x", "y", "z")
WALLS = (("left", "right"), ("floor", "ceiling"), ("front", "back"))
# The moment of inertia of a homogeneous disc and sphere, in units of mass radius^2.
INERTIA = {2: 0.5, 3: 0.4}
# Random positions that are tried for one ball before the box counts as full.
TRIALS = 10_000


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of the balls and of their box.

    Parameters
    ----------
    balls : int
    dimension : int
        2 or 3; gravity acts against the second axis.
    radius, side : float
        Radius of every ball, and side of the box [m].
    mass : float
        Mass of every ball [kg].
    gravity : float
        [m/s^2].
    friction, restitution : float
        Coefficients of all contacts.

    Raises
    ------
    ModelError
        If a value makes no sense, or a ball does not fit into the box.
    """

    balls: int = 100
    dimension: int = 2
    radius: float = 0.05
    side: float = 2.0
    mass: float = 1.0
    gravity: float = 9.81
    friction: float = 0.3
    restitution: float = 0.5

    def __post_init__(self) -> None:
        sizes = self.balls >= 1 and self.dimension in (2, 3) and 0.0 < 2.0 * self.radius <= self.side
        if not (sizes and self.mass > 0.0 and self.friction >= 0.0 and 0.0 <= self.restitution <= 1.0):
            raise ModelError(
                "balls in a box need balls >= 1, dimension 2 or 3, 0 < 2 radius <= side, mass > 0, friction >= 0 and "
                f"0 <= restitution <= 1; given {self}."
            )

    @property
    def turning(self) -> int:
        """Number of rotational coordinates of one ball."""
        return (1 if self.dimension == 2 else 3) if self.friction else 0

    @property
    def width(self) -> int:
        """Number of coordinates of one ball."""
        return self.dimension + self.turning

    @property
    def inertia(self) -> float:
        """Moment of inertia of one ball [kg m^2]."""
        return INERTIA[self.dimension] * self.mass * self.radius**2


STANDARD = Constants()


def build(constants: Constants = STANDARD) -> ns.CLS:
    """Return the balls as a system; the box is [0, side] along every axis.

    Returns
    -------
    ns.CLS
        Coordinates ball by ball: x_0, y_0, (z_0,) and the rotations; contacts "ball_0-ball_1", ..., "ball_0-left", ...
    """
    n_q = constants.balls * constants.width
    q, v = ca.SX.sym("q", n_q), ca.SX.sym("v", n_q)
    inertia = [constants.mass] * constants.dimension + [constants.inertia] * constants.turning
    weight = [0.0] * constants.width
    weight[1] = -constants.mass * constants.gravity
    names, units = _labels(constants)
    return ns.CLS(
        q=q,
        v=v,
        mass_matrix=ca.diag(ca.DM(inertia * constants.balls)),
        force=ca.SX(ca.DM(weight * constants.balls)),
        contacts=[*_between(q, constants), *_with_walls(q, constants)],
        names=names,
        units=units,
        scene=_scene(q, constants) if constants.dimension == 2 else (),
    )


def _scene(q: ca.SX, constants: Constants) -> list[PlanarShape]:
    """Return the scene: the balls, with spokes if they turn, and their box."""
    balls = [q[k * constants.width : (k + 1) * constants.width] for k in range(constants.balls)]
    far = constants.side
    walls = [([0, 0], [0, 1]), ([0, 0], [1, 0]), ([far, far], [0, -1]), ([far, far], [-1, 0])]
    return [
        *(Disc(ball[:2], constants.radius, ball[2] if constants.turning else None) for ball in balls),
        *(Ground(point=point, normal=normal) for point, normal in walls),
    ]


def start(constants: Constants = STANDARD, *, speed: float = 1.0, seed: int = 0) -> Array:
    """Return a random state (2 n_q,) without overlaps: uniform positions, velocities in all directions, no rotation.

    Parameters
    ----------
    speed : float
        Standard deviation of every component of the velocities [m/s].
    seed : int
        The same seed gives the same state.

    Raises
    ------
    ModelError
        If no place is found for a ball.
    """
    generator = np.random.default_rng(seed)
    places = _places(constants, generator)
    q, v = (np.zeros((constants.balls, constants.width)) for _ in range(2))
    q[:, : constants.dimension] = places
    v[:, : constants.dimension] = speed * generator.standard_normal(places.shape)
    return np.concatenate([q.reshape(-1), v.reshape(-1)])


def places_of(x: Array, constants: Constants = STANDARD) -> Array:
    """Return the centres of the balls (..., balls, dimension) in states (..., 2 n_q)."""
    n_q = constants.balls * constants.width
    q = np.asarray(x)[..., :n_q].reshape(*np.shape(x)[:-1], constants.balls, constants.width)
    return q[..., : constants.dimension]


def penetration(x: Array, constants: Constants = STANDARD) -> float:
    """Return the deepest penetration of a ball into a ball or a wall in one state (2 n_q,), or 0 [m]."""
    places = places_of(x, constants)
    walls = constants.radius - np.minimum(places, constants.side - places)
    first, second = np.triu_indices(constants.balls, 1)
    pairs = 2.0 * constants.radius - np.linalg.norm(places[first] - places[second], axis=-1)
    return float(max(walls.max(), pairs.max(initial=0.0), 0.0))


def energy(x: Array, constants: Constants = STANDARD) -> float:
    """Return the kinetic energy, and the potential energy above the floor, of one state (2 n_q,) [J]."""
    v = np.asarray(x)[constants.balls * constants.width :].reshape(constants.balls, constants.width)
    inertia = np.array([constants.mass] * constants.dimension + [constants.inertia] * constants.turning)
    height = places_of(x, constants)[:, 1].sum()
    return float(0.5 * (inertia * v**2).sum() + constants.mass * constants.gravity * height)


def _places(constants: Constants, generator: np.random.Generator) -> Array:
    """Place one ball after the other where it does not overlap earlier ones (random sequential addition)."""
    places = np.zeros((0, constants.dimension))
    for ball in range(constants.balls):
        for _ in range(TRIALS):
            place = generator.uniform(constants.radius, constants.side - constants.radius, constants.dimension)
            if (np.linalg.norm(places - place, axis=1) > 2.0 * constants.radius).all():
                places = np.vstack([places, place])
                break
        else:
            raise ModelError(
                f"balls in a box: no room was found for ball {ball} of {constants.balls}; take fewer, a smaller "
                f"radius than {constants.radius:g} m, or a larger side than {constants.side:g} m."
            )
    return places


def _between(q: ca.SX, constants: Constants) -> Iterator[ns.Contact]:
    centres = [q[i * constants.width : i * constants.width + constants.dimension] for i in range(constants.balls)]
    for first, second in combinations(range(constants.balls), 2):
        along = centres[first] - centres[second]
        distance = ca.norm_2(along)
        gap = distance - 2.0 * constants.radius
        yield _contact(f"ball_{first}-ball_{second}", gap, along / distance, (first, second), constants)


def _with_walls(q: ca.SX, constants: Constants) -> Iterator[ns.Contact]:
    for ball in range(constants.balls):
        for axis in range(constants.dimension):
            place = q[ball * constants.width + axis]
            gaps = (place - constants.radius, constants.side - constants.radius - place)
            for name, gap, sign in zip(WALLS[axis], gaps, (1.0, -1.0), strict=True):
                normal = sign * np.eye(constants.dimension)[axis]
                yield _contact(f"ball_{ball}-{name}", gap, ca.SX(ca.DM(normal)), (ball,), constants)


def _contact(name: str, gap: ca.SX, normal: ca.SX, balls: tuple[int, ...], constants: Constants) -> ns.Contact:
    """Return a contact whose normal points into the first ball."""
    if not constants.friction:
        return ns.Contact(name, gap=gap, restitution=constants.restitution)
    tangent = _slip(normal, balls, constants)
    return ns.Contact(name, gap=gap, tangent=tangent, friction=constants.friction, restitution=constants.restitution)


def _slip(normal: ca.SX, balls: tuple[int, ...], constants: Constants) -> ca.SX:
    """Return the directions of friction (n_q, dimension - 1): slip of the first ball on the second one or the wall."""
    tangents, turns = _frame(normal, constants)
    columns = ca.SX(constants.balls * constants.width, constants.dimension - 1)
    for ball, sign in zip(balls, (1.0, -1.0), strict=False):
        at = ball * constants.width
        columns[at : at + constants.dimension, :] = sign * tangents
        columns[at + constants.dimension : at + constants.width, :] = -constants.radius * turns
    return columns


def _frame(normal: ca.SX, constants: Constants) -> tuple[ca.SX, ca.SX]:
    """Return unit vectors across the normal, and the axes about which the surface turns along them."""
    if constants.dimension == 2:
        return ca.vertcat(-normal[1], normal[0]), ca.SX(1)
    # An orthonormal frame that is defined everywhere; it jumps at n_z = 0, which does not affect the force.
    x, y, z = normal[0], normal[1], normal[2]
    sign = ca.if_else(z >= 0, 1.0, -1.0)
    a = -1.0 / (sign + z)
    first = ca.vertcat(1.0 + sign * x * x * a, sign * x * y * a, -sign * x)
    second = ca.vertcat(x * y * a, sign + y * y * a, -y)
    return ca.horzcat(first, second), ca.horzcat(ca.cross(normal, first), ca.cross(normal, second))


def _labels(constants: Constants) -> tuple[dict[str, list[str]], dict[str, str]]:
    axes = list(AXES[: constants.dimension])
    turns = (["angle"] if constants.dimension == 2 else [f"turn_{axis}" for axis in AXES])[: constants.turning]
    kinds = [*((axis, f"v_{axis}", "m") for axis in axes), *((turn, f"rate_{turn}", "rad") for turn in turns)]
    names: dict[str, list[str]] = {"q": [], "v": []}
    units: dict[str, str] = {}
    for ball in range(constants.balls):
        for place, rate, unit in kinds:
            names["q"].append(f"{place}_{ball}")
            names["v"].append(f"{rate}_{ball}")
            units |= {f"{place}_{ball}": unit, f"{rate}_{ball}": f"{unit}/s"}
    return names, units


def scaled(constants: Constants, balls: int) -> Constants:
    """Return constants for another number of balls with the same density in a box of the same shape."""
    side = constants.side * (balls / constants.balls) ** (1.0 / constants.dimension)
    return replace(constants, balls=balls, side=max(side, 2.0 * constants.radius))
