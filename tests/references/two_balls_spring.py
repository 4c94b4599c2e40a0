"""The exact motion of two balls connected by a spring (FESD-J, Section 5.1).

Between impacts the centre of mass falls freely and the elongation of the spring oscillates,

    y = (m_1 q_1 + m_2 q_2) / M,  y'' = -g,      r = q_2 - q_1 - l,  r'' = -omega^2 r,  omega^2 = k (1/m_1 + 1/m_2),

with M = m_1 + m_2. Only the impact times need root finding; `exact` brackets every root of the gap, so no impact is
missed, and finds it to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from models.two_balls_spring import PAPER, Constants
from nosnoc_py.errors import ModelError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Impact:
    """One impact of the lower ball: its time [s], impulse [N s] and velocities on either side [m/s]."""

    time: float
    impulse: float
    v_before: tuple[float, float]
    v_after: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Flight:
    """The closed form of the motion without contact from a state (q, v) at `start`; s is the time since then [s]."""

    constants: Constants
    start: float
    q: Array
    v: Array

    @property
    def elongation(self) -> tuple[float, float]:
        """Elongation r of the spring [m] and its rate [m/s], at the start."""
        return float(self.q[1] - self.q[0]) - self.constants.rest_length, float(self.v[1] - self.v[0])

    @property
    def centre_velocity(self) -> float:
        """Velocity of the centre of mass [m/s], at the start."""
        return float(np.dot(self.constants.shares, self.v))

    def displacement(self, s: Array) -> Array:
        """Heights less those at the start (n, 2): exact zeros at s = 0, and no cancellation for small s."""
        omega, (share_1, share_2) = self.constants.omega, self.constants.shares
        r, r_rate = self.elongation
        centre = self.centre_velocity * s - 0.5 * self.constants.gravity * s**2
        spring = -2.0 * r * np.sin(0.5 * omega * s) ** 2 + r_rate / omega * np.sin(omega * s)
        return np.column_stack([centre - share_2 * spring, centre + share_1 * spring])

    def velocity(self, s: Array) -> Array:
        """Velocities (n, 2)."""
        omega, (share_1, share_2) = self.constants.omega, self.constants.shares
        r, r_rate = self.elongation
        centre = self.centre_velocity - self.constants.gravity * s
        spring = -r * omega * np.sin(omega * s) + r_rate * np.cos(omega * s)
        return np.column_stack([centre - share_2 * spring, centre + share_1 * spring])

    def state(self, t: Array) -> Array:
        """States (n, 4) at the times t."""
        s = t - self.start
        return np.hstack([self.q + self.displacement(s), self.velocity(s)])

    def gap(self, s: float) -> float:
        """Gap of the lower ball [m], Eq. 34."""
        return float(self.q[0] - self.constants.radius + self.displacement(np.array([s]))[0, 0])

    def gap_rate(self, s: float) -> float:
        """Rate of the gap [m/s]."""
        return float(self.velocity(np.array([s]))[0, 0])

    def inflections(self, duration: float) -> list[float]:
        """Zeros of the gap's second derivative in (0, duration): A cos(omega s - phase) = g, in closed form."""
        omega = self.constants.omega
        r, r_rate = self.elongation
        amplitude = self.constants.shares[1] * omega**2 * np.hypot(r, r_rate / omega)
        if amplitude <= self.constants.gravity:
            return []
        phase, offset = np.arctan2(r_rate / omega, r), np.arccos(self.constants.gravity / amplitude)
        turns = 2.0 * np.pi * np.arange(-1, omega * duration / (2.0 * np.pi) + 2)
        zeros = np.sort(np.concatenate([phase - offset + turns, phase + offset + turns])) / omega
        return [float(s) for s in zeros[(zeros > 0.0) & (zeros < duration)]]

    def first_impact(self, duration: float) -> float | None:
        """First s in (0, duration) at which the gap falls through zero.

        Between inflections the gap's rate is monotone, so it has at most one zero there; between the zeros of the
        rate the gap is monotone, so it has at most one zero there. No scan can miss what this finds.
        """
        knots = [0.0, *self.inflections(duration), duration]
        turning = [_root(self.gap_rate, *piece) for piece in _sign_changes(self.gap_rate, knots)]
        for a, b in _sign_changes(self.gap, [0.0, *turning, duration]):
            if self.gap(a) > 0.0:
                s = _root(self.gap, a, b)
                return s - self.gap(s) / self.gap_rate(s)  # one Newton step: from brentq's tolerance to rounding
        return None


@dataclass(frozen=True, eq=False)
class ExactSolution:
    """The exact motion: callable, with its impacts.

    Parameters
    ----------
    constants : Constants
    duration : float
        End of the motion [s].
    flights : tuple of Flight
        The motion between impacts, one more than there are impacts.
    impacts : tuple of Impact
        The impacts in the order of time.
    """

    constants: Constants
    duration: float
    flights: tuple[Flight, ...]
    impacts: tuple[Impact, ...]

    def __call__(self, t: ArrayLike, side: Literal["-", "+"] = "+") -> Array:
        """States (n, 4) = (q_1, q_2, v_1, v_2) at times t (n,); `side` chooses the limit at an impact."""
        t = np.atleast_1d(np.asarray(t, dtype=float))
        if np.any((t < 0.0) | (t > self.duration)):
            raise ModelError(f"the exact motion is known on [0, {self.duration}]; given t in [{t.min()}, {t.max()}].")
        times = [impact.time for impact in self.impacts]
        index = np.searchsorted(times, t, side="right" if side == "+" else "left")
        x = np.empty((t.size, 4))
        for i, flight in enumerate(self.flights):
            x[index == i] = flight.state(t[index == i])
        return x

    def energy(self, x: Array) -> Array:
        """Kinetic, potential and elastic energy [J] of states (n, 4): constant between impacts."""
        q, v, masses = x[:, :2], x[:, 2:], np.array(self.constants.masses)
        elastic = 0.5 * self.constants.stiffness * (q[:, 1] - q[:, 0] - self.constants.rest_length) ** 2
        total: Array = 0.5 * v**2 @ masses + self.constants.gravity * q @ masses + elastic
        return total


def exact(
    duration: float = 1.0,
    q: ArrayLike = (1.0, 2.0),
    v: ArrayLike = (0.0, 0.0),
    constants: Constants = PAPER,
    max_impacts: int = 1000,
) -> ExactSolution:
    """The exact motion from (q, v) on [0, duration], with isolated impacts.

    Parameters
    ----------
    duration : float
        Length of the motion [s].
    q, v : array_like, shape (2,)
        Heights [m] and velocities [m/s] at t = 0.
    constants : Constants
        By default those of the paper.
    max_impacts : int
        More impacts than this are taken for an accumulation.

    Raises
    ------
    ModelError
        If the lower ball starts below the ground or touching it without leaving it, or if its impacts accumulate or
        it stays on the ground (restitution 0): persistent contact has no closed form here.
    """
    flight = Flight(constants, 0.0, np.array(q, dtype=float), np.array(v, dtype=float))
    if flight.gap(0.0) < 0.0 or (flight.gap(0.0) == 0.0 and flight.gap_rate(0.0) <= 0.0):
        raise ModelError(
            f"the lower ball has to start above the ground or leave it; given gap {flight.gap(0.0):g} and "
            f"velocity {flight.gap_rate(0.0):g}."
        )
    flights, impacts = [flight], list[Impact]()
    while (s := flight.first_impact(duration - flight.start)) is not None:
        impact, flight = _rebound(flight, s)
        if len(impacts) == max_impacts or not impact.v_after[0] > 1e-9:
            raise ModelError(
                f"the lower ball comes to rest on the ground near t = {impact.time:.6g} (impact {len(impacts) + 1}): "
                "the closed form holds for isolated impacts; shorten the duration or raise the restitution."
            )
        impacts.append(impact)
        flights.append(flight)
    return ExactSolution(constants, duration, tuple(flights), tuple(impacts))


def _rebound(flight: Flight, s: float) -> tuple[Impact, Flight]:
    """Newton's law for the lower ball, s after the start of its flight; the impulse changes no other velocity."""
    constants = flight.constants
    time = flight.start + s
    v_before = flight.velocity(np.array([s]))[0]
    v_after = np.array([-constants.restitution * v_before[0], v_before[1]])
    impulse = constants.masses[0] * (v_after[0] - v_before[0])
    q = flight.q + flight.displacement(np.array([s]))[0]
    q[0] = constants.radius  # exactly: the next flight starts with a gap of zero, not of rounding
    before, after = (float(v_before[0]), float(v_before[1])), (float(v_after[0]), float(v_after[1]))
    return Impact(time, float(impulse), before, after), Flight(constants, time, q, v_after)


def _sign_changes(function: Callable[[float], float], knots: Sequence[float]) -> list[tuple[float, float]]:
    """Neighbouring knots between which the function changes its sign."""
    values = [function(knot) for knot in knots]
    return [(knots[i], knots[i + 1]) for i in range(len(knots) - 1) if values[i] * values[i + 1] < 0.0]


def _root(function: Callable[[float], float], a: float, b: float) -> float:
    """Root in a bracket, to the last digits that brentq offers."""
    return float(brentq(function, a, b, xtol=1e-16, rtol=4 * np.finfo(float).eps))
