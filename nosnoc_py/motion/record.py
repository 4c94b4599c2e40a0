"""Record of a motion, common to all simulation methods, and its conversion to a `Trajectory`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nosnoc_py.solution.interpolant import Interpolant, RungeKuttaInterpolant, nodes_of
from nosnoc_py.solution.records import Event, Series
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.status import Status
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.quaternions import unit_states

Array = np.ndarray
# Times (m,) and values (m,).
Values = tuple[Array, Array]


@dataclass(frozen=True, eq=False, kw_only=True)
class MotionRecord:
    """Record of a motion: pieces on which the state is a polynomial, events between them, and further series.

    Attributes
    ----------
    t, x : (nodes,), (nodes, n_x)
        Times [s] and states at ends of pieces; both limits where the state jumps.
    interpolant : Interpolant or None
        The pieces; None if there is no motion.
    events : tuple of Event
    series, units
        By name.
    unit_parts : tuple of slice
        Positions of unit quaternions in the state; they are normalised at the nodes.
    """

    t: Array
    x: Array
    interpolant: Interpolant | None = None
    events: tuple[Event, ...] = ()
    series: Mapping[str, Series] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    unit_parts: tuple[slice, ...] = ()

    @classmethod
    def of(cls, pieces: RungeKuttaInterpolant, x_right: Array, x_end: Array | None = None, **more: Any) -> MotionRecord:
        """Return the record of pieces with right ends (E, n_x); `x_end` (n_x,) is the state after a final jump."""
        t, x = nodes_of(pieces.t_left, pieces.h, pieces.x_initial, pieces.x_left, x_right)
        if x_end is not None:
            t, x = np.append(t, t[-1]), np.vstack([x, x_end])
        return cls(t=t, x=x, interpolant=pieces, **more)

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of a `Trajectory`."""
        values = {**vars(self), "x": unit_states(self.x, self.unit_parts)}
        del values["unit_parts"]
        return values

    def trajectory(
        self,
        system: Described,
        p: Array,
        control: tuple[Array, Array],
        status: Status,
        notes: Sequence[str],
        later: Callable[[], Sequence[str]] | None = None,
    ) -> Trajectory:
        """Return the trajectory, with the names of a system; `control` is (u_grid, u), and notes make its message,
        with those that `later` returns when it is read.
        """
        return Trajectory(
            **{**self.fields, "units": {**system.units, **self.units}},
            state_names=system.state_names,
            u_grid=control[0],
            u=control[1],
            control_names=system.control_names,
            parameters=dict(zip(system.parameter_names, p, strict=True)),
            status=status,
            message=message_of(notes, later),
        )


def message_of(notes: Sequence[str], later: Callable[[], Sequence[str]] | None) -> Any:
    """Return the message of a trajectory, or the function that writes it."""
    if later is None:
        return "; ".join(note for note in notes if note)
    return lambda: message_of([*notes, *later()], None)


def contact_series(
    rows: Iterable[tuple[tuple[str, str, float], Values, Values | None, Values | None]],
) -> tuple[dict[str, Series], dict[str, str]]:
    """Return forces, impulses and slip velocities named as by FESD-J, with their units.

    Every row is a direction (kind, label, weight of its force), its force, and optionally impulses and slip velocity.
    """
    series, units = dict[str, Series](), dict[str, str]()
    for (kind, label, weight), *measured in rows:
        names = {f"lambda_{kind}{label}": "N", f"Lambda_{kind}{label}": "N s", f"slip{label}": "m/s"}
        factors = weight, weight, 1.0 / weight
        for (name, unit), values, factor in zip(names.items(), measured, factors, strict=True):
            if values is not None:
                series[name], units[name] = Series(values[0], factor * values[1]), unit
    return series, units
