"""Event-driven simulation of hybrid systems: one flow, guards that end a phase, and the resets of the user.

The same loop, search of crossings and propagation of variations as for contacts and Filippov systems. There is a single
regime, in which all guards are nonnegative. At a node the guard that was crossed resets the state; a guard that is zero
after the reset and falls is crossed at once, by the next node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered, buffered_at_many
from nosnoc_py.simulation.event_driven.motions import InterpretedMotion
from nosnoc_py.simulation.event_driven.options import INCREMENT, EventDriven
from nosnoc_py.simulation.event_driven.records import Node, Phase, Sample
from nosnoc_py.simulation.event_driven.steps import noise_of
from nosnoc_py.solution import Event
from nosnoc_py.status import Status
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.scales import UNIT
from nosnoc_py.tolerances import CROSSED, TOUCHING

Array = np.ndarray
# Jumps that come ever faster are infinitely many if the last interval is shorter than this fraction of the motion since
# the first of them: beyond it rounding decides.
ACCUMULATED = 1e-6
FEWEST = 8


@dataclass(frozen=True, eq=False)
class HybridRegime:
    """The only mode of a hybrid system."""

    modes: tuple[int, ...] = ()


class HybridModel:
    """Model of a `HybridSystem` for `EventDrivenSimulator`."""

    def __init__(self, system: HybridSystem) -> None:
        x, u, p = system.x, system.u, system.p
        w, columns = ca.vertcat(x, p), ca.vertcat(ca.SX(0, 1), *(jump.guard for jump in system.jumps))
        slopes = ca.jacobian(columns, w)
        rates = slopes[:, : x.numel()] @ system.flow
        self.names = tuple(jump.name for jump in system.jumps)
        self.motion = buffered(ca.Function("motion", [x, u, p], [system.flow, columns, rates]))
        self.slopes = buffered_at_many(
            ca.Function("slopes", [x, u, p], [ca.jacobian(system.flow, w), ca.jacobian(system.flow, u), slopes])
        )
        impulses = [ca.SX(np.nan) if jump.impulse is None else jump.impulse for jump in system.jumps]
        self.resets = [
            buffered(ca.Function("reset", [x, p], [jump.reset, impulse, ca.jacobian(jump.reset, w)]))
            for jump, impulse in zip(system.jumps, impulses, strict=True)
        ]

    def nodes(self, options: EventDriven, law: Callable[[float, Array], Array], p: Array) -> HybridNodes:
        """Return the solver of nodes under a control law."""
        return HybridNodes(HybridFlow(self, options, law, p))

    def regime(self, modes: tuple[int, ...], p: Array) -> HybridRegime:
        """Return the only regime."""
        return HybridRegime()

    def modes(self, x: Array, p: Array, tolerance: float) -> tuple[int, ...]:
        """Return the only mode."""
        return ()


class HybridFlow:
    """Smooth motion of a hybrid system under one control law (the interface of `ContactFlow`)."""

    not_finite = "the flow has no finite value"
    scales = UNIT

    def __init__(
        self, model: HybridModel, options: EventDriven, control: Callable[[float, Array], Array], p: Array
    ) -> None:
        self.model, self.options, self.control, self.p = model, options, control, p
        self.atol, self.names, self.distances = options.atol, model.names, len(model.names)
        self.noise = noise_of(np.outer([CROSSED, 0.0, 0.0], np.ones(self.distances)), 0)

    def motion_at(self, t: float, x: Array) -> tuple[Array, Array, Array]:
        """Return dx/dt (n_x,), the guards (n_g,) and their rates (n_g,)."""
        flow, guards, rates = self.model.motion(x, self.control(t, x), self.p)
        return flow[:, 0], guards[:, 0], rates[:, 0]

    @property
    def widths(self) -> tuple[int, int, int]:
        """Numbers of guards, forces and rates in a `Sample`."""
        return self.distances, 0, self.distances

    def motion(self, regime: Any) -> InterpretedMotion:
        """Return the motion for the loop of `explicit`."""
        return InterpretedMotion(self, regime)

    def is_small(self, regime: Any) -> bool:
        """Return False: every evaluation is a call of its own."""
        return False

    def rhs(self, regime: Any, t: float, x: Array) -> Array:
        """Return dx/dt (n_x,)."""
        return self.motion_at(t, x)[0]

    def sample(self, regime: Any, t: float, x: Array) -> Sample:
        """Return guards and their rates."""
        _, guards, rates = self.motion_at(t, x)
        return Sample(guards=guards, forces=np.zeros(0), rates=rates)

    def distance(self, guard: int, x: Array) -> None:
        """Return nothing: distances are evaluated together."""

    def distance_accelerations(self, regime: Any, t: float, x: Array) -> Array:
        """Return NaN: a guard that is reached without speed is a touch."""
        return np.full(self.distances, np.nan)

    def project(self, regime: Any, t: float, x: Array) -> Array:
        """Return the state: nothing constrains it."""
        return x

    def enabled(self, regime: Any, t: float, x: Array) -> Array:
        """Return the guards (n_g,) that are positive, or zero and do not fall."""
        _, guards, rates = self.motion_at(t, x)
        return (guards > TOUCHING) | ((guards > -TOUCHING) & (rates >= 0.0))

    def inertia(self, regime: Any, t: float, x: Array) -> float:
        """Return 1: there are no forces."""
        return 1.0

    def updated(self, regime: Any, t: float, x: Array) -> Any:
        """Return the regime."""
        return regime

    def has_stiff_start(self, regime: Any, t: float, x: Array) -> bool:
        """Return False: the motion is not stiff at its start only."""
        return False

    def increments(self, regime: Any, t: float, x: Array, *, has_stiff_start: bool) -> Array:
        """Return increments (n_x,) of the states for a finite-difference Jacobian."""
        return np.asarray(INCREMENT * np.maximum(1.0, np.abs(x)))


class HybridNodes:
    """Jumps of a hybrid system under one control law."""

    def __init__(self, flow: HybridFlow) -> None:
        self.flow = flow

    def cross(
        self, t: float, x: Array, before: Any, ended: Phase | None, drift: float, past: Sequence[Node] = ()
    ) -> Node:
        """Return the node at time t and state x; `ended` is the phase if a crossing ended it."""
        node = Node(t=t, before=x, after=x, regime=HybridRegime())
        crossing = None if ended is None else ended.crossing
        if crossing is None:
            return node
        node, name = replace(node, trigger=crossing.guard), self.flow.names[crossing.guard]
        _, _, rates = self.flow.motion_at(t, x)
        if crossing.touches or not rates[crossing.guard] < 0.0:
            return replace(node, grazing=name)
        after, impulse, _ = self.flow.model.resets[crossing.guard](x, self.flow.p)
        after = after[:, 0]
        if not np.isfinite(after).all():
            return replace(node, status=Status.NUMERICAL_ERROR, message=f"the reset of {name} has no finite value")
        node = replace(node, after=after, counted=True)
        _, guards, later = self.flow.motion_at(t, after)
        beyond = np.flatnonzero(guards < -TOUCHING)
        if beyond.size:
            where = self.flow.names[int(beyond[0])]
            text = (
                f"the reset of {name} leads beyond the guard of {where}, {guards[beyond[0]]:.3g} where >= 0 is needed"
            )
            return replace(node, status=Status.STEP_FAILED, message=text)
        guard = crossing.guard
        event = Event(
            t,
            name,
            "impact",
            impulse=None if np.isnan(impulse) else float(impulse[0, 0]),
            v_before=float(rates[guard]),
            v_after=float(later[guard]),
        )
        node = replace(node, events=(event,))
        return replace(node, status=Status.ZENO, message=_many(name)) if _accumulates(node, past) else node


def _accumulates(node: Node, past: Sequence[Node]) -> bool:
    """Return True if jumps come ever faster, with a limit that is reached up to rounding."""
    times = [*(other.t for other in past if other.counted), node.t]
    if len(times) < FEWEST:
        return False
    lengths = np.diff(times[-FEWEST:])
    return bool((np.diff(lengths) < 0.0).all() and lengths[-1] < ACCUMULATED * (times[-1] - times[0]))


def _many(name: str) -> str:
    return (
        f"{name} is reached ever faster, infinitely often until about this time; isolated jumps do not describe what "
        "follows, such as a body that rests: write it as an ns.CLS"
    )
