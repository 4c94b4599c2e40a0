"""A car whose turbo has hysteresis: it switches on at 15 m/s, and off again at 10 m/s.

Without the turbo v' = u, with it v' = gain u; in between the turbo stays as it is. That is a hybrid automaton with a
discrete state w in {0, 1}; time-freezing makes it a Filippov system of x = (position, velocity, w, clock). With
psi = (v - off) / (on - off), the plane of (psi, w) has four regions, bounded by w = 0, w = 1 and the line psi + w = 1
between them, with the flows

    w < 0:                  2 f_A + e_w        0 < w, psi + w < 1:   -e_w
    w < 1, psi + w > 1:     e_w                w > 1:                2 f_B - e_w,

f_A = (v, u, 0, 1) and f_B = (v, gain u, 0, 1), e_w the direction of w. It is exact, not an approximation:
- On w = 0 up to psi = 1 both neighbours push towards the line, and w' = 0 has only one solution, the weights 1/2, 1/2:
  the car moves with f_A, the clock at the rate 1. Likewise with f_B on w = 1 down to psi = 0.
- At psi = 1 the line w = 0 ends: beyond it e_w acts alone. w goes to 1 in the numerical time 1 while nothing else
  moves, the clock neither; there it finds w = 1. Likewise down at psi = 0.
- At psi = 1, w = 0 itself the weights may also hold everything, the clock too: a pause, of any length. And a car that
  turns back right there may do so with the turbo on or off: so may the automaton, on its threshold.
All motions of the numerical time are therefore those of the automaton, with pauses in which the clock stands still.
The flows are multiplied by a control, the speed of time, which makes control stages as long as is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns
from models.turbo_car import LENGTH, car
from nosnoc_py.errors import ModelError, OptionError

Array = NDArray[np.float64]
Regions = Literal["indicators", "signs"]

# Stewart's indicators: squared distances of (psi, w) from these points; the nearest one marks the region.
POINTS = ((0.25, -0.25), (0.25, 0.25), (0.75, 0.75), (0.75, 1.25))
# Or the signs of w, psi + w - 1, w - 1; a region that a function does not bound has a zero.
SIGNS = ((-1, -1, 0), (1, -1, 0), (0, 1, -1), (0, 1, 1))
PASSED = 1e-9  # a threshold counts as passed when it is exceeded by more than this [m/s]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of the car.

    Parameters
    ----------
    acceleration : float
        Largest |u| [m/s^2].
    gain : float
        Factor of the acceleration with turbo, at least 1.
    off, on : float
        Speeds at which the turbo goes off, falling, and on, rising [m/s].
    limit : float
        Largest speed [m/s].

    Raises
    ------
    ModelError
        If one of them is out of its range.
    """

    acceleration: float = 5.0
    gain: float = 3.0
    off: float = 10.0
    on: float = 15.0
    limit: float = 25.0

    def __post_init__(self) -> None:
        if not (self.acceleration > 0.0 and self.gain >= 1.0 and 0.0 < self.off < self.on < self.limit):
            raise ModelError(
                f"a car with hysteresis needs acceleration > 0, gain >= 1 and 0 < off < on < limit; given {self}."
            )


STANDARD = Constants()


def build(constants: Constants = STANDARD, regions: Regions = "indicators") -> ns.PSS:
    """Return the car as a Filippov system in numerical time.

    Parameters
    ----------
    constants : Constants
    regions : {"indicators", "signs"}
        Definition of the four regions: Stewart's indicators, or switching functions, which step functions need.

    Returns
    -------
    ns.PSS
        States position [m], velocity [m/s], turbo (w), clock [s]; controls acceleration [m/s^2] and speed_of_time.

    Raises
    ------
    OptionError
        For other regions.
    """
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u", 2)
    psi = (x[1] - constants.off) / (constants.on - constants.off)
    plain, turbo = (ca.vertcat(x[1], gain * u[0], 0, 1) for gain in (1.0, constants.gain))
    up = ca.DM([0, 0, 1, 0])
    flows = [u[1] * flow for flow in (2 * plain + up, -up, up, 2 * turbo - up)]
    return ns.PSS(
        x=x,
        u=u,
        modes=_modes(flows, psi, x[2], regions),
        names={"x": ["position", "velocity", "turbo", "clock"], "u": ["acceleration", "speed_of_time"]},
        units={"position": "m", "velocity": "m/s", "clock": "s", "acceleration": "m/s^2"},
        nominal={"x": [5.0 * constants.limit, constants.limit, 1.0, 10.0], "u": [constants.acceleration, 1.0]},
        scene=car(x, u, x[2], LENGTH * constants.limit**2 / constants.acceleration),
    )


def _modes(flows: list[ca.SX], psi: ca.SX, w: ca.SX, regions: str) -> ns.Modes:
    if regions == "indicators":
        # |z - z_i|^2 less |z|^2, which is common to all
        distances = [a**2 + b**2 - 2 * (a * psi + b * w) for a, b in POINTS]
        return ns.Modes("turbo", flows=flows, indicators=ca.vertcat(*distances))
    if regions == "signs":
        functions = ca.vertcat(w, psi + w - 1, w - 1)
        return ns.Modes("turbo", flows=flows, functions=functions, signs=SIGNS, function_names=("off", "change", "on"))
    raise OptionError(f"regions: expected 'indicators' or 'signs', given {regions!r}.")


@dataclass(frozen=True, kw_only=True)
class Drive:
    """Motion of the automaton: times [s], position and velocity (n, 2), w (n,) after the change at that time.

    `changes` are (time, "on" or "off").
    """

    t: Array
    x: Array
    turbo: Array
    changes: tuple[tuple[float, str], ...]


def drive(
    control: ArrayLike,
    lengths: ArrayLike,
    *,
    start: ArrayLike = (0.0, 0.0),
    turbo: int = 0,
    constants: Constants = STANDARD,
) -> Drive:
    """Return the exact motion of the hybrid automaton, event by event, with parabolas between the events.

    The turbo changes where its threshold is passed, by more than rounding: on it, w may be either.

    Parameters
    ----------
    control : (N,)
        Accelerations u [m/s^2].
    lengths : (N,)
        Durations of the controls in physical time [s].
    start : (2,)
    turbo : {0, 1}
        w at the start.
    """
    t, (s, v), w = 0.0, np.asarray(start, dtype=float), turbo
    rows, changes = [(t, s, v, w)], []
    for u, length in zip(np.asarray(control, dtype=float), np.asarray(lengths, dtype=float), strict=True):
        left = float(length)
        while True:
            a = u * (constants.gain if w else 1.0)
            wait = _wait(v, a, w, left, constants)
            step = min(wait, left)
            s, v, t, left = s + v * step + 0.5 * a * step**2, v + a * step, t + step, left - step
            if wait < np.inf:
                w = 1 - w
                changes.append((float(t), "on" if w else "off"))
            rows.append((t, s, v, w))
            if wait == np.inf:
                break
    values = np.array(rows, dtype=float)
    return Drive(t=values[:, 0], x=values[:, 1:3], turbo=values[:, 3], changes=tuple(changes))


def _wait(v: float, a: float, w: int, left: float, constants: Constants) -> float:
    """Return the time until the turbo changes at the acceleration a [s], or infinity if it does not within `left`."""
    missing, towards = (v - constants.off, -a) if w else (constants.on - v, a)
    passes = towards * left - missing > PASSED and towards > 0.0
    return max(missing, 0.0) / towards if passes else np.inf


def fastest_time(distance: float, constants: Constants = STANDARD) -> float:
    """Return the time [s] of the fastest drive over a distance [m] from rest to rest, with the turbo off at both ends.

    At every time v is at most what full acceleration gives (turbo from `on` upwards), what full braking still takes
    away (turbo down to `off`), and the limit. Where the smallest of these bounds reaches `on`, it is a motion of the
    automaton and the optimum; on a shorter way the turbo cannot go on and off again, and stays off.
    """
    u, gain, off, on = constants.acceleration, constants.gain, constants.off, constants.on
    if not 0.0 < distance < np.inf:
        raise ModelError(f"a drive needs a positive distance, given {distance!r}.")

    def way(peak: float) -> float:
        return (on**2 + off**2 + (2.0 * peak**2 - on**2 - off**2) / gain) / (2.0 * u)

    if distance < way(on):
        return 2.0 * float(np.sqrt(distance / u))
    ride = max(distance - way(constants.limit), 0.0)
    square = 0.5 * (gain * (2.0 * u * distance - on**2 - off**2) + on**2 + off**2)
    peak = min(constants.limit, float(np.sqrt(square)))
    return (on + off + (2.0 * peak - on - off) / gain) / u + ride / constants.limit
