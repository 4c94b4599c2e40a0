"""Expression graphs as lists of nodes: ranges of values, directions of dependence, kinks, and branches that meet.

Ranges follow from the bounds of symbols by interval arithmetic; the effect of a node on the last one is the product of
the signs of derivatives along the way, where these are known (disciplined convex programming: Grant, Boyd, Ye 2006).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

# Operations that grow with their argument, wherever they are defined.
GROWING = (
    ca.OP_SQRT, ca.OP_EXP, ca.OP_LOG, ca.OP_TANH, ca.OP_ATAN, ca.OP_ASINH, ca.OP_SINH, ca.OP_ERF, ca.OP_LOG1P,
    ca.OP_EXPM1, ca.OP_TWICE, ca.OP_FMAX, ca.OP_FMIN,
)  # fmt: skip
TWO = (ca.OP_ADD, ca.OP_SUB, ca.OP_MUL, ca.OP_DIV, ca.OP_POW, ca.OP_CONSTPOW, ca.OP_FMAX, ca.OP_FMIN)
COMPARISONS = (ca.OP_LT, ca.OP_LE)
KINKED = {ca.OP_FABS, ca.OP_FMAX, ca.OP_FMIN, ca.OP_SQRT, ca.OP_IF_ELSE_ZERO}
# Operations whose presence makes an expression piecewise: what it is in one place it need not be in another.
PIECEWISE = KINKED | {ca.OP_SIGN, ca.OP_FLOOR, ca.OP_CEIL, ca.OP_FMOD, ca.OP_LT, ca.OP_LE, ca.OP_EQ, ca.OP_NE}
# Number of random places at which two expressions are compared, and the relative difference that is rounding.
RANDOM_POINTS, ROUNDING_OF_EXPRESSIONS = 5, 1e-9


# Lower and upper bound of a value.
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


class GraphNode(NamedTuple):
    """Operation of an expression graph, with the numbers of the nodes of its arguments."""

    operation: int
    arguments: tuple[int, ...]
    expression: ca.SX  # a symbol or a constant; None for operations


def operations_of(expression: ca.SX) -> set[int]:
    """Return the operations of an expression, by their numbers in CasADi."""
    function = ca.Function("f", ca.symvar(expression), [expression])
    return {function.instruction_id(k) for k in range(function.n_instructions())}


def nodes_of(expression: ca.SX) -> list[GraphNode]:
    """Return the nodes of a scalar expression in the order of evaluation."""
    symbols = ca.symvar(expression)
    function = ca.Function("f", symbols, [expression])
    nodes, at, end = list[GraphNode](), dict[int, int](), -1
    for k in range(function.n_instructions()):
        operation = function.instruction_id(k)
        inputs, outputs = function.instruction_input(k), function.instruction_output(k)
        if operation == ca.OP_OUTPUT:
            end = at[inputs[0]]
            continue
        if operation == ca.OP_INPUT:
            node = GraphNode(operation, (), symbols[inputs[0]])
        elif operation == ca.OP_CONST:
            node = GraphNode(operation, (), ca.SX(function.instruction_constant(k)))
        else:
            # Operations of one argument name it twice in some versions of CasADi.
            count = 2 if operation in (*TWO, ca.OP_IF_ELSE_ZERO) or len(set(inputs)) > 1 else 1
            node = GraphNode(operation, tuple(at[i] for i in inputs[:count]), ca.SX())
        at[outputs[0]] = len(nodes)
        nodes.append(node)
    # A result that is zero is no instruction.
    return [*nodes[: end + 1]] if end >= 0 else [GraphNode(ca.OP_CONST, (), ca.SX(0))]


def evaluated(node: GraphNode, parts: list[ca.SX]) -> ca.SX:
    """Return the value of a node from those of its arguments."""
    if not parts:
        return node.expression
    return ca.SX.unary(node.operation, *parts) if len(parts) == 1 else ca.SX.binary(node.operation, *parts)


def branches_as_maxima(expression: ca.SX) -> ca.SX:
    """Return an expression with branches that meet written by maxima: if_else(a < b, c, d) = d + k max(b - a, 0).

    CasADi writes an if_else as the sum of two terms, each of which is zero under the condition of the other.
    """
    if ca.OP_IF_ELSE_ZERO not in operations_of(expression):
        return expression
    nodes, values = nodes_of(expression), list[ca.SX]()
    # Of every such term: the expression that is positive where it holds, and its value there.
    terms: dict[int, tuple[ca.SX, ca.SX]] = {}
    for i, node in enumerate(nodes):
        parts = [values[k] for k in node.arguments]
        value = evaluated(node, parts)
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


def _gap(nodes: list[GraphNode], values: list[ca.SX], i: int) -> ca.SX | None:
    """Return the expression that is positive where a comparison holds."""
    sign = 1.0
    while nodes[i].operation == ca.OP_NOT:
        i, sign = nodes[i].arguments[0], -sign
    if nodes[i].operation not in COMPARISONS:
        return None
    less, more = (values[k] for k in nodes[i].arguments)
    return sign * (more - less)


def _factor(expression: ca.SX, of: ca.SX) -> float | None:
    """Return k if an expression is k times another one; None if it is no multiple.

    Expressions without kinks and branches are analytic: equal at random places, they are equal everywhere.
    """
    if operations_of(ca.vertcat(expression, of)) & PIECEWISE:
        return None
    symbols = ca.symvar(ca.vertcat(expression, of))
    both = ca.Function("both", [ca.vertcat(*symbols)], [expression, of])
    places = np.random.default_rng(0).standard_normal((len(symbols), RANDOM_POINTS))
    above, below = (np.asarray(part).ravel() for part in both(places))
    with np.errstate(all="ignore"):
        ratios = above / below
    if not np.isfinite(ratios).all() or np.ptp(ratios) > ROUNDING_OF_EXPRESSIONS * np.abs(ratios).max():
        return None
    # Rounding of the ratio itself: 1 and -1 are compared exactly.
    nearest = float(np.round(ratios[0]))
    return nearest if abs(ratios[0] - nearest) <= ROUNDING_OF_EXPRESSIONS * abs(nearest) else float(ratios[0])


def range_of(node: GraphNode, parts: list[Interval], known: Ranges) -> Interval:
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


def sign_of(a: Interval) -> int:
    """Return 1 or -1 for values of one sign, else 0."""
    return 1 if a[0] >= 0 else -1 if a[1] <= 0 else 0


def effects_of(nodes: list[GraphNode], ranges: list[Interval]) -> list[int]:
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


def _signs(node: GraphNode, ranges: list[Interval]) -> list[int]:
    """Return the signs of the derivatives of a node by its arguments; 0 if unknown."""
    op, parts = node.operation, [ranges[i] for i in node.arguments]
    if op in GROWING or op == ca.OP_ADD:
        return [1] * len(parts)
    if op == ca.OP_SUB:
        return [1, -1]
    if op == ca.OP_NEG:
        return [-1]
    if op == ca.OP_MUL:
        return [sign_of(parts[1]), sign_of(parts[0])]
    if op == ca.OP_DIV:
        return [sign_of(parts[1]), -sign_of(parts[0])]
    if op in (ca.OP_SQ, ca.OP_FABS):
        return [sign_of(parts[0])]
    if op in (ca.OP_POW, ca.OP_CONSTPOW):
        return [sign_of(parts[1]) if parts[0][0] >= 0 else 0, 0]
    return [0] * len(parts)


def has_kink(i: int, node: GraphNode, nodes: list[GraphNode], ranges: list[Interval]) -> bool:
    """True if a node has a kink within the ranges of its arguments that the nodes behind it do not smooth."""
    op, parts = node.operation, [ranges[k] for k in node.arguments]
    if op == ca.OP_FABS:
        kink = sign_of(parts[0]) == 0
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


def _is_sum_of_squares(i: int, nodes: list[GraphNode]) -> bool:
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
