"""Whole motions by SciPy's DOP853 with terminal events, started again after every event as a careful user would.

Every case has its right-hand sides, events and what happens there written by hand, in as few operations as they need.
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
from models import bouncing_ball, falling_rod, oscillator, point_mass, relay_feedback, stick_slip
from models import two_balls_spring, two_discs_elastic

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
    found = solve_ivp(rate, (t, end), x, "DOP853", rtol=tolerance, atol=tolerance, events=list(falling) or None, max_step=max_step)
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
    """Swings with a constant relay, slides on y = 0 while the relay can hold it there."""
    (b, c, d), x = relay_feedback.SLIDING.B, np.array(RELAY_START)

    def plant(x: Array, u: float) -> list[float]:
        return [-3 * x[0] + x[1] + b * u, -3 * x[0] + x[2] + c * u, -x[0] + d * u]

    t, hit, u, slides = 0.0, 0, -1.0, False
    while hit is not None:
        if slides:
            # y' = x_2 - 3 y + b u = 0
            t, x, hit = leg(
                lambda t, x: plant(x, -x[1] / b), t, x, duration, tolerance, lambda t, x: b - x[1], lambda t, x: b + x[1]
            )
            u, slides = (-1.0 if hit == 0 else 1.0), False
            continue
        side = -u
        t, x, hit = leg(lambda t, x, u=u: plant(x, u), t, x, duration, tolerance, lambda t, x, s=side: s * x[0])  # type: ignore[misc]
        if hit is not None:
            slides, u, x[0] = abs(x[1]) < b, -u, 0.0
    return x


def _blocks(tolerance: float, duration: float) -> Array:
    """Three blocks with dry friction: each slips to one side or sticks."""
    t, x, hit = 0.0, np.array(BLOCKS_START), 0
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
    s = stick_slip.STANDARD
    t, x, hit, sticks = 0.0, np.array([0.0, s.belt]), 0, True

    def stick(t: float, x: Array) -> list[float]:
        return [s.belt, 0.0]

    def slip(t: float, x: Array) -> list[float]:
        return [x[1], -s.stiffness * x[0] + s.friction - s.decrease * (s.belt - x[1])]

    while hit is not None:
        rate, end = (
            (stick, lambda t, x: s.friction - s.stiffness * abs(x[0])) if sticks else (slip, lambda t, x: s.belt - x[1])
        )
        t, x, hit = leg(rate, t, x, duration, tolerance, end)
        sticks, x[1] = not sticks, s.belt if hit is not None else x[1]
    return x


def _genes(tolerance: float, duration: float) -> Array:
    """Concentrations cross thresholds, or stay where production is switched on below and off above."""
    t, x, hit = 0.0, np.array(GENES_START), 0
    on = [x[i] > 4.0 for i in range(2)]
    below, held = [x[i] < 8.0 for i in range(2)], [False, False]

    def rate(t: float, x: Array) -> list[float]:
        return [
            0.0 if held[i] else (40.0 if on[1 - i] and below[i] else 0.0) - 4.5 * x[i] for i in range(2)
        ]

    def to(i: int, threshold: float, sign: float) -> Event:
        return lambda t, x: sign * (threshold - x[i])

    while True:
        rows = [(i, 4.0, -1.0 if on[i] else 1.0) for i in range(2)]
        rows += [(i, 8.0, 1.0 if below[i] else -1.0) for i in range(2) if not held[i]]
        t, x, hit = leg(rate, t, x, duration, tolerance, *(to(*row) for row in rows))
        if hit is None:
            return x
        i, threshold, _ = rows[hit]
        x[i] = threshold
        if threshold == 4.0:
            on[i] = not on[i]
        else:
            held[i] = on[1 - i]
            below[i] = not below[i]


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
    """A rod without friction falls on its left end, turns about it while it slides, and lies down."""
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

    t, x, _ = leg(turning, t, x, duration, tolerance, lambda t, x: x[1] + half * sin(x[2]))
    return np.array([x[0] + (duration - t) * x[3], 0.0, 0.0, x[3], 0.0, 0.0])


def _discs(tolerance: float, duration: float) -> Array:
    """A disc is pushed against another again and again, elastically and not through the centre."""
    u, w = PUSH
    t, x, hit = 0.0, np.array(DISCS_START), 0

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
    t, x, hit, closed = 0.0, np.array(SPRING_START), 0, False

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


def genes() -> ns.Heaviside:
    """Two genes: each is produced where the other one is above 4 and itself is below 8 (Acary, de Jong, Brogliato)."""
    x, alpha = ca.SX.sym("x", 2), ca.SX.sym("alpha", 4)
    first = 40 * alpha[2] * (1 - alpha[1]) - 4.5 * x[0]
    second = 40 * alpha[0] * (1 - alpha[3]) - 4.5 * x[1]
    thresholds = ca.vertcat(x[0] - 4, x[0] - 8, x[1] - 4, x[1] - 8)
    return ns.Heaviside(x=x, alpha=alpha, flow=ca.vertcat(first, second), functions=thresholds)


RAMP, FRICTION, STIFFNESS, SIDEWAYS, PUSH = 8.0, 2.0, 1e4, (1.0, -2.0), (4.0, 0.3)
RELAY_START = tuple(float(value) for value in relay_feedback.limit_cycle().start)
BLOCKS_START = (-1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 0.0)
GENES_START, LANDING_START, SPACE_START = (1.0, 9.0), (0.0, 0.05, 0.0, 1.4, 0.0, 1.0), (0.0, 0.0, 0.1, 4.0, 2.0, 0.0)
ROD_START = falling_rod.tilted(0.5, 0.5)
DISCS_START, SPRING_START = (-1.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0), (0.4, 1.4, 0.0, 0.0)


def _case(name: str, by_restarts: Callable[[float, float], Array], build: Any, x0: Any, duration: float, u: Any = None) -> RestartCase:
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
    _case("relay", _relay, relay_feedback.build, RELAY_START, 20.0),
    _case("friction blocks", _blocks, blocks, BLOCKS_START, 6.0),
    _case("stick-slip", _stick_slip, stick_slip.build, (0.0, stick_slip.STANDARD.belt), 5.0),
    _case("genes", _genes, genes, GENES_START, 0.45),
    _case("landing", _landing, partial(point_mass.build, 2, ramp=[RAMP, 0.0]), LANDING_START, 0.9, (0.0,)),
    _case("landing in space", _landing_in_space, partial(point_mass.build, 3), SPACE_START, 0.6, SIDEWAYS),
    _case("falling rod", _rod, partial(falling_rod.build, _SMOOTH_ROD), ROD_START, 0.4),
    _case("discs", _discs, two_discs_elastic.build, DISCS_START, 2.0, PUSH),
    _case("stiff spring", _spring, partial(two_balls_spring.build, STIFFNESS, 0.0), SPRING_START, 0.6),
)
CASES: Mapping[str, RestartCase] = {case.name: case for case in _CASES}
