"""A point mass that slides on, sticks to, falls on and leaves a horizontal plane, in 2-D or 3-D.

The smallest system with dry friction, and one whose motion is known in closed form: with a constant force the
acceleration is constant between events, because the normal force is m g less the lifting force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike

import nosnoc_py as ns
from nosnoc_py.errors import ModelError

AXES: Mapping[int, tuple[str, ...]] = {2: ("x", "y"), 3: ("x", "y", "z")}


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Mass [kg], gravity [m/s^2], coefficient of friction, and Newton's restitution of the ground.

    Raises
    ------
    ModelError
        If the mass is not positive, the friction negative, or the restitution outside [0, 1].
    """

    mass: float = 1.0
    gravity: float = 9.81
    friction: float = 0.5
    restitution: float = 0.0

    def __post_init__(self) -> None:
        if not (self.mass > 0.0 and self.friction >= 0.0 and 0.0 <= self.restitution <= 1.0):
            raise ModelError(f"a point mass needs mass > 0, friction >= 0 and 0 <= restitution <= 1; given {self}.")


STANDARD = Constants()


def build(dimension: int = 2, constants: Constants = STANDARD, ramp: ArrayLike | None = None) -> ns.CLS:
    """Return one point mass on the plane; the last coordinate is its height.

    Parameters
    ----------
    dimension : int
        2 or 3.
    constants : Constants
    ramp : (dimension,), optional
        Rate of a force that grows linearly in time [N/s]. A CLS is autonomous, so time becomes a coordinate, "clock":
        start it at 0 with "clock_rate" 1, which nothing changes.

    Returns
    -------
    ns.CLS
        States x, (y,) height [m] and their rates, with a ramp also clock [s]; controls: the horizontal force [N];
        contact "ground".

    Raises
    ------
    ModelError
        If the dimension is not 2 or 3, or the ramp has another length.
    """
    axes = axes_of(dimension)
    clocks = 0 if ramp is None else 1
    q, v = ca.SX.sym("q", dimension + clocks), ca.SX.sym("v", dimension + clocks)
    u = ca.SX.sym("u", dimension - 1)
    force = ca.vertcat(u, -constants.mass * constants.gravity)
    if ramp is not None:
        rates = np.asarray(ramp, dtype=float)
        if rates.shape != (dimension,):
            raise ModelError(f"point mass: the ramp needs {dimension} components, given {ramp!r}.")
        force = ca.vertcat(force + ca.DM(rates) * q[dimension], 0)
    names, units = labels(axes, axes[:-1])
    if ramp is not None:
        names = {**names, "q": (*names["q"], "clock"), "v": (*names["v"], "clock_rate")}
        units = {**units, "clock": "s"}
    return ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.diag(ca.DM([constants.mass] * dimension + [1.0] * clocks)),
        force=force,
        contacts=[_ground("ground", q, 0, dimension, constants)],
        names=names,
        units=units,
        nominal={"force": constants.mass * constants.gravity},
    )


def build_particles(particles: Sequence[Constants], dimension: int = 2) -> ns.CLS:
    """Return several independent point masses on the plane: simultaneous contacts in one system.

    Parameters
    ----------
    particles : sequence of Constants
        One for each point mass.
    dimension : int
        2 or 3.

    Returns
    -------
    ns.CLS
        States x_1, y_1, x_2, ... [m], v_x_1, ... [m/s]; controls: the horizontal forces [N], particle by particle;
        contacts "ground_1", "ground_2", ...
    """
    axes = axes_of(dimension)
    n = len(particles)
    q, v = ca.SX.sym("q", n * dimension), ca.SX.sym("v", n * dimension)
    u = ca.SX.sym("u", n * (dimension - 1))
    forces = [
        ca.vertcat(u[k * (dimension - 1) : (k + 1) * (dimension - 1)], -particle.mass * particle.gravity)
        for k, particle in enumerate(particles)
    ]
    numbered = [f"{axis}_{k + 1}" for k in range(n) for axis in axes]
    pushed = [f"{axis}_{k + 1}" for k in range(n) for axis in axes[:-1]]
    names, units = labels(numbered, pushed)
    return ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.diag(ca.DM([particle.mass for particle in particles for _ in axes])),
        force=ca.vertcat(*forces),
        contacts=[_ground(f"ground_{k + 1}", q, k * dimension, dimension, p) for k, p in enumerate(particles)],
        names=names,
        units=units,
        nominal={"force": [particle.mass * particle.gravity for particle in particles]},
    )


def axes_of(dimension: int) -> tuple[str, ...]:
    """Return the names of the Cartesian axes, the vertical one last.

    Raises
    ------
    ModelError
        If the dimension is not 2 or 3.
    """
    if dimension not in AXES:
        raise ModelError(f"the dimension has to be 2 or 3, given {dimension!r}.")
    return AXES[dimension]


def labels(axes: Sequence[str], pushed: Sequence[str]) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return names and units of Cartesian coordinates, their rates, and forces along the axes `pushed`."""
    names = {
        "q": tuple(axes),
        "v": tuple(f"v_{axis}" for axis in axes),
        "u": tuple(f"force_{axis}" for axis in pushed),
    }
    units = {
        **dict.fromkeys(names["q"], "m"),
        **dict.fromkeys(names["v"], "m/s"),
        **dict.fromkeys(names["u"], "N"),
    }
    return names, units


def _ground(name: str, q: Any, first: int, dimension: int, constants: Constants) -> ns.Contact:
    """Return the contact with the plane of the particle whose coordinates begin at `first`."""
    tangent = np.zeros((q.shape[0], dimension - 1))
    tangent[first : first + dimension - 1] = np.eye(dimension - 1)
    return ns.Contact(
        name,
        gap=q[first + dimension - 1],
        tangent=ca.DM(tangent),
        friction=constants.friction,
        restitution=constants.restitution,
    )
