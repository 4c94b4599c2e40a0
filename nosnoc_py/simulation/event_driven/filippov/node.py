"""Nodes of a Filippov system: crossing, sliding, leaving, and constraints that become active.

All motions that are possible after the event are determined (`candidates`). If there are several, the first in the
order crossing, sliding, leaving is taken and the node is marked as not unique.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nosnoc_py.motion import kinds
from nosnoc_py.simulation.event_driven.accumulation import is_as_left
from nosnoc_py.simulation.event_driven.filippov import ambiguity
from nosnoc_py.simulation.event_driven.filippov.candidates import (
    MOST_COMBINATIONS,
    Candidates,
    FilippovCandidate,
    touched_of,
)
from nosnoc_py.simulation.event_driven.filippov.laws import ON
from nosnoc_py.simulation.event_driven.filippov.regime import DISTANCE, FilippovFlow, FilippovRegime, sides
from nosnoc_py.simulation.event_driven.records import Node, Phase
from nosnoc_py.solution import Event
from nosnoc_py.status import Status
from nosnoc_py.systems.inclusion import FORCE, MEMORY, REGION, STEP
from nosnoc_py.tolerances import TOUCHING

Array = np.ndarray
# Part of the time since the first node over which an acceleration is measured: far above rounding.
PROBE = 1e-7
# Relative difference below which two motions are the same.
SAME = 1e-9


class FilippovNodes:
    """Solver of the motions that follow an event, under one control law."""

    def __init__(self, flow: FilippovFlow) -> None:
        self.flow, self.laws = flow, flow.laws

    def cross(
        self,
        t: float,
        x: Array,
        before: FilippovRegime | None,
        ended: Phase | None,
        drift: float,
        past: Sequence[Node] = (),
    ) -> Node:
        """Return the node at time t and state x after a phase in the regime `before`.

        `ended` is the phase if a crossing ended it.
        """
        trigger = None if ended is None or ended.crossing is None else ended.crossing.guard
        node, values = Node(t=t, before=x, after=x, trigger=trigger), self.flow.functions(x)[0]
        if not np.isfinite(values).all():
            return replace(
                node, status=Status.NUMERICAL_ERROR, message="switching functions or constraints are not finite"
            )
        # Bounds of algebraic variables are no events of the inclusion: nothing says how the motion continues.
        if trigger is not None and trigger >= 3 * self.laws.n_y:
            name = self.laws.z_names[(trigger - 3 * self.laws.n_y) % self.laws.n_z]
            return replace(node, status=Status.STEP_FAILED, message=f"{name} reaches its bound")
        modes = sides(self.laws, values) if before is None else before.modes
        touched, ends = self._touched(values, before, trigger), self._ends(modes, values, trigger)
        # Multipliers before the event select the root if equations have several.
        guess = None if before is None else before.guess
        tries = Candidates(self.flow, t, touched, ends, guess)
        if tries.count() > MOST_COMBINATIONS:
            return replace(node, status=Status.STEP_FAILED, message=f"too many surfaces meet: {self._names(touched)}")
        # The guard was violated as soon as the phase began: the same modes would end at once again.
        refused = before.modes if before is not None and _is_at_once(ended) else None
        candidates = tries.find(x, modes, refused)
        if not candidates and ends.any():  # a mode with memory lasts as long as it can
            modes = tuple(-mode if end else mode for mode, end in zip(modes, ends, strict=True))
            candidates = Candidates(self.flow, t, touched, np.zeros_like(ends), guess).find(x, modes, refused)
        if not candidates:
            return replace(node, status=Status.STEP_FAILED, message=self._no_motion_message(touched))
        ranked = sorted(candidates, key=lambda candidate: _rank(before, candidate.regime))
        node = self._next(node, before, ended, touched, ranked)
        if not node.grazing or len(candidates) > 1:
            return node
        if self._is_structural(node, past):
            return replace(node, grazing="")
        return replace(node, agrees=self._is_pushed_back(node))

    def _touched(self, values: Array, before: FilippovRegime | None, trigger: int | None) -> Array:
        """Return surfaces (n_y,) the state is on or has been sliding on.

        With a region all those it shares the motion with.
        """
        laws = self.laws
        touched = touched_of(laws, values, TOUCHING)
        if before is not None:
            # A sliding surface stays in the analysis even if the state has drifted from it.
            touched |= before.on & ((laws.kinds != REGION) | before.shares)
        if trigger is not None:
            touched[trigger % laws.n_y] = laws.kinds[trigger % laws.n_y] != MEMORY
        for inside in laws.partitions:
            # Regions that were active together stay candidates together, even if their indicators have drifted apart.
            if before is not None and touched[inside].any():
                touched[inside] |= before.on[inside]
        return np.asarray(touched)

    def _ends(self, modes: tuple[int, ...], values: Array, trigger: int | None) -> Array:
        """Return switches with hysteresis (n_y,) that are at the end of their mode."""
        # The function runs from -1 to 1 against the mode: a switch in the upper mode ends at -1, in the lower one at
        # +1.
        at_end = np.array(modes, dtype=float) * values + 1.0 <= TOUCHING
        if trigger is not None:
            at_end[trigger % self.laws.n_y] = True
        return np.asarray((self.laws.kinds == MEMORY) & at_end)

    def _next(
        self,
        node: Node,
        before: FilippovRegime | None,
        ended: Phase | None,
        touched: Array,
        candidates: list[FilippovCandidate],
    ) -> Node:
        """Return the node with the first of the possible motions."""
        best = candidates[0]
        events = () if before is None else self._events(node.t, before, best.regime)
        following = replace(node, after=best.x, regime=best.regime, events=events, counted=bool(events))
        if len(candidates) > 1:
            descriptions = ", ".join(self._describe(candidate.regime, touched) for candidate in candidates)
            where = self._names(touched)
            message = f"{len(candidates)} motions are possible at {where}: {descriptions}"
            return replace(following, grazing=where, message=message)
        if ended is not None and self._grazes(ended, before, best.regime):
            assert node.trigger is not None
            return replace(following, grazing=self.laws.names[node.trigger % self.laws.n_y])
        return replace(following, message=ambiguity.message_of(self.flow, node.t, best, touched))

    def _is_structural(self, node: Node, past: Sequence[Node]) -> bool:
        """Return True if a touch without speed follows from the modes: the surface has been left in the same way."""
        regime, flow = node.regime, self.flow
        assert node.trigger is not None
        k = node.trigger % self.laws.n_y

        def acceleration(t: float, x: Array, of: FilippovRegime) -> float:
            motion, h = flow.motion_at(of, t, x), PROBE * (node.t - past[0].t)
            later = flow.motion_at(of, t + h, x + h * motion.rate)
            return float((of.relative(later.rates - motion.rates) / h)[k])

        def look(other: Node) -> tuple[float, float, float]:
            distance = other.regime.relative(flow.functions(other.after)[0])[k]
            rate = other.regime.relative(flow.motion_at(other.regime, other.t, other.after).rates)[k]
            return float(distance), float(rate), acceleration(other.t, other.after, other.regime)

        left = [one for one in past if one.regime is not None and one.regime.modes == regime.modes]
        return is_as_left(left, look, lambda: acceleration(node.t, node.after, regime))

    def _is_pushed_back(self, node: Node) -> bool:
        """Return True if the motion beyond a surface leads back to it, or is the same as on this side.

        A motion that crosses by a rounding then slides for an instant that short: both continuations agree.
        """
        regime, flow = node.regime, self.flow
        assert node.trigger is not None
        k = node.trigger % self.laws.n_y
        if self.laws.kinds[k] != STEP:
            return False
        other = FilippovRegime(
            laws=self.laws,
            modes=tuple(-mode if i == k else mode for i, mode in enumerate(regime.modes)),
            guess=regime.guess,
        )
        here, there = (flow.motion_at(one, node.t, node.after) for one in (regime, other))
        back = other.relative(there.rates)[k]
        same = np.abs(there.rate - here.rate).max() <= SAME * np.abs(here.rate).max(initial=0.0)
        return bool(same or back < -SAME * np.abs(there.rates).max())

    def _grazes(self, ended: Phase, before: FilippovRegime | None, after: FilippovRegime) -> bool:
        """Return True if a surface was touched and the motion continues as before."""
        crossing = ended.crossing
        assert crossing is not None
        return crossing.guard // self.laws.n_y == DISTANCE and before is not None and before.modes == after.modes

    def _events(self, t: float, before: FilippovRegime, after: FilippovRegime) -> tuple[Event, ...]:
        """Return changes of sides in the order of the functions, named as by the finite elements."""
        laws, changes = self.laws, list[tuple[str, kinds.Kind]]()
        for k, name in enumerate(laws.names):
            modes = before.modes[k], after.modes[k]
            if laws.kinds[k] == FORCE:
                changes.append((name, kinds.of_modes([mode == ON for mode in modes], (False, False))))
            if laws.kinds[k] in (STEP, MEMORY):
                changes.append((name, kinds.of_sides(*(np.nan if mode == ON else mode for mode in modes))))
        for inside in laws.partitions:
            active = [inside[regime.on[inside]] for regime in (before, after)]
            # NaN stands for sliding in `kinds.of_sides`: several active regions have no side.
            sides = [np.nan if regions.size > 1 else float(regions[0]) for regions in active]
            changes.append((laws.names[int(inside[0])], kinds.of_sides(*sides)))
        return tuple(kinds.events_at(t, changes))

    def _no_motion_message(self, touched: Array) -> str:
        """Return the reason why no motion continues."""
        if not touched.any():
            return "the algebraic equations have no solution"
        reason = f"no motion continues at {self._names(touched)}"
        if np.bincount(self.laws.parts[touched & (self.laws.kinds == STEP)]).max(initial=0) > 1:
            reason += " with products of step functions; other convex combinations may: give indicators"
        return reason

    def _describe(self, regime: FilippovRegime, touched: Array) -> str:
        words = {ON: "on", 1: "above", -1: "below"}
        sides_ = []
        for k in np.flatnonzero(touched):
            mode = regime.modes[k]
            if self.laws.kinds[k] == REGION:
                sides_ += [f"region {k - int(np.argmax(self.laws.parts == self.laws.parts[k]))}"] if mode == ON else []
            else:
                sides_.append(f"{words[mode]} {self.laws.names[k]}")
        return " and ".join(sides_)

    def _names(self, touched: Array) -> str:
        return ", ".join(dict.fromkeys(self.laws.names[k] for k in np.flatnonzero(touched)))


def _is_at_once(ended: Phase | None) -> bool:
    return ended is not None and ended.crossing is not None and ended.crossing.at_once


def _rank(before: FilippovRegime | None, after: FilippovRegime) -> tuple[int, ...]:
    """Return the rank of a motion that is not unique: crossing first, then sliding, then leaving."""
    laws, old = after.laws, after if before is None else before
    crossed = int(((laws.kinds != REGION) & (old.sign * after.sign < 0.0)).sum())
    for inside in laws.partitions:
        crossed += not (old.on & after.on)[inside].any()
    return (-crossed, -int(after.on.sum()))
