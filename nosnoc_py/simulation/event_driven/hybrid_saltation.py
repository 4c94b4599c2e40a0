"""Sensitivities of a hybrid system: variations along phases, and saltation with the derivatives of the resets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.simulation.event_driven.history import SimulationResult
from nosnoc_py.simulation.event_driven.hybrid import HybridFlow
from nosnoc_py.simulation.event_driven.records import Node
from nosnoc_py.simulation.event_driven.walk import GuardDerivative, NodeCrossing, VariationPropagation
from nosnoc_py.systems.controls import Control
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.tolerances import TOUCHING

Array = np.ndarray


def propagation_of(
    system: HybridSystem, history: SimulationResult, control: Control, grid: Array
) -> VariationPropagation:
    """Return derivatives of states and event times by x0, p and the values of a control on the intervals of a grid."""
    n_x = len(system.state_names)
    return _HybridVariationPropagation(n_x, n_x + system.n_p, system.n_u, history, control, grid)


@dataclass(frozen=True, eq=False, kw_only=True)
class HybridDerivatives:
    """Rate of w = (x, p) and its derivatives."""

    rate: Array
    rate_w: Array
    rate_u: Array
    slopes: Array


class _HybridCrossing(NodeCrossing):
    """Node of a hybrid system with its non-smooth conditions."""

    def _event(self, guard: int) -> str:
        return "a jump"

    def _modes(self) -> Iterator[str]:
        """Yield guards at the start."""
        if self.phase is None and self.after is not None:
            _, guards, _ = self.after.motion_at(self.node.t, self.node.after)
            for k in np.flatnonzero(guards <= TOUCHING):
                yield f"the start lies on the guard of {self._names[k]}"


class _HybridVariationPropagation(VariationPropagation):
    """Propagation of the variations of a hybrid system: saltation with the derivative of the reset."""

    crossing_type = _HybridCrossing

    def _motion(self, regime: Any, flow: HybridFlow, t: float, w: Array) -> HybridDerivatives:
        x, n_x = w[: self.n_x], self.n_x
        u = flow.control(t, x)
        by_w, by_u, slopes = flow.model.slopes(x, u, flow.p)
        rate, rate_w, rate_u = np.zeros(self.n_w), np.zeros((self.n_w, self.n_w)), np.zeros((self.n_w, by_u.shape[1]))
        rate[:n_x], rate_w[:n_x], rate_u[:n_x] = flow.motion_at(t, x)[0], by_w, by_u
        return HybridDerivatives(rate=rate, rate_w=rate_w, rate_u=rate_u, slopes=slopes)

    def _slopes(self, regime: Any, flow: HybridFlow, w: Array, u: Array) -> Array:
        by_w, by_u, _ = flow.model.slopes(w[..., : self.n_x], u, flow.p)
        return np.concatenate([by_w, by_u], axis=-1)

    def _guard(
        self, guard: int, regime: Any, flow: HybridFlow, t: float, w: Array, motion: HybridDerivatives
    ) -> GuardDerivative:
        return GuardDerivative(w=motion.slopes[guard], u=np.zeros(motion.rate_u.shape[1]))

    def _projection_derivative(self, flow: HybridFlow, node: Node) -> Array:
        return np.eye(self.n_w)

    def _jump(self, crossing: NodeCrossing) -> Array:
        """Return the derivative (n_w, n_w) of the reset."""
        matrix = np.eye(self.n_w)
        flow = crossing.flow or crossing.after
        if flow is not None and crossing.node.trigger is not None and crossing.node.events:
            reset = flow.model.resets[crossing.node.trigger]
            matrix[: self.n_x] = reset(crossing.node.before, flow.p)[2]
        return matrix
