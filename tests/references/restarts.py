"""Whole motions by SciPy's DOP853 with a terminal event, started again after every event as a careful user would."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from models import oscillator

Array = NDArray[np.float64]
OSCILLATOR_END, BALL_END = float(np.pi / 2.0), 3.0
GRAVITY, RESTITUTION = 9.81, 0.9


def oscillator_by_restarts(tolerance: float) -> Array:
    """The oscillator, inside and then outside of the circle."""
    w = oscillator.STANDARD.frequency
    start = np.array(oscillator.STANDARD.start)
    inside, outside = np.array([[1.0, w], [-w, 1.0]]), np.array([[1.0, -w], [w, 1.0]])

    def circle(t: float, x: Array) -> float:
        return float(x @ x) - 1.0

    circle.terminal = True  # type: ignore[attr-defined]
    options: dict[str, Any] = dict(method="DOP853", rtol=tolerance, atol=tolerance)
    first = solve_ivp(lambda t, x: inside @ x, (0.0, OSCILLATOR_END), start, events=circle, **options)
    second = solve_ivp(lambda t, x: outside @ x, (first.t[-1], OSCILLATOR_END), first.y[:, -1], **options)
    return np.asarray(second.y[:, -1])


def ball_by_restarts(tolerance: float) -> Array:
    """The bouncing ball, from impact to impact."""
    fall = np.array([0.0, -GRAVITY])

    def ground(t: float, x: Array) -> float:
        return float(x[0])

    def flow(t: float, x: Array) -> Array:
        rate = fall.copy()
        rate[0] = x[1]
        return rate

    ground.terminal, ground.direction = True, -1.0  # type: ignore[attr-defined]
    t, x = 0.0, np.array([1.0, 0.0])
    while True:
        found = solve_ivp(flow, (t, BALL_END), x, method="DOP853", rtol=tolerance, atol=tolerance, events=ground)
        t, x = float(found.t[-1]), found.y[:, -1]
        if found.status != 1:
            return np.asarray(x)
        x = np.array([0.0, -RESTITUTION * x[1]])
