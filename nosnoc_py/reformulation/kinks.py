"""Kinks of costs as smooth inequalities (epigraph form), and kinks of constraints as further rows.

    minimise c(|a|, max(b, c), |d|_2, ...)   becomes   minimise c(s)   subject to   s >= a, s >= -a, ...

Newton's method needs derivatives where the optimum lies, and optima lie in kinks: the control of least fuel is zero
most of the time. An operation that is the largest of smooth functions (fabs, fmax, if_else of a comparison whose
branches meet, norm_1, norm_inf, norm_2) may be replaced by a slack above all of them if the cost nowhere decreases with
it, and one that is the smallest (fmin) by a slack below if the cost nowhere increases. The arguments need not be
convex. Where the cost increases, an optimal slack has the value of its operation; all others may be set to it, which
only makes the cost smaller. A constraint e(max(a, b)) <= r is e(a) <= r and e(b) <= r, without a slack.

Slacks belong to a program, not to the problem: every stage of a discretisation has its own, so that the sum that is
minimised is that of the user's cost, and results, certificates and files never see them.

The direction in which a cost depends on an operation follows from signs of intermediate values (interval arithmetic
from the bounds of the problem), as in disciplined convex programming (Grant, Boyd, Ye 2006).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelWarning
from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.reformulation.dcs import DCS, Equation, Variable, indexed
from nosnoc_py.roles import Role
from nosnoc_py.systems.symbols import depends_only_on

# Operations that grow with their argument, wherever they are defined.
GROWING = (
    ca.OP_SQRT, ca.OP_EXP, ca.OP_LOG, ca.OP_TANH, ca.OP_ATAN, ca.OP_ASINH, ca.OP_SINH, ca.OP_ERF, ca.OP_LOG1P,
    ca.OP_EXPM1, ca.OP_TWICE, ca.OP_FMAX, ca.OP_FMIN,
)  # fmt: skip
TWO = (ca.OP_ADD, ca.OP_SUB, ca.OP_MUL, ca.OP_DIV, ca.OP_POW, ca.OP_CONSTPOW, ca.OP_FMAX, ca.OP_FMIN)
COMPARISONS = (ca.OP_LT, ca.OP_LE)
KINKED = {ca.OP_FABS, ca.OP_FMAX, ca.OP_FMIN, ca.OP_SQRT, ca.OP_IF_ELSE_ZERO}
# Number of random places at which two expressions are compared, and the relative difference that is rounding.
PLACES, ROUNDING = 5, 1e-9
# Lengths of vectors below this fraction of their typical value count as zero: far above the bound relaxation of IPOPT.
NEAR_ZERO = 1e-6
# Number of problems whose costs and constraints are kept: a search writes many programs of one problem.
KEPT = 16
# Largest number of rows into which a row of a constraint is split.
MOST_ROWS = 16

Interval = tuple[float, float]
EVERYTHING: Interval = (-np.inf, np.inf)


class Range(NamedTuple):
    """Bounds and typical size of a symbol; one that is given (the time, a parameter) makes no kinks of a program."""

    lower: float = -np.inf
    upper: float = np.inf
    size: float = 1.0
    given: bool = False


# Ranges of symbols by their `element_hash`.
Ranges = Mapping[int, Range]


def bounded(
    symbols: ca.SX, lower: Any = -np.inf, upper: Any = np.inf, nominal: Any = 1.0, given: Any = False
) -> Ranges:
    """Return the ranges of symbols (n,), for scalars or (n,)."""
    count = symbols.numel()
    rows = (np.broadcast_to(values, count) for values in (lower, upper, nominal, given))
    result = {}
    for s, low, high, size, is_given in zip(symbols.nz, *rows, strict=True):
        bound = max(abs(low), abs(high))
        typical = bound if 0.0 < bound < np.inf else size
        result[s.element_hash()] = Range(float(low), float(high), float(typical), bool(is_given))
    return result


class Node(NamedTuple):
    """Operation of an expression graph, with the numbers of the nodes of its arguments."""

    operation: int
    arguments: tuple[int, ...]
    expression: ca.SX  # a symbol or a constant; None for operations


@dataclass(frozen=True, eq=False, kw_only=True)
class Epigraph:
    """A cost whose kinks are slacks.

    Attributes
    ----------
    cost : SX scalar
        In the symbols of the problem and the slacks.
    slacks : SX (k,)
    rows : SX (m,)
        Have to be nonnegative.
    values : SX (k,)
        Values of the slacks in the symbols of the problem; with these `cost` is the user's.
    lower, sizes : (k,)
        Lower bounds and typical values of the slacks.
    left : tuple of str
        Kinks that remain in the cost, as text.

    Examples
    --------
    >>> import casadi as ca
    >>> u = ca.SX.sym("u")
    >>> fuel = Epigraph.of(2 * ca.fabs(u), bounded(u, -1, 1))
    >>> fuel.cost, fuel.rows
    (SX((2.*slack)), SX([(slack-u), (slack+u)]))
    """

    cost: ca.SX
    slacks: ca.SX
    rows: ca.SX
    values: ca.SX
    lower: np.ndarray = field(default_factory=lambda: np.zeros(0))
    sizes: np.ndarray = field(default_factory=lambda: np.zeros(0))
    left: tuple[str, ...] = ()

    @classmethod
    def of(cls, cost: ca.SX, ranges: Ranges) -> Epigraph:
        """Return a cost with slacks for those of its kinks that allow it, for symbols within these bounds."""
        cost = ca.SX(cost)
        smooth = cls(cost=cost, slacks=ca.SX(0, 1), rows=ca.SX(0, 1), values=ca.SX(0, 1))
        if not _operations(cost) & KINKED:
            return smooth
        graph = _Graph.of(_branches_as_maxima(cost), ranges)
        return graph.lifted(ranges) if graph.kinks or graph.jumps else smooth

    @property
    def size(self) -> int:
        """Number of slacks."""
        return int(self.slacks.numel())


@lru_cache(maxsize=KEPT)
def kinks_of(ocp: OCP, name: str) -> Epigraph:
    """Return the "stage_cost" or the "terminal_cost" of a problem with slacks; programs of one problem share it."""
    return Epigraph.of(getattr(ocp, name), ranges_of(ocp))


@lru_cache(maxsize=KEPT)
def smooth_constraints(ocp: OCP, name: str) -> tuple[Constraint, ...]:
    """Return the "path_constraints" or "terminal_constraints" of a problem by `smooth_constraint`."""
    return tuple(smooth_constraint(c, ocp) for c in getattr(ocp, name))


def _typical(expression: ca.SX, ranges: Ranges) -> float:
    """Return an estimate of the largest row of an expression, from finite bounds and nominal values."""
    symbols = ca.symvar(expression)
    at = [ranges.get(s.element_hash(), Range()).size for s in symbols]
    values = ca.Function("values", [ca.vertcat(*symbols)], [ca.densify(expression)])(at)
    largest = float(np.abs(np.array(values)).max(initial=0.0))
    return largest if 0.0 < largest < np.inf else 1.0


def ranges_of(ocp: OCP) -> Ranges:
    """Return the bounds and nominal values of the symbols of a problem."""
    s, p = ocp.system, np.array(ocp.p, float)
    # A program may be solved again with other parameters; those with a sign are supposed to keep it.
    low, high, given = np.where(p > 0, 0.0, -np.inf), np.where(p < 0, 0.0, np.inf), np.ones(p.size, bool)
    for name, (lower, upper) in ocp.free_parameters.items():
        row = s.parameter_names.index(name)
        low[row], high[row], given[row] = lower, upper, False
    (x_low, x_high), (u_low, u_high) = ocp.x_bounds, ocp.u_bounds
    ranges = {
        **bounded(s.x, x_low, x_high, nominal=s.x_nominal),
        **bounded(s.x_initial, x_low, x_high, nominal=s.x_nominal),
        **bounded(s.u, u_low, u_high, nominal=s.u_nominal),
        **bounded(s.p, low, high, nominal=np.where(p != 0.0, np.abs(p), 1.0), given=given),
        **bounded(ca.SX(0, 1) if s.t is None else s.t, given=True),
    }
    time = ocp.free_time
    return ranges if time is None else {**ranges, **bounded(time.symbol, time.lower, time.upper)}


def with_slacks(dcs: DCS, ocp: OCP) -> DCS:
    """Return a DCS whose running cost has slacks for kinks, one at every stage."""
    # The speed of a numerical time is a further control.
    ranges = {**ranges_of(ocp), **bounded(dcs.u[ocp.system.n_u :], 0.0)}
    for v in dcs.variables:
        ranges |= bounded(v.symbol, v.lower, v.upper)
    kinks = Epigraph.of(dcs.running_cost, ranges)
    if not kinks.size:
        return dcs
    labels = indexed("slack of the stage cost", kinks.size)
    of_state = depends_only_on(kinks.values, ca.vertcat(dcs.x, dcs.p))
    slack = Variable(
        name="kinks", symbol=kinks.slacks, components=labels, role=Role.EPIGRAPH, lower=kinks.lower, scale=kinks.sizes,
        estimate=kinks.values if of_state else None, value=kinks.values,
    )  # fmt: skip
    rows = Equation.of("kinks of the stage cost", Role.EPIGRAPH, kinks.rows)
    return replace(
        dcs,
        running_cost=kinks.cost,
        variables=(*dcs.variables, slack),
        inequalities=(*dcs.inequalities, rows),
    )


def kinks_left(ocp: OCP) -> list[str]:
    """Return the kinks of costs and constraints that programs keep, one sentence each."""
    ranges, result = ranges_of(ocp), list[str]()
    costs = {"stage_cost": ocp.stage_cost, "terminal_cost": ocp.terminal_cost}
    for name, cost in costs.items():
        result += [_advice(name, kink) for kink in Epigraph.of(cost, ranges).left]
    for cost in ocp.point_costs:
        graph = _Graph.of(_branches_as_maxima(ca.sum1(cost.expression)), ranges)
        result += [_advice("point cost", str(cost.expression), POINT_ADVICE)] if graph.kinks or graph.jumps else []
    for kind in ("path", "initial", "terminal", "point"):
        for c in getattr(ocp, f"{kind}_constraints"):
            rows = ca.vertsplit(smooth_constraint(c, ocp).expression)
            graphs = [_Graph.of(_branches_as_maxima(row), ranges) for row in rows]
            # Distances to obstacles are roots, too, but are never zero where they matter.
            kinks = [g for g in graphs if g.jumps or any(g.nodes[i].operation != ca.OP_SQRT for i in g.kinks)]
            result += [_advice(str(c.name), str(c.expression), ROW_ADVICE)] if kinks else []
    return result


COST_ADVICE = (
    "the cost grows on the wrong side of it for a smooth program: a cost may increase with fabs, fmax and norms, and "
    "decrease with fmin. Write it by these, or smooth it, such as ca.sqrt(a**2 + e**2) for ca.fabs(a) with a small e."
)
ROW_ADVICE = (
    "no smooth rows say the same: fabs, fmax and norms may be bounded from above only, fmin from below only. Write the "
    "other cases as a mode of an ns.PSS, or as a smooth function, such as a**2 >= 1 for ca.fabs(a) >= 1."
)
POINT_ADVICE = "write it as point_constraints=[ns.Constraint(..., times=[...], soft='l1')], which is smooth."


def warn_of_kinks(ocp: OCP) -> None:
    """Warn at the user's call of the kinks that programs keep."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("nosnoc_py."):
        level, frame = level + 1, frame.f_back
    for text in kinks_left(ocp):
        warnings.warn(text, ModelWarning, stacklevel=level)


def _advice(name: str, kink: str, advice: str = COST_ADVICE) -> str:
    return f"{name} has a kink or a jump, {kink}, where optimisation may stop too early; {advice}"


def smooth_constraint(c: Constraint, ocp: OCP) -> Constraint:
    """Return a constraint without those of its kinks that are the largest or the smallest of smooth functions.

    A row e(max(a, b)) <= r becomes e(a) <= r and e(b) <= r where e does not decrease, a row e(min(a, b)) >= r likewise;
    limits of roots of controls become limits of squares (`Constraint.without_roots`).
    """
    c = c.without_roots(ocp.system.u)
    if not _operations(c.expression) & (KINKED - {ca.OP_SQRT}):
        return c
    parts = list[tuple[ca.SX, float, float]]()
    for row, low, high in zip(ca.vertsplit(c.expression), c.lower, c.upper, strict=True):
        # Both limits at once: one of them has the kink in the wrong direction.
        both = low > -np.inf and high < np.inf
        parts += [(row, low, high)] if both else _split(row, low, high, ocp)
    expressions, lower, upper = zip(*parts, strict=True)
    return replace(c, expression=ca.vertcat(*expressions), lower=np.array(lower), upper=np.array(upper))


def _split(row: ca.SX, low: float, high: float, ocp: OCP) -> list[tuple[ca.SX, float, float]]:
    sign = 1.0 if high < np.inf else -1.0
    pieces = _Graph.of(_branches_as_maxima(sign * row), ranges_of(ocp)).pieces()
    return [(sign * piece, low, high) for piece in pieces] if len(pieces) > 1 else [(row, low, high)]


def _operations(expression: ca.SX) -> set[int]:
    function = ca.Function("f", ca.symvar(expression), [expression])
    return {function.instruction_id(k) for k in range(function.n_instructions())}


@dataclass(frozen=True, eq=False, kw_only=True)
class _Graph:
    """An expression as a list of nodes, arguments first, with the range of each and its effect on the last.

    Attributes
    ----------
    nodes : list of Node
    ranges : list of Interval
    effects : list of int
        1 if the last node nowhere decreases with a node, -1 if it nowhere increases, 0 if neither is known.
    kinks, jumps : tuple of int
        Nodes with a kink, and branches that may not meet.
    """

    nodes: list[Node]
    ranges: list[Interval]
    effects: list[int]
    kinks: tuple[int, ...]
    jumps: tuple[int, ...]

    @classmethod
    def of(cls, expression: ca.SX, known: Ranges) -> _Graph:
        nodes, given = _nodes(expression), list[bool]()
        for node in nodes:
            here = known.get(node.expression.element_hash(), Range()).given if node.operation == ca.OP_INPUT else True
            given.append(here and all(given[k] for k in node.arguments))
        ranges: list[Interval] = []
        kinks = list[int]()
        for i, node in enumerate(nodes):
            low, high = _range(node, [ranges[k] for k in node.arguments], known)
            if not given[i] and _has_kink(i, node, nodes, ranges):
                kinks.append(i)
                # A slack is above its operation (or below), without a limit.
                low, high = (-np.inf, high) if node.operation == ca.OP_FMIN else (low, np.inf)
            ranges.append((low, high))
        effects = _effects(nodes, ranges)
        # Where the condition is given (a table over time), nothing jumps with an unknown.
        jumps = (
            i for i, node in enumerate(nodes) if node.operation == ca.OP_IF_ELSE_ZERO and not given[node.arguments[0]]
        )
        return cls(nodes=nodes, ranges=ranges, effects=effects, kinks=tuple(kinks), jumps=tuple(jumps))

    def lifted(self, ranges: Ranges) -> Epigraph:
        """Return the expression with slacks for the kinks that point in the right direction."""
        exact, cost = list[ca.SX](), list[ca.SX]()
        slacks, rows, values, left = list[ca.SX](), list[ca.SX](), list[ca.SX](), list[str]()
        lower, sizes = list[float](), list[float]()
        for i, node in enumerate(self.nodes):
            exact.append(_evaluated(node, [exact[k] for k in node.arguments]))
            parts = [cost[k] for k in node.arguments]
            cost.append(self._value(i, parts))
            if i in self.jumps:
                left.append(str(exact[i]))
            if i not in self.kinks:
                continue
            if self.effects[i] != self._direction(i):
                left.append(str(exact[i]))
                continue
            s, is_root = ca.SX.sym("slack"), node.operation == ca.OP_SQRT
            sizes.append(_typical(exact[i] if is_root else ca.vertcat(*(exact[k] for k in node.arguments)), ranges))
            lower.append(0.0 if is_root else -np.inf)
            rows += self._rows(i, s, parts, NEAR_ZERO * sizes[-1])
            slacks.append(s)
            values.append(exact[i])
            cost[i] = s
        columns = {"slacks": slacks, "rows": rows, "values": values}
        return Epigraph(
            cost=cost[-1],
            lower=np.array(lower),
            sizes=np.array(sizes),
            left=tuple(left),
            **{name: ca.vertcat(ca.SX(0, 1), *part) for name, part in columns.items()},
        )

    def pieces(self) -> list[ca.SX]:
        """Return expressions whose largest is this one, as far as the kinks point in that direction; [] if too many."""
        every: list[list[ca.SX]] = [[]]
        for i, node in enumerate(self.nodes):
            split = i in self.kinks and node.operation != ca.OP_SQRT and self.effects[i] == self._direction(i)
            following = []
            for done in every:
                parts = [done[k] for k in node.arguments]
                options = _arguments_of(node, parts) if split else [self._value(i, parts)]
                following += [[*done, option] for option in options]
            if len(following) > MOST_ROWS:
                return []
            every = following
        pieces = list[ca.SX]()
        for done in every:
            # A row that is there twice would leave its multipliers undetermined.
            if not any(ca.is_equal(done[-1], other, len(self.nodes)) for other in pieces):
                pieces.append(done[-1])
        return pieces

    def _value(self, i: int, parts: list[ca.SX]) -> ca.SX:
        """Return the value of a node; without its operation where only one branch of it is within the ranges."""
        node, ranges = self.nodes[i], [self.ranges[k] for k in self.nodes[i].arguments]
        if i not in self.kinks and node.operation == ca.OP_FABS and _sign(ranges[0]):
            return _sign(ranges[0]) * parts[0]
        if i not in self.kinks and node.operation in (ca.OP_FMAX, ca.OP_FMIN):
            second_is_larger = ranges[0][1] <= ranges[1][0]
            if second_is_larger or ranges[1][1] <= ranges[0][0]:
                return parts[int(second_is_larger == (node.operation == ca.OP_FMAX))]
        return _evaluated(node, parts)

    def _direction(self, i: int) -> int:
        return -1 if self.nodes[i].operation == ca.OP_FMIN else 1

    def _rows(self, i: int, s: ca.SX, parts: list[ca.SX], near: float) -> list[ca.SX]:
        node = self.nodes[i]
        if node.operation == ca.OP_SQRT:
            # s >= |d|^2 / s is convex and has a gradient where d = 0, which s^2 >= |d|^2 has not.
            return [s - parts[0] / (s + near)]
        return [self._direction(i) * (s - part) for part in _arguments_of(node, parts)]


def _arguments_of(node: Node, parts: list[ca.SX]) -> list[ca.SX]:
    """Return the smooth functions whose largest (or smallest) a node is."""
    return [parts[0], -parts[0]] if node.operation == ca.OP_FABS else parts


def _nodes(expression: ca.SX) -> list[Node]:
    """Return the nodes of a scalar expression in the order of evaluation."""
    symbols = ca.symvar(expression)
    function = ca.Function("f", symbols, [expression])
    nodes, at, end = list[Node](), dict[int, int](), -1
    for k in range(function.n_instructions()):
        operation = function.instruction_id(k)
        inputs, outputs = function.instruction_input(k), function.instruction_output(k)
        if operation == ca.OP_OUTPUT:
            end = at[inputs[0]]
            continue
        if operation == ca.OP_INPUT:
            node = Node(operation, (), symbols[inputs[0]])
        elif operation == ca.OP_CONST:
            node = Node(operation, (), ca.SX(function.instruction_constant(k)))
        else:
            # Operations of one argument name it twice in some versions of CasADi.
            count = 2 if operation in (*TWO, ca.OP_IF_ELSE_ZERO) or len(set(inputs)) > 1 else 1
            node = Node(operation, tuple(at[i] for i in inputs[:count]), ca.SX())
        at[outputs[0]] = len(nodes)
        nodes.append(node)
    # A result that is zero is no instruction.
    return [*nodes[: end + 1]] if end >= 0 else [Node(ca.OP_CONST, (), ca.SX(0))]


def _evaluated(node: Node, parts: list[ca.SX]) -> ca.SX:
    if not parts:
        return node.expression
    return ca.SX.unary(node.operation, *parts) if len(parts) == 1 else ca.SX.binary(node.operation, *parts)


def _branches_as_maxima(expression: ca.SX) -> ca.SX:
    """Return an expression with branches that meet written by maxima: if_else(a < b, c, d) = d + k max(b - a, 0).

    CasADi writes an if_else as the sum of two terms, each of which is zero under the condition of the other.
    """
    if ca.OP_IF_ELSE_ZERO not in _operations(expression):
        return expression
    nodes, values = _nodes(expression), list[ca.SX]()
    # Of every such term: the expression that is positive where it holds, and its value there.
    terms: dict[int, tuple[ca.SX, ca.SX]] = {}
    for i, node in enumerate(nodes):
        parts = [values[k] for k in node.arguments]
        value = _evaluated(node, parts)
        if node.operation == ca.OP_IF_ELSE_ZERO and (gap := _gap(nodes, values, node.arguments[0])) is not None:
            terms[i] = gap, parts[1]
            if (factor := _factor(parts[1], gap)) is not None:
                value = factor * ca.fmax(gap, 0)
        elif node.operation == ca.OP_ADD and all(k in terms for k in node.arguments):
            (gap, here), (other, there) = (terms[k] for k in node.arguments)
            if _factor(gap, other) == -1.0 and (factor := _factor(here - there, gap)) is not None:
                value = there + factor * ca.fmax(gap, 0)
        values.append(value)
    return values[-1]


def _gap(nodes: list[Node], values: list[ca.SX], i: int) -> ca.SX | None:
    """Return the expression that is positive where a comparison holds."""
    sign = 1.0
    while nodes[i].operation == ca.OP_NOT:
        i, sign = nodes[i].arguments[0], -sign
    if nodes[i].operation not in COMPARISONS:
        return None
    less, more = (values[k] for k in nodes[i].arguments)
    return sign * (more - less)


def _factor(expression: ca.SX, of: ca.SX) -> float | None:
    """Return k if an expression is k times another one at random places; None if it is no multiple."""
    symbols = ca.symvar(ca.vertcat(expression, of))
    both = ca.Function("both", [ca.vertcat(*symbols)], [expression, of])
    places = np.random.default_rng(0).standard_normal((len(symbols), PLACES))
    above, below = (np.asarray(part).ravel() for part in both(places))
    with np.errstate(all="ignore"):
        ratios = above / below
    if not np.isfinite(ratios).all() or np.ptp(ratios) > ROUNDING * np.abs(ratios).max():
        return None
    return float(np.round(ratios[0], 12))


def _range(node: Node, parts: list[Interval], known: Ranges) -> Interval:
    """Return an interval that contains all values of a node."""
    op = node.operation
    if op == ca.OP_INPUT:
        return known.get(node.expression.element_hash(), Range())[:2]
    if op == ca.OP_CONST:
        return float(node.expression), float(node.expression)
    rule = RULES.get(op)
    with np.errstate(all="ignore"):
        low, high = rule(*parts) if rule is not None else EVERYTHING
    return (-np.inf if np.isnan(low) else float(low)), (np.inf if np.isnan(high) else float(high))


def _products(a: Interval, b: Interval) -> Interval:
    # Zero times infinity is zero: infinite bounds are never reached.
    every = [0.0 if 0.0 in (x, y) else x * y for x in a for y in b]
    return min(every), max(every)


def _quotients(a: Interval, b: Interval) -> Interval:
    return _products(a, (1 / b[1], 1 / b[0])) if b[0] > 0 or b[1] < 0 else EVERYTHING


def _squares(a: Interval) -> Interval:
    ends = sorted((a[0] ** 2, a[1] ** 2))
    return (0.0 if a[0] <= 0 <= a[1] else ends[0]), ends[1]


def _sizes(a: Interval) -> Interval:
    ends = sorted((abs(a[0]), abs(a[1])))
    return (0.0 if a[0] <= 0 <= a[1] else ends[0]), ends[1]


RULES: dict[int, Callable[..., Interval]] = {
    ca.OP_ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ca.OP_SUB: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    ca.OP_NEG: lambda a: (-a[1], -a[0]),
    ca.OP_TWICE: lambda a: (2 * a[0], 2 * a[1]),
    ca.OP_MUL: _products,
    ca.OP_DIV: _quotients,
    ca.OP_SQ: _squares,
    ca.OP_FABS: _sizes,
    ca.OP_FMAX: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    ca.OP_FMIN: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    ca.OP_SQRT: lambda a: (max(0.0, a[0]) ** 0.5, max(0.0, a[1]) ** 0.5),
    ca.OP_EXP: lambda a: (np.exp(a[0]), np.exp(a[1])),
    ca.OP_POW: lambda a, b: (0.0, np.inf) if a[0] >= 0 else EVERYTHING,
    ca.OP_CONSTPOW: lambda a, b: (0.0, np.inf) if a[0] >= 0 else EVERYTHING,
}


def _sign(a: Interval) -> int:
    return 1 if a[0] >= 0 else -1 if a[1] <= 0 else 0


def _effects(nodes: list[Node], ranges: list[Interval]) -> list[int]:
    """Return how the last node depends on every node, by the chain rule for signs."""
    unused = None
    effects: list[int | None] = [unused] * len(nodes)
    effects[-1] = 1
    for i in reversed(range(len(nodes))):
        node, effect = nodes[i], effects[i]
        if effect is None:
            continue
        for k, sign in zip(node.arguments, _signs(node, ranges), strict=True):
            through = effect * sign
            # A node that is used twice has a direction only if both uses agree.
            effects[k] = through if effects[k] in (None, through) else 0
    return [0 if effect is None else effect for effect in effects]


def _signs(node: Node, ranges: list[Interval]) -> list[int]:
    """Return the signs of the derivatives of a node by its arguments; 0 if unknown."""
    op, parts = node.operation, [ranges[i] for i in node.arguments]
    if op in GROWING or op == ca.OP_ADD:
        return [1] * len(parts)
    if op == ca.OP_SUB:
        return [1, -1]
    if op == ca.OP_NEG:
        return [-1]
    if op == ca.OP_MUL:
        return [_sign(parts[1]), _sign(parts[0])]
    if op == ca.OP_DIV:
        return [_sign(parts[1]), -_sign(parts[0])]
    if op in (ca.OP_SQ, ca.OP_FABS):
        return [_sign(parts[0])]
    if op in (ca.OP_POW, ca.OP_CONSTPOW):
        return [_sign(parts[1]) if parts[0][0] >= 0 else 0, 0]
    return [0] * len(parts)


def _has_kink(i: int, node: Node, nodes: list[Node], ranges: list[Interval]) -> bool:
    """True if a node has a kink within the ranges of its arguments that the nodes behind it do not smooth."""
    op, parts = node.operation, [ranges[k] for k in node.arguments]
    if op == ca.OP_FABS:
        kink = _sign(parts[0]) == 0
    elif op in (ca.OP_FMAX, ca.OP_FMIN):
        kink = parts[0][0] < parts[1][1] and parts[1][0] < parts[0][1]
    elif op == ca.OP_SQRT:
        # A root has a kink where it is the length of a vector that may vanish.
        kink = parts[0][0] <= 0.0 and _is_sum_of_squares(node.arguments[0], nodes)
    else:
        return False
    # max(a, 0)^2 and |a|^2 have a derivative where a = 0.
    touches = op in (ca.OP_FABS, ca.OP_SQRT) or (0.0, 0.0) in parts
    users = [other.operation for other in nodes if i in other.arguments]
    return kink and not (touches and users and all(user == ca.OP_SQ for user in users))


def _is_sum_of_squares(i: int, nodes: list[Node]) -> bool:
    node = nodes[i]
    if node.operation in (ca.OP_ADD, ca.OP_TWICE):
        return all(_is_sum_of_squares(k, nodes) for k in node.arguments)
    if node.operation == ca.OP_MUL:
        positive = [
            float(nodes[k].expression) > 0 if nodes[k].operation == ca.OP_CONST else None for k in node.arguments
        ]
        return True in positive and all(
            _is_sum_of_squares(k, nodes) for k, is_ in zip(node.arguments, positive, strict=True) if is_ is None
        )
    return node.operation == ca.OP_SQ or (node.operation == ca.OP_CONST and float(node.expression) >= 0.0)
