"""Record of contacts over the steps: events, and series of forces, impulses and slip velocities."""

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
    """Record of impulses, step by step (changed in place)."""

    def __init__(self, frames: ContactFrames, limits: Limits) -> None:
        self.frames, self.limits, self._directions = frames, limits, frames.directions
        count = frames.count
        self._has_friction = np.array([frames.width(contact) > 0 for contact in range(count)], dtype=bool)
        self._loaded_before = np.zeros(count, dtype=bool)  # in the last step
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
        """Add a step from t of h seconds."""
        self._h, when = h, t + step.gap_time * h
        loaded = step.impulses[:, 0] > 0.0
        contacts = step.contacts[loaded]
        self._add_impacts(when, step, np.flatnonzero(loaded))
        slips = step.after[loaded, 1:]
        self._add_mode_changes(when, contacts, slips)
        self._contacts.append(contacts)
        self._impulses.append(step.impulses[loaded])
        self._slips.append(slips)
        self._last = when

    def _add_impacts(self, when: float, step: StepResult, loaded: np.ndarray) -> None:
        """Add impacts of a step; an impact whose contact did not stop in the last step continues in this one."""
        unfinished: dict[int, _Impact] = {}
        fast = step.approach[loaded] < -self.limits.impact_velocity
        # A contact that has been touching is no impact, however fast rounding or other contacts move it.
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
            # Without restitution an impact may take two steps to stop: its impulses are added up.
            if after < -self.limits.impact_velocity:
                unfinished[contact] = impact
        self._open = unfinished

    def _add_mode_changes(self, when: float, contacts: np.ndarray, slips: np.ndarray) -> None:
        """Add changes of modes: contact after two steps in a row with an impulse, release after two without one."""
        loaded_now = np.zeros_like(self._loaded_before)
        loaded_now[contacts] = True
        slipping = np.zeros_like(loaded_now)
        slipping[contacts] = np.sqrt((slips**2).sum(axis=1)) > self.limits.rest_velocity
        both = loaded_now & self._loaded_before
        # Hysteresis of one step: a single step with or without impulse is a bounce or rounding, no change of contact.
        touching = (self._touching | both) & (loaded_now | self._loaded_before)
        slipping = np.where(loaded_now, slipping, self._slipping)
        # Slip starts or ends only between two steps with a force: a step without force has no information about it.
        slides = self._has_friction & both & self._touching & (slipping != self._slipping)
        for contact in np.flatnonzero((touching != self._touching) | slides).tolist():
            closed = self._touching[contact], touching[contact]
            kind = kinds.of_modes(closed, (self._slipping[contact], slipping[contact]))
            time = self._last if closed[0] != closed[1] else when
            self._events += kinds.events_at(time, [(self.frames.names[contact], kind)])
        self._touching, self._slipping, self._loaded_before = touching, slipping, loaded_now

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
