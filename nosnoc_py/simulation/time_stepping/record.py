"""Record of contacts over the steps: events, and series of forces, impulses and slip velocities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nosnoc_py.motion import kinds
from nosnoc_py.motion.record import Values, contact_series
from nosnoc_py.simulation.time_stepping.options import Limits
from nosnoc_py.simulation.time_stepping.steps import CHANGES, CONTACTS, TAKEN, WORK, LeapRows
from nosnoc_py.solution import Event, Series
from nosnoc_py.systems.kinematics import ContactFrames

# With more contacts than this, those that never closed have no series.
MOST_SHOWN = 200


@dataclass(kw_only=True)
class _Impact:
    """Impact that may continue in the next step."""

    contact: int
    t: float
    impulse: np.ndarray
    before: float
    after: float
    energy_gain: float


class ImpulseRecord:
    """Record of impulses, from some steps to the next ones (changed in place)."""

    def __init__(self, frames: ContactFrames, limits: Limits) -> None:
        self.frames, self.limits, self._directions = frames, limits, frames.directions
        self._steps: list[np.ndarray] = []
        self._contacts: list[np.ndarray] = []
        self._impulses: list[np.ndarray] = []
        self._slips: list[np.ndarray] = []
        self._impacts: list[_Impact] = []
        self._open: dict[int, _Impact] = {}
        self._open_after = -1  # the step after which impacts are open
        self._events: list[Event] = []
        self._h = self._last = 0.0  # length of a step; when the last step looked at the contacts
        self._taken = 0

    def add(self, when: np.ndarray, h: float, rows: LeapRows) -> None:
        """Add steps of h seconds that looked at the contacts at some times (k,)."""
        taken, count = rows.counts[TAKEN], rows.counts[CONTACTS]
        self._h = h
        numbers = np.repeat(np.arange(taken), np.diff(rows.ends[:taken], prepend=0))
        if rows.marks[:count].any():
            self._add_impacts(when, rows, numbers, np.flatnonzero(rows.marks[:count]))
        before = np.concatenate([[self._last], when])
        for k, contact, *modes in rows.changes[: rows.counts[CHANGES]].tolist():
            closed, slipping = (bool(modes[0]), bool(modes[1])), (bool(modes[2]), bool(modes[3]))
            time = before[k] if closed[0] != closed[1] else when[k]
            self._events += kinds.events_at(
                float(time), [(self.frames.names[contact], kinds.of_modes(closed, slipping))]
            )
        loaded = np.flatnonzero(rows.impulses[:count, 0] > 0.0)
        self._steps.append(self._taken + numbers[loaded])
        self._contacts.append(rows.contacts[loaded])
        self._impulses.append(rows.impulses[loaded])
        self._slips.append(rows.after[loaded, 1:])
        self._last, self._taken = float(when[-1]), self._taken + int(taken)

    def _add_impacts(self, when: np.ndarray, rows: LeapRows, numbers: np.ndarray, marked: np.ndarray) -> None:
        """Add impacts of steps; one whose contact did not stop in the last step continues in this one."""
        for number in np.unique(numbers[marked]).tolist():
            unfinished: dict[int, _Impact] = {}
            known = self._open if self._open_after == self._taken + number - 1 else {}
            for k in marked[numbers[marked] == number].tolist():
                contact, after, work = (
                    int(rows.contacts[k]),
                    float(rows.after[k, 0]),
                    float(rows.measures[number, WORK]),
                )
                impact = known.get(contact)
                if impact is None:
                    impact = _Impact(
                        contact=contact,
                        t=float(when[number]),
                        impulse=rows.impulses[k].copy(),
                        before=float(rows.approach[k]),
                        after=after,
                        energy_gain=work,
                    )
                    self._impacts.append(impact)
                else:
                    impact.impulse = impact.impulse + rows.impulses[k]
                    impact.after, impact.energy_gain = after, impact.energy_gain + work
                # Without restitution an impact may take two steps to stop: its impulses are added up.
                if after < -self.limits.impact_velocity:
                    unfinished[contact] = impact
            self._open, self._open_after = unfinished, self._taken + number

    @property
    def changes(self) -> int:
        """Number of events so far."""
        return len(self._events) + len(self._impacts)

    def forces(self, steps: int) -> np.ndarray:
        """Return the mean forces (steps, n_c + n_tt) of all directions in steps, impacts included."""
        count, forces = self.frames.count, np.zeros((steps, self.frames.count + self.frames.n_t))
        at, contacts, impulses = (np.concatenate(part) for part in (self._steps, self._contacts, self._impulses))
        forces[at, contacts] = impulses[:, 0] / self._h
        for contact in np.unique(contacts):
            part, own = self.frames.tangents[contact], contacts == contact
            columns = slice(count + part.start, count + part.stop)
            forces[at[own], columns] = impulses[own, 1 : 1 + part.stop - part.start] / self._h
        return forces

    def events(self) -> tuple[Event, ...]:
        """Return all events in the order of time, impacts first at equal times."""
        impacts = [
            Event(i.t, self.frames.names[i.contact], "impact", i.impulse[0], i.before, i.after, i.energy_gain)
            for i in self._impacts
        ]
        return tuple(sorted([*impacts, *self._events], key=lambda event: event.time))

    def series(self, t: np.ndarray) -> tuple[dict[str, Series], dict[str, str]]:
        """Return forces, slip velocities and impulses of impacts, named as by FESD-J; `t` are the nodes.

        Forces are means over steps, in their middle: impulses divided by h, impacts included. In an interval without a
        force only the first and the last zero are listed. Slip velocities are those after steps with a force.
        """
        impacts = self._impacts_by_contact()
        loaded_contacts = self._by_contact() if len(t) > 1 else ()
        return contact_series(
            row for contact, *data in loaded_contacts for row in self._of(contact, t, impacts.get(contact, []), *data)
        )

    def _by_contact(self) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield each contact with the steps in which it had a force, its impulses and slips; of few contacts all."""
        steps, contacts = np.concatenate(self._steps), np.concatenate(self._contacts)
        impulses, slips = np.concatenate(self._impulses), np.concatenate(self._slips)
        order = np.argsort(contacts, kind="stable")
        ends = np.cumsum(np.bincount(contacts, minlength=self.frames.count)).tolist()
        for contact, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=False)):
            if end > start or self.frames.count <= MOST_SHOWN:
                part = order[start:end]
                yield contact, steps[part], impulses[part], slips[part]

    def _of(
        self,
        contact: int,
        t: np.ndarray,
        impacts: list[_Impact],
        steps: np.ndarray,
        impulses: np.ndarray,
        slips: np.ndarray,
    ) -> Iterator[tuple[tuple[str, str, float], Values, Values | None, Values | None]]:
        """Yield the rows of a contact for `contact_series`."""
        # Neighbours of loaded steps are listed too, as zeros, so that lines between the values start and end at zero.
        shown_steps = np.unique(np.concatenate([[0, len(t) - 2], steps - 1, steps, steps + 1]))
        shown_steps = shown_steps[(shown_steps >= 0) & (shown_steps <= len(t) - 2)]
        at, middles = np.searchsorted(shown_steps, steps), 0.5 * (t[shown_steps] + t[shown_steps + 1])
        hits = np.array([impact.t for impact in impacts])
        for column, direction in enumerate(self._of_contact(contact)):
            forces = np.zeros(shown_steps.size)
            forces[at] = impulses[:, column] / self._h
            impact_contacts = (hits, np.array([impact.impulse[column] for impact in impacts])) if impacts else None
            slip = (t[steps + 1], slips[:, column - 1]) if direction[0] == "tangent" else None
            yield direction, (middles, forces), impact_contacts, slip

    def _of_contact(self, contact: int) -> list[tuple[str, str, float]]:
        """Return kind, label and weight of the directions of a contact."""
        count, part = self.frames.count, self.frames.tangents[contact]
        return [self._directions[contact], *self._directions[count + part.start : count + part.stop]]

    def _impacts_by_contact(self) -> dict[int, list[_Impact]]:
        """Return the impacts of each contact."""
        by_contact: dict[int, list[_Impact]] = {}
        for impact in self._impacts:
            by_contact.setdefault(impact.contact, []).append(impact)
        return by_contact
