"""Sensitivities of a contact system: impacts, and derivatives of its motion and its guards, for the walk of `walk`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from nosnoc_py.audit.redundancy import REDUNDANT
from nosnoc_py.contact_problems.modes import CLOSED, FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.motion.variations import projection
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.guards import FORCE, GAP, SLIP_SPEED
from nosnoc_py.simulation.event_driven.history import History
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime
from nosnoc_py.simulation.event_driven.phase import Phase
from nosnoc_py.simulation.event_driven.propagation import SLOW
from nosnoc_py.simulation.event_driven.records import Node
from nosnoc_py.simulation.event_driven.smoothness import ContactPassage
from nosnoc_py.simulation.event_driven.variations import ContactMotion, ContactVariations
from nosnoc_py.simulation.event_driven.walk import Passage, Slope, VariationWalk
from nosnoc_py.solution.sensitivity import Sensitivity
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control

Array = np.ndarray
# A slip in space has no direction where it ends, and derivatives like 1 / (time to the end): from about so much before
# [s], one Euler step goes to the end. It begins with a step of the simulation, if one begins in the range.
BEFORE_REST = 1e-6
REST_RANGE = (1e-8, 1e-4)
# Two ways to write an undecided impact are one where their derivatives agree to this.
SAME = 1e-7


def sensitivity_of(system: CLS, history: History, control: Control, grid: Array) -> Sensitivity:
    """Derivatives of states and of times of events by x0, p and the values of a control on the intervals of a grid."""
    return _ContactWalk(ContactVariations(system), system.n_u, history, control, grid).run()


class _ContactWalk(VariationWalk):
    """The walk of a contact system."""

    passage = ContactPassage

    def __init__(
        self, variations: ContactVariations, n_u: int, history: History, control: Control, grid: Array
    ) -> None:
        super().__init__(variations.n_x, variations.n_w, n_u, history, control, grid)
        self.variations = variations

    def _put(self, flow: ContactFlow, node: Node) -> Array:
        """Derivative (n_w, n_w) of the state on the constraints of its closed contacts with respect to w.

        A contact with a velocity that its mode does not admit loses it by an impulse within no time, and one that is a
        little open closes again: what is left is the state moved along the directions of its contact forces.
        """
        regime = node.regime
        if not regime.rows.size:
            return np.eye(self.n_w)
        gaps_w, rates_w = self.variations.geometry(self._w(node.after))
        columns, system = regime.columns(flow.look(node.t, node.after)), self.variations.system
        moved, pushed = (np.zeros((self.n_w, count)) for count in (regime.closed.size, columns.shape[1]))
        moved[system.at_q] = system.mechanics.moved(node.after, flow.p, columns[:, : regime.closed.size])
        pushed[system.at_v] = columns
        on_gaps = projection(gaps_w[regime.closed], moved, REDUNDANT)
        return projection(rates_w[regime.rows], pushed, REDUNDANT) @ on_gaps

    def _jump(self, passage: Passage, W: Array) -> Array:
        """R_w, where all modes that an impact may be written in agree on what becomes of W."""
        node, impact = passage.node, passage.node.impact
        if impact is None:
            return super()._jump(passage, W)
        assert isinstance(passage, ContactPassage)
        w, at_v = self._w(node.before), self.variations.system.at_v
        look = passage.flow.look(node.t, node.before)
        after = look.velocity + look.response @ impact.impulses
        slip = look.rates_of(after)[self.variations.frames.count :]
        impulses, undecided = impact.impulses, passage.undecided()
        jump = self.variations.jump(impact.modes, impact.thrown, w, after, impulses)
        for modes in self._others(impact.modes, undecided, slip):
            other = self.variations.jump(modes, impact.thrown, w, after, impulses)
            moved = ((other - jump) @ W[: self.n_w])[at_v]
            if not np.abs(moved).max(initial=0.0) <= SAME * max(1.0, np.abs(W).max()):
                names = [self.variations.frames.names[c] for c in undecided]
                self._flag(node.t, f"{', '.join(names)}: neither an impulse nor a velocity in an impact")
                break
        return jump

    def _others(self, modes: Sequence[int], undecided: Sequence[int], slip: Array) -> list[tuple[int, ...]]:
        """All ways to write an impact whose undecided contacts are open or hit, for slips (n_tt,) after it."""
        choices = [(FREE, self._hit(c, slip)) if c in undecided else (mode,) for c, mode in enumerate(modes)]
        return [other for other in product(*choices) if other != tuple(modes)]

    def _hit(self, contact: int, slip: Array) -> int:
        """The mode of a contact that is hit without an impulse: it goes on as it does."""
        part = slip[self.variations.frames.tangents[contact]]
        if not part.size:
            return CLOSED
        if np.linalg.norm(part) <= SLOW:
            return STICK
        return SLIP_BACK if part.size == 1 and part[0] < 0.0 else SLIP

    def _motion(self, regime: ContactRegime, flow: ContactFlow, t: float, w: Array) -> ContactMotion:
        u = flow.control(t, w[: self.variations.n_x])
        return self.variations.motion(regime.modes, w, u, redundant=regime.redundant)

    def _guard(
        self, guard: int, regime: ContactRegime, flow: ContactFlow, t: float, w: Array, motion: ContactMotion
    ) -> Slope:
        frames, look = flow.frames, flow.look(t, w[: self.n_x])
        kind, contact = divmod(guard, frames.count)
        part = slice(frames.count + frames.tangents[contact].start, frames.count + frames.tangents[contact].stop)
        gaps_w, rates_w = self.variations.geometry(w)
        none = np.zeros(motion.forces_u.shape[1])
        if kind == GAP:
            return Slope(w=gaps_w[contact], u=none)
        if kind == SLIP_SPEED:
            return Slope(w=regime.slip_direction(contact, look.rates) @ rates_w[part], u=none)
        shares, cone = np.zeros(motion.forces.size), np.zeros(self.n_w)
        shares[contact] = 1.0
        if kind != FORCE:
            friction = motion.forces[part]
            shares[contact] = frames.friction[contact]
            cone = motion.forces[contact] * self.variations.friction(w)[contact]
            shares[part] = -friction / max(float(np.linalg.norm(friction)), np.finfo(float).tiny)
        return Slope(
            w=shares @ motion.forces_w + cone,
            u=shares @ motion.forces_u,
            size=max(regime.inertia(look), float(np.abs(motion.forces).max())),
            loose=bool(motion.loose[shares != 0.0].any()),
        )

    def _arrival(self, node: Node, rate: Array) -> Array:
        made, system = np.array(rate), self.variations.system
        made[system.at_q] = system.mechanics.moved(node.before, self.history.p, node.before[system.at_v])
        return made

    def _until(self, phase: Phase) -> float:
        return phase.t if phase.crossing is None else _last(phase, phase.crossing.guard)


def _last(phase: Phase, trigger: int) -> float:
    """The time up to which the variations of a phase are carried: short of the end of a slip in space."""
    frames = phase.regime.frames
    kind, contact = divmod(trigger, frames.count)
    if not phase.steps or kind != SLIP_SPEED or frames.width(contact) < 2:
        return phase.t
    starts = np.array([step.t[0] for step in phase.steps])
    low, high = phase.t - np.array(REST_RANGE)
    near = starts[(starts >= high) & (starts <= low)]
    return float(near[-1]) if near.size else max(phase.t - BEFORE_REST, float(starts[0]))
