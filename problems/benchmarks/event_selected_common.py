"""What the problems of event-selected systems share: errors over a motion, residuals, the other keys of `--json`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns

Array = NDArray[np.float64]

# Options that the comparisons choose themselves.
CHOSEN = ("eps", "projection", "initial_mode", "sensitivities", "compiled")


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


def results_of(trajectory: ns.Trajectory, started: float, infeasibility: float = 0.0) -> dict[str, Any]:
    """What `--json` prints for an event-selected simulation, which has neither an objective nor complementarity.

    The infeasibility is how far off its guard a crossing is, the iterations are the segments, `started` is when the
    clock `time.monotonic` was read first.
    """
    return {
        **trajectory.to_dict(),
        "objective": None,
        "complementarity": 0.0,
        "infeasibility": infeasibility,
        "iterations": len(trajectory.t) - 1,
        "wall_seconds": time.monotonic() - started,
    }
