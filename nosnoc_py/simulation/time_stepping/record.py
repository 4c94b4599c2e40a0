"""What contacts did over the steps: events and series."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nosnoc_py.motion import kinds
from nosnoc_py.motion.record import Values, contact_series
from nosnoc_py.simulation.time_stepping.options import Limits
from nosnoc_py.simulation.time_stepping.scheme import StepResult
from nosnoc_py.solution import Event, Series
from nosnoc_py.systems.kinematics import ContactFrames

# Contacts that never closed have series of zeros only where there are no more contacts than these.
MOST_SHOWN = 200


@dataclass(kw_only=True)
class _Impact:
    """An impact that may go on in the next step."""

    contact: int
    t: float
    impulse: np.ndarray
    before: float
    after: float
    energy_gain: float


class ImpulseRecord:
    """Collects impulses step by step; changed in place."""

    def __init__(self, frames: ContactFrames, limits: Limits) -> None:
        self.frames, self.limits, self._directions = frames, limits, frames.directions
        count = frames.count
        self._rubs = np.array([frames.width(contact) > 0 for contact in range(count)], dtype=bool)
        self._carried = np.zeros(count, dtype=bool)  # in the last step
        self._touching, self._slipping = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        self._contacts: list[np.ndarray] = []
        self._impulses: list[np.ndarray] = []
        self._slips: list[np.ndarray] = []
        self._impacts: list[_Impact] = []
        self._open: dict[int, _Impact] = {}
        self._events: list[Event] = []
        self._h = 0.0
        self._last = 0.0  # when the last step looked at the contacts

    def add(self, t: float, h: float, step: StepResult) -> None:
        """One step from t over h seconds."""
        self._h, when = h, t + step.looked * h
        loaded = step.impulses[:, 0] > 0.0
        contacts = step.contacts[loaded]
        self._hits(when, step, np.flatnonzero(loaded))
        slips = step.after[loaded, 1:]
        self._modes(when, contacts, slips)
        self._contacts.append(contacts)
        self._impulses.append(step.impulses[loaded])
        self._slips.append(slips)
        self._last = when

    def _hits(self, when: float, step: StepResult, loaded: np.ndarray) -> None:
        """Impacts of this step; one whose contact did not close all the way in the last step goes on in this one."""
        still: dict[int, _Impact] = {}
        fast = step.approach[loaded] < -self.limits.impact_velocity
        for k in loaded[fast & ~self._touching[step.contacts[loaded]]].tolist():
            contact, after = int(step.contacts[k]), float(step.after[k, 0])
            impact = self._open.get(contact)
            if impact is None:
                impact = _Impact(
                    contact=contact,
                    t=when,
                    impulse=step.impulses[k],
                    before=float(step.approach[k]),
                    after=after,
                    energy_gain=step.work,
                )
                self._impacts.append(impact)
            else:
                impact.impulse = impact.impulse + step.impulses[k]
                impact.after, impact.energy_gain = after, impact.energy_gain + step.work
            if after < -self.limits.impact_velocity:
                still[contact] = impact
        self._open = still

    def _modes(self, when: float, contacts: np.ndarray, slips: np.ndarray) -> None:
        """Contacts that stay and go: two steps in a row with an impulse, or without one."""
        carried = np.zeros_like(self._carried)
        carried[contacts] = True
        slipping = np.zeros_like(carried)
        slipping[contacts] = np.sqrt((slips**2).sum(axis=1)) > self.limits.rest_velocity
        both = carried & self._carried
        touching = (self._touching | both) & (carried | self._carried)
        slipping = np.where(carried, slipping, self._slipping)
        # Slip begins or ends where both steps have a force: a step without one tells nothing of it.
        slides = self._rubs & both & self._touching & (slipping != self._slipping)
        for contact in np.flatnonzero((touching != self._touching) | slides).tolist():
            closed = self._touching[contact], touching[contact]
            kind = kinds.of_modes(closed, (self._slipping[contact], slipping[contact]))
            time = self._last if closed[0] != closed[1] else when
            self._events += kinds.events_at(time, [(self.frames.names[contact], kind)])
        self._touching, self._slipping, self._carried = touching, slipping, carried

    def events(self) -> tuple[Event, ...]:
        """All events in the order of time, impacts first among those of one time."""
        impacts = [
            Event(i.t, self.frames.names[i.contact], "impact", i.impulse[0], i.before, i.after, i.energy_gain)
            for i in self._impacts
        ]
        return tuple(sorted([*impacts, *self._events], key=lambda event: event.time))

    def series(self, t: np.ndarray) -> tuple[dict[str, Series], dict[str, str]]:
        """Forces, slip velocities and impulses of impacts, by the names of FESD-J; `t` are the nodes.

        Forces are means of steps, at their middle: impulses over h, those of impacts included. Between steps without
        a force only the first and the last zero are kept. Slip velocities are those after steps with a force.
        """
        impacts = self._impacts_by_contact()
        every = self._by_contact() if len(t) > 1 else ()
        return contact_series(
            row for contact, *data in every for row in self._of(contact, t, impacts.get(contact, []), *data)
        )

    def _by_contact(self) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """Every contact with the steps in which it had a force, its impulses and slips; few contacts: all of them."""
        sizes = [len(contacts) for contacts in self._contacts]
        steps, contacts = np.repeat(np.arange(len(sizes)), sizes), np.concatenate(self._contacts)
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
        """What `contact_series` asks of one contact."""
        kept = np.unique(np.concatenate([[0, len(t) - 2], steps - 1, steps, steps + 1]))
        kept = kept[(kept >= 0) & (kept <= len(t) - 2)]
        at, middles = np.searchsorted(kept, steps), 0.5 * (t[kept] + t[kept + 1])
        hits = np.array([impact.t for impact in impacts])
        for column, direction in enumerate(self._of_contact(contact)):
            forces = np.zeros(kept.size)
            forces[at] = impulses[:, column] / self._h
            struck = (hits, np.array([impact.impulse[column] for impact in impacts])) if impacts else None
            slip = (t[steps + 1], slips[:, column - 1]) if direction[0] == "tangent" else None
            yield direction, (middles, forces), struck, slip

    def _of_contact(self, contact: int) -> list[tuple[str, str, float]]:
        """Kind, label and weight of the directions of a contact."""
        count, part = self.frames.count, self.frames.tangents[contact]
        return [self._directions[contact], *self._directions[count + part.start : count + part.stop]]

    def _impacts_by_contact(self) -> dict[int, list[_Impact]]:
        found: dict[int, list[_Impact]] = {}
        for impact in self._impacts:
            found.setdefault(impact.contact, []).append(impact)
        return found
