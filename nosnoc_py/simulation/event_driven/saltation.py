"""Sensitivities of a contact system: saltation at impacts and changes of modes, and derivatives of guards.

The propagation from node to node is in `walk`, the derivatives of motion and impacts in `variations`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from nosnoc_py.audit.redundancy import REDUNDANT
from nosnoc_py.contact_problems.modes import CLOSED, FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.motion.variations import projection
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.guards import FORCE, GAP, SLIP_SPEED
from nosnoc_py.simulation.event_driven.history import SimulationResult
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime
from nosnoc_py.simulation.event_driven.propagation import NO_SIGN
from nosnoc_py.simulation.event_driven.records import Node, Phase
from nosnoc_py.simulation.event_driven.smoothness import ContactNodeCrossing
from nosnoc_py.simulation.event_driven.variations import ContactMotion, ContactVariations
from nosnoc_py.simulation.event_driven.walk import GuardDerivative, NodeCrossing, VariationPropagation
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control
from nosnoc_py.systems.projection import admissible_directions

Array = np.ndarray
# At the end of a slip in space its direction is undefined, and derivatives grow like 1 / (time to the end): from about
# BEFORE_REST [s] before, one Euler step covers the rest. It starts with a step of the simulation, if one starts within
# REST_RANGE.
BEFORE_REST = 1e-6
REST_RANGE = (1e-8, 1e-4)
# Relative tolerance of derivatives in two equivalent sets of modes of an impact.
SAME_DERIVATIVE = 1e-7


def propagation_of(system: CLS, history: SimulationResult, control: Control, grid: Array) -> VariationPropagation:
    """Return derivatives of states and event times by x0, p and the values of a control on the intervals of a grid."""
    variations = system.mechanics.once(ContactVariations)
    return _ContactVariationPropagation(variations, system.n_u, history, control, grid)


class _ContactVariationPropagation(VariationPropagation):
    """Propagation of the variations of a contact system."""

    crossing_type = ContactNodeCrossing

    def __init__(
        self, variations: ContactVariations, n_u: int, history: SimulationResult, control: Control, grid: Array
    ) -> None:
        super().__init__(variations.n_x, variations.n_w, n_u, history, control, grid)
        self.variations = variations

    def _projection_derivative(self, flow: ContactFlow, node: Node) -> Array:
        """Return the derivative (n_w, n_w) of the projection onto the constraints of the closed contacts.

        A contact with a velocity that its mode does not admit loses it by an impulse within no time, and one that is
        slightly open closes again: the state moves along the directions of the contact forces.
        """
        regime = node.regime
        kept = np.eye(self.n_w)
        if self.variations.system.bilateral is not None:
            x = slice(self.variations.n_x)
            kept[x, x] = admissible_directions(self.variations.system, node.after, flow.p)
        if not regime.rows.size:
            return kept
        gaps_w, rates_w = self.variations.geometry(self._w(node.after))
        # The projection moves the state along the columns of the forces (normal force with its friction), not
        # orthogonally.
        columns, system = regime.columns(flow.kinematics(node.t, node.after)), self.variations.system
        moved, pushed = (np.zeros((self.n_w, count)) for count in (regime.closed.size, columns.shape[1]))
        moved[system.at_q] = system.mechanics.moved(node.after, flow.p, columns[:, : regime.closed.size])
        pushed[system.at_v] = columns
        # First positions, then velocities: the same order as the projection of the simulation.
        on_gaps = projection(gaps_w[regime.closed], moved, REDUNDANT)
        return projection(rates_w[regime.rows], pushed, REDUNDANT) @ on_gaps @ kept

    def _jump(self, crossing: NodeCrossing) -> Array:
        """Return R_w of an impact; flag it if two equivalent sets of modes give different derivatives."""
        node, impact = crossing.node, crossing.node.impact
        if impact is None:
            return super()._jump(crossing)
        assert isinstance(crossing, ContactNodeCrossing)
        if impact.sequence:
            self._flag(node.t, "several impacts follow from each other at one instant")
        w, at_v = self._w(node.before), self.variations.system.at_v
        at = (crossing.flow or crossing.after).kinematics(node.t, node.before)
        after = at.velocity + at.response @ impact.impulses
        slip = at.rates_of(after)[self.variations.frames.count :]
        impulses, undecided = impact.impulses, crossing.undecided()
        jump = self.variations.jump(impact.modes, impact.rebounding, w, after, impulses)
        # A contact with neither impulse nor velocity fits two modes. The derivative exists if both give the same.
        W = self._before(crossing) if undecided else np.zeros((0, 0))
        for modes in self._others(impact.modes, undecided, slip):
            other = self.variations.jump(modes, impact.rebounding, w, after, impulses)
            moved = ((other - jump) @ W[: self.n_w])[at_v]
            if not np.abs(moved).max(initial=0.0) <= SAME_DERIVATIVE * max(1.0, np.abs(W).max()):
                names = [self.variations.frames.names[c] for c in undecided]
                self._flag(node.t, f"{', '.join(names)}: neither an impulse nor a velocity in an impact")
                break
        return jump

    def _others(self, modes: Sequence[int], undecided: Sequence[int], slip: Array) -> list[tuple[int, ...]]:
        """Return all modes of an impact with undecided contacts open or hit, for slips (n_tt,) after it."""
        choices = [(FREE, self._hit(c, slip)) if c in undecided else (mode,) for c, mode in enumerate(modes)]
        return [other for other in product(*choices) if other != tuple(modes)]

    def _hit(self, contact: int, slip: Array) -> int:
        """Return the mode of a contact that is hit without an impulse: it continues to slip or stick."""
        part = slip[self.variations.frames.tangents[contact]]
        if not part.size:
            return CLOSED
        if np.linalg.norm(part) <= NO_SIGN:
            return STICK
        return SLIP_BACK if part.size == 1 and part[0] < 0.0 else SLIP

    def _motion(self, regime: ContactRegime, flow: ContactFlow, t: float, w: Array) -> ContactMotion:
        u = flow.control(t, w[: self.variations.n_x])
        return self.variations.motion(regime.modes, w, u, redundant=regime.redundant)

    def _slopes(self, regime: ContactRegime, flow: ContactFlow, w: Array, u: Array) -> Array:
        return self.variations.slopes(regime.modes, w, u, redundant=regime.redundant)

    def _guard(
        self, guard: int, regime: ContactRegime, flow: ContactFlow, t: float, w: Array, motion: ContactMotion
    ) -> GuardDerivative:
        frames, at = flow.frames, flow.kinematics(t, w[: self.n_x])
        kind, contact = divmod(guard, frames.count)
        part = slice(frames.count + frames.tangents[contact].start, frames.count + frames.tangents[contact].stop)
        gaps_w, rates_w = self.variations.geometry(w)
        no_controls = np.zeros(motion.forces_u.shape[1])
        if kind == GAP:
            return GuardDerivative(w=gaps_w[contact], u=no_controls)
        if kind == SLIP_SPEED:
            return GuardDerivative(w=regime.slip_direction(contact, at.rates) @ rates_w[part], u=no_controls)
        shares, cone = np.zeros(motion.forces.size), np.zeros(self.n_w)
        shares[contact] = 1.0
        if kind != FORCE:
            # Slack s = mu f_n - |f_t|: ds = mu df_n + f_n dmu - (f_t / |f_t|)' df_t.
            friction = motion.forces[part]
            shares[contact] = frames.friction[contact]
            cone = motion.forces[contact] * self.variations.friction(w)[contact]
            shares[part] = -friction / max(float(np.linalg.norm(friction)), np.finfo(float).tiny)
        return GuardDerivative(
            w=shares @ motion.forces_w + cone,
            u=shares @ motion.forces_u,
            size=max(regime.inertia(at), float(np.abs(motion.forces).max())),
            loose=bool(motion.loose[shares != 0.0].any()),
        )

    def _arrival(self, node: Node, rate: Array) -> Array:
        matrix, system = np.array(rate), self.variations.system
        # The rates were taken slightly before the end of the slip; positions at the event move with its velocities.
        matrix[system.at_q] = system.mechanics.moved(node.before, self.history.p, node.before[system.at_v])
        return matrix

    def _until(self, phase: Phase) -> float:
        return phase.t if phase.crossing is None else _last(phase, phase.crossing.guard)


def _last(phase: Phase, trigger: int) -> float:
    """Return the time up to which variations are propagated: before the end of a slip in space."""
    frames = phase.regime.frames
    kind, contact = divmod(trigger, frames.count)
    if not phase.steps or kind != SLIP_SPEED or frames.width(contact) < 2:
        return phase.t
    starts = np.array([step.t[0] for step in phase.steps])
    low, high = phase.t - np.array(REST_RANGE)
    near = starts[(starts >= high) & (starts <= low)]
    return float(near[-1]) if near.size else max(phase.t - BEFORE_REST, float(starts[0]))
