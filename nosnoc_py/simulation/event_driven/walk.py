"""Propagation of the derivatives of a motion from node to node, for all systems of the event-driven simulation.

Within a phase variations satisfy the linear equation W' = F_z W (`motion.variations.transports`); at an event they are
multiplied by the saltation matrix. These maps are multiplied forwards (`run`), or recorded for derivatives backwards
(`tape`). Nodes at which the motion is not differentiable (grazing, simultaneous events, boundaries of modes) are
reported as flags. Forward derivatives are NaN from there on; the tape goes on with the modes that the motion has taken.

References
----------
Aizerman and Gantmakher (1958); Leine and Nijmeijer (2004): see `motion.variations`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nosnoc_py.motion.variations import composed, rough_transports, saltation, transports
from nosnoc_py.simulation.event_driven.history import SimulationResult
from nosnoc_py.simulation.event_driven.propagation import FIXED, NO_SIGN, SIMULTANEOUS, imminent, state_at, states_at
from nosnoc_py.simulation.event_driven.records import Held, Node, Phase
from nosnoc_py.solution.gradient import VariationLink, VariationTape
from nosnoc_py.solution.interpolant import jumps_of
from nosnoc_py.solution.sensitivity import Sensitivity
from nosnoc_py.status import Status
from nosnoc_py.systems.controls import Control

Array = np.ndarray
# Finite differences for the rate of a control: step as a fraction of the duration, and the relative disagreement of two
# steps that indicates a kink.
DIFFERENCE, CONTROL_KINK = 1e-4, 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class GuardDerivative:
    """Derivatives of a guard.

    Attributes
    ----------
    w, u : (n_w,), (n_u,)
        Derivatives.
    size : float
        Size that its rate is compared with: 1 for gaps and speeds; for forces the largest one, or the smallest mass
        that they move times 1 m/s^2.
    loose : bool
        True if its force is not unique.
    """

    w: Array
    u: Array
    size: float = 1.0
    loose: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeCrossing(ABC):
    """A node with the phases before and after it, and the reasons why the motion is not differentiable there.

    Attributes
    ----------
    previous : Node or None
    phase, flow : Phase, Flow or None
        Before the node; None at the start.
    after : Flow or None
        The control law after it; None where the motion ends.
    breaks : (N + 1,)
        Times [s] that do not depend on the motion, from the start to the end.
    """

    node: Node
    previous: Node | None
    phase: Phase | None
    flow: Any
    after: Any
    breaks: Array

    def flags(self) -> Iterator[str]:
        """Yield reasons why the motion is not differentiable here, except those that only derivatives show."""
        yield from self._times()
        yield from self._together()
        yield from self._modes()

    def _times(self) -> Iterator[str]:
        """Yield events at fixed times (breaks of the control) and events that follow at once."""
        node, phase = self.node, self.phase
        if node.grazing:
            yield node.message or f"{node.grazing} is touched without speed"
        if phase is None:
            if node.impact is not None:
                yield "an impact at the start"
            return
        crossing = phase.crossing
        # The order of two events at one time depends on the data: either order gives another derivative.
        if crossing is not None and node.trigger is None:
            yield "an event at a break of the control"
        elif crossing is not None and np.abs(self.breaks - node.t).min() <= FIXED:
            yield "an event at the start or at a break of the control"
        elif node.impact is not None and node.trigger is None:
            yield "an impact at a break of the control"
        elif node.impact is not None and node.trigger is not None and node.trigger >= self._count:
            yield "an impact that no gap announces"
        if crossing is not None and crossing.at_once:
            yield "modes that change again at once"
        last = self.previous
        both = last is not None and None not in (last.trigger, node.trigger)
        if both and last is not None and node.t - last.t <= SIMULTANEOUS:
            yield f"two events within {SIMULTANEOUS:g} s"

    def _together(self) -> Iterator[str]:
        """Yield other guards that cross at the same time."""
        if self.phase is None or self.flow is None:
            return
        # An event that moves with the data may exchange places with any other within SIMULTANEOUS; a fixed time
        # cannot.
        horizon = FIXED if self.node.trigger is None else SIMULTANEOUS
        for guard in imminent(self.phase, self.flow, horizon):
            if guard != self.node.trigger and (event := self._event(guard)):
                yield f"{event} of {self._names[guard % self._count]} at the same time"

    @abstractmethod
    def _event(self, guard: int) -> str:
        """Return the kind of event of a guard, or "" if its crossing is no event."""

    @abstractmethod
    def _modes(self) -> Iterator[str]:
        """Yield contacts or surfaces on the boundary of their mode."""

    @property
    def _names(self) -> tuple[str, ...]:
        flow = self.flow or self.after
        return () if flow is None else tuple(flow.names)

    @property
    def _count(self) -> int:
        return len(self._names)


class VariationPropagation(ABC):
    """Propagation of the derivatives of z = (x, p, u) by x0, p and the controls of intervals.

    Jumps at breaks of the control happen at fixed times: the derivative of their time is zero. A control that is
    constant on intervals is a parameter that changes between them; derivatives by any other control are not computed.

    Parameters
    ----------
    n_x, n_w, n_u : int
        States, with parameters, and controls.
    grid : (N + 1,)
        Intervals of the control [s]: its breaks are among them, and no step of the history has one inside.
    """

    crossing_type: type[NodeCrossing]

    def __init__(self, n_x: int, n_w: int, n_u: int, history: SimulationResult, control: Control, grid: Array) -> None:
        self.n_x, self.n_w, self.n_u = n_x, n_w, n_u if control.constant else 0
        self.history, self.control, self.grid = history, control, grid
        self.flags: list[str] = []
        self.reached: Array | None = None  # variations before the node that is crossed, where they are propagated

    def run(self) -> Sensitivity:
        """Propagate through all phases and return the sensitivity; derivatives are NaN from the first flag on."""
        n_x, n_w, count = self.n_x, self.n_w, len(self.grid) - 1 if self.n_u else 0
        # Rows (x, p, u of the current interval), columns (x0, p, u_1, ..., u_N). Rows of u begin at u_1 and move on in
        # `_held`.
        W = np.eye(n_w + self.n_u, n_w + count * self.n_u)
        start, delays, self.reached = W, [np.zeros((0, W.shape[1]))], W
        lefts, rights = list[Array](), list[Array]()
        for crossing, phase, flow in self._crossings():
            # All events of one node happen at the same time and have its derivative.
            link = None if self.flags or crossing.after is None else self._across(crossing)
            if link is None or self.flags:
                W = np.full(W.shape, np.nan)
                delays += [W[:1]] * len(crossing.node.events)
            else:
                assert link.delay is not None
                delays += [(link.delay @ W)[None, :]] * link.events
                W = self._moved(link, W)
            if phase is not None and self.flags:
                lefts, rights = ([*rows, *[W] * len(phase.steps)] for rows in (lefts, rights))
            elif phase is not None:
                for link in self._along(phase, flow):
                    W = self._held(W, link.stage)
                    lefts.append(W)
                    W = self._moved(link, W)
                    rights.append(W)
            self.reached = W
        self._end()
        if not self.flags and not np.isfinite(W).all():
            self._flag(self.history.t, "the variations are not finite")

        def by_data(D: Array) -> tuple[Array, Array, Array]:
            return D[..., :n_x], D[..., n_x:n_w], D[..., n_w:].reshape(*D.shape[:-1], count, self.n_u)

        x0, p, u = by_data(np.full_like(W[:n_x], np.nan) if self.flags else W[:n_x])
        times_x0, times_p, times_u = by_data(np.concatenate(delays))
        nodes_x0, nodes_p, nodes_u = by_data(self._at_nodes(start, lefts, rights, W))
        by_u: dict[str, Any] = {"u": u.swapaxes(0, 1), "event_times_u": times_u, "orbital_u": nodes_u.swapaxes(1, 2)}
        return Sensitivity(
            x0=x0,
            p=p,
            event_times_x0=times_x0,
            event_times_p=times_p,
            orbital=nodes_x0,
            orbital_p=nodes_p,
            **(by_u if self.n_u else {}),
            flags=tuple(self.flags),
        )

    def tape(self) -> VariationTape:
        """Return the same maps one by one, for derivatives backwards: what is flagged has one, too."""
        links, history, self.reached = list[VariationLink](), self.history, None
        for crossing, phase, flow in self._crossings():
            links.append(self._across(crossing))
            links += [] if phase is None else self._along(phase, flow)
        self._end()
        start = history.nodes[0].t if history.nodes else 0.0
        return VariationTape(
            links=tuple(self._defined(link) for link in links),
            n_x=self.n_x,
            n_p=self.n_w - self.n_x,
            n_u=self.n_u,
            stages=len(self.grid) - 1,
            duration=history.t - start,
            flags=tuple(self.flags),
        )

    def _crossings(self) -> Iterator[tuple[NodeCrossing, Phase | None, Any]]:
        """Yield nodes, whose conditions are flagged, with the phase that follows and its flow."""
        nodes, phases, flows = self.history.nodes, self.history.phases, self.history.flows
        before, after = ((None, *nodes), (None, *phases), (None, *flows)), ((*phases, None), (*flows, None))
        for node, previous, phase, flow, following, law in zip(nodes, *before, *after, strict=False):
            breaks = self.control.breaks
            around = self.crossing_type(node=node, previous=previous, phase=phase, flow=flow, after=law, breaks=breaks)
            self._flag(node.t, *dict.fromkeys(around.flags()))
            yield around, following, law

    def _at_nodes(self, start: Array, lefts: list[Array], rights: list[Array], end: Array) -> Array:
        """Return the derivatives of x at the nodes of the trajectory (nodes, n_x, data)."""
        steps, n_x = self.history.steps, self.n_x
        if not steps:
            return start[None, :n_x]
        limits = np.array([start, *rights])[:, :n_x]
        left, right = (np.array([step.x[k] for step in steps]) for k in (0, -1))
        jumps = jumps_of(self.history.nodes[0].before, left, right)
        # At a jump the trajectory has two nodes at one time: the left limit is followed by the right limit.
        matrix = np.insert(limits, np.flatnonzero(jumps) + 1, np.array(lefts)[jumps, :n_x], axis=0)
        return np.concatenate([matrix, end[None, :n_x]]) if self.history.hits else matrix

    def _across(self, crossing: NodeCrossing) -> VariationLink:
        """Return the map over a node. Flagged ones have one, too, with an event at a fixed time if it has no rate."""
        node, after = crossing.node, crossing.after
        jump, delay = self._jump(crossing), np.zeros(self.n_w + self.n_u)
        # The start is projected as well, so that derivatives by x0 are those of admissible starts. So is what follows
        # a node that is flagged: whatever happens there leaves the motion on the constraints of its modes.
        put = np.eye(self.n_w)
        if after is not None and (crossing.phase is None or self.flags):
            put = self._projection_derivative(after, node)
        if crossing.phase is None or node.trigger is None or after is None:
            # A break of the control: its time is fixed, so that there is no saltation.
            matrix = self._with_controls(jump)
        else:
            matrix, delay = self._saltate(crossing, crossing.phase, jump)
        x = slice(self.n_x)
        return VariationLink(
            t=node.t, matrix=(self._with_controls(put) @ matrix)[x], delay=delay, events=len(node.events)
        )

    def _with_controls(self, by_w: Array) -> Array:
        """Return a derivative by w extended by an unchanged control."""
        matrix = np.eye(self.n_w + self.n_u)
        matrix[: self.n_w, : self.n_w] = by_w
        return matrix

    def _moved(self, link: VariationLink, W: Array) -> Array:
        """Return W behind a map; parameters and controls stay."""
        return np.concatenate([link.matrix @ W, W[self.n_x :]])

    def _held(self, W: Array, stage: int) -> Array:
        """Return W with the control of an interval."""
        if not self.n_u or not np.isfinite(W).all():
            return W
        W = W.copy()
        W[self.n_w :] = np.eye(self.n_u, W.shape[1], k=self.n_w + stage * self.n_u)
        return W

    def _defined(self, link: VariationLink) -> VariationLink:
        """Return a map with finite numbers: where there are none, the state is held."""
        parts = link.matrix, np.zeros(0) if link.delay is None else link.delay
        if all(np.isfinite(part).all() for part in parts):
            return link
        self._flag(link.t, "the variations are not finite, and are held")
        delay = None if link.delay is None else np.zeros(link.delay.shape)
        return replace(link, matrix=np.eye(*link.matrix.shape), delay=delay)

    def _before(self, crossing: NodeCrossing) -> Array:
        """Return columns (n_z, k) that span the variations before a node: the known ones, or all that are admitted."""
        if self.reached is not None:
            return self.reached
        if crossing.phase is None:
            return np.eye(self.n_w + self.n_u)
        there = replace(crossing.node, regime=crossing.phase.regime, after=crossing.node.before)
        return self._with_controls(self._projection_derivative(crossing.flow, there))

    def _saltate(self, crossing: NodeCrossing, phase: Phase, by_w: Array) -> tuple[Array, Array]:
        """Return the map (n_z, n_z) over an event at the end of a phase, and the derivative of its time."""
        node, flow, after = crossing.node, crossing.flow, crossing.after
        assert node.trigger is not None
        jump = self._with_controls(by_w)
        # At the end of a slip in space derivatives are singular: evaluate the guard slightly before it.
        t = self._until(phase)
        w = self._w(state_at(phase, t) if t < phase.t else node.before)
        motion = self._motion(phase.regime, flow, t, w)
        slope = self._guard(node.trigger, phase.regime, flow, t, w, motion)
        approach = self._approach(node, flow.names[node.trigger % flow.distances], slope, motion.rate)
        gradient = np.append(slope.w, slope.u[: self.n_u])
        if not np.isfinite(approach):  # flagged: an event time without a derivative stays
            return jump, np.zeros(gradient.size)
        follows = self._motion(node.regime, after, node.t, self._w(node.after))
        still = np.zeros(self.n_u)
        # The control of an interval has rate zero; its rows are appended to the rates.
        arrival, departure = (np.append(rate, still) for rate in (self._arrival(node, motion.rate), follows.rate))
        event = saltation(gradient, arrival, departure, jump, approach=approach)
        put = self._with_controls(self._projection_derivative(after, node)) if t < phase.t else np.eye(len(jump))
        return put @ event.jump, event.delay

    def _approach(self, node: Node, name: str, slope: GuardDerivative, motion: Array) -> float:
        """Return the rate of the guard at an event; NaN if it does not cross zero."""
        rate = float(slope.w @ motion)
        if slope.loose:
            self._flag(node.t, f"the force of {name} is redundant")
        # A guard that depends on forces depends on the control: its total rate includes du/dt.
        if slope.u.any() and not self.control.constant:
            u_rate, has_kink = control_rate(self.control, node.t)
            rate += float(slope.u @ u_rate)
            if has_kink:
                self._flag(node.t, f"the control is not smooth at an event of {name}")
        # The derivative of the event time is 1 / rate: it has no value at a tangential contact.
        if abs(rate) > NO_SIGN * slope.size:
            return rate
        self._flag(node.t, f"the guard of {name} touches zero and does not cross it")
        return np.nan

    @abstractmethod
    def _motion(self, regime: Any, flow: Any, t: float, w: Array) -> Any:
        """Return the motion in a regime: `rate` dw/dt (n_w,), `rate_w` (n_w, n_w) and `rate_u` (n_w, n_u)."""

    @abstractmethod
    def _slopes(self, regime: Any, flow: Any, w: Array, u: Array) -> Array:
        """Return derivatives of dx/dt by (x, p, u) in a regime at m instants, (m, n_x, n_w + n_u)."""

    @abstractmethod
    def _guard(self, guard: int, regime: Any, flow: Any, t: float, w: Array, motion: Any) -> GuardDerivative:
        """Return the derivative of a guard of a regime."""

    @abstractmethod
    def _projection_derivative(self, flow: Any, node: Node) -> Array:
        """Return the derivative (n_w, n_w) of the projection onto the constraints after a node."""

    def _jump(self, crossing: NodeCrossing) -> Array:
        """Return R_w of a node; the identity for a continuous state."""
        return np.eye(self.n_w)

    def _arrival(self, node: Node, rate: Array) -> Array:
        """Return dw/dt right before a node, from that at the time up to which the slope of the phase is smooth."""
        return rate

    def _until(self, phase: Phase) -> float:
        """Return the time up to which the slope of a phase is smooth."""
        return phase.t

    def _along(self, phase: Phase, flow: Any) -> list[VariationLink]:
        """Return the maps of the steps. One Euler step covers the part of a phase where the slope is not smooth."""
        steps, n_x, end = phase.steps, self.n_x, self._until(phase)
        if not steps:
            return []
        low, last = (np.array([step.t[k] for step in steps]) for k in (0, -1))
        high, x = np.minimum(last, end), np.array([step.x for step in steps])
        matrices = np.zeros((len(steps), n_x, self.n_w + self.n_u)) + np.eye(n_x, self.n_w + self.n_u)
        moving = np.flatnonzero(high > low)

        def slope(number: Array, times: Array) -> Array:
            of = moving[number]
            states = states_at(low[of], last[of], x[of], times).reshape(-1, n_x)
            return self._at(phase.start, flow, times.ravel(), states).reshape(*times.shape, *matrices.shape[1:])

        if moving.size and self.flags:
            # There is no derivative to be resolved, and slopes may be noise: of a slip in space that starts at rest.
            matrices[moving] = rough_transports(slope, low[moving], high[moving], n_x)
        elif moving.size:
            matrices[moving], resolved = transports(slope, low[moving], high[moving], n_x)
            if not resolved:
                self._flag(phase.t, "the variations of the phase before are not resolved")
        if end < phase.t:
            rate = self._at(phase.start, flow, np.array([end]), state_at(phase, end)[None, :])[0]
            matrices[-1] = composed(np.eye(*rate.shape) + (phase.t - end) * rate, matrices[-1])
        stages = np.searchsorted(self.grid[1:-1], 0.5 * (low + last), "right")
        return [
            VariationLink(t=float(t), matrix=matrix, stage=int(stage))
            for t, matrix, stage in zip(last, matrices, stages, strict=True)
        ]

    def _at(self, regime: Any, flow: Any, times: Array, x: Array) -> Array:
        """Return d(dx/dt)/dz (m, n_x, n_z) at m instants; the control is constant, or no variable."""
        held = isinstance(flow.control, Held)
        u = np.broadcast_to(flow.control.u, (times.size, flow.control.u.size)) if held else np.array(
            [flow.control(*at) for at in zip(times.tolist(), x, strict=True)]
        )  # fmt: skip
        return self._slopes(regime, flow, self._w(x), u)[..., : self.n_w + self.n_u]

    def _end(self) -> None:
        """Flag events at the final time, which is fixed like a break of the control."""
        history = self.history
        if history.status is not Status.SOLVED:
            self._flag(history.t, f"the simulation stopped: {history.status.value}")
        elif history.phases:
            phase, flow = history.phases[-1], history.flows[-1]
            if phase.crossing is not None or imminent(phase, flow, FIXED):
                self._flag(history.t, "an event at the end")

    def _w(self, x: Array) -> Array:
        p = self.history.p
        return np.concatenate([x, np.broadcast_to(p, (*x.shape[:-1], p.size))], axis=-1)

    def _flag(self, t: float, *reasons: str) -> None:
        self.flags += [f"t = {t:.9g}: {reason}" for reason in reasons]


def control_rate(control: Control, t: float) -> tuple[Array, bool]:
    """Return du/dt (n_u,) of a control that is a function of time, and True if two step lengths disagree."""
    step = DIFFERENCE * float(control.breaks[-1] - control.breaks[0])
    coarse, fine = _difference(control, t, step), _difference(control, t, 0.5 * step)
    return fine, bool(np.abs(coarse - fine).max() > CONTROL_KINK * (1.0 + np.abs(fine).max()))


def _difference(control: Control, t: float, step: float) -> Array:
    """Return the derivative of the polynomial through five values inside the interval of the control."""
    first, last = float(control.breaks[0]), float(control.breaks[-1])
    middle = min(max(t, first + 2.0 * step), last - 2.0 * step)
    # Five times inside the interval: near its ends the stencil is shifted, and no value beyond a break is used.
    times = middle + step * np.arange(-2, 3)
    away = (times - t) / step
    # Weights that are exact for polynomials of degree four; the second unit vector selects the first derivative.
    weights = np.linalg.solve(np.vander(away, increasing=True).T, np.eye(5)[1]) / step
    return np.asarray(weights @ np.array([control(s, np.zeros(0)) for s in times]))
