"""Closed forms of the minimiser of the Hamiltonian, found by the shape of flow and cost in u.

- flow affine, cost quadratic with curvature R(x): -R^-1 s, clipped to a box (R diagonal; where R is zero the control is
  at a bound) or to a ball (R a multiple of the identity);
- flow affine, cost e(x) |u|, u in a ball: full length against s where |s| > e, else zero;
- flow affine, cost sum of e_j(x) |u_j| + r_j(x) u_j^2 / 2: soft thresholds, clipped to a box; where r_j is zero the
  control is zero or at a bound;
- anything else that is smooth: Newton's method.

Here s = H_u at u = 0 without the cost that is not smooth.
"""

from __future__ import annotations

from collections.abc import Callable

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.indirect.control_set import ControlSet, probes, same_function
from nosnoc_py.indirect.minimiser import Digits, Minimiser

Array = np.ndarray

KINKS = frozenset(
    getattr(ca, f"OP_{name}")
    for name in ("FABS", "SIGN", "FMIN", "FMAX", "LT", "LE", "EQ", "NE", "NOT", "AND", "OR", "FLOOR", "CEIL", "FMOD")
)


def minimiser(
    x: ca.SX, costate: ca.SX, u: ca.SX, flow: ca.SX, cost: ca.SX, controls: ControlSet, method: str
) -> Minimiser:
    """The minimiser of lambda'f(x, u) + L(x, u) over U.

    Raises
    ------
    OptionError
        If the Hamiltonian is unbounded on U, or has a kink in u that is none of the known forms: the message names
        what would do.
    """
    hamiltonian = ca.dot(costate, flow) + cost
    if ca.jacobian(flow, u).is_zero() or not ca.depends_on(flow, u):
        raise OptionError(f"{method}: the flow does not depend on the control, so there is nothing to optimise.")
    affine = not ca.depends_on(ca.jacobian(flow, u), u) and not has_kink(flow, u)
    linear = ca.densify(ca.mtimes(ca.jacobian(flow, u).T, costate))
    for form in (_length, _separable) if affine else ():
        found = form(x, costate, u, linear, cost, controls, method)
        if found is not None:
            return found
    _check_smooth(hamiltonian, x, costate, u, method)
    found = _quadratic(x, costate, u, linear, cost, controls, method) if affine else None
    return _numeric(x, costate, u, hamiltonian, controls) if found is None else found


def has_kink(expression: ca.SX, u: ca.SX) -> bool:
    """Whether an expression branches on u, or takes absolute values, minima or the like of what depends on u."""
    inside = {s.element_hash() for s in ca.symvar(u)}
    others = [s for s in ca.symvar(expression) if s.element_hash() not in inside]
    function = ca.Function("look", [u, ca.vertcat(ca.SX(0, 1), *others)], [expression])
    moving: dict[int, bool] = {}
    for k in range(function.n_instructions()):
        kind, reads, writes = (
            function.instruction_id(k),
            function.instruction_input(k),
            function.instruction_output(k),
        )
        if kind == ca.OP_OUTPUT:
            continue
        moves = reads[0] == 0 if kind == ca.OP_INPUT else any(moving.get(i, False) for i in reads)
        branches = kind == ca.OP_IF_ELSE_ZERO and moving.get(reads[0], False)
        if kind != ca.OP_INPUT and ((moves and kind in KINKS) or branches):
            return True
        moving[writes[0]] = moves
    return False


def _check_smooth(hamiltonian: ca.SX, x: ca.SX, costate: ca.SX, u: ca.SX, method: str) -> None:
    slope = ca.Function("slope", [x, costate, u], [ca.gradient(hamiltonian, u)])
    at_zero = [np.isfinite(np.array(slope(a, b, 0.0))).all() for a, b in probes(x, costate)]
    if has_kink(hamiltonian, u) or not any(at_zero):
        raise OptionError(
            f"{method}: the Hamiltonian has a kink in u (an absolute value, a minimum, a branch, a root at u = 0) that "
            "is none of the known forms, e |u| with |u| bounded and the sum of e_j |u_j| + r_j u_j^2 / 2; smooth it, "
            "for example by ca.sqrt(u**2 + delta**2) - delta with a small delta."
        )


def _numeric(x: ca.SX, costate: ca.SX, u: ca.SX, hamiltonian: ca.SX, controls: ControlSet) -> Minimiser:
    """Newton's method: regimes are the active bounds."""
    slope = ca.gradient(hamiltonian, u)
    outward, square = ca.dot(slope, u), ca.sumsqr(u) - controls.radius**2 if controls.is_ball else ca.SX(0)

    def law(digits: Digits) -> ca.SX:
        if controls.is_box:
            return _law_in_box(u, slope, controls, digits)
        # On the sphere: H_u is along u, and |u| = r, in n_u equations.
        return slope + (square - outward / controls.radius**2) * u if digits == (1,) else slope

    def edge(j: int, one: int, other: int) -> ca.SX:
        if controls.is_ball:
            return outward if one == 1 else square
        return slope[j] if one != 1 else u[j] - (controls.lower if other == 0 else controls.upper)[j]

    return Minimiser(
        kind="numeric",
        x=x,
        costate=costate,
        u=u,
        control=None,
        residual=u - projected(u - slope, controls) if controls.is_bounded else slope,
        regime=ca.SX(0),
        law=law,
        boundary=lambda one, other: _first_change(one, other, edge),
        smooth=(hamiltonian, slope, controls),
    )


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
            "path constraint ca.sumsqr(u) <= r**2, or use a quadratic cost."
        )
    size, r = ca.norm_2(linear), controls.radius
    on = size > weight
    full = -r * linear / ca.fmax(size, 1e-300)
    laws: dict[Digits, ca.SX] = {(0,): u, (1,): u + r * linear / size}
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
    """L = L_0(x) + sum of g_j u_j + e_j |u_j| + r_j u_j^2 / 2: soft thresholds."""
    n_u = u.numel()
    rest = ca.substitute(cost, u, ca.SX.zeros(n_u))

    def along(j: int, size: float) -> ca.SX:
        return ca.substitute(cost, u, ca.SX(ca.DM(size * np.eye(n_u)[j]))) - rest

    even = [[(along(j, size) + along(j, -size)) / 2 for j in range(n_u)] for size in (1.0, 2.0)]
    curvature = ca.vertcat(*[two - 2 * one for one, two in zip(*even, strict=True)])
    weights = ca.vertcat(*even[0]) - curvature / 2
    slopes = ca.vertcat(*[(along(j, 1.0) - along(j, -1.0)) / 2 for j in range(n_u)])
    shape = ca.dot(slopes, u) + ca.dot(weights, ca.fabs(u)) + ca.dot(curvature, u**2) / 2
    if same_function(weights, ca.SX.zeros(n_u), x) or not same_function(cost - rest, shape, x, u):
        return None
    if not (_never_negative(weights, x) and _never_negative(curvature, x)):
        return None  # not convex: a kink that `_check_smooth` refuses
    low, high = controls.lower, controls.upper
    flat = np.array([same_function(curvature[j], ca.SX(0), x) for j in range(n_u)])
    if controls.is_ball or not (np.isfinite(low) & np.isfinite(high))[flat].all():
        raise OptionError(
            f"{method}: with a cost of |u_j| the Hamiltonian is unbounded below unless every control without a "
            "quadratic cost is bounded; give ns.Bounds(u=(lower, upper)), finite, not a bound on the length."
        )
    if (low > 0).any() or (high < 0).any():
        raise OptionError(f"{method}: with a cost of |u_j| the bounds of every control have to include zero.")
    s = linear + slopes
    safe = ca.vertcat(*[ca.SX(1) if flat[j] else curvature[j] for j in range(n_u)])
    soft = -ca.sign(s) * ca.fmax(ca.fabs(s) - weights, 0) / safe
    at_bound = [ca.if_else(soft[j] > 0, high[j], ca.if_else(soft[j] < 0, low[j], 0)) for j in range(n_u)]
    free = ca.vertcat(*[at_bound[j] if flat[j] else soft[j] for j in range(n_u)])
    control = projected(free, controls)
    digit = ca.vertcat(*[_soft_digit(free[j], low[j], high[j]) for j in range(n_u)])
    signs = np.array([0.0, -1.0, 0.0, 1.0, 0.0])

    def law(digits: Digits) -> ca.SX:
        held = {0: u - ca.DM(low), 2: u, 4: u - ca.DM(high)}
        smooth = s + curvature * u
        rows = [held[d][j] if d in held else smooth[j] + signs[d] * weights[j] for j, d in enumerate(digits)]
        return ca.vertcat(*rows)

    def edge(j: int, one: int, other: int) -> ca.SX:
        pair = {one, other}
        sign = 1.0 if max(pair) > 2 else -1.0  # above zero, or below
        if 2 in pair:
            return s[j] + sign * weights[j]
        return -(s[j] + sign * weights[j]) / safe[j] - (high[j] if sign > 0 else low[j])

    back = u - (s + curvature * u)
    shrunk = ca.sign(back) * ca.fmax(ca.fabs(back) - weights, 0)
    return Minimiser(
        kind="separable",
        x=x,
        costate=costate,
        u=u,
        control=control,
        residual=u - projected(shrunk, controls),
        regime=digit,
        law=law,
        boundary=lambda one, other: _first_change(one, other, edge),
    )


def _soft_digit(free: ca.SX, low: float, high: float) -> ca.SX:
    """0 at the lower bound, 1 below zero, 2 at zero, 3 above, 4 at the upper bound."""
    below, above = ca.if_else(free <= low, 0, 1), ca.if_else(free >= high, 4, 3)
    return ca.if_else(free < 0, below, ca.if_else(free > 0, above, 2))


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
    flat = np.array([same_function(curvature[j, j], ca.SX(0), x) for j in range(n_u)])
    bounded = np.isfinite(controls.lower) & np.isfinite(controls.upper)
    at_bounds = diagonal and _never_negative(ca.diag(ca.densify(curvature)), x) and bounded[flat].all()
    if not (_is_definite(curvature, x) or at_bounds):
        if bounded.all() or controls.is_ball:
            return None  # not convex, but it has a minimum
        raise OptionError(
            f"{method}: the Hamiltonian is unbounded below in u: the cost has no positive curvature in every control "
            "(at every x) and the controls without it have no bounds; add a cost like ca.sumsqr(u), or bound them."
        )
    if controls.is_ball:
        multiple = same_function(ca.densify(curvature), curvature[0, 0] * ca.DM.eye(n_u), x) and not flat.any()
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
        residual=u - projected(u - slope, controls),
        regime=digit,
        law=lambda digits: _law_in_box(u, slope, controls, digits),
        boundary=lambda one, other: _first_change(one, other, edge),
    )


def _quadratic_on_ball(
    x: ca.SX, costate: ca.SX, u: ca.SX, at_zero: ca.SX, slope: ca.SX, curvature: ca.SX, controls: ControlSet
) -> Minimiser:
    free, r = -at_zero / curvature, controls.radius
    size = ca.norm_2(free)
    laws: dict[Digits, ca.SX] = {(0,): slope, (1,): u - r * free / size}
    return Minimiser(
        kind="quadratic",
        x=x,
        costate=costate,
        u=u,
        control=projected(free, controls),
        residual=u - projected(u - slope, controls),
        regime=ca.if_else(size > r, 1, 0),
        law=lambda digits: laws[digits],
        boundary=lambda one, other: size - r,
    )


def projected(u: ca.SX, controls: ControlSet) -> ca.SX:
    """The nearest admissible control, as an expression."""
    if controls.is_ball:  # written so that it has a derivative at u = 0
        return u * controls.radius / ca.sqrt(ca.fmax(ca.sumsqr(u), controls.radius**2))
    return ca.fmin(ca.fmax(u, ca.DM(controls.lower)), ca.DM(controls.upper))


def _first_change(one: Digits, other: Digits, edge: Callable[[int, int, int], ca.SX]) -> ca.SX:
    """The boundary of the first component whose digit changes."""
    j = next(k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return edge(j, one[j], other[j])


def _law_in_box(u: ca.SX, slope: ca.SX, controls: ControlSet, digits: Digits) -> ca.SX:
    """Zero where every control is at the bound that its digit names (0, 2), or H_u is zero (1)."""
    low, high = controls.lower, controls.upper
    rows = [u[j] - low[j] if d == 0 else u[j] - high[j] if d == 2 else slope[j] for j, d in enumerate(digits)]
    return ca.vertcat(*rows)


def _never_negative(values: ca.SX, x: ca.SX) -> bool:
    """Whether an expression in x is nonnegative at all random points."""
    function = ca.Function("values", [x], [values])
    found = [np.array(function(*point)) for point in probes(x)]
    return all((value >= 0.0).all() for value in found if np.isfinite(value).all())


def _is_definite(matrix: ca.SX, x: ca.SX) -> bool:
    """Whether a matrix that depends on x is positive definite at all random points."""
    function = ca.Function("matrix", [x], [ca.densify(matrix)])
    found = [np.array(function(*point)) for point in probes(x)]
    return all(np.linalg.eigvalsh(value).min() > 0.0 for value in found if np.isfinite(value).all())
