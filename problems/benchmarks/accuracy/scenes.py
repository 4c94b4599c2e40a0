"""Scenes of the benchmark, each with an exact or a converged reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import bouncing_ball, quadruped
from problems.benchmarks.accuracy.scene import GRAVITY, Body, Scene, Standing, stand, state

Array = NDArray[np.float64]

RADIUS = 0.05  # radius of the ball [m]
HALF = (0.2, 0.05)  # of a block [m]
REST = HALF[1] + 0.01  # height of its centre where its feet touch [m]
DROP, TILT = 0.02, (0.03, 0.05)  # initial height of the feet of the quadruped [m]; roll and pitch [rad]
TIGHT = ns.EventDriven(rtol=1e-13, atol=1e-14, grazing="continue")


def _planar(name: str, title: str, bodies: tuple[Body, ...], *, slope: float = 0.0, **about: Any) -> Scene:
    """Return a scene of bodies in the plane, on a slope [rad]."""
    x0, gravity = state(bodies), (GRAVITY * float(np.sin(slope)), 0.0, -GRAVITY * float(np.cos(slope)))
    return Scene(name=name, title=title, bodies=bodies, x0=x0, n_q=x0.size // 2, gravity=gravity, **about)


def ball() -> Scene:
    """Return a ball that falls 1 m and rebounds once: one impact, as Drake's restitution depends on the speed."""
    body = Body(centre=(0.0, 1.0 + RADIUS), half=(RADIUS, RADIUS), feet=((0.0, 0.0),), radius=RADIUS, turns=False)
    return _planar(
        "ball",
        "ball, one rebound (e = 0.8)",
        (body,),
        reference=lambda t: bouncing_ball.exact(t, restitution=0.8, gravity=GRAVITY)[:, :1] + RADIUS,
        duration=1.0,
        measured=(0,),
        restitution=0.8,
        impact_speed=float(np.sqrt(2.0 * GRAVITY)),
    )


def slide() -> Scene:
    """Return a block on two feet that lands flat with 2 m/s; friction (impulse and force) stops its 3 m/s."""
    height, speed, friction = 2.0**2 / (2.0 * GRAVITY), 3.0, 0.5
    landing, after = 2.0 / GRAVITY, speed - friction * 2.0
    stop = after / (friction * GRAVITY)

    def exact(t: Array) -> Array:
        s = np.clip(t - landing, 0.0, stop)
        x = speed * np.minimum(t, landing) + after * s - 0.5 * friction * GRAVITY * s**2
        return np.column_stack([x, REST + np.maximum(height - 0.5 * GRAVITY * t**2, 0.0) * (t < landing)])

    body = Body(centre=(0.0, REST + height), half=HALF, feet=stand(HALF), velocity=(speed, 0.0))
    return _planar(
        "slide",
        "block lands and slides to a stop",
        (body,),
        reference=exact,
        duration=0.8,
        measured=(0, 1),
        friction=friction,
        impact_speed=2.0,
    )


def slope() -> Scene:
    """Return a block that stands for 5 s on a slope of 20 degrees with friction 0.5: it should not move."""
    body = Body(centre=(0.0, REST), half=HALF, feet=stand(HALF))
    return _planar(
        "slope",
        "block on a slope: drift",
        (body,),
        reference=lambda t: np.zeros((t.size, 1)),
        duration=5.0,
        measured=(0,),
        friction=0.5,
        slope=float(np.deg2rad(20.0)),
        drift=True,
    )


def pile(boxes: int = 5) -> Scene:
    """Return boxes that fall on each other, alternately 2 cm to the left and right, and stay where they land.

    The lowest box lands first. Each next one falls freely until it lands flat, without restitution, on boxes at rest:
    its impulse goes through its centre and between the feet of all boxes below, so nothing tips or slides.
    """
    gap, pitch = 0.02, 2.0 * HALF[1] + 0.01
    lows = REST + pitch * np.arange(boxes)
    highs = lows + gap * (1.0 + np.arange(boxes))
    sides = 0.02 * (-1.0) ** np.arange(boxes)
    bodies = tuple(
        Body(centre=(float(x), float(z)), half=HALF, feet=stand(HALF)) for x, z in zip(sides, highs, strict=True)
    )

    def exact(t: Array) -> Array:
        z = np.maximum(highs - 0.5 * GRAVITY * t[:, None] ** 2, lows)
        return np.stack([np.broadcast_to(sides, z.shape), z, np.zeros(z.shape)], axis=2).reshape(t.size, -1)

    return _planar(
        "pile",
        f"{boxes} boxes pile up",
        bodies,
        reference=exact,
        duration=0.4,
        measured=tuple(range(3 * boxes)),
        friction=0.5,
        impact_speed=float(np.sqrt(2.0 * GRAVITY * gap)),
    )


def landing() -> Scene:
    """Return the quadruped that falls, tilted, on its four feet, while springs and dampers hold its joints."""
    gains = quadruped.Gains()
    x0 = quadruped.start(above=DROP)
    roll, pitch = np.array(TILT) / 2.0
    c, s = np.cos, np.sin
    x0[3:7] = [c(roll) * c(pitch), s(roll) * c(pitch), c(roll) * s(pitch), -s(roll) * s(pitch)]
    x0[2] += 0.5 * (0.4 * np.tan(TILT[1]) + 0.26 * np.tan(TILT[0]))  # no foot below the ground
    measured = (0, 1, 2, *range(7, 19))

    @cache
    def system() -> ns.CLS:
        return quadruped.build(0.8, gains=gains)

    @cache
    def motion() -> ns.Trajectory:
        return ns.simulate(system(), x0=x0, duration=0.2, method=TIGHT)

    return Scene(
        name="quadruped",
        title="quadruped lands on four feet",
        duration=0.2,
        x0=x0,
        n_q=19,
        robot=Standing(
            urdf=quadruped.file(),
            system=system,
            stiffness=gains.stiffness,
            damping=gains.damping,
            targets=quadruped.STAND,
        ),
        reference=lambda t: np.asarray(motion()(t))[:, list(measured)],
        measured=measured,
        friction=0.8,
        impact_speed=float(np.sqrt(2.0 * GRAVITY * DROP)),
    )


SCENES: dict[str, Callable[[], Scene]] = {
    "ball": ball,
    "slide": slide,
    "slope": slope,
    "pile": pile,
    "quadruped": landing,
}
