"""Derivatives of a bouncing ball's motion, in closed form."""

from __future__ import annotations

import numpy as np

GRAVITY = 9.81


def ball_by_hand(e: float, height: float, velocity: float, end: float, impacts: int) -> tuple[np.ndarray, np.ndarray]:
    """d x(T) / d x0 and rates of the impact times: t_k = t_1 + 2 w / g (e + ... + e^(k-1)), w^2 = v^2 + 2 g h."""
    w = np.sqrt(velocity**2 + 2 * GRAVITY * height)
    dw = np.array([GRAVITY, velocity]) / w
    flights = np.array([sum(e**j for j in range(1, k)) for k in range(1, impacts + 1)])
    times = (velocity + w) / GRAVITY + 2 * w / GRAVITY * flights
    dt = (np.array([0.0, 1.0]) + dw) / GRAVITY + 2 / GRAVITY * flights[:, None] * dw
    s, launch = end - times[-1], e**impacts
    dx = [launch * (dw * s - w * dt[-1]) + GRAVITY * s * dt[-1], launch * dw + GRAVITY * dt[-1]]
    return np.array(dx), dt
