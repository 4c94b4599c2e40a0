"""The search for crossings on one piece, of guards that are functions of time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nosnoc_py.motion.crossing import NODES, Crossing, GuardSearch

Array = np.ndarray


def first_crossing(
    guards: Callable[[float], Array],
    low: float,
    high: float,
    *,
    enabled: Array | None = None,
    noise: float | Array = 0.0,
    rates: Callable[[float], Array] | None = None,
    touching: float = 0.0,
) -> Crossing | None:
    """The earliest crossing of guards (n,) from low to high [s]; `rates` (k,) are those of the first k, distances."""

    def evaluate(t: Array) -> tuple[Array, Array]:
        values = np.array([guards(float(s)) for s in t])
        return values, np.empty((t.size, 0)) if rates is None else np.array([rates(float(s)) for s in t])

    times = low + (high - low) * NODES
    values, slopes = evaluate(times)
    size = np.broadcast_to(np.asarray(noise, dtype=float), values.shape[1:])
    search = GuardSearch(evaluate=evaluate, noise=size, touching=touching)
    return search.first(times, values, slopes, values[0] > size if enabled is None else enabled)
