"""The derivative of the oscillator's motion by its start, through the switch: transition, saltation, transition."""

from __future__ import annotations

import numpy as np

from models import oscillator

Array = np.ndarray
DURATION = float(np.pi / 2.0)


def exact(duration: float = DURATION, constants: oscillator.Constants = oscillator.STANDARD) -> Array:
    """d x(T) / d x_0 (2, 2): transition, saltation, transition."""
    until, x = constants.switch_time, oscillator.exact(constants.switch_time, constants)[0]
    before, after = (np.array([[1.0, sign * constants.frequency], [-sign * constants.frequency, 1.0]]) @ x
                     for sign in (1.0, -1.0))  # fmt: skip
    saltation = np.eye(2) + np.outer(after - before, x) / (x @ before)
    return _turn(constants.frequency, duration - until) @ saltation @ _turn(-constants.frequency, until)


def _turn(frequency: float, t: float) -> Array:
    """e^t times a rotation: the matrix exponential of [1, -w; w, 1] t."""
    c, s = np.cos(frequency * t), np.sin(frequency * t)
    return np.asarray(np.exp(t) * np.array([[c, -s], [s, c]]))
