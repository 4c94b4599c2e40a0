"""A rigid body tumbles and bounces on a plane: the four cases of the LGVCI paper (Table 3).

Case I is a triaxial ellipsoid, II the same over a plane tilted by two degrees, III the union of a thick and a slender
ellipsoid, IV a cube. All have mass 1 kg, the same start, elastic impacts and no friction, so that energy and the
horizontal momentum are conserved, while the motion is chaotic.
"""

from __future__ import annotations

import math

import numpy as np

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from nosnoc_py.systems.rigid_body import Plane, RigidBody
from nosnoc_py.systems.shapes import Box, Ellipsoid, Shape, Union

CASES = ("I", "II", "III", "IV")
NAMES = {"I": "ellipsoid", "II": "ellipsoid, plane tilted by 2°", "III": "union of ellipsoids", "IV": "cube"}
GRAVITY = 9.80665
TILT = math.radians(2.0)
SKIN = 1e-13  # rounding radius of the cube [m]

SHIFT = -0.9937128  # offset of Case III in the paper; the centroid of the uniform union is at 0.974176
SHAPES: dict[str, Shape] = {
    "I": Ellipsoid((2.0, 3.0, 4.0)),
    "III": Union(
        (Ellipsoid((3.0, 4.0, 5.0), (1.5 + SHIFT, 0.0, 0.0)), Ellipsoid((6.0, 1.0, 1.0), (-4.5 + SHIFT, 0.0, 0.0)))
    ),
    "IV": Box((2.0 * math.sqrt(3.0),) * 3, skin=SKIN),
}
INERTIAS = {  # kg m^2; that of III is printed with antisymmetric noise of 6e-7 besides
    "I": (5.0, 4.0, 2.6),
    "III": (7.5932718, 9.9326434, 8.2731252),
    "IV": (2.0, 2.0, 2.0),
}
POSITION = (0.0, 0.0, 10.0)
MOMENTUM = (2.0, 2.0, 10.0)
ANGULAR_MOMENTUM = (4.0, -4.0, 4.0)


def build(case: str = "I", *, restitution: float = 1.0, friction: float = 0.0) -> RigidBody:
    """Return the body of a case over its plane, "floor".

    Raises
    ------
    OptionError
        If there is no such case.
    """
    if case not in CASES:
        raise OptionError(f"case: expected one of {', '.join(CASES)}, given {case!r}.")
    tilt = TILT if case == "II" else 0.0
    normal = (math.sin(tilt), 0.0, math.cos(tilt))
    like = "I" if case == "II" else case
    return RigidBody(
        shape=SHAPES[like],
        planes=[Plane("floor", normal=normal, restitution=restitution, friction=friction)],
        inertia=INERTIAS[like],
        gravity=GRAVITY,
    )


def start(body: RigidBody) -> np.ndarray:
    """Return the initial state (18,) that all cases share."""
    return body.state(POSITION, MOMENTUM, ANGULAR_MOMENTUM)


def perturbed(body: RigidBody, *, position: float = 0.0, angle: float = 0.0) -> np.ndarray:
    """Return the initial state with the body lifted [m] and turned about its second axis [rad]."""
    cosine, sine = math.cos(angle), math.sin(angle)
    rotation = [[cosine, 0.0, sine], [0.0, 1.0, 0.0], [-sine, 0.0, cosine]]
    return body.state((*POSITION[:2], POSITION[2] + position), MOMENTUM, ANGULAR_MOMENTUM, rotation)


def nearby(body: RigidBody, count: int, *, size: float = 1e-3, seed: int = 0) -> np.ndarray:
    """Return initial states (count, 18) around the start, shifted and turned by normal deviates of a size [m, rad]."""
    from nosnoc_py.rotations import exp

    numbers = np.random.default_rng(seed).normal(scale=size, size=(count, 6))
    return np.array(
        [body.state(np.add(POSITION, row[:3]), MOMENTUM, ANGULAR_MOMENTUM, exp(row[3:])) for row in numbers]
    )


def energy(body: RigidBody, x: np.ndarray) -> np.ndarray:
    """Return the total energy [J] of states (..., 18)."""
    total: np.ndarray = body.energies(x).sum(axis=-1)
    return total


def height(body: RigidBody, trajectory: ns.Trajectory) -> np.ndarray:
    """Return the distance of the centre of mass from the plane [m] at the nodes."""
    plane = body.planes[0]
    above: np.ndarray = trajectory.x[:, :3] @ plane.normal - plane.offset
    return above
