"""What is known of the optimal control of two discs, by reduced costs and by a program with a phase per collision.

Until disc 1 hits disc 2 at time s, with velocity v' and the normal n from disc 1 to disc 2, it moves freely; afterwards
no force is of use, u = 0. Disc 2 leaves with v = k (v'.n) n, k = m_1 (1 + e) / (m_1 + m_2), and ends at q_2 + (T - s) v
or, if it hits the wall y = b in between, where that point lies in the mirror (y -> (1 + e)(b - r_2) - e y). So the
terminal cost is quadratic in v', and a force has to be found that takes disc 1 by d = q_2 - q_1 - (r_1 + r_2) n and to
v' in the time s (hybrid minimum principle, Eqs. 46 to 50, with 1 / m_1 where the paper has m_1 = 1).

- "energy": the best force is linear in time (Eq. 48), the best v' for given s and n follows from a linear equation
  (Eq. 50), and a function of s and the angle of n is left. Some of its minima mean nothing: those with v'.n <= 0, where
  disc 1 hits from inside of disc 2.
- "length": the multiplier of v_1 is linear in time and at s parallel to n (the terminal cost depends on v' through v'.n
  alone), so where it exceeds m_1 epsilon the force is u = u_M a / |a| with a = n + (s - t) rho. With s, n, v' and d
  given the problem is convex: where the multiplier exceeds m_1 epsilon all the way, no arc without thrust is better.
  Left are s, the angle of n and rho, with two equations: the discs touch at s.

`multi_phase` knows nothing of all this: it discretises any OCP with frictionless collisions, one polynomial per phase.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

from nosnoc_py.errors import ModelError
from problems.two_discs import HORIZON, RADII, Experiment, data
from tests.references.multi_phase import IPOPT, QUIET, gauss, vector

Array = NDArray[np.float64]
Law = Callable[[Array], Array]

REACH = sum(RADII)  # distance of the centres at the collision [m]
ABSCISSAE = 40  # of Gauss quadrature in one phase: exact to rounding
NEWTON = 50  # steps; from where they start five are enough
START_TIMES, START_ANGLES = (0.3, 0.5, 0.7), tuple(np.linspace(0.0, 2.0 * np.pi, 9)[:-1])  # of the length


@dataclass(frozen=True, eq=False, kw_only=True)
class Optimum:
    """A point where a reduced cost is stationary, and the motion it stands for.

    Attributes
    ----------
    experiment : Experiment
    masses : two floats
    restitution : float
    objective : float
    times : tuple of float
        Of the collisions [s], in order.
    contacts : tuple of str
        What collides then.
    normal, velocity : (2,)
        n, from disc 1 to disc 2, and v', the velocity of disc 1 just before it hits disc 2 [m/s].
    law : function (n,) -> (n, 2)
        Control until the collision of the discs [N].
    multiplier : function (n,) -> (n, 2)
        Multiplier of v_1 until then, with the sign of the Hamiltonian lambda'f + L; after it, it is zero.
    """

    experiment: Experiment
    masses: tuple[float, float]
    restitution: float
    objective: float
    times: tuple[float, ...]
    contacts: tuple[str, ...]
    normal: Array
    velocity: Array
    law: Law
    multiplier: Law

    def control(self, t: ArrayLike) -> Array:
        """The control at times t, (n,) -> (n, 2) [N]; zero from the collision of the discs on."""
        t = np.atleast_1d(np.asarray(t, dtype=float))
        before = (t < self.times[0])[:, None]
        return np.where(before, self.law(np.minimum(t, self.times[0])), 0.0)

    def state(self, t: ArrayLike) -> Array:
        """The state at times t, (n,) -> (n, 8); right limits at the collisions."""
        t = np.atleast_1d(np.asarray(t, dtype=float))
        driven = self._driven(np.minimum(t, self.times[0]))
        return np.where((t < self.times[0])[:, None], driven, self._coasting(t))

    @property
    def final_state(self) -> Array:
        """State at T (8,)."""
        return self.state(HORIZON)[0]

    @property
    def approach(self) -> float:
        """v'.n [m/s]: the speed with which disc 1 comes nearer to disc 2."""
        return float(self.velocity @ self.normal)

    @property
    def valid(self) -> bool:
        """Whether the discs meet from outside, nothing else collides, and the law is what its multiplier asks for."""
        ordered = [0.0, *self.times, HORIZON]
        if self.approach <= 0.0 or ordered != sorted(ordered) or not self._thrusts():
            return False
        state = self.state(np.linspace(0.0, HORIZON, 2001))
        gaps = [np.hypot(state[:, 2] - state[:, 0], state[:, 3] - state[:, 1]) - REACH]
        if self.experiment.wall is not None:
            gaps += [self.experiment.wall - state[:, 2 * disc + 1] - RADII[disc] for disc in (0, 1)]
        return bool(np.min(gaps) > -1e-9)

    def _thrusts(self) -> bool:
        """|u| is worth its price (Eq. 35) at all times before the collision; |u|^2 always is."""
        if self.experiment.cost == "energy":
            return True
        t = np.linspace(0.0, self.times[0], 501)
        worth = -np.sum(self.multiplier(t) * self.law(t), axis=1) / np.linalg.norm(self.law(t), axis=1)
        return bool(worth.min() >= self.masses[0] * self.experiment.epsilon)

    def _driven(self, t: Array) -> Array:
        """Before the collision: v_1 = int u / m_1, q_1 = q_1(0) + int (t - r) u(r) / m_1 dr."""
        nodes, weights = gauss(ABSCISSAE)
        past = np.multiply.outer(t, nodes)
        u = self.law(past.ravel()).reshape(*past.shape, 2) / self.masses[0]
        velocity = t[:, None] * np.einsum("k,nkj->nj", weights, u)
        path = t[:, None] * np.einsum("nk,nkj->nj", weights * (t[:, None] - past), u)
        start = np.array(self.experiment.start)
        rest = np.zeros_like(path)
        return np.hstack([start[:2] + path, start[2:] + rest, velocity, rest])

    def _coasting(self, t: Array) -> Array:
        """After the collision: both discs move uniformly, disc 2 back from the wall."""
        m_1, m_2 = self.masses
        impulse = m_1 * m_2 / (m_1 + m_2) * (1.0 + self.restitution) * self.approach * self.normal
        v_1, v_2 = self.velocity - impulse / m_1, impulse / m_2
        since, start = (t - self.times[0])[:, None], np.array(self.experiment.start)
        q_1, q_2 = start[2:] - REACH * self.normal + since * v_1, start[2:] + since * v_2
        v_1, v_2 = np.broadcast_to(v_1, q_1.shape), np.broadcast_to(v_2, q_2.shape).copy()
        if len(self.times) > 1:
            mirror, offset = _mirror(self.experiment, self.restitution)
            back = (t >= self.times[1])[:, None]
            q_2, v_2 = np.where(back, q_2 * mirror + offset, q_2), np.where(back, v_2 * mirror, v_2)
        return np.hstack([q_1, q_2, v_1, v_2])


def optimum(experiment: str, masses: tuple[float, float] = (1.0, 1.0), restitution: float = 1.0) -> Optimum:
    """The best control that makes the discs collide once and, if there is a wall, disc 2 hit it once.

    Raises
    ------
    OptionError
        If the experiment is unknown.
    ModelError
        If no stationary point of the reduced cost is a motion.
    """
    for found in stationary_points(experiment, masses, restitution):
        if found.valid:
            return found
    raise ModelError(f"{experiment}: no such optimum with masses={masses}, restitution={restitution}.")


def stationary_points(
    experiment: str, masses: tuple[float, float] = (1.0, 1.0), restitution: float = 1.0
) -> tuple[Optimum, ...]:
    """All minima of the reduced cost, the least first, whether they are motions or not."""
    reduced = _Reduced(experiment=data(experiment), masses=masses, restitution=restitution)
    if reduced.experiment.cost == "length":
        found = _lengths(reduced)
    else:
        found = [_energy(reduced, z) for z in _minima(reduced.energy())]
    return tuple(sorted(found, key=lambda one: one.objective))


# Reduced costs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Reduced:
    """Costs as functions of few numbers."""

    experiment: Experiment
    masses: tuple[float, float]
    restitution: float

    @property
    def transfer(self) -> float:
        """k: what disc 2 gets of the speed of approach."""
        m_1, m_2 = self.masses
        return m_1 * (1.0 + self.restitution) / (m_1 + m_2)

    def end(self, speed: Any, n: Any, s: Any) -> tuple[Any, Any]:
        """q_2(T) for v'.n = speed, and its derivative by that speed."""
        mirror, offset = _mirror(self.experiment, self.restitution)
        slope = self.transfer * (HORIZON - s) * ca.DM(mirror) * n
        return ca.DM(mirror * self.experiment.start[2:] + offset) + slope * speed, slope

    def way(self, n: Any) -> Any:
        """d, the way of disc 1 until the collision."""
        start = ca.DM(self.experiment.start)
        return start[2:] - start[:2] - REACH * n

    def energy(self) -> ca.Function:
        """(s, angle) -> the derivatives of J of first and second order, J, v', n, d (Eqs. 49, 50)."""
        z = ca.SX.sym("z", 2)
        s, n = z[0], ca.vertcat(ca.cos(z[1]), ca.sin(z[1]))
        across, d, weight = ca.vertcat(-n[1], n[0]), self.way(n), self.experiment.epsilon * self.masses[0] ** 2
        miss, slope = self.end(0.0, n, s)
        speed = 6.0 * weight * ca.dot(d, n) / s**2 - ca.dot(slope, miss)
        speed /= ca.sumsqr(slope) + 4.0 * weight / s
        v = speed * n + 1.5 * ca.dot(d, across) / s * across
        effort = 12.0 / s**3 * ca.sumsqr(d) + 4.0 / s * ca.sumsqr(v) - 12.0 / s**2 * ca.dot(v, d)
        cost = ca.sumsqr(miss + slope * speed) + weight * effort
        hessian, gradient = ca.hessian(cost, z)
        return ca.Function("energy", [z], [gradient, hessian, cost, v, n, d])

    def length(self) -> tuple[dict[str, Any], ca.Function]:
        """Over (s, angle, rho): the program with "the discs touch", and its KKT system.

        The latter maps (s, angle, rho, 2 multipliers) to the Lagrangian's derivatives of first and second order, J, v',
        n, and the multiplier of v'.n.
        """
        z, eta = ca.SX.sym("z", 4), ca.SX.sym("eta", 2)
        s, n, rho = z[0], ca.vertcat(ca.cos(z[1]), ca.sin(z[1])), z[2:]
        bound = self.experiment.bound or np.inf
        v, d = ca.SX(2, 1), ca.SX(2, 1)
        for node, weight in zip(*gauss(ABSCISSAE), strict=True):
            left = s * (1.0 - node)
            ahead = n + left * rho
            push = s * weight * bound / self.masses[0] * ahead / ca.norm_2(ahead)
            v, d = v + push, d + left * push
        end, slope = self.end(ca.dot(v, n), n, s)
        cost = ca.sumsqr(end) + self.experiment.epsilon * bound * s
        touch = d - self.way(n)
        hessian, gradient = ca.hessian(cost + ca.dot(eta, touch), ca.vertcat(z, eta))
        outputs = [gradient, hessian, cost, v, n, 2.0 * ca.dot(end, slope)]
        return {"x": z, "f": cost, "g": touch}, ca.Function("length", [ca.vertcat(z, eta)], outputs)


def _energy(reduced: _Reduced, z: Array) -> Optimum:
    _, _, cost, v, n, d = (vector(value) for value in reduced.energy()(z))
    s, mass = z[0], reduced.masses[0]
    first, slope = mass * (6.0 * d / s**2 - 2.0 * v / s), mass * (6.0 * v / s**2 - 12.0 * d / s**3)

    def law(t: Array) -> Array:
        return first + np.multiply.outer(t, slope)

    weight = 2.0 * mass * reduced.experiment.epsilon
    return _optimum(reduced, cost.item(), s, n, v, law, lambda t: -weight * law(t))


def _lengths(reduced: _Reduced) -> list[Optimum]:
    """Stationary points from several starts: IPOPT comes near, Newton's method on the KKT system does the rest."""
    program, system = reduced.length()
    solver = ca.nlpsol("length", "ipopt", program, {**QUIET, "ipopt": IPOPT})
    limits = {"lbx": [0.01, -ca.inf, -ca.inf, -ca.inf], "ubx": [HORIZON, *[ca.inf] * 3], "lbg": 0.0, "ubg": 0.0}
    found: dict[float, Optimum] = {}
    for s, angle in product(START_TIMES, START_ANGLES):
        near = solver(x0=[s, angle, 0.0, 0.0], **limits)
        if solver.stats()["success"]:
            z = _newton(system, np.append(vector(near["x"]), vector(near["lam_g"])))
            if float(ca.norm_inf(system(z)[0])) < 1e-9:
                one = _length(reduced, z, system)
                found.setdefault(round(one.objective, 9), one)
    return list(found.values())


def _length(reduced: _Reduced, z: Array, system: ca.Function) -> Optimum:
    _, _, cost, v, n, weight = (vector(value) for value in system(z))
    s, rho, bound = z[0], z[2:4], reduced.experiment.bound or np.inf

    def ahead(t: Array) -> Array:
        return n + np.multiply.outer(s - t, rho)

    def law(t: Array) -> Array:
        return bound * ahead(t) / np.linalg.norm(ahead(t), axis=1)[:, None]

    return _optimum(reduced, cost.item(), s, n, v, law, lambda t: weight * ahead(t))


def _optimum(reduced: _Reduced, cost: float, s: float, n: Array, v: Array, law: Law, multiplier: Law) -> Optimum:
    times: tuple[float, ...] = (float(s),)
    contacts: tuple[str, ...] = ("discs",)
    wall = reduced.experiment.wall
    if wall is not None:
        speed = reduced.transfer * float(v @ n) * n[1]
        hit = s + (wall - RADII[1] - reduced.experiment.start[3]) / speed
        times, contacts = (*times, float(hit)), (*contacts, "wall_2")
    return Optimum(
        experiment=reduced.experiment,
        masses=reduced.masses,
        restitution=reduced.restitution,
        objective=cost,
        times=times,
        contacts=contacts,
        normal=n,
        velocity=v,
        law=law,
        multiplier=multiplier,
    )


def _mirror(experiment: Experiment, restitution: float) -> tuple[Array, Array]:
    """Where the wall sends a point behind it: factors of its coordinates (2,) and what is added (2,)."""
    if experiment.wall is None:
        return np.ones(2), np.zeros(2)
    height = (1.0 + restitution) * (experiment.wall - RADII[1])
    return np.array([1.0, -restitution]), np.array([0.0, height])


def _minima(function: ca.Function) -> list[Array]:
    """All local minima over 0 < s < T and all angles: the low cells of a grid, each sharpened by Newton's method."""
    times, angles = np.linspace(0.0, HORIZON, 101)[1:-1], np.linspace(0.0, 2.0 * np.pi, 181)[:-1]
    grid = np.array(np.meshgrid(times, angles, indexing="ij"))
    cost = np.array(function.map(times.size * angles.size)(grid.reshape(2, -1))[2]).reshape(times.size, angles.size)
    closed = np.pad(cost, ((1, 1), (0, 0)), constant_values=-np.inf)  # nothing is low at the ends of the time
    around = [np.roll(rows, shift, 1) for rows in (closed[:-2], cost, closed[2:]) for shift in (-1, 0, 1)]
    found: list[Array] = []
    for start in grid[:, cost <= np.min(around, axis=0)].T:
        z = _newton(function, start)
        if not any(np.allclose(z, other, rtol=0.0, atol=1e-9) for other in found):
            found.append(z)
    return found


def _newton(function: ca.Function, z: Array) -> Array:
    """Solve gradient = 0 for a function that returns gradient and Hessian first."""
    for _ in range(NEWTON):
        gradient, hessian = function(z)[:2]
        step = np.linalg.solve(np.array(hessian), vector(gradient))
        z = z - step
        if np.max(np.abs(step)) < 1e-14:
            break
    return z


# Distance of controls ------------------------------------------------------------------------------------------------


def semi_norm(error: ArrayLike, t: ArrayLike, times: Sequence[float], omega: float = 0.05 * HORIZON) -> float:
    """Root of the mean square of an error apart from the collisions (Eqs. 32, 33).

    For controls that are constant in N equal intervals and compared at their left ends; an interval counts where its
    left end is farther than omega from all collisions. (With N = 480 this is 0.03 % more than with parts of intervals.)

    Parameters
    ----------
    error : (N,) or (N, n)
        Difference of two controls at the times t.
    t : (N,)
        Left ends of equal intervals, from 0 [s].
    times : sequence of float
        Of the M collisions [s].
    omega : float
        Half of the width of what is left out around each of them [s]; the sum is divided by T - 2 M omega.
    """
    error, t = np.asarray(error, dtype=float), np.asarray(t, dtype=float)
    step = (t[-1] - t[0]) / (t.size - 1)
    apart = np.abs(t[:, None] - np.asarray(times, dtype=float)).min(axis=1, initial=np.inf) > omega
    total = step * np.sum(error[apart] ** 2)
    return float(np.sqrt(total / (step * t.size - 2.0 * len(times) * omega)))
