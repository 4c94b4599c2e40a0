"""The rest of a trajectory, from later on, prolonged to its old length: a guess for a receding horizon.

The first element is cut and keeps its polynomial, evaluated at new nodes; at the end one element holds the last state.
Invariants: the shifted trajectory begins at time zero and has the duration of the old one; shifted by whole control
stages it has as many stages, and carries the unshifted iterate, whose variables the transcription moves one by one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nosnoc_py.errors import TranscriptionError, is_whole
from nosnoc_py.solution.arrays import Array
from nosnoc_py.solution.interpolant import Interpolant, RungeKuttaInterpolant, nodes_of
from nosnoc_py.solution.records import Series

if TYPE_CHECKING:
    from nosnoc_py.solution.trajectory import Trajectory

# Times closer than this, relative to the length of the interval, are one time.
SAME = 1e-9


# Fields that the shifted trajectory shares with the whole one.
SAME_FIELDS = ("state_names", "control_names", "parameters", "status", "units")


def shifted(trajectory: Trajectory, duration: float | None = None, stages: int | None = None) -> dict[str, Any]:
    """Return the fields of the rest of a trajectory, a `Shifted`; see `Trajectory.shift`."""
    later, whole = _length(trajectory, duration, stages)
    start, end = trajectory.t0 + later, float(trajectory.t[-1])
    slack = SAME * trajectory.duration
    interpolant = trajectory.interpolant or RungeKuttaInterpolant.linear(trajectory.t, trajectory.x)
    # The nodes follow from the dense output, so that both agree also at the cut.
    dense = _prolonged(interpolant, start, end, later, slack)
    t, x = nodes_of(dense.t_left, dense.h, dense.x_initial, dense.x_left, dense.x_right)
    u_grid, u = _controls(trajectory, later, max(whole, 1), slack)
    control = trajectory.control_interpolant
    return dict(
        t=t,
        x=x,
        u_grid=u_grid,
        u=u,
        **{name: getattr(trajectory, name) for name in SAME_FIELDS},
        interpolant=dense,
        control_interpolant=None if control is None else _prolonged(control, start, end, later, slack),
        events=tuple(replace(e, time=e.time - start) for e in trajectory.events if e.time > start + slack),
        series=_series(trajectory, start, slack),
        later=later,
        stages=whole,
        # A second shift has no iterate: `stages` counts from the solution itself.
        w=getattr(trajectory, "w", np.empty(0)) if whole and not hasattr(trajectory, "later") else np.empty(0),
        layout_key=getattr(trajectory, "layout_key", ""),
        branch=getattr(trajectory, "branch", None),
    )


def _length(trajectory: Trajectory, duration: Any, stages: Any) -> tuple[float, int]:
    """Return the length of the shift [s] and the number of equal control stages in it, 0 if they are not equal."""
    if duration is not None and stages is not None:
        raise TranscriptionError("shift: give a duration [s] or a number of control stages, not both.")
    edges, whole = trajectory.u_grid - trajectory.u_grid[0], 0
    if duration is None:
        whole = 1 if stages is None else stages
        if not is_whole(whole, 1, len(trajectory.u) - 1):
            raise TranscriptionError(
                f"shift: expected a whole number of control stages, at least 1 and fewer than all "
                f"{len(trajectory.u)}, given {whole!r}; without control stages give duration=."
            )
        duration = edges[whole]
    elif isinstance(duration, bool) or not isinstance(duration, int | float | np.integer | np.floating):
        raise TranscriptionError(f"shift: duration: expected a number of seconds, given {duration!r}.")
    length = trajectory.duration
    if not 0.0 < duration < length * (1 - SAME):
        raise TranscriptionError(
            f"shift: expected more than 0 s and less than the whole trajectory, {length:g} s, given {duration:g} s."
        )
    # Only on equal stages is every variable a stage later one of the same place.
    equal = len(trajectory.u) > 0 and bool(np.ptp(np.diff(edges)) <= SAME * length)
    nearest = int(np.argmin(np.abs(edges - duration)))
    return float(duration), nearest if equal and abs(edges[nearest] - duration) <= SAME * length else 0


def _prolonged(interpolant: Interpolant, start: float, end: float, later: float, slack: float) -> RungeKuttaInterpolant:
    """Return the elements from `start` on [s], the first one cut there, with a last one that holds the state."""
    if not isinstance(interpolant, RungeKuttaInterpolant):
        raise TranscriptionError(f"shift: a trajectory with a {type(interpolant).__name__} cannot be shifted.")
    # The second condition keeps elements whose length is negative by the tolerance of a solver.
    keep = (interpolant.t_left + interpolant.h > start + slack) | (interpolant.t_left > start + slack)
    t_left, h = interpolant.t_left[keep], interpolant.h[keep]
    x_left, x_stages = interpolant.x_left[keep].copy(), interpolant.x_stages[keep].copy()
    # The first element begins before the shift: its polynomial is evaluated at the nodes of the remaining part.
    if t_left[0] < start - slack:
        h[0] -= start - t_left[0]
        t_left[0] = start
        x_left[0] = interpolant(start, "+")
        # "-": an event at the right end of the element belongs to the next one.
        x_stages[0] = interpolant(start + interpolant.c * h[0], "-")
    last = interpolant(end, "+")
    rest = np.broadcast_to(last, (1, interpolant.c.size, last.size))
    return RungeKuttaInterpolant(
        t_left=np.append(t_left, end) - start,
        h=np.append(h, later),
        c=interpolant.c,
        x_left=np.vstack([x_left, last]),
        x_stages=np.concatenate([x_stages, rest]),
    )


def _controls(trajectory: Trajectory, later: float, stages: int, slack: float) -> tuple[Array, Array]:
    """Return the control stages; the last control is held to the end in `stages` stages."""
    if not len(trajectory.u):
        return np.zeros(1), trajectory.u
    grid = trajectory.u_grid - trajectory.u_grid[0] - later
    # A stage that ends at the shift, up to round-off, is over.
    keep = grid[1:] > slack
    end = grid[-1]
    edges = np.concatenate([[0.0], grid[1:][keep], end + later * np.arange(1, stages + 1) / stages])
    return edges, np.vstack([trajectory.u[keep], np.repeat(trajectory.u[-1:], stages, axis=0)])


def _series(trajectory: Trajectory, start: float, slack: float) -> dict[str, Series]:
    return {
        # Times within the slack before the start become the start.
        name: Series(np.maximum(series.t[keep] - start, 0.0), series.values[keep], series.role)
        for name, series in trajectory.series.items()
        if (keep := series.t > start - slack).any()
    }
