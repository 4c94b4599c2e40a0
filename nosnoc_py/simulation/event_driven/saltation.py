"""Sensitivities of a simulation: variations along the phases, saltation matrices at the events.

With w = (x, p), a guard g, a jump w+ = R(w-) and the motions w' = F- before and F+ after it,

    dt* = -g_w dw- / (g_w F- + g_t),    dw+ = R_w dw- + (R_w F- - F+) dt*,

and between events dw' = F_w dw. Jumps at breaks of the control happen at fixed times: dt* = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from nosnoc_py.audit.redundancy import REDUNDANT
from nosnoc_py.contacts.modes import CLOSED, FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.simulation.event_driven.contact_flow import Flow
from nosnoc_py.simulation.event_driven.guards import SLIP_SPEED
from nosnoc_py.simulation.event_driven.history import History
from nosnoc_py.simulation.event_driven.mechanics import Regime
from nosnoc_py.simulation.event_driven.node import Node
from nosnoc_py.simulation.event_driven.phase import Phase, Step
from nosnoc_py.simulation.event_driven.propagation import SLOW, between, state_at
from nosnoc_py.simulation.event_driven.slopes import control_rate, slope_of
from nosnoc_py.simulation.event_driven.smoothness import Passage
from nosnoc_py.simulation.event_driven.variations import Motion, Variations
from nosnoc_py.simulation.event_driven.walk import Walk
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


def sensitivity_of(system: CLS, history: History, control: Control) -> Sensitivity:
    """Derivatives of the end and of the times of events of a simulation with respect to x0 and p."""
    return _Walk(Variations(system), history, control).run()


class _Walk(Walk):
    """The walk of a contact system."""

    def __init__(self, variations: Variations, history: History, control: Control) -> None:
        super().__init__(variations.n_x, variations.n_w, history, control)
        self.variations = variations

    def _cross(self, k: int, node: Node, W: Array) -> tuple[Array, Array]:
        """Variations after a node, and of its time."""
        passage, nothing = self._passage(k, node), np.full(W.shape, np.nan)
        self._flag(node.t, *dict.fromkeys(passage.flags()))
        if self.flags or passage.after is None or node.regime is None:
            return nothing, nothing[0]
        if k == 0:
            return self._constrained(node, node.regime, passage.after), np.zeros(len(W))
        W, delay = self._saltate(passage, node.regime, passage.after, W)
        return (nothing, nothing[0]) if self.flags else (W, delay)

    def _passage(self, k: int, node: Node) -> Passage:
        nodes, phases, flows = self.history.nodes, self.history.phases, self.history.flows
        return Passage(
            node=node,
            previous=nodes[k - 1] if k else None,
            phase=phases[k - 1] if k else None,
            flow=flows[k - 1] if k else None,
            after=flows[k] if k < len(flows) else None,
            breaks=self.control.breaks,
        )

    def _constrained(self, node: Node, regime: Regime, flow: Flow) -> Array:
        """Derivative (n_w, n_w) of the state on the constraints of its closed contacts with respect to w.

        A contact with a velocity that its mode does not admit loses it by an impulse within no time, and one that is a
        little open closes again: what is left is the state moved along the directions of its contact forces.
        """
        n_q, made = self.variations.n_q, np.eye(self.variations.n_w)
        if not regime.rows.size:
            return made
        gaps_w, rates_w = self.variations.geometry(self._w(node.after))
        columns, n_closed = regime.columns(flow.look(node.t, node.after)), regime.closed.size
        made[:n_q] -= _closing(columns[:, :n_closed], gaps_w[regime.closed], slice(0, n_q))
        rates = rates_w[regime.rows]
        made[n_q : 2 * n_q] -= _closing(columns, rates, slice(n_q, 2 * n_q)) @ made
        return made

    def _saltate(self, passage: Passage, regime: Regime, after: Flow, W: Array) -> tuple[Array, Array]:
        """Variations after an event, and of its time."""
        node, phase, flow = passage.node, passage.phase, passage.flow
        assert phase is not None
        assert flow is not None
        jump = self._jump(passage, W)
        if node.trigger is None:
            return jump @ W, np.zeros(len(W))
        t = _last(phase, node.trigger)
        w = self._w(state_at(phase, t) if t < phase.t else node.before)
        motion = self._motion(phase.regime, flow, t, w)
        delay = self._delay(node, phase, flow, motion, t, w, W)
        follows = self._motion(regime, after, node.t, self._w(node.after))
        arrives = np.concatenate([node.before[self.variations.n_q :], motion.rate[self.variations.n_q :]])
        W = jump @ W + np.outer(jump @ arrives - follows.rate, delay)
        return (self._constrained(node, regime, after) @ W if t < phase.t else W), delay

    def _jump(self, passage: Passage, W: Array) -> Array:
        """R_w, where all modes that an impact may be written in agree on what becomes of W."""
        node, impact = passage.node, passage.node.impact
        if impact is None or passage.flow is None:
            return np.eye(len(W))
        w, n_q = self._w(node.before), self.variations.n_q
        look = passage.flow.look(node.t, node.before)
        after = look.velocity + look.response @ impact.impulses
        slip = (look.jacobian @ after)[self.variations.frames.count :]
        impulses, undecided = impact.impulses, passage.undecided()
        jump = self.variations.jump(impact.modes, impact.restitution, w, after, impulses)
        for modes in self._others(impact.modes, undecided, slip):
            other = self.variations.jump(modes, impact.restitution, w, after, impulses)
            moved = ((other - jump) @ W)[n_q : 2 * n_q]
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

    def _delay(self, node: Node, phase: Phase, flow: Flow, motion: Motion, t: float, w: Array, W: Array) -> Array:
        """Variation (n_w,) of the time of an event."""
        assert node.trigger is not None
        slope = slope_of(node.trigger, phase.regime, flow.look(t, w[: self.variations.n_x]), self.variations, motion, w)
        rate = float(slope.w @ motion.rate)
        name = self.variations.frames.names[node.trigger % self.variations.frames.count]
        if slope.loose:
            self._flag(node.t, f"the force of {name} is redundant")
        if slope.u.any() and not self.control.constant:
            u_rate, rough = control_rate(self.control, node.t)
            rate += float(slope.u @ u_rate)
            if rough:
                self._flag(node.t, f"the control is not smooth at an event of {name}")
        if not abs(rate) > SLOW * slope.size:
            self._flag(node.t, f"the guard of {name} touches zero and does not cross it")
            return np.full(len(W), np.nan)
        return np.asarray(-(slope.w @ W) / rate)

    def _motion(self, regime: Regime, flow: Flow, t: float, w: Array) -> Motion:
        u = flow.control(t, w[: self.variations.n_x])
        return self.variations.motion(regime.modes, w, u, redundant=regime.redundant)

    def _until(self, phase: Phase) -> float:
        return phase.t if phase.crossing is None else _last(phase, phase.crossing.guard)

    def _along(self, phase: Phase, flow: Flow, W: Array) -> Array:
        """Variations at the end of a phase."""
        W, end = super()._along(phase, flow, W), self._until(phase)
        if end < phase.t and np.isfinite(W).all():
            W = W + (phase.t - end) * self._motion(phase.start, flow, end, self._w(state_at(phase, end))).rate_w @ W
        return W

    def _slope(self, phase: Phase, flow: Flow, step: Step) -> Callable[[float], Array]:
        return lambda t: self._motion(phase.start, flow, t, self._w(between(step, t))).rate_w


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


def _closing(columns: Array, rows: Array, moved: slice) -> Array:
    """What (n_q, n_w) the directions `columns` have to take back of w so that `rows` stay zero, as they act on w."""
    return np.asarray(columns @ np.linalg.pinv(rows[:, moved] @ columns, rcond=REDUNDANT) @ rows)
