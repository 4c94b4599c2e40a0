"""Which crossings of a simulation happen at one instant, as far as it can tell, and where it only just has none.

Crossings are judged together whose distance is below a small part of the longest step, or below what the projection
onto their guards has left over: the value |h| / (D h f) where Newton's method ended, and for a step of Euler's of
length tau the change of the guard's speed on the way, tau / 2 |D h f(end) / D h f(start) - 1|. Errors of the scheme
itself do not count: what is differentiated is the motion that was simulated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nosnoc_py.simulation.event_selected.functions import Fields
from nosnoc_py.simulation.event_selected.record import Crossing, Record

Array = np.ndarray

# Crossings that are no further apart, relative to the longest step, are judged as one: their order may be rounding.
AT_ONCE = 1e-7
# So many units in the last place of the time are rounding, too.
UNITS = 8.0
# How much larger than its estimate the error of a projection may be.
SAFETY = 2.0
# A guard that is not crossed yet at the end will be if D h f is above this; one that was left behind at the start rose.
RISES = 1e-8


@dataclass(frozen=True, eq=False)
class Instants:
    """Instants of a simulation with parameters p (n_p,)."""

    fields: Fields
    record: Record
    p: Array

    def near(self, t: float) -> float:
        """What is at once at a time, both [s]."""
        return float(AT_ONCE * self.record.h.max(initial=0.0) + UNITS * np.spacing(abs(t)))

    def left(self) -> Crossing | None:
        """Guards that are on their surfaces at the start and were crossed just before it, the other way, if any."""
        bits = self.record.first.astype(float)
        left = self._rising(0, 1.0 - bits, bits)
        before = np.array(bits)
        before[left] = 1.0 - bits[left]
        return Crossing(node=0, guards=left, before=before, after=bits) if left.size else None

    def due(self) -> Crossing | None:
        """Guards that are on their surfaces at the end and were not crossed, if any: rounding decides that."""
        node = len(self.record.t) - 1
        bits = self.record.bits(node)
        due = self._rising(node, bits, bits)
        after = np.array(bits)
        after[due] = 1.0 - bits[due]
        return Crossing(node=node, guards=due, before=bits, after=after) if due.size else None

    def groups(self) -> list[list[Crossing]]:
        """All crossings, with those at both ends, in groups of those that happen at once."""
        groups: list[list[Crossing]] = []
        for crossing in (self.left(), *self.record.crossings, self.due()):
            if crossing is None:
                continue
            if groups and self._at_once(groups[-1], crossing):
                groups[-1].append(crossing)
            else:
                groups.append([crossing])
        return groups

    def _rising(self, node: int, rows: Array, bits: Array) -> Array:
        """Guards whose functions of so many rows are zero at a node and rise there, with these bits."""
        values, rates = self._guards(node, rows, bits)
        return np.flatnonzero((rates > RISES) & (np.abs(values) <= self.near(self.record.t[node]) * rates))

    def _guards(self, node: int, rows: Array, bits: Array) -> tuple[Array, Array]:
        """Values and rates (m,) of functions of guards, one row for each, at a node, with these bits."""
        x, chosen = self.record.x[node], (rows.astype(int), np.arange(len(rows)))
        slope = np.asarray(self.fields.flow(x, bits, self.p))
        return self.fields.guards(x, self.p)[chosen], self.fields.gradients(x, self.p)[chosen] @ slope

    def _at_once(self, group: list[Crossing], crossing: Crossing) -> bool:
        t, first = self.record.t[crossing.node], group[0]
        apart, near = t - self.record.t[first.node], self.near(t)
        if apart <= near or apart > self.record.h.max(initial=0.0):
            return bool(apart <= near)
        parts = [*group, crossing]
        errors = [self._error(part, [later.guards for later in parts[k:]]) for k, part in enumerate(parts)]
        return bool(apart <= near + SAFETY * (max(errors[:-1]) + errors[-1]))

    def _error(self, crossing: Crossing, ahead: list[Array]) -> float:
        """How wrong [s] the instant of a crossing may be, for itself and the guards ahead, by its projection."""
        node, bits = crossing.node, crossing.before
        values, rates = self._guards(node, bits, bits)
        wrong = np.abs(values / rates)[crossing.guards].max()
        if node > 0 and self.record.euler[node - 1]:
            bits = self.record.bits(node - 1)
            first, last = (self._guards(end, bits, bits)[1][np.concatenate(ahead)] for end in (node - 1, node))
            bent = np.abs(last / first - 1.0)[first > RISES]
            wrong += 0.5 * self.record.h[node - 1] * bent.max(initial=0.0)
        return float(wrong)
