"""Plates on springs by DOP853 with events, and how other programs compress a spring.

The reference knows nothing of event-selected systems: it integrates with frozen contacts, looks at all compressions
on the dense output of every step, short touches included, and starts anew at the first root. `Geometry` says how a
spring is compressed:

- vertical: the springs of `models.plate_on_springs`, whose tops slide up and down;
- normal: soft contact with points at the heights of the springs, compressed along the normal of the plate (what a
  physics engine makes of compliant contacts);
- linear: h = L_0 - z - theta x_i (what a linear combination of joint coordinates can say).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import DOP853
from scipy.optimize import brentq

from models.plate_on_springs import Constants

Array = NDArray[np.float64]
Geometry = Callable[[Array, Constants], tuple[Array, Array]]  # configuration (3,) -> h (n,), D h (n, 3)

TOLERANCE = 1e-12
SAMPLES = np.linspace(0.0, 1.0, 9)[1:]  # of a step, where crossings are looked for


@dataclass(frozen=True, eq=False, kw_only=True)
class Reference:
    """A motion.

    Parameters
    ----------
    x : (6,)
        State at the end.
    events : tuple of (time [s], spring, 1 at touchdown or 0 at lift-off)
    slowest : float
        Smallest speed |D h f| of a crossing [m/s]: towards zero it grazes, and small errors grow.
    """

    x: Array
    events: tuple[tuple[float, int, int], ...]
    slowest: float


def vertical(q: Array, constants: Constants) -> tuple[Array, Array]:
    """Compression along the vertical line of the spring."""
    lever, tangent = q[0] - constants.positions, np.tan(q[2])
    ones = np.ones(constants.contacts)
    jacobian = np.column_stack([tangent * ones, -ones, lever / np.cos(q[2]) ** 2])
    return constants.length + tangent * lever - q[1], jacobian


def normal(q: Array, constants: Constants) -> tuple[Array, Array]:
    """Compression along the normal of the plate."""
    lever, drop, sine, cosine = q[0] - constants.positions, constants.length - q[1], np.sin(q[2]), np.cos(q[2])
    ones = np.ones(constants.contacts)
    jacobian = np.column_stack([sine * ones, -cosine * ones, cosine * lever - sine * drop])
    return sine * lever + cosine * drop, jacobian


def linear(q: Array, constants: Constants) -> tuple[Array, Array]:
    """Compression to first order in the angle, without a sideways motion."""
    ones = np.ones(constants.contacts)
    jacobian = np.column_stack([0.0 * ones, -ones, -constants.positions])
    return constants.length - q[1] - q[2] * constants.positions, jacobian


def reference(
    x0: Array,
    constants: Constants,
    duration: float,
    *,
    geometry: Geometry = vertical,
    pulls: bool = True,
    tolerance: float = TOLERANCE,
) -> Reference:
    """Integrate from a state (6,) above the springs; `pulls`: dampers may pull just before the lift-off."""
    inertia = np.array([constants.mass, constants.mass, constants.inertia])
    weight = np.array([0.0, -constants.gravity, 0.0])
    n = constants.contacts

    def flow(stance: Array) -> Callable[[float, Array], Array]:
        def derivative(_: float, x: Array) -> Array:
            h, jacobian = geometry(x[:3], constants)
            force = stance * (constants.stiffness * h + constants.damping * jacobian @ x[3:]) / n
            force = force if pulls else np.maximum(force, 0.0)
            return np.concatenate([x[3:], weight - jacobian.T @ force / inertia])

        return derivative

    def compression(x: Array) -> Array:
        h, jacobian = geometry(x[:3], constants)
        return np.array([h, jacobian @ x[3:]])

    t, x, stance = 0.0, np.asarray(x0, dtype=float), np.zeros(n)
    events, slowest = list[tuple[float, int, int]](), np.inf
    while t < duration:
        solver = DOP853(flow(stance), t, x, duration, rtol=tolerance, atol=tolerance)
        found = _first_crossing(solver, compression, stance)
        t, x = solver.t, solver.y
        if found is None:
            break
        t, crossed, x = found
        speed = geometry(x[:3], constants)[1] @ x[3:]
        slowest = min(slowest, float(np.abs(speed[crossed]).min()))
        events += [(t, int(i), int(1 - stance[i])) for i in np.flatnonzero(crossed)]
        stance = np.where(crossed, 1.0 - stance, stance)
    return Reference(x=x, events=tuple(events), slowest=float(slowest))


def _first_crossing(
    solver: DOP853, compression: Callable[[Array], Array], stance: Array
) -> tuple[float, NDArray[np.bool_], Array] | None:
    """Step until springs change sides: the time, which they are, and the state; None at the end of the time."""
    side = 1.0 - 2.0 * stance  # of h, so that a crossing rises
    while solver.status == "running":
        solver.step()
        dense = solver.dense_output()

        def value(t: float, dense: Callable[[float], Array] = dense) -> Array:
            return np.asarray(side * compression(dense(t)))  # (2, n): functions that rise through zero, their rates

        found = _bracket(value, solver.t_old, solver.t)
        if found is None:
            continue
        for _ in range(2):  # so that few springs are left whose roots have to be compared
            found = _bracket(value, *found[:2]) or found
        left, right, late = found
        roots = np.array([_root(value, int(i), left, right) for i in late])
        crossed = np.zeros(stance.size, dtype=bool)
        crossed[late[roots <= roots.min() + 1e-13]] = True
        return float(roots.min()), crossed, np.asarray(dense(roots.min()))
    return None


def _bracket(
    value: Callable[[float], Array], left: float, right: float
) -> tuple[float, float, NDArray[np.signedinteger]] | None:
    """The first part of an interval at whose end springs are above zero, and which; None where they never are."""
    before, at_left = left, value(left)
    for after in (left + SAMPLES * (right - left)).tolist():
        at_right = value(after)
        top = _top(value, before, after, at_left, at_right)
        late = np.flatnonzero((at_right if top == after else value(top))[0] > 0.0)
        if late.size:
            return before, top, late
        before, at_left = after, at_right
    return None


def _top(value: Callable[[float], Array], left: float, right: float, at_left: Array, at_right: Array) -> float:
    """Where a spring is above zero inside of an interval at whose ends it is below; or the right end."""
    below = (at_left[0] < 0.0) & (at_right[0] < 0.0)
    for i in np.flatnonzero(below & (at_left[1] > 0.0) & (at_right[1] < 0.0)):
        top = float(brentq(lambda t, i=i: value(t)[1, i], left, right))
        if value(top)[0, i] > 0.0:
            return top
    return right


def _root(value: Callable[[float], Array], spring: int, left: float, right: float) -> float:
    if value(left)[0, spring] >= 0.0:  # it is on its surface already, by rounding
        return left
    return float(brentq(lambda t: value(t)[0, spring], left, right, xtol=1e-15, rtol=1e-15))
