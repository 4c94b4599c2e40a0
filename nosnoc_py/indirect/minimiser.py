"""argmin of the Hamiltonian over the controls (HMP, Eqs. 12, 25, 35, 44), in closed form where there is one.

A minimiser is a set of regimes: in each the control follows one smooth law, and a regime is left where its boundary
expression has a zero. Closed forms are found by the shape of flow and cost in u:

- flow affine, cost quadratic with constant curvature R(x): -R^-1 s, clipped to a box (R diagonal; where R is zero the
  control is at a bound) or to a ball (R a multiple of the identity);
- flow affine, cost e(x) |u|, u in a ball: full length against s where |s| > e, else zero;
- flow affine, cost sum of e_j(x) |u_j|, u in a box: the same for every component;
- anything else that is smooth: Newton's method, see `numeric`.

Here s = H_u at u = 0 without the cost that is not smooth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.functions import buffered
from nosnoc_py.indirect.control_set import ControlSet, same_function

Array = np.ndarray

NEWTON_STEPS = 50
NEWTON_TOLERANCE = 1e-13


@dataclass(frozen=True, eq=False, kw_only=True)
class Minimiser:
    """u* = argmin over U of H(x, lambda, u), and how far a control is from it.

    Attributes
    ----------
    kind : str
        "quadratic", "length", "separable" or "numeric".
    x, costate, u : SX
    control : SX (n_u,) or None
        The minimiser as an expression in x and the costate; None for "numeric".
    residual : SX (n_u,)
        In x, costate, u: H_u where U is everything and H smooth; else u - P(u - H_u), P the projection on U (the
        proximal map where the cost has a kink). Zero exactly at the minimiser.
    regime : SX (n_u,) or scalar
        Digits that name the smooth law that holds at (x, lambda); for "numeric" see `regimes`.
    law : digits -> SX (n_u,)
        An expression in x, costate and u that is zero where the control follows that law.
    boundary : (digits, digits) -> SX
        In x, costate and u: zero where one law, which u follows, gives way to the other.
    """

    kind: str
    x: ca.SX
    costate: ca.SX
    u: ca.SX
    control: ca.SX | None
    residual: ca.SX
    regime: ca.SX
    law: Callable[[tuple[int, ...]], ca.SX]
    boundary: Callable[[tuple[int, ...], tuple[int, ...]], ca.SX]
    smooth: tuple[ca.SX, ca.SX, ControlSet] | None = None

    @cached_property
    def _closed(self) -> ca.Function:
        return ca.Function("minimiser", [self.x, self.costate], [self.control])

    @cached_property
    def _regime(self) -> ca.Function:
        return ca.Function("regime", [self.x, self.costate], [self.regime])

    @cached_property
    def _newton(self) -> NumericMinimiser:
        assert self.smooth is not None
        return NumericMinimiser(self.x, self.costate, self.u, *self.smooth)

    def mapped(self, count: int) -> Callable[[Array, Array, Array], Array]:
        """A fast function of x (count, n_x), costate (count, n_x) and a start (count, n_u): the minimisers."""
        if self.control is None:
            newton = self._newton
            return lambda x, costate, u: newton(x, costate, u)
        evaluate = buffered(self._closed.map(count))
        return lambda x, costate, u: evaluate(x, costate)[0].T

    def __call__(self, x: Array, costate: Array, u: Array) -> Array:
        """The minimiser (n_u,) at one point, from a start (n_u,)."""
        if self.control is None:
            return np.asarray(self._newton(x[None], costate[None], u[None])[0])
        return np.array(self._closed(x, costate)).reshape(-1)

    def regimes(self, x: Array, costate: Array, near: Array | None = None) -> Array:
        """Digits of the regimes at points x, costate (count, n_x): (count, digits).

        `near` (count, n_u) are controls near the minimisers, zero by default; only "numeric" looks at them.
        """
        if self.smooth is not None and (bounds := self.smooth[2]).is_box:
            u = self._newton(x, costate, np.zeros((len(x), bounds.lower.size)) if near is None else near)
            return np.asarray(np.where(u <= bounds.lower, 0, np.where(u >= bounds.upper, 2, 1)))
        return np.rint(np.array(self._regime.map(len(x))(x.T, costate.T))).T.astype(int)


class NumericMinimiser:
    """Newton's method for all nodes at once, on u = P(u - H_u), P the projection on the set.

    A step that does not lower H is replaced by a shorter one along the projected gradient, so what it ends at is a
    minimum; for a Hamiltonian that is not convex in u, the one nearest to the start.
    """

    def __init__(
        self, x: ca.SX, costate: ca.SX, u: ca.SX, hamiltonian: ca.SX, slope: ca.SX, controls: ControlSet
    ) -> None:
        self.controls = controls
        hessian = ca.densify(ca.jacobian(slope, u))
        self._function = ca.Function("hamiltonian", [x, costate, u], [hamiltonian, ca.densify(slope), hessian])
        self._value = ca.Function("hamiltonian_value", [x, costate, u], [hamiltonian])
        self._cache: dict[int, tuple[ca.Function, ca.Function]] = {}

    def __call__(self, x: Array, costate: Array, u: Array) -> Array:
        """Minimisers (N, n_u) from starts (N, n_u); rows that do not converge keep their best point."""
        count, n_u = u.shape
        if count not in self._cache:
            self._cache[count] = self._function.map(count), self._value.map(count)
        function, value = self._cache[count]
        u = self.controls.project(np.array(u))
        for _ in range(NEWTON_STEPS):
            here, slope, curved = (np.array(out) for out in function(x.T, costate.T, u.T))
            slope, curvature = slope.T, curved.reshape(n_u, count, n_u).transpose(1, 0, 2)
            gradient_step = self.controls.project(u - slope) - u
            if np.abs(gradient_step).max(initial=0.0) <= NEWTON_TOLERANCE * (1 + np.abs(u).max(initial=0.0)):
                break
            u = self._descend(
                u, here[0], slope, self._newton_step(u, slope, curvature), gradient_step, value, x, costate
            )
        return np.asarray(u)

    def _newton_step(self, u: Array, slope: Array, curvature: Array) -> Array:
        """Newton's step in the components that are free, where the curvature is positive."""
        low, high = self.controls.lower, self.controls.upper
        stuck = ((u <= low) & (slope > 0)) | ((u >= high) & (slope < 0))
        free = ~stuck
        reduced = curvature * (free[:, :, None] & free[:, None, :]) + np.eye(u.shape[1]) * stuck[:, :, None]
        convex = np.linalg.eigvalsh(reduced)[:, 0] > 0
        reduced[~convex] = np.eye(u.shape[1])
        if self.controls.is_ball:
            return np.asarray(self._on_ball(u, slope, reduced) - u)
        step = -np.linalg.solve(reduced, np.where(stuck, 0.0, slope)[:, :, None])[:, :, 0]
        return np.asarray(np.clip(u + step, low, high) - u)

    def _on_ball(self, u: Array, slope: Array, curvature: Array) -> Array:
        """The minimum over the ball of the quadratic model, by its multiplier mu >= 0: |u(mu)| = r."""
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
            change = np.where(outside, length**2 / fall * (length / self.controls.radius - 1), 0.0)
            mu = np.maximum(mu + change, 0.0)
            if np.abs(change).max(initial=0.0) <= 1e-15 * (1 + np.abs(mu).max()):
                break
        return self.controls.project(v)

    def _descend(
        self,
        u: Array,
        here: Array,
        slope: Array,
        newton: Array,
        gradient: Array,
        value: ca.Function,
        x: Array,
        costate: Array,
    ) -> Array:
        """The best of Newton's step and ever shorter projected gradient steps, row by row."""
        rounding = 1e-14 * (1 + np.abs(here))
        done = np.zeros(len(u), bool)
        new = u.copy()
        for trial in (newton, *(gradient * 0.5**k for k in range(30))):
            candidate = self.controls.project(u + trial)
            there = np.array(value(x.T, costate.T, candidate.T))[0]
            better = ~done & (there <= here + 1e-4 * np.minimum(0.0, (slope * trial).sum(1)) + rounding)
            new[better] = candidate[better]
            done |= better
            if done.all():
                break
        return new


def minimiser(
    x: ca.SX, costate: ca.SX, u: ca.SX, flow: ca.SX, cost: ca.SX, controls: ControlSet, method: str
) -> Minimiser:
    """The minimiser of lambda'f(x, u) + L(x, u) over U.

    Raises
    ------
    OptionError
        If the Hamiltonian is unbounded on U: the message names what is missing.
    """
    hamiltonian = ca.dot(costate, flow) + cost
    if ca.jacobian(flow, u).is_zero() or not ca.depends_on(flow, u):
        raise OptionError(f"{method}: the flow does not depend on the control, so there is nothing to optimise.")
    affine = not ca.depends_on(ca.jacobian(flow, u), u)
    if affine:
        linear = ca.densify(ca.mtimes(ca.jacobian(flow, u).T, costate))
        for shape in (_length, _separable, _quadratic):
            found = shape(x, costate, u, linear, cost, controls, method)
            if found is not None:
                return found
    slope = ca.gradient(hamiltonian, u)
    return Minimiser(
        kind="numeric",
        x=x,
        costate=costate,
        u=u,
        control=None,
        residual=slope if not (controls.is_box or controls.is_ball) else u - _projected(u - slope, controls),
        regime=ca.SX(0),
        law=lambda digits: _law_in_box(u, slope, controls, digits) if controls.is_box else slope,
        boundary=lambda one, other: _first_change(
            one, other, lambda j, a, b: slope[j] if a != 1 else u[j] - (controls.lower if b == 0 else controls.upper)[j]
        ),
        smooth=(hamiltonian, slope, controls),
    )


def _law_in_box(u: ca.SX, slope: ca.SX, controls: ControlSet, digits: tuple[int, ...]) -> ca.SX:
    """Zero where every control is at the bound that its digit names (0, 2), or H_u is zero (1)."""
    low, high = controls.lower, controls.upper
    rows = [u[j] - low[j] if d == 0 else u[j] - high[j] if d == 2 else slope[j] for j, d in enumerate(digits)]
    return ca.vertcat(*rows)


def _length(
    x: ca.SX, costate: ca.SX, u: ca.SX, linear: ca.SX, cost: ca.SX, controls: ControlSet, method: str
) -> Minimiser | None:
    """L = L_0(x) + e(x) |u|: all or nothing, against the slope."""
    if u.numel() == 1:
        return None  # the absolute value, which `_separable` knows
    unit = ca.DM.zeros(u.numel())
    unit[0] = 1.0
    rest = ca.substitute(cost, u, ca.SX.zeros(u.numel()))
    weight = ca.substitute(cost, u, ca.SX(unit)) - rest
    if not same_function(cost - rest, weight * ca.norm_2(u), x, u) or same_function(weight, ca.SX(0), x):
        return None
    if not controls.is_ball:
        raise OptionError(
            f"{method}: with a cost of |u| the Hamiltonian is unbounded below in u; bound the control's length by a "
            "path constraint ca.norm_2(u) <= r, or use a quadratic cost."
        )
    size, r = ca.norm_2(linear), controls.radius
    on = size > weight
    full = -r * linear / ca.fmax(size, 1e-300)
    laws: dict[tuple[int, ...], ca.SX] = {(0,): u, (1,): u + r * linear / size}
    back = u - linear
    length = ca.sqrt(ca.sumsqr(back))
    shrunk = ca.fmin(ca.fmax(length - weight, 0), r) / ca.fmax(length, 1e-300)
    return Minimiser(
        kind="length",
        x=x,
        costate=costate,
        u=u,
        control=ca.if_else(on, full, ca.SX.zeros(u.numel())),
        residual=u - back * shrunk,
        regime=ca.if_else(on, 1, 0),
        law=lambda digits: laws[digits],
        boundary=lambda one, other: size - weight,
    )


def _separable(
    x: ca.SX, costate: ca.SX, u: ca.SX, linear: ca.SX, cost: ca.SX, controls: ControlSet, method: str
) -> Minimiser | None:
    """L = L_0(x) + sum of e_j(x) |u_j|: every component is zero or at a bound."""
    n_u = u.numel()
    rest = ca.substitute(cost, u, ca.SX.zeros(n_u))
    units = [ca.SX(ca.DM(np.eye(n_u)[j])) for j in range(n_u)]
    weights = ca.vertcat(*[ca.substitute(cost, u, unit) - rest for unit in units])
    if same_function(weights, ca.SX.zeros(n_u), x) or not same_function(cost - rest, ca.dot(weights, ca.fabs(u)), x, u):
        return None
    low, high = controls.lower, controls.upper
    if controls.is_ball or not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise OptionError(
            f"{method}: with a cost of |u_j| the Hamiltonian is unbounded below unless every control is bounded; give "
            "ns.Bounds(u=(lower, upper)), finite, or a quadratic cost."
        )
    if (low > 0).any() or (high < 0).any():
        raise OptionError(f"{method}: with a cost of |u_j| the bounds of every control have to include zero.")
    up, down = linear < -weights, linear > weights
    digit = ca.if_else(up, 2, ca.if_else(down, 0, 1))
    control = ca.if_else(up, ca.SX(ca.DM(high)), ca.if_else(down, ca.SX(ca.DM(low)), ca.SX.zeros(n_u)))
    back = u - linear
    shrunk = ca.sign(back) * ca.fmax(ca.fabs(back) - weights, 0)
    values = np.array([low, np.zeros(n_u), high])
    return Minimiser(
        kind="separable",
        x=x,
        costate=costate,
        u=u,
        control=control,
        residual=u - _projected(shrunk, controls),
        regime=digit,
        law=lambda digits: u - ca.DM(values[list(digits), range(n_u)]),
        boundary=lambda one, other: _first_change(
            one, other, lambda j, a, b: linear[j] + weights[j] if 2 in (a, b) else linear[j] - weights[j]
        ),
    )


def _quadratic(
    x: ca.SX, costate: ca.SX, u: ca.SX, linear: ca.SX, cost: ca.SX, controls: ControlSet, method: str
) -> Minimiser | None:
    """L quadratic in u with curvature R(x): -R^-1 s, clipped; at the bounds where R has a zero on its diagonal."""
    curvature = ca.hessian(cost, u)[0]
    if ca.depends_on(curvature, u):
        return None
    n_u = u.numel()
    at_zero = linear + ca.substitute(ca.gradient(cost, u), u, ca.SX.zeros(n_u))
    slope = at_zero + ca.mtimes(curvature, u)
    diagonal = all(i == j for i, j in zip(*curvature.sparsity().get_triplet(), strict=True))
    values = np.array(ca.Function("R", [x], [ca.densify(curvature)])(np.full(x.numel(), 0.37)))
    flat = np.diag(values) == 0.0
    bounded = np.isfinite(controls.lower) & np.isfinite(controls.upper)
    at_bounds = diagonal and (np.diag(values) >= 0).all() and bounded[flat].all()
    if not (np.linalg.eigvalsh(values).min() > 0 or at_bounds):
        if bounded.all() or controls.is_ball:
            return None  # not convex, but it has a minimum
        raise OptionError(
            f"{method}: the Hamiltonian is unbounded below in u: the cost has no positive curvature in every control "
            "and the controls without it have no bounds; add a cost like ca.sumsqr(u), or bound the controls."
        )
    if controls.is_ball:
        multiple = np.allclose(values, values[0, 0] * np.eye(n_u), rtol=1e-14, atol=0.0)
        return _quadratic_on_ball(x, costate, u, at_zero, slope, curvature[0, 0], controls) if multiple else None
    if controls.is_box:
        return _quadratic_in_box(x, costate, u, at_zero, slope, curvature, flat, controls) if diagonal else None
    return Minimiser(
        kind="quadratic",
        x=x,
        costate=costate,
        u=u,
        control=-ca.solve(ca.densify(curvature), at_zero),
        residual=slope,
        regime=ca.SX(0),
        law=lambda digits: slope,
        boundary=lambda one, other: ca.SX(np.nan),
    )


def _quadratic_in_box(
    x: ca.SX,
    costate: ca.SX,
    u: ca.SX,
    at_zero: ca.SX,
    slope: ca.SX,
    curvature: ca.SX,
    flat: Array,
    controls: ControlSet,
) -> Minimiser:
    n_u = u.numel()
    low, high = controls.lower, controls.upper
    free = [
        ca.if_else(at_zero[j] > 0, low[j], high[j]) if flat[j] else -at_zero[j] / curvature[j, j] for j in range(n_u)
    ]
    control = ca.vertcat(*[ca.fmin(ca.fmax(free[j], low[j]), high[j]) for j in range(n_u)])
    digit = ca.vertcat(*[ca.if_else(free[j] <= low[j], 0, ca.if_else(free[j] >= high[j], 2, 1)) for j in range(n_u)])

    def edge(j: int, one: int, other: int) -> ca.SX:
        if flat[j]:
            return at_zero[j]
        return free[j] - (low[j] if 0 in (one, other) else high[j])

    return Minimiser(
        kind="quadratic",
        x=x,
        costate=costate,
        u=u,
        control=control,
        residual=u - _projected(u - slope, controls),
        regime=digit,
        law=lambda digits: _law_in_box(u, slope, controls, digits),
        boundary=lambda one, other: _first_change(one, other, edge),
    )


def _quadratic_on_ball(
    x: ca.SX, costate: ca.SX, u: ca.SX, at_zero: ca.SX, slope: ca.SX, curvature: ca.SX, controls: ControlSet
) -> Minimiser:
    free, r = -at_zero / curvature, controls.radius
    size = ca.norm_2(free)
    laws: dict[tuple[int, ...], ca.SX] = {(0,): slope, (1,): u - r * free / size}
    return Minimiser(
        kind="quadratic",
        x=x,
        costate=costate,
        u=u,
        control=free * ca.fmin(1, r / ca.fmax(size, 1e-300)),
        residual=u - _projected(u - slope, controls),
        regime=ca.if_else(size > r, 1, 0),
        law=lambda digits: laws[digits],
        boundary=lambda one, other: size - r,
    )


def _projected(u: ca.SX, controls: ControlSet) -> ca.SX:
    """The nearest admissible control, as an expression."""
    if controls.is_ball:
        return u * ca.fmin(1, controls.radius / ca.fmax(ca.sqrt(ca.sumsqr(u)), 1e-300))
    return ca.fmin(ca.fmax(u, ca.DM(controls.lower)), ca.DM(controls.upper))


def _first_change(one: tuple[int, ...], other: tuple[int, ...], edge: Callable[[int, int, int], ca.SX]) -> ca.SX:
    """The boundary of the first component whose digit changes."""
    j = next(k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return edge(j, one[j], other[j])
