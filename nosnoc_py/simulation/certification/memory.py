"""Modes of switches with hysteresis along a solution, determined from its states and not from its own claims."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.inclusion import MEMORY, inclusion_of
from nosnoc_py.tolerances import TOUCHING_SOLVED

Array = np.ndarray
# An event belongs to a node within this fraction of the duration.
AT_NODE = 1e-6
# Times within this fraction of the duration are equal.
ROUNDED = 1e-10


def modes_at(system: Any, solution: Trajectory, p: Array, times: Array, *, after: bool = True) -> Array:
    """Return 1 for "high" and -1 for "low" (m, n), one column per switch with hysteresis, at times (m,) since the
    start.

    A threshold is passed if a node of the solution lies beyond it, or if an event is listed and its node lies on it;
    other listed events are ignored. At a node itself the mode is that after it, or before it.
    """
    parts = [part for part in inclusion_of(system)[1] if part.kind == MEMORY] if system.remembers else []
    nodes, modes_at_times = solution.t - solution.t0, np.zeros((times.size, len(parts)))
    moved = times + (ROUNDED if after else -ROUNDED) * solution.duration
    rows = np.clip(np.searchsorted(nodes, moved, "right") - 1, 0, nodes.size - 1)
    for column, part in enumerate(parts):
        function = ca.Function("function", [system.x, system.p], [part.functions])
        values = np.asarray(function(solution.x.T, p)).reshape(-1)
        events = [e.time - solution.t0 for e in solution.events if (e.name, e.kind) == (part.names[0], "switch")]
        claimed = np.abs(nodes[:, None] - np.reshape(events, (1, -1))).min(axis=1, initial=np.inf)
        # At the start the state decides outside of the thresholds, and the model's initial mode between them.
        mode = (1.0 if part.high[0] else -1.0) if abs(values[0]) < 1.0 else np.sign(values[0])
        modes = []
        for value, distance in zip(values, claimed, strict=True):
            # Distance to the end of the mode: -1 ends "high" (mode 1), +1 ends "low" (mode -1).
            left = 1.0 + mode * value
            if left < -TOUCHING_SOLVED or (left <= TOUCHING_SOLVED and distance <= AT_NODE * solution.duration):
                mode = -mode
            modes.append(mode)
        modes_at_times[:, column] = np.array(modes)[rows]
    return modes_at_times
