"""Closed forms of the minimiser of the Hamiltonian, detected by the form of flow and cost in u.

- flow affine, cost quadratic with curvature R(x): -R^-1 s, clipped to a box (R diagonal; a component with R = 0 is at a
  bound: bang-bang) or to a ball (R a multiple of the identity);
- flow affine, cost e(x) |u|, u in a ball: full length against s if |s| > e, else zero (HMP, Section 5.4);
- flow affine, cost sum of e_j(x) |u_j| + r_j(x) u_j^2 / 2: soft thresholding, clipped to a box; with r_j = 0 the
  control is zero or at a bound (bang-off-bang);
- any other smooth Hamiltonian: Newton's method.

Here s = H_u at u = 0 without the nonsmooth part of the cost. Forms are tested at random points (`same_function`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.methods.indirect.control_set import ControlSet, probes, same_function
from nosnoc_py.methods.indirect.minimiser import Digits, Minimiser, NumericMinimiser

Array = np.ndarray

# CasADi operations with a kink or a jump.
KINKS = frozenset(
    getattr(ca, f"OP_{name}")
    for name in ("FABS", "SIGN", "FMIN", "FMAX", "LT", "LE", "EQ", "NE", "NOT", "AND", "OR", "FLOOR", "CEIL", "FMOD")
)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Hamiltonian:
    """Hamiltonian lambda'f + L over U; `linear` = f_u'lambda (without u if f is affine), `method` names errors."""

    x: ca.SX
    costate: ca.SX
    u: ca.SX
    linear: ca.SX
    cost: ca.SX
    total: ca.SX
    controls: ControlSet
    method: str

    def minimiser(self, kind: str, **parts: Any) -> Minimiser:
        """Build a minimiser of this Hamiltonian."""
        return Minimiser(kind=kind, x=self.x, costate=self.costate, u=self.u, **parts)

    def cost_at(self, u: Any) -> ca.SX:
        """Return L at a control."""
        return ca.substitute(self.cost, self.u, ca.SX(ca.DM(u)))

    def off_projection(self, slope: ca.SX) -> ca.SX:
        """Return H_u, or u - P(u - H_u) with bounds."""
        return self.u - projected(self.u - slope, self.controls) if self.controls.is_bounded else slope


def minimiser(
    x: ca.SX, costate: ca.SX, u: ca.SX, flow: ca.SX, cost: ca.SX, controls: ControlSet, method: str
) -> Minimiser:
    """Return the minimiser of lambda'f(x, u) + L(x, u) over U.

    Raises
    ------
    OptionError
        If the Hamiltonian is unbounded on U, or has a kink in u that is not one of the known forms; the message names a
        remedy.
    """
    if ca.jacobian(flow, u).is_zero() or not ca.depends_on(flow, u):
        raise OptionError(f"{method}: the flow does not depend on the control, so there is nothing to optimise.")
    linear, total = ca.densify(ca.mtimes(ca.jacobian(flow, u).T, costate)), ca.dot(costate, flow) + cost
    h = _Hamiltonian(x=x, costate=costate, u=u, linear=linear, cost=cost, total=total, controls=controls, method=method)
    affine = not ca.depends_on(ca.jacobian(flow, u), u) and not has_kink(flow, u)
    # Nonsmooth forms first: they test the cost itself, and the others would differentiate its kink.
    closed_form = (_norm_cost_form(h) or _separable_form(h)) if affine else None
    if closed_form is None:
        _check_smooth(h)
    # Closed forms before the numeric one, which costs a Newton method at every node.
    return closed_form or (_quadratic_form(h) if affine else None) or _numeric_form(h)


def has_kink(expression: ca.SX, u: ca.SX) -> bool:
    """True if an expression branches on u, or applies an absolute value, minimum or the like to terms with u."""
    of_u = {s.element_hash() for s in ca.symvar(u)}
    others = [s for s in ca.symvar(expression) if s.element_hash() not in of_u]
    function = ca.Function("look", [u, ca.vertcat(ca.SX(0, 1), *others)], [expression])
    # Instructions of a function name its registers, which are used again: the last write counts.
    depends: dict[int, bool] = {}
    for k in range(function.n_instructions()):
        kind, inputs = function.instruction_id(k), function.instruction_input(k)
        if kind == ca.OP_OUTPUT:
            continue
        depends_on_u = inputs[0] == 0 if kind == ca.OP_INPUT else any(depends.get(i, False) for i in inputs)
        branches = kind == ca.OP_IF_ELSE_ZERO and depends.get(inputs[0], False)
        if kind != ca.OP_INPUT and ((depends_on_u and kind in KINKS) or branches):
            return True
        depends[function.instruction_output(k)[0]] = depends_on_u
    return False


def _check_smooth(h: _Hamiltonian) -> None:
    slope = ca.Function("slope", [h.x, h.costate, h.u], [ca.gradient(h.total, h.u)])
    at_zero = [np.isfinite(np.array(slope(a, b, 0.0))).all() for a, b in probes(h.x, h.costate)]
    if has_kink(h.total, h.u) or not any(at_zero):
        raise OptionError(
            f"{h.method}: the Hamiltonian has a kink in u (an absolute value, a minimum, a branch, a root at u = 0) "
            "that is not one of the known forms, e |u| with |u| bounded and the sum of e_j |u_j| + r_j u_j^2 / 2; "
            "smooth it, for example by ca.sqrt(u**2 + delta**2) - delta with a small delta."
        )


def _numeric_form(h: _Hamiltonian) -> Minimiser:
    """Build the numeric minimiser; its regimes are the active bounds."""
    u, controls, slope = h.u, h.controls, ca.gradient(h.total, h.u)
    outward, square = ca.dot(slope, u), ca.sumsqr(u) - controls.radius**2 if controls.is_ball else ca.SX(0)

    def law(digits: Digits) -> ca.SX:
        if controls.is_box:
            return _rows(_laws_in_box(h, slope), digits)
        # On the sphere: H_u parallel to u and |u| = r, combined into n_u equations.
        return slope + (square - outward / controls.radius**2) * u if digits == (1,) else slope

    def edge(j: int, one: int, other: int) -> ca.SX:
        if controls.is_ball:
            return outward if one == 1 else square
        return slope[j] if one != 1 else u[j] - (controls.lower if other == 0 else controls.upper)[j]

    return h.minimiser(
        "numeric",
        control=None,
        residual=h.off_projection(slope),
        regime=ca.SX(0),
        law=law,
        boundary=_first_change(edge),
        newton=NumericMinimiser(h.x, h.costate, u, h.total, slope, controls),
    )


def _norm_cost_form(h: _Hamiltonian) -> Minimiser | None:
    """Build the minimiser for L = L_0(x) + e(x) |u|: full length against s, or zero; None for another cost."""
    u, n_u = h.u, h.u.numel()
    if n_u == 1:
        return None  # the absolute value: a case of `_separable_form`
    rest = h.cost_at(np.zeros(n_u))
    # The norm of a unit vector is 1: its cost is the weight.
    weight = h.cost_at(np.eye(n_u)[0]) - rest
    if not same_function(h.cost - rest, weight * ca.norm_2(u), h.x, u) or same_function(weight, ca.SX(0), h.x):
        return None
    if not h.controls.is_ball:
        raise OptionError(
            f"{h.method}: with a cost of |u| the Hamiltonian is unbounded below in u; bound the control's length by a "
            "path constraint ca.sumsqr(u) <= r**2, or use a quadratic cost."
        )
    # Along -s the cost falls by |s| and rises by e per unit of length: all or nothing.
    size, r = ca.norm_2(h.linear), h.controls.radius
    on = size > weight
    laws: dict[Digits, ca.SX] = {(0,): u, (1,): u + r * h.linear / size}
    back = u - h.linear
    length = ca.sqrt(ca.sumsqr(back))
    # Proximal map of e |u|: it shortens the vector by e, but not below zero.
    shrunk = ca.fmin(ca.fmax(length - weight, 0), r) / ca.fmax(length, 1e-300)
    return h.minimiser(
        "length",
        control=ca.if_else(on, -r * h.linear / ca.fmax(size, 1e-300), ca.SX.zeros(n_u)),
        residual=u - back * shrunk,
        regime=ca.if_else(on, 1, 0),
        law=lambda digits: laws[digits],
        boundary=lambda one, other: size - weight,
    )


def _separable_form(h: _Hamiltonian) -> Minimiser | None:
    """Build the minimiser for L = L_0(x) + sum of g_j u_j + e_j |u_j| + r_j u_j^2 / 2 (soft thresholds), or None."""
    u, n_u, low, high = h.u, h.u.numel(), h.controls.lower, h.controls.upper
    rest = h.cost_at(np.zeros(n_u))

    def along(size: float) -> ca.SX:
        return ca.vertcat(*[h.cost_at(size * unit) - rest for unit in np.eye(n_u)])

    # Even and odd parts at 1 and 2 separate e_j |u_j|, r_j u_j^2 / 2 and g_j u_j; `shape` then verifies the form.
    even = (along(1.0) + along(-1.0)) / 2
    curvature = (along(2.0) + along(-2.0)) / 2 - 2 * even
    weights, slopes = even - curvature / 2, (along(1.0) - along(-1.0)) / 2
    shape = ca.dot(slopes, u) + ca.dot(weights, ca.fabs(u)) + ca.dot(curvature, u**2) / 2
    if same_function(weights, ca.SX.zeros(n_u), h.x) or not same_function(h.cost - rest, shape, h.x, u):
        return None
    if not (_is_nonnegative(weights, h.x) and _is_nonnegative(curvature, h.x)):
        return None  # not convex: a kink that `_check_smooth` refuses
    flat = np.array([same_function(curvature[j], ca.SX(0), h.x) for j in range(n_u)])
    if h.controls.is_ball or not (np.isfinite(low) & np.isfinite(high))[flat].all():
        raise OptionError(
            f"{h.method}: with a cost of |u_j| the Hamiltonian is unbounded below unless every control without a "
            "quadratic cost is bounded; give ns.Bounds(u=(lower, upper)), finite, not a bound on the length."
        )
    if (low > 0).any() or (high < 0).any():
        raise OptionError(f"{h.method}: with a cost of |u_j| the bounds of every control have to include zero.")
    s = h.linear + slopes
    # A flat component has no curvature to divide by; its control is at a bound and uses the sign only.
    safe = ca.vertcat(*[ca.SX(1) if flat[j] else curvature[j] for j in range(n_u)])
    soft = -ca.sign(s) * ca.fmax(ca.fabs(s) - weights, 0) / safe
    at_bound = [ca.if_else(soft[j] > 0, high[j], ca.if_else(soft[j] < 0, low[j], 0)) for j in range(n_u)]
    free = ca.vertcat(*[at_bound[j] if flat[j] else soft[j] for j in range(n_u)])
    smooth = s + curvature * u
    # Below zero |u| has the slope -1, above zero 1: hence the signs of the weights.
    laws = {0: u - ca.DM(low), 1: smooth - weights, 2: u, 3: smooth + weights, 4: u - ca.DM(high)}

    def edge(j: int, one: int, other: int) -> ca.SX:
        # The boundary between two laws does not depend on the direction in which it is crossed.
        pair = {one, other}
        sign = 1.0 if max(pair) > 2 else -1.0  # above zero, or below
        if 2 in pair:
            return s[j] + sign * weights[j]
        return -(s[j] + sign * weights[j]) / safe[j] - (high[j] if sign > 0 else low[j])

    back = u - smooth
    shrunk = ca.sign(back) * ca.fmax(ca.fabs(back) - weights, 0)
    return h.minimiser(
        "separable",
        control=projected(free, h.controls),
        residual=u - projected(shrunk, h.controls),
        regime=ca.vertcat(*[_soft_digit(free[j], low[j], high[j]) for j in range(n_u)]),
        law=lambda digits: _rows(laws, digits),
        boundary=_first_change(edge),
    )


def _soft_digit(free: ca.SX, low: float, high: float) -> ca.SX:
    """Return the digit: 0 at the lower bound, 1 below zero, 2 at zero, 3 above, 4 at the upper bound."""
    below, above = ca.if_else(free <= low, 0, 1), ca.if_else(free >= high, 4, 3)
    return ca.if_else(free < 0, below, ca.if_else(free > 0, above, 2))


def _quadratic_form(h: _Hamiltonian) -> Minimiser | None:
    """Build the minimiser for L quadratic in u: -R(x)^-1 s, clipped; bang-bang for zero diagonals of R; or None."""
    controls, n_u, curvature = h.controls, h.u.numel(), ca.hessian(h.cost, h.u)[0]
    # Not quadratic: the numeric form takes it.
    if ca.depends_on(curvature, h.u):
        return None
    at_zero = h.linear + ca.substitute(ca.gradient(h.cost, h.u), h.u, ca.SX.zeros(n_u))
    slope = at_zero + ca.mtimes(curvature, h.u)
    diagonal = all(i == j for i, j in zip(*curvature.sparsity().get_triplet(), strict=True))
    flat = np.array([same_function(curvature[j, j], ca.SX(0), h.x) for j in range(n_u)])
    bounded = np.isfinite(controls.lower) & np.isfinite(controls.upper)
    at_bounds = diagonal and _is_nonnegative(ca.diag(ca.densify(curvature)), h.x) and bounded[flat].all()
    if not (is_definite(curvature, h.x) or at_bounds):
        if bounded.all() or controls.is_ball:
            return None  # not convex, but it has a minimum
        raise OptionError(
            f"{h.method}: the Hamiltonian is unbounded below in u: the cost has no positive curvature in every control "
            "(at every x) and the controls without it have no bounds; add a cost like ca.sumsqr(u), or bound them."
        )
    if controls.is_ball:
        # Only then the minimiser on the ball is the projected free one.
        multiple = same_function(ca.densify(curvature), curvature[0, 0] * ca.DM.eye(n_u), h.x) and not flat.any()
        return _quadratic_on_ball(h, at_zero, slope, curvature[0, 0]) if multiple else None
    if controls.is_box:
        return _quadratic_in_box(h, at_zero, slope, ca.diag(curvature), flat) if diagonal else None
    return h.minimiser(
        "quadratic",
        control=-ca.solve(ca.densify(curvature), at_zero),
        residual=slope,
        regime=ca.SX(0),
        law=lambda digits: slope,
        # One regime only: there is no boundary to ask for.
        boundary=lambda one, other: ca.SX(np.nan),
    )


def _quadratic_in_box(h: _Hamiltonian, at_zero: ca.SX, slope: ca.SX, curvature: ca.SX, flat: Array) -> Minimiser:
    low, high, every = h.controls.lower, h.controls.upper, range(h.u.numel())
    free = [ca.if_else(at_zero[j] > 0, low[j], high[j]) if flat[j] else -at_zero[j] / curvature[j] for j in every]

    def edge(j: int, one: int, other: int) -> ca.SX:
        if flat[j]:
            return at_zero[j]
        return free[j] - (low[j] if 0 in (one, other) else high[j])

    return h.minimiser(
        "quadratic",
        control=projected(ca.vertcat(*free), h.controls),
        residual=h.off_projection(slope),
        regime=ca.vertcat(*[ca.if_else(free[j] <= low[j], 0, ca.if_else(free[j] >= high[j], 2, 1)) for j in every]),
        law=lambda digits: _rows(_laws_in_box(h, slope), digits),
        boundary=_first_change(edge),
    )


def _quadratic_on_ball(h: _Hamiltonian, at_zero: ca.SX, slope: ca.SX, curvature: ca.SX) -> Minimiser:
    free, r = -at_zero / curvature, h.controls.radius
    size = ca.norm_2(free)
    laws: dict[Digits, ca.SX] = {(0,): slope, (1,): h.u - r * free / size}
    return h.minimiser(
        "quadratic",
        control=projected(free, h.controls),
        residual=h.off_projection(slope),
        regime=ca.if_else(size > r, 1, 0),
        law=lambda digits: laws[digits],
        boundary=lambda one, other: size - r,
    )


def projected(u: ca.SX, controls: ControlSet) -> ca.SX:
    """Return the nearest admissible control as an expression."""
    if controls.is_ball:  # written so that it has a derivative at u = 0
        return u * controls.radius / ca.sqrt(ca.fmax(ca.sumsqr(u), controls.radius**2))
    return ca.fmin(ca.fmax(u, ca.DM(controls.lower)), ca.DM(controls.upper))


def _first_change(edge: Callable[[int, int, int], ca.SX]) -> Callable[[Digits, Digits], ca.SX]:
    """Return the boundary expression of the first component whose digit changes."""

    def boundary(one: Digits, other: Digits) -> ca.SX:
        j = next(k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
        return edge(j, one[j], other[j])

    return boundary


def _laws_in_box(h: _Hamiltonian, slope: ca.SX) -> dict[int, ca.SX]:
    """Return the laws by digit: at the lower bound (0), H_u = 0 (1), at the upper bound (2)."""
    return {0: h.u - ca.DM(h.controls.lower), 1: slope, 2: h.u - ca.DM(h.controls.upper)}


def _rows(laws: Mapping[int, ca.SX], digits: Digits) -> ca.SX:
    """Stack, for each control, the row of the law of its digit."""
    return ca.vertcat(*[laws[digit][j] for j, digit in enumerate(digits)])


def _is_nonnegative(values: ca.SX, x: ca.SX) -> bool:
    """True if an expression in x is nonnegative at all random points."""
    function = ca.Function("values", [x], [values])
    values_at = [np.array(function(*point)) for point in probes(x)]
    return all((value >= 0.0).all() for value in values_at if np.isfinite(value).all())


def is_definite(matrix: ca.SX, x: ca.SX) -> bool:
    """True if a matrix that depends on x is positive definite at all random points."""
    function = ca.Function("matrix", [x], [ca.densify(matrix)])
    # Points at which the matrix is not finite are outside of its domain and say nothing.
    matrices = [np.array(function(*point)) for point in probes(x)]
    return all(np.linalg.eigvalsh(value).min() > 0.0 for value in matrices if np.isfinite(value).all())
