"""A point mass in a round bowl, in the plane: persistent contact on a curved surface, with or without friction.

With the angle phi from the bottom, x = R sin phi, y = -R cos phi, the motion in contact is that of a pendulum with dry
friction, where s is the sign of phi':

    R phi'' = -g sin phi - s mu lambda / m,    lambda = m (R phi'^2 + g cos phi).

`slide` integrates this in phi: an equation without a constraint, as a reference for the motion with one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Disc, Ground, Mark, Trail

Array = NDArray[np.float64]
TOLERANCE = 1e-13


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Mass [kg], gravity [m/s^2], radius of the bowl [m], coefficient of friction and restitution of the contact.

    Raises
    ------
    ModelError
        If mass or radius is not positive, the friction negative, or the restitution outside [0, 1].
    """

    mass: float = 1.0
    gravity: float = 9.81
    radius: float = 1.0
    friction: float = 0.0
    restitution: float = 0.0

    def __post_init__(self) -> None:
        if not (self.mass > 0.0 and self.radius > 0.0 and self.friction >= 0.0 and 0.0 <= self.restitution <= 1.0):
            raise ModelError(
                f"a bowl needs mass > 0, radius > 0, friction >= 0 and 0 <= restitution <= 1; given {self}."
            )


STANDARD = Constants()


def build(constants: Constants = STANDARD) -> ns.CLS:
    """Return the mass as a system.

    Returns
    -------
    ns.CLS
        States x, y [m] from the centre of the bowl, v_x, v_y [m/s]; no controls; contact "bowl" with the gap R - |q|
        and the tangent in the direction of growing phi.
    """
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    distance, weight = ca.norm_2(q), constants.mass * constants.gravity
    drawn = 0.05 * constants.radius
    way = [constants.radius * np.array([np.sin(phi), -np.cos(phi)]) for phi in np.linspace(-1.7, 1.7, 69)]
    bowl = ns.Contact(
        "bowl",
        gap=constants.radius - distance,
        tangent=ca.vertcat(-q[1], q[0]) / distance,
        friction=constants.friction,
        restitution=constants.restitution,
    )
    return ns.CLS(
        q=q,
        v=v,
        mass_matrix=constants.mass * ca.DM.eye(2),
        force=ca.vertcat(0, -weight),
        contacts=[bowl],
        names={"q": ["x", "y"], "v": ["v_x", "v_y"]},
        units={"x": "m", "y": "m", "v_x": "m/s", "v_y": "m/s"},
        nominal={"q": constants.radius, "force": weight},
        scene=[Trail(q), Disc(q * (1 - drawn / constants.radius), drawn), Ground(points=way), Mark("bowl", q)],
    )


def state(phi: ArrayLike, rate: ArrayLike, constants: Constants = STANDARD) -> Array:
    """Return the states (..., 4) = (x, y, v_x, v_y) in contact for angles [rad] and their rates [rad/s]."""
    angle, speed = np.asarray(phi, dtype=float), constants.radius * np.asarray(rate, dtype=float)
    sine, cosine = np.sin(angle), np.cos(angle)
    columns = (constants.radius * sine, -constants.radius * cosine, speed * cosine, speed * sine)
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


def normal_force(phi: ArrayLike, rate: ArrayLike, constants: Constants = STANDARD) -> Array:
    """Return the force of the bowl on the mass in contact [N]; the contact holds as long as it is positive."""
    inertial = constants.radius * np.asarray(rate, dtype=float) ** 2
    force: Array = constants.mass * (inertial + constants.gravity * np.cos(phi))
    return force


@dataclass(frozen=True, eq=False, kw_only=True)
class Sliding:
    """A motion in contact: callable, with its turning points.

    Parameters
    ----------
    constants : Constants
    duration : float
        Duration of the motion [s].
    starts : (pieces,)
        Beginning of every piece between stops [s].
    pieces : tuple of functions
        t -> (phi, phi') of every piece.
    events : tuple of (kind, time)
        "reversal" where the mass turns around, "stick" where it stays.
    """

    constants: Constants
    duration: float
    starts: Array
    pieces: tuple[Callable[[float], Any], ...]
    events: tuple[tuple[str, float], ...]

    def angle(self, t: ArrayLike) -> Array:
        """Return the angles and their rates (times, 2)."""
        times = np.atleast_1d(np.asarray(t, dtype=float))
        which = np.searchsorted(self.starts, times, side="right") - 1
        return np.array([self.pieces[k](time) for k, time in zip(which, times, strict=True)])

    def __call__(self, t: ArrayLike) -> Array:
        """Return the states (times, 4)."""
        angles = self.angle(t)
        return state(angles[:, 0], angles[:, 1], self.constants)


def slide(phi: float, rate: float, duration: float, constants: Constants = STANDARD) -> Sliding:
    """Integrate the motion in contact from (phi, phi') on [0, duration], to about 1e-12.

    Raises
    ------
    ModelError
        If the mass leaves the bowl: this reference has no flight phases.
    """
    t, y = 0.0, np.array([phi, rate], dtype=float)
    starts, pieces, events = [], list[Callable[[float], Any]](), list[tuple[str, float]]()
    while True:
        starts.append(t)
        sign = np.sign(y[1]) if y[1] != 0.0 else _onset(y[0], constants)
        if sign == 0.0:
            pieces.append(_resting(y))
            if events:
                events[-1] = ("stick", events[-1][1])
            break
        piece = _piece(y, sign, t, duration, constants)
        pieces.append(piece.sol)
        if not piece.t_events[0].size or (t := float(piece.t_events[0][0])) >= duration:
            break
        y = np.array([float(piece.y_events[0][0][0]), 0.0])
        events.append(("reversal", t))
    return Sliding(
        constants=constants, duration=duration, starts=np.array(starts), pieces=tuple(pieces), events=tuple(events)
    )


def _resting(y: Array) -> Callable[[float], Array]:
    return lambda _: y


def _onset(phi: float, constants: Constants) -> float:
    """Return the direction in which a mass at rest begins to move: down, or 0 inside the friction cone."""
    pull, grip = np.sin(phi), constants.friction * np.cos(phi)
    return 0.0 if abs(pull) <= grip else -float(np.sign(pull))


def _piece(y: Array, sign: float, start: float, end: float, constants: Constants) -> Any:
    """Integrate up to the next stop."""

    def rates(_: float, y: Array) -> list[float]:
        friction = sign * constants.friction * float(normal_force(y[0], y[1], constants)) / constants.mass
        return [y[1], (-constants.gravity * float(np.sin(y[0])) - friction) / constants.radius]

    def stop(_: float, y: Array) -> float:
        return sign * y[1]

    def leave(_: float, y: Array) -> float:
        return float(normal_force(y[0], y[1], constants))

    stop.terminal, stop.direction = True, -1.0  # type: ignore[attr-defined]
    leave.terminal, leave.direction = True, -1.0  # type: ignore[attr-defined]
    solution = solve_ivp(
        rates, (start, end), y, "DOP853", dense_output=True, events=[stop, leave], rtol=TOLERANCE, atol=TOLERANCE
    )
    if solution.t_events[1].size:
        raise ModelError(f"the mass leaves the bowl at t = {solution.t_events[1][0]:.6g} s; start it lower or slower.")
    return solution
