"""Linear plants under relay feedback: limit cycles with and without sliding, and a relay with hysteresis.

x' = A x + B u, y = C x, u = -sign(y), with the transfer function G(s) = (s - z)^2 / (s + 1)^3, or 1 / (s + 1)^3 without
zeros: third-order plants of the kind that the literature on relay feedback studies for their self-oscillations.

- Without zeros C B = 0: no sliding. The limit cycle is symmetric, x(t + h) = -x(t), and its half period h solves
  C (I + e^(A h))^-1 (e^(A h) - I) A^-1 B = 0, one scalar equation (period 2 h = 2 pi / sqrt(3) roughly).
- With zeros at z > 0 C B = 1: y = 0 is attractive where |C A x| < C B, and the motion slides there with
  u = -C A x / (C B). The sliding motion is unstable (its eigenvalues are the zeros), so it leaves at |C A x| = C B,
  swings out and comes back: every half period of the limit cycle consists of one swing and one slide.

Both cycles are computed with matrix exponentials and a root finder; nothing is integrated.

The relay with hysteresis of width 2 d is a Filippov system with an additional state w, the relay's position, which two
regions pull to -1 and +1: w' = (s - w) / tau, s in sign(y + d w). With the plant y' = -y - k w it oscillates for
k > d; as tau goes to zero the period tends to 2 ln((k + d) / (k - d)), that of the ideal relay with hysteresis.
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.optimize import brentq, root

import nosnoc_py as ns
from nosnoc_py.errors import ModelError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Plant:
    """x' = A x + B u, y = C x, in observer form: C = (1, 0, 0)."""

    name: str
    A: Array
    B: Array

    @property
    def sliding_matrix(self) -> Array:
        """A - B C A / (C B): the motion on y = 0; needs C B > 0."""
        return self.A - np.outer(self.B, self.A[0]) / self.B[0]

    def swing(self, x: Array, u: float, t: float) -> Array:
        """Return the state after the time t with constant u."""
        equilibrium = -np.linalg.solve(self.A, self.B * u)
        return np.asarray(expm(self.A * t) @ (x - equilibrium) + equilibrium)

    def slide(self, x: Array, t: float) -> Array:
        """Return the state after the time t on y = 0."""
        return np.asarray(expm(self.sliding_matrix * t) @ x)


def _plant(name: str, numerator: tuple[float, float, float]) -> Plant:
    """Return the plant with this numerator over (s + 1)^3, highest power first."""
    return Plant(name=name, A=np.array([[-3.0, 1.0, 0.0], [-3.0, 0.0, 1.0], [-1.0, 0.0, 0.0]]), B=np.array(numerator))


LAG = _plant("lag", (0.0, 0.0, 1.0))
ZERO = 0.5
SLIDING = _plant("sliding", (1.0, -2.0 * ZERO, ZERO**2))
PLANTS = {plant.name: plant for plant in (LAG, SLIDING)}


@dataclass(frozen=True, eq=False, kw_only=True)
class Cycle:
    """Symmetric limit cycle: x after swing and slide is minus the start.

    Parameters
    ----------
    plant : Plant
    start : (3,)
        State at which y becomes positive.
    swing, slide : float
        Durations [s].
    """

    plant: Plant
    start: Array
    swing: float
    slide: float = 0.0

    @property
    def period(self) -> float:
        """Period of the whole cycle [s]."""
        return 2.0 * (self.swing + self.slide)

    def switch_times(self, until: float) -> tuple[tuple[str, float], ...]:
        """Return kind ("switch", "enter_sliding", "leave_sliding") and time [s] of the events in (0, until)."""
        half, switches = 0.5 * self.period, []
        for k in range(int(np.ceil(until / half)) + 1):
            if self.slide:
                switches += [("enter_sliding", k * half + self.swing), ("leave_sliding", (k + 1) * half)]
            else:
                switches.append(("switch", (k + 1) * half))
        return tuple((kind, at) for kind, at in switches if at < until)

    def __call__(self, t: float) -> Array:
        """Return the state (3,) at the time t >= 0."""
        halves, s = divmod(t, 0.5 * self.period)
        swung = self.plant.swing(self.start, -1.0, min(s, self.swing))
        state = swung if s <= self.swing else self.plant.slide(swung, s - self.swing)
        return np.asarray((-1.0) ** halves * state)


def build(plant: Plant = SLIDING) -> ns.PSS:
    """Return the plant with its relay: states x_1, x_2, x_3 and a partition "relay", y < 0 first."""
    x = ca.SX.sym("x", 3)
    relay = ns.Modes("relay", flows=[ca.DM(plant.B), ca.DM(-plant.B)], functions=x[0], signs=[[-1], [1]])
    return ns.PSS(x=x, flow=ca.DM(plant.A) @ x, modes=relay, names={"x": ["x_1", "x_2", "x_3"]})


def limit_cycle(plant: Plant = SLIDING) -> Cycle:
    """Return the symmetric limit cycle of a plant; raise `ModelError` if the root finder finds none."""
    return _sliding_cycle(plant) if plant.B[0] > 0.0 else _switching_cycle(plant)


def _switching_cycle(plant: Plant) -> Cycle:
    """Solve -x = e^(A h) (x - x_e) + x_e with C x = 0, for u = -1."""
    equilibrium = np.linalg.solve(plant.A, plant.B)

    def start(half: float) -> Array:
        e = expm(plant.A * half)
        return np.asarray(np.linalg.solve(np.eye(3) + e, (e - np.eye(3)) @ equilibrium))

    half = brentq(lambda h: start(h)[0], 0.5, 10.0, xtol=1e-15, rtol=1e-15)
    return Cycle(plant=plant, start=start(half), swing=float(half))


def _sliding_cycle(plant: Plant) -> Cycle:
    """Solve for the cycle: from y = 0, C A x = C B swing to y = 0, then slide to C A x = -C B, at minus the start."""

    def start(third: float) -> Array:
        return np.array([0.0, plant.B[0], third])

    def open_ends(unknown: Array) -> Array:
        third, swing, slide = unknown
        entered = plant.swing(start(third), -1.0, swing)
        return np.array([entered[0], *(plant.slide(entered, slide) + start(third))[1:]])

    for guess in ((third, swing, slide) for third in (0.0, 1.0, -1.0) for swing in (2.0, 4.0) for slide in (1.0, 3.0)):
        solution = root(open_ends, guess, tol=1e-14)
        if np.abs(open_ends(solution.x)).max() < 1e-11 and min(solution.x[1:]) > 1e-3:
            third, swing, slide = (float(value) for value in solution.x)
            return Cycle(plant=plant, start=start(third), swing=swing, slide=slide)
    raise ModelError(f"no symmetric limit cycle with sliding was found for the plant {plant.name!r}.")


@dataclass(frozen=True, kw_only=True)
class Hysteresis:
    """Half width d of the relay, gain k of the plant, time tau in which the relay moves [s].

    Raises
    ------
    ModelError
        Unless 0 < d < k and tau > 0.
    """

    width: float = 0.5
    gain: float = 2.0
    lag: float = 0.02

    def __post_init__(self) -> None:
        if not 0.0 < self.width < self.gain or not self.lag > 0.0 or self.lag == 1.0:
            raise ModelError(f"the relay with hysteresis needs 0 < width < gain and a lag > 0, not 1; given {self}.")

    @property
    def ideal_period(self) -> float:
        """Period of the relay without lag [s]."""
        return 2.0 * float(np.log((self.gain + self.width) / (self.gain - self.width)))

    def after(self, state: Array, side: float, t: float) -> Array:
        """Return the state (y, w) after the time t with s = side, in closed form."""
        y, w = state
        k, tau = self.gain, self.lag
        fast = -k * (w - side) / (1.0 - 1.0 / tau)  # y = -k side + slow e^-t + fast e^(-t/tau)
        slow = y + k * side - fast
        return np.array([-k * side + slow * np.exp(-t) + fast * np.exp(-t / tau), side + (w - side) * np.exp(-t / tau)])

    def cycle(self) -> tuple[Array, float]:
        """Return the state in which the relay begins to move to +1, and the period [s].

        The half period h and the state satisfy: y + d w = 0 at the start, and minus the start after h.
        """

        def open_ends(unknown: Array) -> Array:
            start, half = np.array([-self.width * unknown[0], unknown[0]]), unknown[1]
            return np.asarray(self.after(start, 1.0, half) + start)

        solution = root(open_ends, [-1.0, 0.5 * self.ideal_period + self.lag], tol=1e-14)
        if np.abs(open_ends(solution.x)).max() > 1e-11:
            raise ModelError(f"no limit cycle was found for {self}.")
        return np.array([-self.width * solution.x[0], solution.x[0]]), 2.0 * float(solution.x[1])


def build_hysteresis(constants: Hysteresis) -> ns.PSS:
    """Return the plant y' = -y - k w with the relay's position w, and a partition "relay": to -1 first."""
    x = ca.SX.sym("x", 2)
    common = ca.vertcat(-x[0] - constants.gain * x[1], -x[1] / constants.lag)
    pull = 1.0 / constants.lag
    relay = ns.Modes(
        "relay",
        flows=[[0.0, -pull], [0.0, pull]],
        functions=x[0] + constants.width * x[1],
        signs=[[-1], [1]],
    )
    return ns.PSS(x=x, flow=common, modes=relay, names={"x": ["y", "w"]})
