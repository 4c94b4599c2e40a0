"""A block on a moving belt, held by a spring: friction that decreases with slip causes stick-slip oscillations.

m x'' = -k x + F(v_b - x') with F(w) = (F_0 - b |w|) sgn(w), and any friction within [-F_0, F_0] where the block moves
with the belt. Stick is a sliding mode of the Filippov system with the switching function c = v_b - x'. It ends where
the spring pulls with F_0, tangentially to the surface.

In slip below the speed of the belt m x'' - b x' + k x = F_0 - b v_b: a harmonic motion that grows as e^(g t), with
g = b / 2m, about the point x_e = (F_0 - b v_b) / k. From the break-away at x = F_0 / k, x' = v_b on

    x(s) = x_e + e^(g s) (A cos w s + B sin w s),   w = sqrt(k/m - g^2),

until x' = v_b again; for b > 0 that point lies inside the stick zone |x| < F_0 / k, the block is carried back to the
break-away, and the cycle closes. So every motion that sticks once is periodic from then on. For b = 0 the friction is
Coulomb's, stick ends at the same point but the slip ends there, too: no cycle of stick and slip.
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Arrow, Ground, Mark, Rectangle, Spring

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Mass [kg], stiffness [N/m], speed of the belt [m/s], largest friction F_0 [N], its decrease b with slip [N s/m].

    Raises
    ------
    ModelError
        Unless all are positive and the spring makes the slip oscillate, b^2 < 4 k m, with friction left at slip with
        the speed of the belt.
    """

    mass: float = 1.0
    stiffness: float = 25.0
    belt: float = 0.2
    friction: float = 2.5
    decrease: float = 1.0

    def __post_init__(self) -> None:
        values = (self.mass, self.stiffness, self.belt, self.friction, self.decrease)
        if not min(values) > 0.0 or not self.decrease**2 < 4.0 * self.stiffness * self.mass:
            raise ModelError(f"stick-slip needs positive constants and decrease^2 < 4 stiffness mass; given {self}.")
        if not self.decrease * self.belt < self.friction:
            raise ModelError(f"stick-slip needs decrease * belt < friction; given {self}.")

    @property
    def break_away(self) -> float:
        """Elongation at which stick ends [m]."""
        return self.friction / self.stiffness

    @property
    def equilibrium(self) -> float:
        """Elongation x_e about which the slipping block oscillates [m]."""
        return (self.friction - self.decrease * self.belt) / self.stiffness

    @property
    def growth(self) -> float:
        """g [1/s]."""
        return self.decrease / (2.0 * self.mass)

    @property
    def frequency(self) -> float:
        """w [rad/s]."""
        return float(np.sqrt(self.stiffness / self.mass - self.growth**2))

    @property
    def slip_time(self) -> float:
        """Duration of a slip from break-away to stick [s]: the first return of x' to the speed of the belt.

        The acceleration is positive from the point of greatest speed backwards on; x' - v_b has one sign in between,
        and the root lies between a half and a full turn.
        """
        turn = 2.0 * np.pi / self.frequency
        return float(brentq(lambda s: self.slip(s)[0, 1] - self.belt, 0.5 * turn, turn, xtol=1e-15, rtol=1e-15))

    @property
    def stick_time(self) -> float:
        """Duration of a stick between two slips [s]."""
        return (self.break_away - float(self.slip(self.slip_time)[0, 0])) / self.belt

    @property
    def period(self) -> float:
        """Period of the cycle [s]."""
        return self.slip_time + self.stick_time

    def slip(self, s: ArrayLike) -> Array:
        """Return the states (n, 2) at times s after the break-away, as long as the block is slower than the belt."""
        times = np.atleast_1d(np.asarray(s, dtype=float))
        g, w = self.growth, self.frequency
        a = self.break_away - self.equilibrium
        b = (self.belt - g * a) / w
        cosine, sine, grown = np.cos(w * times), np.sin(w * times), np.exp(g * times)
        x = self.equilibrium + grown * (a * cosine + b * sine)
        v = grown * ((g * a + w * b) * cosine + (g * b - w * a) * sine)
        return np.column_stack([x, v])


STANDARD = Constants()


def build(constants: Constants = STANDARD) -> ns.PSS:
    """Return the block: states position [m], velocity [m/s]; partition "belt": faster, then slower than the belt.

    Both regions share the spring and the decrease of friction, which acts along v - v_b in both.
    """
    x, c = ca.SX.sym("x", 2), constants
    common = ca.vertcat(x[1], (-c.stiffness * x[0] + c.decrease * (x[1] - c.belt)) / c.mass)
    pull = c.friction / c.mass
    side = constants.break_away  # size of the block in pictures
    belt = ns.Modes("belt", flows=[[0.0, -pull], [0.0, pull]], functions=c.belt - x[1], signs=[[-1], [1]])
    names = {"x": ["position", "velocity"]}
    return ns.PSS(
        x=x,
        flow=common,
        modes=belt,
        names=names,
        units={"position": "m", "velocity": "m/s"},
        scene=[
            Rectangle([x[0], 0.5 * side], [side, side], label="block"),
            Spring([-4 * side, 0.5 * side], [x[0] - 0.5 * side, 0.5 * side]),
            Ground(),
            Ground(point=[-4 * side, 0], normal=[1, 0]),
            Arrow([x[0], 1.3 * side], [x[1], 0], unit="m/s", label="velocity"),
            Mark("belt", [x[0], 0]),
        ],
    )


def exact(t: ArrayLike, position: float = 0.0, constants: Constants = STANDARD) -> Array:
    """Return the states (n, 2) at times (n,) [s] of a block that starts on the belt, sticking at `position` [m].

    Raises
    ------
    ModelError
        If the spring would tear it off at once, |position| > F_0 / k, or a time is negative.
    """
    times = np.atleast_1d(np.asarray(t, dtype=float))
    if abs(position) > constants.break_away or (times < 0).any():
        raise ModelError(
            f"the closed form needs |position| <= {constants.break_away:g} and times >= 0; given {position}."
        )
    first = _first_stick(position, constants)
    in_cycle = np.mod(times - first, constants.period)
    slips = (times >= first) & (in_cycle < constants.slip_time)
    # before the first break-away and between slips the belt carries the block; both count back from a break-away
    until = np.where(times < first, first - times, constants.period - in_cycle)
    stuck = np.column_stack([constants.break_away - constants.belt * until, np.full(times.size, constants.belt)])
    return np.asarray(np.where(slips[:, None], constants.slip(in_cycle), stuck))


def event_times(until: float, position: float = 0.0, constants: Constants = STANDARD) -> tuple[Array, Array]:
    """Return the times [s] up to `until` at which stick ends and at which it begins again."""
    first, period = _first_stick(position, constants), constants.period
    away = np.array(
        [first + period * k for k in range(max(0, int(np.ceil((until - first) / period)) + 1))], dtype=float
    )
    back = away + constants.slip_time
    return away[away <= until], back[back <= until]


def _first_stick(position: float, constants: Constants) -> float:
    return (constants.break_away - position) / constants.belt
