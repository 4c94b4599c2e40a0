"""What the problems of event-selected systems share: options that are chosen, the keys of `--json`."""

from __future__ import annotations

import time
from typing import Any

import nosnoc_py as ns

# Options that the comparisons choose themselves.
CHOSEN = ("eps", "projection", "initial_mode", "sensitivities", "compiled")


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
