"""Common parts of the benchmarks of event-selected systems: fixed options, and the keys of `--json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

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


def median_seconds(
    programs: Mapping[str, Callable[..., Any]],
    given: Sequence[Any] | np.ndarray,
    slow: Collection[str] = (),
    few: int = 0,
) -> dict[str, float]:
    """Return the median processor time [s] of every program over what it is given; they take turns.

    The first call of each does not count; programs that are slow are given the first `few` only.
    """
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for turn, value in enumerate([given[0], *given]):
        for name, call in programs.items():
            if name in slow and turn > few:
                continue
            began = time.process_time()
            call(value)
            if turn:
                taken[name].append(time.process_time() - began)
    return {name: float(np.median(values)) for name, values in taken.items()}
