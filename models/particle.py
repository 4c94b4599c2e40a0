"""A particle that falls on the ground, slides and is lifted off again: the guiding example of time-freezing.

q = (x, y), unit mass: q'' = (u_1, u_2 - g) + (lambda_t, lambda_n), 0 <= lambda_n, y >= 0, lambda_n y = 0, inelastic
impacts, |lambda_t| <= mu lambda_n against the slip. Time-freezing (Eqs. 15, 25) replaces the impact by the acceleration
a_n (-mu, 1) while the clock stands still; in contact the clock runs with a_n / (a_n + lambda_n). In both, the time that
is lost to the clock is the normal impulse divided by a_n, so with Lambda(t) the impulse of all contact until t

    tau = t + Lambda(t) / a_n.

Under the control of Examples 3 and 4, u = (7, 0) until t = 1, then (7, 2 g (t - 1)), the particle lands at
t = sqrt(2 / g) with the impulse g t, is held with lambda_n = g - u_2, and lifts off at t = 1.5. With mu <= 7 / g it
never stops: friction is -mu lambda_n from the impact on, and the whole motion follows from Lambda,

    v_x = 7 t - mu Lambda,    v_y = -g t + g s^2 + Lambda,    s = max(t - 1, 0),
    Lambda / g = 0, then t, then 1 + s - s^2, then 5/4.
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns
from models.point_mass import labels
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Arrow, Disc, Ground, Mark, Trail

Array = NDArray[np.float64]

START = (0.0, 1.0, 0.0, 0.0)
DRAWN = 0.05  # radius of the particle in pictures [m]
RAMP_START = 1.0  # u_2 begins to grow [s]
LIFT_OFF = 1.5  # u_2 reaches g [s]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of the closed form.

    Parameters
    ----------
    gravity : float
        g [m/s^2], more than 2: the particle lands before the ramp begins.
    friction : float
        Coefficient mu, at most thrust / gravity: the particle never stops.
    thrust : float
        Horizontal force u_1 [N].
    auxiliary : float
        a_n, the vertical acceleration while the clock stands still [m/s^2 of numerical time].

    Raises
    ------
    ModelError
        If one of them is out of its range.
    """

    gravity: float = 9.81
    friction: float = 0.0
    thrust: float = 7.0
    auxiliary: float = 9.81

    def __post_init__(self) -> None:
        in_range = self.gravity > 2.0 and self.auxiliary > 0.0 and 0.0 <= self.friction * self.gravity <= self.thrust
        if not in_range:
            raise ModelError(
                f"the closed form needs gravity > 2, auxiliary > 0 and 0 <= friction <= thrust / gravity; given {self}."
            )

    @property
    def landing(self) -> float:
        """Time of the impact [s]."""
        return float(np.sqrt(2.0 / self.gravity))

    @property
    def landing_speed(self) -> float:
        """Vertical speed before the impact [m/s]."""
        return self.gravity * self.landing

    @property
    def jump(self) -> float:
        """Numerical time that the impact takes [s]."""
        return self.landing_speed / self.auxiliary


FRICTIONLESS = Constants()  # Example 3
FRICTIONAL = Constants(friction=0.6)  # Example 4


def build(friction: float = 0.0, controls: int = 2, gravity: float = 9.81) -> ns.CLS:
    """Return the particle as a system.

    Parameters
    ----------
    friction : float
        Coefficient mu of the contact "ground".
    controls : int
        2 for both forces (Examples 3, 4), 1 for the horizontal one only (Example 5).
    gravity : float
        Gravitational acceleration [m/s^2].

    Returns
    -------
    ns.CLS
        States x, y [m], v_x, v_y [m/s]; controls force_x and force_y [N] as asked for.

    Raises
    ------
    ModelError
        If there are neither one nor two controls, or the friction is negative.
    """
    if controls not in (1, 2):
        raise ModelError(f"a particle has 1 control (horizontal) or 2 (and vertical), given controls={controls!r}.")
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", controls)
    names, units = labels(("x", "y"), ("x", "y")[:controls])
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1.0, 0.0]), friction=friction)
    return ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.DM.eye(2),
        force=ca.vertcat(u[0], (u[1] if controls == 2 else 0.0) - gravity),
        contacts=[ground],
        names=names,
        units=units,
        nominal={"force": gravity},
        scene=[
            Trail(q),
            Disc([q[0], q[1] + DRAWN], DRAWN),
            Arrow([q[0], q[1] + DRAWN], [u[0], u[1] if controls == 2 else 0], label="force"),
            Ground(),
            Mark("ground", q),
        ],
    )


def control(t: ArrayLike, constants: Constants = FRICTIONLESS) -> Array:
    """Return the forces (u_1, u_2) [N] of Examples 3 and 4 at physical time t: (2,), or (n, 2) for times (n,)."""
    ramp = 2.0 * constants.gravity * _since_ramp(np.asarray(t, dtype=float))
    return np.stack([np.full_like(ramp, constants.thrust), ramp], axis=-1)


def impulse(t: ArrayLike, constants: Constants = FRICTIONLESS) -> Array:
    """Return Lambda(t) [N s], the normal impulse of all contact until the time t (n,), right limit at the impact.

    The impulse of the impact itself is `constants.landing_speed`.
    """
    t = np.asarray(t, dtype=float)
    s = np.minimum(_since_ramp(t), LIFT_OFF - RAMP_START)
    total = constants.gravity * (np.minimum(t, RAMP_START) + s * (1.0 - s))
    return np.where(t < constants.landing, 0.0, total)


def normal_force(t: ArrayLike, constants: Constants = FRICTIONLESS) -> Array:
    """Return lambda_n at physical times t (n,) [N]: g - u_2 in contact, zero in flight, without the impact."""
    t = np.asarray(t, dtype=float)
    held = (t >= constants.landing) & (t < LIFT_OFF)
    return np.where(held, constants.gravity * (1.0 - 2.0 * _since_ramp(t)), 0.0)


def numerical_time(t: ArrayLike, constants: Constants = FRICTIONLESS) -> Array:
    """Return tau = t + Lambda / a_n at physical times t (n,) [s]; at the impact the end of the jump."""
    return np.asarray(t, dtype=float) + impulse(t, constants) / constants.auxiliary


def clock(tau: ArrayLike, constants: Constants = FRICTIONLESS) -> Array:
    """Return the physical time t(tau) [s] at numerical times tau (n,) [s]: the inverse of `numerical_time`.

    On the ramp it solves tau - tau(1) = (1 + r) s - r s^2 with r = g / a_n.
    """
    tau = np.asarray(tau, dtype=float)
    landing, ratio = constants.landing, constants.gravity / constants.auxiliary
    ramp, lift_off = numerical_time([RAMP_START, LIFT_OFF], constants)
    held = landing + np.maximum(tau - landing - constants.jump, 0.0) / (1.0 + ratio)
    beyond = np.clip(tau - ramp, 0.0, lift_off - ramp)
    root = np.sqrt(np.maximum((1.0 + ratio) ** 2 - 4.0 * ratio * beyond, 0.0))
    lifted = RAMP_START + 2.0 * beyond / (1.0 + ratio + root)
    flying = LIFT_OFF + tau - lift_off
    return np.select([tau < landing, tau < ramp, tau < lift_off], [tau, held, lifted], flying)


def speed_of_time(tau: ArrayLike, constants: Constants = FRICTIONLESS) -> Array:
    """Return dt/dtau at numerical times tau (n,): 1 in flight, 0 in the jump, a_n / (a_n + lambda_n) in contact."""
    force = normal_force(clock(tau, constants), constants)
    return np.where(_frozen(tau, constants), 0.0, constants.auxiliary / (constants.auxiliary + force))


def exact(tau: ArrayLike, constants: Constants = FRICTIONLESS) -> Array:
    """Return the motion from (0, 1, 0, 0, 0) in numerical time, in closed form.

    Parameters
    ----------
    tau : array_like, shape (n,)
        Numerical times, not before 0 [s].
    constants : Constants

    Returns
    -------
    array, shape (n, 5)
        y = (x, y, v_x, v_y, t); (5,) for one time.

    Raises
    ------
    ModelError
        If a time is negative.
    """
    tau, t = np.asarray(tau, dtype=float), clock(tau, constants)
    # The remaining part of the impact.
    missing = np.where(
        _frozen(tau, constants), constants.landing_speed - constants.auxiliary * (tau - constants.landing), 0.0
    )
    y = np.concatenate([physical(t, constants), t[..., None]], axis=-1)
    y[..., 2] += constants.friction * missing
    y[..., 3] -= missing
    return y


def physical(t: ArrayLike, constants: Constants = FRICTIONLESS) -> Array:
    """Return the states (x, y, v_x, v_y), (n, 4), at physical times t (n,) [s], the right limit at the impact.

    Raises
    ------
    ModelError
        If a time is negative.
    """
    t = np.asarray(t, dtype=float)
    if np.any(t < 0.0):
        raise ModelError(f"the closed form starts at 0; given {t.min()}.")
    gravity, flying, falling = constants.gravity, np.maximum(t - LIFT_OFF, 0.0), t < constants.landing
    x = constants.thrust * t**2 / 2.0 - constants.friction * _impulse_integral(t, constants)
    v_x = constants.thrust * t - constants.friction * impulse(t, constants)
    height = np.where(falling, 1.0 - gravity * t**2 / 2.0, gravity * flying**3 / 3.0)
    v_y = np.where(falling, -gravity * t, gravity * flying**2)
    return np.stack([x, height, v_x, v_y], axis=-1)


def _impulse_integral(t: Array, constants: Constants) -> Array:
    """Return the integral of Lambda from 0 to t (n,) [N s^2]."""
    s, flying = np.minimum(_since_ramp(t), LIFT_OFF - RAMP_START), np.maximum(t - LIFT_OFF, 0.0)
    held = (np.minimum(t, RAMP_START) ** 2 - constants.landing**2) / 2.0
    total = held + s + s**2 / 2.0 - s**3 / 3.0 + 1.25 * flying
    return np.where(t < constants.landing, 0.0, constants.gravity * total)


def _since_ramp(t: Array) -> Array:
    return np.maximum(t - RAMP_START, 0.0)


def _frozen(tau: ArrayLike, constants: Constants) -> NDArray[np.bool_]:
    """Return True where the clock stands still."""
    elapsed = np.asarray(tau, dtype=float) - constants.landing
    return (elapsed >= 0.0) & (elapsed < constants.jump)
