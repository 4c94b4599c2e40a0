"""Sensitivities of a Filippov system: variations along the phases, saltation matrices where it meets surfaces.

The state is continuous. With w = (x, p), a guard g and the motions w' = F- before and F+ after it,

    dt* = -g_w dw- / (g_w F- + g_t),    dw+ = dw- + (F- - F+) dt*:

a projection where sliding begins, the identity where it ends with one flow on both sides. A start on a surface the
motion slides on is a projection, too: a neighbour reaches the surface within no time, by the flow of its side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from nosnoc_py.simulation.event_driven.filippov.candidates import touched_of
from nosnoc_py.simulation.event_driven.filippov.laws import STEP
from nosnoc_py.simulation.event_driven.filippov.regime import DISTANCE, LOW, Flow, Regime
from nosnoc_py.simulation.event_driven.history import History
from nosnoc_py.simulation.event_driven.phase import Phase, Step
from nosnoc_py.simulation.event_driven.propagation import FIXED, SIMULTANEOUS, SLOW, between, imminent
from nosnoc_py.simulation.event_driven.records import Node
from nosnoc_py.simulation.event_driven.slopes import control_rate
from nosnoc_py.simulation.event_driven.walk import Walk
from nosnoc_py.solution.sensitivity import Sensitivity
from nosnoc_py.systems.controls import Control
from nosnoc_py.systems.described import Described
from nosnoc_py.tolerances import TOUCHING

Array = np.ndarray
# Multipliers so close to their bounds at the start may pass them with a change of the data.
MARGIN = 1e-8


def sensitivity_of(system: Described, history: History, control: Control) -> Sensitivity:
    """Derivatives of the end and of the times of events of a simulation with respect to x0 and p."""
    n_x = len(system.state_names)
    return _Walk(n_x, n_x + system.n_p, history, control).run()


@dataclass(frozen=True, eq=False, kw_only=True)
class Motion:
    """The motion in one regime, dw/dt (n_w,), and derivatives; s are multipliers and algebraic variables."""

    rate: Array
    rate_w: Array
    rate_s: Array
    s_w: Array
    s_u: Array


def motion_of(flow: Flow, regime: Regime, t: float, w: Array) -> Motion:
    """Differentiate a motion through the equations of its multipliers."""
    laws, n_x = flow.laws, flow.laws.n_x
    u = flow.control(t, w[:n_x])
    s = regime.solve(w, u)
    rate, slope = laws.motion(s, w, u, regime.masks)[0], laws.residual(s, w, u, regime.masks)[1]
    rows_w, rows_u, rate_s, rate_w, _ = laws.slopes(s, w, u, regime.masks)
    try:
        s_w, s_u = np.split(-np.linalg.solve(slope, np.hstack([rows_w, rows_u])), [w.size], axis=1)
    except np.linalg.LinAlgError:
        s_w, s_u = np.full(rows_w.shape, np.nan), np.full(rows_u.shape, np.nan)
    full, moved = np.zeros((w.size, w.size)), np.zeros(w.size)
    full[:n_x], moved[:n_x] = rate_w + rate_s @ s_w, rate[:, 0]
    return Motion(rate=moved, rate_w=full, rate_s=rate_s, s_w=s_w, s_u=s_u)


def slope_of(guard: int, regime: Regime, flow: Flow, w: Array, motion: Motion) -> tuple[Array, Array]:
    """Derivatives of a guard with respect to w and u."""
    block, k = divmod(guard, flow.laws.n_y)
    if block == DISTANCE:
        return regime.relative(flow.functions(w[: flow.laws.n_x])[1])[k], np.zeros(motion.s_u.shape[1])
    sign = 1.0 if block == LOW else -1.0
    return sign * motion.s_w[k], sign * motion.s_u[k]


class _Walk(Walk):
    """The walk of a Filippov system."""

    def _cross(self, k: int, node: Node, W: Array) -> tuple[Array, Array]:
        history, nothing = self.history, np.full(W.shape, np.nan)
        flow = history.flows[k] if k < len(history.flows) else None
        self._flag(node.t, *dict.fromkeys(self._reasons(k, node, flow)))
        if self.flags or flow is None:
            return nothing, nothing[0]
        if k == 0:
            return self._put(flow, node), np.zeros(len(W))
        if node.trigger is None:
            return W, np.zeros(len(W))
        return self._saltate(history.phases[k - 1], history.flows[k - 1], node, flow, W)

    def _saltate(self, phase: Phase, before: Flow, node: Node, after: Flow, W: Array) -> tuple[Array, Array]:
        """Variations after an event, and of its time."""
        assert node.trigger is not None
        w = self._w(node.before)
        arrives = motion_of(before, phase.regime, node.t, w)
        follows = motion_of(after, node.regime, node.t, self._w(node.after))
        g_w, g_u = slope_of(node.trigger, phase.regime, before, w, arrives)
        rate, name = float(g_w @ arrives.rate), before.laws.names[node.trigger % before.laws.n_y]
        if g_u.any() and not self.control.constant:
            u_rate, rough = control_rate(self.control, node.t)
            rate += float(g_u @ u_rate)
            if rough:
                self._flag(node.t, f"the control is not smooth at an event of {name}")
        if not abs(rate) > SLOW:
            self._flag(node.t, f"the guard of {name} touches zero and does not cross it")
            return np.full(W.shape, np.nan), np.full(len(W), np.nan)
        delay = -(g_w @ W) / rate
        return W + np.outer(arrives.rate - follows.rate, delay), delay

    def _put(self, flow: Flow, node: Node) -> Array:
        """Derivative (n_w, n_w) of the state on the surfaces it starts on: neighbours come to them within no time."""
        regime, made = node.regime, np.eye(self.n_w)
        rows = np.flatnonzero(regime.free)
        if not rows.size:
            return made
        motion = motion_of(flow, regime, node.t, self._w(node.after))
        c_w = flow.functions(node.after)[1]
        compared = regime.reference[rows]
        slope = c_w[rows] - (compared >= 0)[:, None] * c_w[compared]
        columns = motion.rate_s[:, rows] - _reference_columns(motion.rate_s, compared)
        made[: self.n_x] -= columns @ np.linalg.solve(slope[:, : self.n_x] @ columns, slope)
        return made

    def _slope(self, phase: Phase, flow: Flow, step: Step) -> Callable[[float], Array]:
        return lambda t: motion_of(flow, phase.start, t, self._w(between(step, t))).rate_w

    def _reasons(self, k: int, node: Node, flow: Flow | None) -> Iterator[str]:
        """What is not smooth here, but for what only derivatives can tell."""
        if node.grazing:
            yield node.message or f"{node.grazing} is touched without speed"
        if k == 0:
            yield from () if flow is None else self._beginnings(node, flow)
            return
        phase, previous = self.history.phases[k - 1], self.history.nodes[k - 1]
        if phase.crossing is not None and node.trigger is None:
            yield "an event at a break of the control"
        elif phase.crossing is not None and np.abs(self.control.breaks - node.t).min() <= FIXED:
            yield "an event at the start or at a break of the control"
        if phase.crossing is not None and phase.crossing.at_once:
            yield "modes that change again at once"
        if None not in (previous.trigger, node.trigger) and node.t - previous.t <= SIMULTANEOUS:
            yield f"two events within {SIMULTANEOUS:g} s"
        yield from self._together(k, node)

    def _together(self, k: int, node: Node) -> Iterator[str]:
        """Other guards that are about to cross, here or at a break."""
        phase, flow = self.history.phases[k - 1], self.history.flows[k - 1]
        for guard in imminent(phase, flow, FIXED if node.trigger is None else SIMULTANEOUS):
            if guard != node.trigger and guard < 3 * flow.laws.n_y:
                yield f"an event of {flow.laws.names[guard % flow.laws.n_y]} at the same time"

    def _beginnings(self, node: Node, flow: Flow) -> Iterator[str]:
        """Surfaces at the start that the motion does not stay on, and multipliers on their bounds."""
        laws, regime = flow.laws, node.regime
        touched = touched_of(laws, flow.functions(node.after)[0], TOUCHING)
        for i in np.flatnonzero(touched & (regime.sign != 0.0)):
            yield f"the start lies on {laws.names[i]}, which the motion leaves"
        s = flow.look(regime, node.t, node.after).s
        bounds = flow.guards(regime, node.after, s)[laws.n_y : 3 * laws.n_y]
        for i in np.flatnonzero(bounds <= MARGIN):
            yield f"the multiplier of {laws.names[i % laws.n_y]} starts on its bound"
        steps = np.bincount(laws.parts, regime.free & (laws.kinds == STEP))
        if (not laws.affine or (steps > 1.0).any()) and regime.free.sum() > 1:
            yield "the start lies on several surfaces, which neighbours reach in different orders"


def _reference_columns(rate_s: Array, reference: Array) -> Array:
    """Weights of regions come from the active region they are compared with."""
    return np.asarray(rate_s[:, reference] * (reference >= 0))
