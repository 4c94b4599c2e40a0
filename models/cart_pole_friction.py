"""A cart with a pole and dry friction on its rail.

x = (position s, angle phi, velocity v, rate omega), phi = 0 hanging down. A point mass m at the end of a massless pole
of length l, a cart of mass M pushed by u, Coulomb friction F on the cart:

    (M + m sin^2 phi) v' = u - F sign(v) + m sin phi (l omega^2 + g cos phi)
    l omega' = -v' cos phi - g sin phi.

The system is piecewise smooth with the switching function v. At v = 0 the cart sticks while the load on it, the right
side without friction, stays within [-F, F]; the pole then swings like a pendulum.
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
from nosnoc_py.systems.scene import Arrow, Disc, Ground, Line, Rectangle, Trail

Array = NDArray[np.float64]
STILL = 1e-9  # a slower cart counts as at rest when the control changes [m/s]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Masses of cart and pole [kg], length [m], gravity [m/s^2], friction F [N].

    Raises
    ------
    ModelError
        If one of the first four is not positive, or the friction negative.
    """

    cart: float = 1.0
    pole: float = 0.1
    length: float = 0.5
    gravity: float = 9.81
    friction: float = 5.0

    def __post_init__(self) -> None:
        if not (min(self.cart, self.pole, self.length, self.gravity) > 0.0 and self.friction >= 0.0):
            raise ModelError(
                f"a cart with a pole needs positive masses, length and gravity, and friction >= 0; given {self}."
            )


STANDARD = Constants()


def build(constants: Constants = STANDARD) -> ns.PSS:
    """Return the cart and its pole as a Filippov system.

    Returns
    -------
    ns.PSS
        States position [m], angle [rad], velocity [m/s], rate [rad/s]; control force [N]; switching function "cart".
    """
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u")
    _, phi, v, omega = ca.vertsplit(x)
    sine, cosine, length, gravity = ca.sin(phi), ca.cos(phi), constants.length, constants.gravity

    def accelerations(force: Any) -> ca.SX:
        """Return v' and omega' for a force on the cart."""
        forwards = force / (constants.cart + constants.pole * sine**2)
        return ca.vertcat(forwards, -forwards * cosine / length)

    load = u + constants.pole * sine * (length * omega**2 + gravity * cosine)
    falling = ca.vertcat(v, omega, accelerations(load) - ca.vertcat(0, gravity / length * sine))
    friction = ca.vertcat(0, 0, accelerations(constants.friction))
    cart = ns.Modes("cart", flows=[friction, -friction], functions=v, signs=[[-1], [1]])
    place = ca.vertcat(x[0], 0)
    tip = place + length * ca.vertcat(sine, -cosine)
    return ns.PSS(
        x=x,
        u=u,
        flow=falling,
        modes=cart,
        names={"x": ["position", "angle", "velocity", "rate"], "u": ["force"]},
        units={"position": "m", "angle": "rad", "velocity": "m/s", "rate": "rad/s", "force": "N"},
        scene=[
            Trail(tip),
            Ground(band=False),
            Rectangle(place, [0.5 * length, 0.25 * length], label="cart"),
            Line([place, tip], joints=False, label="pole"),
            Disc(tip, 0.08 * length),
            Arrow(place, [u, 0], label="force"),
        ],
    )


@dataclass(frozen=True, kw_only=True)
class Motion:
    """Times [s] (n,), states (n, 4), and phases (begin, end, -1 | 0 | 1): slip backwards, stick, slip forwards."""

    t: Array
    x: Array
    phases: tuple[tuple[float, float, int], ...]

    @property
    def sticks(self) -> tuple[tuple[float, float], ...]:
        """Begin and end of the stick phases [s]; adjacent phases are merged."""
        joined: list[tuple[float, float]] = []
        for begin, end, mode in self.phases:
            if mode == 0 and joined and abs(joined[-1][1] - begin) < STILL:
                joined[-1] = (joined[-1][0], end)
            elif mode == 0:
                joined.append((begin, end))
        return tuple(joined)


def simulate(
    control: ArrayLike, duration: float, x0: ArrayLike, constants: Constants = STANDARD, *, tolerance: float = 1e-12
) -> Motion:
    """Return the motion under a piecewise constant control (N,) [N], by DOP853 phase by phase, without finite elements.

    In every phase the motion is smooth, slip in one direction or stick; it ends where v becomes zero or where the load
    leaves [-F, F]. What follows is decided by the load.
    """
    u, x = np.asarray(control, dtype=float), np.array(x0, dtype=float)
    grid = np.linspace(0.0, duration, u.size + 1)
    times, states, phases = [grid[:1]], [x[None]], []
    for k, force in enumerate(u):
        t, mode = float(grid[k]), _mode(x, force, constants, STILL)
        while t < grid[k + 1]:
            x[2] = 0.0 if mode == 0 else x[2]
            phase = _phase((t, float(grid[k + 1])), x, force, mode, constants, tolerance)
            phases.append((t, float(phase.t[-1]), mode))
            t, x = float(phase.t[-1]), np.array(phase.y[:, -1])
            times.append(phase.t[1:])
            states.append(phase.y[:, 1:].T)
            if phase.status == 1:
                x[2] = 0.0
                load = _load(x, force, constants)
                mode = int(np.sign(load)) if mode == 0 else _mode(x, force, constants, STILL)
    return Motion(t=np.concatenate(times), x=np.concatenate(states), phases=tuple(phases))


def _load(x: Array, force: float, constants: Constants) -> float:
    """Return the force on the cart without friction [N]: the control and the pull of the pole."""
    pull = constants.length * x[3] ** 2 + constants.gravity * np.cos(x[1])
    return float(force + constants.pole * np.sin(x[1]) * pull)


def _mode(x: Array, force: float, constants: Constants, still: float) -> int:
    if abs(x[2]) > still:
        return int(np.sign(x[2]))
    load = _load(x, force, constants)
    return 0 if abs(load) <= constants.friction else int(np.sign(load))


def _phase(span: tuple[float, float], x: Array, force: float, mode: int, constants: Constants, tolerance: float) -> Any:
    """Integrate one phase until it ends, or to the end of the span."""

    def flow(t: float, x: Array) -> Array:
        load = _load(x, force, constants) - mode * constants.friction
        v = 0.0 if mode == 0 else load / (constants.cart + constants.pole * np.sin(x[1]) ** 2)
        gravity = constants.gravity * np.sin(x[1])
        return np.array([x[2], x[3], v, -(v * np.cos(x[1]) + gravity) / constants.length])

    def broken_loose(t: float, x: Array) -> float:
        return abs(_load(x, force, constants)) - constants.friction

    def at_rest(t: float, x: Array) -> float:
        return float(x[2])

    event: Callable[[float, Array], float] = broken_loose if mode == 0 else at_rest
    event.terminal, event.direction = True, 1.0 if mode == 0 else -float(mode)  # type: ignore[attr-defined]
    return solve_ivp(flow, span, x, method="DOP853", rtol=tolerance, atol=tolerance, events=event)


def energy(x: ArrayLike, constants: Constants = STANDARD) -> Array:
    """Return kinetic plus potential energy of states (n, 4) [J]: cart, and mass at (s + l sin phi, -l cos phi)."""
    _, phi, v, omega = np.moveaxis(np.asarray(x, dtype=float), -1, 0)
    across, upwards = v + constants.length * omega * np.cos(phi), constants.length * omega * np.sin(phi)
    height = -constants.length * np.cos(phi)
    moving = 0.5 * constants.cart * v**2 + 0.5 * constants.pole * (across**2 + upwards**2)
    return np.asarray(moving + constants.pole * constants.gravity * height)
