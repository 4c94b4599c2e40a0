"""Conditions under which a motion with contacts is not a differentiable function of its data (reported as flags)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nosnoc_py.contact_problems.modes import FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.guards import FORCE, KINDS, SLACK
from nosnoc_py.simulation.event_driven.propagation import NO_SIGN
from nosnoc_py.simulation.event_driven.records import Sample
from nosnoc_py.simulation.event_driven.walk import NodeCrossing
from nosnoc_py.tolerances import TOUCHING

# Forces and impulses below this fraction of the largest one count as zero.
ZERO_FORCE = 1e-8


class ContactNodeCrossing(NodeCrossing):
    """Node of a contact system with its non-smooth conditions."""

    def _event(self, guard: int) -> str:
        return KINDS[guard // self._count]

    def _modes(self) -> Iterator[str]:
        yield from self._impact()
        if self.node.accumulation:
            yield "infinitely many impacts come to an end"
        if self.after is not None and self.node.regime is not None:
            yield from self._beginnings(self.after)

    def _impact(self) -> Iterator[str]:
        """Yield impacts at the threshold of restitution and impulses on the edge of their modes."""
        impact, flow = self.node.impact, self.flow
        if impact is None or flow is None:
            return
        frames = flow.frames
        before, after = (flow.kinematics(self.node.t, x) for x in (self.node.before, self.node.after))
        left, right = before.rates, after.rates
        # Restitution jumps at the rest velocity, and so does the velocity after the impact as a function of that
        # before.
        rest = np.broadcast_to(before.slowest(flow.rest_velocity), frames.count)
        size = np.abs(impact.impulses).max()
        for c, name in enumerate(self._names):
            part, mode = frames.tangents[c], impact.modes[c]
            # Without restitution the threshold does not matter: both laws give a rebound of zero.
            new = self._old(c) == FREE and frames.restitution[c] > 0.0 and mode != FREE
            if new and abs(abs(left[c]) - rest[c]) <= NO_SIGN:
                yield f"{name} is hit at rest_velocity"
            if mode == FREE or impact.impulses[c] <= ZERO_FORCE * size:
                continue
            slack = frames.friction[c] * impact.impulses[c] - np.linalg.norm(impact.impulses[frames.count :][part])
            if mode == STICK and slack <= ZERO_FORCE * size:
                yield f"the impulse of {name} lies on the edge of its cone"
            if mode in (SLIP, SLIP_BACK) and np.linalg.norm(right[frames.count :][part]) <= NO_SIGN:
                yield f"{name} slips without speed after its impact"

    def undecided(self) -> list[int]:
        """Return contacts of an impact with neither an impulse nor a velocity after it."""
        impact, flow = self.node.impact, self.flow
        if impact is None or flow is None:
            return []
        at = flow.kinematics(self.node.t, self.node.before)
        rates = flow.kinematics(self.node.t, self.node.after).rates
        size = np.abs(impact.impulses).max()
        return [
            c
            for c in range(self._count)
            if (at.gaps[c] <= at.short(TOUCHING)[c] or self._old(c) != FREE or impact.modes[c] != FREE)
            and abs(impact.impulses[c]) <= ZERO_FORCE * size
            # Gap rate after the impact minus that of the law, -e gamma-; zero means that the law holds without an
            # impulse.
            and abs(rates[c] + impact.rebounding[c] * flow.frames.restitution[c] * at.rates[c]) <= NO_SIGN
        ]

    def _beginnings(self, flow: ContactFlow) -> Iterator[str]:
        """Yield contacts whose mode after the node is on its boundary."""
        node, regime = self.node, self.node.regime
        assert regime is not None
        at = flow.kinematics(node.t, node.after)
        sample = flow.sample(regime, node.t, node.after)
        # Relative to the largest force, and at least to the weight that the closed contacts carry.
        small = ZERO_FORCE * max(regime.inertia(at), float(np.abs(sample.forces).max(initial=0.0)))
        gains = at.jacobian @ flow.rhs(regime, node.t, node.after)[flow.mechanics.system.at_v] + at.curvature
        for c, name in enumerate(self._names):
            mode, part = regime.modes[c], flow.frames.tangents[c]
            rests = mode == FREE and at.gaps[c] <= at.short(TOUCHING)[c] and at.rates[c] <= NO_SIGN
            if rests and not self._leaves(c, gains[c]):
                yield f"{name} is touched without force"
            if mode != FREE and self._value(FORCE, c, sample) <= small:
                yield f"{name} is closed without force"
            if mode == STICK and self._value(SLACK, c, sample) <= small:
                yield f"{name} sticks on the edge of its cone"
            if mode in (SLIP, SLIP_BACK) and np.linalg.norm(at.rates[self._count :][part]) <= NO_SIGN:
                yield from self._starts(c, gains[self._count :][part])

    def _leaves(self, contact: int, gain: float) -> bool:
        """Return True if a contact that was closed opens with a clear acceleration."""
        # The zero of the normal force is the event itself: its derivative has been checked with the guard.
        if self.node.trigger == FORCE * self._count + contact:
            return True
        hit = self.node.impact is not None and self.node.impact.modes[contact] != FREE
        return (hit or self._old(contact) != FREE) and gain > NO_SIGN

    def _starts(self, contact: int, gain: np.ndarray) -> Iterator[str]:
        """Yield slips from rest whose direction is not certain (in the plane it is, given an acceleration or the end of
        a stick).
        """
        name = self._names[contact]
        # In space the direction is that of a vanishing velocity; at the start there is no stick before that would fix
        # its sign.
        if gain.size == 2:
            yield f"{name} begins to slip in space"
        elif self.phase is None:
            yield f"{name} begins to slip at the start"
        elif self.node.trigger != SLACK * self._count + contact and abs(gain[0]) <= NO_SIGN:
            yield f"{name} begins to slip without acceleration"

    def _value(self, kind: int, contact: int, sample: Sample) -> float:
        return float(sample.guards[kind * self._count + contact])

    def _old(self, contact: int) -> int:
        return FREE if self.phase is None else int(self.phase.start.modes[contact])
