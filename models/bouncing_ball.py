"""A ball that falls on the ground: the smallest system with impacts, with a closed form.

The introductory example of state jumps (FESD-J, Section 2, with one degree of freedom, no friction):
m h'' = -m g + lambda, 0 <= lambda, h >= 0, lambda h = 0, and h'(t+) = -e h'(t-) at an impact. For 0 < e < 1 the
impacts accumulate at a finite (Zeno) time, after which the ball rests.

With w the speed of the first impact, at t_1, the ball leaves its k-th impact with the speed e^k w and flies for
2 e^k w / g. Hence t_k = t_1 + (2 w / g)(e + e^2 + ... + e^(k-1)).
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Disc, Ground, Mark

Array = NDArray[np.float64]
DRAWN = 0.1  # radius of the ball in pictures [m]; its height is that of its lowest point


def build(restitution: float = 0.9, gravity: float = 9.81, mass: float = 1.0) -> ns.CLS:
    """Return the ball as a system.

    Parameters
    ----------
    restitution : float
        Newton's coefficient e of the contact "ground", in [0, 1].
    gravity : float
        Gravitational acceleration [m/s^2].
    mass : float
        Mass of the ball [kg].

    Returns
    -------
    ns.CLS
        States height [m], velocity [m/s]; no controls.
    """
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    return ns.CLS(
        q=q,
        v=v,
        mass_matrix=ca.DM(mass),
        force=ca.SX(-mass * gravity),
        contacts=[ns.Contact("ground", gap=q, restitution=restitution)],
        names={"q": ["height"], "v": ["velocity"]},
        units={"height": "m", "velocity": "m/s"},
        scene=[Disc([0, q + DRAWN], DRAWN), Ground(), Mark("ground", [0, 0])],
    )


def exact(
    t: ArrayLike, restitution: float = 0.9, height: float = 1.0, velocity: float = 0.0, gravity: float = 9.81
) -> Array:
    """Return the motion from (height, velocity) at t = 0, in closed form.

    Parameters
    ----------
    t : array_like, shape (n,)
        Times, not before 0 [s]. At the time of an impact the right limit is returned.
    restitution, gravity : float
        As in `build`; the mass does not matter.
    height, velocity : float
        State at t = 0 [m], [m/s].

    Returns
    -------
    array, shape (n, 2)
        Height and velocity; zeros from the Zeno time on (for e = 0: from the only impact on).

    Raises
    ------
    ModelError
        If the restitution is outside [0, 1], gravity not positive, the height or a time negative.
    """
    t = np.atleast_1d(np.asarray(t, dtype=float))
    if np.any(t < 0):
        raise ModelError(f"the closed form starts at t = 0; given t = {t.min()}.")
    bounces = _bounces(restitution, height, velocity, gravity)
    falling = t < bounces.first
    flying = ~falling & (t < bounces.zeno)
    x = np.zeros((t.size, 2))
    x[falling] = _parabola(t[falling], height, velocity, gravity)
    impacts = bounces.count(t[flying])
    launch = bounces.speed * np.power(restitution, impacts)
    x[flying] = _parabola(t[flying] - bounces.time(impacts), 0.0, launch, gravity)
    return x


def impact_times(
    restitution: float = 0.9,
    count: int | None = None,
    *,
    until: float | None = None,
    height: float = 1.0,
    velocity: float = 0.0,
    gravity: float = 9.81,
) -> Array:
    """Return the times of the first `count` impacts, or of all impacts up to and including the time `until`.

    Parameters
    ----------
    restitution, height, velocity, gravity : float
        As in `exact`.
    count : int, optional
        Number of impacts.
    until : float, optional
        Last time [s].

    Returns
    -------
    array, shape (k,)
        Ascending times [s]. At most one for e = 0, none for a ball at rest on the ground.

    Raises
    ------
    ModelError
        Unless exactly one of `count` and `until` is given, if `until` is not before the Zeno time (there are
        infinitely many impacts before it), and as in `exact`.
    """
    if (count is None) == (until is None):
        raise ModelError(f"give either count or until; given count={count!r}, until={until!r}.")
    bounces = _bounces(restitution, height, velocity, gravity)
    if bounces.speed == 0.0:
        count = 0
    elif until is not None:
        count = bounces.count_until(until)
    elif count is not None and restitution == 0.0:
        count = min(count, 1)
    return bounces.time(np.arange(1, (count or 0) + 1))


@dataclass(frozen=True)
class _Bounces:
    """The sequence of impacts: `first` is the time [s] and `speed` the speed [m/s] of the first one."""

    first: float
    speed: float
    restitution: float
    gravity: float

    @property
    def zeno(self) -> float:
        """Time from which on the ball rests; infinite for e = 1."""
        return float(self.time(np.inf)) if self.speed > 0.0 else self.first

    def time(self, index: ArrayLike) -> Array:
        """Return the times of the impacts with these indices, counted from 1."""
        flights = np.asarray(index, dtype=float) - 1.0
        e = self.restitution
        if e == 1.0:
            total = flights
        elif e == 0.0:
            total = np.zeros_like(flights)
        else:  # e + e^2 + ... + e^flights; expm1 keeps it accurate for e close to 1
            total = -np.expm1(flights * np.log(e)) * e / (1.0 - e)
        return np.asarray(self.first + 2.0 * self.speed / self.gravity * total)

    def count(self, t: Array) -> NDArray[np.int64]:
        """Return the number of impacts in [0, t] for times from the first impact to before the Zeno time."""
        total, e = (t - self.first) * self.gravity / (2.0 * self.speed), self.restitution
        if 0.0 < e < 1.0:  # invert the geometric sum
            total = np.log(np.maximum(1.0 - total * (1.0 - e) / e, 1e-300)) / np.log(e)
        guess = 1 + np.floor(total).astype(np.int64)
        # At an impact rounding may make the inverse wrong by one: compare with the impact times themselves.
        candidates = np.stack([guess + 1, guess, np.maximum(guess - 1, 1)])
        happened = self.time(candidates) <= t
        counts: NDArray[np.int64] = candidates[happened.argmax(axis=0), np.arange(t.size)]
        return counts

    def count_until(self, until: float) -> int:
        """Return the number of impacts in [0, until], for a ball that is not at rest."""
        if until < self.first:
            return 0
        if self.restitution == 0.0:
            return 1
        if until >= self.zeno:
            raise ModelError(f"infinitely many impacts until {until}: they accumulate at {self.zeno:.9g}; give count.")
        return int(self.count(np.array([until]))[0])


def _bounces(restitution: float, height: float, velocity: float, gravity: float) -> _Bounces:
    """Check the arguments and compute the first impact."""
    if not 0.0 <= restitution <= 1.0 or not gravity > 0.0 or not height >= 0.0:
        raise ModelError(
            "the closed form needs 0 <= restitution <= 1, gravity > 0, height >= 0; "
            f"given {restitution}, {gravity}, {height}."
        )
    speed = float(np.hypot(velocity, np.sqrt(2.0 * gravity * height)))
    if velocity < 0.0:  # the same root of the parabola, without cancellation
        return _Bounces(2.0 * height / (speed - velocity), speed, restitution, gravity)
    return _Bounces((velocity + speed) / gravity, speed, restitution, gravity)


def _parabola(s: Array, height: float, velocity: float | Array, gravity: float) -> Array:
    """Return the states (n, 2) of the free fall at times s."""
    heights = np.maximum(height + velocity * s - 0.5 * gravity * s**2, 0.0)  # rounding may give less than 0
    return np.column_stack([heights, velocity - gravity * s])
