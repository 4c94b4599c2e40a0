"""Collected output of the loop: nodes and impacts, and their conversion to a trajectory.

Energies and gaps are series at the nodes. Rotations between nodes are interpolated about one axis, so that nodes are
less than half a turn apart (`output_buffers.has_turned_far`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nosnoc_py.motion.record import MotionRecord
from nosnoc_py.solution import Event, Series, Trajectory
from nosnoc_py.solution.rigid_motion import RigidMotion
from nosnoc_py.status import Status
from nosnoc_py.systems.rigid_body import RigidBody

STATES = 18
ENERGIES = ("energy_translational", "energy_potential", "energy_rotational")
TIME, PLANE, KIND, IMPULSE, BEFORE, AFTER, GAIN, CLIPPED = range(8)


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordBuffers:
    """Rows of all chunks; their columns are those of `output_buffers.write_node` and `output_buffers.write_event`."""

    nodes: list[np.ndarray] = field(default_factory=list)
    events: list[np.ndarray] = field(default_factory=list)

    def add(self, nodes: np.ndarray, events: np.ndarray) -> None:
        """Copy the filled rows of a chunk."""
        # Copies, because the loop overwrites its buffers in the next chunk.
        self.nodes.append(nodes.copy())
        self.events.append(events.copy())

    @property
    def last(self) -> float:
        """Time of the last node [s]."""
        # The last chunks may have no node, if few steps are recorded.
        return next(float(nodes[-1, 0]) for nodes in reversed(self.nodes) if len(nodes))

    def trajectory(self, body: RigidBody, status: Status, notes: list[str]) -> Trajectory:
        """Return the trajectory with named series and events."""
        nodes, events = np.concatenate(self.nodes), np.concatenate(self.events)
        t, x = nodes[:, 0], nodes[:, 1 : 1 + STATES]
        series, units = series_of(body, t, x, nodes[:, 1 + STATES :])
        motion = MotionRecord(
            t=t,
            x=x,
            interpolant=RigidMotion(t=t, x=x, mass=np.array(body.mass)),
            events=events_of(body, events),
            series=series,
            units=units,
        )
        # No controls: one interval over the whole time, with zero columns.
        control = t[[0, -1]], np.empty((1, 0))
        return motion.trajectory(body, np.zeros(0), control, status, [*notes, *friction_notes(events)])


def series_of(
    body: RigidBody, t: np.ndarray, x: np.ndarray, gaps: np.ndarray
) -> tuple[dict[str, Series], dict[str, str]]:
    """Return energies [J] and gaps [m] at the nodes as series, and their units."""
    energies = body.energies(x)
    series = dict(zip(ENERGIES, energies.T, strict=True)) | {"energy": energies.sum(axis=1)}
    units = dict.fromkeys(series, "J")
    for plane, values in zip(body.planes, gaps.T, strict=True):
        series[f"gap[{plane.name}]"], units[f"gap[{plane.name}]"] = values, "m"
    return {name: Series(t, values) for name, values in series.items()}, units


def events_of(body: RigidBody, rows: np.ndarray) -> tuple[Event, ...]:
    """Return the events: impacts, and contacts at which the body comes to rest."""
    names = [plane.name for plane in body.planes]
    return tuple(
        Event(row[TIME], names[int(row[PLANE])], "impact", row[IMPULSE], row[BEFORE], row[AFTER], row[GAIN])
        if row[KIND] == 0.0
        else Event(row[TIME], names[int(row[PLANE])], "contact")
        # Lists, so that events hold plain floats and not NumPy scalars.
        for row in rows.tolist()
    )


def friction_notes(events: np.ndarray) -> list[str]:
    """Return a note on friction that was reduced to avoid a gain of kinetic energy, or an empty list."""
    clipped = events[:, CLIPPED]
    count = np.count_nonzero(clipped)
    if not count:
        return []
    return [
        f"the friction of {count} impacts was reduced, since with Newton's restitution it would have gained "
        f"{clipped.sum():.3g} J of kinetic energy"
    ]
