"""Rigid body over planes, the system of the Lie group variational integrator (LGVCI, Section 5).

The state contains the rotation matrix and momenta instead of velocities, which is what the integrator updates; it is
not a `CLS`, and only `LieGroupVariational` simulates it. Contacts follow from the support function of the shape: the
gap of a plane with normal n is n.x - offset minus the support in the direction -n, so that every convex body needs one
function only. Unions of convex parts have the largest support of their parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import casadi as ca
import numpy as np
from attrs import field

from nosnoc_py.annotations import EMPTY, Numbers
from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import checked, declared, title_of
from nosnoc_py.errors import ModelError
from nosnoc_py.rotations import check_rotation
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.shapes.shape import Shape, matrix
from nosnoc_py.systems.symbols import (
    finite,
    finite_number,
    fraction,
    nonnegative,
    numbers,
    part_name,
    parts,
    positive,
    symbols_if_any,
)

SYMMETRIC = 1e-6  # largest relative asymmetry of an inertia: printed numbers have some digits only
TRIANGLE = 1e-9  # relative excess of a principal moment over the sum of the other two: rounding, as for a thin plate
PENETRATION = 1e-9  # largest penetration [m] of a start, times max(1, distance from the origin): rounding of a gap
NAMES = (
    *(f"x_{i}" for i in range(3)),
    *(f"R_{i}{j}" for i in range(3) for j in range(3)),
    *(f"gamma_{i}" for i in range(3)),
    *(f"Pi_{i}" for i in range(3)),
)
UNITS = dict(zip(NAMES, ("m",) * 3 + ("1",) * 9 + ("kg m/s",) * 3 + ("kg m^2/s",) * 3, strict=True))


def _unit_normal(value: Numbers, what: str = "normal", owner: Any = None) -> np.ndarray:
    normal = finite(value, what, 3)
    if not normal.any():
        raise ModelError(
            f"{title_of(owner)}: the normal is zero; it has to point away from the plane, to the free side."
        )
    return normal / np.linalg.norm(normal)


@declared
class Plane:
    """Plane {z : n.z = offset} that a body cannot penetrate: it stays where n.z >= offset.

    Parameters
    ----------
    name : str
        Of the events.
    normal : (3,)
        n, into the free side; of any length, it is normalised.
    offset : float
        Distance of the plane from the origin along the unit normal [m].
    restitution : float
        Newton's coefficient e in [0, 1]: the normal velocity v of the touching point becomes -e v.
    friction : float
        Coulomb's coefficient >= 0 of the impulses.

    Raises
    ------
    ModelError
        If the name is empty, the normal zero, the restitution outside [0, 1] or the friction negative.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.Plane("ramp", normal=(0.0, 3.0, 4.0), restitution=0.5).normal.tolist()
    [0.0, 0.6, 0.8]
    """

    noun: ClassVar[str] = "plane"

    name: str = field(converter=part_name)
    normal: np.ndarray = field(default=(0.0, 0.0, 1.0), converter=_unit_normal)
    offset: float = field(default=0.0, converter=finite_number)
    restitution: float = field(default=1.0, converter=fraction)
    friction: float = field(default=0.0, converter=nonnegative)


def _inertia(value: Numbers, what: str = "inertia") -> np.ndarray:
    """Return an inertia (3, 3), symmetrised; raise `ModelError` if it is that of no body."""
    given = np.diag(numbers(value, what, 3)) if np.ndim(value) == 1 else value
    inertia = matrix(given, what, (3, 3))
    asymmetry = float(np.abs(inertia - inertia.T).max())
    if asymmetry > SYMMETRIC * np.abs(inertia).max():
        raise ModelError(
            f"{what}: it has to be symmetric, |J - J'| = {asymmetry:.1e}; pass (J + J') / 2 if you mean it."
        )
    # The small asymmetry of printed numbers would otherwise become a torque that does work.
    inertia = (inertia + inertia.T) / 2
    moments = np.linalg.eigvalsh(inertia)
    if moments[0] <= 0:
        raise ModelError(f"{what}: it has to be positive definite, its principal moments are {moments}.")
    # J_1 + J_2 - J_3 is twice an integral of x_3^2 over the mass, which cannot be negative.
    if moments[2] > (moments[0] + moments[1]) * (1 + TRIANGLE):
        raise ModelError(
            f"{what}: no body has the principal moments {moments}: none may exceed the sum of the other two, "
            f"{moments[2]:g} > {moments[0] + moments[1]:g}; check axes and units, or compute it by RigidBody.uniform."
        )
    return inertia


def _acceleration(gravity: Numbers, what: str = "gravity") -> np.ndarray:
    if np.ndim(gravity) == 0:
        # A number is the size of gravity, which acts downwards; a vector is the acceleration itself.
        return np.array([0.0, 0.0, -finite_number(cast(float, gravity), what)])
    return finite(gravity, what, 3)


def _check_shape(value: Shape, what: str) -> None:
    if not isinstance(value, Shape):
        raise ModelError(f"{what}: expected a shape, ns.Ellipsoid(...) and so on, given {type(value).__name__}.")


def _planes(value: Plane | Sequence[Plane]) -> tuple[Plane, ...]:
    return parts((value,) if isinstance(value, Plane) else value, Plane, "RigidBody", "planes")


@declared(kw_only=True)
class RigidBody(Described):
    """Rigid body under gravity that bounces on planes.

    The state (18,) is the position x of the origin of the body's frame, its centre of mass [m], the rotation R row by
    row (vectors of the body's frame into the world's), the momentum gamma = m v in the world's frame [kg m/s] and the
    angular momentum Pi = J Omega in the body's frame [kg m^2/s].

    Parameters
    ----------
    shape : Shape
        In the body's frame, whose origin is the centre of mass; `uniform` finds it.
    planes : Plane, or sequence of Plane
    mass : float
        m > 0 [kg].
    inertia : (3, 3), or (3,)
        J about the centre of mass in the body's frame [kg m^2], or its diagonal.
    gravity : float, or (3,)
        Acceleration downwards along the third axis, or its vector [m/s^2].

    Raises
    ------
    ModelError
        If the inertia is not symmetric (to 1e-6), not positive definite or violates the triangle inequality of the
        principal moments; for a mass that is not positive, planes of the same name, and objects of other types.

    Examples
    --------
    A ball of 2 kg, 1 m above the ground:

    >>> import nosnoc_py as ns
    >>> ball = ns.RigidBody.uniform(shape=ns.Sphere(0.1), mass=2.0, planes=ns.Plane("ground"))
    >>> ball.gaps(ball.state([0.0, 0.0, 1.0])).round(6).tolist()
    [0.9]
    """

    controlled = False
    methods = "ns.LieGroupVariational(...) with ns.simulate"

    shape: Shape = field(validator=checked(_check_shape))
    inertia: np.ndarray = field(converter=_inertia)
    mass: float = field(default=1.0, converter=positive)
    planes: tuple[Plane, ...] = field(default=(), converter=_planes)
    gravity: np.ndarray = field(default=9.80665, converter=_acceleration)
    # Symbols stand for the components only: the integrator of this system has equations of its own.
    x: Any = field(factory=lambda: ca.SX.sym("x", len(NAMES)), init=False, repr=False)
    u: Any = field(default=None, init=False, repr=False, converter=symbols_if_any)
    p: Any = field(default=None, init=False, repr=False, converter=symbols_if_any)
    names: Mapping[str, Any] = field(default={"x": NAMES}, init=False, repr=False)
    units: Mapping[str, str] = field(default=UNITS, init=False, repr=False)
    nominal: Mapping[str, Any] = field(default=EMPTY, init=False, repr=False)
    p_default: Any = field(default=(), init=False, repr=False, converter=np.asarray)
    scene: Any = field(default=(), init=False, repr=False)
    t: Any = field(default=None, init=False, repr=False)
    data: Any = field(default=(), init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._describe()

    @classmethod
    @named_arguments
    def uniform(cls, *, shape: Shape, planes: Any = (), mass: float = 1.0, gravity: Any = 9.80665) -> RigidBody:
        """Return a body of constant density: the shape is shifted to its centroid, the inertia computed.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> brick = ns.RigidBody.uniform(shape=ns.Box((0.2, 0.1, 0.1)), mass=3.0, planes=ns.Plane("ground"))
        >>> brick.inertia.diagonal().round(6).tolist()
        [0.005, 0.0125, 0.0125]
        """
        if not isinstance(shape, Shape):
            raise ModelError(f"RigidBody.uniform: shape: expected a shape, given {type(shape).__name__}.")
        weight = positive(mass, "RigidBody: mass")
        # Mass properties of a shape are those of density one: mass / volume is the density.
        volume, centroid, inertia = shape.mass_properties()
        # The origin of the frame of a body has to be its centre of mass.
        return cls(
            shape=shape.moved(-centroid), planes=planes, mass=weight, inertia=inertia * weight / volume, gravity=gravity
        )

    @named_arguments
    def state(
        self,
        position: Any,
        momentum: Any = (0.0, 0.0, 0.0),
        angular_momentum: Any = (0.0, 0.0, 0.0),
        rotation: Any = None,
    ) -> np.ndarray:
        """Return the state (18,) of a position [m], m v [kg m/s], J Omega [kg m^2/s] and a rotation (3, 3).

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> ball = ns.RigidBody.uniform(shape=ns.Sphere(0.1), mass=2.0, planes=ns.Plane("ground"))
        >>> x0 = ball.state([0.0, 0.0, 1.0], momentum=[0.4, 0.0, 0.0])
        >>> x0.shape, x0[12:15].tolist()
        ((18,), [0.4, 0.0, 0.0])
        """
        turn = np.eye(3) if rotation is None else check_rotation(rotation, "state: rotation")
        given = (("position", position), ("momentum", momentum), ("angular_momentum", angular_momentum))
        x, gamma, pi = (finite(value, f"state: {name}", 3) for name, value in given)
        return np.concatenate([x, turn.ravel(), gamma, pi])

    def energies(self, x: Any) -> np.ndarray:
        """Return the translational, potential and rotational energy [J] of states (..., 18): (..., 3).

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> ball = ns.RigidBody.uniform(shape=ns.Sphere(0.1), mass=2.0, gravity=10.0)
        >>> ball.energies(ball.state([0.0, 0.0, 1.0], momentum=[0.4, 0.0, 0.0])).round(6)
        array([ 0.04, 20.  ,  0.  ])
        """
        states = np.asarray(x, dtype=float)
        position, gamma, pi = states[..., :3], states[..., 12:15], states[..., 15:]
        translational = (gamma**2).sum(axis=-1) / (2 * self.mass)
        # Pi' J^-1 Pi / 2 with a solve, as J need not be diagonal.
        rotational = (pi * np.linalg.solve(self.inertia, pi[..., None])[..., 0]).sum(axis=-1) / 2
        return np.stack([translational, -self.mass * (position @ self.gravity), rotational], axis=-1)

    def gaps(self, x: Any) -> np.ndarray:
        """Return the distance from every plane [m] of states (..., 18): n.x - offset + min over the body of n.R rho.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> wall = ns.Plane("wall", normal=(1, 0, 0), offset=-2.0)
        >>> ball = ns.RigidBody.uniform(shape=ns.Sphere(0.1), planes=[ns.Plane("ground"), wall])
        >>> ball.gaps(ball.state([0.0, 0.0, 1.0])).round(6)
        array([0.9, 1.9])
        """
        states = np.asarray(x, dtype=float)
        position, turn = states[..., :3].reshape(-1, 3), states[..., 3:12].reshape(-1, 3, 3)
        gaps = np.empty((len(position), len(self.planes)))
        for k, plane in enumerate(self.planes):
            # The lowest point of the body along n is minus its support function in the direction -n, in the body's
            # frame.
            gaps[:, k] = position @ plane.normal - plane.offset - self.shape.heights(-plane.normal @ turn)
        return gaps.reshape(*states.shape[:-1], len(self.planes))

    def check_state(self, x: Any, p: Any = None, *, what: str = "x0") -> np.ndarray:
        """Return a state as a vector (18,); it has to be a rotation to 1e-9, and above all planes or on them.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> ball = ns.RigidBody.uniform(shape=ns.Sphere(0.1), planes=ns.Plane("ground"))
        >>> try:
        ...     ball.check_state(ball.state([0.0, 0.0, 0.05]))
        ... except ns.ModelError as error:
        ...     print(str(error).split(";")[0])
        x0: the body penetrates plane 'ground' by 0.05 m
        """
        state = super().check_state(x, what=what)
        check_rotation(state[3:12].reshape(3, 3), f"{what}: R")
        # Rounding of a gap grows with the distance from the origin, as positions of that size are subtracted.
        allowed = PENETRATION * max(1.0, float(np.abs(state[:3]).max()))
        for plane, gap in zip(self.planes, self.gaps(state), strict=True):
            if gap < -allowed:
                raise ModelError(
                    f"{what}: the body penetrates plane {plane.name!r} by {-gap:.6g} m; shift the position by that or "
                    f"more along the normal {plane.normal}, or lower the plane's offset {plane.offset:g}."
                )
        return state
