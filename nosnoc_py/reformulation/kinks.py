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

The direction in which a cost depends on an operation follows from signs of intermediate values (`expression_graph`).
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, field, replace
from functools import lru_cache

import casadi as ca
import numpy as np
from attrs import evolve

from nosnoc_py.errors import ModelWarning
from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.reformulation.dcs import DCS, Equation, Variable, indexed
from nosnoc_py.reformulation.expression_graph import (
    KINKED,
    GraphNode,
    Interval,
    Range,
    Ranges,
    bounded,
    branches_as_maxima,
    effects_of,
    evaluated,
    has_kink,
    nodes_of,
    operations_of,
    range_of,
    sign_of,
)
from nosnoc_py.roles import Role
from nosnoc_py.systems.symbols import depends_only_on

# Lengths of vectors below this fraction of their typical value count as zero: far above the bound relaxation of IPOPT.
NEAR_ZERO = 1e-6
# Number of problems whose costs and constraints are kept: a search writes many programs of one problem.
MOST_PROBLEMS = 16
# Largest number of rows into which a row of a constraint is split.
MOST_ROWS = 16


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
        if not operations_of(cost) & KINKED:
            return smooth
        graph = _Graph.of(branches_as_maxima(cost), ranges)
        return graph.lifted(ranges) if graph.kinks or graph.jumps else smooth

    @property
    def size(self) -> int:
        """Number of slacks."""
        return int(self.slacks.numel())


@lru_cache(maxsize=MOST_PROBLEMS)
def kinks_of(ocp: OCP, name: str) -> Epigraph:
    """Return the "stage_cost" or the "terminal_cost" of a problem with slacks; programs of one problem share it."""
    return Epigraph.of(getattr(ocp, name), ranges_of(ocp))


@lru_cache(maxsize=MOST_PROBLEMS)
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
    """Return the bounds and typical sizes of the symbols of a problem."""
    s, p = ocp.system, np.array(ocp.p, float)
    # A program may be solved again with other parameters; those with a sign are supposed to keep it.
    low, high, given = np.where(p > 0, 0.0, -np.inf), np.where(p < 0, 0.0, np.inf), np.ones(p.size, bool)
    for name, (lower, upper) in ocp.free_parameters.items():
        row = s.parameter_names.index(name)
        low[row], high[row], given[row] = lower, upper, False
    (x_low, x_high), (u_low, u_high) = ocp.x_bounds, ocp.u_bounds
    ranges = {
        **bounded(s.x, x_low, x_high, nominal=ocp.sizes.x),
        **bounded(s.x_initial, x_low, x_high, nominal=ocp.sizes.x),
        **bounded(s.u, u_low, u_high, nominal=ocp.sizes.u),
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


@lru_cache(maxsize=MOST_PROBLEMS)
def kinks_left(ocp: OCP) -> tuple[str, ...]:
    """Return the kinks of costs and constraints that programs keep, one sentence each."""
    ranges, result = ranges_of(ocp), list[str]()
    costs = {"stage_cost": ocp.stage_cost, "terminal_cost": ocp.terminal_cost}
    for name, cost in costs.items():
        result += [_advice(name, kink) for kink in Epigraph.of(cost, ranges).left]
    for cost in ocp.point_costs:
        graph = _Graph.of(branches_as_maxima(ca.sum1(cost.expression)), ranges)
        result += [_advice("point cost", str(cost.expression), POINT_ADVICE)] if graph.kinks or graph.jumps else []
    for kind in ("path", "initial", "terminal", "point"):
        for c in getattr(ocp, f"{kind}_constraints"):
            rows = ca.vertsplit(smooth_constraint(c, ocp).expression)
            graphs = [_Graph.of(branches_as_maxima(row), ranges) for row in rows]
            # Distances to obstacles are roots, too, but are never zero where they matter.
            kinks = [g for g in graphs if g.jumps or any(g.nodes[i].operation != ca.OP_SQRT for i in g.kinks)]
            result += [_advice(str(c.name), str(c.expression), ROW_ADVICE)] if kinks else []
    return tuple(result)


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
    if not operations_of(c.expression) & (KINKED - {ca.OP_SQRT}):
        return c
    parts = list[tuple[ca.SX, float, float]]()
    for row, low, high in zip(ca.vertsplit(c.expression), c.lower, c.upper, strict=True):
        # Both limits at once: one of them has the kink in the wrong direction.
        both = low > -np.inf and high < np.inf
        parts += [(row, low, high)] if both else _split(row, low, high, ocp)
    expressions, lower, upper = zip(*parts, strict=True)
    return evolve(c, expression=ca.vertcat(*expressions), lower=np.array(lower), upper=np.array(upper))


def _split(row: ca.SX, low: float, high: float, ocp: OCP) -> list[tuple[ca.SX, float, float]]:
    sign = 1.0 if high < np.inf else -1.0
    pieces = _Graph.of(branches_as_maxima(sign * row), ranges_of(ocp)).pieces()
    return [(sign * piece, low, high) for piece in pieces] if len(pieces) > 1 else [(row, low, high)]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Graph:
    """An expression as a list of nodes, arguments first, with the range of each and its effect on the last.

    Attributes
    ----------
    nodes : list of GraphNode
    ranges : list of Interval
    effects : list of int
        1 if the last node nowhere decreases with a node, -1 if it nowhere increases, 0 if neither is known.
    kinks, jumps : tuple of int
        Nodes with a kink, and branches that may not meet.
    """

    nodes: list[GraphNode]
    ranges: list[Interval]
    effects: list[int]
    kinks: tuple[int, ...]
    jumps: tuple[int, ...]

    @classmethod
    def of(cls, expression: ca.SX, known: Ranges) -> _Graph:
        nodes, given = nodes_of(expression), list[bool]()
        for node in nodes:
            here = known.get(node.expression.element_hash(), Range()).given if node.operation == ca.OP_INPUT else True
            given.append(here and all(given[k] for k in node.arguments))
        ranges: list[Interval] = []
        kinks = list[int]()
        for i, node in enumerate(nodes):
            low, high = range_of(node, [ranges[k] for k in node.arguments], known)
            if not given[i] and has_kink(i, node, nodes, ranges):
                kinks.append(i)
                # A slack is above its operation (or below), without a limit.
                low, high = (-np.inf, high) if node.operation == ca.OP_FMIN else (low, np.inf)
            ranges.append((low, high))
        effects = effects_of(nodes, ranges)
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
            exact.append(evaluated(node, [exact[k] for k in node.arguments]))
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
        if i not in self.kinks and node.operation == ca.OP_FABS and sign_of(ranges[0]):
            return sign_of(ranges[0]) * parts[0]
        if i not in self.kinks and node.operation in (ca.OP_FMAX, ca.OP_FMIN):
            second_is_larger = ranges[0][1] <= ranges[1][0]
            if second_is_larger or ranges[1][1] <= ranges[0][0]:
                return parts[int(second_is_larger == (node.operation == ca.OP_FMAX))]
        return evaluated(node, parts)

    def _direction(self, i: int) -> int:
        return -1 if self.nodes[i].operation == ca.OP_FMIN else 1

    def _rows(self, i: int, s: ca.SX, parts: list[ca.SX], near: float) -> list[ca.SX]:
        node = self.nodes[i]
        if node.operation == ca.OP_SQRT:
            # s >= |d|^2 / s is convex and has a gradient where d = 0, which s^2 >= |d|^2 has not.
            return [s - parts[0] / (s + near)]
        return [self._direction(i) * (s - part) for part in _arguments_of(node, parts)]


def _arguments_of(node: GraphNode, parts: list[ca.SX]) -> list[ca.SX]:
    """Return the smooth functions whose largest (or smallest) a node is."""
    return [parts[0], -parts[0]] if node.operation == ca.OP_FABS else parts
