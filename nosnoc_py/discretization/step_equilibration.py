"""Step equilibration and switch conditions: equations at a node that hold unless something switches there.

If nothing switches in a control stage, the cross complementarity does not determine where the elements begin and end:
the steps h_n are free, and the MPCC has a continuum of solutions. Step equilibration makes neighbouring steps equal
unless a switch lies between them,

    0 = (h_n - h_{n-1}) eta_n    (FESD-J, Eq. 26),

with an indicator eta_n >= 0 that is zero exactly if something switches at node n. It is built from sums of both sides
of all pairs over the element before (B) and after (F) the node: "and" is a product, "or" a sum (Eqs. 27-30).

- "direct" imposes (26); "l2_relaxed" penalises its square; the heuristics penalise differences of steps (Remark 4).
- "linear_complementarity" replaces products and sums by minima and maxima, written with complementarities.
- Whatever the mode, the exact equations are handed to the active-set finish, so that the solution is unbiased.

Switch conditions (`SwitchCondition`) have the same form, residual times indicator, and determine the times of switches
that the complementarities leave open.
"""

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
from nosnoc_py.reformulation.dcs import And, Indicator, Leaf, SwitchCondition
from nosnoc_py.roles import Role

# gamma_h from which on steps have no upper bound except the length of their control stage: just below the default of
# simulations, .9999, with which events may lie anywhere.
ANYWHERE = 0.999

# Factor of the indicator in "linear_complementarity". A relaxation then locates the switches before it makes steps
# equal; with 1 the equal steps keep elements away from switches close to the end of a control stage.
LATE_INDICATOR = 0.1

Rows = Mapping[str, PairRows]
Eta = Callable[[ca.SX, ca.SX], ca.SX]


@dataclass(frozen=True, eq=False)
class EquilibratedElement:
    """One finite element as step equilibration needs it: its relative length s = h / h0 and the rows of its pairs."""

    at: At
    s: ca.SX
    rows: Rows


def indicator(tree: Indicator, before: Rows, after: Rows, G: ca.SX, H: ca.SX, *, saturated: bool = False) -> ca.SX:
    """Evaluate an and/or tree: "and" is a product, "or" a sum, a leaf a sum of quantities.

    Parameters
    ----------
    tree : Indicator
    before, after : mapping of PairRows
        Rows of the elements before and after the node.
    G, H : SX
        Left and right sides of the MPCC.
    saturated : bool
        Replace every leaf x by x / (1 + |x|): a product of many large leaves would amplify rounding errors.
    """
    if isinstance(tree, Leaf):
        value = _leaf(tree, before, after, G, H)
        return value / (1 + ca.fabs(value)) if saturated else value
    parts = [indicator(part, before, after, G, H, saturated=saturated) for part in tree.parts]
    if isinstance(tree, And):
        return reduce(lambda x, y: x * y, parts, ca.SX(1))
    return reduce(lambda x, y: x + y, parts, ca.SX(0))


def _leaf(leaf: Leaf, before: Rows, after: Rows, G: ca.SX, H: ca.SX) -> ca.SX:
    values = {"a": G, "b": H}[leaf.side]  # sides a are rows of G, sides b rows of H
    if leaf.over == "end":
        rows = before[leaf.pair]
        # b has no value at the right boundary unless a stage lies there: it is extrapolated from the stages.
        return ca.dot(ca.DM(rows.end), values[[int(row) for row in rows.b[:, leaf.component]]])
    return ca.sum1(values[sorted(_summands(leaf, before, after))])


def _summands(leaf: Leaf, before: Rows, after: Rows) -> set[int]:
    """Return the rows that a leaf adds up."""
    i, rows = leaf.component, (before if leaf.over == "backward" else after)[leaf.pair]
    if leaf.over == "node":
        chosen = {"a": rows.a_left, "b": rows.b_left}[leaf.side][[i]]
    else:
        chosen = {"a": rows.a_all, "b": rows.b_all}[leaf.side](i)
    return {int(row) for row in chosen}


def equilibrate(builder: ProgramBuilder, steps: list[EquilibratedElement], tree: Indicator, options: FESD) -> None:
    """Add the step equilibration of one control stage.

    In every mode except "linear_complementarity", which already contains them, the exact equations (26) are also added
    as switched equations. The active-set finish imposes them and removes the bias of a penalty.
    """
    if options.step_equilibration == "linear_complementarity":
        for before, after in pairwise(steps):
            node = _Equilibration(builder, after.at, before.rows, after.rows)
            node.impose(after.s - before.s, tree, largest=len(steps))
        return
    # tanh(eta / epsilon): eta is a product of many sums, whose size has no meaning; only its sign matters.
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
    """Step equilibration at one node, written with linear equations and complementarities.

    A tree of products and sums of nonnegative quantities has the same sign as the tree of minima and maxima.
    m = min(a, b) is m = a - p = b - q, and M = max(a, b) is M = a + p = b + q, with 0 <= p perp q >= 0.
    """

    builder: ProgramBuilder
    at: At
    before: Rows
    after: Rows

    def impose(self, difference: ca.SX, tree: Indicator, largest: float) -> None:
        """Add difference = d_plus - d_minus with 0 <= d perp eta >= 0 for both parts, and d <= largest.

        Without the bound both parts could grow together without limit where nothing is minimised.
        """
        # A variable for the indicator: the pairs below then have plain variables on both sides.
        eta, value = self._variable("indicator"), self._value(tree)
        self.builder.constraint("indicator", self.at, eta - LATE_INDICATOR * value, role=Role.EQUILIBRATION_INDICATOR)
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
        # "and" is a minimum (an empty one is positive), "or" a maximum (an empty one is zero).
        sign, empty = (-1.0, 1.0) if isinstance(tree, And) else (1.0, 0.0)
        parts = self._least(tree.parts) if isinstance(tree, And) else tree.parts
        values = [self._value(part) for part in parts]
        return reduce(lambda a, b: self._extreme(a, b, sign), values) if values else ca.SX(empty)

    def _least(self, parts: tuple[Indicator, ...]) -> list[Indicator]:
        """Return the parts of a minimum without sums that contain all summands of another one.

        Such a sum cannot be the smaller one, and where both are equal its complementarity would be degenerate.
        """
        # A part that is no leaf gets a unique row -1 - k, so that it contains no other part.
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
        """Return the larger one of a and b (sign 1) or the smaller one (sign -1)."""
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


def add_switch_conditions(
    builder: ProgramBuilder,
    steps: list[EquilibratedElement],
    switch_conditions: Sequence[SwitchCondition],
    options: FESD,
) -> None:
    """Add the conditions on the times of switches at the nodes inside a control stage."""
    G, H = builder.quantities()
    for before, after in pairwise(steps):
        for condition in switch_conditions:
            residual = indicator(condition.residual, before.rows, after.rows, G, H)
            eta = _eta(condition.indicator, before, after)
            name = f"switch condition {condition.name}"
            builder.switch(name, after.at, residual, eta, required=True, role=Role.ISOLATION)


def _eta(tree: Indicator, before: EquilibratedElement, after: EquilibratedElement, epsilon: float | None = None) -> Eta:
    """Return the indicator of a tree between two elements as a function of G and H.

    With `epsilon` it is tanh(eta / epsilon), which is close to 0 or 1; without, its leaves are saturated.
    """
    if epsilon is None:
        return lambda G, H: indicator(tree, before.rows, after.rows, G, H, saturated=True)
    return lambda G, H: ca.tanh(indicator(tree, before.rows, after.rows, G, H) / epsilon)


# Terms of the penalty by the option `step_equilibration`, from the relative lengths of the elements and the indicators
# of the nodes between them.
PENALTIES: dict[str, Callable[[list[ca.SX], Callable[[], list[ca.SX]]], list[ca.SX]]] = {
    "heuristic_mean": lambda s, _: [(each - 1) ** 2 for each in s],
    "heuristic_difference": lambda s, _: [(b - a) ** 2 for a, b in pairwise(s)],
    "l2_relaxed": lambda s, etas: [(b - a) ** 2 * eta for (a, b), eta in zip(pairwise(s), etas(), strict=True)],
    "direct": lambda *_: [],
    "none": lambda *_: [],
}


def step_bounds(options: FESD, default_gamma: float) -> tuple[float, float]:
    """Return the bounds of s = h / h0."""
    if not options.switch_detection:
        return 1.0, 1.0
    gamma = default_gamma if options.gamma_h is None else options.gamma_h
    # With three elements or more an upper bound of two nominal lengths would keep events from lying anywhere.
    return 1.0 - gamma, math.inf if gamma >= ANYWHERE else 1.0 + gamma
