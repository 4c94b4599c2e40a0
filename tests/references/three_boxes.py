"""The three boxes on a line: the exact motion under a control, and the objective of FESD-J, Section 5.3, of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from models import three_boxes

TARGET = (-7.0, 1.0, 0.0, 1.0, 6.0, 1.0, *[0.0] * 6)
WEIGHTS = (10.0, 1e-3, 1.0, 1e-3, 10.0, 1e-3, *[0.1] * 6)
CONTROL_WEIGHT = 0.1
TERMINAL_FACTOR = 100.0
HORIZONTAL = (0, 2, 4, 6, 8, 10)  # of the states of the full model: those of the reduced one


def reduced_objective(motion: three_boxes.ReducedMotion) -> float:
    """The objective of an exact motion, heights at their references; exact up to rounding.

    The integrand is a polynomial of degree 4 on every piece, for which three Gauss nodes are exact.
    """
    weights, target = np.array(WEIGHTS)[list(HORIZONTAL)], np.array(TARGET)[list(HORIZONTAL)]
    nodes, shares = np.polynomial.legendre.leggauss(3)
    lengths = np.diff(motion.t)
    s = 0.5 * lengths[:, None] * (nodes + 1.0)
    x = motion.x[:, None] + motion.v[:, None] * s[..., None] + 0.5 * motion.a[:, None] * s[..., None] ** 2
    v = motion.v[:, None] + motion.a[:, None] * s[..., None]
    distance = (np.concatenate([x, v], axis=-1) - target) ** 2 @ weights
    integral = float(0.5 * lengths @ (distance @ shares) + CONTROL_WEIGHT * lengths @ motion.u**2)
    return integral + TERMINAL_FACTOR * float((motion.end - target) ** 2 @ weights)


def reduced_simulation(u: ArrayLike, horizon: float = 6.0) -> tuple[three_boxes.ReducedMotion, float]:
    """What a control (N,) really does: the exact motion of the boxes, with times, states and impacts; its objective."""
    motion = three_boxes.reduced_motion(u, horizon)
    return motion, reduced_objective(motion)
