"""Common parts of the benchmarks of event-selected systems: fixed options, and the keys of `--json`."""

from __future__ import annotations

import time
from typing import Any

import nosnoc_py as ns

# Options that the comparisons set themselves.
CHOSEN = ("eps", "projection", "initial_mode", "sensitivities", "compiled")


def results_of(trajectory: ns.Trajectory, started: float, infeasibility: float = 0.0) -> dict[str, Any]:
    """Return what `--json` prints for an event-selected simulation, which has no objective and no complementarity.

    The infeasibility is the distance of a crossing from its guard, the iterations are the segments, and `started` is
    the first reading of the clock `time.monotonic`.
    """
    return {
        **trajectory.to_dict(),
        "objective": None,
        "complementarity": 0.0,
        "infeasibility": infeasibility,
        "iterations": len(trajectory.t) - 1,
        "wall_seconds": time.monotonic() - started,
    }
