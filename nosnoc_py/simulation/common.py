"""What all simulators check and say alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.systems.controls import Control
from nosnoc_py.systems.symbols import scalar

# Kinetic energy gained in all impacts of a simulation that is worth a word [J].
ENERGY_TOLERANCE = 1e-9


def seconds_of(duration: Any) -> float:
    """A duration as a number; `OptionError` unless it is positive and finite."""
    seconds = scalar(duration, "duration")
    if not 0 < seconds < np.inf:
        raise OptionError(f"duration: expected a positive finite number of seconds, given {duration!r}.")
    return seconds


def energy_note(gain: float) -> list[str]:
    """A word about energy [J] that came from nowhere, or none."""
    return [f"impacts gained {gain:.3g} J of kinetic energy"] if gain > ENERGY_TOLERANCE else []


def check_control(control: Control) -> None:
    """Refuse a feedback law: its derivative is not known."""
    if control.feedback:
        raise OptionError(
            "sensitivities: the control is a function of (t, x), whose derivative with respect to x is not known; "
            "give u as a function of t, as rows or as a constant, or write the law into the force of the system."
        )
