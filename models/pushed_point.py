"""A point that is pushed into a corner, along both walls and away again: a projected dynamical system.

The point follows the push f(tau) = (2 - tau, tau - 1) [m/s], turned by a clock tau' = 1, as far as a floor y >= 0 and a
wall x <= w let it: what would leave the set is projected away, orthogonally in the metric E, if one is given. From
(0, 3/8) it meets the floor (t = 1/2), slides to the corner (t = 4/5), stays there until the push turns up (t = 1),
climbs along the wall, and is released when the push turns back (t = 2). With another metric it may leave the floor as
soon as it meets the wall.

With the inverse M = E^-1 of the metric's part for (x, y): on the floor x' = f_x - M_xy / M_yy f_y, on the wall
y' = f_y - M_xy / M_xx f_x, and a multiplier is zero when the point is released. All motions are polynomials of degree
two in t, whatever the metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import casadi as ca
import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Arrow, Disc, Ground, Mark, Trail

Array = NDArray[np.float64]
PUSH = (Polynomial([2.0, -1.0]), Polynomial([-1.0, 1.0]))
START = (0.0, 0.375)
WALL = 1.28
NAMES = ("floor", "wall")
DRAWN = 0.02  # radius of the point in pictures [m], which lies in its corner
NORMALS = np.array([[0.0, 1.0], [-1.0, 0.0]])  # normals of floor and wall, into the set
LATE = 100.0  # no event after this [s]
SOON = 1e-5  # offset after an event [s]: at its time, signs do not determine how a tangential motion continues
ROUNDING = 1e-14  # tolerance of a gap; a gap that closes changes by SOON^2 at least [m]
NEGLIGIBLE = 1e-12  # tolerance of a gap, its rate or a multiplier


@dataclass(frozen=True, eq=False, kw_only=True)
class Piece:
    """Motion from `start` on with constant walls touched: positions as polynomials in t."""

    start: float
    touched: tuple[int, ...]
    position: tuple[Polynomial, Polynomial]


def build(metric: ArrayLike | None = None) -> ns.PDS:
    """Return the point as a system, with states x, y [m], tau [s] and constraints "floor" and "wall".

    Parameters
    ----------
    metric : (2, 2), optional
        Metric of the plane of x and y.
    """
    x = ca.SX.sym("x", 3)
    full = np.eye(3)
    full[:2, :2] = _metric(metric)
    return ns.PDS(
        x=x,
        flow=ca.vertcat(2.0 - x[2], x[2] - 1.0, 1.0),
        constraints=ca.vertcat(x[1], WALL - x[0]),
        constraint_names=NAMES,
        metric=full,
        names={"x": ["x", "y", "tau"]},
        units={"x": "m", "y": "m", "tau": "s"},
        scene=[
            Trail(x[:2]),
            Disc([x[0] - DRAWN, x[1] + DRAWN], DRAWN),
            Arrow([x[0] - DRAWN, x[1] + DRAWN], [2.0 - x[2], x[2] - 1.0], unit="m/s", label="push"),
            Ground(),
            Ground(point=[WALL, 0], normal=[-1, 0]),
            *(Mark(name, x[:2]) for name in NAMES),
        ],
    )


def motion(until: float, metric: ArrayLike | None = None) -> tuple[Piece, ...]:
    """Return the pieces of the motion that begin before `until` [s]; every event is a root of a polynomial."""
    inverse = np.asarray(np.linalg.inv(_metric(metric)), dtype=float)
    piece = Piece(start=0.0, touched=(), position=_moving((), inverse, 0.0, START))
    pieces = [piece]
    while True:
        at, touched = _next_event(piece, inverse)
        if at >= until:
            return tuple(pieces)
        here = tuple(float(p(at)) for p in piece.position)
        piece = Piece(start=at, touched=touched, position=_moving(touched, inverse, at, here))
        pieces.append(piece)


def exact(t: ArrayLike, metric: ArrayLike | None = None) -> Array:
    """Return the states (n, 3) at times (n,) [s]."""
    times = np.atleast_1d(np.asarray(t, dtype=float))
    pieces = motion(float(times.max()) + 1.0, metric)
    which = np.searchsorted([piece.start for piece in pieces], times, "right") - 1
    if (which < 0).any():
        raise ModelError(f"the closed form starts at t = 0; given t = {times.min()}.")
    return np.array([[*(p(s) for p in pieces[i].position), s] for i, s in zip(which, times, strict=True)])


def events(until: float, metric: ArrayLike | None = None) -> tuple[tuple[str, str, float], ...]:
    """Return kind ("contact" or "release"), constraint and time [s] of all events before `until`."""
    sequence = []
    pieces = motion(until, metric)
    for before, after in pairwise(pieces):
        for i in set(before.touched) ^ set(after.touched):
            sequence.append(("contact" if i in after.touched else "release", NAMES[i], after.start))
    return tuple(sequence)


def _metric(metric: ArrayLike | None) -> Array:
    return np.eye(2) if metric is None else np.asarray(metric, dtype=float)


def _multipliers(touched: tuple[int, ...], inverse: Array) -> tuple[Polynomial, ...]:
    """Solve N (f + M N' lambda) = 0 for the touched walls: lambda is affine in t."""
    if not touched:
        return ()
    normals = NORMALS[list(touched)]
    pushes = np.array([p.coef for p in PUSH])
    rows = -np.linalg.solve(normals @ inverse @ normals.T, normals @ pushes)
    return tuple(Polynomial(row) for row in rows)


def _velocity(touched: tuple[int, ...], inverse: Array) -> tuple[Polynomial, Polynomial]:
    directions = inverse @ NORMALS[list(touched)].T
    rates = list(PUSH)
    for column, multiplier in zip(directions.T, _multipliers(touched, inverse), strict=True):
        rates = [rate + float(part) * multiplier for rate, part in zip(rates, column, strict=True)]
    return rates[0], rates[1]


def _moving(
    touched: tuple[int, ...], inverse: Array, start: float, here: tuple[float, ...]
) -> tuple[Polynomial, Polynomial]:
    x, y = (rate.integ(lbnd=start) + value for rate, value in zip(_velocity(touched, inverse), here, strict=True))
    return x, y


def _next_event(piece: Piece, inverse: Array) -> tuple[float, tuple[int, ...]]:
    """Return the first zero of a multiplier (release) or of a gap (contact), and the walls touched afterwards."""
    gaps = _gaps(piece.position)
    forces = dict(zip(piece.touched, _multipliers(piece.touched, inverse), strict=True))
    at = min(_first_fall(forces.get(i, gaps[i]), piece.start) for i in range(len(NAMES)))
    if at == LATE:
        return LATE, piece.touched
    here = tuple(float(p(at)) for p in piece.position)
    return at, _touched_after(at, here, inverse)


def _touched_after(at: float, here: tuple[float, ...], inverse: Array) -> tuple[int, ...]:
    """Return the set of walls whose motion stays feasible with nonnegative multipliers just after `at`."""
    soon = at + SOON
    for touched in ((), (0,), (1,), (0, 1)):
        gaps = _gaps(_moving(touched, inverse, at, here))
        forces = _multipliers(touched, inverse)
        closed = [i for i, gap in enumerate(gaps) if abs(gap(at)) < NEGLIGIBLE]
        stays = all(gaps[i](soon) - gaps[i](at) > -ROUNDING for i in closed)
        if set(touched) <= set(closed) and stays and all(force(soon) > 0.0 for force in forces):
            return touched
    raise ModelError(f"no motion goes on from {here} at t = {at}.")  # the projection always has one


def _gaps(position: tuple[Polynomial, Polynomial]) -> tuple[Polynomial, Polynomial]:
    return position[1], WALL - position[0]


def _first_fall(watched: Polynomial, start: float) -> float:
    """Return the first time not before `start` at which a quantity would become negative."""
    roots = watched.trim(NEGLIGIBLE).roots()
    for at in np.sort(roots[np.abs(np.imag(roots)) < NEGLIGIBLE].real):
        if at > start + NEGLIGIBLE and watched.deriv()(at) < -NEGLIGIBLE:
            return float(at)
    return LATE
