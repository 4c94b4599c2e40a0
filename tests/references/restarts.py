"""Whole motions by SciPy's DOP853 with terminal events, started again after every event as a careful user would.

Every case has its right-hand sides, events and what happens there written by hand, in as few operations as they need.
Oscillator, relay, friction blocks, stick-slip and genes are examples of simulation of nosnoc 0.2.0, with its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import cos, hypot, pi, sin
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from models import bouncing_ball, falling_rod, oscillator, point_mass, two_balls_spring, two_discs_elastic

Array = NDArray[np.float64]
Rate = Callable[[float, Array], Sequence[float]]
Event = Callable[[float, Array], float]
GRAVITY = 9.81


@dataclass(frozen=True, eq=False, kw_only=True)
class RestartCase:
    """A motion for both sides; `by_restarts(tolerance)` gives the state at the end by DOP853, relative and absolute."""

    name: str
    build: Callable[[], Any]
    x0: tuple[float, ...]
    duration: float
    by_restarts: Callable[[float], Array]
    u: tuple[float, ...] | None = None


def leg(
    rate: Rate, t: float, x: Any, end: float, tolerance: float, *falling: Event, max_step: float = np.inf
) -> tuple[float, Array, int | None]:
    """Time and state where the first of some functions falls to zero, and which one; None at the end.

    Functions that fall and rise again within one step are not seen without `max_step`.
    """
    for event in falling:
        event.terminal, event.direction = True, -1.0  # type: ignore[attr-defined]
    found = solve_ivp(
        rate, (t, end), x, "DOP853", rtol=tolerance, atol=tolerance, events=list(falling) or None, max_step=max_step
    )
    which = next((i for i, times in enumerate(found.t_events or ()) if times.size), None)
    return float(found.t[-1]), found.y[:, -1], which


def _oscillator(tolerance: float, duration: float) -> Array:
    """Inside and then outside of the circle."""
    w = oscillator.STANDARD.frequency

    def inside(t: float, x: Array) -> list[float]:
        return [x[0] + w * x[1], x[1] - w * x[0]]

    def outside(t: float, x: Array) -> list[float]:
        return [x[0] - w * x[1], x[1] + w * x[0]]

    t, x, _ = leg(inside, 0.0, oscillator.STANDARD.start, duration, tolerance, lambda t, x: 1.0 - x[0] ** 2 - x[1] ** 2)
    return leg(outside, t, x, duration, tolerance)[1]


def _ball(tolerance: float, duration: float) -> Array:
    """From impact to impact."""
    t, x, hit = leg(lambda t, x: [x[1], -GRAVITY], 0.0, (1.0, 0.0), duration, tolerance, lambda t, x: x[0])
    while hit is not None:
        x = np.array([0.0, -0.9 * x[1]])
        t, x, hit = leg(lambda t, x: [x[1], -GRAVITY], t, x, duration, tolerance, lambda t, x: x[0])
    return x


def _relay(tolerance: float, duration: float) -> Array:
    """Slides on y = 0 while the relay can hold it there, and swings with a constant relay in between."""
    a, c, d = RELAY

    def plant(x: Array, u: float) -> list[float]:
        return [a * x[0] + x[1] - u, c * x[0] + x[2] + 2.0 * u, d * x[0] - u]

    def swing(side: float) -> tuple[Rate, Event]:
        return lambda t, x: plant(x, side), lambda t, x: side * x[0]

    t, x, slides, side = 0.0, np.array(RELAY_START), True, 1.0
    while True:
        if slides:
            ends = (lambda t, x: 1.0 - x[1], lambda t, x: 1.0 + x[1])
            t, x, hit = leg(lambda t, x: plant(x, x[1]), t, x, duration, tolerance, *ends)
            slides, side = False, 1.0 if hit == 0 else -1.0
        else:
            rate, end = swing(side)
            t, x, hit = leg(rate, t, x, duration, tolerance, end)
            slides, side = abs(x[1]) < 1.0, -side
        if hit is None:
            return x
        x[0] = 0.0


def _blocks(tolerance: float, duration: float) -> Array:
    """Three blocks with dry friction: each slips to one side or sticks."""
    t, x = 0.0, np.array(BLOCKS_START)
    side = [1.0 if v > 0 else -1.0 for v in x[3:6]]

    def pulls(x: Array) -> tuple[float, float, float]:
        a, b, c, v, w, z, clock = x
        return b - 2 * a - v, a - 2 * b + c - w, b - c - z + 10 * cos(pi * clock)

    def rate(t: float, x: Array) -> list[float]:
        forces = zip(pulls(x), side, strict=True)
        return [*x[3:6], *(pull - FRICTION * s if s else 0.0 for pull, s in forces), 1.0]

    def ends(i: int) -> Event:
        if side[i]:
            return lambda t, x, s=side[i]: s * x[3 + i]  # type: ignore[misc]
        return lambda t, x: FRICTION - abs(pulls(x)[i])

    while True:
        t, x, hit = leg(rate, t, x, duration, tolerance, *map(ends, range(3)))
        if hit is None:
            return x
        pull = pulls(x)[hit]
        if side[hit]:
            x[3 + hit] = 0.0
            side[hit] = 0.0 if abs(pull) < FRICTION else -side[hit]
        else:
            side[hit] = 1.0 if pull > 0 else -1.0


def _stick_slip(tolerance: float, duration: float) -> Array:
    """With the belt until the spring tears the block loose, and slip until it has the speed of the belt again."""
    t, x, sticks = 0.0, np.array(STICK_SLIP_START), False
    while True:
        if sticks:
            t, x, hit = leg(lambda t, x: [0.2, 0.0], t, x, duration, tolerance, lambda t, x: 1.0 - x[0])
        else:
            slip = lambda t, x: [x[1], 1.0 / (1.2 - x[1]) - x[0]]  # noqa: E731
            t, x, hit = leg(slip, t, x, duration, tolerance, lambda t, x: 0.2 - x[1])
        if hit is None:
            return x
        sticks, x[1] = not sticks, 0.2


def _genes(tolerance: float, duration: float) -> Array:
    """Five concentrations that switch each other on and off at seven thresholds."""
    t, x = 0.0, np.array(GENES_START)
    on = [x[i] > threshold for i, threshold in THRESHOLDS]

    def rate(t: float, x: Array) -> list[float]:
        a, b, c, d, e, f, _ = on
        return [
            1.1e-4 + 9e-4 * f - 0.05 * x[0],
            3e-4 + 0.15 * a - 0.04 * x[1],
            6e-4 + 0.018 * c - 0.05 * x[2],
            (5e-4 + 0.03 * (not e)) * b - 0.02 * x[3],
            7.5e-4 + 0.015 * d - 0.6 * x[4],
        ]

    def to(k: int) -> Event:
        (i, threshold), sign = THRESHOLDS[k], 1.0 if on[k] else -1.0
        return lambda t, x: sign * (x[i] - threshold)

    while True:
        t, x, hit = leg(rate, t, x, duration, tolerance, *map(to, range(7)))
        if hit is None:
            return x
        on[hit] = not on[hit]
        x[THRESHOLDS[hit][0]] = THRESHOLDS[hit][1]


def _landing(tolerance: float, duration: float) -> Array:
    """A block falls, slips to its stop, sticks, and is torn loose by a force that grows with time."""
    grip = 0.5 * GRAVITY
    t, x, _ = leg(
        lambda t, x: [x[3], x[4], 1.0, RAMP * x[2], -GRAVITY, 0.0],
        0.0, LANDING_START, duration, tolerance, lambda t, x: x[1],
    )  # fmt: skip
    x = np.array([x[0], 0.0, x[2], x[3] + 0.5 * x[4], 0.0, 1.0])
    t, x, _ = leg(
        lambda t, x: [x[3], 0.0, 1.0, RAMP * x[2] - grip, 0.0, 0.0], t, x, duration, tolerance, lambda t, x: x[3]
    )
    x[3] = 0.0
    t, x, _ = leg(
        lambda t, x: [0.0, 0.0, 1.0, 0.0, 0.0, 0.0], t, x, duration, tolerance, lambda t, x: grip - RAMP * x[2]
    )
    return leg(lambda t, x: [x[3], 0.0, 1.0, RAMP * x[2] - grip, 0.0, 0.0], t, x, duration, tolerance)[1]


def _landing_in_space(tolerance: float, duration: float) -> Array:
    """A point falls and slips on a plane, on a curve because a force acts sideways; it does not come to rest."""
    u, w = SIDEWAYS
    t, x, _ = leg(
        lambda t, x: [x[3], x[4], x[5], u, w, -GRAVITY], 0.0, SPACE_START, duration, tolerance, lambda t, x: x[2]
    )
    share = 1.0 + 0.5 * x[5] / hypot(x[3], x[4])
    x = np.array([x[0], x[1], 0.0, share * x[3], share * x[4], 0.0])

    def slip(t: float, x: Array) -> list[float]:
        grip = 0.5 * GRAVITY / hypot(x[3], x[4])
        return [x[3], x[4], 0.0, u - grip * x[3], w - grip * x[4], 0.0]

    return leg(slip, t, x, duration, tolerance)[1]


def _rod(tolerance: float, duration: float) -> Array:
    """A rod without friction falls on its left end, and turns about it while it slides."""
    half, inertia = 0.5, 1.0 / 12.0
    t, x, _ = leg(
        lambda t, x: [x[3], x[4], x[5], 0.0, -GRAVITY, 0.0],
        0.0, ROD_START, duration, tolerance, lambda t, x: x[1] - half * sin(x[2]),
    )  # fmt: skip
    arm = half * cos(x[2])
    impulse = -(x[4] - arm * x[5]) / (1.0 + arm**2 / inertia)
    x = np.array([x[0], half * sin(x[2]), x[2], x[3], x[4] + impulse, x[5] - arm * impulse / inertia])

    def turning(t: float, x: Array) -> list[float]:
        c = half * cos(x[2])
        force = (GRAVITY - half * sin(x[2]) * x[5] ** 2) / (1.0 + c**2 / inertia)
        return [x[3], x[4], x[5], 0.0, force - GRAVITY, -c * force / inertia]

    return leg(turning, t, x, duration, tolerance)[1]


def _discs(tolerance: float, duration: float) -> Array:
    """A disc is pushed against another again and again, elastically and not through the centre."""
    u, w = PUSH
    t, x = 0.0, np.array(DISCS_START)

    def flow(t: float, x: Array) -> list[float]:
        return [x[4], x[5], x[6], x[7], u, w, 0.0, 0.0]

    def gap(t: float, x: Array) -> float:
        return hypot(x[2] - x[0], x[3] - x[1]) - 0.4

    while True:
        t, x, hit = leg(flow, t, x, duration, tolerance, gap, max_step=0.1)
        if hit is None:
            return x
        n = (x[2:4] - x[:2]) / hypot(x[2] - x[0], x[3] - x[1])
        exchanged = ((x[4:6] - x[6:8]) @ n) * n
        x[4:6] -= exchanged
        x[6:8] += exchanged


def _spring(tolerance: float, duration: float) -> Array:
    """Two balls on a stiff spring: the lower one stays on the ground after an impact until the spring lifts it."""
    t, x, closed = 0.0, np.array(SPRING_START), False

    def pull(x: Array) -> float:
        return STIFFNESS * (x[1] - x[0] - 1.0)

    def flight(t: float, x: Array) -> list[float]:
        f = STIFFNESS * (x[1] - x[0] - 1.0)
        return [x[2], x[3], f - GRAVITY, -f - GRAVITY]

    def stands(t: float, x: Array) -> list[float]:
        return [0.0, x[3], 0.0, -STIFFNESS * (x[1] - x[0] - 1.0) - GRAVITY]

    while True:
        rate, end = (stands, lambda t, x: GRAVITY - pull(x)) if closed else (flight, lambda t, x: x[0] - 0.2)
        t, x, hit = leg(rate, t, x, duration, tolerance, end)
        if hit is None:
            return x
        closed = not closed and pull(x) < GRAVITY
        x[0], x[2] = 0.2, 0.0


def blocks() -> ns.PSS:
    """Three blocks in a row, coupled by springs and dampers, on a rough ground; a force pulls at the last one."""
    x = ca.SX.sym("x", 7)
    pulls = ca.vertcat(
        x[1] - 2 * x[0] - x[3], x[0] - 2 * x[1] + x[2] - x[4], x[1] - x[2] - x[5] + 10 * ca.cos(ca.pi * x[6])
    )
    modes = []
    for i in range(3):
        friction = ca.DM.zeros(7)
        friction[3 + i] = FRICTION
        modes.append(ns.Modes(f"block_{i + 1}", flows=[friction, -friction], functions=x[3 + i], signs=[[-1], [1]]))
    return ns.PSS(x=x, flow=ca.vertcat(x[3:6], pulls, 1), modes=modes)


def relay() -> ns.PSS:
    """A plant of order three under relay feedback, with fast oscillations and sliding (Piiroinen and Kuznetsov)."""
    (a, c, d), x = RELAY, ca.SX.sym("x", 3)
    plant, push = ca.vertcat(a * x[0] + x[1], c * x[0] + x[2], d * x[0]), ca.DM([1.0, -2.0, 1.0])
    return ns.PSS(x=x, flow=plant, modes=ns.Modes("relay", flows=[push, -push], functions=x[0], signs=[[-1], [1]]))


def belt() -> ns.PSS:
    """A block on a belt, with friction that falls with the speed of slip (Piiroinen and Kuznetsov)."""
    x = ca.SX.sym("x", 2)
    flows = [ca.vertcat(x[1], 1 / (1.2 - x[1]) - x[0]), ca.vertcat(x[1], -1 / (0.8 + x[1]) - x[0])]
    return ns.PSS(x=x, modes=ns.Modes("belt", flows=flows, functions=x[1] - 0.2, signs=[[-1], [1]]))


def genes() -> ns.Heaviside:
    """The synthetic gene network IRMA, switched on (Acary, de Jong and Brogliato)."""
    x, alpha = ca.SX.sym("x", 5), ca.SX.sym("alpha", 7)
    made = ca.vertcat(
        1.1e-4 + 9e-4 * alpha[5],
        3e-4 + 0.15 * alpha[0],
        6e-4 + 0.018 * alpha[2],
        (5e-4 + 0.03 * (1 - alpha[4])) * alpha[1],
        7.5e-4 + 0.015 * alpha[3],
    )
    gone = ca.DM([0.05, 0.04, 0.05, 0.02, 0.6]) * x
    functions = ca.vertcat(*[x[i] - threshold for i, threshold in THRESHOLDS])
    return ns.Heaviside(x=x, alpha=alpha, flow=made - gone, functions=functions)


RAMP, FRICTION, STIFFNESS, SIDEWAYS, PUSH = 8.0, 0.3, 1e4, (1.0, -2.0), (4.0, 0.3)
# -(2 xi w + 1), -(2 xi w + w^2) and -w^2 with w = 25 and xi = 0.05
RELAY, RELAY_START, STICK_SLIP_START = (-3.5, -627.5, -625.0), (0.0, -0.001, -0.02), (0.04, -0.01)
THRESHOLDS = ((0, 0.01), (1, 0.01), (1, 0.06), (1, 0.08), (2, 0.035), (3, 0.04), (4, 0.01))
BLOCKS_START = (-1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 0.0)
GENES_START = (0.011, 0.09, 0.04, 0.05, 0.015)
LANDING_START, SPACE_START = (0.0, 0.05, 0.0, 1.4, 0.0, 1.0), (0.0, 0.0, 0.1, 4.0, 2.0, 0.0)
ROD_START = falling_rod.tilted(0.5, 0.5)
DISCS_START, SPRING_START = (-1.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0), (0.4, 1.4, 0.0, 0.0)


def _case(
    name: str, by_restarts: Callable[..., Array], build: Any, x0: Any, duration: float, u: Any = None
) -> RestartCase:
    return RestartCase(
        name=name,
        build=build,
        x0=tuple(x0),
        duration=duration,
        by_restarts=partial(by_restarts, duration=duration),
        u=u,
    )


_SMOOTH_ROD = falling_rod.Constants(frictions=(0.0, 0.0))
_CASES = (
    _case("oscillator", _oscillator, oscillator.build, oscillator.STANDARD.start, 0.5 * pi),
    _case("bouncing ball", _ball, partial(bouncing_ball.build, 0.9, GRAVITY), (1.0, 0.0), 3.0),
    _case("relay", _relay, relay, RELAY_START, 5.0),
    _case("friction blocks", _blocks, blocks, BLOCKS_START, 5.0),
    _case("stick-slip", _stick_slip, belt, STICK_SLIP_START, 40.0),
    _case("genes", _genes, genes, GENES_START, 1000.0),
    _case("landing", _landing, partial(point_mass.build, 2, ramp=[RAMP, 0.0]), LANDING_START, 0.9, (0.0,)),
    _case("landing in space", _landing_in_space, partial(point_mass.build, 3), SPACE_START, 0.6, SIDEWAYS),
    _case("falling rod", _rod, partial(falling_rod.build, _SMOOTH_ROD), ROD_START, 0.4),
    _case("discs", _discs, two_discs_elastic.build, DISCS_START, 2.0, PUSH),
    _case("stiff spring", _spring, partial(two_balls_spring.build, STIFFNESS, 0.0), SPRING_START, 0.6),
)
CASES: Mapping[str, RestartCase] = {case.name: case for case in _CASES}
