"""Sensitivities of a Filippov system: variations along phases, and saltation matrices at surfaces.

The state is continuous, so that an event (`motion.variations.saltation` without a reset) is a projection where sliding
starts, and the identity where it ends with the same flow on both sides. A start on a sliding surface is a projection,
too: a neighbour reaches the surface within no time by the flow of its side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nosnoc_py.audit.redundancy import REDUNDANT
from nosnoc_py.implicit_function import derivative
from nosnoc_py.motion.variations import projection
from nosnoc_py.simulation.event_driven.filippov.candidates import touched_of
from nosnoc_py.simulation.event_driven.filippov.regime import DISTANCE, LOW, FilippovFlow, FilippovRegime
from nosnoc_py.simulation.event_driven.history import SimulationResult
from nosnoc_py.simulation.event_driven.records import Node
from nosnoc_py.simulation.event_driven.walk import GuardDerivative, NodeCrossing, VariationPropagation
from nosnoc_py.systems.controls import Control
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.inclusion import STEP
from nosnoc_py.tolerances import TOUCHING

Array = np.ndarray
# Multipliers this close to their bounds at the start may cross them with a small change of the data.
AT_BOUND = 1e-8


def propagation_of(system: Described, history: SimulationResult, control: Control, grid: Array) -> VariationPropagation:
    """Return derivatives of states and event times by x0, p and the values of a control on the intervals of a grid."""
    n_x = len(system.state_names)
    return _FilippovVariationPropagation(n_x, n_x + system.n_p, system.n_u, history, control, grid)


@dataclass(frozen=True, eq=False, kw_only=True)
class FilippovMotion:
    """Motion in one regime, dw/dt (n_w,), and its derivatives; s are multipliers and algebraic variables."""

    rate: Array
    rate_w: Array
    rate_u: Array
    rate_s: Array
    s_w: Array
    s_u: Array


def motion_of(flow: FilippovFlow, regime: FilippovRegime, t: float, w: Array) -> FilippovMotion:
    """Return the motion with its derivatives through the equations of the multipliers."""
    laws, n_x = flow.laws, flow.laws.n_x
    u = flow.control(t, w[:n_x])
    s = regime.solve(w, u)
    rate, slope = laws.motion(s, w, u, regime.masks)[0], laws.residual(s, w, u, regime.masks)[1]
    rows_w, rows_u, rate_s, rate_w, rate_u = laws.slopes(s, w, u, regime.masks)
    # Implicit function theorem on the equations of the multipliers.
    s_w, s_u = np.split(derivative(slope, np.hstack([rows_w, rows_u])), [w.size], axis=1)
    full, moved = np.zeros((w.size, w.size)), np.zeros(w.size)
    full[:n_x], moved[:n_x] = rate_w + rate_s @ s_w, rate[:, 0]
    driven = np.zeros((w.size, u.size))
    driven[:n_x] = rate_u + rate_s @ s_u
    return FilippovMotion(rate=moved, rate_w=full, rate_u=driven, rate_s=rate_s, s_w=s_w, s_u=s_u)


def slopes_of(flow: FilippovFlow, regime: FilippovRegime, w: Array, u: Array) -> Array:
    """Return derivatives of dx/dt by (w, u), (m, n_x, n_w + n_u), at w (m, n_w) and u (m, n_u)."""
    laws, n_w = flow.laws, w.shape[1]
    s = regime.solve_many(w, u)
    slope = laws.residual_many(s, w, u, regime.masks)[1]
    rows_w, rows_u, rate_s, rate_w, rate_u = laws.slopes_many(s, w, u, regime.masks)
    s_wu = derivative(slope, np.concatenate([rows_w, rows_u], axis=-1))
    return np.concatenate([rate_w + rate_s @ s_wu[..., :n_w], rate_u + rate_s @ s_wu[..., n_w:]], axis=-1)


class _FilippovNodeCrossing(NodeCrossing):
    """Node of a Filippov system with its non-smooth conditions."""

    def _event(self, guard: int) -> str:
        return "an event" if guard < 3 * self._count else ""

    def _modes(self) -> Iterator[str]:
        """Yield surfaces at the start that the motion leaves, and multipliers on their bounds."""
        if self.phase is not None or self.after is None:
            return
        node, flow, laws, regime = self.node, self.after, self.after.laws, self.node.regime
        touched = touched_of(laws, flow.functions(node.after)[0], TOUCHING)
        for i in np.flatnonzero(touched & (regime.sign != 0.0)):
            # Neighbouring starts on the other side of this surface have another flow at first.
            yield f"the start lies on {laws.names[i]}, which the motion leaves"
        s = flow.motion_at(regime, node.t, node.after).s
        bounds = flow.guards(regime, node.after, s)[laws.n_y : 3 * laws.n_y]
        for i in np.flatnonzero(bounds <= AT_BOUND):
            yield f"the multiplier of {laws.names[i % laws.n_y]} starts on its bound"
        steps = np.bincount(laws.parts, regime.free & (laws.kinds == STEP))
        if (not laws.affine or (steps > 1.0).any()) and regime.free.sum() > 1:
            yield "the start lies on several surfaces, which neighbours reach in different orders"


class _FilippovVariationPropagation(VariationPropagation):
    """Propagation of the variations of a Filippov system."""

    crossing_type = _FilippovNodeCrossing

    def _motion(self, regime: FilippovRegime, flow: FilippovFlow, t: float, w: Array) -> FilippovMotion:
        return motion_of(flow, regime, t, w)

    def _slopes(self, regime: FilippovRegime, flow: FilippovFlow, w: Array, u: Array) -> Array:
        return slopes_of(flow, regime, w, u)

    def _guard(
        self, guard: int, regime: FilippovRegime, flow: FilippovFlow, t: float, w: Array, motion: FilippovMotion
    ) -> GuardDerivative:
        block, k = divmod(guard, flow.laws.n_y)
        if block == DISTANCE:
            slope = regime.relative(flow.functions(w[: self.n_x])[1])[k]
            return GuardDerivative(w=slope, u=np.zeros(motion.s_u.shape[1]))
        # The guard of an upper bound is 1 - y.
        sign = 1.0 if block == LOW else -1.0
        return GuardDerivative(w=sign * motion.s_w[k], u=sign * motion.s_u[k])

    def _projection_derivative(self, flow: FilippovFlow, node: Node) -> Array:
        """Return the derivative (n_w, n_w) of the projection onto the surfaces the state slides on."""
        regime = node.regime
        rows = np.flatnonzero(regime.free)
        if not rows.size:
            return np.eye(self.n_w)
        motion = motion_of(flow, regime, node.t, self._w(node.after))
        c_w = flow.functions(node.after)[1]
        compared = regime.reference[rows]
        slope = c_w[rows] - (compared >= 0)[:, None] * c_w[compared]
        # Weights are moved to other regions from the active region they are compared with.
        columns = motion.rate_s[:, rows] - motion.rate_s[:, compared] * (compared >= 0)
        return projection(slope, np.pad(columns, ((0, self.n_w - self.n_x), (0, 0))), REDUNDANT)
