"""Errors of event-selected motions: root mean squares over the nodes, and how far off its guard a crossing is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns

Array = NDArray[np.float64]


def rms(errors: Array) -> float:
    """Root over the mean square of the norms of errors (times, states), in the units of the states."""
    return float(np.sqrt(np.mean(np.square(errors).sum(axis=1))))


def rms_error(trajectory: ns.Trajectory, exact: Callable[[Array], Array]) -> float:
    """RMS difference from the exact motion at the nodes."""
    return rms(trajectory.x - exact(trajectory.t))


def off_guard(trajectory: ns.Trajectory, system: ns.EventSelectedSystem) -> float:
    """Largest |h_k| at a crossing of guard k, of a system in NumPy, in the units of the guards."""
    assert system.functions is not None
    p = () if system.p.numel() == 0 else (np.asarray(system.p_default),)
    values = [
        abs(system.functions(trajectory(event.time), *p)[system.guard_names.index(event.name)])
        for event in trajectory.events
    ]
    return float(max(values, default=0.0))
