"""Equations that hold where an indicator says so: step equilibration (FESD-J, Eqs. 26-30, Remark 4), isolation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import casadi as ca

from nosnoc_py.discretization.cross_complementarity import PairRows
from nosnoc_py.discretization.options import FESD
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.program import ProgramBuilder
from nosnoc_py.reformulation.dcs import And, Indicator, Isolation, Leaf
from nosnoc_py.roles import Role

# From this gamma_h on the steps have no upper bound but the length of their control stage.
ANYWHERE = 0.999

# Scale of the indicator in complementarities: a relaxation then finds the switches before it makes steps equal, which
# would otherwise hold them away from switches close to the end of a control stage.
LATE = 0.1

Rows = Mapping[str, PairRows]
Eta = Callable[[ca.SX, ca.SX], ca.SX]


@dataclass(frozen=True, eq=False)
class EquilibratedElement:
    """What step equilibration sees of one finite element: its relative length s = h / h0 and its rows."""

    at: At
    s: ca.SX
    rows: Rows


def indicator(tree: Indicator, before: Rows, after: Rows, G: ca.SX, H: ca.SX, *, saturated: bool = False) -> ca.SX:
    """Evaluate an and/or tree: "and" is a product, "or" a sum, a leaf a sum of quantities.

    Saturated leaves, x / (1 + x), keep products of many large ones from making round-off visible.
    """
    if isinstance(tree, Leaf):
        value = _leaf(tree, before, after, G, H)
        return value / (1 + ca.fabs(value)) if saturated else value
    parts = [indicator(part, before, after, G, H, saturated=saturated) for part in tree.parts]
    if isinstance(tree, And):
        return reduce(lambda x, y: x * y, parts, ca.SX(1))
    return reduce(lambda x, y: x + y, parts, ca.SX(0))


def _leaf(leaf: Leaf, before: Rows, after: Rows, G: ca.SX, H: ca.SX) -> ca.SX:
    values = {"a": G, "b": H}[leaf.side]
    if leaf.over == "end":
        rows = before[leaf.pair]
        return ca.dot(ca.DM(rows.end), values[[int(row) for row in rows.b[:, leaf.component]]])
    return ca.sum1(values[sorted(_summands(leaf, before, after))])


def _summands(leaf: Leaf, before: Rows, after: Rows) -> set[int]:
    """Rows that a leaf adds up."""
    i, rows = leaf.component, (before if leaf.over == "backward" else after)[leaf.pair]
    if leaf.over == "node":
        chosen = {"a": rows.a_left, "b": rows.b_left}[leaf.side][[i]]
    else:
        chosen = {"a": rows.a_all, "b": rows.b_all}[leaf.side](i)
    return {int(row) for row in chosen}


def equilibrate(builder: ProgramBuilder, steps: list[EquilibratedElement], tree: Indicator, options: FESD) -> None:
    """Add the step equilibration of one control stage.

    Whatever the mode, the exact equations (26) are handed over as switched equations: the active-set finish imposes
    them, so the bias of a penalty does not survive it. Complementarities have them already.
    """
    if options.step_equilibration == "linear_complementarity":
        for before, after in pairwise(steps):
            node = _Equilibration(builder, after.at, before.rows, after.rows)
            node.impose(after.s - before.s, tree, largest=len(steps))
        return
    epsilon = options.equilibration_epsilon
    etas = [_eta(tree, before, after, epsilon) for before, after in pairwise(steps)]
    for (before, after), eta in zip(pairwise(steps), etas, strict=True):
        builder.switch("step_equilibration", after.at, after.s - before.s, eta, role=Role.STEP_EQUILIBRATION)
    terms = PENALTIES[options.step_equilibration](
        [step.s for step in steps], lambda: [eta(*builder.quantities()) for eta in etas]
    )
    builder.penalty += options.equilibration_weight * sum(terms, ca.SX(0))


@dataclass(frozen=True, eq=False)
class _Equilibration:
    """The equations of one node with linear equations and complementarities.

    An and/or tree of quantities >= 0 is positive where a tree of minima and maxima is. m = min(a, b) is
    m = a - p = b - q and M = max(a, b) is M = a + p = b + q with 0 <= p perpendicular q >= 0.
    """

    builder: ProgramBuilder
    at: At
    before: Rows
    after: Rows

    def impose(self, difference: ca.SX, tree: Indicator, largest: float) -> None:
        """difference = d_plus - d_minus, both 0 <= d perpendicular eta >= 0, and d <= largest.

        Unbounded, both parts would grow together without an end where nothing is minimised.
        """
        eta, value = self._variable("indicator"), self._value(tree)
        self.builder.constraint("indicator", self.at, eta - LATE * value, role=Role.EQUILIBRATION_INDICATOR)
        parts = [self._variable(f"step_{part}", largest) for part in ("longer", "shorter")]
        rest = difference - parts[0] + parts[1]
        self.builder.constraint("step_equilibration", self.at, rest, role=Role.STEP_EQUILIBRATION)
        left = self.builder.left.add(["indicator"], eta, self.at)
        for name, part in zip(("longer", "shorter"), parts, strict=True):
            right = self.builder.right.add([f"step_{name}"], part, self.at)
            self.builder.group(left, right, role=Role.STEP_EQUILIBRATION)

    def _value(self, tree: Indicator) -> ca.SX:
        if isinstance(tree, Leaf):
            return _leaf(tree, self.before, self.after, *self.builder.quantities())
        sign, empty = (-1.0, 1.0) if isinstance(tree, And) else (1.0, 0.0)
        parts = self._least(tree.parts) if isinstance(tree, And) else tree.parts
        values = [self._value(part) for part in parts]
        return reduce(lambda a, b: self._extreme(a, b, sign), values) if values else ca.SX(empty)

    def _least(self, parts: tuple[Indicator, ...]) -> list[Indicator]:
        """Without sums that contain all of another one: they are no smaller, and where equal, a degenerate pair."""
        sums = [
            (part.side, _summands(part, self.before, self.after)) if isinstance(part, Leaf) else ("", {-1 - k})
            for k, part in enumerate(parts)
        ]
        return [
            part
            for k, (part, (side, rows)) in enumerate(zip(parts, sums, strict=True))
            if not any(side == s and (other < rows or (other == rows and j < k)) for j, (s, other) in enumerate(sums))
        ]

    def _extreme(self, a: ca.SX, b: ca.SX, sign: float) -> ca.SX:
        """The larger one of a and b (sign 1) or the smaller one (sign -1)."""
        word = "maximum" if sign > 0 else "minimum"
        p, q = self._variable(f"{word}_p"), self._variable(f"{word}_q")
        self.builder.constraint(word, self.at, a + sign * p - b - sign * q, role=Role.EQUILIBRATION_INDICATOR)
        left = self.builder.left.add([f"{word}_p"], p, self.at)
        right = self.builder.right.add([f"{word}_q"], q, self.at)
        self.builder.group(left, right, role=Role.EQUILIBRATION_INDICATOR)
        return a + sign * p

    def _variable(self, name: str, upper: float = math.inf) -> ca.SX:
        role = Role.EQUILIBRATION_INDICATOR
        return self.builder.variable(name, self.at, (name,), lower=0.0, upper=upper, role=role)


def isolate(
    builder: ProgramBuilder, steps: list[EquilibratedElement], isolations: Sequence[Isolation], options: FESD
) -> None:
    """Add what fixes the time of switches that the complementarities leave open, between the elements of a stage."""
    G, H = builder.quantities()
    for before, after in pairwise(steps):
        for item in isolations:
            residual = indicator(item.residual, before.rows, after.rows, G, H)
            eta = _eta(item.indicator, before, after)
            builder.switch(f"isolation {item.name}", after.at, residual, eta, required=True, role=Role.ISOLATION)


def _eta(tree: Indicator, before: EquilibratedElement, after: EquilibratedElement, epsilon: float | None = None) -> Eta:
    """The indicator of a tree between two elements: tanh(eta / epsilon), or made of saturated leaves."""
    if epsilon is None:
        return lambda G, H: indicator(tree, before.rows, after.rows, G, H, saturated=True)
    return lambda G, H: ca.tanh(indicator(tree, before.rows, after.rows, G, H) / epsilon)


# Terms of the penalty, from the relative lengths of the elements and the indicators of the nodes between them.
PENALTIES: dict[str, Callable[[list[ca.SX], Callable[[], list[ca.SX]]], list[ca.SX]]] = {
    "heuristic_mean": lambda s, _: [(each - 1) ** 2 for each in s],
    "heuristic_difference": lambda s, _: [(b - a) ** 2 for a, b in pairwise(s)],
    "l2_relaxed": lambda s, etas: [(b - a) ** 2 * eta for (a, b), eta in zip(pairwise(s), etas(), strict=True)],
    "direct": lambda *_: [],
    "none": lambda *_: [],
}


def step_bounds(options: FESD, default_gamma: float) -> tuple[float, float]:
    """Bounds of s = h / h0."""
    if not options.switch_detection:
        return 1.0, 1.0
    gamma = default_gamma if options.gamma_h is None else options.gamma_h
    # With three elements or more an upper bound of two nominal lengths would keep events from lying anywhere.
    return 1.0 - gamma, math.inf if gamma >= ANYWHERE else 1.0 + gamma
