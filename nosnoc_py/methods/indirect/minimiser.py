"""Minimiser of the Hamiltonian over the controls, u* = argmin H(x, lambda, u) (HMP, Eqs. 12, 25, 35, 44).

A minimiser consists of regimes: in each one the control follows a smooth law (a free minimum, a bound, zero), and a
regime ends where its boundary expression is zero. `minimiser_forms` detects closed forms. Without one, a projected
Newton method minimises a smooth Hamiltonian for all nodes at once (`NumericMinimiser`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.methods.indirect.control_set import ControlSet

Array = np.ndarray
Digits = tuple[int, ...]

# A control counts as on the sphere within this relative distance from it.
ON_SPHERE = 1e-10
NEWTON_STEPS = 50
NEWTON_TOLERANCE = 1e-13
# Number of halved projected gradient steps tried where Newton's step does not decrease H.
HALVINGS = 30


class NumericMinimiser:
    """Projected Newton method for u = P(u - H_u) at all nodes at once, P the projection onto the control set.

    A step that does not decrease H is replaced by a projected gradient step, so the limit is a local minimum (Bertsekas
    1982); for a Hamiltonian that is not convex in u usually the one nearest to the start.
    """

    def __init__(
        self, x: ca.SX, costate: ca.SX, u: ca.SX, hamiltonian: ca.SX, slope: ca.SX, controls: ControlSet
    ) -> None:
        self.controls = controls
        hessian = ca.densify(ca.jacobian(slope, u))
        function = ca.Function("hamiltonian", [x, costate, u], [hamiltonian, ca.densify(slope), hessian])
        value = ca.Function("hamiltonian_value", [x, costate, u], [hamiltonian])
        self._mapped = cache(lambda count: (function.map(count), value.map(count)))

    def __call__(self, x: Array, costate: Array, u: Array) -> Array:
        """Return minimisers (N, n_u) from starts (N, n_u); rows that do not converge keep their best point.

        All rows are NaN if a derivative is not finite.
        """
        count, n_u = u.shape
        function, value = self._mapped(count)
        u = self.controls.project(np.array(u))
        for _ in range(NEWTON_STEPS):
            values, slope, hessians = (np.array(out) for out in function(x.T, costate.T, u.T))
            slope, curvature = slope.T, hessians.reshape(n_u, count, n_u).transpose(1, 0, 2)
            if not (np.isfinite(slope).all() and np.isfinite(curvature).all()):
                # NaN makes the sweep fail with a message instead of iterating on a wrong control.
                return np.full_like(u, np.nan)
            gradient_step = self.controls.project(u - slope) - u
            if np.abs(gradient_step).max(initial=0.0) <= NEWTON_TOLERANCE * (1 + np.abs(u).max(initial=0.0)):
                break
            # Try Newton first; per row, projected gradient steps of decreasing length replace it where H does not
            # decrease.
            trials = [self._newton_step(u, slope, curvature), *(gradient_step * 0.5**k for k in range(HALVINGS))]
            u = self._descend(u, lambda u: np.array(value(x.T, costate.T, u.T))[0], values[0], slope, trials)
        return np.asarray(u)

    def _newton_step(self, u: Array, slope: Array, curvature: Array) -> Array:
        """Return Newton's step in the free components; a gradient step where the Hessian is indefinite."""
        low, high = self.controls.lower, self.controls.upper
        # Active set: components at a bound that the gradient pushes outwards are fixed (Bertsekas 1982).
        at_bound = ((u <= low) & (slope > 0)) | ((u >= high) & (slope < 0))
        free = ~at_bound
        reduced = curvature * (free[:, :, None] & free[:, None, :]) + np.eye(u.shape[1]) * at_bound[:, :, None]
        convex = np.linalg.eigvalsh(reduced)[:, 0] > 0
        # An indefinite Hessian would lead to a saddle or a maximum; use the gradient direction instead.
        reduced[~convex] = np.eye(u.shape[1])
        if self.controls.is_ball:
            return np.asarray(self._on_ball(u, slope, reduced) - u)
        step = -np.linalg.solve(reduced, np.where(at_bound, 0.0, slope)[:, :, None])[:, :, 0]
        return np.asarray(np.clip(u + step, low, high) - u)

    def _on_ball(self, u: Array, slope: Array, curvature: Array) -> Array:
        """Minimise the quadratic model over the ball: |u(mu)| = r with a multiplier mu >= 0 (More, Sorensen 1983)."""
        eye, target = np.eye(u.shape[1]), np.einsum("nij,nj->ni", curvature, u) - slope
        mu = np.zeros(len(u))
        for _ in range(60):
            matrix = curvature + mu[:, None, None] * eye
            v = np.linalg.solve(matrix, target[:, :, None])[:, :, 0]
            length = np.linalg.norm(v, axis=1)
            outside = (length > self.controls.radius * (1 + 1e-15)) | (mu > 0)
            if not outside.any():
                break
            fall = np.einsum("ni,ni->n", v, np.linalg.solve(matrix, v[:, :, None])[:, :, 0])
            # Newton's method on 1/r - 1/|u(mu)|, which is nearly linear in mu.
            growth = length**2 * (length / self.controls.radius - 1)
            change = np.divide(growth, fall, out=np.zeros_like(fall), where=outside & (fall > 0.0))
            mu = np.maximum(mu + change, 0.0)
            if np.abs(change).max(initial=0.0) <= 1e-15 * (1 + np.abs(mu).max()):
                break
        return self.controls.project(v)

    def _descend(
        self, u: Array, value: Callable[[Array], Array], values: Array, slope: Array, trials: Iterable[Array]
    ) -> Array:
        """Apply, row by row, the first trial step with sufficient decrease from `values` (N,) with slopes (N, n_u)."""
        # At the minimum H no longer falls by more than its rounding.
        rounding = 1e-14 * (1 + np.abs(values))
        done = np.zeros(len(u), bool)
        result = u.copy()
        for trial in trials:
            candidate = self.controls.project(u + trial)
            # Armijo's condition; a trial that does not point downhill gets no credit.
            threshold = values + 1e-4 * np.minimum(0.0, (slope * trial).sum(1)) + rounding
            accepted = ~done & (value(candidate) <= threshold)
            result[accepted] = candidate[accepted]
            done |= accepted
            if done.all():
                break
        return result


@dataclass(frozen=True, eq=False, kw_only=True)
class Minimiser:
    """Minimiser u* of H(x, lambda, u) over U, with its regimes and a residual of optimality.

    Attributes
    ----------
    kind : str
        "quadratic", "length", "separable" or "numeric".
    x, costate, u : SX
    control : SX (n_u,) or None
        The minimiser as an expression in x and the costate; None for "numeric".
    residual : SX (n_u,)
        In x, costate, u: H_u for unbounded U and smooth H, else u - P(u - H_u) with the projection P onto U (the
        proximal map for a cost with a kink). Zero exactly at the minimiser.
    regime : SX (n_u,) or scalar
        Digits that identify the smooth law at (x, lambda); for "numeric" see `regimes`.
    law : digits -> SX (n_u,)
        Expression in x, costate and u that is zero if the control follows the law of the digits.
    boundary : (digits, digits) -> SX
        Expression in x, costate and u that is zero where the first law, which u follows, changes to the second.
    newton : NumericMinimiser, optional
        Numeric minimiser if there is no closed form.
    """

    kind: str
    x: ca.SX
    costate: ca.SX
    u: ca.SX
    control: ca.SX | None
    residual: ca.SX
    regime: ca.SX
    law: Callable[[Digits], ca.SX]
    boundary: Callable[[Digits, Digits], ca.SX]
    newton: NumericMinimiser | None = None

    def mapped(self, count: int) -> Callable[[Array, Array, Array], Array]:
        """Build a fast map of x (count, n_x), costate (count, n_x) and a start (count, n_u) to the minimisers."""
        if self.newton is not None:
            return self.newton
        evaluate = buffered(ca.Function("minimiser", [self.x, self.costate], [self.control]).map(count))
        return lambda x, costate, u: evaluate(x, costate)[0].T

    def regimes(self, x: Array, costate: Array, near: Array | None = None) -> Array:
        """Return the regime digits at points x, costate (count, n_x): (count, digits).

        `near` (count, n_u) are controls near the minimisers (default zero); only "numeric" uses them.
        """
        if self.newton is not None and (bounds := self.newton.controls).is_bounded:
            u = self.newton(x, costate, np.zeros((len(x), bounds.lower.size)) if near is None else near)
            if bounds.is_ball:
                length = np.linalg.norm(u, axis=1, keepdims=True)
                return np.where(length >= bounds.radius * (1 - ON_SPHERE), 1, 0)
            return np.asarray(np.where(u <= bounds.lower, 0, np.where(u >= bounds.upper, 2, 1)))
        regime = ca.Function("regime", [self.x, self.costate], [self.regime]).map(len(x))
        return np.rint(np.array(regime(x.T, costate.T))).T.astype(int)
