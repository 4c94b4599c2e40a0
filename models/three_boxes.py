"""Three boxes on the ground; the middle one pushes the other two (FESD-J, Section 5.3).

Five contacts with friction: the left and the middle box (inelastic), the middle and the right box (restitution 0.5),
and each box with the ground. The gap of the ground is q_y - a/2, initial and reference heights are 1, and the control
acts on the middle box: the text of the paper contradicts itself in these three.

No box ever leaves the ground: a box that is lifted at a side would slip upwards along it, and friction then points
down. With equal coefficients on the ground it does not matter either how the weight of two boxes that are pressed
together is shared. So the motion is exactly that of three masses on a line, with dry friction of the constant size
mu m g each and two frictionless contacts; `build` with `sides=(0, 0)` states it as a CLS, and `reduced_motion`
integrates it exactly, event by event, for a control that is constant on equal intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Arrow, Ground, Mark, PlanarShape, Rectangle

Array = NDArray[np.float64]
CONTACTS = ("left_middle", "middle_right", "ground_left", "ground_middle", "ground_right")
BOXES = ("left", "middle", "right")


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of Section 5.3: side length [m], mass [kg], gravity [m/s^2], friction and restitution.

    `sides` are the coefficients of friction of the two contacts between boxes, `ground` that of each box with the
    ground, `restitutions` those of the two contacts between boxes; the ground is inelastic.
    """

    side_length: float = 2.0
    mass: float = 1.0
    gravity: float = 9.81
    sides: tuple[float, float] = (0.1, 0.1)
    ground: float = 0.2
    restitutions: tuple[float, float] = (0.0, 0.5)

    @property
    def grip(self) -> float:
        """Largest acceleration that the friction of the ground resists, mu g [m/s^2]."""
        return self.ground * self.gravity


PAPER = Constants()
START = (-3.0, 1.0, 0.0, 1.0, 3.0, 1.0, *[0.0] * 6)


def build(constants: Constants = PAPER) -> ns.CLS:
    """Return the three boxes as a system.

    Returns
    -------
    ns.CLS
        States x_1, y_1 (left), x_2, y_2 (middle), x_3, y_3 (right): centres [m], and their rates; control force [N]
        on the middle box; contacts as in `CONTACTS`.
    """
    q, v, u = ca.SX.sym("q", 6), ca.SX.sym("v", 6), ca.SX.sym("u", 1)
    weight = constants.mass * constants.gravity
    axes = [f"{axis}_{k}" for k in (1, 2, 3) for axis in "xy"]
    return ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=constants.mass * ca.DM.eye(6),
        force=ca.vertcat(0, -weight, u, -weight, 0, -weight),
        contacts=[*(_side(q, k, constants) for k in (0, 1)), *(_ground(q, k, constants) for k in (0, 1, 2))],
        names={"q": axes, "v": [f"v_{axis}" for axis in axes], "u": ["force"]},
        units={**dict.fromkeys(axes, "m"), **{f"v_{axis}": "m/s" for axis in axes}, "force": "N"},
        scene=_scene(q, u, constants.side_length),
    )


def _scene(q: ca.SX, u: ca.SX, side: float) -> list[PlanarShape]:
    middles = [(q[2 * k : 2 * k + 2] + q[2 * k + 2 : 2 * k + 4]) / 2 for k in (0, 1)]
    feet = [ca.vertcat(q[2 * k], q[2 * k + 1] - side / 2) for k in range(3)]
    return [
        *(Rectangle(q[2 * k : 2 * k + 2], [side, side], label=name) for k, name in enumerate(BOXES)),
        Arrow(q[2:4], [u, 0], label="force"),
        Ground(),
        *(Mark(name, place) for name, place in zip(CONTACTS, middles + feet, strict=True)),
    ]


def _side(q: Any, k: int, constants: Constants) -> ns.Contact:
    """Return the contact between boxes k and k + 1: the slip velocity is the relative vertical one."""
    left, right = 2 * k, 2 * k + 2
    tangent = np.zeros(6)
    tangent[[left + 1, right + 1]] = -1.0, 1.0
    return ns.Contact(
        CONTACTS[k],
        gap=q[right] - q[left] - constants.side_length,
        tangent=ca.DM(tangent),
        friction=constants.sides[k],
        restitution=constants.restitutions[k],
    )


def _ground(q: Any, k: int, constants: Constants) -> ns.Contact:
    tangent = np.zeros(6)
    tangent[2 * k] = 1.0
    gap = q[2 * k + 1] - 0.5 * constants.side_length
    return ns.Contact(CONTACTS[2 + k], gap=gap, tangent=ca.DM(tangent), friction=constants.ground)


# The exact reduction to three coordinates ----------------------------------------------------------------------------

REST = 1e-9  # impacts below this speed [m/s] are inelastic: a pressed box would bounce infinitely often
MOST_PIECES = 20_000


@dataclass(frozen=True)
class Impact:
    """Impact of boxes: contact ("left_middle" or "middle_right"), time [s], impulse [N s], closing speeds [m/s]."""

    name: str
    time: float
    impulse: float
    v_before: float
    v_after: float


@dataclass(frozen=True, eq=False, kw_only=True)
class ReducedMotion:
    """Exact horizontal motion of the boxes, piecewise quadratic.

    Parameters
    ----------
    t : (pieces + 1,)
        Ends of the pieces [s].
    x, v, a : (pieces, 3)
        Positions [m] and velocities [m/s] at the start of every piece, and its accelerations [m/s^2].
    u : (pieces,)
        Control of every piece [N].
    end : (6,)
        Positions and velocities at the end.
    impacts : tuple of Impact
    """

    t: Array
    x: Array
    v: Array
    a: Array
    u: Array
    end: Array
    impacts: tuple[Impact, ...]

    def __call__(self, t: ArrayLike) -> Array:
        """Return the states (times, 6) = (x, v), right limits at impacts."""
        times = np.atleast_1d(np.asarray(t, dtype=float))
        which = np.clip(np.searchsorted(self.t, times, side="right") - 1, 0, len(self.x) - 1)
        s = (times - self.t[which])[:, None]
        x, v, a = self.x[which], self.v[which], self.a[which]
        states = np.hstack([x + v * s + 0.5 * a * s**2, v + a * s])
        states[times >= self.t[-1]] = self.end
        return states

    def full_state(self, t: ArrayLike, constants: Constants = PAPER) -> Array:
        """Return the states (times, 12) of the full model, with all boxes at rest on the ground."""
        reduced = self(t)
        states = np.zeros((len(reduced), 12))
        states[:, [0, 2, 4, 6, 8, 10]] = reduced
        states[:, [1, 3, 5]] = 0.5 * constants.side_length
        return states


def reduced_motion(
    u: ArrayLike, duration: float, x0: Sequence[float] = (-3.0, 0.0, 3.0, 0.0, 0.0, 0.0), constants: Constants = PAPER
) -> ReducedMotion:
    """Return the exact motion of the boxes on the line under a piecewise constant force on the middle one.

    Parameters
    ----------
    u : (N,)
        Force on each of N equal intervals [N].
    duration : float
        Duration of the motion [s].
    x0 : (6,)
        Positions [m] and velocities [m/s].
    constants : Constants

    Raises
    ------
    ModelError
        If boxes overlap at the start, or the motion has no end of events.
    """
    forces = np.asarray(u, dtype=float).ravel()
    x, v = np.array(x0[:3], dtype=float), np.array(x0[3:], dtype=float)
    gap = np.diff(x) - constants.side_length
    if (gap < 0.0).any():
        raise ModelError(f"the boxes overlap at the start: gaps {gap}; move them apart.")
    pieces, impacts, ends = list[tuple[Any, ...]](), list[Impact](), np.linspace(0.0, duration, len(forces) + 1)
    for force, t, end in zip(forces, ends[:-1], ends[1:], strict=True):
        while t < end:
            impacts += _collide(t, v, gap, constants)
            a = _accelerations(v, gap, force, constants)
            s, stopped, closed = _next_event(v, a, gap, end - t)
            pieces.append((t, x.copy(), v.copy(), a, force))
            _advance(x, v, gap, a, s, stopped, closed)
            t = end if stopped is None and closed is None else t + s
            if len(pieces) > MOST_PIECES:
                raise ModelError(f"more than {MOST_PIECES} events up to t = {t:.6g} s; is the force a number?")
    impacts += _collide(duration, v, gap, constants)
    t, xs, vs, accelerations, controls = (np.array(part) for part in zip(*pieces, strict=True))
    times, end_state = np.append(t, duration), np.concatenate([x, v])
    return ReducedMotion(t=times, x=xs, v=vs, a=accelerations, u=controls, end=end_state, impacts=tuple(impacts))


def _accelerations(v: Array, gap: Array, force: float, constants: Constants) -> Array:
    """Return the accelerations (3,), the minimiser of Gauss' principle.

    minimise the sum of a_i^2 / 2 - f_i a_i, plus grip |a_i| where box i is at rest, subject to a_i <= a_i+1 where two
    boxes touch and do not part: convex and separable along a chain, so pooling adjacent violators solves it.
    """
    blocks: list[tuple[float, float, list[int]]] = []  # (driving acceleration, grip, boxes)
    for i in range(3):
        drive = (force / constants.mass if i == 1 else 0.0) - constants.grip * np.sign(v[i])
        block = (float(drive), constants.grip * (v[i] == 0.0), [i])
        while blocks and _touching(v, gap, block[2][0] - 1) and _pooled(blocks[-1]) > _pooled(block):
            left = blocks.pop()
            block = (left[0] + block[0], left[1] + block[1], left[2] + block[2])
        blocks.append(block)
    return np.array([_pooled(block) for block in blocks for _ in block[2]])


def _pooled(block: tuple[float, float, list[int]]) -> float:
    """Return the common acceleration of boxes that move as one: the driving force beyond their grip."""
    drive, grip, boxes = block
    return float(np.sign(drive)) * max(abs(drive) - grip, 0.0) / len(boxes)


def _touching(v: Array, gap: Array, k: int) -> bool:
    return bool(gap[k] == 0.0 and v[k] == v[k + 1])


def _next_event(v: Array, a: Array, gap: Array, rest: float) -> tuple[float, Array | None, int | None]:
    """Return the time to the next event within `rest`, and the boxes that stop or the gap that closes then."""
    stops = np.array([-v[i] / a[i] if v[i] * a[i] < 0.0 else np.inf for i in range(3)])
    closings = [_closing(gap[k], v[k + 1] - v[k], a[k + 1] - a[k]) for k in (0, 1)]
    s = min(stops.min(), *closings)
    if s >= rest:
        return rest, None, None
    return (s, stops == s, None) if stops.min() == s else (s, None, int(np.argmin(closings)))


def _closing(gap: float, rate: float, curvature: float) -> float:
    """Return the smallest positive zero of gap + rate s + curvature s^2 / 2, without cancellation, or infinity."""
    if gap == 0.0:
        return -2.0 * rate / curvature if rate > 0.0 > curvature else np.inf
    discriminant = rate**2 - 2.0 * curvature * gap
    if discriminant < 0.0:
        return np.inf
    denominator = -rate + np.sqrt(discriminant)
    return 2.0 * gap / denominator if denominator > 0.0 else np.inf


def _advance(x: Array, v: Array, gap: Array, a: Array, s: float, stopped: Array | None, closed: int | None) -> None:
    """Advance by s; values that an event makes zero are set to exactly zero."""
    gap += np.diff(v) * s + 0.5 * np.diff(a) * s**2
    x += v * s + 0.5 * a * s**2
    v += a * s
    np.maximum(gap, 0.0, out=gap)
    if stopped is not None:
        v[stopped] = 0.0
    if closed is not None:
        gap[closed] = 0.0


def _collide(t: float, v: Array, gap: Array, constants: Constants) -> list[Impact]:
    """Apply Newton's law, Lambda >= 0 complementary to v_n+ + e v_n- >= 0, to all contacts that close (changes v)."""
    rate = np.diff(v)
    if not ((gap == 0.0) & (rate < 0.0)).any():
        return []
    target = np.array(
        [-e * min(r, 0.0) if r < -REST else 0.0 for e, r in zip(constants.restitutions, rate, strict=True)]
    )
    active, impulse = _impulses(rate, target, [k for k in (0, 1) if gap[k] == 0.0], constants.mass)
    v += (np.append(-impulse, 0.0) + np.insert(impulse, 0, 0.0)) / constants.mass
    for k in active:
        v[k + 1] = v[k] + target[k]  # exactly: boxes that stay together need the same velocity
    return [Impact(CONTACTS[k], float(t), float(impulse[k]), float(rate[k]), float(target[k])) for k in active]


def _impulses(rate: Array, target: Array, closed: list[int], mass: float) -> tuple[tuple[int, ...], Array]:
    """Return active contacts and their impulses (2,): the complementarity problem of two contacts by enumeration."""
    delassus = np.array([[2.0, -1.0], [-1.0, 2.0]]) / mass
    for size in range(1, len(closed) + 1):
        for active in combinations(closed, size):
            impulse, chosen = np.zeros(2), list(active)
            impulse[chosen] = np.linalg.solve(delassus[np.ix_(chosen, chosen)], (target - rate)[chosen])
            slack = rate + delassus @ impulse - target
            if (impulse[chosen] > 0.0).all() and (slack[closed] >= -1e-14).all():
                return active, impulse
    raise ModelError(f"the impact at closing speeds {rate} m/s has no solution.")
