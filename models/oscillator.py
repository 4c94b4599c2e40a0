"""An oscillator that reverses its rotation at the unit circle: the example for integration orders of FESD.

x' = A_1 x inside the unit circle and x' = A_2 x outside, with A_1 = [1, w; -w, 1] and A_2 = [1, -w; w, 1]. In polar
coordinates r' = r and phi' = -w inside, phi' = w outside: the radius grows as e^t, and a motion that starts inside, at
radius r_0, crosses the circle at t = -ln r_0.
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns
from nosnoc_py.errors import ModelError

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Angular frequency w [rad/s], the radius and the angle [rad] of the start.

    Raises
    ------
    ModelError
        If the radius is not positive.
    """

    frequency: float = float(2.0 * np.pi)
    radius: float = float(np.exp(-1.0))
    angle: float = 0.0

    def __post_init__(self) -> None:
        if not self.radius > 0.0:
            raise ModelError(f"the oscillator needs a start with radius > 0; given {self}.")

    @property
    def start(self) -> tuple[float, float]:
        """Cartesian state at t = 0."""
        return float(self.radius * np.cos(self.angle)), float(self.radius * np.sin(self.angle))

    @property
    def switch_time(self) -> float:
        """Time at which the motion crosses the circle [s]; 0 for a start outside."""
        return float(max(0.0, -np.log(self.radius)))


STANDARD = Constants()


def build(constants: Constants = STANDARD) -> ns.PSS:
    """Return the oscillator, with states x_1, x_2 and a partition "circle": below 0 inside, above 0 outside."""
    x, w = ca.SX.sym("x", 2), constants.frequency
    inside, outside = ca.DM([[1.0, w], [-w, 1.0]]), ca.DM([[1.0, -w], [w, 1.0]])
    circle = ns.Modes("circle", flows=[inside @ x, outside @ x], functions=ca.sumsqr(x) - 1.0, signs=[[-1], [1]])
    return ns.PSS(x=x, modes=circle, names={"x": ["x_1", "x_2"]})


def exact(t: ArrayLike, constants: Constants = STANDARD) -> Array:
    """Return the states (n, 2) at times (n,) [s]."""
    times = np.atleast_1d(np.asarray(t, dtype=float))
    turns = np.abs(times - constants.switch_time) - constants.switch_time
    angle = constants.angle + constants.frequency * turns
    return (constants.radius * np.exp(times) * np.array([np.cos(angle), np.sin(angle)])).T
